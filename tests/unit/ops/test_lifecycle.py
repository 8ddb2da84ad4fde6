"""Stop, start and wait, in a local cloud."""

from __future__ import annotations

import pytest

from tests.support.cloud import LocalCloud
from vmnest import errors, registry
from vmnest.ops import commands, lifecycle, sandboxes


@pytest.fixture
def here(local_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> LocalCloud:
    """This process works with a local cloud of the test's own, which has one sandbox."""
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", local_cloud.folder)
    monkeypatch.setenv("AGENT_SANDBOX_STATE", f"{local_cloud.folder}/state.json")
    monkeypatch.setenv("AGENT_SANDBOX_TARGET", "local")
    sandboxes.create_sandbox(name="web")
    return local_cloud


def exec_line(line: str) -> dict[str, object]:
    """Run a line of shell in it."""
    return commands.exec_command(name="web", command=commands.Command([line], shell=True))


def test_what_is_stopped_is_marked_and_goes_on_where_it_was(here: LocalCloud) -> None:
    exec_line("echo kept > /work/file; sleep 999 & echo $! > /work/pid")
    stopped = lifecycle.stop_sandbox(name="web")
    assert (stopped["state"], stopped["local_details"]) != ("RUNNING", None)
    assert stopped["stopped_at"] is not None
    assert lifecycle.stop_sandbox(name="web")["state"] == "SUSPENDED"
    with pytest.raises(errors.SandboxSuspendedError):
        commands.exec_command(name="web", command=commands.Command(["true"]), resume=False)
    assert sandboxes.show_sandbox(name="web")["state"] == "SUSPENDED"
    started = lifecycle.start_sandbox(name="web")
    assert (started["state"], started["stopped_at"]) == ("RUNNING", None)
    assert lifecycle.start_sandbox(name="web")["state"] == "RUNNING"
    assert str(exec_line("cat /work/file /work/pid")["stdout"]).startswith("kept\n")
    assert exec_line("kill -0 $(cat /work/pid)")["exit_code"] == 0


def test_its_use_starts_what_is_stopped(here: LocalCloud) -> None:
    lifecycle.stop_sandbox(name="web")
    assert commands.exec_command(name="web", command=commands.Command(["echo", "hi"]))["stdout"] == "hi\n"
    shown = sandboxes.show_sandbox(name="web")
    assert (shown["state"], shown["stopped_at"]) == ("RUNNING", None)


def test_to_wait_is_to_be_told_of_a_state(here: LocalCloud) -> None:
    assert lifecycle.wait_for_sandbox(name="web", states=["RUNNING"])["state"] == "RUNNING"
    lifecycle.stop_sandbox(name="web")
    assert lifecycle.wait_for_sandbox(name="web", states=["RUNNING", "SUSPENDED"])["state"] == "SUSPENDED"
    with pytest.raises(errors.WaitTimeoutError):
        lifecycle.wait_for_sandbox(name="web", timeout=0.2)
    with pytest.raises(errors.UsageError, match="no state"):
        lifecycle.wait_for_sandbox(name="web", states=["BOGUS"])
    record = registry.open_default().require("web")
    here.client().terminate_microvm(microvmIdentifier=record.microvm_id)
    ended = lifecycle.wait_for_sandbox(name="web", timeout=20)
    assert (ended["state"], ended["name"]) == ("TERMINATED", "web")
    for change in (lifecycle.stop_sandbox, lifecycle.start_sandbox):
        with pytest.raises(errors.MicroVMEndedError):
            change(name="web")


def test_what_is_not_recorded_is_not_found(here: LocalCloud) -> None:
    for change in (lifecycle.stop_sandbox, lifecycle.start_sandbox, lifecycle.wait_for_sandbox):
        with pytest.raises(errors.SandboxNotFoundError):
            change(name="nobody")
        with pytest.raises(errors.SandboxNotFoundError, match="on this machine"):
            change(name="web", local=False)
