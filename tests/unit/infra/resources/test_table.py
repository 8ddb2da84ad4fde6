"""Every kind of resource has its place in the order of making, and is recorded before it is made."""

from __future__ import annotations

from tests.support.infra import Bench
from vmnest.infra import naming, ownership
from vmnest.infra.resources import table


def test_every_slot_is_there_once_and_every_kind_too() -> None:
    names = [slot.name for slot in table.SLOTS]
    kinds = [kind.name for kind in table.KINDS]
    assert len(set(names)) == len(names) == 7
    assert len(set(kinds)) == len(kinds) == 6
    assert {held for kind in table.KINDS for held in kind.holds} <= set(names)


def test_slots_and_kinds_are_found_by_name() -> None:
    assert table.slot(naming.IMAGE).name == naming.IMAGE
    found = table.kind(naming.IMAGE_KIND)
    assert found is not None
    assert found.name == naming.IMAGE_KIND
    assert table.kind("of-a-newer-version") is None


def test_each_step_is_of_the_kind_that_is_removed_by_that_name(network_bench: Bench) -> None:
    plan = network_bench.preview()
    assert [step.resource for step in plan.steps] == [slot.name for slot in table.SLOTS]
    assert {step.kind for step in plan.steps} == {kind.name for kind in table.KINDS}


def test_before_a_thing_is_made_it_is_recorded_so_that_it_can_be_found(network_bench: Bench) -> None:
    plan = network_bench.preview()
    assert plan.inputs is not None
    for step in plan.steps:
        begun = table.unfinished(step, plan.inputs)
        assert ownership.is_unfinished(begun)
        assert begun.managed
        assert begun.kind == step.kind
        assert begun.id or begun.attrs["name"], step.resource
