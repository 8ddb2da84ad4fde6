"""What holds others goes first, and what cannot be removed keeps no more than what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.infra import Bench
from vmnest import errors, registry
from vmnest.infra import removal
from vmnest.infra.state import Resource, StackState
from vmnest.infra.steps import DONE, FAILED


def test_what_holds_others_goes_first(network_bench: Bench) -> None:
    network_bench.up()
    assert [step.resource for step in network_bench.destroy()] == [
        *("network_connector", "security_group", "image", "guest_object", "bucket", "role", "network_operator_role"),
    ]
    assert [line.partition(":")[0] for line in network_bench.told(DONE)][-7:] == [
        *("network_connector", "security_group", "image", "guest_object", "bucket", "role", "network_operator_role"),
    ]


def test_what_is_gone_already_is_no_error(network_bench: Bench) -> None:
    network_bench.up()
    account = network_bench.account
    for things in (account.iam.roles, account.s3.buckets, account.ec2.groups, account.images.known):
        things.clear()
    account.connectors.known.clear()
    assert len(network_bench.destroy()) == 7
    assert network_bench.recorded() is None


def test_while_microvms_of_the_image_run_nothing_is_removed(
    network_bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "names.json"))
    registry.open_default().put(registry.Record("web", microvm_id="microvm-1"))
    network_bench.up()
    network_bench.account.images.has_microvms = True
    before = network_bench.account.inventory()
    with pytest.raises(
        errors.InfrastructureError, match=r"while MicroVMs run that were started from it: web \(microvm-1\)"
    ) as caught:
        network_bench.destroy()
    assert "vmnest rm" in str(caught.value.hint)
    assert network_bench.account.inventory() == before
    network_bench.account.images.has_microvms = False
    network_bench.destroy()


def test_a_failure_leaves_what_it_concerns_and_no_more(network_bench: Bench) -> None:
    network_bench.up()
    network_bench.account.images.refused_deletions = 1000
    with pytest.raises(errors.InfrastructureError, match="not everything of demo/dev could be removed") as caught:
        network_bench.destroy()
    assert set(network_bench.account.inventory()) == {"images", "roles"}
    assert caught.value.hint is not None
    assert "vmnest ls" in caught.value.hint
    assert caught.value.hint.endswith("try again: vmnest infra destroy")
    left = caught.value.details["left"]
    assert isinstance(left, dict)
    assert [name.partition(" ")[0] for name in left] == ["microvm-image", "iam-role"]
    assert "running microvms" in left[next(iter(left))]
    assert left["iam-role demo-exec"].startswith("is used by microvm-image")
    state = network_bench.recorded()
    assert state is not None
    assert set(state.resources) == {"image", "role"}
    assert set(state.outputs) == {"region", "image_arn", "image_version", "execution_role_arn"}
    assert len(network_bench.told(FAILED)) == 2
    network_bench.account.images.refused_deletions = 0
    network_bench.destroy()
    assert network_bench.account.inventory() == {}
    assert network_bench.recorded() is None


def test_a_connector_that_stays_keeps_its_group_and_its_role(network_bench: Bench) -> None:
    network_bench.up()

    def deny(service: str, operation: str, is_done: bool) -> None:
        if operation == "DeleteNetworkConnector":
            raise errors.AccessDeniedError("not allowed", operation=operation, status=403)

    network_bench.account.on_call = deny
    with pytest.raises(errors.InfrastructureError):
        network_bench.destroy()
    assert set(network_bench.account.inventory()) == {"connectors", "groups", "roles"}
    assert list(network_bench.account.iam.roles) == ["demo-egress-operator"]


def test_what_a_newer_version_has_recorded_is_left_and_said(bench: Bench) -> None:
    bench.up()
    state = bench.recorded()
    assert state is not None
    bench.store.save(state.with_resource("new", Resource("of-a-newer-version", "x", True)))
    with pytest.raises(errors.InfrastructureError, match="this version of vmnest does not know what it is"):
        bench.destroy()
    assert bench.account.inventory() == {}
    left = bench.recorded()
    assert left is not None
    assert list(left.resources) == ["new"]


def test_the_plan_says_what_goes_and_what_stays() -> None:
    resources = {
        "role": Resource("iam-role", "theirs", False),
        "image": Resource("microvm-image", "arn:image", True),
        "role:old": Resource("iam-role", "old", True),
        "bucket": Resource("s3-bucket", "b", True),
    }
    steps = removal.plan(StackState("demo", "dev", resources=resources)).steps
    assert [(step.resource, step.action, step.id) for step in steps] == [
        ("image", "delete", "arn:image"),
        ("bucket", "delete", "b"),
        ("role", "reuse", "theirs"),
        ("role", "delete", "old"),
    ]
    assert [step.reason for step in steps][:2] == [
        "was made for this stack",
        "was made for this stack; all that is in it goes with it",
    ]
