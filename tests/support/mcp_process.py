"""The MCP server as a real process: bytes in, lines out, and each line that comes out looked at."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcp_server import MODERN

WAIT_SECONDS = 60.0
PROGRAM = (sys.executable, "-m", "vmnest.mcp")
MOST_ANSWER_BYTES = 10 << 20  # beyond it some clients close the connection


def six_variables(home: Path) -> dict[str, str]:
    """All that hosts pass on to a server."""
    user = pwd.getpwuid(os.getuid()).pw_name
    return {
        "HOME": str(home),
        "LOGNAME": user,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "SHELL": "/bin/sh",
        "TERM": "dumb",
        "USER": user,
    }


def read_line(line: bytes) -> Any:
    """A line as strict clients read it."""
    assert line.endswith(b"\n"), line[-100:]
    assert line.isascii(), line[:200]
    assert len(line) < MOST_ANSWER_BYTES
    message = json.loads(line, parse_constant=_refuse)
    for each in message if isinstance(message, list) else [message]:
        _check(each)
    return message


def _refuse(constant: str) -> object:
    raise AssertionError(f"{constant} is no JSON")


def _check(message: Any) -> None:
    assert message.pop("jsonrpc") == "2.0"
    if "method" in message:
        assert set(message) <= {"method", "params"}, message  # we have no requests, only notifications
        assert message["method"] in {"notifications/progress"}
    else:
        assert set(message) in ({"id", "result"}, {"id", "error"}), message
    if "error" in message:
        assert set(message["error"]) <= {"code", "message", "data"}
        assert isinstance(message["error"]["code"], int)
        assert isinstance(message["error"]["message"], str)
    result = message.get("result", {})
    data = result.pop("structuredContent", None)  # here null is a value
    assert not _has_null(result), message
    json.dumps(message).encode()  # no lone surrogate
    if data is not None:
        assert json.loads(result["content"][0]["text"]) == data
        result["structuredContent"] = data


def _has_null(value: object) -> bool:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is None or any(_has_null(each) for each in members)


class Server:
    """A server and its client's end.

    Attributes:
        process: The server's process.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._count = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def send(self, message: object) -> None:
        """Send a message, or bytes as they are."""
        data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def request(self, identity: object, method: str, params: object = None) -> None:
        """Send a request as it is."""
        given = {} if params is None else {"params": params}
        self.send({"jsonrpc": "2.0", "id": identity, "method": method, **given})

    def modern(self, identity: object, method: str, **params: object) -> None:
        """Send a request of the stateless era."""
        meta = params.pop("meta", {})
        assert isinstance(meta, dict)
        self.request(identity, method, {**params, "_meta": {**MODERN, **meta}})

    def notify(self, method: str, **params: object) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def next(self) -> Any:
        """What comes next, checked."""
        line = self._lines.get(timeout=WAIT_SECONDS)
        assert line, f"the server has ended: {self.process.wait(WAIT_SECONDS)}"
        return read_line(line)

    def ask(self, method: str, **params: object) -> Any:
        """The answer to a request of the stateless era, which is what comes next."""
        self._count += 1
        self.modern(f"ask {self._count}", method, **params)
        message = self.next()
        assert message["id"] == f"ask {self._count}"
        return message

    def result(self, method: str, **params: object) -> Any:
        """The result of a request of the stateless era."""
        return self.ask(method, **params)["result"]

    def code(self, method: str, params: object = None) -> int:
        """The code of the error that a request, as it is, is answered with."""
        self._count += 1
        self.request(f"code {self._count}", method, params)
        message = self.next()
        assert message["id"] == f"code {self._count}"
        code = message["error"]["code"]
        assert isinstance(code, int)
        return code

    def call(self, tool: str, **arguments: object) -> Any:
        """The envelope of a tool."""
        return self.result("tools/call", name=tool, arguments=arguments)["structuredContent"]

    def data(self, tool: str, **arguments: object) -> Any:
        """The data of a tool that does what it shall."""
        envelope = self.call(tool, **arguments)
        assert envelope["ok"], envelope
        return envelope["data"]

    def shake_hands(self, version: str = "2025-11-25") -> Any:
        """Do what the handshake eras begin with; the result."""
        self.request(0, "initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t"}})
        message = self.next()
        assert message["id"] == 0
        self.notify("notifications/initialized")
        return message["result"]

    def assert_silent(self) -> None:
        """All that was sent so far has been read, and left unanswered. Calls that go on do not count."""
        self.request("silence", "ping")
        assert self.next() == {"id": "silence", "result": {}}

    def end(self) -> int:
        """Close its input; its exit status. Nothing may come any more."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        status = self.process.wait(WAIT_SECONDS)
        assert self._lines.get(timeout=WAIT_SECONDS) == b""
        return status


@contextlib.contextmanager
def open_server(
    environ: Mapping[str, str],
    *,
    program: Sequence[str] = PROGRAM,
    cwd: str | Path = "/",
    stderr: int | None = None,
    **options: Any,
) -> Iterator[Server]:
    """A server, in a session of its own; it is gone at the end of the block.

    Args:
        environ: Its environment.
        program: Its command.
        cwd: Its working directory.
        stderr: Where its standard error goes; by default where the test's goes.
        options: More of ``Popen``.
    """
    with subprocess.Popen(
        program,
        env=environ,
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
        **options,
    ) as process:
        try:
            yield Server(process)
        finally:
            process.kill()
            process.wait()
            with contextlib.suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def mcp_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home directory for the servers of a module."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def server(mcp_home: Path) -> Iterator[Server]:
    """A server that the tests of a module share, and that still serves, cleanly, when all of them are over."""
    with open_server(six_variables(mcp_home), stderr=subprocess.PIPE) as shared:
        yield shared
        shared.assert_silent()
        assert shared.end() == 0
        assert shared.process.stderr is not None
        assert shared.process.stderr.read() == b""


@pytest.fixture
def fresh_server(mcp_home: Path) -> Iterator[Server]:
    """A server of the test's own."""
    with open_server(six_variables(mcp_home)) as own:
        yield own
