"""Commands in sandboxes: what the verbs make of a result."""

from __future__ import annotations

import json

import pytest

from tests.support.cloud import LocalCloud
from vmnest import errors
from vmnest.agent.results import ExecResult
from vmnest.ops import commands, sandboxes


@pytest.fixture
def here(local_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> LocalCloud:
    """This process works with a local cloud of the test's own."""
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", local_cloud.folder)
    monkeypatch.setenv("AGENT_SANDBOX_STATE", f"{local_cloud.folder}/state.json")
    monkeypatch.setenv("AGENT_SANDBOX_TARGET", "local")
    return local_cloud


def test_text_is_text_and_bytes_are_base64() -> None:
    data = commands.describe(ExecResult(137, "naïve".encode(), b"\xff\0", signal="SIGKILL", timed_out=True))
    assert data == {
        "exit_code": 137,
        "signal": "SIGKILL",
        "timed_out": True,
        "truncated": False,
        "encoding": {"stdout": "utf-8", "stderr": "base64"},
        "stdout": "naïve",
        "stderr": "/wA=",
    }
    assert json.loads(json.dumps(data)) == data


@pytest.mark.parametrize("words", [[], [""]], ids=["none", "empty"])
def test_no_command_is_a_usage_error(words: list[str]) -> None:
    with pytest.raises(errors.UsageError, match="no command"):
        commands.run_command(words=words)


def test_a_command_runs_in_a_sandbox_of_its_own_that_is_gone_afterwards(here: LocalCloud) -> None:
    ready: list[bool] = []
    outs: list[bytes] = []
    errs: list[bytes] = []
    data = commands.run_command(
        words=["echo a; echo b >&2;", "pwd; exit 4"],
        shell=True,
        cwd="/tmp",
        on_ready=lambda: ready.append(True),
        on_stdout=outs.append,
        on_stderr=errs.append,
    )
    assert (data["exit_code"], data["stdout"], b"".join(outs), b"".join(errs)) == (4, "", b"a\n/tmp\n", b"b\n")
    assert ready == [True]
    assert sandboxes.list_sandboxes() == {"sandboxes": []}


def test_it_is_gone_after_an_error_too(here: LocalCloud) -> None:
    with pytest.raises(errors.CommandNotFoundError):
        commands.run_command(words=["no-such-program"])

    def fail(data: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        commands.run_command(words=["echo", "a"], on_stdout=fail)
    assert sandboxes.list_sandboxes() == {"sandboxes": []}
    items = here.client().list_microvms()["items"]
    assert {item["state"] for item in items} <= {"TERMINATING", "TERMINATED"}


def test_a_command_that_was_ended_is_a_result(here: LocalCloud) -> None:
    sandboxes.create_sandbox(name="web")
    data = commands.exec_command(name="web", words=["sh", "-c", "echo a; sleep 9"], timeout=0.5)
    assert (data["timed_out"], data["stdout"], data["signal"]) == (True, "a\n", "SIGTERM")
    data = commands.exec_command(name="web", words=["printenv", "X"], env={"X": "a=b"})
    assert data["stdout"] == "a=b\n"
    with pytest.raises(errors.SandboxNotFoundError, match="that one is on this machine"):
        commands.exec_command(name="web", words=["true"], local=False)
    assert sandboxes.remove_sandbox(name="web")["was_there"] is True
