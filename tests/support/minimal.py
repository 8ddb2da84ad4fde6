"""Agents that have nothing but the base contract, and images that have few tools."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.agent import Agent, running_agent
from tests.support.cutting import open_client
from vmnest.agent.client import AgentClient

BASE_ROUTES = ("/healthz", "/v1/exec", "/v1/fs/read", "/v1/fs/write")
FOR_FILES = (
    *("sh", "dd", "mv", "rm", "mkdir", "rmdir", "cat", "wc", "tr", "cp", "chmod", "chown"),
    *("stat", "find", "readlink", "sha256sum"),
)


class _Front(http.server.BaseHTTPRequestHandler):
    """Hands on what the base contract has, and knows nothing else."""

    protocol_version = "HTTP/1.1"
    port = 0

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.path not in BASE_ROUTES or "Transfer-Encoding" in self.headers:
            self.close_connection = "Transfer-Encoding" in self.headers  # whose body was not read
            return self._send(404, b'{"detail":"Not Found"}')
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(self.command, self.path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            data = response.read()
        if self.path == "/healthz":
            data = json.dumps({"status": "ok", "version": "base"}).encode()
        return self._send(response.status, data)

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")  # or the client would use it again
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
        """Tests are quiet."""


@contextlib.contextmanager
def base_contract(port: int) -> Iterator[str]:
    """The URL of an agent that has nothing but the base contract: the one on ``port``, with all else hidden."""
    handler = type("Front", (_Front,), {"port": port})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True  # those of idle connections, which end with their clients
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="base-contract")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def toolbox(folder: Path, tools: Sequence[str]) -> str:
    """A PATH with these tools of this machine, and no others."""
    folder.mkdir()
    for tool in tools:
        found = shutil.which(tool)
        assert found is not None, f"this machine has no {tool}"
        os.symlink(found, folder / tool)
    return str(folder)


@contextlib.contextmanager
def bare_client(folder: Path, *, tools: Sequence[str]) -> Iterator[AgentClient]:
    """A client of an agent with the base contract, in an image that has only these tools."""
    environ = {"PATH": toolbox(folder / "tools", tools)}
    with (
        running_agent(folder / "agent", environ=environ) as agent,
        base_contract(agent.port) as url,
        open_client(url) as client,
    ):
        yield client


@pytest.fixture
def base_client(shared_agent: Agent) -> Iterator[AgentClient]:
    """A client of the module's agent that meets nothing but the base contract."""
    with base_contract(shared_agent.port) as url, open_client(url) as client:
        yield client
