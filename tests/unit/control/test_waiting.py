"""A wait ends at the goal, at an end that nobody wanted, or at the deadline with what was seen last."""

import pytest

from tests.support.control import Controlled, Controls, vm
from tests.support.peers import Answer, json_answer
from vmnest import errors
from vmnest.control import waiting
from vmnest.control.microvms import MicroVM
from vmnest.wire import names


def states(*found: str, reason: str | None = None) -> list[object]:
    return [json_answer(200, vm(state=state, stateReason=reason)) for state in found]


def wait(made: Controlled, *goal: str, seconds: float | None = 60, **options: object) -> MicroVM:
    return waiting.wait_until(
        made.control.microvms,
        "microvm-1",
        states=goal,
        deadline=made.deadline(seconds),
        clock=made.clock,
        **options,  # type: ignore[arg-type]
    )


def test_a_state_that_is_there_is_not_waited_for(controls: Controls):
    made = controls(*states("RUNNING"))
    assert wait(made, names.RUNNING).state == "RUNNING"
    assert made.clock.sleeps == []


def test_states_are_asked_for_until_the_goal_with_growing_waits(controls: Controls):
    made = controls(*states(*["PENDING"] * 12, "RUNNING"))
    assert wait(made, names.RUNNING).state == "RUNNING"
    assert len(made.clock.sleeps) == 12
    assert made.clock.sleeps[0] <= 0.1
    assert 1.0 <= made.clock.sleeps[-1] <= 2.0


def test_each_new_state_is_told(controls: Controls):
    made = controls(*states("PENDING", "PENDING", "ODD", "RUNNING"))
    told: list[str] = []
    wait(made, names.RUNNING, on_state=lambda microvm: told.append(microvm.state))
    assert told == ["PENDING", "ODD", "RUNNING"]


@pytest.mark.parametrize("state", ["TERMINATING", "TERMINATED"])
def test_an_end_that_was_not_waited_for_is_an_error_with_the_reason(controls: Controls, state):
    reason = "Run lifecycle hook returned HTTP status 500."
    made = controls(*states("PENDING", state, reason=reason))
    with pytest.raises(errors.MicroVMEndedError, match=f"{state}: {reason}") as caught:
        wait(made, names.RUNNING)
    assert caught.value.details["state_reason"] == reason


def test_the_reason_of_an_end_that_goes_on_is_waited_for(controls: Controls):
    reason = "Suspend lifecycle hook returned HTTP status 500."
    made = controls(*states("RUNNING", "TERMINATING", "TERMINATING"), *states("TERMINATED", reason=reason))
    with pytest.raises(errors.MicroVMEndedError, match=f"TERMINATED: {reason}"):
        wait(made, names.SUSPENDED)


@pytest.mark.parametrize(
    "then",
    [states(*["TERMINATING"] * 50), [json_answer(404, {"message": "MicroVM not found"})]],
    ids=["it does not end", "it is gone"],
)
def test_the_reason_of_an_end_is_not_waited_for_long(controls: Controls, then: list[object]):
    made = controls(*states("TERMINATING"), *then)
    with pytest.raises(errors.MicroVMEndedError, match="is TERMINATING\n"):
        wait(made, names.RUNNING, seconds=None)
    assert sum(made.clock.sleeps) <= 5


def test_an_end_by_request_does_not_read_as_a_success(controls: Controls):
    made = controls(*states("TERMINATED", reason="Success."))
    with pytest.raises(errors.MicroVMEndedError, match=r"ED: it was ended by a request \(vmnest rm, or") as caught:
        wait(made, names.RUNNING)
    assert caught.value.details["state_reason"] == "Success."


def test_an_end_for_want_of_memory_says_how_there_is_more(controls: Controls):
    made = controls(*states("TERMINATED", reason="MicroVM exceeded its memory limit of 256 MiB."))
    with pytest.raises(errors.MicroVMEndedError) as caught:
        wait(made, names.RUNNING)
    assert "--memory" in (caught.value.hint or "")


def test_an_end_without_a_reason_is_one_too(controls: Controls):
    made = controls(*states("TERMINATED"))
    with pytest.raises(errors.MicroVMEndedError, match="no reason"):
        wait(made, names.RUNNING)


def test_the_end_can_be_the_goal(controls: Controls):
    made = controls(*states("RUNNING", "TERMINATING", "TERMINATED"))
    assert wait(made, names.TERMINATED).state == "TERMINATED"


def test_one_of_several_goals_is_enough(controls: Controls):
    made = controls(*states("SUSPENDING", "SUSPENDED"))
    assert wait(made, names.RUNNING, names.SUSPENDED).state == "SUSPENDED"


def test_the_deadline_ends_the_wait_and_tells_what_was_seen(controls: Controls):
    made = controls(*states(*["PENDING"] * 50))
    with pytest.raises(errors.WaitTimeoutError, match="is PENDING, not RUNNING, after 5 s") as caught:
        wait(made, names.RUNNING, seconds=5)
    assert caught.value.details["state"] == "PENDING"
    assert sum(made.clock.sleeps) <= 5


def test_an_unknown_microvm_is_not_waited_for(controls: Controls):
    made = controls(json_answer(404, {"message": "MicroVM not found"}))
    with pytest.raises(errors.MicroVMNotFoundError):
        wait(made, names.RUNNING)


def test_a_failure_that_passes_is_outlasted_once_the_service_has_answered(controls: Controls):
    made = controls(*states("RUNNING"), *[Answer(503, b"busy", [])] * 12, *states("RUNNING", "TERMINATED"))
    assert wait(made, names.TERMINATED, seconds=None).state == "TERMINATED"


def test_a_failure_that_does_not_pass_is_the_error(controls: Controls):
    made = controls(*states("RUNNING"), *[Answer(503, b"busy", [])] * 500)
    with pytest.raises(errors.ServiceFaultError):
        wait(made, names.TERMINATED, seconds=None)
    assert sum(made.clock.sleeps) > 60


def test_a_service_that_never_answered_is_not_waited_for(controls: Controls):
    made = controls(*[Answer(503, b"busy", [])] * 500)
    with pytest.raises(errors.ServiceFaultError):
        wait(made, names.TERMINATED, seconds=None)
    assert sum(made.clock.sleeps) < 60


def test_a_microvm_that_is_unknown_by_now_is_an_error_at_once(controls: Controls):
    gone = json_answer(404, {"message": "MicroVM not found"}, headers={"x-amzn-errortype": "ResourceNotFoundException"})
    made = controls(*states("RUNNING"), gone)
    with pytest.raises(errors.MicroVMNotFoundError):
        wait(made, names.TERMINATED, seconds=None)
