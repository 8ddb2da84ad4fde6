"""The forwarder: sockets that listen on this machine, a thread that accepts, and one for each client connection."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from types import TracebackType

from .. import errors, systems
from ..wire.pipes import Pipe
from . import clients, exchange
from .gate import Gate
from .ports import LOOPBACK, Route
from .upstreams import Upstreams

__all__ = ["Forwarder"]

_LOOPBACK_6 = "::1"
MAX_CLIENTS = 1200  # more wait until one leaves
BACKLOG = 1024
REPEAT_SECONDS = 30.0  # between two reports of the same
MAX_REPORTS = 50  # in that time
JOIN_SECONDS = 0.5
_PAUSE_SECONDS = 0.1
_NO_SUCH_FAMILY = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT})
_ANY_PORT_ATTEMPTS = 16

_logger = logging.getLogger(__name__)


class Forwarder:
    """Forwards ports of this machine to ports of a sandbox, between ``open`` and ``close``.

    Args:
        gate: The sandbox.
        routes: What is forwarded.
        bind: The address to listen on; on ``LOOPBACK`` also on that of IPv6, where there is one.
        is_direct: Do not use the agent's relay.
        allow_hosts: Names that ``Host`` may say.
        report: Told of problems, a line each; the same one not again for a while.
        on_end: Told why it has to end; that it does is the caller's business.

    Attributes:
        routes: What is forwarded, with the true local ports once it is open.
    """

    def __init__(
        self,
        gate: Gate,
        routes: Sequence[Route],
        *,
        bind: str = LOOPBACK,
        is_direct: bool = False,
        allow_hosts: Collection[str] = (),
        report: Callable[[str], None],
        on_end: Callable[[errors.VmnestError], None],
    ) -> None:
        self.routes = list(routes)
        self._bind = bind
        self._allowed = frozenset(name.lower() for name in (*allow_hosts, bind, socket.gethostname()))
        self._report_to = report
        self._reported: dict[str, float] = {}
        self._locals: dict[int, int] = {}
        self._ending = threading.Event()
        self._upstreams = Upstreams(gate)
        self._shared = exchange.Shared(
            gate, self._upstreams, self._locals, is_direct, self.report, on_end, self._ending
        )
        self._listeners: dict[int, tuple[socket.socket, int]] = {}  # descriptor → the socket, its remote port
        self._wakers: tuple[int, int] | None = None  # the two ends of a pipe
        self._lock = threading.Lock()  # guards the two below
        self._clients: dict[threading.Thread, Pipe] = {}
        self._is_closed = False
        self._acceptor = threading.Thread(target=self._accept, name="vmnest-forward", daemon=True)

    def open(self) -> None:
        """Listen on all of the ports, or on none.

        Raises:
            errors.ListenError: one of them cannot be had.
            errors.UnsupportedError: this system has no ``poll``.
        """
        if not systems.has_poll():
            raise errors.UnsupportedError("ports cannot be forwarded on this system: it has no poll()")
        try:
            for number, route in enumerate(self.routes):
                sockets = _listen(self._bind, route.local)
                self._listeners.update({each.fileno(): (each, route.remote) for each in sockets})
                self.routes[number] = Route(route.remote, sockets[0].getsockname()[1])
        except BaseException:
            self._close_listeners()
            raise
        self._locals.update(self.routes)
        self._wakers = os.pipe()
        self._acceptor.start()

    def close(self) -> None:
        """End all connections and listen no more. May be called again, by any thread but the forwarder's own."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._ending.set()
        if self._wakers is not None:
            os.write(self._wakers[1], b"!")
            self._acceptor.join()
            for descriptor in self._wakers:
                os.close(descriptor)
        self._close_listeners()
        self._upstreams.close()
        with self._lock:
            running = dict(self._clients)
        for pipe in running.values():
            pipe.interrupt()
        end = time.monotonic() + JOIN_SECONDS  # one may be waiting for the service
        for thread in running:
            thread.join(max(0.0, end - time.monotonic()))

    def __enter__(self) -> Forwarder:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def report(self, text: str) -> None:
        """Tell of a problem, unless that was done a moment ago."""
        now = time.monotonic()
        with self._lock:
            self._reported = {each: at for each, at in self._reported.items() if now - at < REPEAT_SECONDS}
            if text in self._reported or len(self._reported) >= MAX_REPORTS:
                return
            self._reported[text] = now
        try:
            self._report_to(text)
        except Exception:  # it is not ours, and connections do not end because nobody can be told
            _logger.exception("a remark could not be made: %s", text)

    # -- accepting -----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        poller = select.poll()
        assert self._wakers is not None
        poller.register(self._wakers[0], select.POLLIN)
        for number in self._listeners:
            poller.register(number, select.POLLIN)
        while not self._ending.is_set():
            for number, _ in poller.poll():
                found = self._listeners.get(number)
                if found is not None:
                    self._accept_one(*found)

    def _accept_one(self, listener: socket.socket, remote: int) -> None:
        if len(self._clients) >= MAX_CLIENTS:
            self.report(f"{MAX_CLIENTS} connections are open: more wait until one of them ends")
            self._ending.wait(_PAUSE_SECONDS)
            return
        try:
            sock, address = listener.accept()
        except BlockingIOError:
            return  # it is gone already
        except OSError as error:
            self.report(f"a connection cannot be accepted: {error.strerror or error}")
            self._ending.wait(_PAUSE_SECONDS)
            return
        with contextlib.suppress(OSError):  # it may be gone already
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pipe = Pipe(sock)
        thread = threading.Thread(
            target=self._serve, args=(pipe, remote, str(address[0])), name="vmnest-forward-client", daemon=True
        )
        with self._lock:
            self._clients[thread] = pipe
        try:
            thread.start()
        except RuntimeError as error:  # no more threads to be had
            self._leave(thread, pipe)
            self.report(f"a connection cannot be served: {error}")

    def _serve(self, pipe: Pipe, remote: int, address: str) -> None:
        try:
            clients.serve(pipe, shared=self._shared, remote=remote, address=address, allowed=self._allowed)
        except Exception as error:  # the last line of a connection: the forwarder lives on
            _logger.exception("a connection failed")
            self.report(f"a connection failed: {type(error).__name__}")
        finally:
            self._leave(threading.current_thread(), pipe)

    def _leave(self, thread: threading.Thread, pipe: Pipe) -> None:
        with self._lock:
            self._clients.pop(thread, None)
        pipe.close()

    def _close_listeners(self) -> None:
        for listener, _ in self._listeners.values():
            listener.close()
        self._listeners.clear()


# -- listening ---------------------------------------------------------------------------------------------------------


def _listen(bind: str, port: int) -> list[socket.socket]:
    """Sockets that listen on that port of the address; 0 stands for any port that is free on all of them."""
    addresses = [bind, _LOOPBACK_6] if bind == LOOPBACK else [bind]
    for attempt in range(_ANY_PORT_ATTEMPTS):
        sockets: list[socket.socket] = []
        try:
            for address in addresses:
                number = sockets[0].getsockname()[1] if sockets else port
                if (listener := _listen_on(address, number, is_needed=address == bind)) is not None:
                    sockets.append(listener)
        except OSError as error:
            for each in sockets:
                each.close()
            if port == 0 and sockets and attempt < _ANY_PORT_ATTEMPTS - 1:
                continue  # free on the one, taken on the other
            raise _explain(error, bind, port) from error
        return sockets
    raise AssertionError("unreachable")


def _listen_on(address: str, port: int, *, is_needed: bool) -> socket.socket | None:
    """One that listens there; None if this machine has no such address, and that does not matter."""
    with contextlib.ExitStack() as stack:
        try:
            family, kind, number, _, place = socket.getaddrinfo(
                address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = stack.enter_context(socket.socket(family, kind, number))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(place)
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            if not is_needed and error.errno in _NO_SUCH_FAMILY:
                return None
            raise
        stack.pop_all()
        return listener


def _explain(error: OSError, bind: str, port: int) -> errors.ListenError:
    if error.errno == errno.EADDRINUSE:
        reason, hint = (
            "another program listens there",
            "Take another local port, or any that is free: -l 0, or -r REMOTE:0.",
        )
    elif error.errno == errno.EACCES:
        reason, hint = "that needs more rights", "Ports below 1024 are root's: take a higher one with -l."
    elif isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        reason, hint = "this machine has no such address", "See --bind; by default it is loopback only."
    else:
        reason, hint = error.strerror or str(error), ""
    return errors.ListenError(f"cannot listen on {bind} port {port}: {reason}", hint=hint or None)
