"""The network that is found is the one that was named, or the default one; a misnamed part of it is an error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.infra import Bench
from vmnest import errors
from vmnest.infra.facts import NetworkFacts
from vmnest.infra.spec import EgressConfig
from vmnest.infra.state import Resource, StackState


def network(bench: Bench, egress: EgressConfig) -> NetworkFacts:
    bench.change(egress=egress)
    plan = bench.preview()
    assert plan.inputs is not None
    assert plan.inputs.facts.network is not None
    return plan.inputs.facts.network


def ids(found: NetworkFacts) -> list[str]:
    return [subnet.id for subnet in found.subnets]


def test_nothing_is_asked_of_a_network_that_is_not_wanted(bench: Bench) -> None:
    bench.preview()
    assert not any(call.startswith(("ec2.", "lambda-core.")) for call in bench.account.calls)


def test_without_a_vpc_it_is_the_default_one(bench: Bench) -> None:
    found = network(bench, EgressConfig(operator_role_arn=bench.account.iam.make("theirs")))
    assert (found.vpc_id, ids(found)) == ("vpc-1", ["subnet-1", "subnet-2"])


def test_without_a_default_vpc_the_user_is_told_to_name_one(bench: Bench) -> None:
    bench.account.ec2.vpcs.clear()
    with pytest.raises(errors.InfrastructureError, match="no default VPC in us-east-1") as caught:
        network(bench, EgressConfig())
    assert caught.value.hint == "Set network.egress.vpc_id."


def test_a_vpc_that_is_not_there_is_named(bench: Bench) -> None:
    with pytest.raises(errors.InfrastructureError, match="a VPC that does not exist in us-east-1: vpc-9"):
        network(bench, EgressConfig(vpc_id="vpc-9"))


def test_the_vpc_is_that_of_the_subnets_or_of_the_group_that_are_named(bench: Bench) -> None:
    bench.account.ec2.add_vpc("vpc-2")
    bench.account.ec2.add_subnet("subnet-9", zone_id="use1-az1", vpc_id="vpc-2")
    group = bench.account.ec2.add_group("theirs", vpc_id="vpc-2")
    assert network(bench, EgressConfig(subnet_ids=("subnet-9",))).vpc_id == "vpc-2"
    assert ids(network(bench, EgressConfig(security_group_id=group))) == ["subnet-9"]


def test_subnets_are_taken_by_id_and_by_name_each_once(bench: Bench) -> None:
    bench.account.ec2.add_subnet("subnet-3", zone_id="use1-az3", name="two")
    assert ids(network(bench, EgressConfig(subnet_ids=("subnet-1", "two", "subnet-2")))) == [
        *("subnet-1", "subnet-2", "subnet-3"),
    ]


def test_a_subnet_that_is_not_there_is_named(bench: Bench) -> None:
    with pytest.raises(errors.InfrastructureError, match="names a subnet that vpc-1 does not have: nowhere"):
        network(bench, EgressConfig(subnet_ids=("nowhere",)))


def test_subnets_of_two_vpcs_are_refused(bench: Bench) -> None:
    bench.account.ec2.add_vpc("vpc-2")
    bench.account.ec2.add_subnet("subnet-9", zone_id="use1-az1", vpc_id="vpc-2")
    with pytest.raises(errors.InfrastructureError, match="subnet-9 belongs to vpc-2"):
        network(bench, EgressConfig(subnet_ids=("subnet-1", "subnet-9")))


def test_more_subnets_than_a_connector_takes_are_refused(bench: Bench) -> None:
    for number in range(20):
        bench.account.ec2.add_subnet(f"subnet-x{number}", zone_id="use1-az1", name="many")
    with pytest.raises(errors.InfrastructureError, match="20 subnets are too many: a connector has at most 16"):
        network(bench, EgressConfig(subnet_ids=("many",)))


def test_of_more_than_that_as_many_as_it_takes_are_chosen(bench: Bench) -> None:
    for number in range(20):
        bench.account.ec2.add_subnet(f"subnet-x{number:02}", zone_id="use1-az1", name="many")
    bench.change(egress=EgressConfig(vpc_id="vpc-1"))
    assert len(bench.up().outputs["subnet_ids"]) == 16
    assert not bench.preview().has_changes


def test_private_subnets_are_preferred_and_of_public_ones_the_user_is_told(bench: Bench) -> None:
    bench.account.ec2.add_subnet("subnet-3", zone_id="use1-az3", is_public=True)
    found = network(bench, EgressConfig(vpc_id="vpc-1"))
    assert (ids(found), found.notes) == (["subnet-1", "subnet-2"], ())
    for subnet in bench.account.ec2.subnets.values():
        subnet["MapPublicIpOnLaunch"] = True
    found = network(bench, EgressConfig(vpc_id="vpc-1"))
    assert len(found.subnets) == 3
    assert "only with a NAT gateway" in found.notes[0]


def test_a_vpc_without_subnets_is_said(bench: Bench) -> None:
    bench.account.ec2.add_vpc("vpc-2")
    with pytest.raises(errors.InfrastructureError, match="vpc-2 has no subnet that can be used"):
        network(bench, EgressConfig(vpc_id="vpc-2"))


def test_recorded_things_that_do_not_exist_any_more_are_known(bench: Bench) -> None:
    there = bench.account.iam.make("there")
    resources = {
        "role": Resource("iam-role", "gone", True),
        "role:there": Resource("iam-role", "there", True, {"arn": there}),
        "bucket": Resource("s3-bucket", "theirs", False),
        "new": Resource("of-a-newer-version", "x", True),
    }
    bench.store.save(StackState("demo", "dev", resources=resources))
    bench.change(bucket=replace(bench.stack.bucket, name="demo"))
    bench.account.s3.make("demo")
    plan = bench.preview()
    assert plan.inputs is not None
    assert plan.inputs.facts.vanished == {"role"}
