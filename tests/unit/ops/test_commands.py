"""Commands in sandboxes: what the verbs make of a result."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cloud import LocalCloud, open_cloud, work_in
from tests.support.fronts import LeavingFront, RecordingFront
from vmnest import errors
from vmnest.agent.results import ExecResult, Missing
from vmnest.ops import commands, inventory, lifecycle, processes, removal, sandboxes
from vmnest.sandbox import Sandbox


@pytest.fixture
def here(local_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> LocalCloud:
    """This process works with a local cloud of the test's own."""
    work_in(local_cloud, monkeypatch)
    return local_cloud


def test_text_is_text_and_bytes_are_base64() -> None:
    data = commands.describe(ExecResult(137, "naïve".encode(), b"\xff\0", signal="SIGKILL", timed_out=True))
    assert data == {
        "exit_code": 137,
        "signal": "SIGKILL",
        "timed_out": True,
        "truncated": False,
        "encoding": {"stdout": "utf-8", "stderr": "base64"},
        "missing": {"stdout": None, "stderr": None, "either": 0},
        "stdout": "naïve",
        "stderr": "/wA=",
    }
    assert json.loads(json.dumps(data)) == data


def test_what_is_missing_in_the_middle_is_counted_and_text_stays_text() -> None:
    whole = "日本語".encode()
    kept = whole[:4] + whole[-4:]  # cut within two characters
    data = commands.describe(ExecResult(0, kept, b"\xff\xff", truncated=True, stdout_missing=Missing(4, 100)))
    assert (data["stdout"], data["encoding"]) == ("日語", {"stdout": "utf-8", "stderr": "base64"})
    assert data["missing"] == {"stdout": {"position": 3, "bytes": 102}, "stderr": None, "either": 0}
    data = commands.describe(ExecResult(0, b"", b"\xff\xff", truncated=True, stderr_missing=Missing(1, 100)))
    assert data["missing"] == {"stdout": None, "stderr": {"position": 1, "bytes": 100}, "either": 0}
    assert base64.b64decode(str(data["stderr"])) == b"\xff\xff"


@pytest.mark.parametrize("words", [[], [""]], ids=["none", "empty"])
def test_no_command_is_a_usage_error(words: list[str]) -> None:
    with pytest.raises(errors.UsageError, match="no command"):
        commands.run_command(command=commands.Command(words))
    with pytest.raises(errors.UsageError, match="no command"):
        commands.exec_command(name="nobody", command=commands.Command(words))


def test_no_representation_shows_a_secret() -> None:
    assert "hunter2" not in repr(commands.Command(["printenv"], env={"TOKEN": "hunter2"}))


# -- run ---------------------------------------------------------------------------------------------------------------


def test_a_command_runs_in_a_sandbox_of_its_own_that_is_gone_afterwards(here: LocalCloud) -> None:
    ready: list[bool] = []
    front = RecordingFront()
    command = commands.Command(["echo a; echo b >&2;", "pwd; exit 4"], shell=True, cwd="/tmp")
    data = commands.run_command(command=command, on_ready=lambda: ready.append(True), front=front)
    assert (data["exit_code"], data["stdout"], front.outputs) == (4, "", {"stdout": b"a\n/tmp\n", "stderr": b"b\n"})
    assert ready == [True]
    assert inventory.list_sandboxes() == {"sandboxes": []}


def test_it_is_gone_after_an_error_too(here: LocalCloud) -> None:
    with pytest.raises(errors.CommandNotFoundError):
        commands.run_command(command=commands.Command(["no-such-program"]))

    def fail(data: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        commands.run_command(command=commands.Command(["echo", "a"]), front=RecordingFront(fail))
    assert inventory.list_sandboxes() == {"sandboxes": []}
    items = here.client().list_microvms()["items"]
    assert {item["state"] for item in items} <= {"TERMINATING", "TERMINATED"}


def test_that_it_ended_by_itself_is_told_without_a_name_that_is_gone_too(here: LocalCloud) -> None:
    def end() -> None:
        for item in here.client().list_microvms()["items"]:
            here.client().terminate_microvm(microvmIdentifier=item["microvmId"])

    with pytest.raises(errors.MicroVMEndedError) as caught:
        commands.run_command(command=commands.Command(["true"]), on_ready=end)
    assert caught.value.hint == "Make a new sandbox."


# -- exec --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cloud_with_web() -> Iterator[LocalCloud]:
    with open_cloud() as cloud, pytest.MonkeyPatch.context() as patch:
        work_in(cloud, patch)
        sandboxes.create_sandbox(name="web")
        yield cloud
        assert removal.remove_sandbox(name="web")["was_there"] is True


@pytest.fixture
def web(cloud_with_web: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> LocalCloud:
    """There is a sandbox named web."""
    work_in(cloud_with_web, monkeypatch)
    return cloud_with_web


def exec_web(words: list[str], *, front: commands.Front | None = None, **options: Any) -> dict[str, Any]:
    return commands.exec_command(name="web", command=commands.Command(words, **options), front=front)


def test_a_command_that_was_ended_is_a_result(web: LocalCloud) -> None:
    data = exec_web(["sh", "-c", "echo a; sleep 9"], timeout=0.5)
    assert (data["timed_out"], data["stdout"], data["signal"]) == (True, "a\n", "SIGTERM")
    front = RecordingFront()
    data = exec_web(["sh", "-c", "echo a; sleep 9"], timeout=0.5, front=front)
    assert (data["timed_out"], front.outputs["stdout"], data["signal"]) == (True, b"a\n", "SIGTERM")


def test_what_is_asked_for_is_what_the_command_gets(web: LocalCloud) -> None:
    options: dict[str, Any] = {"env": {"X": "a=b"}, "cwd": "/tmp", "rlimits": {"nofile": (64, 128)}}
    data = exec_web(["printenv X; pwd; ulimit -Sn; ulimit -Hn"], shell=True, **options)
    assert data["stdout"] == "a=b\n/tmp\n64\n128\n"
    front = RecordingFront()
    exec_web(
        ["sh", "-c", "printenv X; pwd; ulimit -Sn; test -t 1 && stty size"], front=front, terminal=(77, 33), **options
    )
    assert front.outputs["stdout"] == b"a=b\r\n/tmp\r\n64\r\n33 77\r\n"


def test_a_name_of_the_other_target_is_not_found(web: LocalCloud) -> None:
    with pytest.raises(errors.SandboxNotFoundError, match="that one is on this machine"):
        commands.exec_command(name="web", command=commands.Command(["true"]), local=False)


def test_output_beyond_the_limit_keeps_its_beginning_and_its_end(web: LocalCloud) -> None:
    data = exec_web(["seq", "1000"], output_limit=20)
    assert data["truncated"] is True
    assert data["stdout"].startswith("1\n2\n")
    assert data["stdout"].endswith("999\n1000\n")
    assert data["missing"]["stdout"] == {"position": 10, "bytes": 3893 - 20}


def is_running(front: RecordingFront) -> bool:
    assert front.process is not None
    process = Sandbox.get("web").attach_process(front.process.id)
    return process.poll() is None


def await_end(front: RecordingFront) -> str | None:
    """The signal that ended it."""
    assert front.process is not None
    process = Sandbox.get("web").attach_process(front.process.id)
    process.wait(timeout=10)
    return process.signal_name


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BrokenPipeError(), errors.OutputError("full")], ids=repr)
def test_a_command_whose_front_fails_is_ended(web: LocalCloud, error: BaseException) -> None:
    def fail(data: bytes) -> None:
        raise error

    front = RecordingFront(fail)
    with pytest.raises(type(error)):
        exec_web(["sh", "-c", "echo a; exec sleep 60"], front=front)
    assert await_end(front) == "SIGTERM"


def test_a_command_that_ignores_sigterm_is_ended_all_the_same(web: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.2)

    def fail(data: bytes) -> None:
        raise KeyboardInterrupt

    front = RecordingFront(fail)
    with pytest.raises(KeyboardInterrupt):
        exec_web(["sh", "-c", "trap '' TERM; echo a; while :; do sleep 0.1; done"], front=front)
    assert await_end(front) == "SIGKILL"


def test_a_command_in_a_suspended_sandbox_is_left_there_and_the_sandbox_sleeps_on(web: LocalCloud) -> None:
    def suspend(data: bytes) -> None:
        lifecycle.stop_sandbox(name="web")
        raise KeyboardInterrupt

    front = RecordingFront(suspend)
    with pytest.raises(KeyboardInterrupt):
        exec_web(["sh", "-c", "echo a; sleep 60"], front=front)
    assert sandboxes.show_sandbox(name="web")["state"] == "SUSPENDED"
    lifecycle.start_sandbox(name="web")
    assert is_running(front)
    assert front.process is not None
    assert processes.kill_job(name="web", job=front.process.id, signal="KILL")["delivered"] is True


def test_a_front_may_leave_a_command_running(web: LocalCloud) -> None:
    front = LeavingFront()
    data = exec_web(["sleep", "60"], front=front)
    assert front.process is not None
    assert data == {"job": front.process.id}
    assert is_running(front)
    processes.kill_job(name="web", job=front.process.id, signal="KILL")
