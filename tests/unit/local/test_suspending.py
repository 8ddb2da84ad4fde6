"""Suspending and resuming, above machines that isolate nothing."""

import threading

import pytest

from tests.support.lifecycle import build_spec, eventually, movable_time, policy, wait_for_state, wait_until
from tests.support.machines import FakeMachine, Hooks, scripted_server
from vmnest import errors
from vmnest.local import faults, records, suspending, workers
from vmnest.wire import names

DETAILS = "Please check your hook endpoint and application logs for more details."


class Stage:
    """A suspender, one VM that runs, and the ends that were asked for."""

    def __init__(self, time, hooks_port):
        self.time = time
        self.work = workers.Workers()
        self.ends = []
        self.suspender = suspending.Suspender(end=self.end, work=self.work, timing=time.timers, clock=time.clock)
        self.machine = FakeMachine({9000: hooks_port}, on_end=lambda ended: None)

    def end(self, record, *, reason):
        with record.changed:
            if record.advance(records.ENDING, reason=reason):
                self.ends.append(reason)

    def run(self, idle_policy=None):
        record = records.Record("m", build_spec(idle_policy=idle_policy), number=1, started_at=0, endpoint="http://h")
        record.machine = self.machine
        with record.changed:
            record.advance(records.RAN)
            self.suspender.watch(record)
        return record

    def suspended(self, idle_policy=None):
        record = self.run(idle_policy)
        self.suspender.suspend(record)
        wait_for_state(record, names.SUSPENDED)
        self.work.join()
        return record

    def refusal(self, action, record):
        with pytest.raises(faults.Fault) as caught:
            action(record)
        return caught.value


@pytest.fixture
def hooks():
    return Hooks()


@pytest.fixture
def stage(hooks):
    with movable_time() as time, scripted_server(hooks) as port:
        one = Stage(time, port)
        yield one
        if hooks.hold is not None:
            hooks.hold.set()
        one.work.join()


class Passage:
    """A request in the VM."""

    def __init__(self):
        self.cut_when = None

    def cut(self):
        self.cut_when = threading.current_thread().name


class TestSuspend:
    def test_the_hook_is_told_and_then_everything_is_frozen(self, stage, hooks):
        record = stage.run()
        stage.suspender.suspend(record)
        wait_for_state(record, names.SUSPENDED)
        assert hooks.names() == ["suspend"]
        assert stage.machine.is_frozen
        assert record.suspended_at == stage.time.clock.time()
        assert record.state_reason is None

    def test_it_is_suspending_until_the_hook_answered_and_nothing_is_frozen_before(self, stage, hooks):
        hooks.hold = threading.Event()
        record = stage.run()
        stage.suspender.suspend(record)
        assert record.state == names.SUSPENDING
        assert not stage.machine.is_frozen
        hooks.hold.set()
        wait_for_state(record, names.SUSPENDED)

    @pytest.mark.parametrize("state", [names.SUSPENDING, names.SUSPENDED])
    def test_once_more_changes_nothing(self, stage, hooks, state):
        hooks.hold = threading.Event()
        record = stage.run()
        stage.suspender.suspend(record)
        if state == names.SUSPENDED:
            hooks.hold.set()
            wait_for_state(record, state)
        stage.suspender.suspend(record)
        assert record.state == state
        hooks.hold.set()
        wait_for_state(record, names.SUSPENDED)
        stage.work.join()
        assert hooks.names() == ["suspend"]

    def test_requests_in_the_vm_go_on_until_it_is_frozen_and_are_cut_then(self, stage, hooks):
        hooks.hold = threading.Event()
        record, passage = stage.run(), Passage()
        record.enter(passage, start_seconds=1, resume_seconds=1)
        stage.suspender.suspend(record)
        assert passage.cut_when is None
        hooks.hold.set()
        wait_for_state(record, names.SUSPENDED)
        assert passage.cut_when == "suspend m"

    def test_a_hook_that_refuses_ends_the_vm_with_the_services_text(self, stage, hooks):
        hooks.statuses["suspend"] = 500
        record = stage.run()
        stage.suspender.suspend(record)
        wait_for_state(record, names.TERMINATING)
        assert stage.ends == [f"Suspend lifecycle hook returned HTTP status 500. {DETAILS}"]
        assert not stage.machine.is_frozen

    def test_a_hook_that_does_not_answer_in_time_ends_the_vm(self, stage, hooks, monkeypatch):
        monkeypatch.setattr(records.hooks, "AGENT", records.hooks.Config(suspend=0.05))
        hooks.hold = threading.Event()
        record = stage.run()
        stage.suspender.suspend(record)
        wait_for_state(record, names.TERMINATING)
        assert stage.ends == [f"Suspend lifecycle hook timed out after 0.05 seconds. {DETAILS}"]

    def test_a_vm_that_cannot_be_frozen_is_told_and_runs_on(self, stage, hooks, caplog):
        stage.machine.freeze_failure = errors.LocalCloudError("no freezer")
        record, passage = stage.run(policy(idle=60)), Passage()
        record.enter(passage, start_seconds=1, resume_seconds=1)
        stage.suspender.suspend(record)
        wait_for_state(record, names.RUNNING)
        assert hooks.names() == ["suspend", "resume"]
        assert passage.cut_when is None
        assert "no freezer" in caplog.text
        stage.machine.freeze_failure = None
        stage.time.advance(60)
        wait_for_state(record, names.SUSPENDED)

    def test_an_end_during_the_hook_counts(self, stage, hooks):
        hooks.hold = threading.Event()
        record = stage.run()
        stage.suspender.suspend(record)
        stage.end(record, reason="asked for")
        hooks.hold.set()
        stage.work.join()
        assert (record.state, stage.ends) == (names.TERMINATING, ["asked for"])

    def test_a_vm_that_ended_while_it_was_frozen_is_not_kept(self, stage, hooks):
        record = stage.run()

        def freeze():
            stage.end(record, reason="asked for")
            raise errors.LocalCloudError("the machine is gone")

        stage.machine.freeze = freeze
        stage.suspender.suspend(record)
        stage.work.join()
        assert record.state == names.TERMINATING
        assert hooks.names() == ["suspend"]


class TestResume:
    def test_it_runs_again_and_then_the_hook_is_told(self, stage, hooks):
        record = stage.suspended()
        frozen_at_hook = []
        hooks.hold = threading.Event()
        stage.suspender.resume(record)
        eventually(lambda: hooks.names() == ["suspend", "resume"])
        frozen_at_hook.append(stage.machine.is_frozen)
        # The service's VMs stay SUSPENDED meanwhile.
        assert (record.state, record.is_waking) == (names.SUSPENDED, True)
        hooks.hold.set()
        wait_for_state(record, names.RUNNING)
        assert frozen_at_hook == [False]
        assert (record.suspended_at, record.is_waking) == (None, False)

    def test_of_a_vm_that_runs_changes_nothing(self, stage, hooks):
        record = stage.run()
        stage.suspender.resume(record)
        stage.work.join()
        assert (record.state, hooks.names()) == (names.RUNNING, [])

    def test_twice_is_once(self, stage, hooks):
        record = stage.suspended()
        for _ in range(3):
            stage.suspender.resume(record)
        wait_for_state(record, names.RUNNING)
        stage.work.join()
        assert hooks.names() == ["suspend", "resume"]

    def test_a_hook_that_refuses_ends_the_vm(self, stage, hooks):
        record = stage.suspended()
        hooks.statuses["resume"] = 503
        stage.suspender.resume(record)
        wait_for_state(record, names.TERMINATING)
        assert stage.ends == [f"Resume lifecycle hook returned HTTP status 503. {DETAILS}"]

    def test_a_machine_that_does_not_go_on_ends_the_vm(self, stage):
        record = stage.suspended()

        def thaw():
            raise errors.LocalCloudError("stuck")

        stage.machine.thaw = thaw
        stage.suspender.resume(record)
        wait_for_state(record, names.TERMINATING)
        assert stage.ends == ["MicroVM could not be resumed: stuck"]

    def test_an_end_during_the_hook_counts(self, stage, hooks):
        record = stage.suspended()
        hooks.hold = threading.Event()
        stage.suspender.resume(record)
        stage.end(record, reason="asked for")
        hooks.hold.set()
        stage.work.join()
        assert (record.state, stage.ends) == (names.TERMINATING, ["asked for"])

    @pytest.mark.parametrize("verb", ["suspend", "resume"])
    def test_a_fault_of_ours_leaves_no_vm_half_way(self, stage, caplog, verb):
        record = stage.suspended() if verb == "resume" else stage.run()
        stage.machine.freeze = stage.machine.thaw = lambda: 1 / 0
        getattr(stage.suspender, verb)(record)
        wait_for_state(record, names.TERMINATING)
        stage.work.join()
        assert stage.ends == [f"MicroVM could not {verb}: the daemon's log has the reason"]
        assert "ZeroDivisionError" in caplog.text

    def test_there_and_back_many_times(self, stage, hooks):
        record = stage.run()
        for _ in range(20):
            stage.suspender.suspend(record)
            wait_for_state(record, names.SUSPENDED)
            stage.suspender.resume(record)
            wait_for_state(record, names.RUNNING)
        assert hooks.names() == ["suspend", "resume"] * 20


class TestRefusals:
    def record(self, state):
        one = records.Record("m", build_spec(), number=1, started_at=0, endpoint="http://h")
        one.state = state
        return one

    @pytest.mark.parametrize("state", names.ENDED_STATES)
    @pytest.mark.parametrize("verb", ["suspend", "resume"])
    def test_a_vm_that_ends_or_has_ended_stays_so(self, stage, state, verb):
        refusal = stage.refusal(getattr(stage.suspender, verb), self.record(state))
        assert (refusal.status, refusal.error_type) == (400, "ValidationException")
        assert refusal.message == "The MicroVM m has been terminated and its state cannot be changed."

    @pytest.mark.parametrize(
        ("verb", "state"), [("suspend", names.PENDING), ("resume", names.SUSPENDING)], ids=["pending", "suspending"]
    )
    def test_what_is_under_way_to_elsewhere_is_a_conflict(self, stage, verb, state):
        refusal = stage.refusal(getattr(stage.suspender, verb), self.record(state))
        assert (refusal.status, refusal.error_type) == (409, "ConflictException")

    def test_a_vm_that_is_being_woken_cannot_be_suspended_yet(self, stage, hooks):
        record = stage.suspended()
        hooks.hold = threading.Event()
        stage.suspender.resume(record)
        assert stage.refusal(stage.suspender.suspend, record).status == 409
        hooks.hold.set()
        wait_for_state(record, names.RUNNING)
        stage.suspender.suspend(record)
        wait_for_state(record, names.SUSPENDED)

    def test_a_vm_that_is_being_started_can_be_resumed(self, stage):
        stage.suspender.resume(self.record(names.PENDING))

    def test_without_a_thread_to_be_had_nothing_changes(self, stage, monkeypatch):
        record = stage.run()

        def refuse(thread):
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError):
                stage.suspender.suspend(record)
        assert record.state == names.RUNNING
        stage.suspender.suspend(record)
        wait_for_state(record, names.SUSPENDED)


class TestIdleTime:
    def test_an_idle_vm_is_suspended(self, stage, hooks):
        record = stage.run(policy(idle=60))
        stage.time.advance(60)
        wait_for_state(record, names.SUSPENDED)
        assert hooks.names() == ["suspend"]

    def test_idle_time_begins_anew_with_a_resume(self, stage):
        record = stage.suspended(policy(idle=60))
        stage.time.advance(1000)
        stage.suspender.resume(record)
        wait_for_state(record, names.RUNNING)
        stage.work.join()
        stage.time.advance(59)
        assert record.state == names.RUNNING
        stage.time.advance(1)
        wait_for_state(record, names.SUSPENDED)

    def test_a_vm_that_may_not_stay_suspended_is_ended_instead(self, stage, hooks):
        record = stage.run(policy(idle=60, suspended=0))
        stage.time.advance(60)
        wait_for_state(record, names.TERMINATING)
        assert stage.ends == ["MicroVM exceeded maximum suspended duration."]
        assert hooks.names() == []

    def test_bytes_that_pass_just_when_the_vm_was_found_idle_keep_it(self, stage):
        record = stage.run(policy(idle=60))
        stage.time.clock.advance(60)
        record.touched_at = stage.time.clock.monotonic()
        stage.suspender._on_idle(record)
        assert record.state == names.RUNNING


class TestSuspendedTime:
    def test_a_vm_is_ended_when_it_was_suspended_for_too_long(self, stage):
        record = stage.suspended(policy(suspended=100))
        stage.time.advance(99)
        assert record.state == names.SUSPENDED
        stage.time.advance(1)
        wait_for_state(record, names.TERMINATING)
        assert stage.ends == ["MicroVM exceeded maximum suspended duration."]

    def test_an_asked_for_suspend_that_may_not_last_is_an_end(self, stage):
        record = stage.run(policy(suspended=0))
        stage.suspender.suspend(record)
        wait_for_state(record, names.TERMINATING)
        assert stage.ends == ["MicroVM exceeded maximum suspended duration."]

    def test_each_suspend_has_the_whole_time(self, stage):
        record = stage.suspended(policy(idle=60, suspended=100))
        stage.time.advance(90)
        stage.suspender.resume(record)
        wait_for_state(record, names.RUNNING)
        stage.work.join()
        stage.time.advance(5)
        stage.suspender.suspend(record)
        wait_for_state(record, names.SUSPENDED)
        stage.work.join()
        stage.time.advance(99)
        assert record.state == names.SUSPENDED
        stage.time.advance(1)
        wait_for_state(record, names.TERMINATING)

    def test_it_does_not_end_a_vm_that_is_being_woken(self, stage, hooks):
        record = stage.suspended(policy(suspended=100))
        hooks.hold = threading.Event()
        stage.suspender.resume(record)
        stage.time.advance(1000)
        stage.suspender._expire(record)
        hooks.hold.set()
        wait_for_state(record, names.RUNNING)
        assert stage.ends == []

    def test_without_a_policy_there_is_none(self, stage):
        record = stage.suspended()
        stage.time.advance(28000)
        assert record.state == names.SUSPENDED

    def test_a_restored_vm_has_what_is_left(self, stage):
        record = records.Record(
            "m", build_spec(idle_policy=policy(suspended=100)), number=1, started_at=0, endpoint="http://h"
        )
        record.machine = stage.machine
        record.state, record.suspended_at = names.SUSPENDED, stage.time.clock.time() - 70
        with record.changed:
            stage.suspender.watch(record)
        stage.time.advance(29)
        assert record.state == names.SUSPENDED
        stage.time.advance(1)
        wait_for_state(record, names.TERMINATING)


class TestRequests:
    def test_a_request_wakes_a_vm_whose_policy_says_so(self, stage, hooks):
        record, passage = stage.suspended(policy()), Passage()
        assert record.enter(passage, start_seconds=1, resume_seconds=10) == names.RUNNING
        assert hooks.names() == ["suspend", "resume"]

    def test_many_requests_wake_it_once(self, stage, hooks):
        record, states = stage.suspended(policy()), []
        threads = [
            threading.Thread(target=lambda: states.append(record.enter(Passage(), start_seconds=1, resume_seconds=10)))
            for _ in range(10)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert states == [names.RUNNING] * 10
        assert hooks.names() == ["suspend", "resume"]

    def test_a_request_during_the_suspend_is_held_through_both(self, stage, hooks):
        hooks.hold = threading.Event()
        record, states = stage.run(policy()), []
        stage.suspender.suspend(record)
        thread = threading.Thread(
            target=lambda: states.append(record.enter(Passage(), start_seconds=1, resume_seconds=10))
        )
        thread.start()
        hooks.hold.set()
        thread.join()
        assert states == [names.RUNNING]
        assert hooks.names() == ["suspend", "resume"]

    def test_a_failed_resume_is_learned_at_once(self, stage, hooks):
        record = stage.suspended(policy())
        hooks.statuses["resume"] = 500
        assert record.enter(Passage(), start_seconds=1, resume_seconds=10) == names.TERMINATING

    def test_without_the_policy_it_sleeps_on(self, stage, hooks):
        record = stage.suspended(policy(auto_resume=False))
        assert record.enter(Passage(), start_seconds=1, resume_seconds=10) == names.SUSPENDED
        wait_until(record, lambda: not record.is_waking)
        assert hooks.names() == ["suspend"]
