"""Drives an MCP server with the official SDK, of either generation, and prints what came back as JSON.

Run by that SDK's own Python, with nothing of ours: ``python mcp_client.py MODE SERVER-PROGRAM ARGUMENT...``; MODE is
``auto``, ``2026-07-28``, ``legacy``, or ``v1`` for the SDK that knows the older era only. The server gets the
environment that the SDK gives it, and the variables that ``MCP_SERVER_ENV`` has as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any


class Driver:
    """One scenario for both SDKs, which call in different words."""

    cancels = True

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}
        self.progress: list[float] = []

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append(progress)

    async def call(self, name: str, arguments: dict[str, Any], **more: Any) -> tuple[dict[str, Any], bool]:
        """The envelope of a tool, and whether it is an error."""
        raise NotImplementedError

    async def data(self, tool: str, **arguments: Any) -> dict[str, Any]:
        envelope, is_error = await self.call(tool, arguments)
        assert not is_error, envelope
        assert envelope["ok"], envelope
        return envelope["data"]

    async def run(self) -> None:
        """Make a sandbox, work in it, and remove it."""
        made = await self.data("sandbox_create", name="sdk")
        self.told["state"] = made["state"]
        done = await self.data("sandbox_exec", name="sdk", command="sh", args=["-c", "echo out; echo err >&2; exit 3"])
        self.told["exec"] = [done["exit_code"], done["stdout"]["text"], done["stderr"]["text"]]
        await self.data("sandbox_fs_write", name="sdk", path="/work/a.txt", content="ä\u2028\n")
        self.told["read"] = (await self.data("sandbox_fs_read", name="sdk", path="/work/a.txt"))["content"]["text"]
        await self._session()
        if self.cancels:
            await self._cancel()
        calls = [self.data("sandbox_shell", name="sdk", command=f"echo {number}") for number in range(8)]
        self.told["parallel"] = [int(each["stdout"]["text"]) for each in await asyncio.gather(*calls)]
        envelope, is_error = await self.call("sandbox_exec", {"name": "nobody", "command": "true"})
        self.told["error"] = [is_error, envelope["error"]["code"]]
        await self._forward()
        self.told["removed"] = (await self.data("sandbox_remove", name="sdk"))["removed"]

    async def _session(self) -> None:
        started = await self.data("sandbox_exec_start", name="sdk", command="cat")
        await self.data("sandbox_exec_write_stdin", name="sdk", id=started["id"], data="fed\n", eof=True)
        polled: dict[str, Any] = {"running": True}
        while polled["running"]:
            polled = await self.data("sandbox_exec_poll", name="sdk", id=started["id"], wait=20)
        self.told["session"] = [polled["stdout"], polled["exit_code"]]

    async def _cancel(self) -> None:
        task = asyncio.ensure_future(self.data("sandbox_shell", name="sdk", command="touch begun; exec sleep 9876"))
        await self.data("sandbox_shell", name="sdk", command="until [ -e begun ]; do sleep 0.05; done")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        gone = await self.data(
            "sandbox_shell", name="sdk", command="while pgrep -x sleep; do sleep 0.05; done", timeout=20
        )
        self.told["cancelled"] = gone["success"]

    async def _forward(self) -> None:
        started = await self.data(
            "sandbox_exec_start", name="sdk", command="python3", args=["-m", "http.server", "8000", "-d", "/work"]
        )
        forwarding = await self.data("sandbox_forward_start", name="sdk", ports=["8000:0"])
        self.told["forward"] = await asyncio.to_thread(_fetch, f"{forwarding['forwards'][0]['url']}/a.txt")
        await self.data("sandbox_exec_close", name="sdk", id=started["id"])


def _fetch(url: str) -> str:
    import time
    import urllib.error
    import urllib.request

    end = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return answer.read().decode()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


class Second(Driver):
    """With the SDK that knows both eras."""

    def __init__(self, client: Any) -> None:
        super().__init__()
        self.client = client

    async def call(self, name: str, arguments: dict[str, Any], **more: Any) -> tuple[dict[str, Any], bool]:
        result = await self.client.call_tool(name, arguments, progress_callback=self.on_progress)
        assert json.loads(result.content[0].text) == result.structured_content
        return result.structured_content, bool(result.is_error)


class First(Driver):
    """With the older one, which tells a server nothing when a call is given up."""

    cancels = False

    def __init__(self, session: Any) -> None:
        super().__init__()
        self.session = session

    async def call(self, name: str, arguments: dict[str, Any], **more: Any) -> tuple[dict[str, Any], bool]:
        result = await self.session.call_tool(name, arguments, progress_callback=self.on_progress)
        assert json.loads(result.content[0].text) == result.structuredContent
        return result.structuredContent, bool(result.isError)


async def second(mode: str, command: list[str], env: dict[str, str]) -> dict[str, Any]:
    from mcp import Client, MCPError, StdioServerParameters

    parameters = StdioServerParameters(command=command[0], args=command[1:], env=env)
    async with Client(parameters, mode=mode, cache=None) as client:
        driver = Second(client)
        told = driver.told
        told["version"] = client.session.protocol_version
        listed = await client.list_tools()
        told["tools"], told["more"] = [tool.name for tool in listed.tools], listed.next_cursor
        told["resources"] = [str(each.uri) for each in (await client.list_resources()).resources]
        for uri in told["resources"]:
            (content,) = (await client.read_resource(uri)).contents
            json.loads(content.text)
        try:
            await client.read_resource("agent-sandbox://nothing")
        except MCPError as error:
            told["missing"] = error.error.code
        await driver.run()
        told["progress"] = driver.progress
        return told


async def first(command: list[str], env: dict[str, str]) -> dict[str, Any]:
    from mcp import ClientSession, McpError, StdioServerParameters
    from mcp.client.stdio import stdio_client

    parameters = StdioServerParameters(command=command[0], args=command[1:], env=env)
    async with stdio_client(parameters) as (reader, writer), ClientSession(reader, writer) as session:
        driver = First(session)
        told = driver.told
        told["version"] = (await session.initialize()).protocolVersion
        await session.send_ping()
        listed = await session.list_tools()
        told["tools"], told["more"] = [tool.name for tool in listed.tools], listed.nextCursor
        told["resources"] = [str(each.uri) for each in (await session.list_resources()).resources]
        for uri in told["resources"]:
            (content,) = (await session.read_resource(uri)).contents
            json.loads(content.text)
        try:
            await session.read_resource("agent-sandbox://nothing")
        except McpError as error:
            told["missing"] = error.error.code
        await driver.run()
        told["progress"] = driver.progress
        return told


def main() -> None:
    mode, *command = sys.argv[1:]
    env = json.loads(os.environ["MCP_SERVER_ENV"])
    work = first(command, env) if mode == "v1" else second(mode, command, env)
    print(json.dumps(asyncio.run(work)))


if __name__ == "__main__":
    main()
