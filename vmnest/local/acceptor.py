"""Listening sockets and the threads that serve their connections.

One thread waits on all listeners at once; each connection has a thread of its own while it lives. ``close`` ends them
all: it shuts the connections down, which wakes whoever reads or writes them, and joins the threads.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable

_LOG = logging.getLogger(__name__)

Serve = Callable[[socket.socket], None]

BACKLOG = 1024
MAX_CONNECTIONS = 1536  # of one listener: a VM's endpoint that is flooded must not close the control plane
_JOIN_SECONDS = 5.0


class _Door:
    """A listener, and how many connections came through it that are still open."""

    def __init__(self, serve: Serve, name: str) -> None:
        self.serve = serve
        self.name = name
        self.open = 0  # guarded by the acceptor's lock


class Acceptor:
    """Accepts connections on any number of listeners. Thread-safe."""

    def __init__(self, *, max_connections: int = MAX_CONNECTIONS) -> None:
        self._max_connections = max_connections
        self._lock = threading.Lock()  # guards the changes, the connections, the doors' counts and closed
        self._changes: list[Callable[[], object]] = []
        self._connections: dict[threading.Thread, socket.socket] = {}
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="acceptor")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def listen(self, listener: socket.socket, serve: Serve, *, name: str) -> None:
        """Serve the connections of ``listener``, which is now the acceptor's: ``serve`` gets each, closed after it."""
        listener.setblocking(False)
        door = _Door(serve, name)
        if not self._change(lambda: self._selector.register(listener, selectors.EVENT_READ, door)):
            listener.close()

    def forget(self, listener: socket.socket) -> None:
        """Close a listener; its open connections go on."""
        self._change(lambda: self._unregister(listener))

    def close(self) -> None:
        """Close all listeners and connections, and wait for their threads."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._wake()
        self._thread.join()
        with self._lock:
            connections = dict(self._connections)
        for sock in connections.values():
            # The owner may have closed it in this very moment.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        end = time.monotonic() + _JOIN_SECONDS
        for thread in connections:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                _LOG.warning("%s does not end", thread.name)

    # -- the acceptor's thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            for key, _ in self._selector.select():
                if key.fileobj is self._wake_reader:
                    self._wake_reader.recv(4096)
                elif isinstance(key.fileobj, socket.socket):
                    self._accept(key.fileobj, key.data)
            self._apply_changes()
        self._apply_changes()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                self._unregister(key.fileobj)
        self._selector.close()
        self._wake_writer.close()

    def _apply_changes(self) -> None:
        with self._lock:
            changes, self._changes = self._changes, []
        for change in changes:
            change()

    def _unregister(self, listener: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(listener)
        listener.close()

    def _accept(self, listener: socket.socket, door: _Door) -> None:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return  # the client gave up before we got to it
        except OSError as error:
            # Out of descriptors, most likely. The connection stays in the backlog: do not spin on it.
            _LOG.warning("cannot accept a connection for %s: %s", door.name, error)
            time.sleep(0.05)
            return
        sock.setblocking(True)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        thread = threading.Thread(target=self._serve, args=(sock, door), name=door.name, daemon=True)
        with self._lock:
            refused = door.open >= self._max_connections
            if not refused:
                self._connections[thread] = sock
                door.open += 1
        if refused:
            _LOG.warning("more than %d connections: one for %s was refused", self._max_connections, door.name)
            sock.close()
            return
        try:
            thread.start()
        except RuntimeError as error:  # no more threads to be had
            _LOG.warning("a connection for %s was dropped: %s", door.name, error)
            self._release(thread, door)

    def _serve(self, sock: socket.socket, door: _Door) -> None:
        try:
            door.serve(sock)
        except Exception:  # the last line of a connection: the others go on
            _LOG.exception("a connection failed")
        finally:
            self._release(threading.current_thread(), door)

    def _release(self, thread: threading.Thread, door: _Door) -> None:
        with self._lock:
            sock = self._connections.pop(thread)
            door.open -= 1
        sock.close()

    # -- from any thread -----------------------------------------------------------------------------------------------

    def _change(self, change: Callable[[], object]) -> bool:
        with self._lock:
            if self._closed:
                return False
            self._changes.append(change)
        self._wake()
        return True

    def _wake(self) -> None:
        # A full pipe wakes as well as one byte more; a closed one has nobody left to wake.
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_writer.send(b"!")


def bind(port: int = 0, *, host: str = "127.0.0.1") -> socket.socket:
    """A listening loopback socket on that port, or on a free one.

    Raises:
        OSError: the port is taken.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Without it, connections of the previous daemon in TIME_WAIT would keep its port from us.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
