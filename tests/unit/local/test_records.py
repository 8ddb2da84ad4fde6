"""States of a VM, and the reasons of its end."""

import itertools

import pytest

from vmnest.local import options, records
from vmnest.local.drivers import interface
from vmnest.wire import names

EVENTS = (records.RAN, records.ENDING, records.GONE)


def record():
    spec = records.Spec("arn", "1.0", None, None, 60, (), (), None, None, options.Options())
    return records.Record("m", spec, number=1, started_at=0, listener=None, endpoint="http://h")


def test_every_state_in_the_table_is_one_of_the_services():
    used = {state for state, _ in records.TRANSITIONS} | set(records.TRANSITIONS.values())
    assert used <= set(names.STATES)
    assert {event for _, event in records.TRANSITIONS} == set(EVENTS)


def test_nothing_leads_out_of_terminated():
    assert not [state for state, _ in records.TRANSITIONS if state == names.TERMINATED]


@pytest.mark.parametrize("events", list(itertools.permutations(EVENTS)), ids="-".join)
def test_every_order_of_events_ends_terminated(events):
    one = record()
    with one.changed:
        for event in events:
            one.advance(event)
    assert one.is_ended


def test_a_step_that_the_table_lacks_changes_nothing():
    one = record()
    with one.changed:
        assert one.advance(records.ENDING)
        assert not one.advance(records.RAN)
    assert one.state == names.TERMINATING


def test_waiting_ends_with_the_state_or_the_time():
    one = record()
    assert one.wait_while_pending(0.01) == names.PENDING
    with one.changed:
        one.advance(records.RAN)
    assert one.wait_while_pending(10) == names.RUNNING


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
