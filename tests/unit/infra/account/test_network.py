"""A security group whose interfaces linger is deleted once they are gone, or given up with a word."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.memory_account import MemoryAccount
from vmnest import errors
from vmnest.deadline import Deadline
from vmnest.infra.account.network import Network, SecurityGroup, Subnet


@pytest.fixture
def memory() -> MemoryAccount:
    return MemoryAccount()


@pytest.fixture
def network(memory: MemoryAccount, fake_clock: FakeClock) -> Network:
    ec2: Any = memory.ec2
    return Network(ec2, deadline=Deadline(3600, clock=fake_clock), clock=fake_clock)


def test_vpcs_are_found(memory: MemoryAccount, network: Network) -> None:
    memory.ec2.add_vpc("vpc-2")
    assert network.default_vpc() == "vpc-1"
    assert network.has_vpc("vpc-2")
    assert not network.has_vpc("vpc-3")
    memory.ec2.vpcs["vpc-1"]["isDefault"] = "false"
    assert network.default_vpc() is None


def test_subnets_are_found_by_their_vpc_and_by_their_ids(memory: MemoryAccount, network: Network) -> None:
    memory.ec2.add_subnet("subnet-0", zone_id="use1-az3", vpc_id="vpc-2", is_public=True)
    assert [subnet.id for subnet in network.subnets("vpc-1")] == ["subnet-1", "subnet-2"]
    assert network.subnets_by_id(["subnet-0", "subnet-9"]) == (
        Subnet("subnet-0", "vpc-2", "use1-az3", "us-east-13", name="", is_public=True),
    )
    memory.calls.clear()
    assert network.subnets_by_id([]) == ()
    assert memory.calls == []


def test_a_group_is_made_found_tagged_and_deleted(memory: MemoryAccount, network: Network) -> None:
    made = network.create_group("g", vpc_id="vpc-1", description="d", tags={"a": "1"})
    assert made == SecurityGroup(made.id, "g", "vpc-1", {"a": "1"})
    assert network.group(made.id) == network.group_named("g", vpc_id="vpc-1") == made
    assert network.group_named("g", vpc_id="vpc-2") is None
    network.tag(made.id, {"b": "2"})
    found = network.group(made.id)
    assert found is not None
    assert found.tags == {"a": "1", "b": "2"}
    network.delete_group(made.id)
    assert network.group(made.id) is None
    network.delete_group(made.id)


def test_a_group_of_that_name_is_returned_for_its_tags_to_be_judged(memory: MemoryAccount, network: Network) -> None:
    theirs = memory.ec2.add_group("g")
    assert network.create_group("g", vpc_id="vpc-1", description="d", tags={"a": "1"}).id == theirs


def test_a_group_whose_interfaces_linger_is_deleted_when_they_are_gone(
    memory: MemoryAccount, network: Network, fake_clock: FakeClock
) -> None:
    group = memory.ec2.add_group("g")
    memory.ec2.lingering = 5
    network.delete_group(group)
    assert memory.inventory() == {}
    assert len(fake_clock.sleeps) == 5


def test_a_group_that_stays_in_use_is_given_up(memory: MemoryAccount, network: Network, fake_clock: FakeClock) -> None:
    group = memory.ec2.add_group("g")
    memory.ec2.lingering = 10_000
    with pytest.raises(errors.ValidationError, match="dependent object"):
        network.delete_group(group)
    assert 600 < fake_clock.monotonic() <= 1200


class Careless:
    """An EC2 that knows nothing of the filters it is given, as some emulators do."""

    def __init__(self, memory: MemoryAccount) -> None:
        self._ec2 = memory.ec2

    def pages(self, operation: str, params: Any, *, deadline: Deadline, items: str) -> Any:
        return self._ec2.pages(operation, {**params, "Filters": []}, deadline=deadline, items=items)


def test_only_what_was_asked_for_is_taken_from_an_answer(memory: MemoryAccount, fake_clock: FakeClock) -> None:
    memory.ec2.add_vpc("vpc-2")
    memory.ec2.add_group("default")
    group = memory.ec2.add_group("g", vpc_id="vpc-2")
    careless: Any = Careless(memory)
    network = Network(careless, deadline=Deadline(3600, clock=fake_clock), clock=fake_clock)
    assert network.group(group) == network.group_named("g", vpc_id="vpc-2") == SecurityGroup(group, "g", "vpc-2")
    assert network.group("sg-999") is None
    assert network.group_named("g", vpc_id="vpc-1") is None
    assert not network.has_vpc("vpc-3")
    assert [subnet.id for subnet in network.subnets_by_id(["subnet-2", "subnet-9"])] == ["subnet-2"]
