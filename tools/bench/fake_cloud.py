"""One loopback server in the place of AWS: control plane, MicroVM endpoint and the agent behind it.

It checks nothing: both sides get the same answers at the same cost.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

IMAGE_ARN = "arn:aws:lambda:us-east-1:123456789012:microvm-image:bench"
LINE = b"plain words without numbers and paths that a highlighter of output would look for"[:79] + b"\n"
# Divisible by 3, so that its base64 can be repeated.
BLOCK = LINE * 3 * 1000


def microvm_id(number: int) -> str:
    """The name that the service has for one of its MicroVMs."""
    return f"microvm-00000000-0000-4000-8000-{number:012}"


class FakeCloud(ThreadingHTTPServer):
    """The server, over TLS if it has a certificate and key.

    Attributes:
        output_bytes: What every exec in it prints.
        endpoint: Where its MicroVMs are, if elsewhere.
        count: How many of them a list tells of.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, certificate: tuple[str, str] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.output_bytes = 0
        self.endpoint: str | None = None
        self.count = 1
        self._context: ssl.SSLContext | None = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*certificate)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'https' if self._context else 'http'}://127.0.0.1:{self.server_address[1]}"

    def get_request(self) -> tuple[socket.socket, object]:
        """Leave the handshake to the connection's own thread."""
        sock, address = super().get_request()
        if self._context is not None:
            sock = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return sock, address

    @contextmanager
    def serving(self) -> Iterator[FakeCloud]:
        """Serve in a thread of its own."""
        thread = threading.Thread(target=self.serve_forever, name="fake-cloud")
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65536
    server: FakeCloud

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Say nothing: a line a request would be measured with it."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._answer({"status": "ok"})
        elif path.endswith("/microvms"):
            self._answer({"items": [self._microvm(number) for number in range(self.server.count)], "nextToken": None})
        else:
            self._answer({**self._microvm(), "microvmId": path.rpartition("/")[2]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.endswith("/auth-token"):
            self._answer({"authToken": {"X-aws-proxy-auth": "bench"}})
        elif self.path == "/v1/exec":
            self._answer_exec()
        elif self.path.startswith("/v1/"):
            self._answer({"detail": "Not Found"}, status=404)  # an agent with the base contract alone
        else:
            self._answer(self._microvm())

    def _microvm(self, number: int = 0) -> dict[str, object]:
        return {
            "microvmId": microvm_id(number),
            "state": "RUNNING",
            "endpoint": self.server.endpoint or self.server.url,
            "imageArn": IMAGE_ARN,
            "imageVersion": "1.0",
            "maximumDurationInSeconds": 28800,
            "startedAt": 1760000000.0,
        }

    def _answer(self, body: dict[str, object], *, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self._begin(len(data), status=status)
        self.wfile.write(data)

    def _answer_exec(self) -> None:
        count = self.server.output_bytes // len(BLOCK)
        block = base64.b64encode(BLOCK)
        head, tail = b'{"exit_code":0,"signal":null,"encoding":"base64","stdout":"', b'","stderr":""}'
        self._begin(len(head) + count * len(block) + len(tail))
        self.wfile.write(head)
        for _ in range(count):
            self.wfile.write(block)
        self.wfile.write(tail)

    def _begin(self, length: int, *, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(length))
        self.end_headers()
