"""Calls of tools in the real MCP server: together, cancelled, with progress, and with odd output. In a real sandbox."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cloud import LocalCloud
from tests.support.mcp_process import WAIT_SECONDS, Server, open_server, six_variables

NAME = "web"
SOON_SECONDS = 5.0
QUICK = {"name": "sandbox_status", "arguments": {"name": NAME}}
ODD = "\u2028\u2029\x85\x00\x1b[31m😀é\u200b"


@pytest.fixture(scope="module")
def environ(shared_cloud: LocalCloud, mcp_home: Path) -> dict[str, str]:
    """What a host passes on, and what the user has added."""
    return {
        **six_variables(mcp_home),
        "AGENT_SANDBOX_TARGET": "local",
        "AGENT_SANDBOX_LOCAL_DIR": shared_cloud.folder,
    }


@pytest.fixture(scope="module")
def calls(environ: dict[str, str]) -> Iterator[Server]:
    """A server with a sandbox that the tests of this module share."""
    with open_server(environ) as server:
        assert server.data("sandbox_create", name=NAME)["state"] == "RUNNING"
        yield server
        assert server.data("sandbox_remove", name=NAME)["removed"]
        assert server.end() == 0


def begin_sleep(server: Server, identity: object, mark: str, *, meta: dict[str, object] | None = None) -> None:
    """Begin a call that goes on until it is cancelled; returns when it runs in the sandbox."""
    line = f"touch /tmp/{mark}; exec -a {mark} sleep 600"
    arguments = {"name": NAME, "command": "bash", "args": ["-c", line]}
    server.modern(identity, "tools/call", name="sandbox_exec", arguments=arguments, meta=meta or {})
    wait_for(server, f"test -e /tmp/{mark}")


def wait_for(server: Server, condition: str) -> None:
    """Until a line of shell is true in the sandbox."""
    done = server.data("sandbox_shell", name=NAME, command=f"until {condition}; do sleep 0.02; done", timeout=20)
    assert done["exit_code"] == 0, condition


def test_a_fast_call_overtakes_a_slow_one_and_a_cancelled_one_ends_without_a_word(calls: Server) -> None:
    """Vector 14."""
    begin_sleep(calls, "slow", "overtaken")
    calls.modern("fast", "tools/call", **QUICK)
    assert calls.next()["id"] == "fast"
    calls.notify("notifications/cancelled", requestId="slow", reason="the user said so")
    calls.notify("notifications/cancelled", requestId="slow")
    wait_for(calls, "! pgrep -f ^overtaken")  # it and all that it started
    calls.assert_silent()


def test_more_calls_than_workers_are_cancelled_and_all_workers_are_free_again(calls: Server) -> None:
    """Vector 14."""
    for number in range(40):
        arguments = {"name": NAME, "command": "sleep", "args": ["601"]}
        calls.modern(number, "tools/call", name="sandbox_exec", arguments=arguments)
    for number in range(40):
        calls.notify("notifications/cancelled", requestId=number)
    began = time.monotonic()
    wait_for(calls, "! pgrep -f '^sleep 601'")
    assert time.monotonic() - began < 4 * SOON_SECONDS
    for number in range(40):
        calls.modern(number, "tools/call", **QUICK)
    assert sorted(calls.next()["id"] for _ in range(40)) == list(range(40))


def test_a_ping_is_answered_while_calls_go_on(calls: Server) -> None:
    """Vector 14."""
    begin_sleep(calls, 1, "pinged")
    for _ in range(20):
        began = time.monotonic()
        calls.assert_silent()
        assert time.monotonic() - began < SOON_SECONDS
    calls.notify("notifications/cancelled", requestId=1)


@pytest.mark.parametrize("token", [0, "t"], ids=repr)
def test_progress_grows_and_ends_with_the_answer(calls: Server, token: object) -> None:
    """Vector 15."""
    arguments = {"name": NAME, "command": "sleep 2.2"}
    calls.modern("told", "tools/call", name="sandbox_shell", arguments=arguments, meta={"progressToken": token})
    told = []
    while (message := calls.next()).get("method") == "notifications/progress":
        assert message["params"]["progressToken"] == token
        assert type(message["params"]["progressToken"]) is type(token)
        told.append(message["params"]["progress"])
    assert message["id"] == "told"
    assert len(told) >= 1
    assert told == sorted(set(told))
    calls.assert_silent()


def test_without_a_token_there_is_no_progress(calls: Server) -> None:
    """Vector 15."""
    for meta in ({}, {"progressToken": None}, {"progressToken": True}, {"progressToken": [1]}):
        arguments = {"name": NAME, "command": "sleep 1.2"}
        calls.modern("quiet", "tools/call", name="sandbox_shell", arguments=arguments, meta=meta)
    for _ in range(4):
        assert calls.next()["id"] == "quiet"
    calls.assert_silent()


def test_odd_output_is_one_line_of_ascii(calls: Server) -> None:
    """Vector 18."""
    line = 'import os, sys; os.write(1, sys.argv[1].encode("utf-8", "surrogatepass").replace(b"N", bytes(1)))'
    text = ODD.replace("\x00", "N")
    arguments = ["-c", line, text]
    done = calls.data("sandbox_exec", name=NAME, command="python3", args=arguments)
    assert done["stdout"]["text"] == ODD
    broken = 'import os; os.write(1, b"a\\xed\\xa0\\x80b\\xff\\xfec\\xf0\\x9f")'  # a surrogate, no UTF-8, a piece of it
    done = calls.data("sandbox_exec", name=NAME, command="python3", args=["-c", broken])
    assert done["stdout"]["encoding"] == "base64"
    assert base64.b64decode(done["stdout"]["text"]) == b"a\xed\xa0\x80b\xff\xfec\xf0\x9f"


def test_a_lone_surrogate_in_an_argument_is_an_argument(calls: Server) -> None:
    """Vector 18."""
    arguments = {"name": NAME, "path": "/work/\ud800", "content": "x\udfffy"}
    assert isinstance(calls.call("sandbox_fs_write", **arguments)["ok"], bool)
    envelope = calls.call("sandbox_exec", name=NAME, command="echo", args=["\ud800"])
    assert isinstance(envelope["ok"], bool)
    assert calls.call("sandbox_status", name="\ud800")["error"]["code"]


def test_much_output_is_cut_in_its_middle(calls: Server) -> None:
    """Vector 18."""
    command = r"head -c 5000000 /dev/zero | tr '\0' x; echo end"
    done = calls.data("sandbox_shell", name=NAME, command=command)
    assert len(done["stdout"]["text"]) < 21_000
    assert done["stdout"]["text"].endswith("xend\n")
    assert (done["stdout"]["truncated"], done["stdout"]["total_bytes"]) == (True, 5_000_004)
    # The worst that can be: each byte is six on the line, and all of it is there twice.
    zeros = calls.data("sandbox_shell", name=NAME, command="head -c 5000000 /dev/zero", max_bytes=1 << 20)
    assert zeros["exit_code"] == 0
    assert (zeros["stdout"]["truncated"], zeros["stdout"]["total_bytes"]) == (True, 5_000_000)
    assert zeros["stdout"]["returned_bytes"] > 100_000


def test_what_every_tool_answers_is_by_its_schema(calls: Server) -> None:
    """Vector 12: whatever it is called with."""
    for tool in calls.result("tools/list")["tools"]:
        properties = tool["inputSchema"]["properties"]
        arguments = {name: value for name, value in KNOWN.items() if name in properties}
        if tool["name"] in NOT_TRIED:
            arguments = {}
        result = calls.result("tools/call", name=tool["name"], arguments=arguments)
        check_envelope(tool, result)


NOT_TRIED = {"sandbox_remove", "sandbox_stop", "sandbox_create", "sandbox_run", "image_build", "runtime_check"}
KNOWN = {
    "name": NAME,
    "path": "/work",
    "command": "true",
    "src": "/nowhere",
    "dst": "/nowhere/else",
    "samples": 1,
    "follow_timeout_ms": 100,
    "content": "",
    "dry_run": True,
}


def check_envelope(tool: dict[str, Any], result: dict[str, Any]) -> None:
    schema, envelope = tool["outputSchema"], result["structuredContent"]
    assert set(schema["required"]) <= set(envelope)
    assert result["isError"] is not envelope["ok"]
    assert json.loads(result["content"][0]["text"]) == envelope
    if envelope["ok"]:
        assert set(envelope) == {"ok", "data"}
        assert isinstance(envelope["data"], dict)
    else:
        assert set(envelope) == {"ok", "error"}
        error = envelope["error"]
        assert set(error) >= {"code", "message", "retryable"}
        assert error["code"] != "internal"
        assert error["message"]


def test_every_resource_can_be_read_in_both_eras(calls: Server) -> None:
    """Vectors 13 and 17."""
    calls.shake_hands()
    listed = calls.result("resources/list")["resources"]
    assert {each["uri"].removeprefix("agent-sandbox://") for each in listed} == {
        *("runtime", "infra", "sandboxes", "images", "policy", "schemas/sandbox-create")
    }
    for each in listed:
        read = calls.result("resources/read", uri=each["uri"])
        assert (read["resultType"], read["ttlMs"], read["cacheScope"]) == ("complete", 0, "private")
        (content,) = read["contents"]
        assert (content["uri"], content["mimeType"]) == (each["uri"], "application/json")
        assert isinstance(json.loads(content["text"]), dict)
    calls.request("old", "resources/read", {"uri": "agent-sandbox://sandboxes"})
    old = calls.next()["result"]
    assert set(old) == {"contents"}
    assert [box["name"] for box in json.loads(old["contents"][0]["text"])["sandboxes"]] == [NAME]


def test_the_command_line_and_servers_share_their_sandboxes(calls: Server, environ: dict[str, str]) -> None:
    """Whatever one of them makes the others see at once, and nothing is lost when all of them make some together."""
    names = [NAME]
    with open_server(environ) as other:
        lines = []
        for number in range(2):
            names += [f"ours{number}", f"theirs{number}", f"line{number}"]
            command = [sys.executable, "-m", "vmnest", "create", f"line{number}", "--json"]
            lines.append(subprocess.Popen(command, env=environ, cwd="/", stdout=subprocess.PIPE))
            for server, whose in ((calls, "ours"), (other, "theirs")):
                arguments = {"name": f"{whose}{number}"}
                server.modern(number, "tools/call", name="sandbox_create", arguments=arguments)
        for server in (calls, other):
            for _ in range(2):
                assert server.next()["result"]["structuredContent"]["ok"]
        for line in lines:
            assert json.loads(line.communicate(timeout=WAIT_SECONDS)[0])["state"] == "RUNNING"
        for server in (calls, other):
            assert sorted(each["name"] for each in server.data("sandbox_list")["sandboxes"]) == sorted(names)
        for name in names[1:]:
            assert other.data("sandbox_remove", name=name)["removed"]
        assert [each["name"] for each in calls.data("sandbox_list")["sandboxes"]] == [NAME]


@pytest.mark.parametrize("way", ["end of input", "signals"])
def test_the_end_during_a_call_ends_the_server_and_the_command(
    calls: Server, environ: dict[str, str], way: str
) -> None:
    """Vector 19."""
    mark = f"left{len(way)}"
    with open_server(environ) as server:
        begin_sleep(server, 1, mark)
        began = time.monotonic()
        if way == "signals":
            server.process.send_signal(signal.SIGINT)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(WAIT_SECONDS) == 0
        else:
            assert server.end() == 0
        assert time.monotonic() - began < SOON_SECONDS
    wait_for(calls, f"! pgrep -f ^{mark}")
