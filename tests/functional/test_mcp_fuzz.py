"""The MCP server, sent anything: it never dies, never answers what was not asked, and never answers twice."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.mcp_process import Server, open_server, six_variables
from tests.support.mcp_server import MODERN, PREFIX

FEW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def target(mcp_home: Path) -> Iterator[Server]:
    """A server that all of it is sent to."""
    with open_server(six_variables(mcp_home), stderr=subprocess.PIPE) as server:
        yield server
        server.assert_silent()
        assert server.end() == 0
        assert server.process.stderr is not None
        assert server.process.stderr.read() == b""  # no fault was found


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
)
METHODS = st.sampled_from(
    [
        *("initialize", "ping", "server/discover", "tools/list", "tools/call", "resources/list", "resources/read"),
        *("resources/templates/list", "subscriptions/listen", "notifications/cancelled", "notifications/initialized"),
        *("prompts/list", "logging/setLevel", "completion/complete", ""),
    ]
)
# Nothing of it makes or changes anything: there are no sandboxes.
TOOLS = st.sampled_from(
    ["sandbox_list", "sandbox_status", "sandbox_exec", "sandbox_shell", "sandbox_wait", "sandbox_fs_read", "no_tool"]
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["name", "command", "args", "env", "timeout", "max_bytes", "labels", "target", "x"]),
    VALUES,
    max_size=4,
)
METAS = (
    st.just(MODERN)
    | st.dictionaries(
        st.sampled_from(
            [
                *(PREFIX + "protocolVersion", PREFIX + "clientCapabilities", PREFIX + "clientInfo"),
                *(PREFIX + "logLevel", "progressToken", "traceparent"),
            ]
        ),
        VALUES | st.sampled_from(["2026-07-28", "debug"]),
        max_size=4,
    )
    | VALUES
)
PARAMS = VALUES | st.fixed_dictionaries(
    {},
    optional={
        "_meta": METAS,
        "name": TOOLS | VALUES,
        "arguments": ARGUMENTS | VALUES,
        "uri": VALUES,
        "cursor": VALUES,
        "requestId": VALUES,
        "protocolVersion": st.sampled_from(["2025-03-26", "2025-11-25"]) | VALUES,
    },
)
IDS = st.integers() | st.text(max_size=10) | VALUES
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")},
    optional={"id": IDS, "method": METHODS | VALUES, "params": PARAMS, "result": VALUES, "error": VALUES},
)


def as_key(identity: object) -> object:
    return (type(identity), identity)


def is_id(value: object) -> bool:
    """It can be an id that is echoed."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)
    )


def ids_of(value: object) -> Counter[object]:
    """The ids that an answer may have, each as often as it may."""
    messages = value if isinstance(value, list) else [value]
    return Counter(
        as_key(message["id"])
        for message in messages
        if isinstance(message, dict) and "id" in message and is_id(message["id"])
    )


def exchange(server: Server, line: bytes) -> list[dict[str, Any]]:
    """All that a line is answered with: what comes before the answers to two requests that follow it.

    The first goes through the same threads as all calls, but they may be overtaken: so it is awaited, and then so much
    of the others as is owed.
    """
    server.send(line + b"\n")
    server.request("the end", "ping")
    seen: list[dict[str, Any]] = []
    while True:
        message = server.next()
        if message == {"id": "the end", "result": {}}:
            return seen
        seen += message if isinstance(message, list) else [message]


def drain(server: Server, owed: int) -> list[dict[str, Any]]:
    """Answers that come after a while."""
    seen: list[dict[str, Any]] = []
    while len(seen) < owed:
        message = server.next()
        seen += message if isinstance(message, list) else [message]
    return seen


def check(server: Server, value: object, answers: list[dict[str, Any]]) -> None:
    asked = ids_of(value)
    told = Counter(as_key(each["id"]) for each in answers if each.get("id") is not None)
    assert told <= asked, (value, answers)
    nameless = [each for each in answers if "id" in each and each["id"] is None]
    assert len(nameless) <= (len(value) if isinstance(value, list) else 1) or value == []
    assert all("error" in each for each in nameless)
    server.assert_silent()


def is_request(message: object) -> bool:
    return (
        isinstance(message, dict)
        and is_id(message.get("id"))
        and isinstance(message.get("method"), str)
        and isinstance(message.get("params"), (dict, type(None)))
    )


@FEW
@given(MESSAGES)
def test_a_message_is_answered_once_or_not_at_all(target: Server, message: dict[str, object]) -> None:
    target.shake_hands()
    answers = exchange(target, json.dumps(message).encode())
    if is_request(message):
        answers += drain(target, 1 - len(answers))
        assert len(answers) == 1
        assert as_key(answers[0]["id"]) == as_key(message["id"])
    elif "id" not in message and "method" in message:
        assert answers == []
    check(target, message, answers)


@FEW
@given(st.sampled_from(["2025-03-26", "2025-11-25"]), st.lists(MESSAGES, max_size=5))
def test_a_batch_is_answered_once_or_not_at_all(
    target: Server, version: str, messages: list[dict[str, object]]
) -> None:
    target.shake_hands(version)
    # Without calls, whose answers may come later.
    messages = [each for each in messages if each.get("method") not in ("tools/call", "resources/read")]
    answers = exchange(target, json.dumps(messages).encode())
    if version == "2025-11-25":
        assert [(each["id"], each["error"]["code"]) for each in answers] == [(None, -32600)]
    else:
        owed = Counter(as_key(each["id"]) for each in messages if is_request(each))
        assert owed <= Counter(as_key(each["id"]) for each in answers) or not messages
    check(target, messages, answers)


@FEW
@given(st.binary(max_size=200))
def test_bytes_are_answered_once_for_each_line_at_most(target: Server, data: bytes) -> None:
    answers = exchange(target, data)
    assert len(answers) <= data.count(b"\n") + 1
    for line in data.split(b"\n"):
        if line.strip(b" \t\r"):
            assert answers.pop(0)["id"] is None
    assert answers == []


@FEW
@given(MESSAGES, st.data())
def test_a_broken_message_is_answered_as_what_it_has_become(
    target: Server, message: dict[str, object], data: st.DataObject
) -> None:
    """Something of it is lost, doubled, or written over."""
    line = bytearray(json.dumps(message, ensure_ascii=data.draw(st.booleans())).encode("utf-8", "surrogatepass"))
    begin = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(begin, min(len(line), begin + 20)))
    line[begin:end] = data.draw(st.binary(max_size=5) | st.just(bytes(line[begin:end]) * 2))
    pieces = bytes(line).replace(b"\n", b" ").replace(b"\r", b" ")
    try:
        value = json.loads(pieces.decode(), parse_constant=refuse)
    except (ValueError, RecursionError):
        value = None
        owed = 1 if pieces.strip(b" \t") else 0
        answers = exchange(target, pieces)
        assert [each["error"]["code"] for each in answers] == [-32700] * owed
    else:
        answers = exchange(target, pieces)
        if is_request(value) and value.get("jsonrpc") == "2.0":
            answers += drain(target, 1 - len(answers))
    check(target, value, answers)


def refuse(constant: str) -> object:
    raise ValueError(constant)


@FEW
@given(TOOLS, ARGUMENTS)
def test_a_tool_takes_any_arguments(target: Server, tool: str, arguments: dict[str, object]) -> None:
    message = target.ask("tools/call", name=tool, arguments=arguments)
    if tool == "no_tool":
        assert message["error"]["code"] == -32602
        return
    envelope = message["result"]["structuredContent"]
    if not envelope["ok"]:
        assert envelope["error"]["code"] in {"usage", "sandbox_not_found", "bad_argument"}, (arguments, envelope)
