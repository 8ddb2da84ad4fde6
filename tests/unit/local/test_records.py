"""States of a VM, what its requests wait for, and the reasons of its end."""

import dataclasses
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.lifecycle import eventually
from vmnest.local import options, records
from vmnest.local.drivers import interface
from vmnest.wire import names

EVENTS = (
    records.RAN,
    records.SUSPEND,
    records.FROZEN,
    records.KEPT,
    records.RESUMED,
    records.ENDING,
    records.GONE,
)
POLICY = {"maxIdleDurationSeconds": 60, "suspendedDurationSeconds": 3600, "autoResumeEnabled": True}
PATHS = {
    names.PENDING: (),
    names.RUNNING: (records.RAN,),
    names.SUSPENDING: (records.RAN, records.SUSPEND),
    names.SUSPENDED: (records.RAN, records.SUSPEND, records.FROZEN),
    names.TERMINATING: (records.ENDING,),
    names.TERMINATED: (records.GONE,),
}


class Ledger(records.NoLedger):
    """Remembers the states that it was told."""

    def __init__(self):
        self.saved = []

    def save(self, record):
        self.saved.append((record.state, record.state_reason, record.suspended_at, record.terminated_at))


class Passage:
    """A connection that counts its cuts."""

    cuts = 0

    def cut(self):
        self.cuts += 1


def spec(**changes):
    plain = records.Spec("arn", "1.0", None, None, 60, (), (), None, None, options.Options())
    return dataclasses.replace(plain, **changes)


def record(state=names.PENDING, **changes):
    one = records.Record("m", spec(**changes), number=1, started_at=0, endpoint="http://h")
    with one.changed:
        for event in PATHS[state]:
            assert one.advance(event)
    return one


def enter(one, passage=None, *, seconds=10):
    return one.enter(passage or Passage(), start_seconds=seconds, resume_seconds=seconds)


def step(one, *events):
    with one.changed:
        for event in events:
            assert one.advance(event)


class TestSteps:
    def test_every_state_in_the_table_is_one_of_the_services(self):
        used = {state for state, _ in records.TRANSITIONS} | set(records.TRANSITIONS.values())
        assert used == set(names.STATES)
        assert {event for _, event in records.TRANSITIONS} == set(EVENTS)

    def test_nothing_leads_out_of_terminated(self):
        assert not [state for state, _ in records.TRANSITIONS if state == names.TERMINATED]

    @pytest.mark.parametrize("state", names.STATES)
    def test_every_state_can_be_left_for_the_end(self, state):
        one = record(state)
        with one.changed:
            one.advance(records.ENDING)
            one.advance(records.GONE)
        assert one.is_ended

    @given(st.lists(st.sampled_from(EVENTS), max_size=20))
    def test_whatever_happens_terminated_is_for_ever_and_nothing_runs_after_the_end_was_asked_for(self, events):
        one, seen = record(), []
        with one.changed:
            for event in events:
                one.advance(event)
                seen.append(one.state)
        ending = [state in names.ENDED_STATES for state in seen]
        assert ending == sorted(ending)

    def test_a_step_that_the_table_lacks_changes_nothing(self):
        one = record()
        step(one, records.ENDING)
        with one.changed:
            assert not one.can(records.RAN)
            assert not one.advance(records.RAN)
        assert one.state == names.TERMINATING

    def test_the_ledger_is_told_every_step_as_it_is_afterwards(self):
        one = record()
        one.ledger = ledger = Ledger()
        with one.changed:
            one.advance(records.RAN)
            one.advance(records.SUSPEND)
            one.advance(records.FROZEN, at=5.0)
            one.advance(records.RAN)
            one.advance(records.ENDING, reason="first")
            one.advance(records.GONE, at=7.0, reason="second")
        assert ledger.saved == [
            (names.RUNNING, None, None, None),
            (names.SUSPENDING, None, None, None),
            (names.SUSPENDED, None, 5.0, None),
            (names.TERMINATING, "first", None, None),
            (names.TERMINATED, "first", None, 7.0),
        ]


class TestSpecs:
    def test_without_a_policy_nothing_is_idle_and_nothing_wakes(self):
        one = spec()
        assert (one.max_idle_seconds, one.max_suspended_seconds, one.auto_resume) == (None, None, False)

    def test_a_policy_has_its_numbers(self):
        one = spec(idle_policy=POLICY)
        assert (one.max_idle_seconds, one.max_suspended_seconds, one.auto_resume) == (60, 3600, True)

    def test_equal_specs_have_equal_fingerprints_and_others_do_not(self):
        one = spec(idle_policy=POLICY, ingress=("a",), payload="secret")
        assert one.fingerprint == spec(idle_policy=dict(POLICY), ingress=["a"], payload="secret").fingerprint
        assert one.fingerprint != spec(idle_policy=POLICY, ingress=("a",), payload="other").fingerprint
        assert "secret" not in one.fingerprint


class TestPassages:
    @pytest.mark.parametrize("state", names.STATES)
    def test_a_request_enters_a_vm_that_runs_and_no_other(self, state):
        one, passage = record(state), Passage()
        assert enter(one, passage, seconds=0.01) == state
        with one.changed:
            one.cut_passages()
        assert passage.cuts == (1 if state == names.RUNNING else 0)

    def test_a_request_that_left_is_not_cut(self):
        one, passage = record(names.RUNNING), Passage()
        enter(one, passage)
        one.leave(passage)
        with one.changed:
            one.cut_passages()
        assert passage.cuts == 0

    def test_a_request_wakes_a_vm_once_and_is_held_until_it_runs(self):
        one = record(names.SUSPENDED, idle_policy=POLICY)
        woken = []

        def wake():
            woken.append(one)
            one.is_waking = True

        one.wake = wake
        entered = []
        threads = [threading.Thread(target=lambda: entered.append(enter(one))) for _ in range(3)]
        for thread in threads:
            thread.start()
        eventually(lambda: bool(woken))
        assert entered == []
        step(one, records.RESUMED)
        for thread in threads:
            thread.join(10)
        assert (entered, len(woken)) == ([names.RUNNING] * 3, 1)

    def test_a_request_that_comes_while_a_vm_is_being_suspended_wakes_it_then(self):
        one = record(names.SUSPENDING, idle_policy=POLICY)
        one.wake = lambda: one.advance(records.RESUMED)
        entered = []
        thread = threading.Thread(target=lambda: entered.append(enter(one)))
        thread.start()
        step(one, records.FROZEN)
        thread.join(10)
        assert entered == [names.RUNNING]

    @pytest.mark.parametrize("policy", [None, {**POLICY, "autoResumeEnabled": False}], ids=["no policy", "not allowed"])
    def test_a_request_that_may_not_wake_a_vm_does_not_wait(self, policy):
        one, woken = record(names.SUSPENDED, idle_policy=policy), []
        one.wake = lambda: woken.append(one)
        assert enter(one, seconds=60) == names.SUSPENDED
        assert woken == []

    def test_a_held_request_learns_of_the_end(self):
        one = record(names.SUSPENDED, idle_policy=POLICY)
        one.wake = lambda: step(one, records.ENDING)
        assert enter(one) == names.TERMINATING


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (interface.Ended(0, None, interface.EXITED), "Container Stopped with Exit Code: 0"),
        (interface.Ended(124, None, interface.EXITED), "Container Stopped with Exit Code: 124"),
        (interface.Ended(None, 9, interface.EXITED), "Container Stopped with Exit Code: 137"),
        (interface.Ended(None, 9, interface.LIFETIME), "MicroVM exceeded maximum lifetime."),
        (interface.Ended(None, 9, interface.MEMORY), "MicroVM exceeded its memory limit of 512 MiB."),
        (interface.Ended(None, 9, interface.DISK), "MicroVM exceeded the size of its disk."),
        (interface.Ended(None, 15, interface.STOPPED), "Success."),
        (interface.Ended(None, None, interface.LOST), "MicroVM was lost: the process that held it ended."),
    ],
)
def test_an_end_has_a_reason(ended, reason):
    assert records.end_reason(ended, memory_mib=512) == reason
