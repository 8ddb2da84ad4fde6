"""The gate of one sandbox: accepts what comes from inside, and carries what the rules allow.

It has one thread that accepts, and one for each connection. A sandbox that opens more than so many waits: what exceeds
them stays where the kernel keeps it. The listening socket is shared with the sandbox's supervisor, and goes on without
us; so it is never shut down here, only closed.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Callable

from ... import deadline
from ...wire import egress
from . import conversation, journal
from .outlet import Outlet

__all__ = ["MAX_CONNECTIONS", "Gate"]

_LOG = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
_JOIN_SECONDS = 5.0
_PAUSE_SECONDS = 0.05


class Gate:
    """Thread-safe.

    Args:
        rules: What is let through.
        log: Gets a line for each decision, but not more than a log can bear. Called from any thread.
        outlet: Makes the connections.
        patience: How long clients may take.
        max_connections: How many there may be at once.
    """

    def __init__(
        self,
        rules: egress.Rules,
        log: Callable[[str], None],
        *,
        outlet: Outlet | None = None,
        patience: conversation.Patience | None = None,
        max_connections: int = MAX_CONNECTIONS,
        clock: deadline.Clock = deadline.SYSTEM_CLOCK,
    ) -> None:
        self.rules = rules
        self._journal = journal.Journal(log, clock=clock)
        self._desk = conversation.Desk(
            rules, outlet or Outlet(), self._journal, patience or conversation.Patience(), clock
        )
        self._max_connections = max_connections
        self._lock = threading.Lock()  # guards the conversations, those that end, and closed
        self._open: dict[threading.Thread, conversation.Conversation] = {}
        self._ending: list[threading.Thread] = []  # with nothing left to do but to end
        self._closed = False
        self._thread: threading.Thread | None = None
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.setblocking(False)

    @property
    def refusals(self) -> tuple[str, ...]:
        """What was refused of late, each once, the latest last."""
        return self._journal.refusals

    def serve(self, listener: socket.socket) -> None:
        """Begin to serve what connects to ``listener``, which is the gate's from here on. Returns at once."""
        listener.setblocking(False)
        self._thread = threading.Thread(target=self._accept_all, args=(listener,), name="egress", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """End all connections; new ones are served."""
        with self._lock:
            found = list(self._open.values())
        for one in found:
            one.cut()

    def close(self) -> None:
        """End all connections, serve no more, and wait for the threads. May be called again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._wake()
        if self._thread is not None:
            self._thread.join()
        self.cut()
        end = time.monotonic() + _JOIN_SECONDS
        with self._lock:
            threads = [*self._open, *self._ending]
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():  # it looks a name up, and cannot be called off
                _LOG.warning("%s does not end", thread.name)
        self._wake_reader.close()
        self._wake_writer.close()

    # -- its threads ---------------------------------------------------------------------------------------------------

    def _accept_all(self, listener: socket.socket) -> None:
        with listener:
            while not self._closed:
                self._reap()
                poller = select.poll()
                poller.register(self._wake_reader, select.POLLIN)
                if len(self._open) < self._max_connections:
                    poller.register(listener, select.POLLIN)
                ready = dict(poller.poll())
                if self._wake_reader.fileno() in ready:
                    self._wake_reader.recv(4096)
                if listener.fileno() in ready:
                    self._accept(listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return  # the client gave up before we got to it
        except OSError as error:
            # Out of descriptors, most likely. The connection stays where it is: do not spin on it.
            _LOG.warning("egress: cannot accept a connection: %s", error)
            time.sleep(_PAUSE_SECONDS)
            return
        sock.setblocking(True)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one = conversation.Conversation(sock, self._desk)
        thread = threading.Thread(target=self._converse, args=(sock, one), name="egress connection", daemon=True)
        with self._lock:
            self._open[thread] = one
        try:
            thread.start()
        except RuntimeError as error:  # no more threads to be had
            _LOG.warning("egress: a connection was dropped: %s", error)
            with self._lock:
                del self._open[thread]
            sock.close()

    def _converse(self, sock: socket.socket, one: conversation.Conversation) -> None:
        try:
            one.serve()
        except Exception:  # the last line of a connection: the others go on
            _LOG.exception("an egress connection failed")
        finally:
            self._forget(threading.current_thread(), sock)

    def _reap(self) -> None:
        with self._lock:
            ending, self._ending = self._ending, []
        for thread in ending:
            thread.join()

    def _forget(self, thread: threading.Thread, sock: socket.socket) -> None:
        with self._lock:
            del self._open[thread]
            self._ending.append(thread)
        sock.close()
        self._wake()

    def _wake(self) -> None:
        # A full pipe wakes as well as one byte more; a closed one has nobody left to wake.
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"!")
