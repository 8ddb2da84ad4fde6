"""Suspending, resuming and waiting, while states pass."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.fake_control import ARN, FakeControl, FakePlace
from tests.support.scripted import ScriptedServer, json_answer
from vmnest import errors, registry
from vmnest.control.microvms import IdlePolicy, RunSpec
from vmnest.deadline import NEVER, Deadline
from vmnest.sandbox import life
from vmnest.sandbox.link import Link

HEALTHY = json_answer(200, {"status": "ok", "version": "1", "features": []})


class Setting:
    """A MicroVM that runs and is recorded, a link to it, and time that passes only when somebody waits."""

    def __init__(self, url: str, path: Path, clock: FakeClock) -> None:
        self.control = FakeControl(url)
        self.microvms = self.control.microvms
        self.records = registry.Registry(str(path / "state.json"))
        self.clock = clock
        microvm = self.microvms.run(RunSpec(ARN, "t"), deadline=NEVER)
        self.microvms.change(microvm.microvm_id, state="RUNNING")
        self.microvms.calls.clear()
        self.records.put(
            registry.Record("demo", microvm_id=microvm.microvm_id, endpoint=url, client_token="t", created_at=1.0)
        )
        self.link = self.another()

    def another(self, **changes: Any) -> Link:
        """A link that another process has."""
        place: Any = FakePlace(self.control)
        record = self.records.require("demo").replace(**changes)
        return Link(record, place=place, records=self.records, verify_tls=None, clock=self.clock)

    def deadline(self, seconds: float = 60) -> Deadline:
        return Deadline(seconds, clock=self.clock)

    @property
    def record(self) -> registry.Record:
        return self.records.require("demo")


@pytest.fixture
def setting(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Setting]:
    with ScriptedServer(HEALTHY, repeat_last=True) as server:
        yield Setting(server.url, tmp_path, fake_clock)


def conflict() -> errors.ConflictError:
    return errors.ConflictError("not now", operation="X", status=409)


def refusal() -> errors.ValidationError:
    return errors.ValidationError("its state cannot be changed", operation="X", status=400)


# -- suspending --------------------------------------------------------------------------------------------------------


def test_a_suspend_is_marked_as_deliberate(setting: Setting) -> None:
    life.suspend(setting.link, deadline=setting.deadline())
    assert setting.link.state == "SUSPENDED"
    assert (setting.record.state_hint, setting.record.stopped_at) == ("SUSPENDED", setting.clock.time())
    assert setting.link.record == setting.record


def test_the_mark_is_there_before_the_call_for_whoever_would_wake_it_up(setting: Setting) -> None:
    seen: list[registry.Record] = []
    suspend, other = setting.microvms.suspend, setting.another()

    def look_and_suspend(microvm_id: str, *, deadline: Deadline) -> None:
        other.catch_up()
        seen.append(other.record)
        suspend(microvm_id, deadline=deadline)

    setting.microvms.suspend = look_and_suspend  # type: ignore[method-assign]
    life.suspend(setting.link, deadline=setting.deadline())
    assert [(one.stopped_at, one.state_hint) for one in seen] == [(setting.record.stopped_at, None)]
    other.catch_up()
    assert other.state == "SUSPENDED"


@pytest.mark.parametrize("before", [None, 5.0])
def test_a_suspend_that_is_not_taken_leaves_the_mark_as_it_was(setting: Setting, before: float | None) -> None:
    setting.link.note(stopped_at=before)
    setting.microvms.failures["suspend"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        life.suspend(setting.link, deadline=setting.deadline())
    assert setting.record.stopped_at == before


def test_a_suspend_of_what_was_idle_already_marks_it_too(setting: Setting) -> None:
    setting.microvms.change("microvm-1", state="SUSPENDED")
    life.suspend(setting.link, deadline=setting.deadline())
    assert setting.record.stopped_at is not None


def test_what_is_pending_is_waited_for_before_it_is_suspended(setting: Setting) -> None:
    setting.microvms.upcoming = ["PENDING", "PENDING", "RUNNING"]
    life.suspend(setting.link, deadline=setting.deadline())
    assert setting.microvms.calls == ["get", "get", "get", "suspend", "get"]


def test_what_is_known_to_run_is_suspended_without_a_look(setting: Setting) -> None:
    setting.link.state = "RUNNING"
    life.suspend(setting.link, deadline=setting.deadline())
    assert setting.microvms.calls == ["suspend", "get"]


@pytest.mark.parametrize("verb", [life.suspend, life.resume])
@pytest.mark.parametrize("state", ["PENDING", "SUSPENDING"])
@pytest.mark.parametrize("error", [conflict, refusal])
def test_a_call_that_is_refused_while_the_state_passes_is_made_again(
    setting: Setting, verb: Any, state: str, error: Any
) -> None:
    setting.link.state = "RUNNING"
    setting.microvms.failures[verb.__name__] = [error(), error()]
    setting.microvms.upcoming = [state, state]
    verb(setting.link, deadline=setting.deadline())
    assert setting.microvms.calls.count(verb.__name__) == 3


@pytest.mark.parametrize("verb", [life.suspend, life.resume])
def test_a_call_that_is_refused_in_a_lasting_state_is_an_error(setting: Setting, verb: Any) -> None:
    setting.microvms.failures[verb.__name__] = [refusal()]
    with pytest.raises(errors.ValidationError, match="cannot be changed"):
        verb(setting.link, deadline=setting.deadline())
    assert setting.record.stopped_at is None


@pytest.mark.parametrize("verb", [life.suspend, life.resume])
def test_a_conflict_that_does_not_pass_is_raised_at_the_deadline(setting: Setting, verb: Any) -> None:
    setting.microvms.failures[verb.__name__] = [conflict() for _ in range(100)]
    with pytest.raises(errors.ConflictError, match="not now"):
        verb(setting.link, deadline=setting.deadline(20))
    assert 15 < sum(setting.clock.sleeps) <= 20


@pytest.mark.parametrize("verb", [life.suspend, life.resume])
@pytest.mark.parametrize("error", [conflict, refusal])
def test_what_has_ended_is_told_with_its_reason(setting: Setting, verb: Any, error: Any) -> None:
    setting.microvms.change("microvm-1", state="TERMINATED", state_reason="MicroVM exceeded maximum lifetime.")
    setting.microvms.failures[verb.__name__] = [error()]
    with pytest.raises(errors.MicroVMEndedError, match="maximum lifetime"):
        verb(setting.link, deadline=setting.deadline())


@pytest.mark.parametrize(
    ("states", "longest"),
    [(["RUNNING"] * 200, 15), (["SUSPENDING", "RUNNING"], 1), (["RUNNING", "SUSPENDING", "SUSPENDING", "RUNNING"], 3)],
    ids=["never seen", "seen once", "seen late"],
)
def test_a_suspend_that_traffic_undoes_is_given_up_soon(setting: Setting, states: list[str], longest: float) -> None:
    setting.link.state = "RUNNING"
    setting.microvms.upcoming = states
    with pytest.raises(errors.NotSuspendedError, match="runs again") as caught:
        life.suspend(setting.link, deadline=setting.deadline(120))
    assert "Traffic" in (caught.value.hint or "")
    assert sum(setting.clock.sleeps) <= longest
    assert setting.record.stopped_at is None


def test_a_suspend_that_is_only_slow_stays_marked(setting: Setting) -> None:
    setting.microvms.upcoming = ["RUNNING", *["SUSPENDING"] * 200]
    with pytest.raises(errors.WaitTimeoutError):
        life.suspend(setting.link, deadline=setting.deadline(10))
    assert setting.record.stopped_at is not None


def test_a_mark_that_cannot_be_kept_is_an_error(setting: Setting, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{damaged")
    with pytest.raises(errors.StateFileError):
        life.suspend(setting.link, deadline=setting.deadline())
    assert "suspend" not in setting.microvms.calls


# -- resuming ----------------------------------------------------------------------------------------------------------


def test_a_resume_takes_the_mark_away(setting: Setting) -> None:
    life.suspend(setting.link, deadline=setting.deadline())
    life.resume(setting.another(), deadline=setting.deadline())
    assert (setting.record.state_hint, setting.record.stopped_at) == ("RUNNING", None)


def test_a_resume_while_it_suspends_waits_for_that_first(setting: Setting) -> None:
    setting.microvms.failures["resume"] = [conflict(), conflict()]
    setting.microvms.upcoming = ["SUSPENDING", "SUSPENDED"]
    life.resume(setting.link, deadline=setting.deadline())
    assert setting.microvms.calls == ["resume", "get", "resume", "get", "resume"]
    assert setting.microvms.known["microvm-1"].state == setting.link.state == "RUNNING"


def test_a_resume_works_though_no_use_may_resume_it(setting: Setting, tmp_path: Path, fake_clock: FakeClock) -> None:
    setting.microvms.change("microvm-1", state="SUSPENDED")
    place: Any = FakePlace(setting.control)
    link = Link(
        setting.record, place=place, records=setting.records, verify_tls=None, auto_resume=False, clock=fake_clock
    )
    life.resume(link, deadline=setting.deadline())
    assert link.state == "RUNNING"
    life.ready_for_use(link, deadline=setting.deadline())


def test_a_registry_that_cannot_be_written_keeps_nobody_from_resuming(setting: Setting, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{damaged")
    life.resume(setting.link, deadline=setting.deadline())
    assert setting.link.state == "RUNNING"


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_a_wait_returns_the_state_that_came_and_wakes_nothing(setting: Setting) -> None:
    setting.microvms.upcoming = ["RUNNING", "SUSPENDING", "SUSPENDED"]
    assert life.wait(setting.link, ("TERMINATED", "SUSPENDED"), deadline=setting.deadline()) == "SUSPENDED"
    assert setting.link.state == "SUSPENDED"
    assert set(setting.microvms.calls) == {"get"}
    assert setting.control.mints == []


def test_an_end_that_was_not_waited_for_is_an_error(setting: Setting) -> None:
    setting.microvms.upcoming = ["RUNNING", "TERMINATING"]
    with pytest.raises(errors.MicroVMEndedError):
        life.wait(setting.link, ("SUSPENDED",), deadline=setting.deadline())
    assert setting.link.state == "TERMINATING"


def test_terminating_is_too_brief_to_be_insisted_on(setting: Setting) -> None:
    setting.microvms.upcoming = ["RUNNING", "TERMINATED"]
    assert life.wait(setting.link, ("TERMINATING",), deadline=setting.deadline()) == "TERMINATED"


def test_a_wait_that_is_too_long_says_what_it_saw(setting: Setting) -> None:
    with pytest.raises(errors.WaitTimeoutError, match="is RUNNING, not TERMINATED, after 30 s"):
        life.wait(setting.link, ("TERMINATED",), deadline=setting.deadline(30))


@pytest.mark.parametrize("states", [("GONE",), ("running",), ("RUNNING", "")], ids=str)
def test_a_state_that_is_none_is_refused_before_anybody_is_asked(setting: Setting, states: tuple[str, ...]) -> None:
    with pytest.raises(errors.UsageError, match="no state") as caught:
        life.wait(setting.link, states, deadline=setting.deadline())
    assert "SUSPENDED" in (caught.value.hint or "")
    assert setting.microvms.calls == []


# -- before a use ------------------------------------------------------------------------------------------------------


def ready(link: Link, *, seconds: float = 30, auto_resume: bool = True) -> None:
    link.auto_resume = auto_resume
    life.ready_for_use(link, deadline=Deadline(seconds))


def test_what_is_not_known_to_be_suspended_is_not_asked_for(setting: Setting) -> None:
    ready(setting.link)
    assert setting.microvms.calls == []


def test_twenty_threads_that_find_it_suspended_resume_it_once(setting: Setting) -> None:
    life.suspend(setting.link, deadline=setting.deadline())
    link = setting.another()
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda _number: ready(link), range(20)))
    assert setting.microvms.calls.count("resume") == 1


def test_a_stop_by_another_process_is_seen_at_the_next_use(setting: Setting) -> None:
    setting.link.state = "RUNNING"
    life.suspend(setting.another(), deadline=setting.deadline())
    ready(setting.link)
    assert setting.microvms.known["microvm-1"].state == "RUNNING"
    assert setting.record.stopped_at is None


def test_a_stop_and_start_by_others_costs_nothing(setting: Setting) -> None:
    setting.link.state = "RUNNING"
    life.suspend(setting.another(), deadline=setting.deadline())
    life.resume(setting.another(), deadline=setting.deadline())
    setting.microvms.calls.clear()
    ready(setting.link)
    assert setting.microvms.calls == []


@pytest.mark.parametrize(("state", "how"), [("SUSPENDING", "being suspended"), ("SUSPENDED", "suspended")])
def test_a_use_that_must_not_resume_it_asks_first_and_is_refused(setting: Setting, state: str, how: str) -> None:
    setting.link.state = "RUNNING"
    setting.microvms.change("microvm-1", state=state)
    with pytest.raises(errors.SandboxSuspendedError, match=rf"demo is {how}\n") as caught:
        ready(setting.link, auto_resume=False)
    assert "vmnest start demo" in (caught.value.hint or "")
    assert setting.microvms.calls == ["get"]
    assert setting.control.mints == []


def test_a_use_that_must_not_resume_it_asks_each_time(setting: Setting) -> None:
    ready(setting.link, auto_resume=False)
    ready(setting.link, auto_resume=False)
    assert setting.microvms.calls == ["get", "get"]


def test_what_does_not_resume_by_itself_is_looked_at_and_resumed(setting: Setting) -> None:
    link = setting.another(auto_resume=False)
    setting.microvms.change("microvm-1", state="SUSPENDED")
    ready(link)
    assert setting.microvms.calls == ["get", "resume"]
    ready(link)
    assert setting.microvms.calls == ["get", "resume", "get"]


def test_what_somebody_else_made_is_looked_at_once(setting: Setting) -> None:
    link = setting.another(created_at=None)
    ready(link)
    ready(link)
    assert setting.microvms.calls == ["get"]


def test_that_it_does_not_resume_by_itself_is_learned_from_the_service(setting: Setting) -> None:
    setting.microvms.change("microvm-1", idle_policy=IdlePolicy(auto_resume_enabled=False))
    setting.link.look()
    assert setting.link.record.auto_resume is False


@pytest.mark.parametrize("auto_resume", [True, False])
def test_what_has_ended_is_not_used(setting: Setting, auto_resume: bool) -> None:
    setting.link.state = "TERMINATED"
    with pytest.raises(errors.MicroVMEndedError, match="demo"):
        ready(setting.link, auto_resume=auto_resume)
    assert setting.microvms.calls == []


def test_an_end_that_is_found_before_a_use_is_told_with_its_reason(setting: Setting) -> None:
    setting.microvms.change("microvm-1", state="TERMINATED", state_reason="Success.")
    with pytest.raises(errors.MicroVMEndedError, match="ended by a request"):
        ready(setting.link, auto_resume=False)


def test_a_thread_does_not_wait_beyond_its_deadline_for_another_one_that_resumes(setting: Setting) -> None:
    setting.link.state = "SUSPENDED"
    with setting.link.waking.held(), pytest.raises(errors.WaitTimeoutError):
        ready(setting.link, seconds=0.05)


# -- looking, before something is asked that must not wake it ----------------------------------------------------------


def test_a_sandbox_that_runs_or_begins_to_is_awake(setting: Setting) -> None:
    for state in ("PENDING", "RUNNING"):
        setting.microvms.change("microvm-1", state=state)
        life.check_awake(setting.link, deadline=setting.deadline())
    assert setting.microvms.calls == ["get", "get"]


@pytest.mark.parametrize("state", ["SUSPENDING", "SUSPENDED"])
def test_a_suspended_one_is_told_and_not_woken(setting: Setting, state: str) -> None:
    setting.microvms.change("microvm-1", state=state)
    with pytest.raises(errors.SandboxSuspendedError):
        life.check_awake(setting.link, deadline=setting.deadline())
    assert setting.microvms.calls == ["get"]


def test_one_that_has_ended_is_told_with_the_reason(setting: Setting) -> None:
    setting.microvms.change("microvm-1", state="TERMINATED", state_reason="its time was up")
    with pytest.raises(errors.MicroVMEndedError, match="its time was up"):
        life.check_awake(setting.link, deadline=setting.deadline())
