"""The lines of the MCP protocol, in both eras, spoken with the real process. No sandbox is needed for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcp_process import Server, open_server, six_variables
from tests.support.mcp_server import MODERN, PREFIX
from vmnest import __version__

LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
VERSION, CAPABILITIES = PREFIX + "protocolVersion", PREFIX + "clientCapabilities"
OF_MODERN_RESULTS = {"resultType", "ttlMs", "cacheScope"}
KIB = 1024


def test_a_server_tells_all_of_itself(server: Server) -> None:
    """Vector 1."""
    found = server.result("server/discover")
    assert found["resultType"] == "complete"
    assert found["supportedVersions"] == ["2026-07-28"]
    assert found["capabilities"] == {"tools": {}, "resources": {}}
    assert isinstance(found["ttlMs"], int)
    assert found["ttlMs"] >= 0
    assert found["cacheScope"] in {"public", "private"}
    identity = found["_meta"][PREFIX + "serverInfo"]
    assert (identity["name"], identity["version"]) == ("agent-sandbox", __version__)
    greeting = server.shake_hands()
    assert greeting["instructions"] == found["instructions"]
    assert greeting["serverInfo"] == identity
    assert 0 < len(found["instructions"]) <= 1500


@pytest.mark.parametrize(
    ("meta", "names"),
    [
        (None, [VERSION, CAPABILITIES]),
        ({}, [VERSION, CAPABILITIES]),
        ({CAPABILITIES: {}}, [VERSION]),
        ({VERSION: "2026-07-28"}, [CAPABILITIES]),
        ({VERSION: "2026-07-28", CAPABILITIES: []}, [CAPABILITIES]),
        ({VERSION: 7, CAPABILITIES: {}}, [VERSION]),
        ({**MODERN, PREFIX + "logLevel": "loud"}, [PREFIX + "logLevel"]),
    ],
)
def test_a_probe_that_lacks_something_is_told_what(server: Server, meta: object, names: list[str]) -> None:
    """Vector 2."""
    server.request("probe", "server/discover", {} if meta is None else {"_meta": meta})
    error = server.next()["error"]
    assert error["code"] == -32602
    assert all(name in error["message"] for name in names)


def test_a_probe_with_another_version_is_told_the_versions_and_one_without_a_name_is_served(server: Server) -> None:
    """Vector 2."""
    for version in ("1900-01-01", "2031-01-01", "2025-11-25", ""):
        error = server.ask("server/discover", meta={VERSION: version})["error"]
        assert error["code"] == -32022
        assert error["data"] == {"supported": ["2026-07-28"], "requested": version}
    assert server.result("server/discover", meta={PREFIX + "clientInfo": {"name": "c", "version": "1"}})


@pytest.mark.parametrize(
    "method", ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "initialize", "foo/bar"]
)
def test_what_the_stateless_era_has_not_is_not_found(server: Server, method: str) -> None:
    """Vector 3."""
    assert server.ask(method)["error"]["code"] == -32601


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
def test_a_handshake_has_the_version_that_is_asked_for(server: Server, version: str) -> None:
    """Vector 4."""
    greeting = server.shake_hands(version)
    assert greeting["protocolVersion"] == version
    assert set(greeting) == {"protocolVersion", "capabilities", "serverInfo", "instructions"}


@pytest.mark.parametrize("version", ["2024-10-07", "2026-07-28", "9999-01-01", "", "x" * 10_000])
def test_a_handshake_of_another_version_gets_the_newest(server: Server, version: str) -> None:
    """Vector 4."""
    assert server.shake_hands(version)["protocolVersion"] == "2025-11-25"


def test_both_eras_are_served_on_one_pipe(fresh_server: Server) -> None:
    """Vectors 5 and 17."""
    fresh_server.result("server/discover")
    fresh_server.shake_hands()
    for method in ("tools/list", "resources/list", "resources/templates/list"):
        fresh_server.request(method, method)
        old = fresh_server.next()["result"]
        new = fresh_server.result(method)
        assert not OF_MODERN_RESULTS & set(old)
        assert "_meta" not in old
        assert new["resultType"] == "complete"
        assert new["ttlMs"] > 0
        assert new["cacheScope"] == "public"
        assert {name: new[name] for name in old} == old
    call = {"name": "sandbox_list", "arguments": {"unnamed": "no"}}
    fresh_server.request("call", "tools/call", call)
    old, new = fresh_server.next()["result"], fresh_server.result("tools/call", **call)
    assert not OF_MODERN_RESULTS & set(old)
    assert OF_MODERN_RESULTS & set(new) == {"resultType"}
    assert old["structuredContent"] == new["structuredContent"]


def test_a_call_before_any_handshake_is_told_how_to_begin(fresh_server: Server) -> None:
    """Vector 6."""
    fresh_server.request(1, "tools/list")
    error = fresh_server.next()["error"]
    assert error["code"] == -32602
    assert "initialize" in error["message"]
    fresh_server.request(2, "ping")
    assert fresh_server.next() == {"id": 2, "result": {}}
    assert fresh_server.code("foo/bar") == -32601


def test_a_request_right_after_the_handshake_is_served(fresh_server: Server) -> None:
    """Vector 6: without its notification, and in the same write."""
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    fresh_server.send(json.dumps(hello).encode() + b"\n" + json.dumps(listing).encode() + b"\n")
    assert [fresh_server.next()["id"] for _ in range(2)] == [0, 1]


@pytest.mark.parametrize(
    "line", [b"{nope", b"\xff\xfe", b"\x00", b"[" * 100_000, b'{"a":NaN}', b"nul", b'"' + b"\\ud8" * 9], ids=repr
)
def test_what_is_no_json_is_refused_and_the_next_request_served(server: Server, line: bytes) -> None:
    """Vector 7."""
    server.send(line[:200_000] + b"\n")
    message = server.next()
    assert "id" in message
    assert message["id"] is None
    assert message["error"]["code"] == -32700
    server.assert_silent()


def test_empty_lines_carriage_returns_and_the_mark_before_utf_8_are_passed_over(fresh_server: Server) -> None:
    """Vector 7."""
    ping = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}'
    fresh_server.send(b"\xef\xbb\xbf" + ping % 1 + b"\n\n\r\n \t\n" + ping % 2 + b"\r\n")
    assert [fresh_server.next()["id"] for _ in range(2)] == [1, 2]
    for byte in ping % 3 + b"\n":
        fresh_server.send(bytes([byte]))
    assert fresh_server.next()["id"] == 3


def test_a_line_of_17_mib_is_refused_and_does_not_stay_in_memory(fresh_server: Server) -> None:
    """Vector 7."""
    fresh_server.result("server/discover")
    before = peak_kib(fresh_server)
    for _ in range(3):
        fresh_server.send(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"')
        for _ in range(17):
            fresh_server.send(b"x" * (KIB * KIB))
        fresh_server.send(b'"}}\n')
        message = fresh_server.next()
        assert (message["id"], message["error"]["code"]) == (None, -32600)
        fresh_server.assert_silent()
    # What is gathered up to the limit, and once more while parts of it become one; not three lines of it.
    assert peak_kib(fresh_server) - before < 40 * KIB


def test_a_line_of_15_mib_is_read(server: Server) -> None:
    """Vector 7."""
    server.request("large", "ping", {"x": "x" * (15 * KIB * KIB)})
    assert server.next() == {"id": "large", "result": {}}


def peak_kib(server: Server) -> int:
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0])


@pytest.mark.parametrize(
    ("line", "identity", "code"),
    [
        (b"[]", None, -32600),
        (b"5", None, -32600),
        (b'"x"', None, -32600),
        (b"null", None, -32600),
        (b"true", None, -32600),
        (b"{}", None, -32600),
        (b'{"id":1,"method":"ping"}', 1, -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 1, -32600),
        (b'{"jsonrpc":2.0,"id":1,"method":"ping"}', 1, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":1e3,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', 1, -32600),
        (b'{"jsonrpc":"2.0","id":1}', 1, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', 1, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}', 1, -32602),
    ],
    ids=repr,
)
def test_what_is_no_message_is_refused(server: Server, line: bytes, identity: object, code: int) -> None:
    """Vector 8."""
    server.send(line + b"\n")
    message = server.next()
    assert (message["id"], message["error"]["code"]) == (identity, code)
    server.assert_silent()


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","method":"notifications/unknown"}',
        b'{"jsonrpc":"2.0","method":"tools/list"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":[]}}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}',
        b'{"jsonrpc":"2.0","method":7}',
        b'{"jsonrpc":"2.0","id":3,"result":{}}',
        b'{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"x"}}',
    ],
    ids=repr,
)
def test_what_wants_no_answer_gets_none(server: Server, line: bytes) -> None:
    """Vectors 8 and 14."""
    server.send(line + b"\n")
    server.assert_silent()


def batch(*messages: dict[str, Any]) -> bytes:
    return json.dumps([{"jsonrpc": "2.0", **message} for message in messages]).encode() + b"\n"


def test_a_batch_is_served_in_the_version_that_has_them(fresh_server: Server) -> None:
    """Vector 9."""
    fresh_server.shake_hands("2025-03-26")
    note = {"method": "notifications/unknown"}
    fresh_server.send(batch({"id": 1, "method": "ping"}, note, {"id": "b", "method": "x"}, {"id": None}))
    answers = fresh_server.next()
    assert [answer["id"] for answer in answers] == [1, "b", None]
    assert [answer.get("error", {}).get("code") for answer in answers] == [None, -32601, -32600]
    fresh_server.send(batch(note, note))
    fresh_server.assert_silent()
    fresh_server.send(batch({"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}}))
    assert [answer["error"]["code"] for answer in fresh_server.next()] == [-32600]


def test_a_batch_is_refused_elsewhere(fresh_server: Server) -> None:
    """Vector 9."""
    pings = batch({"id": 1, "method": "ping"}, {"id": 2, "method": "ping"})
    discoveries = batch({"id": 1, "method": "server/discover", "params": {"_meta": MODERN}})
    for version in (None, "2025-11-25", "2025-06-18", "2024-11-05"):
        if version is not None:
            fresh_server.shake_hands(version)
        for line in (pings, discoveries):
            fresh_server.send(line)
            message = fresh_server.next()
            assert (message["id"], message["error"]["code"]) == (None, -32600)
            fresh_server.assert_silent()


@pytest.mark.parametrize("identity", [0, -1, 2**53, 2**63 + 1, "", "é", "0", "\u2028 \x00 😀", "x" * 5000], ids=repr)
def test_an_id_comes_back_as_it_was(server: Server, identity: object) -> None:
    """Vector 10."""
    server.modern(identity, "server/discover")
    message = server.next()
    assert message["id"] == identity
    assert type(message["id"]) is type(identity)


@pytest.mark.parametrize(
    "params",
    [{"name": "no_such_tool"}, {}, {"name": 5}, {"name": "sandbox_list", "arguments": []}, {"name": ""}],
    ids=repr,
)
def test_a_call_of_no_tool_is_an_error_of_the_protocol(server: Server, params: dict[str, object]) -> None:
    """Vector 11."""
    assert server.ask("tools/call", **params)["error"]["code"] == -32602


@pytest.mark.parametrize(
    ("tool", "arguments", "names"),
    [
        ("sandbox_exec", {"name": "x", "command": ["ls"]}, "command"),
        ("sandbox_exec", {"name": "x"}, "command"),
        ("sandbox_exec", {"name": "x", "command": "ls", "comand": "ls"}, "comand"),
        ("sandbox_wait", {"name": "x", "target": "asleep"}, "target"),
        ("sandbox_wait", {"name": "x", "timeout": "soon"}, "timeout"),
    ],
)
def test_a_bad_argument_is_a_result_that_names_it(
    server: Server, tool: str, arguments: dict[str, object], names: str
) -> None:
    """Vector 11: the model reads it, and calls again."""
    result = server.result("tools/call", name=tool, arguments=arguments)
    assert result["isError"] is True
    assert names in result["content"][0]["text"]
    assert result["structuredContent"]["error"]["code"] == "usage"


def test_arguments_may_be_absent(server: Server) -> None:
    """Vector 11."""
    for params in ({"name": "sandbox_list"}, {"name": "sandbox_list", "arguments": None}):
        result = server.result("tools/call", **params)
        assert result["structuredContent"] == {"ok": True, "data": {"sandboxes": [], "count": 0}}


def test_an_unknown_resource_is_an_error_of_the_era(server: Server) -> None:
    """Vector 13."""
    server.shake_hands()
    for uri in ("agent-sandbox://nothing", "file:///etc/passwd", ""):
        server.request("old", "resources/read", {"uri": uri})
        old = server.next()["error"]
        assert (old["code"], old["data"]) == (-32002, {"uri": uri})
        new = server.ask("resources/read", uri=uri)["error"]
        assert (new["code"], new["data"]) == (-32602, {"uri": uri})
    assert server.ask("resources/read")["error"]["code"] == -32602


@pytest.mark.parametrize("method", ["tools/list", "resources/list", "resources/templates/list"])
def test_a_list_has_one_page_and_no_cursor_is_one(server: Server, method: str) -> None:
    """Vector 13."""
    assert "nextCursor" not in server.result(method)
    for cursor in ("", "2", 2):
        assert server.ask(method, cursor=cursor)["error"]["code"] == -32602
    assert server.result(method, cursor=None) == server.result(method)


def test_there_are_no_subscriptions_and_nothing_says_so(server: Server) -> None:
    """Vector 16."""
    capabilities = server.result("server/discover")["capabilities"]
    assert not {"listChanged", "subscribe"} & {name for each in capabilities.values() for name in each}
    assert server.ask("subscriptions/listen", notifications={"toolsListChanged": True})["error"]["code"] == -32601
    server.assert_silent()


def test_the_tools_are_what_hosts_accept(server: Server) -> None:
    """Vector 12: their names, their schemas, their size."""
    tools = server.result("tools/list")["tools"]
    assert len(json.dumps(tools, separators=(",", ":")).encode()) < 40_000
    assert len({tool["name"] for tool in tools}) == len(tools)
    for tool in tools:
        assert tool["name"].isidentifier()
        assert tool["name"].islower()
        assert len(tool["name"]) <= 40
        assert tool["description"]
        assert len(tool["description"]) <= 2048
        # All that mean something are told: what is left out, hosts assume to be dangerous.
        of_writers = set() if tool["annotations"]["readOnlyHint"] else {"destructiveHint", "idempotentHint"}
        assert set(tool["annotations"]) >= {"title", "readOnlyHint", "openWorldHint", *of_writers}
        assert tool["annotations"]["title"] == tool["title"]
        assert tool["outputSchema"]["type"] == "object"
        assert tool["inputSchema"]["type"] == "object"
        for name, schema in tool["inputSchema"]["properties"].items():
            assert schema["description"], (tool["name"], name)
            assert schema["type"] in {"string", "integer", "number", "boolean", "array", "object"}
            assert schema["type"] != "array" or schema["items"]["type"] in {"string", "integer"}


def test_the_lists_are_the_same_for_everybody(mcp_home: Path, server: Server) -> None:
    """They depend on no setting, and on nothing that was asked before."""
    seen = [server.result(method) for method in ("tools/list", "resources/list")]
    environ = {**six_variables(mcp_home), "AGENT_SANDBOX_TARGET": "local", "AGENT_SANDBOX_MCP_MAX_OUTPUT_BYTES": "7"}
    with open_server(environ) as other:
        assert [other.result(method) for method in ("tools/list", "resources/list")] == seen
