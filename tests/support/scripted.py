"""An HTTP peer that answers from a script: one step for each request, whatever the request is."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

DRIP_SECONDS = 0.02


@dataclass(frozen=True)
class Received:
    """A request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> object:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """What to do with a request: send ``pieces``, then go on with the connection, or ``cut`` it, or stay ``silent``.

    ``drip`` is sent before that, a byte at a time with pauses, until the client has had enough.
    """

    pieces: Sequence[bytes] = ()
    cut: bool = False
    silent: bool = False
    drip: bytes = b""
    before: Callable[[], object] = field(default=lambda: None)


CUT = Answer(cut=True)
SILENT = Answer(silent=True)

Step = Answer | Callable[[Received], Answer]


def answer(status: int, body: bytes | str = b"", *, headers: Iterable[tuple[str, str]] = (), kind: str = "") -> Answer:
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(data)}"]
    if kind:
        lines.append(f"Content-Type: {kind}")
    lines += [f"{name}: {value}" for name, value in headers]
    return Answer([("\r\n".join(lines) + "\r\n\r\n").encode() + data])


def json_answer(status: int, value: object) -> Answer:
    return answer(status, json.dumps(value), kind="application/json")


def text_answer(status: int, text: str, **headers: str) -> Answer:
    fields = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return answer(status, text, kind="text/plain", headers=fields)


NO_ROUTE = json_answer(404, {"detail": "Not Found"})


class ScriptedServer:
    """Serves on a loopback port of its own while it is entered. The last step repeats when ``repeat_last`` is set.

    Requests for ``missing`` (the beginning of a path) are answered by 404 and are no part of the script.
    """

    def __init__(self, *steps: Step, repeat_last: bool = False, missing: str | None = None) -> None:
        self._missing = missing
        self.requests: list[Received] = []
        self._steps = list(steps)
        self._repeat_last = repeat_last
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> ScriptedServer:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        for sock in (self._listener, *self._connections):
            _shut(sock)
        for thread in list(self._threads):
            thread.join(10)
            assert not thread.is_alive()
        if kind is None and not self._repeat_last:
            assert not self._steps, f"{len(self._steps)} steps of the script were not reached"

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name="scripted-peer")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with self._listener:
            while True:
                try:
                    connection, _ = self._listener.accept()
                except OSError:
                    return
                self._connections.append(connection)
                if self._closing.is_set():
                    connection.close()
                    return
                self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            try:
                while (received := _read_request(stream)) is not None and self._answer(connection, received):
                    pass
            except OSError:
                return

    def _answer(self, connection: socket.socket, received: Received) -> bool:
        step = self._next(received)
        step = step(received) if callable(step) else step
        step.before()
        for piece in step.pieces:
            connection.sendall(piece)
        for at in range(len(step.drip)):
            if self._closing.wait(DRIP_SECONDS):
                return False
            connection.sendall(step.drip[at : at + 1])
        if step.silent:
            self._closing.wait(60)
        if step.silent or step.cut:
            _shut(connection)
            return False
        return True

    def _next(self, received: Received) -> Step:
        if self._missing is not None and received.target.startswith(self._missing):
            return NO_ROUTE
        with self._lock:
            self.requests.append(received)
            if not self._steps:
                return answer(599, "the script is over")
            if len(self._steps) == 1 and self._repeat_last:
                return self._steps[0]
            return self._steps.pop(0)


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the peer was faster


def _read_request(stream: Any) -> Received | None:
    line = stream.readline().decode("latin-1").split()
    if len(line) != 3:
        return None
    headers: dict[str, str] = {}
    while (text := stream.readline().decode("latin-1").strip()) != "":
        name, _, value = text.partition(":")
        headers[name.lower()] = value.strip()
    body = _read_chunks(stream) if "transfer-encoding" in headers else _read(stream, headers.get("content-length", "0"))
    return Received(method=line[0], target=line[1], headers=headers, body=body)


def _read(stream: Any, length: str) -> bytes:
    return bytes(stream.read(int(length)))


def _read_chunks(stream: Any) -> bytes:
    body = b""
    while size := int(stream.readline() or b"0", 16):
        body += stream.read(size)
        stream.readline()
    stream.readline()
    return body
