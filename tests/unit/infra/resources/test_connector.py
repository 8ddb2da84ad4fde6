"""Zones without MicroVMs are left out with a note, and changes of the network reach the connector."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.infra import Bench
from vmnest import errors
from vmnest.infra.spec import EgressConfig
from vmnest.infra.steps import NOTE, Step


def step(bench: Bench) -> Step:
    return next(step for step in bench.preview().steps if step.resource == "network_connector")


def with_egress(bench: Bench, **changes: object) -> None:
    assert bench.stack.egress is not None
    bench.change(egress=replace(bench.stack.egress, **changes))  # type: ignore[arg-type]


def connector(bench: Bench) -> dict[str, object]:
    (found,) = bench.account.connectors.known.values()
    return dict(found)


def subnets(bench: Bench) -> list[str]:
    vpc = connector(bench)["vpc"]
    assert isinstance(vpc, dict)
    return list(vpc["SubnetIds"])


def test_zones_without_microvms_are_left_out_with_a_note(network_bench: Bench) -> None:
    network_bench.account.ec2.add_subnet("subnet-3", zone_id="use1-az3")
    network_bench.account.ec2.add_subnet("subnet-4", zone_id="use1-az4")
    network_bench.account.connectors.unsupported_zones = {"use1-az3", "use1-az1"}
    network_bench.up()
    assert subnets(network_bench) == ["subnet-2", "subnet-4"]
    assert network_bench.told(NOTE) == [
        "network_connector: zone use1-az1 has no MicroVMs: its subnets are left out",
        "network_connector: zone use1-az3 has no MicroVMs: its subnets are left out",
    ]
    assert not network_bench.preview().has_changes


def test_a_zone_that_was_left_out_stays_so_also_of_subnets_that_are_named(network_bench: Bench) -> None:
    network_bench.account.connectors.unsupported_zones = {"use1-az1"}
    with_egress(network_bench, subnet_ids=("subnet-1", "two"))
    network_bench.up()
    assert subnets(network_bench) == ["subnet-2"]
    assert not network_bench.preview().has_changes


def test_a_zone_that_is_refused_only_later_is_left_out_as_well(network_bench: Bench) -> None:
    reason = "Availability zone use1-az1 is not available for compute type MicroVm"
    network_bench.account.connectors.late_failures = [reason]
    network_bench.up()
    assert subnets(network_bench) == ["subnet-2"]


def test_no_zone_at_all_is_an_error_that_says_what_to_do(network_bench: Bench) -> None:
    network_bench.account.connectors.unsupported_zones = {"use1-az1", "use1-az2"}
    with pytest.raises(errors.ConnectorError, match=r"none of the subnets .*left out: use1-az1, use1-az2") as caught:
        network_bench.up()
    assert caught.value.hint is not None
    network_bench.destroy()
    assert network_bench.account.inventory() == {}


def test_one_that_fails_tells_why_and_is_made_anew_by_the_next_up(network_bench: Bench) -> None:
    network_bench.account.connectors.late_failures = ["InsufficientRolePermissions"]
    with pytest.raises(errors.ConnectorError, match="InsufficientRolePermissions"):
        network_bench.up()
    assert step(network_bench).reason == "the one of that name has failed: InsufficientRolePermissions"
    network_bench.up()
    assert connector(network_bench)["state"] == "ACTIVE"
    assert not network_bench.preview().has_changes


def test_other_subnets_are_an_update(network_bench: Bench) -> None:
    network_bench.up()
    with_egress(network_bench, subnet_ids=("two",))
    found = step(network_bench)
    assert [(change.field, change.old, change.new) for change in found.changes] == [
        ("subnets", "subnet-1, subnet-2", "subnet-2"),
    ]
    network_bench.up()
    assert subnets(network_bench) == ["subnet-2"]
    assert not network_bench.preview().has_changes
    assert len(network_bench.account.connectors.known) == 1


def test_a_group_that_is_made_anew_is_given_to_it(network_bench: Bench) -> None:
    network_bench.up()
    network_bench.account.ec2.groups.clear()
    assert [change.field for change in step(network_bench).changes] == ["security group"]
    state = network_bench.up()
    vpc = connector(network_bench)["vpc"]
    assert isinstance(vpc, dict)
    assert vpc["SecurityGroupIds"] == [state.resources["security_group"].id]


def test_subnets_that_come_later_change_nothing_if_none_are_named(network_bench: Bench) -> None:
    network_bench.up()
    network_bench.account.ec2.add_subnet("subnet-3", zone_id="use1-az3")
    assert not network_bench.preview().has_changes


def test_tags_that_are_missing_are_set_without_a_change_of_the_network(network_bench: Bench) -> None:
    network_bench.up()
    network_bench.change(tags={"team": "b"})
    assert [change.field for change in step(network_bench).changes] == ["tag team"]
    network_bench.account.calls.clear()
    network_bench.up()
    assert "lambda-core.UpdateNetworkConnector" not in network_bench.account.calls
    assert not network_bench.preview().has_changes


def test_one_that_is_being_deleted_is_waited_for(network_bench: Bench) -> None:
    state = network_bench.up()
    network_bench.account.connectors.DeleteNetworkConnector(state.resources["network_connector"].id)
    assert step(network_bench).reason == "the one of that name is being deleted"
    network_bench.up()
    assert connector(network_bench)["state"] == "ACTIVE"


@pytest.mark.parametrize("state", ["FAILED", "DELETING"])
def test_one_to_reuse_must_be_usable(bench: Bench, state: str) -> None:
    arn = bench.account.connectors.make("theirs")
    bench.account.connectors.known[arn]["state"] = state
    bench.change(egress=EgressConfig(connector_arn=arn))
    with pytest.raises(errors.InfrastructureError, match=state):
        bench.preview()


def test_one_to_reuse_must_exist(bench: Bench) -> None:
    bench.change(egress=EgressConfig(connector_arn="arn:aws:lambda:us-east-1:111122223333:network-connector:nc-9"))
    with pytest.raises(errors.InfrastructureError, match="names a network connector that does not exist"):
        bench.preview()


def test_one_of_that_name_that_others_made_is_left_alone(network_bench: Bench) -> None:
    arn = network_bench.account.connectors.make("demo-egress")
    with pytest.raises(errors.InfrastructureError, match="the network connector demo-egress exists") as caught:
        network_bench.preview()
    assert caught.value.hint is not None
    assert f"network.egress.connector_arn: {arn}" in caught.value.hint


def test_another_name_makes_another_and_removes_the_one_before(network_bench: Bench) -> None:
    network_bench.up()
    with_egress(network_bench, name="other")
    network_bench.up()
    assert connector(network_bench)["name"] == "other"
    assert [group["GroupName"] for group in network_bench.account.ec2.groups.values()] == ["other"]
    assert sorted(network_bench.account.iam.roles) == ["demo-exec", "other-operator"]
    assert not network_bench.preview().has_changes
