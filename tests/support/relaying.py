"""One address in front of others: a test's own function passes on what is asked there, or answers it itself."""

from __future__ import annotations

import http.client
import re
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_SCOPE = re.compile(r"Credential=[^/]+/\d{8}/([^/]+)/([^/]+)/aws4_request")
_HOP = frozenset({"connection", "content-length", "transfer-encoding", "keep-alive", "date", "server"})

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    method: str
    target: str
    headers: Headers
    body: bytes

    @property
    def scope(self) -> tuple[str | None, str | None]:
        """Region and service that it is signed for."""
        authorization = next((value for name, value in self.headers if name.lower() == "authorization"), "")
        found = _SCOPE.search(authorization)
        return (found.group(1), found.group(2)) if found else (None, None)


@dataclass(frozen=True)
class Answer:
    """What is answered."""

    status: int
    headers: Headers = ()
    body: bytes = b""


Relay = Callable[[Asked], Answer]


def send(url: str, asked: Asked, *, context: ssl.SSLContext | None = None) -> Answer:
    """Ask this of another server, in just these words, so that signatures stay good."""
    place = urllib.parse.urlsplit(url)
    host = place.hostname or ""
    if context is None:
        connection = http.client.HTTPConnection(host, place.port, timeout=60)
    else:
        connection = http.client.HTTPSConnection(host, place.port, timeout=60, context=context)
    try:
        connection.putrequest(asked.method, asked.target, skip_host=True, skip_accept_encoding=True)
        for name, value in asked.headers:
            if name.lower() not in ("connection", "content-length"):
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(asked.body)))
        connection.endheaders(asked.body)
        response = connection.getresponse()
        return Answer(response.status, response.getheaders(), response.read())
    finally:
        connection.close()


@contextmanager
def relaying(relay: Relay, *, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """The URL at which ``relay`` answers, until the block ends; with a context, by TLS."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(relay))
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(relay: Relay) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one piece: else the second waits for the acknowledgement of the first
        disable_nagle_algorithm = True

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except (ConnectionError, ssl.SSLError):  # the client was killed, or trusts another
                self.close_connection = True

        def _relay(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = relay(Asked(self.command, self.path, list(self.headers.items()), body))
            self.send_response_only(answer.status)
            for name, value in answer.headers:
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            length = next((value for name, value in answer.headers if name.lower() == "content-length"), "0")
            self.send_header("Content-Length", length if self.command == "HEAD" else str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = _relay  # noqa: N815 - http.server's names

        def log_message(self, *args: object) -> None:
            pass

    return Handler
