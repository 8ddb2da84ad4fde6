"""Processes in a sandbox that outlive whoever started them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cloud import LocalCloud, open_cloud, work_in
from tests.support.fronts import LeavingFront, RecordingFront
from vmnest import errors
from vmnest.agent.outputs import ProcessInfo
from vmnest.ops import lifecycle, processes, removal, sandboxes
from vmnest.ops.commands import Command, exec_command
from vmnest.sandbox import Sandbox

WAIT_SECONDS = 10.0


@pytest.fixture(scope="module")
def cloud_with_web() -> Iterator[LocalCloud]:
    with open_cloud() as cloud, pytest.MonkeyPatch.context() as patch:
        work_in(cloud, patch)
        sandboxes.create_sandbox(name="web")
        yield cloud
        assert removal.remove_sandbox(name="web")["was_there"] is True


@pytest.fixture(autouse=True)
def web(cloud_with_web: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a sandbox named web."""
    work_in(cloud_with_web, monkeypatch)


def start(line: str, **options: Any) -> str:
    return str(processes.start_job(name="web", command=Command(["sh", "-c", line], **options))["job"])


def look(job: str, **options: Any) -> dict[str, Any]:
    listed: Any = processes.list_jobs(name="web", **options)["jobs"]
    (found,) = [each for each in listed if each["job"] == job]
    return dict(found)


def await_end(job: str) -> dict[str, Any]:
    Sandbox.get("web").attach_process(job).wait(timeout=WAIT_SECONDS)
    return look(job)


def attach(job: str, **options: Any) -> tuple[Any, bytes]:
    front = RecordingFront()
    return processes.attach_job(name="web", job=job, front=front, **options), front.outputs["stdout"]


def test_no_command_is_a_usage_error() -> None:
    with pytest.raises(errors.UsageError, match="no command"):
        processes.start_job(name="nobody", command=Command([]))


def test_a_job_runs_when_nobody_watches_and_tells_all_later() -> None:
    job = start("echo a; echo b; exit 9")
    ended = await_end(job)
    assert (ended["state"], ended["exit_code"], ended["signal"], ended["offset"]) == ("ended", 9, None, 4)
    assert (ended["background"], ended["terminal"], ended["stdin"]) == (True, False, "none")
    assert ended["command"] == ["sh", "-c", "echo a; echo b; exit 9"]
    assert ended["ended_at"] >= ended["started_at"]
    data, seen = attach(job)
    assert (data["exit_code"], seen) == (9, b"a\nb\n")
    assert json.loads(json.dumps([data, ended])) == [data, ended]


def test_two_may_attach_and_each_from_where_it_likes() -> None:
    job = start("echo abc")
    assert attach(job)[1] == b"abc\n"
    assert attach(job, offset=2)[1] == b"c\n"
    with pytest.raises(errors.VmnestError):
        attach(job, offset=100)


def test_a_job_outlives_a_front_that_fails() -> None:
    job = start("echo a; exec sleep 60")

    def fail(data: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        processes.attach_job(name="web", job=job, front=RecordingFront(fail))
    assert processes.attach_job(name="web", job=job, front=LeavingFront()) == {"job": job}
    assert look(job)["state"] == "running"
    assert processes.kill_job(name="web", job=job) == {"job": job, "signal": "TERM", "delivered": True}
    assert await_end(job)["signal"] == "SIGTERM"
    assert processes.kill_job(name="web", job=job)["delivered"] is False


@pytest.mark.parametrize(("signal", "name"), [("INT", "SIGINT"), ("SIGUSR1", "SIGUSR1"), (9, "SIGKILL")])
def test_any_signal_can_be_sent(signal: str | int, name: str) -> None:
    job = start("exec sleep 60")
    processes.kill_job(name="web", job=job, signal=signal)
    assert await_end(job)["signal"] == name


def test_a_job_that_is_not_there_is_not_found() -> None:
    for call in (processes.kill_job, lambda **given: processes.attach_job(front=RecordingFront(), **given)):
        with pytest.raises(errors.ProcessNotFoundError) as caught:
            call(name="web", job="nobody")
        assert caught.value.message == "there is no job nobody in web"
        assert caught.value.hint == "All that can be had: vmnest jobs --all web"


def test_the_beginning_of_an_id_will_do_if_no_other_has_it() -> None:
    spawn = Sandbox.get("web").spawn
    for name in ("abc1", "abc2", "ab"):
        spawn("sleep", ["60"], id=name, retain="drop").detach()
    for given, job in (("abc1", "abc1"), ("ab", "ab"), ("abc2", "abc2")):
        assert processes.kill_job(name="web", job=given)["job"] == job
    with pytest.raises(errors.UsageError, match="which job is meant by abc: abc1 or abc2"):
        processes.kill_job(name="web", job="abc")
    job = start("echo a")
    assert attach(job[:-1])[1] == b"a\n"
    assert processes.attach_job(name="web", job=job[:-1], front=LeavingFront()) == {"job": job}
    assert processes.kill_job(name="web", job=job[:-1])["job"] == job


def test_what_was_waited_for_is_listed_while_it_runs_or_when_all_is_asked_for() -> None:
    front = LeavingFront()
    exec_command(name="web", command=Command(["sleep", "60"]), front=front)
    assert front.process is not None
    job = front.process.id
    assert look(job)["background"] is False
    processes.kill_job(name="web", job=job, signal="KILL")
    Sandbox.get("web").attach_process(job).wait(timeout=WAIT_SECONDS)
    assert look(job, everything=True)["signal"] == "SIGKILL"
    listed: Any = processes.list_jobs(name="web")["jobs"]
    assert job not in {each["job"] for each in listed}


def test_a_timeout_of_a_job_ends_it() -> None:
    assert await_end(start("exec sleep 60", timeout=0.2))["timed_out"] is True


def test_a_suspended_sandbox_is_not_woken_if_it_must_not() -> None:
    job = start("exec sleep 60")
    lifecycle.stop_sandbox(name="web")
    with pytest.raises(errors.SandboxSuspendedError):
        processes.list_jobs(name="web", resume=False)
    with pytest.raises(errors.SandboxSuspendedError):
        processes.kill_job(name="web", job=job, resume=False)
    assert sandboxes.show_sandbox(name="web")["state"] == "SUSPENDED"
    assert look(job)["state"] == "running"  # this wakes it
    assert processes.kill_job(name="web", job=job)["delivered"] is True


def test_an_end_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    job = start("exec sleep 60")
    began = time.monotonic()
    processes.end(Sandbox.get("web"), job, timeout=0.0)
    assert time.monotonic() - began < WAIT_SECONDS / 2
    assert await_end(job)["signal"] in {"SIGTERM", "SIGKILL"}


def test_nothing_of_an_end_is_raised() -> None:
    processes.end(Sandbox.get("web"), "nobody")


def test_what_a_guest_does_not_tell_is_null() -> None:
    info = ProcessInfo(
        id="1", command=("a", "b c"), pid=None, is_running=True, exit_code=None, signal=None, timed_out=False,
        started_at=None, ended_at=1e300, is_pty=True, stdin="open", retain="block", offset=5, oldest=2,
    )  # fmt: skip
    assert processes.describe_process(info) == {
        "job": "1", "state": "running", "exit_code": None, "signal": None, "timed_out": False, "command": ["a", "b c"],
        "pid": None, "started_at": None, "ended_at": None, "background": False, "terminal": True, "stdin": "open",
        "offset": 5, "oldest": 2,
    }  # fmt: skip
