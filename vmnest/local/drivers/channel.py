"""The control socket of a supervisor: its place, and the frames on it; and what else both ends must know.

Stand-alone (see ``runtime``). A SOCK_SEQPACKET socket: one datagram is one frame, words of ASCII separated by spaces,
at most MAX_FRAME_BYTES. It is a protocol between versions, since a supervisor outlives its daemon:

=============================  ==========================================================
request                        answer
=============================  ==========================================================
``dial PORT MILLISECONDS``     ``ok`` with one descriptor, ``refused``, ``timeout``, or ``error ERRNO``
``stop MILLISECONDS``          ``stopping``; then what ``watch`` gets
``watch``                      ``init PID`` with a pidfd, then ``limits ENFORCED``, ``started``, ``ready`` and ``ended
                               KIND NUMBER REASON`` as they come (those that were before come at once)
``freeze``                     ``frozen``, or ``thawed`` if it could not be or was called off
``thaw``                       ``thawed``
``facts``                      ``facts ENFORCED frozen`` or ``… thawed``
``egress``                     ``ok`` with the listening socket, or ``none`` if the VM has no egress
anything else                  the connection is closed
=============================  ==========================================================

A start that fails is told to the connection that the supervisor was spawned with: ``failed STEP ERRNO SUBJECT``.

It uses ``_socket``, the C half of ``socket``: the other half costs a supervisor 10 ms of its start.
"""

from __future__ import annotations

import _socket
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# In a VM's folder, where supervisor and daemon both find them:
SOCKET_NAME = "s"
CONSOLE_NAME = "console.log"
ENDED_NAME = "ended.json"
EVENTS = 3  # the supervisor's descriptor for the connection that it is born with
EGRESS_PORT = 3128  # where the way out is, on the loopback interface of a VM that has one
MAX_FRAME_BYTES = 512
_MAX_BIND_PATH_BYTES = 107
_DESCRIPTOR = struct.Struct("i")
_ANCILLARY_BYTES = _socket.CMSG_SPACE(_DESCRIPTOR.size)


def listen(folder: str) -> _socket.socket:
    """A listening control socket in a VM's folder."""
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
    _at_address(folder, listener.bind)
    listener.listen(64)
    return listener


def connect(folder: str) -> _socket.socket:
    """A connection to the supervisor of a VM's folder; OSError if none answers."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
    try:
        _at_address(folder, connection.connect)
    except OSError:
        connection.close()
        raise
    return connection


def _at_address(folder: str, use: Callable[[bytes], object]) -> None:
    """Call ``use`` with the socket's path, by way of a descriptor if the path is too long for an address."""
    path = os.fsencode(os.path.join(folder, SOCKET_NAME))
    if len(path) <= _MAX_BIND_PATH_BYTES:
        use(path)
        return
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        use(f"/proc/self/fd/{descriptor}/{SOCKET_NAME}".encode())
    finally:
        os.close(descriptor)


def send(connection: _socket.socket, *words: object, descriptor: int | None = None) -> None:
    """Send one frame, with a descriptor if one is given. Never waits: a peer that does not read gets an OSError."""
    frame = " ".join(str(word) for word in words).encode("ascii", "replace")[:MAX_FRAME_BYTES]
    ancillary = []
    if descriptor is not None:
        ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, _DESCRIPTOR.pack(descriptor))]
    connection.sendmsg([frame], ancillary, _socket.MSG_NOSIGNAL | _socket.MSG_DONTWAIT)


def receive(connection: _socket.socket) -> tuple[list[str], int | None]:
    """The next frame's words, and the descriptor that came with it; no words at the end of the connection.

    Raises:
        ValueError: what came is no frame.
    """
    frame, ancillary, flags, _ = connection.recvmsg(MAX_FRAME_BYTES, _ANCILLARY_BYTES, _socket.MSG_CMSG_CLOEXEC)
    descriptor = None
    for level, kind, data in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS and len(data) >= _DESCRIPTOR.size:
            (descriptor,) = _DESCRIPTOR.unpack_from(data)
    try:
        if flags & (_socket.MSG_TRUNC | _socket.MSG_CTRUNC):
            raise ValueError("frame too long")
        return frame.decode("ascii").split(), descriptor
    except ValueError:
        if descriptor is not None:
            os.close(descriptor)
        raise
