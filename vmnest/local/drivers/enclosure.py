"""How the supervisor leaves the host: it gives up root, and goes into namespaces of its own.

Stand-alone (see ``runtime``).
"""

from __future__ import annotations

import _socket
import errno
import fcntl
import os
import struct

from . import channel, init, kernel, mounts

_INSIDE_ID = 1000
_HOSTNAME = "sandbox"
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_EGRESS_BACKLOG = 256


def isolate_as_root(uid: int) -> None:
    """A mount namespace for the stage. Root in a container may lack CAP_SYS_ADMIN: then by way of a user namespace.

    That one maps root and the sandbox's uid to themselves. Such a map of two takes capabilities outside of it, so a
    process that stays outside writes it.
    """
    try:
        mounts.isolate()
    except PermissionError:
        wake, waker = os.pipe()
        outside = os.fork()
        if outside == 0:
            os.close(waker)  # or it would wait for itself, should we fail
            _map_from_outside(wake, uid)
        kernel.unshare(kernel.CLONE_NEWUSER)
        os.write(waker, b"x")
        os.close(waker)
        os.close(wake)
        _, status = os.waitpid(outside, 0)
        if status != 0:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), "uid_map") from None
        mounts.isolate()


def _map_from_outside(wake: int, uid: int) -> None:
    status = 1
    try:
        process = os.getppid()
        if not os.read(wake, 1):
            return
        for name in ("uid_map", "gid_map"):
            kernel.write(f"/proc/{process}/{name}", f"0 0 1\n{uid} {uid} 1\n")
        status = 0
    finally:
        os._exit(status)


def become(uid: int) -> None:
    """Be nobody on this host. The change makes a process undumpable, and its /proc/self root's: undo that."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    kernel.set_dumpable(True)


def enter_namespaces() -> None:
    """Leave the user namespace, then the others but for that of mounts; the next child is process 1."""
    uid, gid = os.geteuid(), os.getegid()
    init.take("user-namespace", lambda: kernel.unshare(kernel.CLONE_NEWUSER))
    init.take("identity-map", lambda: _map_identity(uid, gid))
    rest = kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    init.take("namespaces", lambda: kernel.unshare(rest))
    init.take("loopback", _raise_loopback)
    init.take("hostname", lambda: kernel.set_hostname(_HOSTNAME))


def listen_for_egress() -> _socket.socket:
    """Where a proxy outside is to be found from inside: a listening socket in the network namespace that we are in.

    Nobody outside can reach it, and nobody inside can take its place: it is there before anything runs.
    """
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    listener.bind(("127.0.0.1", channel.EGRESS_PORT))
    listener.listen(_EGRESS_BACKLOG)
    return listener


def _map_identity(uid: int, gid: int) -> None:
    kernel.write("/proc/self/setgroups", "deny")
    kernel.write("/proc/self/uid_map", f"{_INSIDE_ID} {uid} 1")
    kernel.write("/proc/self/gid_map", f"{_INSIDE_ID} {gid} 1")


def _raise_loopback() -> None:
    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC)
    try:
        fcntl.ioctl(probe.fileno(), _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    finally:
        probe.close()
