"""What independent parties understand of bytes that are meant to be HTTP: h11, Python's own http.server, and node.

The forwarder and the server behind it must understand a request in the same way, or the forwarder must refuse it. So
what the forwarder has passed on is given to each of these, and they must see the same messages in it.
"""

from __future__ import annotations

import hashlib
import io
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import h11

COMPLETE = "complete"  # nothing is left behind the last message
PARTIAL = "partial"  # a message has begun and not ended
REFUSED = "refused"  # what follows the last message is no HTTP
LARGEST_HEAD = 1 << 20
NODE_SECONDS = 20.0


class Message(NamedTuple):
    """A request as somebody understood it; names of fields are in lower case."""

    method: str
    target: str
    fields: tuple[tuple[str, str], ...]
    body: bytes
    trailers: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> tuple[str, str, str]:
        """What all parties can tell of it."""
        return self.method, self.target, hashlib.sha256(self.body).hexdigest()


class Reading(NamedTuple):
    """The messages that somebody found, and what came behind them."""

    messages: list[Message]
    end: str

    @property
    def digests(self) -> list[tuple[str, str, str]]:
        return [message.digest for message in self.messages]


# -- h11 ---------------------------------------------------------------------------------------------------------------


def read_with_h11(raw: bytes) -> Reading:
    """What a server that is built on h11 (uvicorn, hypercorn) finds in these bytes."""
    messages: list[Message] = []
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LARGEST_HEAD)
    connection.receive_data(raw)
    request: h11.Request | None = None
    body = b""
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return Reading(messages, REFUSED)
        if isinstance(event, h11.Request):
            request, body = event, b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            messages.append(_of_h11(request, body, event))
            if not _answer(connection):
                return Reading(messages, REFUSED if connection.trailing_data[0] else COMPLETE)
            request = None
        elif event is h11.PAUSED:
            return Reading(messages, COMPLETE)
        else:  # it needs more
            is_clean = request is None and not connection.trailing_data[0]
            return Reading(messages, COMPLETE if is_clean else PARTIAL)


def _of_h11(request: h11.Request, body: bytes, end: h11.EndOfMessage) -> Message:
    return Message(
        request.method.decode("latin-1"),
        request.target.decode("latin-1"),
        tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers),
        body,
        tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in end.headers),
    )


def _answer(connection: h11.Connection) -> bool:
    """Answer, so that the next request can be read; whether there can be one."""
    connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
    connection.send(h11.EndOfMessage())
    if connection.our_state is h11.DONE and connection.their_state is h11.DONE:
        connection.start_next_cycle()
        return True
    return False


# -- http.server -------------------------------------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    """Reads as its many users do: ``int`` for lengths, and the chunks of whoever says chunked."""

    protocol_version = "HTTP/1.1"

    def __init__(self, raw: bytes) -> None:
        self.rfile = io.BytesIO(raw)
        self.wfile = io.BytesIO()
        self.client_address = ("127.0.0.1", 0)
        self.messages: list[Message] = []
        self.end = COMPLETE

    def read_all(self, *, keeps_reading: bool) -> Reading:
        self.close_connection = False
        while keeps_reading or not self.close_connection:
            if not self._skip_empty_lines():
                return Reading(self.messages, COMPLETE)
            count = len(self.messages)
            self.handle_one_request()
            if len(self.messages) == count:
                return Reading(self.messages, self.end if self.end != COMPLETE else REFUSED)
        rest = self.rfile.read()
        return Reading(self.messages, REFUSED if rest else COMPLETE)

    def _skip_empty_lines(self) -> bool:
        """As RFC 9112 section 2.2 has it, and http.server has not; whether something follows."""
        rest = self.rfile.getvalue()[self.rfile.tell() :]
        while rest.startswith(b"\r\n"):
            rest = rest[2:]
        self.rfile.seek(-len(rest), io.SEEK_END)
        return bool(rest)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._take
        raise AttributeError(name)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Say nothing."""

    def _take(self) -> None:
        try:
            body, trailers = self._read_body()
        except (EOFError, ValueError) as error:
            self.end = PARTIAL if isinstance(error, EOFError) else REFUSED
            self.close_connection = True
            return
        fields = tuple((name.lower(), value) for name, value in self.headers.items())
        self.messages.append(Message(self.command, self.path, fields, body, trailers))

    def _read_body(self) -> tuple[bytes, tuple[tuple[str, str], ...]]:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._read_chunks()
        return self._exactly(int(self.headers.get("Content-Length", 0))), ()

    def _read_chunks(self) -> tuple[bytes, tuple[tuple[str, str], ...]]:
        body, trailers = b"", []
        while size := int(self._line().split(b";")[0], 16):
            body += self._exactly(size)
            if self._line():
                raise ValueError("a chunk is longer than its size")
        while line := self._line():
            name, _, value = line.decode("latin-1").partition(":")
            trailers.append((name.lower(), value.strip()))
        return body, tuple(trailers)

    def _exactly(self, count: int) -> bytes:
        data = self.rfile.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def _line(self) -> bytes:
        line = self.rfile.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line.rstrip(b"\r\n")


def read_with_http_server(raw: bytes, *, keeps_reading: bool = False) -> Reading:
    """What a server that is built on Python's http.server finds in these bytes.

    With ``keeps_reading`` also behind a request that ends the connection: who does is a question of its own.
    """
    return _Handler(raw).read_all(keeps_reading=keeps_reading)


# -- node --------------------------------------------------------------------------------------------------------------

_NODE_PROGRAM = """
const server = require('http').createServer({maxHeaderSize: 1 << 20}, (request, response) => {
  const pieces = [];
  request.on('data', (piece) => pieces.push(piece));
  request.on('end', () => response.end(JSON.stringify({
    method: request.method, target: request.url, fields: request.rawHeaders,
    body: Buffer.concat(pieces).toString('base64'), trailers: request.rawTrailers}) + '\\n'));
});
server.on('clientError', (error, socket) => socket.end('HTTP/1.1 400 refused ' + error.code + '\\r\\n\\r\\n'));
server.keepAliveTimeout = 1;
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
"""


class Node:
    """An HTTP server of node, which llhttp reads for (as it does for uvicorn with httptools)."""

    def __init__(self, port: int) -> None:
        self._port = port

    def read(self, raw: bytes) -> Reading:
        """What it finds in these bytes."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=NODE_SECONDS) as sock:
            sock.sendall(raw)
            sock.shutdown(socket.SHUT_WR)
            said = b"".join(iter(lambda: sock.recv(65536), b""))
        return self._understand(said)

    def _understand(self, said: bytes) -> Reading:
        import base64

        messages = []
        while said.startswith(b"HTTP/1.1 200"):
            answer = h11.Connection(h11.CLIENT, max_incomplete_event_size=LARGEST_HEAD)
            answer.send(h11.Request(method="GET", target="/", headers=[("Host", "node")]))
            answer.send(h11.EndOfMessage())
            answer.receive_data(said)
            body = b""
            while not isinstance(event := answer.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    answer.receive_data(b"")
                body += bytes(event.data) if isinstance(event, h11.Data) else b""
            said = answer.trailing_data[0]
            if not body:  # the answer to HEAD, which has none: whoever asks leaves HEAD out
                break
            told = json.loads(body)
            flat = told["fields"], told["trailers"]
            fields, trailers = (
                tuple((names[i].lower(), names[i + 1]) for i in range(0, len(names), 2)) for names in flat
            )
            messages.append(Message(told["method"], told["target"], fields, base64.b64decode(told["body"]), trailers))
        return Reading(messages, REFUSED if said else COMPLETE)


@contextmanager
def running_node(program: str | Path) -> Iterator[Node]:
    """A server of node, until the block ends."""
    with subprocess.Popen(
        [str(program), "-e", _NODE_PROGRAM], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            yield Node(int(process.stdout.readline()))
        finally:
            process.kill()
