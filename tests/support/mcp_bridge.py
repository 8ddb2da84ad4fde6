"""Streamable HTTP in front of MCP servers that speak on standard input and output: the conformance suite has HTTP only.

What HTTP adds is done here (sessions, headers, statuses, event streams); a message goes to a server as it came, and
comes back as it was sent. A handshake gets a server of its own, and a session with it; requests without a session share
servers, any of which serves any of them, several at once.
"""

from __future__ import annotations

import contextlib
import json
import queue
import secrets
import subprocess
import threading
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ANSWER_SECONDS = 20.0
END_SECONDS = 20.0
SESSION = "Mcp-Session-Id"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
HEADER_MISMATCH = -32020
REFUSALS = (HEADER_MISMATCH, -32021, -32022)
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
LOOPBACK = ("127.0.0.1", "localhost", "::1")

Message = dict[str, Any]


class Child:
    """A server, and who waits for what it says. Thread-safe.

    Attributes:
        strays: What it said that nobody waited for.
    """

    def __init__(self, command: Sequence[str], *, cwd: Path, errors: int) -> None:
        self._process = subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0
        )
        self._lock = threading.Lock()  # guards what is below, and the writing
        self._waiting: dict[Any, queue.SimpleQueue[bytes | None]] = {}  # by ids
        self._told: dict[Any, queue.SimpleQueue[bytes | None]] = {}  # by progress tokens
        self.strays: list[bytes] = []
        self._reader = threading.Thread(target=self._read, name="bridge-child", daemon=True)
        self._reader.start()

    @contextlib.contextmanager
    def ask(self, line: bytes, request: Message) -> Iterator[queue.SimpleQueue[bytes | None] | None]:
        """Send a request. Yields what comes for it, None at the end of the server; None if its id is in use here."""
        lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        identity, token = _key(request["id"]), _token(request)
        with self._lock:
            is_free = identity not in self._waiting and (token is None or token not in self._told)
            if is_free:
                self._waiting[identity] = lines
                if token is not None:
                    self._told[token] = lines
                self._write(line)
        if not is_free:
            yield None
            return
        try:
            yield lines
        finally:
            with self._lock:
                del self._waiting[identity]
                if token is not None:
                    del self._told[token]

    def tell(self, line: bytes) -> None:
        """Send what wants no answer."""
        with self._lock:
            self._write(line)

    def end(self) -> int:
        """Close its input; how it ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._reader.join()
        return status

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                self._route(line)
        with self._lock:
            for lines in self._waiting.values():
                lines.put(None)

    def _route(self, line: bytes) -> None:
        message = json.loads(line)
        with self._lock:
            if "method" in message:
                lines = self._told.get(_key(message["params"].get("progressToken")))
            else:
                lines = self._waiting.get(_key(message["id"]))
            if lines is None:
                self.strays.append(line)
            else:
                lines.put(line)


def _key(value: object) -> tuple[type, object]:
    return type(value), value


def _meta(request: Message) -> Message:
    params = request.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}


def _token(request: Message) -> tuple[type, object] | None:
    token = _meta(request).get("progressToken")
    return None if token is None else _key(token)


class Bridge:
    """Serves HTTP at ``url``, and starts servers as they are needed.

    Args:
        command: What starts a server.
        cwd: Where.
        errors: The file that standard error of all servers goes to.

    Attributes:
        faults: What a server did that none should.
    """

    def __init__(self, command: Sequence[str], *, cwd: Path, errors: int) -> None:
        self._start = lambda: Child(command, cwd=cwd, errors=errors)
        self._lock = threading.Lock()  # guards the children
        self._sessions: dict[str, Child] = {}
        self._shared: list[Child] = []
        self.faults: list[str] = []
        bridge = self

        class Handler(_Handler):
            def __init__(self, *arguments: Any) -> None:
                self.bridge = bridge
                super().__init__(*arguments)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._serving = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._serving.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}/mcp"

    def open_session(self) -> tuple[str, Child]:
        """A new server, and the name of its session."""
        name, child = secrets.token_hex(16), self._start()
        with self._lock:
            self._sessions[name] = child
        return name, child

    def find_session(self, name: str) -> Child | None:
        """The server of a session that goes on."""
        with self._lock:
            return self._sessions.get(name)

    def close_session(self, name: str) -> bool:
        """End a session; whether there was one."""
        with self._lock:
            child = self._sessions.pop(name, None)
        if child is None:
            return False
        self._end(child)
        return True

    @contextlib.contextmanager
    def ask_any(self, line: bytes, request: Message) -> Iterator[queue.SimpleQueue[bytes | None]]:
        """Send a request to a server that has none of its id, a new one if need be."""
        with contextlib.ExitStack() as stack:
            while True:
                with self._lock:
                    children = list(self._shared)
                for child in children:
                    lines = stack.enter_context(child.ask(line, request))
                    if lines is not None:
                        yield lines
                        return
                started = self._start()
                with self._lock:
                    self._shared.append(started)

    def close(self) -> None:
        """End all servers. Then ``faults`` is complete."""
        self._http.shutdown()
        self._http.server_close()
        self._serving.join()
        with self._lock:
            children = [*self._shared, *self._sessions.values()]
            self._shared, self._sessions = [], {}
        for child in children:
            self._end(child)

    def _end(self, child: Child) -> None:
        status = child.end()
        faults = [f"a server ended with {status}"] if status else []
        faults += [f"nobody waited for {line[:500]!r}" for line in child.strays]
        with self._lock:
            self.faults += faults


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    bridge: Bridge
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))  # also if it is refused: more may follow
        if not self._is_from_here():
            self._answer(HTTPStatus.FORBIDDEN)
            return
        try:
            message = json.loads(body)
        except ValueError:
            self._answer(HTTPStatus.BAD_REQUEST)
            return
        line = body.replace(b"\n", b" ") + b"\n"
        is_legacy_greeting = message.get("method") == "initialize" and isinstance(
            message.get("params", {}).get("protocolVersion"), str
        )
        if is_legacy_greeting:
            name, child = self.bridge.open_session()
            self._ask(child, line, message, name=name)
        elif SESSION in self.headers:
            self._serve_session(line, message)
        else:
            self._serve_alone(line, message)

    def do_GET(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED)

    def do_DELETE(self) -> None:
        is_known = self._is_from_here() and self.bridge.close_session(self.headers.get(SESSION, ""))
        self._answer(HTTPStatus.OK if is_known else HTTPStatus.NOT_FOUND)

    def log_message(self, *arguments: object) -> None:
        """Not at all."""

    def _is_from_here(self) -> bool:
        """No page of elsewhere got a browser to send this."""
        places = [f"http://{self.headers.get('Host', '')}", self.headers.get("Origin") or self.bridge.url]
        return all(urlsplit(place).hostname in LOOPBACK for place in places)

    def _serve_session(self, line: bytes, message: Message) -> None:
        child = self.bridge.find_session(self.headers[SESSION])
        if child is None:
            self._answer(HTTPStatus.NOT_FOUND)
        elif "id" not in message or "method" not in message:
            child.tell(line)
            self._answer(HTTPStatus.ACCEPTED)
        else:
            self._ask(child, line, message)

    def _ask(self, child: Child, line: bytes, message: Message, *, name: str | None = None) -> None:
        with child.ask(line, message) as lines:
            assert lines is not None, "ids of a session are unique"
            self._stream(lines, message, name=name)

    def _serve_alone(self, line: bytes, message: Message) -> None:
        if "id" not in message:
            self._answer(HTTPStatus.ACCEPTED)
            return
        mismatch = self._find_mismatch(message)
        if mismatch is not None:
            error = {"code": HEADER_MISMATCH, "message": f"Header mismatch: {mismatch}"}
            reply = {"jsonrpc": "2.0", "id": message["id"], "error": error}
            self._answer(HTTPStatus.BAD_REQUEST, json.dumps(reply).encode(), kind="application/json")
            return
        with self.bridge.ask_any(line, message) as lines:
            self._stream(lines, message)

    def _find_mismatch(self, message: Message) -> str | None:
        """The header that does not say what the body says."""
        params = message.get("params", {})
        meant = {"Mcp-Method": message.get("method")}
        if VERSION_KEY in _meta(message):
            meant["MCP-Protocol-Version"] = _meta(message)[VERSION_KEY]
        if message.get("method") in NAMED:
            meant["Mcp-Name"] = params.get(NAMED[message["method"]])
        return next((name for name, value in meant.items() if self.headers.get(name, "").strip() != value), None)

    def _stream(self, lines: queue.SimpleQueue[bytes | None], request: Message, *, name: str | None = None) -> None:
        """Answer with events if something comes before the response, else with that alone."""
        extra = {} if name is None else {SESSION: name}
        line = lines.get(timeout=ANSWER_SECONDS)
        if line is None:
            self._answer(HTTPStatus.BAD_GATEWAY)
            return
        if "method" not in json.loads(line):
            self._answer(self._status(json.loads(line), request), line, kind="application/json", **extra)
            return
        self._begin(HTTPStatus.OK, {"Content-Type": "text/event-stream", "Connection": "close", **extra})
        self.close_connection = True
        while line is not None:
            self.wfile.write(b"event: message\ndata: " + line + b"\n")
            self.wfile.flush()
            if "method" not in json.loads(line):
                return
            line = lines.get(timeout=ANSWER_SECONDS)

    def _status(self, reply: Message, request: Message) -> HTTPStatus:
        code = reply.get("error", {}).get("code")
        if SESSION in self.headers or code is None:
            return HTTPStatus.OK
        if code == METHOD_NOT_FOUND:
            return HTTPStatus.NOT_FOUND
        lacks = VERSION_KEY not in _meta(request) or CAPABILITIES_KEY not in _meta(request)
        is_bad = code in REFUSALS or (code == INVALID_PARAMS and lacks)
        return HTTPStatus.BAD_REQUEST if is_bad else HTTPStatus.OK

    def _answer(self, status: HTTPStatus, body: bytes = b"", *, kind: str | None = None, **extra: str) -> None:
        told = {"Content-Length": str(len(body)), **extra}
        if kind is not None:
            told["Content-Type"] = kind
        self._begin(status, told)
        self.wfile.write(body)
        self.wfile.flush()

    def _begin(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


@contextlib.contextmanager
def open_bridge(command: Sequence[str], *, cwd: Path, errors: int) -> Iterator[Bridge]:
    """A bridge whose servers all end with the block."""
    bridge = Bridge(command, cwd=cwd, errors=errors)
    try:
        yield bridge
    finally:
        bridge.close()
