"""What goes wrong between a client and the agent, seen from the command line and from Python.

The endpoint is scripted. Whatever it does, the user reads one line and what to do, the status is the documented one,
nothing is run twice, and no doubt about what has run is hidden.
"""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.agent import Agent
from tests.support.authority import Authority
from tests.support.cli import Cli, Done
from tests.support.cloud import LocalCloud
from tests.support.peers import Serve
from tests.support.peers import json_answer as peer_answer
from tests.support.planes import BASIC, HEALTHY, NOT_LISTENING, OpenPlanes, Planes
from tests.support.process_peer import HEAD, ProcessPeer
from tests.support.scripted import CUT, SILENT, Answer, Received, Step, answer, json_answer, text_answer
from tests.support.tls_front import tls_front
from vmnest import Sandbox, errors
from vmnest.control.microvms import IdlePolicy

MISSING = text_answer(403, "Request missing authentication", x_aws_proxy_error="UNAUTHORIZED")
REFUSED = text_answer(403, "Token authentication failed")
GONE = answer(502, headers=[("x-aws-proxy-error", "MICROVM_CONNECT_FAILED")])
UNNAMED = answer(502)  # what a suspended MicroVM that does not resume by itself answers, and perhaps a broken exchange


def document(exit_code: int = 0, stdout: bytes = b"") -> dict[str, object]:
    output = base64.b64encode(stdout).decode()
    return {"exit_code": exit_code, "signal": None, "encoding": "base64", "stdout": output, "stderr": ""}


def done(exit_code: int = 0, stdout: bytes = b"") -> Answer:
    return json_answer(200, document(exit_code, stdout))


DONE = done(0, b"ok\n")
END = {"exit_code": 0, "signal": None, "timed_out": False}
NO_PROCESSES = peer_answer(404, {"detail": "Not Found"})


def assert_told(failed: Done, *said: str) -> None:
    """One line that says so and perhaps one with a hint, on standard error; status 125."""
    assert (failed.status, failed.out) == (125, b"")
    assert "Traceback" not in failed.remarks
    lines = failed.remarks.splitlines()
    assert lines[0].startswith("vmnest: ")
    assert len(lines) <= 2
    for each in said:
        assert each in failed.remarks


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_one_token_for_the_agents_port_serves_a_command(planes: OpenPlanes) -> None:
    opened = planes(DONE)
    assert opened.exec("--", "ls").text == "ok\n"
    assert opened.control.calls == ["auth-token"]
    assert opened.control.ports == [[8080]]
    (request,) = opened.data.requests
    assert (request.headers["x-aws-proxy-auth"], request.headers["x-aws-proxy-port"]) == ("token-1", "8080")


def test_another_agent_port_is_the_tokens_port_too(planes: OpenPlanes) -> None:
    opened = planes(DONE)
    assert opened.exec("--", "ls", AGENT_SANDBOX_AGENT_PORT="9999").status == 0
    assert opened.control.ports == [[9999]]
    assert opened.data.requests[0].headers["x-aws-proxy-port"] == "9999"


@pytest.mark.parametrize("refusal", [REFUSED, MISSING, text_answer(403, "")], ids=["wrong", "missing", "expired"])
def test_a_refused_token_is_replaced_once(planes: OpenPlanes, refusal: Answer) -> None:
    opened = planes(refusal, DONE)
    assert opened.exec("--", "ls").text == "ok\n"
    assert opened.control.calls == ["auth-token", "auth-token"]
    assert [each.headers["x-aws-proxy-auth"] for each in opened.data.requests] == ["token-1", "token-2"]


@pytest.mark.parametrize(
    ("refusal", "said"),
    [(REFUSED, "Token authentication failed"), (MISSING, "Request missing authentication")],
    ids=["wrong", "missing"],
)
def test_a_token_that_is_refused_again_is_an_error_with_a_remedy(
    planes: OpenPlanes, refusal: Answer, said: str
) -> None:
    opened = planes(refusal, refusal)
    assert_told(opened.exec("--", "ls"), said, "vmnest ps")
    assert "token-" not in repr(opened.exec("--", "ls").remarks)


def test_a_port_that_the_token_does_not_cover_is_named(planes: OpenPlanes) -> None:
    opened = planes(text_answer(403, "Access to port denied"))
    assert_told(opened.exec("--", "ls"), "port 8080", "AGENT_SANDBOX_AGENT_PORT")
    assert opened.control.calls == ["auth-token"]


def test_when_the_endpoint_is_another_microvms_by_now_the_service_is_asked_for_ours(planes: OpenPlanes) -> None:
    opened = planes(DONE)
    with socket.create_server(("127.0.0.1", 0)) as other:
        thread = threading.Thread(target=refuse_all, args=(other,))
        thread.start()
        write_endpoint(opened, f"http://127.0.0.1:{other.getsockname()[1]}")
        assert opened.exec("--", "ls").text == "ok\n"
        other.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    assert opened.data.url in Path(opened.environ["AGENT_SANDBOX_STATE"]).read_text()


def refuse_all(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            while b"\r\n\r\n" not in connection.recv(65536):
                pass
            connection.sendall(REFUSED.pieces[0].replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))


def write_endpoint(opened: Planes, endpoint: str) -> None:
    state = Path(opened.environ["AGENT_SANDBOX_STATE"])
    state.write_text(state.read_text().replace(opened.data.url, endpoint))


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> Callable[[Planes], Sandbox]:
    def attach(opened: Planes) -> Sandbox:
        for name, value in opened.environ.items():
            monkeypatch.setenv(name, value)
        return Sandbox.attach("web")

    return attach


def test_twenty_threads_whose_token_ends_at_once_mint_one(
    planes: OpenPlanes, sandbox: Callable[[Planes], Sandbox]
) -> None:
    barrier = threading.Barrier(20, timeout=20)

    def judge(request: Received) -> Answer:
        if request.headers["x-aws-proxy-auth"] == "token-1":
            barrier.wait()  # all of them hold the old token
            return REFUSED
        return DONE

    opened = planes(judge, repeat_last=True)
    shared = sandbox(opened)
    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(lambda _: shared.exec("ls").stdout, range(20)))
    assert results == [b"ok\n"] * 20
    assert opened.control.calls == ["auth-token", "auth-token"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # a child of a threaded process is the case here
def test_a_forked_child_and_its_parent_use_connections_of_their_own(
    planes: OpenPlanes, sandbox: Callable[[Planes], Sandbox]
) -> None:
    def tell(request: Received) -> Answer:
        command = request.json()
        assert isinstance(command, dict)
        return done(0, command["command"].encode())

    opened = planes(tell, repeat_last=True)
    shared = sandbox(opened)
    assert shared.exec("before").stdout == b"before"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if all(shared.exec("child").stdout == b"child" for _ in range(20)) else 2
        finally:
            os._exit(status)
    assert all(shared.exec("parent").stdout == b"parent" for _ in range(20))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# -- nobody there, for a while or for good -----------------------------------------------------------------------------


def test_what_a_launch_and_a_resume_show_for_a_moment_is_passed_over(planes: OpenPlanes) -> None:
    opened = planes(NOT_LISTENING, GONE, text_answer(429, ""), NOT_LISTENING, DONE)
    assert opened.exec("--", "ls").text == "ok\n"
    assert "auth-token" not in opened.control.calls[1:]  # never a new token for a 502 or a 429


def test_nobody_listening_is_an_error_when_the_budget_ends(planes: OpenPlanes) -> None:
    opened = planes(NOT_LISTENING, repeat_last=True)
    assert_told(opened.exec("--", "ls", wake=0.3), "port 8080", "APP_CONNECT_FAILED", "does its agent listen")


def test_too_many_requests_are_an_error_when_the_budget_ends(planes: OpenPlanes) -> None:
    opened = planes(text_answer(429, "slow down"), repeat_last=True)
    assert_told(opened.exec("--", "ls", wake=0.3), "429", "slow down")


def test_a_microvm_that_has_ended_is_told_with_the_services_reason(planes: OpenPlanes) -> None:
    opened = planes(GONE)
    opened.control.state = "TERMINATED"
    assert_told(opened.exec("--", "ls"), "TERMINATED")


def test_a_suspended_microvm_is_resumed_by_use_though_its_proxy_gives_no_reason(planes: OpenPlanes) -> None:
    opened = planes(UNNAMED, NOT_LISTENING, HEALTHY, DONE)
    opened.control.state = "SUSPENDED"
    assert opened.exec("--", "ls").text == "ok\n"
    assert opened.control.calls.count("resume") == 1
    assert len({each.headers["vmnest-exec-id"] for each in opened.commands}) == 1


def test_an_agent_that_cannot_tell_a_repeat_is_not_asked_twice(planes: OpenPlanes) -> None:
    opened = planes(UNNAMED, BASIC)
    opened.control.state = "SUSPENDED"
    assert_told(opened.exec("--", "ls"), "cannot reach port 8080", "may have run")
    assert opened.control.state == "RUNNING"  # the next one gets through
    assert len(opened.commands) == 1


def test_a_command_that_did_run_before_the_502_is_not_run_again(planes: OpenPlanes) -> None:
    known = json_answer(409, {"detail": "a command of this id was started before", "code": "already_started"})
    opened = planes(UNNAMED, HEALTHY, known)
    assert_told(opened.exec("--", "ls"), "the command was started, and its answer was lost")


# -- no connection -----------------------------------------------------------------------------------------------------


def test_a_refused_connection_is_told(planes: OpenPlanes, refused_port: int) -> None:
    opened = planes()
    opened.control.endpoint = f"http://127.0.0.1:{refused_port}"
    write_endpoint(opened, opened.control.endpoint)
    assert_told(opened.exec("--", "ls", wake=0.3), f"cannot connect to http://127.0.0.1:{refused_port}", "refused")


def test_a_name_that_does_not_resolve_is_told(planes: OpenPlanes) -> None:
    opened = planes()
    opened.control.endpoint = "0000.lambda-microvm.us-east-1.invalid"
    write_endpoint(opened, opened.control.endpoint)
    failed = opened.exec("--", "ls", wake=0.3)
    assert_told(failed, "cannot connect to https://0000.lambda-microvm.us-east-1.invalid", "does not resolve")


def test_the_record_may_have_an_endpoint_with_or_without_a_scheme(
    planes: OpenPlanes, serve: Serve, authority: Authority
) -> None:
    opened = planes()
    for scheme in ("https://", ""):
        peer = serve(NO_PROCESSES, peer_answer(200, document(0, b"ok\n")), tls=authority.context("127.0.0.1"))
        before = Path(opened.environ["AGENT_SANDBOX_STATE"]).read_text()
        write_endpoint(opened, f"{scheme}127.0.0.1:{peer.port}")
        trusted = opened.exec("--", "ls", AWS_CA_BUNDLE=str(authority.bundle))
        assert (trusted.status, trusted.text, trusted.remarks) == (0, "ok\n", "")
        Path(opened.environ["AGENT_SANDBOX_STATE"]).write_text(before)


def test_whom_to_trust_can_be_said_in_three_ways(
    planes: OpenPlanes, serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    opened = planes()
    peer = serve(*[NO_PROCESSES, peer_answer(200, document(0, b"ok\n"))] * 3, tls=authority.context("127.0.0.1"))
    write_endpoint(opened, peer.url)
    assert_told(opened.exec("--", "ls"), "no trusted TLS connection", "AWS_CA_BUNDLE")
    assert peer.requests == []
    (tmp_path / "config").write_text(f"[profile mine]\nca_bundle = {authority.bundle}\n")
    for environ in (
        {"AWS_CA_BUNDLE": str(authority.bundle)},
        {"AGENT_SANDBOX_VERIFY_TLS": "0"},
        {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_PROFILE": "mine"},
    ):
        trusted = opened.exec("--", "ls", **environ)
        assert (trusted.status, trusted.text, trusted.remarks) == (0, "ok\n", "")


def test_the_end_of_input_arrives_though_tls_lies_between(
    planes: OpenPlanes, authority: Authority, shared_agent: Agent
) -> None:
    opened = planes()
    with tls_front(shared_agent.port, context=authority.context("127.0.0.1")) as url:
        write_endpoint(opened, url)
        trusting = Cli({**opened.environ, "AWS_CA_BUNDLE": str(authority.bundle)})
        told = trusting.shell("printf q | $vmnest exec -i web -- sh -c 'cat; echo end'")
        assert (told.status, told.text, told.remarks) == (0, "qend\n", "")
        counted = trusting.shell("head -c 5000000 /dev/zero | $vmnest exec -i web -- wc -c")
        assert (counted.status, counted.text.strip(), counted.remarks) == (0, "5000000", "")


@pytest.mark.parametrize("wrong", ["name", "expired"])
def test_a_certificate_that_is_wrong_is_refused_with_its_reason(
    planes: OpenPlanes, serve: Serve, authority: Authority, wrong: str
) -> None:
    opened = planes()
    made = authority.context("example.org") if wrong == "name" else authority.context("127.0.0.1", is_expired=True)
    peer = serve(tls=made)
    write_endpoint(opened, peer.url)
    said = {"name": "mismatch", "expired": "expired"}[wrong]
    assert_told(opened.exec("--", "ls", AWS_CA_BUNDLE=str(authority.bundle)), "no trusted TLS connection", said)


def test_an_endpoint_that_speaks_no_tls_is_told(planes: OpenPlanes) -> None:
    opened = planes()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=greet, args=(listener,))
        thread.start()
        write_endpoint(opened, f"https://127.0.0.1:{listener.getsockname()[1]}")
        assert_told(opened.exec("--", "ls"), "no trusted TLS connection", "may not speak TLS")
        thread.join(20)
        assert not thread.is_alive()


def greet(listener: socket.socket) -> None:
    """Say something that is no TLS to the first who comes, and hear them out: a reset would be another failure."""
    sock, _ = listener.accept()
    with sock, contextlib.suppress(ConnectionResetError):
        sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        while sock.recv(4096):
            pass


# -- answers that do not come, or are none -----------------------------------------------------------------------------


def test_an_agent_that_never_answers_is_given_up_after_timeout_and_grace(planes: OpenPlanes) -> None:
    opened = planes(SILENT, SILENT)
    begin = time.monotonic()
    assert_told(opened.exec("--timeout", "0.2", "--", "ls", patience=0.5), "did not answer", "may still be running")
    assert time.monotonic() - begin < 10
    error = opened.exec("--timeout", "0.2", "--json", "--", "ls", patience=0.5).error
    assert (error["code"], error["retryable"]) == ("agent_unreachable", False)
    assert error["details"] == {"outcome": "unknown", "state": "RUNNING"}
    assert len(opened.commands) == 2


@pytest.mark.parametrize(
    ("state", "said"),
    [("SUSPENDED", "was suspended meanwhile"), ("TERMINATING", "has ended meanwhile"), ("RUNNING", "may still be")],
)
def test_a_connection_that_ends_under_a_command_tells_what_became_of_the_sandbox(
    planes: OpenPlanes, state: str, said: str
) -> None:
    opened = planes(CUT)
    opened.control.state = state
    assert_told(opened.exec("--", "ls"), "no answer about 'ls'", said)
    assert opened.control.calls == ["auth-token", "get"]  # it is looked at, and not woken
    assert len(opened.commands) == 1


def test_a_lost_answer_is_told_even_if_the_service_is_lost_as_well(planes: OpenPlanes) -> None:
    opened = planes(Answer(cut=True, before=lambda: setattr(opened.control, "broken", answer(404, "<html>"))))
    assert_told(opened.exec("--", "ls"), "no answer about 'ls'", "may have run")


WHOLE = done(0, b"output\n").pieces[0]
HTTP = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BROKEN: dict[str, Step] = {
    "cut in the status line": Answer([WHOLE[:7]], cut=True),
    "cut in the head": Answer([WHOLE[:30]], cut=True),
    "cut after the head": Answer([WHOLE[: WHOLE.index(b"\r\n\r\n") + 4]], cut=True),
    "cut in the body": Answer([WHOLE[:-10]], cut=True),
    "cut in a chunk": Answer([HTTP + b'Transfer-Encoding: chunked\r\n\r\n40\r\n{"exit_code"'], cut=True),
    "cut before the last chunk": Answer([HTTP + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"], cut=True),
    "binary": Answer([bytes(range(256))], cut=True),
    "another protocol": Answer([b"SSH-2.0-OpenSSH_9.6\r\n"], cut=True),
    "no number": Answer([HTTP + b"Content-Length: many\r\n\r\n{}"], cut=True),
    "two lengths": Answer([HTTP + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"], cut=True),
    "a huge header": Answer([HTTP + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n"], cut=True),
    "headers without end": Answer([HTTP + b"X: y\r\n" * 10_000], cut=True),
    "interim answers without end": Answer([b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100], cut=True),
    "no JSON": answer(200, "<html>hello</html>", kind="text/html"),
    "no object": json_answer(200, [1]),
    "no status": json_answer(200, {"stdout": "", "stderr": ""}),
    "no base64": json_answer(200, {"exit_code": 0, "encoding": "base64", "stdout": "?", "stderr": ""}),
    "nothing": answer(200, ""),
    "a gateway's 504": answer(504, "<html>Gateway Timeout</html>", kind="text/html"),
    "a 500": answer(500, "<html>", kind="text/html"),
}


@pytest.mark.parametrize("step", BROKEN.values(), ids=BROKEN)
def test_a_broken_answer_is_an_error_that_does_not_hide_that_the_command_may_have_run(
    planes: OpenPlanes, step: Step
) -> None:
    opened = planes(step)
    failed = opened.exec("--json", "--", "ls")
    assert failed.status == 125
    assert failed.error["details"]["outcome"] == "unknown"
    assert "may have run" in failed.error["hint"]
    assert len(failed.error["message"]) < 300
    assert len(opened.data.requests) == 1


def test_a_broken_answer_is_told_in_a_line_each(planes: OpenPlanes) -> None:
    opened = planes(BROKEN["binary"], BROKEN["no JSON"], BROKEN["a gateway's 504"])
    for said in ("not HTTP", "is no JSON object", "gave up waiting (504)"):
        assert_told(opened.exec("--", "ls"), said, "may have run")


def test_an_answer_that_drips_is_given_up(planes: OpenPlanes) -> None:
    opened = planes(Answer([WHOLE[:20]], cut=True, drip=WHOLE[20:]))
    assert_told(opened.exec("--timeout", "0.1", "--", "ls", patience=0.4), "the rest of its answer did not come")


def test_what_the_guest_says_cannot_steer_the_terminal_nor_flood_it(planes: OpenPlanes) -> None:
    opened = planes(json_answer(500, {"detail": "\x1b[2J\x07" + "x" * 100_000}), text_answer(400, "\x1b]0;me\x07"))
    for _ in range(2):
        failed = opened.exec("--", "ls")
        assert_told(failed)
        assert "\x1b" not in failed.remarks
        assert len(failed.remarks) < 1000


def test_partial_output_is_handed_out_before_the_loss_is_told(planes: OpenPlanes) -> None:
    head = HTTP + b"Content-Length: 1000\r\n\r\n"
    begun = b'{"exit_code":0,"encoding":"base64","stdout":"' + base64.b64encode(b"first line\n" * 10)
    opened = planes(Answer([head + begun], cut=True))
    failed = opened.exec("--", "ls")
    assert failed.status == 125
    assert failed.text.startswith("first line\n")
    assert "bytes are missing" in failed.remarks


# -- the same from Python ----------------------------------------------------------------------------------------------


def test_every_failure_is_one_of_ours_with_its_cause(planes: OpenPlanes, sandbox: Callable[[Planes], Sandbox]) -> None:
    opened = planes(CUT, BROKEN["binary"], BROKEN["no JSON"])
    attached = sandbox(opened)
    kinds = (errors.AgentUnreachableError, errors.AgentUnreachableError, errors.AgentAnswerError)
    for kind in kinds:
        with pytest.raises(kind) as caught:
            attached.exec("ls", timeout=5)
        assert caught.value.details["outcome"] == "unknown"
    with pytest.raises(errors.VmnestError):
        attached.exec("ls", timeout=5)  # the script is over


def test_files_are_asked_for_again_where_a_command_is_not(
    planes: OpenPlanes, sandbox: Callable[[Planes], Sandbox]
) -> None:
    healthy = json_answer(200, {"status": "ok", "version": "1", "features": ["files"]})
    opened = planes(healthy, UNNAMED, answer(503, "starting"), answer(200, "x", headers=[("ETag", '"1"')]))
    assert sandbox(opened).files.read("/a") == b"x"


@pytest.mark.parametrize("step", [CUT, BROKEN["binary"], BROKEN["no JSON"], BROKEN["cut in the body"]], ids=range(4))
def test_a_file_that_does_not_come_whole_is_an_error(
    planes: OpenPlanes, sandbox: Callable[[Planes], Sandbox], step: Step
) -> None:
    with pytest.raises(errors.VmnestError):
        sandbox(planes(step)).files.read("/a")


# -- a real MicroVM ----------------------------------------------------------------------------------------------------


@pytest.fixture
def real(shared_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Sandbox]:
    """A local sandbox that only a resume wakes."""
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", shared_cloud.folder)
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    policy = IdlePolicy(auto_resume_enabled=False)
    with Sandbox.create("real", local=True, idle_policy=policy) as sandbox:
        yield sandbox


def suspend(cloud: LocalCloud, sandbox: Sandbox) -> None:
    """As somebody else does it, of whom no record knows."""
    cloud.client().suspend_microvm(microvmIdentifier=sandbox.microvm_id)


def test_a_sandbox_that_others_suspended_is_woken_by_use(shared_cloud: LocalCloud, real: Sandbox) -> None:
    suspend(shared_cloud, real)
    assert real.wait("SUSPENDED") == "SUSPENDED"
    stranger = Sandbox.attach("real", real.microvm_id, endpoint=real.endpoint, local=True)
    assert stranger.exec("echo", ["awake"]).stdout == b"awake\n"


def test_a_command_goes_on_where_a_suspension_has_cut_it(shared_cloud: LocalCloud, real: Sandbox) -> None:
    script = "echo before; touch begun; while [ ! -e go ]; do sleep 0.05; done; echo >> runs; echo after; exit 4"
    with ThreadPoolExecutor(2) as pool:
        cut = pool.submit(real.exec, "sh", ["-c", script])
        deadline = time.monotonic() + 20
        while not real.exec("test", ["-e", "begun"]).success:
            assert time.monotonic() < deadline
        suspend(shared_cloud, real)
        assert real.wait("SUSPENDED") == "SUSPENDED"
        with pytest.raises(TimeoutError):
            cut.result(1)
        assert real.refresh() == "SUSPENDED"  # who waits for the command does not wake it
        assert Sandbox.attach("real").exec("touch", ["go"]).success  # a new call does
        result = cut.result(60)
    assert (result.exit_code, result.stdout) == (4, b"before\nafter\n")
    assert real.exec("wc", ["-l", "runs"]).stdout == b"1 runs\n"


def test_a_process_of_which_nobody_knows_any_more_has_no_end(real: Sandbox) -> None:
    process = real.spawn("sleep", ["300"])
    chunks = iter(process)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(next, chunks, None)
        real.terminate()
        with pytest.raises((errors.MicroVMEndedError, errors.AgentUnreachableError)):
            reading.result(60)
    assert process.exit_code is None


# -- an agent with processes -------------------------------------------------------------------------------------------


def test_output_arrives_whole_though_token_connection_and_sandbox_fail_in_turn(
    planes: OpenPlanes, sandbox: Callable[[Planes], Sandbox]
) -> None:
    script = ProcessPeer(("stdout", b"first "), ("stdout", b"second "), ("stdout", b"third"), end=END)
    half = len(HEAD) + len(script.frames(0)) - 90
    opened = planes(script, repeat_last=True, has_processes=True)

    def fall_asleep(received: Received) -> None:
        if len(opened.data.requests) == 4:
            opened.control.state = "SUSPENDED"
            threading.Timer(0.3, setattr, (opened.control, "state", "RUNNING")).start()

    script.before = fall_asleep
    script.answers = [half, REFUSED, half - 20, half - 40, NOT_LISTENING]
    result = sandbox(opened).exec("x")
    assert (result.exit_code, result.stdout) == (0, b"first second third")
    assert len(script.runs) == 1
    assert opened.control.calls.count("resume") == 0
    assert opened.control.calls.count("auth-token") == 2
    assert script.offsets == sorted(script.offsets)


def test_a_restarted_agent_is_told_and_the_command_is_not_run_again(planes: OpenPlanes) -> None:
    script = ProcessPeer(("stdout", b"some output\n"), end=END)
    script.answers = [len(HEAD) + 10]
    script.before = lambda received: script.restart() if received.method == "GET" else None
    opened = planes(script, repeat_last=True, has_processes=True)
    failed = opened.exec("--json", "--", "x")
    assert failed.status == 125
    assert failed.error["code"] == "agent_unreachable"
    assert failed.error["details"]["outcome"] == "unknown"
    assert len(script.runs) == 1
