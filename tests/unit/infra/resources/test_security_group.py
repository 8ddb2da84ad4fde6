"""The group is in the right VPC, and another VPC gets another group, with the old one removed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.infra import Bench
from vmnest import errors
from vmnest.infra.steps import Step


def step(bench: Bench) -> Step:
    return next(step for step in bench.preview().steps if step.resource == "security_group")


def reuse(bench: Bench, group_id: str) -> None:
    assert bench.stack.egress is not None
    bench.change(egress=replace(bench.stack.egress, security_group_id=group_id))


def test_it_is_made_in_the_vpc_with_a_name_and_the_stacks_tags(network_bench: Bench) -> None:
    state = network_bench.up()
    (group,) = network_bench.account.ec2.groups.values()
    tags = {tag["Key"]: tag["Value"] for tag in group["Tags"]}
    assert (group["VpcId"], tags["Name"], tags["vmnest:project"]) == ("vpc-1", "demo-egress", "demo")
    assert state.resources["security_group"].attrs == {"name": "demo-egress", "vpc_id": "vpc-1"}


def test_tags_that_are_missing_are_set(network_bench: Bench) -> None:
    network_bench.up()
    network_bench.change(tags={"team": "b"})
    assert (step(network_bench).action, step(network_bench).reason) == ("update", "has not all tags")
    network_bench.up()
    assert step(network_bench).action == "nothing"


def test_one_to_reuse_must_exist_in_the_vpc(network_bench: Bench) -> None:
    reuse(network_bench, "sg-nowhere")
    with pytest.raises(errors.InfrastructureError, match="names a security group that does not exist: sg-nowhere"):
        network_bench.preview()
    reuse(network_bench, network_bench.account.ec2.add_group("theirs", vpc_id="vpc-2"))
    with pytest.raises(errors.InfrastructureError, match="a security group of vpc-2, and the connector"):
        network_bench.preview()


def test_one_of_that_name_that_others_made_is_left_alone(network_bench: Bench) -> None:
    group = network_bench.account.ec2.add_group("demo-egress")
    with pytest.raises(errors.InfrastructureError, match="the security group demo-egress in vpc-1 exists") as caught:
        network_bench.preview()
    assert caught.value.hint is not None
    assert f"network.egress.security_group_id: {group}" in caught.value.hint


def test_another_vpc_gets_a_group_of_its_own_and_the_old_one_is_removed(network_bench: Bench) -> None:
    network_bench.up()
    network_bench.account.ec2.add_vpc("vpc-2")
    network_bench.account.ec2.add_subnet("subnet-9", zone_id="use1-az1", vpc_id="vpc-2")
    assert network_bench.stack.egress is not None
    network_bench.change(egress=replace(network_bench.stack.egress, vpc_id="vpc-2"))
    network_bench.up()
    (group,) = network_bench.account.ec2.groups.values()
    assert group["VpcId"] == "vpc-2"
    assert not network_bench.preview().has_changes
