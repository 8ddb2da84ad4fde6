"""The role that makes network interfaces may do nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.infra import Bench
from vmnest import errors
from vmnest.infra.resources.operator_role import POLICY

KEY = r"network\.egress\.operator_role_arn"


def test_it_makes_interfaces_and_may_nothing_else(network_bench: Bench) -> None:
    network_bench.up()
    role = network_bench.account.iam.roles["demo-egress-operator"]
    assert list(role["inline"]) == [POLICY]
    actions = [statement["Action"] for statement in json.loads(role["inline"][POLICY])["Statement"]]
    assert actions == [["ec2:CreateNetworkInterface"], ["ec2:CreateTags"]]


def test_one_to_reuse_must_exist(network_bench: Bench) -> None:
    assert network_bench.stack.egress is not None
    arn = "arn:aws:iam::111122223333:role/theirs"
    network_bench.change(egress=replace(network_bench.stack.egress, operator_role_arn=arn))
    with pytest.raises(errors.InfrastructureError, match=f"{KEY} names a role that does not exist"):
        network_bench.preview()


def test_one_of_that_name_that_others_made_is_left_alone(network_bench: Bench) -> None:
    network_bench.account.iam.make("demo-egress-operator")
    with pytest.raises(errors.InfrastructureError, match="demo-egress-operator exists") as caught:
        network_bench.preview()
    assert caught.value.hint is not None
    assert "network.egress.operator_role_arn" in caught.value.hint
