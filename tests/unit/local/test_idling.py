"""When a VM was idle for long enough."""

import pytest

from tests.support.lifecycle import build_spec, movable_time, policy
from vmnest.local import idling, records
from vmnest.wire import names


class Stage:
    """A watch, the time it runs in, and whom it found idle."""

    def __init__(self, time):
        self.time = time
        self.idle = []
        self.watch = idling.IdleWatch(time.timers, clock=time.clock, on_idle=self.idle.append)

    def begin(self, record):
        with record.changed:
            self.watch.watch(record)

    def pass_bytes(self, record):
        record.touched_at = self.time.clock.monotonic()


@pytest.fixture
def stage():
    with movable_time() as time:
        yield Stage(time)


def record(idle_policy):
    one = records.Record("m", build_spec(idle_policy=idle_policy), number=1, started_at=0, endpoint="http://h")
    with one.changed:
        one.advance(records.RAN)
    return one


def test_a_vm_is_idle_when_nothing_passed_for_its_time(stage):
    one = record(policy(idle=60))
    stage.begin(one)
    stage.time.advance(59)
    assert stage.idle == []
    stage.time.advance(1)
    assert stage.idle == [one]


def test_bytes_put_it_off_by_the_whole_time(stage):
    one = record(policy(idle=60))
    stage.begin(one)
    for _ in range(5):
        stage.time.advance(50)
        stage.pass_bytes(one)
    stage.time.advance(59)
    assert stage.idle == []
    stage.time.advance(1)
    assert stage.idle == [one]


def test_bytes_cost_no_timer(stage):
    one = record(policy(idle=60))
    stage.begin(one)
    timer = one.idle
    for _ in range(1000):
        stage.pass_bytes(one)
    assert one.idle is timer


def test_without_a_policy_it_is_never_idle(stage):
    one = record(None)
    stage.begin(one)
    assert one.idle is None


def test_a_vm_that_does_not_run_any_more_is_not_looked_at(stage):
    one = record(policy(idle=60))
    stage.begin(one)
    with one.changed:
        one.advance(records.ENDING)
    stage.time.advance(1000)
    assert stage.idle == []


def test_a_new_watch_takes_the_place_of_the_old_one(stage):
    one = record(policy(idle=60))
    stage.begin(one)
    stage.time.advance(40)
    old = one.idle
    stage.begin(one)
    assert old.action is None
    stage.time.advance(59)
    assert stage.idle == []
    stage.time.advance(1)
    assert stage.idle == [one]


def test_the_old_watchs_last_look_does_not_add_a_second_watch(stage):
    one = record(policy(idle=60))
    stage.begin(one)
    with one.changed:
        # The old look waits for the lock when the new watch begins.
        stage.time.clock.advance(60)
        stage.watch.watch(one)
        expected = one.idle
    stage.watch._look(one)
    assert one.idle is expected
    assert stage.idle == []
    assert one.state == names.RUNNING
