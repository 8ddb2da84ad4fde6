"""Lifecycle hooks: any method, defined answers for any body, and only the first run counts."""

from __future__ import annotations

import io
import json
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from guest.agentd import hooks, identity, journal, state
from guest.agentd.bodies import Body
from guest.agentd.heads import parse
from guest.agentd.server import Request
from tests.support.agent import HOOK_PREFIX, Agent

NAMES = ("ready", "validate", "run", "resume", "suspend", "terminate")
LAUNCH = json.dumps({"microvmId": "microvm-1", "runHookPayload": "payload"}).encode()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["POST", "GET", "PUT", "HEAD"])
def test_every_hook_answers_200_to_any_method(shared_agent: Agent, name: str, method: str) -> None:
    reply = shared_agent.hook(name, method=method)
    assert (reply.status, reply.body) == (200, b"")
    shared_agent.hook("resume")  # after a suspend no command begins, that of validate included


@pytest.mark.parametrize(
    "path", ["/", HOOK_PREFIX, HOOK_PREFIX + "reboot", HOOK_PREFIX + "run/", "/healthz", "/v1/exec"]
)
def test_nothing_else_is_served_on_the_hook_port(shared_agent: Agent, path: str) -> None:
    reply = shared_agent.request("POST", path, port=shared_agent.hook_port)
    assert (reply.status, reply.json()["code"]) == (404, "no_such_route")


@pytest.mark.parametrize("name", NAMES)
def test_hooks_are_not_served_on_the_agent_port(shared_agent: Agent, name: str) -> None:
    assert shared_agent.request("POST", HOOK_PREFIX + name).status == 404


def test_the_first_run_makes_an_identity_and_later_ones_change_nothing(agent: Agent) -> None:
    assert not agent.identity_path.exists()
    assert agent.hook("run", LAUNCH).status == 200
    first = agent.identity_path.read_text()
    assert len(first) == 32
    # From inside the sandbox, as code there would forge it.
    script = (
        "import http.client; c = http.client.HTTPConnection('127.0.0.1', PORT);"
        " c.request('POST', 'PATH', '{\"runHookPayload\": \"forged\"}'); print(c.getresponse().status)"
    )
    script = script.replace("PORT", str(agent.hook_port)).replace("PATH", HOOK_PREFIX + "run")
    assert agent.exec("python3", "-c", script).stdout == b"200\n"
    assert agent.hook("run", LAUNCH).status == 200
    assert agent.hook("resume").status == 200
    assert agent.identity_path.read_text() == first


@pytest.mark.parametrize("body", [b"", b"{bad", b"\xff\x00", b"[]", b"x" * 100_000], ids=range(5))
def test_a_malformed_run_is_a_run(agent: Agent, body: bytes) -> None:
    assert agent.hook("run", body).status == 200
    first = agent.identity_path.read_text()
    assert agent.hook("run", LAUNCH).status == 200
    assert agent.identity_path.read_text() == first


def test_a_body_above_the_limit_is_a_413_and_no_run(agent: Agent) -> None:
    assert agent.hook("run", b"x" * 300_000).status == 413
    assert not agent.identity_path.exists()
    assert agent.hook("run", LAUNCH).status == 200


def test_suspend_waits_for_a_command_in_flight(agent: Agent) -> None:
    done: list[float] = []

    def run() -> None:
        assert agent.shell("sleep 0.5").exit_code == 0
        done.append(time.monotonic())

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: has_child(agent))
    assert agent.hook("suspend").status == 200
    suspended = time.monotonic()
    thread.join()
    assert done[0] - suspended < 0.2


def test_suspend_does_not_wait_for_what_was_answered(agent: Agent) -> None:
    agent.exec("true")
    agent.exec("no-such-program")
    agent.exec("sleep", "5", timeout=0.1)
    begin = time.monotonic()
    assert agent.hook("suspend").status == 200
    assert time.monotonic() - begin < 2


def test_suspend_waits_no_longer_than_it_may(start_agent: Callable[..., Agent]) -> None:
    agent = start_agent(environ={"AGENTD_SUSPEND_DRAIN_SECONDS": "0.2"})
    thread = threading.Thread(target=agent.shell, args=("sleep 2",))
    thread.start()
    wait_for(lambda: has_child(agent))
    begin = time.monotonic()
    assert agent.hook("suspend").status == 200
    assert 0.2 <= time.monotonic() - begin < 1.5
    thread.join()  # the command goes on
    assert "in flight" in agent.log()


def test_between_suspend_and_resume_no_command_begins_and_everything_else_is_answered(agent: Agent) -> None:
    agent.exec("true")
    assert agent.hook("suspend").status == 200
    refused = agent.exec("touch", "begun")
    assert (refused.status, refused.code) == (503, "suspending")
    assert agent.request("GET", "/healthz").status == 200
    assert agent.post("/v1/fs/write", {"path": "f", "content": "", "encoding": "base64"}).status == 200
    assert agent.post("/v1/fs/read", {"path": "f"}).status == 200
    assert agent.hook("resume").status == 200
    assert agent.exec("ls").stdout == b"f\n"


def test_while_suspend_waits_no_command_begins_either(agent: Agent) -> None:
    os.mkfifo(agent.workdir.parent / "gate")
    command = threading.Thread(target=agent.shell, args=("read x < ../gate",))
    command.start()
    wait_for(lambda: has_child(agent))
    suspend = threading.Thread(target=agent.hook, args=("suspend",))
    suspend.start()
    wait_for(lambda: agent.exec("true").code == "suspending")
    (agent.workdir.parent / "gate").write_text("go\n")
    command.join()
    suspend.join()
    assert agent.log() == ""


def test_a_resume_parts_the_pseudo_random_numbers_of_clones(capsys: pytest.CaptureFixture[str]) -> None:
    subject = make_hooks(state.State())
    drawn = []
    for _ in range(2):
        random.seed(1)  # as two clones of one snapshot
        assert call(subject, "resume") == 200
        drawn.append(random.random())
    assert drawn[0] != drawn[1]


def test_the_other_hooks_answer_while_suspend_waits(agent: Agent) -> None:
    command = threading.Thread(target=agent.shell, args=("sleep 1",))
    command.start()
    wait_for(lambda: has_child(agent))
    suspend = threading.Thread(target=agent.hook, args=("suspend",))
    suspend.start()
    begin = time.monotonic()
    assert agent.hook("ready").status == 200
    assert time.monotonic() - begin < 0.9
    command.join()
    suspend.join()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_child(agent: Agent) -> bool:
    pid = agent.process.pid
    return any(path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/children"))


# -- without a process


def make_hooks(agent_state: state.State, *, agent_port: int = 1, events: journal.Events | None = None) -> hooks.Hooks:
    return hooks.Hooks(
        agent_state,
        identity=identity.Identity("/nowhere/identity"),
        drain_seconds=0.0,
        agent_address=("127.0.0.1", agent_port),
        events=events,
    )


def call(subject: hooks.Hooks, name: str) -> int:
    head = parse([f"POST {HOOK_PREFIX}{name} HTTP/1.1".encode()])
    with socket.socket() as connection:
        body = Body(io.BytesIO(), head, invite=lambda: None)
        return subject.respond(Request(head, body=body, connection=connection)).status


def test_ready_is_503_until_the_agent_serves() -> None:
    agent_state = state.State()
    subject = make_hooks(agent_state)
    assert call(subject, "ready") == 503
    agent_state.serving.set()
    assert call(subject, "ready") == 200


def test_each_answer_is_told_but_for_a_refusal_that_repeats_itself() -> None:
    lines: list[str] = []
    agent_state = state.State()
    subject = make_hooks(agent_state, events=journal.Events(write=lines.append))
    for name in ("ready", "ready", "ready", "resume", "resume"):
        call(subject, name)
    agent_state.serving.set()
    call(subject, "ready")
    told = [re.sub(r"^.*agentd: | after \d+\.\d{3} s\n$", "", line) for line in lines]
    assert told == ["hook ready: 503", "hook resume: 200", "hook resume: 200", "hook ready: 200"]


def test_validate_runs_a_command_and_leaves_none_behind(agent: Agent) -> None:
    for _ in range(2):
        assert agent.hook("validate").status == 200
    assert agent.request("GET", "/v1/processes").json() == {"processes": []}


def test_validate_is_503_while_no_command_may_begin(agent: Agent) -> None:
    agent.hook("suspend")
    assert agent.hook("validate").status == 503
    assert '"code":"suspending"' in agent.log()


def test_validate_is_503_when_no_command_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert call(make_hooks(state.State(), agent_port=unused.getsockname()[1]), "validate") == 503
    assert "validate: " in capsys.readouterr().err
