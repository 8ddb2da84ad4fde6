"""A client's connection to a VM's endpoint, and the connection into the VM that goes with it.

A request is counted as being in the VM from ``enter`` to ``leave``. What is in the VM when that is suspended is cut, on
both sides: its client learns that no answer will come, and not that nothing was done.
"""

from __future__ import annotations

import select
import socket

from .. import deadline, errors
from ..wire import names, streams
from . import records

PENDING_SECONDS = 3.0  # how long a request waits for its VM to be started
RESUME_SECONDS = 60.0  # and for one that is asleep to run again; the hooks may take that long
DIAL_SECONDS = 10.0
# A server that closes idle connections does so after 2 s or more: one that was used this lately will still be there.
REUSE_SECONDS = 1.0

_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class Unreachable(Exception):  # noqa: N818 - a way to answer, not a failure of ours
    """No answer is to be had from the VM: a 502 without a body.

    ``kind`` is its ``x-aws-proxy-error``; clients take that to mean that the request did not get into the VM, so it is
    None if it did.
    """

    def __init__(self, kind: str | None) -> None:
        super().__init__(kind)
        self.kind = kind


class ClientGoneError(Exception):
    """The client's connection has ended, or was cut: nobody waits for the answer."""


class Client:
    """Both connections. Used by one thread, but for ``cut`` and ``touch``.

    Attributes:
        stream: The client's connection.
        record: The VM.
    """

    def __init__(self, stream: streams.Stream, record: records.Record, *, clock: deadline.Clock) -> None:
        self.stream = stream
        self.record = record
        self._clock = clock
        self._guest: streams.Stream | None = None
        self._port = 0
        self._used_at = 0.0
        self._is_cut = False

    def touch(self) -> None:
        """Bytes pass: the VM is not idle."""
        self.record.touched_at = self._clock.monotonic()

    # -- in the VM or not ----------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """A request is about to go into the VM, which may have to be waited for.

        Raises:
            Unreachable: the VM does not run.
            ClientGoneError: the client went while its request was held.
        """
        was_running = self.record.state == names.RUNNING
        state = self.record.enter(self, start_seconds=PENDING_SECONDS, resume_seconds=RESUME_SECONDS)
        if state != names.RUNNING:
            raise Unreachable(names.APP_CONNECT_FAILED if state == names.PENDING else names.MICROVM_CONNECT_FAILED)
        self.touch()
        # Who gave up waiting may have sent the request again: it must not be executed twice.
        if not was_running and self._is_gone():
            raise ClientGoneError("the client ended the connection while its request was held")

    def leave(self) -> None:
        """The request has its answer, or will have none. Harmless without ``enter``."""
        self.record.leave(self)

    def cut(self) -> None:
        """End both connections, from any thread: the VM is suspended."""
        self._is_cut = True
        self.stream.interrupt()
        guest = self._guest
        if guest is not None:
            guest.interrupt()

    @property
    def is_cut(self) -> bool:
        """The VM was suspended under it."""
        return self._is_cut

    def _is_gone(self) -> bool:
        poller = select.poll()
        poller.register(self.stream.socket, _GONE)
        return bool(poller.poll(0))

    # -- the connection into the VM ------------------------------------------------------------------------------------

    def open_guest(self, port: int) -> tuple[streams.Stream, bool]:
        """A connection to that port in the VM, and whether it was used before.

        Raises:
            Unreachable: there is none to be had.
            ClientGoneError: the VM was suspended meanwhile.
        """
        if self._guest is not None:
            fresh = self._clock.monotonic() - self._used_at < REUSE_SECONDS
            if port == self._port and fresh and not self._guest.is_stale():
                return self._guest, True
            self.drop_guest()
        self._guest = streams.Stream(self.dial(port))
        self._port = port
        # After the assignment: from here on ``cut`` finds it.
        if self._is_cut:
            raise ClientGoneError("the MicroVM was suspended")
        return self._guest, False

    def keep_guest(self) -> None:
        """The connection into the VM may be used again."""
        self._used_at = self._clock.monotonic()

    def drop_guest(self) -> None:
        """The connection into the VM is of no use any more."""
        guest, self._guest = self._guest, None
        if guest is not None:
            guest.close()

    def wait_for(self, guest: streams.Stream) -> None:
        """Wait until the VM has something to say.

        Raises:
            ClientGoneError: the client went first.
        """
        if guest.ahead:
            return
        poller = select.poll()
        poller.register(guest.socket, select.POLLIN)
        poller.register(self.stream.socket, _GONE)
        ready = dict(poller.poll())
        if self._is_cut or guest.socket.fileno() not in ready:
            self.drop_guest()
            raise ClientGoneError("the client ended the connection before the answer, or was cut")

    def dial(self, port: int) -> socket.socket:
        """A connection to that port in the VM, which is the caller's own: nobody cuts it.

        Raises:
            Unreachable: there is none to be had.
        """
        machine = self.record.machine
        assert machine is not None
        try:
            sock = machine.dial(port, timeout=DIAL_SECONDS)
        except errors.LocalCloudError as error:
            raise Unreachable(names.MICROVM_CONNECT_FAILED) from error
        except OSError as error:
            raise Unreachable(names.APP_CONNECT_FAILED) from error
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
