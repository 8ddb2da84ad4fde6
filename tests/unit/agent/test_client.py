"""The agent's client against scripted peers: what it sends, what it makes of answers, what it repeats."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.clock import FakeClock
from tests.support.scripted import (
    CUT,
    SILENT,
    Answer,
    Received,
    ScriptedServer,
    Step,
    answer,
    json_answer,
    text_answer,
)
from vmnest import errors
from vmnest._guest.agentd import wire
from vmnest.agent import exchange, refusals
from vmnest.agent.client import AgentClient, Health
from vmnest.agent.results import ExecResult, Missing
from vmnest.agent.tokens import HeaderPairs
from vmnest.deadline import Deadline
from vmnest.transport import Transport

MOMENT = 0.3  # the grace of clients that meet a silent peer

NOT_LISTENING = answer(502, headers=[("x-aws-proxy-error", "APP_CONNECT_FAILED")])
REFUSED = text_answer(403, "Token authentication failed")
HEALTHY = json_answer(200, {"status": "ok", "version": "1.2.3", "features": ["processes", 7]})


class Tokens:
    """Hands out numbered headers, a new one for each that was refused."""

    def __init__(self) -> None:
        self.number = 1

    def __call__(self, refused: HeaderPairs | None) -> HeaderPairs:
        if refused is not None:
            self.number += 1
        return [("X-aws-proxy-auth", f"token-{self.number}")]


@pytest.fixture
def transport() -> Iterator[Transport]:
    transport = Transport(environ={})
    yield transport
    transport.close()


def plain(server: ScriptedServer, transport: Transport, **options: Any) -> AgentClient:
    """A client of an agent that is known to have no processes."""
    client = AgentClient(server.url, **{"headers": Tokens(), "transport": transport, "port": 8080, **options})
    client.note_lack(wire.FEATURE_PROCESSES)
    return client


@pytest.fixture
def connect(transport: Transport, fake_clock: FakeClock) -> Any:
    """Makes clients of an agent without processes. Their waits between attempts take no time."""

    def connect(server: ScriptedServer, **options: Any) -> AgentClient:
        return plain(server, transport, **{"clock": fake_clock, **options})

    return connect


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def done(exit_code: int = 0, stdout: bytes = b"", stderr: bytes = b"", **members: object) -> Answer:
    whole = {"exit_code": exit_code, "encoding": "base64", "stdout": b64(stdout), "stderr": b64(stderr), **members}
    return json_answer(200, whole)


# -- what is sent, and what is made of an answer -----------------------------------------------------------------------


def test_exec_sends_the_request_with_token_and_port_and_returns_what_the_command_left(connect: Any) -> None:
    with ScriptedServer(done(3, b"\xff\xfe", b"err", signal=None)) as server:
        result = connect(server, port=9999).exec("ls", ["-l"], cwd="/w", env={"A": "b"}, timeout=5)
    assert result == ExecResult(exit_code=3, stdout=b"\xff\xfe", stderr=b"err")
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/v1/exec")
    assert request.json() == {"command": "ls", "args": ["-l"], "cwd": "/w", "env": {"A": "b"}, "timeout": 5.0}
    assert request.headers["x-aws-proxy-auth"] == "token-1"
    assert request.headers["x-aws-proxy-port"] == "9999"
    assert request.headers["content-type"] == "application/json"
    assert len(request.headers["vmnest-exec-id"]) == 32


def test_an_argument_that_no_program_can_get_is_not_sent(connect: Any) -> None:
    with ScriptedServer() as server, pytest.raises(errors.BadArgumentError, match=r"args\[0\]"):
        connect(server).exec("echo", ["a\0b"])
    assert server.requests == []


def test_a_negative_status_of_another_agent_is_mapped(connect: Any) -> None:
    with ScriptedServer(json_answer(200, {"exit_code": -9, "stdout": "", "stderr": ""})) as server:
        result = connect(server).exec("sh")
    assert (result.exit_code, result.signal) == (137, "SIGKILL")


def test_output_goes_to_callbacks_while_it_arrives_and_the_result_holds_none(connect: Any) -> None:
    seen: list[bytes] = []
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
    parts = [b'{"exit_code":0,"encoding":"base64","stdout":"', b64(b"first!").encode(), b'QUJD","stderr":"RQ=="}']
    chunks = [b"%x\r\n%s\r\n" % (len(part), part) for part in parts]
    with ScriptedServer(Answer([head, *chunks, b"0\r\n\r\n"])) as server:
        result = connect(server).exec("x", on_stdout=seen.append)
    assert b"".join(seen) == b"first!ABC"
    assert result == ExecResult(exit_code=0, stdout=b"", stderr=b"E")


def test_an_error_of_a_callback_reaches_the_caller(connect: Any) -> None:
    def closed(_data: bytes) -> None:
        raise BrokenPipeError

    with ScriptedServer(done(stdout=b"x" * 100)) as server, pytest.raises(BrokenPipeError):
        connect(server).exec("x", on_stdout=closed)


def test_output_beyond_the_limit_is_dropped_and_noted(connect: Any) -> None:
    with ScriptedServer(done(0, b"a" * 1000, b"b" * 10)) as server:
        result = connect(server).exec("x", output_limit=10)
    missing = Missing(position=5, count=990)
    assert result == ExecResult(0, b"a" * 10, b"b" * 10, truncated=True, stdout_missing=missing)


def test_output_that_the_agent_itself_dropped_is_noted(connect: Any) -> None:
    with ScriptedServer(done(0, b"a", truncated=True)) as server:
        assert connect(server).exec("x").truncated


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (404, "cwd_not_found", errors.CwdNotFoundError),
        (400, "command_not_found", errors.CommandNotFoundError),
        (400, None, errors.CommandNotFoundError),
        (400, "not_executable", errors.NotExecutableError),
        (400, "argument_too_long", errors.ArgumentTooLongError),
        (422, None, errors.BadArgumentError),
        (500, "internal", errors.AgentError),
    ],
)
def test_the_reasons_why_a_command_was_not_started_have_their_classes(
    connect: Any, status: int, code: str | None, expected: type[errors.VmnestError]
) -> None:
    body = {"detail": "the reason"} | ({"code": code} if code else {})
    with ScriptedServer(json_answer(status, body)) as server, pytest.raises(errors.VmnestError) as caught:
        connect(server).exec("x")
    assert type(caught.value) is expected
    assert str(caught.value) == "the reason"


@pytest.mark.parametrize(
    "wrong",
    [
        answer(200, "<html>hello</html>", kind="text/html"),
        answer(200, "", kind="application/json"),
        answer(200, "null", kind="application/json"),
        json_answer(200, {"stdout": "", "stderr": ""}),
        json_answer(200, {"exit_code": "0", "stdout": "", "stderr": ""}),
        json_answer(200, {"exit_code": 0, "stdout": "!", "stderr": ""}),
    ],
)
def test_an_answer_that_is_not_the_protocols_is_an_error_of_its_own(connect: Any, wrong: Answer) -> None:
    with ScriptedServer(wrong) as server, pytest.raises(errors.AgentAnswerError) as caught:
        connect(server).exec("x")
    assert caught.value.details["outcome"] == "unknown"


GARBAGE = [
    b"\x00\xff\xfe garbage",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"HTTP/1.1 abc\r\n\r\n",
    b"HTTP/9.9 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a size\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n{}",
    b"HTTP/1.1 103 Early Hints\r\n\r\n" * 50,
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_an_answer_that_is_not_http_leaves_the_outcome_unknown(connect: Any, garbage: bytes) -> None:
    with ScriptedServer(Answer([garbage], cut=True)) as server, pytest.raises(errors.AgentError) as caught:
        connect(server).exec("x")
    assert caught.value.details["outcome"] == "unknown"
    assert len(str(caught.value)) < 300


@given(st.binary(max_size=200))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_comes_in_the_answers_place_is_an_error_of_ours(connect: Any, garbage: bytes) -> None:
    steps = [Answer([garbage], cut=True), answer(200, garbage, kind="application/json")]
    with ScriptedServer(*steps) as server:
        for _ in steps:
            with pytest.raises(errors.VmnestError) as caught:
                connect(server).exec("x")
            assert caught.value.details["outcome"] == "unknown"


# -- timeouts ----------------------------------------------------------------------------------------------------------


def test_a_timeout_with_a_partial_result_raises_with_that_result(connect: Any) -> None:
    body = {
        "detail": "timed out", "code": "timed_out", "timed_out": True,
        "exit_code": 143, "signal": "SIGTERM", "encoding": "base64", "stdout": b64(b"a\n"), "stderr": "",
    }  # fmt: skip
    with ScriptedServer(json_answer(504, body)) as server, pytest.raises(errors.CommandTimedOutError) as caught:
        connect(server).exec("sh", timeout=1)
    expected = ExecResult(exit_code=143, stdout=b"a\n", stderr=b"", signal="SIGTERM", timed_out=True)
    assert caught.value.result == expected
    assert caught.value.exit_status == 124


def test_a_timeout_without_a_result_is_one_with_an_empty_result(connect: Any) -> None:
    timed_out = json_answer(504, {"detail": "command timed out"})
    with ScriptedServer(timed_out) as server, pytest.raises(errors.CommandTimedOutError, match="1 s") as caught:
        connect(server).exec("sh", timeout=1)
    assert caught.value.result == ExecResult(exit_code=124, stdout=b"", stderr=b"", timed_out=True)


def test_a_504_of_something_between_is_no_timeout_of_the_command(connect: Any) -> None:
    gateway = answer(504, "<html>Gateway Timeout</html>", kind="text/html")
    with ScriptedServer(gateway) as server, pytest.raises(errors.AgentUnreachableError) as caught:
        connect(server).exec("sh", timeout=1)
    assert caught.value.details["outcome"] == "unknown"


def test_an_agent_that_accepts_and_never_answers_is_given_up_after_timeout_and_grace(transport: Transport) -> None:
    with ScriptedServer(SILENT) as server:
        client = plain(server, transport, grace=MOMENT)
        with pytest.raises(errors.AgentUnreachableError) as caught:
            client.exec("sleep", ["1"], timeout=0.1)
    assert caught.value.details == {"outcome": "unknown"}
    assert isinstance(caught.value.__cause__, errors.ReadTimeoutError)
    assert len(server.requests) == 1


def test_an_answer_that_breaks_off_or_stops_leaves_the_outcome_unknown(transport: Transport) -> None:
    head = b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"exit_code":0,'
    with ScriptedServer(CUT, Answer([head], cut=True), Answer([head], silent=True)) as server:
        for _ in range(3):
            client = plain(server, transport, grace=MOMENT)
            with pytest.raises(errors.AgentUnreachableError) as caught:
                client.exec("x", timeout=0.1)
            assert caught.value.details == {"outcome": "unknown"}
    assert len(server.requests) == 3


def test_an_answer_that_is_cut_at_any_byte_is_never_taken_for_a_whole_one(connect: Any) -> None:
    (whole,) = done(0, b"out", b"err").pieces
    with ScriptedServer(*(Answer([whole[:length]], cut=True) for length in range(len(whole)))) as server:
        client = connect(server)
        for _ in range(len(whole)):
            with pytest.raises(errors.AgentUnreachableError) as caught:
                client.exec("x", timeout=5)
            assert caught.value.details["outcome"] == "unknown"
    assert len(server.requests) == len(whole)


@pytest.mark.parametrize("where", ["head", "body", "body of an error"])
def test_an_answer_that_only_drips_is_given_up_after_timeout_and_grace(transport: Transport, where: str) -> None:
    (whole,) = (done(0, b"x" * 1000) if where != "body of an error" else answer(500, "x" * 1000)).pieces
    cut = whole.index(b"\r\n\r\n") + 4 if where != "head" else 5
    dripping = Answer([whole[:cut]], cut=True, drip=whole[cut:])
    with ScriptedServer(dripping) as server:
        client = plain(server, transport, grace=MOMENT)
        begin = time.monotonic()
        with pytest.raises(errors.VmnestError) as caught:
            client.exec("x", timeout=0.1)
    assert caught.value.details["outcome"] == "unknown"
    assert time.monotonic() - begin < 5


def test_whoever_takes_the_output_may_take_it_slowly(connect: Any, fake_clock: FakeClock) -> None:
    taken = []

    def page(data: bytes) -> None:
        fake_clock.advance(3600)
        taken.append(data)

    (whole,) = done(0, b"x" * 2_000_000).pieces
    parts = [whole[at : at + 100_000] for at in range(0, len(whole), 100_000)]
    with ScriptedServer(Answer(parts)) as server:
        connect(server, grace=1).exec("x", timeout=1, on_stdout=page)
    assert len(b"".join(taken)) == 2_000_000
    assert len(taken) > 5


# -- a command that is quiet -------------------------------------------------------------------------------------------


class Quiet:
    """An agent whose command ends once it was asked how it is ``looks`` times."""

    def __init__(self, looks: int, health: Answer = HEALTHY) -> None:
        self.left = looks
        self.health = health
        self.over = threading.Event()

    def __call__(self, request: Received) -> Answer:
        if request.target == "/v1/exec":
            assert self.over.wait(20)
            return done(0, b"ok")
        self.left -= 1
        if self.left <= 0:
            self.over.set()
        return self.health


@pytest.mark.parametrize(
    "health", [HEALTHY, NOT_LISTENING, answer(502), answer(500), CUT, answer(200, "<html>")], ids=range(6)
)
def test_a_sandbox_is_kept_awake_while_its_command_is_waited_for(connect: Any, health: Answer) -> None:
    states: list[str] = []

    def look() -> str:
        states.append("RUNNING")
        return "RUNNING"

    with ScriptedServer(Quiet(3, health), repeat_last=True) as server:
        assert connect(server, look=look, quiet=0.02).exec("sleep").stdout == b"ok"
    targets = [request.target for request in server.requests]
    assert targets[0] == "/v1/exec"
    assert set(targets[1:]) == {"/healthz"}
    assert len(states) >= 3


def test_without_a_way_to_look_it_is_kept_awake_all_the_same(connect: Any) -> None:
    with ScriptedServer(Quiet(2), repeat_last=True) as server:
        assert connect(server, quiet=0.02).exec("sleep").stdout == b"ok"


@pytest.mark.parametrize(("state", "said"), [("SUSPENDED", "was suspended"), ("TERMINATED", "has ended")])
def test_a_command_whose_sandbox_does_not_run_any_more_is_not_waited_for(connect: Any, state: str, said: str) -> None:
    agent = Quiet(1)
    with ScriptedServer(agent, repeat_last=True) as server:
        with pytest.raises(errors.AgentUnreachableError, match="does not run any more") as caught:
            connect(server, look=lambda: state, quiet=0.02).exec("sleep")
        agent.over.set()
    assert caught.value.details == {"outcome": "unknown", "state": state}
    assert said in (caught.value.hint or "")
    assert [request.target for request in server.requests] == ["/v1/exec"]  # nothing that would wake it


def test_a_command_may_end_while_its_sandbox_is_about_to_be_suspended(connect: Any) -> None:
    agent = Quiet(1)
    looks: list[int] = []

    def look() -> str:
        looks.append(1)
        if len(looks) == 3:
            agent.over.set()
        return "SUSPENDING"

    with ScriptedServer(agent, repeat_last=True) as server:
        assert connect(server, look=look, quiet=0.02).exec("sleep").stdout == b"ok"
    assert [request.target for request in server.requests] == ["/v1/exec"]


# -- when an answer is lost, what became of the MicroVM ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "said"),
    [("SUSPENDED", "was suspended meanwhile"), ("SUSPENDING", "was suspended meanwhile"), ("TERMINATED", "has ended"),
     ("RUNNING", "may still be running")],
)  # fmt: skip
def test_a_lost_answer_tells_what_became_of_the_sandbox(connect: Any, state: str, said: str) -> None:
    with ScriptedServer(CUT) as server, pytest.raises(errors.AgentUnreachableError) as caught:
        connect(server, look=lambda: state).exec("x")
    assert caught.value.details == {"outcome": "unknown", "state": state}
    assert said in (caught.value.hint or "")


def test_a_lost_answer_is_told_even_if_nobody_knows_what_became_of_the_sandbox(connect: Any) -> None:
    def fail() -> str:
        raise errors.ConnectError("no control plane")

    with ScriptedServer(CUT) as server, pytest.raises(errors.AgentUnreachableError) as caught:
        connect(server, look=fail).exec("x")
    assert caught.value.details == {"outcome": "unknown"}


def test_nobody_is_asked_about_the_sandbox_while_answers_come(connect: Any) -> None:
    def look() -> str:
        raise AssertionError

    with ScriptedServer(done(), json_answer(400, {"detail": "no", "code": "command_not_found"})) as server:
        client = connect(server, look=look)
        client.exec("x")
        with pytest.raises(errors.CommandNotFoundError):
            client.exec("x")


def test_a_token_that_cannot_be_had_is_no_doubt_about_the_command(transport: Transport) -> None:
    def mint(refused: HeaderPairs | None) -> HeaderPairs:
        raise errors.ConnectionLostError("the control plane hung up")

    with ScriptedServer() as server:
        client = plain(server, transport, headers=mint)
        with pytest.raises(errors.ConnectionLostError, match="the control plane hung up"):
            client.exec("x")
    assert server.requests == []


def test_without_a_timeout_only_the_callers_deadline_ends_the_wait(transport: Transport) -> None:
    with ScriptedServer(SILENT) as server:
        client = plain(server, transport, grace=0)
        with pytest.raises(errors.AgentUnreachableError):
            client.exec("sleep", ["9"], deadline=Deadline(MOMENT))


# -- what is repeated --------------------------------------------------------------------------------------------------


def test_a_refused_token_is_replaced_once_and_the_request_sent_again(connect: Any) -> None:
    with ScriptedServer(REFUSED, done(0, b"ok")) as server:
        assert connect(server).exec("x").stdout == b"ok"
    assert [request.headers["x-aws-proxy-auth"] for request in server.requests] == ["token-1", "token-2"]


def test_a_token_that_is_refused_twice_is_an_error(connect: Any) -> None:
    with ScriptedServer(REFUSED, REFUSED) as server, pytest.raises(errors.TokenRefusedError):
        connect(server).exec("x")


def test_a_token_that_is_refused_twice_makes_us_ask_where_the_sandbox_is(connect: Any) -> None:
    with ScriptedServer(REFUSED, REFUSED) as other, ScriptedServer(done(0, b"ok")) as server:
        client = connect(other, recover=lambda _error: server.url)
        assert client.exec("x").stdout == b"ok"
        assert client.endpoint == server.url
    with ScriptedServer(REFUSED, REFUSED) as server, pytest.raises(errors.TokenRefusedError) as caught:
        connect(server, recover=lambda _error: server.url).exec("x")
    assert "vmnest ps" in (caught.value.hint or "")


def test_a_port_that_the_token_does_not_cover_is_not_asked_again(connect: Any) -> None:
    with ScriptedServer(text_answer(403, "Access to port denied")) as server, pytest.raises(errors.PortRefusedError):
        connect(server).exec("x")


def test_a_502_of_which_the_data_plane_says_that_it_reached_nobody_is_repeated(connect: Any) -> None:
    gone = answer(502, headers=[("x-aws-proxy-error", "MICROVM_CONNECT_FAILED")])
    with ScriptedServer(NOT_LISTENING, gone, text_answer(429, ""), done(0, b"ok")) as server:
        assert connect(server).exec("x").stdout == b"ok"


AMBIGUOUS = [answer(502), text_answer(502, "", x_aws_proxy_error="NEW"), answer(503, "busy")]
ONCE = json_answer(200, {"status": "ok", "version": "1", "features": ["exec_id"]})


@pytest.mark.parametrize("bad", AMBIGUOUS, ids=range(3))
def test_a_command_is_not_repeated_after_a_502_that_may_come_from_a_running_one(connect: Any, bad: Answer) -> None:
    with ScriptedServer(bad, HEALTHY) as server, pytest.raises(errors.EndpointUnavailableError) as caught:
        connect(server).exec("x")
    assert caught.value.details["outcome"] == "unknown"


@pytest.mark.parametrize("bad", AMBIGUOUS, ids=range(3))
def test_it_is_repeated_where_the_agent_can_tell_a_repeat(connect: Any, bad: Answer) -> None:
    with ScriptedServer(bad, NOT_LISTENING, ONCE, done(0, b"ok")) as server:
        assert connect(server).exec("x").stdout == b"ok"
    ids = [request.headers["vmnest-exec-id"] for request in server.requests if request.method == "POST"]
    assert len(ids) == 2
    assert len(set(ids)) == 1


def test_a_repeat_of_what_has_run_already_is_an_unknown_outcome(connect: Any) -> None:
    known = json_answer(409, {"detail": "a command of this id was started before", "code": "already_started"})
    with ScriptedServer(answer(502), ONCE, known) as server, pytest.raises(errors.AgentUnreachableError) as caught:
        connect(server, look=lambda: "RUNNING").exec("x")
    assert caught.value.details["outcome"] == "unknown"
    assert "was started" in str(caught.value)


def test_a_doubt_stays_whatever_comes_after_it(connect: Any, fake_clock: FakeClock) -> None:
    steps = [answer(502), ONCE, NOT_LISTENING]
    with ScriptedServer(*steps, repeat_last=True) as server, pytest.raises(errors.EndpointError) as caught:
        connect(server, wake=5, look=lambda: "TERMINATED").exec("x")
    assert caught.value.details["proxy_error"] == "APP_CONNECT_FAILED"
    assert (caught.value.details["outcome"], caught.value.details["state"]) == ("unknown", "TERMINATED")
    assert "has ended meanwhile" in (caught.value.hint or "")


def test_a_sandbox_that_ended_under_a_command_leaves_a_doubt(connect: Any) -> None:
    def tell(error: errors.VmnestError) -> str:
        raise errors.MicroVMEndedError("it is TERMINATED") from error

    with ScriptedServer(answer(502)) as server, pytest.raises(errors.MicroVMEndedError) as caught:
        connect(server, recover=tell).exec("x")
    assert caught.value.details["outcome"] == "unknown"
    with ScriptedServer(NOT_LISTENING) as server, pytest.raises(errors.MicroVMEndedError) as caught:
        connect(server, recover=tell).exec("x")
    assert "outcome" not in caught.value.details


def test_a_502_that_goes_on_ends_with_the_budget(connect: Any, fake_clock: FakeClock) -> None:
    with ScriptedServer(answer(502), repeat_last=True) as server, pytest.raises(errors.EndpointUnavailableError):
        connect(server, wake=5).exec("x")
    assert 5 <= fake_clock.monotonic() < 6
    assert [request.method for request in server.requests].count("POST") == 1


def test_an_agent_that_is_about_to_be_suspended_is_asked_again(connect: Any) -> None:
    suspending = json_answer(503, {"detail": "the sandbox is about to be suspended", "code": "suspending"})
    asked: list[str] = []

    def recover(error: errors.VmnestError) -> str:
        asked.append(error.code)
        return server.url

    with ScriptedServer(suspending, suspending, done(0, b"ok")) as server:
        assert connect(server, recover=recover).exec("x").stdout == b"ok"
    assert asked == ["endpoint_unavailable"] * 2


def test_reading_and_writing_files_is_repeated_after_any_502(connect: Any) -> None:
    with ScriptedServer(answer(502), json_answer(200, {"content": b64(b"x")})) as server:
        assert connect(server).read_file("/a") == b"x"
    with ScriptedServer(answer(502), json_answer(200, {"bytes_written": 1})) as server:
        assert connect(server).write_file("/a", b"x") == 1


def test_repeats_end_with_the_budget(connect: Any, fake_clock: FakeClock) -> None:
    with ScriptedServer(NOT_LISTENING, repeat_last=True) as server, pytest.raises(errors.EndpointUnavailableError):
        connect(server, wake=5).exec("x")
    assert 5 <= fake_clock.monotonic() < 6
    assert len(server.requests) < 30


def test_a_refused_connection_is_an_error_at_once(transport: Transport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    client = AgentClient(url, headers=Tokens(), transport=transport, port=8080)
    with pytest.raises(errors.ConnectError):
        client.exec("x")


def test_who_knows_where_the_sandbox_is_now_can_say_so(transport: Transport, fake_clock: FakeClock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        old = f"http://127.0.0.1:{listener.getsockname()[1]}"
    asked: list[errors.VmnestError] = []
    with ScriptedServer(done(0, b"a"), done(0, b"b")) as server:

        def find(error: errors.VmnestError) -> str:
            asked.append(error)
            return server.url

        client = AgentClient(old, headers=Tokens(), transport=transport, port=8080, clock=fake_clock, recover=find)
        client.note_lack(wire.FEATURE_PROCESSES)
        assert client.exec("x").stdout == b"a"
        assert client.exec("x").stdout == b"b"
    assert [type(error) for error in asked] == [errors.ConnectError]


def test_who_knows_that_the_sandbox_is_gone_ends_the_repeats(connect: Any) -> None:
    def tell(error: errors.VmnestError) -> str:
        raise errors.MicroVMEndedError("it is TERMINATED") from error

    with ScriptedServer(NOT_LISTENING) as server, pytest.raises(errors.MicroVMEndedError):
        connect(server, recover=tell).exec("x")


# -- health ------------------------------------------------------------------------------------------------------------


def test_health_tells_version_and_features(connect: Any) -> None:
    with ScriptedServer(HEALTHY, json_answer(200, {"status": "ok"})) as server:
        client = connect(server)
        assert client.health() == Health(version="1.2.3", features=frozenset({"processes"}))
        assert client.health() == Health(version="", features=frozenset())
    assert (server.requests[0].method, server.requests[0].target) == ("GET", "/healthz")


@pytest.mark.parametrize("wrong", [answer(200, "<html>"), json_answer(200, [1]), json_answer(200, {"status": "bad"})])
def test_another_program_on_the_agents_port_is_not_taken_for_the_agent(connect: Any, wrong: Answer) -> None:
    with ScriptedServer(wrong) as server, pytest.raises(errors.AgentAnswerError):
        connect(server).health()


def test_waiting_for_the_agent_outlasts_everything_that_a_launch_shows(connect: Any) -> None:
    steps: list[Step] = [NOT_LISTENING, answer(502), CUT, answer(503, "starting"), text_answer(429, ""), HEALTHY]
    with ScriptedServer(*steps) as server:
        assert connect(server).wait_ready(deadline=Deadline(60)).version == "1.2.3"


def test_waiting_for_the_agent_ends_with_the_deadline_and_names_the_last_failure(
    connect: Any, fake_clock: FakeClock
) -> None:
    with ScriptedServer(NOT_LISTENING, repeat_last=True) as server, pytest.raises(errors.WaitTimeoutError) as caught:
        connect(server).wait_ready(deadline=Deadline(7, clock=fake_clock))
    assert "7 s" in str(caught.value)
    assert isinstance(caught.value.__cause__, errors.EndpointUnavailableError)


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_travel_as_bytes(connect: Any) -> None:
    data = bytes(range(256))
    steps = [json_answer(200, {"bytes_written": 256}), json_answer(200, {"content": b64(data), "encoding": "base64"})]
    with ScriptedServer(*steps) as server:
        client = connect(server)
        assert client.write_file("/a b", data) == 256
        assert client.read_file("/a b") == data
    assert [request.target for request in server.requests] == ["/v1/fs/write", "/v1/fs/read"]
    assert json.loads(server.requests[0].body) == {"path": "/a b", "encoding": "base64", "content": b64(data)}
    assert json.loads(server.requests[1].body) == {"path": "/a b"}


def test_an_agent_that_sends_text_is_understood(connect: Any) -> None:
    with ScriptedServer(json_answer(200, {"content": "é\n", "encoding": "utf-8"})) as server:
        assert connect(server).read_file("/a") == "é\n".encode()


def test_a_missing_file_is_not_found_with_or_without_a_code(connect: Any) -> None:
    steps = [json_answer(404, {"detail": "no such file: /a", "code": "file_not_found"}),
             json_answer(404, {"detail": "no such file: /a"})]  # fmt: skip
    with ScriptedServer(*steps) as server:
        for _ in steps:
            with pytest.raises(errors.RemoteFileNotFoundError, match="/a"):
                connect(server).read_file("/a")


def test_a_file_larger_than_the_callers_limit_is_refused(connect: Any) -> None:
    large = json_answer(200, {"content": b64(b"x" * 100)})
    with ScriptedServer(large) as server, pytest.raises(errors.RemoteFileError, match="larger than 99"):
        connect(server).read_file("/a", limit=99)


@pytest.mark.parametrize("written", [None, 2, "1"])
def test_a_wrong_count_of_written_bytes_is_an_error(connect: Any, written: object) -> None:
    wrong = json_answer(200, {"bytes_written": written})
    with ScriptedServer(wrong) as server, pytest.raises(errors.AgentAnswerError, match="not 1"):
        connect(server).write_file("/a", b"x")


def test_no_representation_shows_a_token(connect: Any) -> None:
    with ScriptedServer() as server:
        assert "token" not in repr(connect(server))


# -- requests of other modules -----------------------------------------------------------------------------------------


def test_a_request_goes_out_with_its_type_and_headers_and_its_answer_is_read_as_a_stream(connect: Any) -> None:
    request = exchange.Request(
        "PUT", "/v1/files?path=%2Fa", asked=refusals.FILE, body=b"abc", content_type="application/octet-stream",
        headers=[("vmnest-mode", "0644")],
    )  # fmt: skip
    with ScriptedServer(answer(200, "done")) as server, connect(server).send(request) as response:
        assert b"".join(request.pieces(response)) == b"done"
    (received,) = server.requests
    assert (received.method, received.target, received.body) == ("PUT", "/v1/files?path=%2Fa", b"abc")
    assert received.headers["content-type"] == "application/octet-stream"
    assert (received.headers["vmnest-mode"], received.headers["x-aws-proxy-auth"]) == ("0644", "token-1")


def test_only_the_statuses_that_a_request_accepts_are_no_errors(connect: Any) -> None:
    request = exchange.Request("GET", "/v1/files?path=a", asked=refusals.FILE, accepted=(206, 416))
    with ScriptedServer(answer(416)) as server, connect(server).send(request) as response:
        assert response.status == 416
    with ScriptedServer(answer(200, "x")) as server, pytest.raises(errors.EndpointError, match="200"):
        connect(server).send(request)


def test_a_body_of_pieces_is_made_anew_for_each_attempt(connect: Any) -> None:
    made: list[int] = []

    def body() -> Iterator[bytes]:
        made.append(len(made))
        yield b"first "
        yield b"second"

    request = exchange.Request("PUT", "/v1/files?path=a", asked=refusals.FILE, body=body)
    with ScriptedServer(REFUSED, answer(200)) as server:
        connect(server).send(request).close()
    assert [received.body for received in server.requests] == [b"first second"] * 2
    assert made == [0, 1]


def test_an_error_of_a_body_is_raised_as_it_is(connect: Any) -> None:
    def body() -> Iterator[bytes]:
        yield b"first"
        raise OSError(5, "the disk is broken")

    request = exchange.Request("PUT", "/v1/files?path=a", asked=refusals.FILE, body=body)
    with ScriptedServer(SILENT, repeat_last=True) as server, pytest.raises(OSError, match="disk is broken"):
        connect(server).send(request)


def test_a_request_that_must_not_wake_uses_the_other_recovery(connect: Any) -> None:
    def wake(_error: errors.VmnestError) -> str:
        raise AssertionError("this would wake it")

    def look(_error: errors.VmnestError) -> str:
        raise errors.SandboxSuspendedError("asleep")

    request = exchange.Request("GET", "/v1/processes", asked=refusals.EXEC, wakes=False)
    with ScriptedServer(NOT_LISTENING) as server, pytest.raises(errors.SandboxSuspendedError):
        connect(server, recover=wake, recover_asleep=look).send(request)


def test_what_the_agent_supports_is_asked_once(connect: Any) -> None:
    with ScriptedServer(HEALTHY) as server:
        client = connect(server)
        assert client.supports("processes")
        assert not client.supports("files")
    assert [received.target for received in server.requests] == ["/healthz"]


def test_what_the_agent_supports_is_known_after_any_look_at_its_health(connect: Any) -> None:
    with ScriptedServer(HEALTHY) as server:
        client = connect(server)
        client.wait_ready(deadline=Deadline(5))
        assert client.supports("processes")
    assert len(server.requests) == 1


def test_a_state_that_cannot_be_seen_is_none(connect: Any) -> None:
    def refuse() -> str:
        raise errors.ConnectError("no network")

    with ScriptedServer() as server:
        assert connect(server).look() is None
        assert connect(server, look=refuse).look() is None
        assert connect(server, look=lambda: "SUSPENDED").look() == "SUSPENDED"
