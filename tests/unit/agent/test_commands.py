"""Commands: as a process where the agent knows processes, by the base contract where not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.agent import Agent
from tests.support.agent_client import States
from tests.support.clock import FakeClock
from tests.support.process_peer import HEAD, ProcessPeer
from tests.support.scripted import Answer, Received, ScriptedServer, answer, json_answer
from vmnest import errors
from vmnest.agent.client import AgentClient
from vmnest.agent.results import ExecResult, Missing
from vmnest.deadline import Deadline
from vmnest.transport import Transport

DONE = {"exit_code": 0, "signal": None, "timed_out": False}
PLAIN = json_answer(200, {"exit_code": 0, "encoding": "base64", "stdout": "b2s=", "stderr": ""})
NO_ROUTE = json_answer(404, {"detail": "Not Found"})


def test_a_command_is_one_request_that_starts_it_and_brings_its_output(connect_agent: Any) -> None:
    script = ProcessPeer(("stdout", b"out"), ("stderr", b"err"), ("stdout", b"!"), end={**DONE, "exit_code": 3})
    with ScriptedServer(script, repeat_last=True) as server:
        result = connect_agent(server).exec(
            "x", ["-v"], cwd="/w", env={"A": "b"}, timeout=5, user="u", rlimits={"cpu": 1}
        )
    assert result == ExecResult(3, b"out!", b"err")
    (request,) = server.requests
    body = request.json()
    assert isinstance(body, dict)
    assert len(body.pop("id")) == 32
    assert body == {
        "command": "x", "args": ["-v"], "cwd": "/w", "env": {"A": "b"}, "timeout": 5, "user": "u", "rlimits": {"cpu": 1}
    }  # fmt: skip


def test_a_line_of_shell_travels_as_one(connect_agent: Any) -> None:
    script = ProcessPeer(end=DONE)
    with ScriptedServer(script, repeat_last=True) as server:
        connect_agent(server).exec("echo $HOME", is_shell=True)
    body = server.requests[0].json()
    assert isinstance(body, dict)
    assert {name: body[name] for name in body if name != "id"} == {"shell": "echo $HOME"}


def test_output_cut_at_any_byte_is_whole_and_the_command_runs_once(connect_agent: Any) -> None:
    script = ProcessPeer(("stdout", b"out"), ("stderr", b"err"), end=DONE)
    length = len(HEAD) + len(script.frames(0)) + 12
    with ScriptedServer(script, repeat_last=True) as server:
        for cut in range(0, length, 3):
            script.runs.clear()
            script.answers = [cut]
            assert connect_agent(server).exec("x") == ExecResult(0, b"out", b"err"), f"cut after {cut} bytes"
            assert len(script.runs) == 1


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_quiet_command_may_take_longer_than_any_patience_of_the_client(
    shared_agent: Agent, agent_transport: Transport, timeout: float | None
) -> None:
    client = AgentClient(
        shared_agent.url, headers=lambda refused: [], transport=agent_transport, port=8080, quiet=0.1, grace=0.4
    )
    assert client.exec("sh", ["-c", "sleep 1.5; echo done"], timeout=timeout).stdout == b"done\n"


def test_output_goes_to_functions_as_it_comes(connect_agent: Any) -> None:
    script = ProcessPeer(("stdout", b"a"), ("stderr", b"b"), ("stdout", b"c"), end=DONE)
    seen: list[tuple[str, bytes]] = []
    with ScriptedServer(script, repeat_last=True) as server:
        result = connect_agent(server).exec(
            "x", on_stdout=lambda data: seen.append(("out", data)), on_stderr=lambda data: seen.append(("err", data))
        )
    assert seen == [("out", b"a"), ("err", b"b"), ("out", b"c")]
    assert result == ExecResult(0, b"", b"")


def test_the_result_keeps_beginning_and_end(connect_agent: Any) -> None:
    script = ProcessPeer(("stdout", bytes(range(100))), ("stderr", b"x"), end=DONE)
    with ScriptedServer(script, repeat_last=True) as server:
        result = connect_agent(server).exec("x", output_limit=10)
    assert result.stdout == bytes([0, 1, 2, 3, 4, 95, 96, 97, 98, 99])
    assert (result.truncated, result.stdout_missing, result.stderr_missing) == (True, Missing(5, 90), None)


def test_output_that_the_sandbox_did_not_keep_is_counted_once(connect_agent: Any) -> None:
    script = ProcessPeer(("stdout", b"a"), 7, ("stderr", b"b"), end=DONE)
    with ScriptedServer(script, repeat_last=True) as server:
        result = connect_agent(server).exec("x")
    assert (result.stdout, result.stderr, result.truncated) == (b"a", b"b", True)
    assert (result.stdout_missing, result.stderr_missing, result.either_missing) == (Missing(1, 0), Missing(0, 0), 7)
    assert result.stdout_text == "a\n[... up to 7 bytes are missing here ...]\n"
    script = ProcessPeer(("stdout", b"a"), 7, ("stdout", b"b"), 8, ("stdout", b"c"), end=DONE)
    with ScriptedServer(script, repeat_last=True) as server:
        result = connect_agent(server).exec("x")
    assert (result.stdout, result.stdout_missing, result.either_missing) == (b"ac", Missing(1, 1), 15)
    assert (result.stderr_missing, result.stderr_text) == (None, "")


def test_a_command_that_was_ended_at_its_timeout_tells_what_it_left(connect_agent: Any) -> None:
    end = {"exit_code": 143, "signal": "SIGTERM", "timed_out": True}
    peer = ProcessPeer(("stdout", b"a"), end=end)
    with ScriptedServer(peer, repeat_last=True) as server, pytest.raises(errors.CommandTimedOutError) as caught:
        connect_agent(server).exec("x", timeout=2)
    assert "within 2 s" in caught.value.message
    assert caught.value.result == ExecResult(143, b"a", b"", signal="SIGTERM", timed_out=True)


def test_a_suspension_in_the_middle_is_waited_for(connect_agent: Any) -> None:
    script = ProcessPeer(("stdout", b"before and after"), end=DONE)
    script.answers = [len(HEAD) + len(script.frames(0)) - 70]
    states = States("SUSPENDED", "SUSPENDED", "SUSPENDED", "RUNNING")
    with ScriptedServer(script, repeat_last=True) as server:
        assert connect_agent(server, states=states).exec("x").stdout == b"before and after"
    assert len(script.runs) == 1


def test_a_lost_end_is_never_made_up(connect_agent: Any) -> None:
    script = ProcessPeer(("stdout", b"a"), end=DONE)
    script.answers = [len(HEAD) + 10]
    with ScriptedServer(script, repeat_last=True) as server:
        script.before = lambda received: script.restart() if received.method == "GET" else None
        with pytest.raises(errors.AgentUnreachableError) as caught:
            connect_agent(server).exec("x")
    assert caught.value.details["outcome"] == "unknown"
    assert len(script.runs) == 1


def test_a_refusal_in_the_middle_leaves_the_outcome_unknown(connect_agent: Any) -> None:
    script = ProcessPeer(("stdout", b"a"), end=None)
    refused = answer(403, "Token authentication failed")
    script.answers = [None, refused, refused]
    with ScriptedServer(script, repeat_last=True) as server, pytest.raises(errors.TokenRefusedError) as caught:
        connect_agent(server).exec("x")
    assert caught.value.details["outcome"] == "unknown"


def test_a_caller_that_stops_to_wait_does_not_know_the_outcome(connect_agent: Any, fake_clock: FakeClock) -> None:
    script = ProcessPeer(end=None)
    script.before = lambda received: fake_clock.advance(2)
    with ScriptedServer(script, repeat_last=True) as server, pytest.raises(errors.AgentUnreachableError) as caught:
        connect_agent(server).exec("x", deadline=Deadline(5, clock=fake_clock))
    assert caught.value.details == {"outcome": "unknown", "process": script.runs[0]}


@pytest.mark.parametrize("begins", [False, True])
def test_of_a_command_with_a_timeout_all_attempts_and_waits_share_that_and_the_grace(
    connect_agent: Any, fake_clock: FakeClock, begins: bool
) -> None:
    script = ProcessPeer(("stdout", b"a"), end=None)
    script.answers = [len(HEAD) + 10 if begins else 0, *[0] * 50]
    script.before = lambda received: fake_clock.advance(12)
    with ScriptedServer(script, repeat_last=True) as server, pytest.raises(errors.AgentUnreachableError) as caught:
        connect_agent(server, grace=20.0).exec("x", timeout=2)
    assert caught.value.details == {"outcome": "unknown", "process": script.runs[0]}
    assert 22 <= fake_clock.monotonic() < 25
    assert len(script.runs) == 1


def test_an_outage_that_is_over_within_the_timeout_and_the_grace_is_none(
    connect_agent: Any, fake_clock: FakeClock
) -> None:
    script = ProcessPeer(("stdout", b"abc"), end=DONE)
    script.answers = [len(HEAD) + 10, 0, 0]
    script.before = lambda received: fake_clock.advance(5)
    with ScriptedServer(script, repeat_last=True) as server:
        assert connect_agent(server, grace=20.0).exec("x", timeout=2).stdout == b"abc"


def test_neither_sleep_nor_a_slow_reader_uses_the_time_up(connect_agent: Any, fake_clock: FakeClock) -> None:
    script = ProcessPeer(("stdout", b"ab"), ("stderr", b"c"), end=DONE)
    script.answers = [len(HEAD) + len(script.frames(2)) + 6, len(HEAD) + len(script.frames(2)) + 7]
    states = States("SUSPENDED", *["SUSPENDED"] * 30, "RUNNING")
    seen: list[bytes] = []

    def read(data: bytes) -> None:
        fake_clock.advance(1000)
        seen.append(data)

    with ScriptedServer(script, repeat_last=True) as server:
        connect_agent(server, states=states, grace=20.0).exec("x", timeout=2, on_stdout=read, on_stderr=read)
    assert b"".join(seen) == b"abc"
    assert sum(fake_clock.sleeps) > 22
    assert len(script.runs) == 1


def test_at_the_end_of_the_time_a_sandbox_that_has_ended_is_told(connect_agent: Any, fake_clock: FakeClock) -> None:
    script = ProcessPeer(end=None)
    script.answers = [len(HEAD) + 10]
    script.before = lambda received: fake_clock.advance(30)
    with ScriptedServer(script, repeat_last=True) as server, pytest.raises(errors.MicroVMEndedError):
        connect_agent(server, states=States("TERMINATED"), grace=20.0).exec("x", timeout=2)


@pytest.mark.parametrize("error", [BrokenPipeError, KeyboardInterrupt])
def test_a_command_that_nobody_waits_for_any_more_is_ended(connect_agent: Any, error: type) -> None:
    def fail(data: bytes) -> None:
        raise error

    script = ProcessPeer(("stdout", b"a"), end=None)
    with ScriptedServer(script, repeat_last=True) as server, pytest.raises(error):
        connect_agent(server).exec("x", on_stdout=fail)
    assert [request.method for request in server.requests] == ["POST", "DELETE"]


def test_input_is_fed_while_output_is_read(connect_agent: Any) -> None:
    script = ProcessPeer(end=None)

    def end_it(received: Received) -> None:
        if "eof=1" in received.target:
            script.output, script.end = [("stdout", b"got it")], DONE

    script.before = end_it
    with ScriptedServer(script, repeat_last=True) as server:
        client = connect_agent(server)
        assert client.exec("x", stdin=[b"some ", b"input"]).stdout == b"got it"
    assert script.input == b"some input"


@pytest.mark.parametrize("error", [ValueError("boom"), errors.ConnectionLostError("boom")], ids=repr)
def test_a_source_that_fails_ends_the_command_that_waits_for_more(connect_agent: Any, error: Exception) -> None:
    def broken() -> Iterator[bytes]:
        yield b"some"
        raise error

    script = ProcessPeer(("stdout", b"waiting"), end=None)
    with ScriptedServer(script, repeat_last=True) as server:
        with pytest.raises(type(error), match="boom") as caught:
            connect_agent(server).exec("x", stdin=broken())
        assert "DELETE" in [request.method for request in server.requests]
    assert caught.value is error
    assert script.input == b"some"


@pytest.mark.parametrize("limit", [-1, 1.5, True])
def test_a_limit_that_is_no_number_of_bytes_is_refused_before_anything_runs(connect_agent: Any, limit: Any) -> None:
    with ScriptedServer() as server, pytest.raises(errors.UsageError, match="output_limit"):
        connect_agent(server).exec("x", output_limit=limit)
    assert server.requests == []


# -- agents without processes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [NO_ROUTE, json_answer(405, {"detail": "Method Not Allowed"})])
def test_an_agent_without_processes_is_asked_once(connect_agent: Any, refusal: Answer) -> None:
    with ScriptedServer(refusal, PLAIN, PLAIN) as server:
        client = connect_agent(server)
        assert [client.exec("x").stdout for _ in range(2)] == [b"ok", b"ok"]
    assert [request.target.partition("?")[0] for request in server.requests] == [
        "/v1/processes", "/v1/exec", "/v1/exec"
    ]  # fmt: skip


def test_an_agent_whose_features_are_known_is_not_asked(connect_agent: Any) -> None:
    with ScriptedServer(json_answer(200, {"status": "ok", "version": "0.1.2"}), PLAIN) as server:
        client = connect_agent(server)
        client.health()
        assert client.exec("x").stdout == b"ok"


def test_a_line_of_shell_is_run_by_a_shell_that_is_there(connect_agent: Any) -> None:
    with ScriptedServer(NO_ROUTE, PLAIN) as server:
        connect_agent(server).exec("echo $HOME", is_shell=True)
    body = server.requests[1].json()
    assert isinstance(body, dict)
    assert (body["command"], body["args"][0], body["args"][2:]) == ("sh", "-c", ["sh", "echo $HOME"])


@pytest.mark.parametrize(
    ("options", "named"), [({"user": "u"}, "a user"), ({"rlimits": {"cpu": 1}}, "limits"), ({"stdin": b"x"}, "input")]
)
def test_what_the_base_contract_has_no_words_for_names_the_feature(
    connect_agent: Any, options: Any, named: str
) -> None:
    with ScriptedServer(NO_ROUTE) as server, pytest.raises(errors.UnsupportedError, match="processes") as caught:
        connect_agent(server).exec("x", **options)
    assert named in caught.value.message
    assert caught.value.details == {"feature": "processes"}
