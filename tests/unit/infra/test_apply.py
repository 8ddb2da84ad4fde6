"""Whatever the call at which an ``up`` ends: the next one completes it, and ``destroy`` leaves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.infra import Bench, make_bench
from tests.support.memory_account import Killed
from vmnest import errors
from vmnest.infra.spec import EgressConfig
from vmnest.infra.steps import DONE, FAILED, PROGRESS, START


def make(folder: Path) -> Bench:
    made = make_bench(folder)
    made.change(egress=EgressConfig(name="demo-egress", vpc_id="vpc-1"))
    return made


def count_changes(folder: Path) -> int:
    made = make(folder)
    made.up()
    return made.account.changes


# A whole ``up`` of a stack with a connector makes this many calls that change something (held by the first test).
CALLS = 15


def test_the_number_of_changing_calls_is_known(tmp_path: Path) -> None:
    assert count_changes(tmp_path) == CALLS


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, CALLS + 1))
def test_an_up_that_was_ended_at_a_call_is_completed_by_the_next(tmp_path: Path, number: int, is_done: bool) -> None:
    bench = make(tmp_path)
    with bench.killed_at(number, is_done=is_done), pytest.raises(Killed):
        bench.up()
    bench.up()
    assert not bench.preview().has_changes
    assert len(bench.account.images.known) == len(bench.account.connectors.known) == 1
    (image,) = bench.account.images.known.values()
    assert len(image["versions"]) == 1, "the version that was being built is waited for, and none is built twice"
    bench.destroy()
    assert bench.account.inventory() == {}
    assert bench.recorded() is None


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, CALLS + 1))
def test_an_up_that_was_ended_at_a_call_is_destroyed_without_a_rest(tmp_path: Path, number: int, is_done: bool) -> None:
    bench = make(tmp_path)
    with bench.killed_at(number, is_done=is_done), pytest.raises(Killed):
        bench.up()
    bench.destroy()
    assert bench.account.inventory() == {}
    assert bench.recorded() is None


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 11))
def test_a_destroy_that_was_ended_at_a_call_is_completed_by_the_next(
    tmp_path: Path, number: int, is_done: bool
) -> None:
    bench = make(tmp_path)
    bench.up()
    with bench.killed_at(number, is_done=is_done), pytest.raises(Killed):
        bench.destroy()
    bench.destroy()
    assert bench.account.inventory() == {}
    assert bench.recorded() is None


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 4))
def test_an_update_that_was_ended_at_a_call_is_completed_by_the_next(
    tmp_path: Path, number: int, is_done: bool
) -> None:
    bench = make_bench(tmp_path)
    bench.up()
    bench.write_guest("2\n")
    with bench.killed_at(number, is_done=is_done), pytest.raises(Killed):
        bench.up()
    bench.up()
    assert not bench.preview().has_changes
    (image,) = bench.account.images.known.values()
    assert [version["imageVersion"] for version in image["versions"]] == ["1.0", "2.0"]
    assert len(bench.account.inventory()["objects"]) == 1, "the zip before is removed"
    bench.destroy()
    assert bench.account.inventory() == {}


@pytest.mark.parametrize("number", range(1, CALLS + 1))
def test_an_answer_that_was_lost_is_looked_for(tmp_path: Path, number: int) -> None:
    bench = make(tmp_path)
    lost: list[str] = []

    def lose(service: str, operation: str, is_done: bool) -> None:
        if is_done and bench.account.changes == number and not lost:
            lost.append(operation)
            error = errors.ConnectionLostError("no answer")
            error.details["outcome"] = "unknown"
            raise error

    bench.account.on_call = lose
    bench.up()
    assert not bench.preview().has_changes
    assert len(lost) == 1
    bench.account.on_call = lambda service, operation, is_done: None
    bench.destroy()
    assert bench.account.inventory() == {}


def test_an_error_ends_it_and_what_was_made_is_recorded(bench: Bench) -> None:
    bench.account.images.failures = ["CONTAINER_BUILD_FAILED"] * 3
    with pytest.raises(errors.ImageBuildError) as caught:
        bench.up()
    assert caught.value.hint is not None
    assert caught.value.hint.endswith(" What was done by then is recorded: vmnest infra up goes on from there.")
    recorded = bench.recorded()
    assert recorded is not None
    assert list(recorded.resources) == ["role", "bucket", "guest_object", "image"]
    assert "image_arn" not in recorded.outputs
    assert recorded.outputs["build_bucket"] == recorded.resources["bucket"].id
    assert bench.told(FAILED) == [
        "image: version 1.0 of image demo-guest was not built: CONTAINER_BUILD_FAILED",
    ]


def test_each_step_tells_when_it_begins_and_when_it_is_done(bench: Bench) -> None:
    bench.up()
    assert [line.partition(":")[0] for line in bench.told(START)] == ["role", "bucket", "guest_object", "image"]
    assert bench.told(START)[0] == "role: there is none of that name"
    assert [line.partition(":")[0] for line in bench.told(DONE)] == ["role", "bucket", "guest_object", "image"]
    assert "image: SUCCESSFUL" in bench.told(PROGRESS)
    assert {event.stack_key for event in bench.events} == {"demo/dev"}


def test_what_was_made_is_told_by_the_id_that_it_got(tmp_path: Path) -> None:
    bench = make(tmp_path)
    made = bench.up().resources
    told = {event.resource: event.step.id for event in bench.events if event.phase == DONE and event.step is not None}
    assert told["security_group"] == made["security_group"].id
    assert told["network_connector"] == made["network_connector"].id


def test_with_nothing_to_do_nothing_is_told_and_nothing_is_changed(bench: Bench) -> None:
    bench.up()
    before = bench.account.changes
    bench.events.clear()
    bench.up()
    assert bench.account.changes == before
    assert bench.events == []
