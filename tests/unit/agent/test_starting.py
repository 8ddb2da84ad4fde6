"""A process is started once, whatever becomes of the answers; when nobody can know, the error says so."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.agent_client import States
from tests.support.clock import FakeClock
from tests.support.process_peer import HEAD, ProcessPeer
from tests.support.scripted import CUT, SILENT, Answer, Received, ScriptedServer, answer, json_answer, text_answer
from vmnest import errors
from vmnest.agent import arguments, starting
from vmnest.agent.client import AgentClient
from vmnest.agent.exchange import Budget
from vmnest.agent.outputs import Exit, ProcessInfo
from vmnest.deadline import NEVER, SYSTEM_CLOCK, Deadline
from vmnest.transport import Transport

COMMAND = arguments.Command("x", ["-v"])
UNBOUNDED = Budget(None, outer=NEVER, clock=SYSTEM_CLOCK)
DONE = {"exit_code": 0, "signal": None, "timed_out": False}
VAGUE = answer(502)  # by nobody knows whom
GATEWAY = text_answer(504, "gave up")


def start(client: AgentClient, **options: Any) -> ProcessInfo:
    return starting.start(client, COMMAND, process_id="p", **options)


def test_a_start_sends_the_command_with_its_id_and_gives_the_process(connect_agent: Any) -> None:
    script = ProcessPeer()
    with ScriptedServer(script, repeat_last=True) as server:
        info = start(connect_agent(server))
    assert (info.id, info.pid, info.is_running) == ("p", 7, True)
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/v1/processes")
    assert request.json() == {"id": "p", "command": "x", "args": ["-v"]}


def test_start_and_watch_is_one_request(connect_agent: Any) -> None:
    script = ProcessPeer(("stdout", b"out"), end=DONE)
    with ScriptedServer(script, repeat_last=True) as server:
        answer = starting.start_and_watch(connect_agent(server), COMMAND, process_id="p", budget=UNBOUNDED)
        *_, last = answer.events(offset=0)
    assert last == Exit(0, None, False)
    assert [request.target for request in server.requests] == ["/v1/processes?wait=25&offset=0"]


@pytest.mark.parametrize("lost", [CUT, VAGUE, GATEWAY], ids=["cut", "502", "504"])
def test_a_start_of_which_nothing_arrived_is_sent_again(connect_agent: Any, lost: Answer) -> None:
    script = ProcessPeer()
    script.answers = [lost]
    with ScriptedServer(script, repeat_last=True) as server:
        assert start(connect_agent(server)).id == "p"
    assert script.runs == ["p"]
    assert [(each.method, each.target) for each in server.requests[1:]] == [
        ("GET", "/healthz"),
        ("POST", "/v1/processes"),
    ]


def test_a_start_whose_answer_was_cut_anywhere_runs_once(connect_agent: Any) -> None:
    script = ProcessPeer()
    with ScriptedServer(script, repeat_last=True) as server:
        for cut in range(0, 400, 7):
            script.restart()
            script.runs.clear()
            script.uptime = 1e6
            script.answers = [cut]
            assert start(connect_agent(server)).id == "p"
            assert script.runs == ["p"]


def test_an_agent_that_was_started_meanwhile_is_not_asked_to_run_it_a_second_time(
    connect_agent: Any, fake_clock: FakeClock
) -> None:
    script = ProcessPeer()
    script.answers = [0]

    def restart(received: Received) -> None:
        if received.target == "/healthz":
            script.restart()

    script.before = restart
    with ScriptedServer(script, repeat_last=True) as server, pytest.raises(errors.AgentUnreachableError) as caught:
        start(connect_agent(server))
    assert script.runs == ["p"]
    assert caught.value.details == {"outcome": "unknown", "process": "p"}
    assert [each.method for each in server.requests].count("POST") == 1


def test_an_agent_that_was_there_before_is_trusted_only_just_so_long(connect_agent: Any, fake_clock: FakeClock) -> None:
    """It was started while the first request was on its way: it may have succeeded one that ran the command."""
    script = ProcessPeer(uptime=9.0)
    script.answers = [CUT]
    script.before = lambda received: fake_clock.advance(5)
    with ScriptedServer(script, repeat_last=True) as server, pytest.raises(errors.AgentUnreachableError):
        start(connect_agent(server))
    assert script.runs == []


def test_an_agent_that_knows_the_process_is_attached_to_whatever_its_age(connect_agent: Any) -> None:
    script = ProcessPeer()
    script.uptime = None
    script.answers = [0]
    with ScriptedServer(script, repeat_last=True) as server:
        assert start(connect_agent(server)).id == "p"
    assert script.runs == ["p"]


def test_an_agent_that_tells_neither_age_nor_process_leaves_the_outcome_unknown(connect_agent: Any) -> None:
    script = ProcessPeer()
    script.uptime = None
    script.answers = [CUT]
    with ScriptedServer(script, repeat_last=True) as server, pytest.raises(errors.AgentUnreachableError) as caught:
        start(connect_agent(server))
    assert caught.value.details["outcome"] == "unknown"


def test_a_suspension_in_the_middle_of_a_start_is_waited_for(connect_agent: Any) -> None:
    script = ProcessPeer()
    script.answers = [0]
    states = States("SUSPENDING", "SUSPENDED", "SUSPENDED", "RUNNING")
    requests: list[int] = []
    with ScriptedServer(script, repeat_last=True) as server:
        states.on_look = lambda state: requests.append(len(server.requests))
        assert start(connect_agent(server, states=states)).id == "p"
    assert set(requests) == {1}
    assert script.runs == ["p"]


def test_a_sandbox_that_ended_in_the_middle_of_a_start_is_told(connect_agent: Any) -> None:
    script = ProcessPeer()
    script.answers = [0]
    with ScriptedServer(script, repeat_last=True) as server, pytest.raises(errors.MicroVMEndedError):
        start(connect_agent(server, states=States("TERMINATED")))


def test_a_sandbox_that_may_not_be_woken_is_told_at_once(connect_agent: Any) -> None:
    unreached = answer(502, headers=[("x-aws-proxy-error", "MICROVM_CONNECT_FAILED")])

    def refuse(error: errors.VmnestError) -> str:
        raise errors.SandboxSuspendedError("asleep") from error

    with ScriptedServer(unreached) as server, pytest.raises(errors.SandboxSuspendedError) as caught:
        start(connect_agent(server, states=States("SUSPENDED"), recover=refuse))
    assert "outcome" not in caught.value.details


def test_an_agent_that_is_gone_for_good_is_given_up(connect_agent: Any, fake_clock: FakeClock) -> None:
    with ScriptedServer(CUT, repeat_last=True) as server, pytest.raises(errors.AgentUnreachableError) as caught:
        start(connect_agent(server, grace=10.0))
    assert caught.value.details["outcome"] == "unknown"
    assert fake_clock.monotonic() < 30


def test_an_agent_that_accepts_and_never_answers_is_given_up(agent_transport: Transport) -> None:
    begin = time.monotonic()
    with ScriptedServer(SILENT, repeat_last=True) as server:
        client = AgentClient(server.url, headers=lambda refused: [], transport=agent_transport, port=8080, grace=0.2)
        with pytest.raises(errors.AgentUnreachableError) as caught:
            client.exec("x", timeout=0.1)
    assert time.monotonic() - begin < 5
    assert caught.value.details["outcome"] == "unknown"
    assert isinstance(caught.value.__cause__, errors.ReadTimeoutError)
    assert [each.method for each in server.requests].count("POST") == 1


def test_a_deadline_ends_the_attempts(connect_agent: Any, fake_clock: FakeClock) -> None:
    with ScriptedServer(CUT, repeat_last=True) as server, pytest.raises(errors.AgentUnreachableError):
        start(connect_agent(server), deadline=Deadline(3, clock=fake_clock))
    assert fake_clock.monotonic() == pytest.approx(3, abs=0.5)


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        ({"detail": "no", "code": "command_not_found"}, errors.CommandNotFoundError),
        ({"detail": "no", "code": "cwd_not_found"}, errors.CwdNotFoundError),
        ({"detail": "no", "code": "no_such_user"}, errors.UserNotFoundError),
        ({"detail": "no", "code": "bad_argument"}, errors.BadArgumentError),
    ],
)
def test_a_command_that_cannot_be_started_is_no_doubt(connect_agent: Any, refusal: object, kind: type) -> None:
    with ScriptedServer(json_answer(400, refusal)) as server, pytest.raises(kind) as caught:
        start(connect_agent(server))
    assert "outcome" not in caught.value.details


def test_a_refusal_after_a_doubtful_attempt_settles_it(connect_agent: Any) -> None:
    script = ProcessPeer()
    script.answers = [CUT, None, json_answer(400, {"detail": "no", "code": "command_not_found"})]
    with ScriptedServer(script, repeat_last=True) as server, pytest.raises(errors.CommandNotFoundError) as caught:
        start(connect_agent(server))
    assert "outcome" not in caught.value.details


def test_a_refused_token_after_a_doubtful_attempt_leaves_the_doubt(connect_agent: Any) -> None:
    script = ProcessPeer()
    refused = text_answer(403, "Token authentication failed")
    script.answers = [CUT, None, refused, refused]
    with ScriptedServer(script, repeat_last=True) as server, pytest.raises(errors.TokenRefusedError) as caught:
        start(connect_agent(server))
    assert caught.value.details["outcome"] == "unknown"


@pytest.mark.parametrize(
    "refusal",
    [
        json_answer(404, {"detail": "Not Found"}),
        json_answer(404, {"detail": "no such route", "code": "no_such_route"}),
        json_answer(405, {"detail": "Method Not Allowed"}),
    ],
)
def test_an_agent_without_processes_is_unsupported(connect_agent: Any, refusal: Answer) -> None:
    with ScriptedServer(refusal) as server, pytest.raises(errors.UnsupportedError):
        start(connect_agent(server))


def test_an_id_of_which_the_agent_has_forgotten_what_became_is_told_at_once(connect_agent: Any) -> None:
    used = json_answer(409, {"detail": "a command of this id was started before", "code": "already_started"})
    with ScriptedServer(used, repeat_last=True) as server, pytest.raises(errors.AgentUnreachableError) as caught:
        start(connect_agent(server))
    assert caught.value.details == {"outcome": "unknown", "process": "p"}
    assert len(server.requests) == 1


def test_the_beginning_of_a_watched_start_may_be_cut_anywhere(connect_agent: Any) -> None:
    script = ProcessPeer(end=DONE)
    with ScriptedServer(script, repeat_last=True) as server:
        for cut in range(0, len(HEAD), 5):
            script.restart()
            script.runs.clear()
            script.uptime = 1e6
            script.answers = [cut]
            starting.start_and_watch(connect_agent(server), COMMAND, process_id="p", budget=UNBOUNDED).close()
            assert script.runs == ["p"]
