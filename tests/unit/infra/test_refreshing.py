"""What is gone is forgotten and what has changed is recorded, but nothing that merely cannot be seen."""

from __future__ import annotations

import pytest

from tests.support.clock import FakeClock
from tests.support.infra import Bench
from vmnest import errors
from vmnest.deadline import Deadline
from vmnest.infra import refreshing
from vmnest.infra.account import Account
from vmnest.infra.state import Resource


def run(bench: Bench) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Resource → what became of its record, and the fields that are otherwise."""
    return {step.resource: (step.action, tuple(each.field for each in step.changes)) for step in bench.refresh()}


def test_nothing_new_changes_nothing(network_bench: Bench) -> None:
    before = network_bench.up()
    assert run(network_bench) == {}
    assert network_bench.recorded() == before


@pytest.mark.parametrize(
    ("resource", "output"),
    [
        ("role", "execution_role_arn"),
        ("bucket", "build_bucket"),
        ("image", "image_arn"),
        ("network_connector", "egress_network_connector_arn"),
        ("guest_object", None),
        ("security_group", None),
        ("network_operator_role", None),
    ],
)
def test_what_is_gone_is_forgotten_with_its_outputs(network_bench: Bench, resource: str, output: str | None) -> None:
    network_bench.up()
    account = network_bench.account
    things = {
        "role": lambda: account.iam.roles.pop("demo-exec"),
        "network_operator_role": lambda: account.iam.roles.pop("demo-egress-operator"),
        "bucket": account.s3.buckets.clear,
        "guest_object": lambda: next(iter(account.s3.buckets.values()))["objects"].clear(),
        "image": account.images.known.clear,
        "network_connector": account.connectors.known.clear,
        "security_group": account.ec2.groups.clear,
    }
    things[resource]()
    found = run(network_bench)
    assert found.pop(resource) == ("delete", ())
    assert found == ({"guest_object": ("delete", ())} if resource == "bucket" else {})
    state = network_bench.recorded()
    assert state is not None
    assert resource not in state.resources
    assert output not in state.outputs


def test_what_is_otherwise_is_recorded(network_bench: Bench) -> None:
    network_bench.up()
    account = network_bench.account
    (image,) = account.images.known.values()
    (connector,) = account.connectors.known.values()
    image["active"] = "7.0"
    connector["vpc"]["SubnetIds"] = ["subnet-2"]
    assert run(network_bench) == {
        "image": ("update", ("version",)),
        "network_connector": ("update", ("subnet_ids",)),
    }
    state = network_bench.recorded()
    assert state is not None
    assert (state.outputs["image_version"], state.outputs["subnet_ids"]) == ("7.0", ["subnet-2"])
    assert run(network_bench) == {}


@pytest.mark.parametrize("state", ["DELETING"])
def test_what_is_being_deleted_counts_as_gone(network_bench: Bench, state: str) -> None:
    network_bench.up()
    for things in (network_bench.account.images.known, network_bench.account.connectors.known):
        for thing in things.values():
            thing.update(state=state, looks=-100)
    assert run(network_bench) == {"image": ("delete", ()), "network_connector": ("delete", ())}


def test_what_cannot_be_looked_at_is_an_error_and_no_loss(bench: Bench) -> None:
    before = bench.up()
    bench.account.iam.is_hidden = True
    with pytest.raises(errors.AccessDeniedError):
        bench.refresh()
    assert bench.recorded() == before


def test_what_a_newer_version_has_recorded_stays(bench: Bench) -> None:
    new = Resource("of-a-newer-version", "x", True)
    state = bench.up().with_resource("new", new)
    clock = FakeClock()
    account = Account(bench.account.target(), deadline=Deadline(60, clock=clock), clock=clock)  # type: ignore[arg-type]
    after, steps = refreshing.run(state, account=account)
    assert after.resources["new"] == new
    assert steps == ()
