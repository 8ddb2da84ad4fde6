"""An MCP server in this process, with tools that tests control."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Mapping, Sequence

from vmnest.mcp.calls import Call
from vmnest.mcp.server import MOST_ABANDONED, PATIENCE_SECONDS, Server

WAIT_SECONDS = 30.0
PREFIX = "io.modelcontextprotocol/"
MODERN: dict[str, object] = {PREFIX + "protocolVersion": "2026-07-28", PREFIX + "clientCapabilities": {}}
IDENTITY = {"name": "test", "version": "1"}

Tool = Callable[[Mapping[str, object], Call], dict[str, object]]


class Offer:
    """Tools and one resource, as a server's provider."""

    def __init__(self, **tools: Tool) -> None:
        self._tools = tools

    def tools(self) -> Sequence[Mapping[str, object]]:
        return [{"name": name, "inputSchema": {"type": "object"}} for name in self._tools]

    def call(self, name: str, arguments: Mapping[str, object], call: Call) -> dict[str, object] | None:
        tool = self._tools.get(name)
        return None if tool is None else tool(arguments, call)

    def resources(self) -> Sequence[Mapping[str, object]]:
        return [{"uri": "x://there", "name": "there"}]

    def read(self, uri: str, call: Call) -> Sequence[Mapping[str, object]] | None:
        return [{"uri": uri, "text": "content"}] if uri == "x://there" else None


class Conversation:
    """Speaks with a server that runs on the caller's threads."""

    def __init__(
        self, offer: Offer, *, workers: int = 8, patience: float = PATIENCE_SECONDS, abandoned: int = MOST_ABANDONED
    ) -> None:
        self.lines: queue.Queue[bytes] = queue.Queue()
        self.server = Server(
            offer,
            identity=IDENTITY,
            instructions="Use it.",
            write=self.lines.put,
            workers=workers,
            patience=patience,
            abandoned=abandoned,
        )

    def send(self, message: object) -> None:
        """Send a message, or bytes as they are."""
        self.server.receive(message if isinstance(message, bytes) else json.dumps(message).encode())

    def request(self, identity: object, method: str, params: dict[str, object] | None = None) -> None:
        """Send a request of the handshake era."""
        self.send({"jsonrpc": "2.0", "id": identity, "method": method, "params": params or {}})

    def modern(self, identity: object, method: str, **params: object) -> None:
        """Send a request of the stateless era."""
        meta = params.pop("meta", {})
        assert isinstance(meta, dict)
        self.request(identity, method, {**params, "_meta": {**MODERN, **meta}})

    def next(self) -> object:
        """What comes next."""
        line = self.lines.get(timeout=WAIT_SECONDS)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        return json.loads(line)

    def reply(self) -> dict[str, object]:
        """The next message, an object."""
        message = self.next()
        assert isinstance(message, dict)
        return message

    def shake_hands(self, version: str = "2025-11-25") -> None:
        """Do what the handshake era begins with."""
        self.request(0, "initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t"}})
        result = self.reply()["result"]
        assert isinstance(result, dict)
        assert result["protocolVersion"] == version
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def is_silent(self) -> bool:
        """Nothing has come that was not looked at."""
        return self.lines.empty()


class Gate:
    """A tool that begins, and ends when it may."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.was_cancelled = threading.Event()
        self.holds_on = False  # even when it is cancelled

    def __call__(self, arguments: Mapping[str, object], call: Call) -> dict[str, object]:
        call.on_cancel(self.was_cancelled.set)
        if not self.holds_on:
            call.on_cancel(self.may_end.set)
        self.began.set()
        assert self.may_end.wait(WAIT_SECONDS)
        return {"content": []}
