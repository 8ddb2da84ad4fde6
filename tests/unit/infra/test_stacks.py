"""Stacks from nothing to nothing: each up does what its preview says, and a second one finds nothing to do."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.infra import Bench, make_bench
from tests.support.memory_account import MemoryAccount
from vmnest import errors
from vmnest.infra import ownership, stacks
from vmnest.infra.plan import Plan
from vmnest.infra.spec import EgressConfig
from vmnest.infra.state import Resource, StackState
from vmnest.infra.steps import DONE

EVERYTHING = ("role", "bucket", "guest_object", "image")


def test_a_preview_changes_nothing_and_says_what_up_does(bench: Bench) -> None:
    assert bench.actions() == dict.fromkeys(EVERYTHING, "create")
    assert bench.account.changes == 0
    assert bench.recorded() is None


def test_up_performs_the_plan_that_it_hands_out(bench: Bench) -> None:
    plans: list[Plan] = []
    previewed = bench.preview()
    bench.up(on_plan=plans.append)
    assert plans == [previewed]


def test_the_whole_way_from_nothing_to_nothing(bench: Bench) -> None:
    state = bench.up()
    assert state.outputs == {
        "region": "us-east-1",
        "execution_role_arn": "arn:aws:iam::111122223333:role/demo-exec",
        "build_bucket": state.resources["bucket"].id,
        "image_arn": "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo-guest",
        "image_version": "1.0",
    }
    assert state == bench.recorded()
    assert bench.actions() == dict.fromkeys(EVERYTHING, "nothing")
    bench.write_guest("2\n")
    assert bench.actions() == {"role": "nothing", "bucket": "nothing", "guest_object": "delete", "image": "update"}
    assert bench.up().outputs["image_version"] == "2.0"
    assert bench.actions() == dict.fromkeys(EVERYTHING, "nothing")
    bench.destroy()
    assert bench.account.inventory() == {}
    assert bench.recorded() is None


def test_a_guest_that_is_as_it_was_before_needs_only_its_zip_again(bench: Bench) -> None:
    bench.up()
    first = bench.recorded()
    bench.write_guest("2\n")
    bench.up()
    bench.write_guest("1\n")
    again = bench.up()
    assert first is not None
    assert again.resources["guest_object"] == first.resources["guest_object"]
    assert list(again.resources) == list(EVERYTHING)
    assert again.outputs["image_version"] == "3.0"


def test_a_guest_that_cannot_be_built_and_is_put_back_leaves_nothing_to_do_but_its_zip(bench: Bench) -> None:
    bench.up()
    bench.write_guest("broken\n")
    bench.account.images.failures = ["CONTAINER_BUILD_FAILED"]
    with pytest.raises(errors.ImageBuildError):
        bench.up()
    assert len(bench.account.inventory()["objects"]) == 2
    bench.write_guest("1\n")
    assert [(step.resource, step.action) for step in bench.preview().steps if step.is_change] == [
        ("guest_object", "delete"),
    ]
    assert bench.up().outputs["image_version"] == "1.0"
    assert len(bench.account.inventory()["objects"]) == 1
    assert not bench.preview().has_changes


def test_a_connector_is_made_and_removed_with_what_it_needs(network_bench: Bench) -> None:
    state = network_bench.up()
    assert state.outputs["egress_network_connector_arn"] == state.resources["network_connector"].id
    assert state.outputs["subnet_ids"] == ["subnet-1", "subnet-2"]
    assert state.outputs["vpc_id"] == "vpc-1"
    assert state.outputs["security_group_id"] == state.resources["security_group"].id
    assert not network_bench.preview().has_changes
    network_bench.account.ec2.lingering = 3
    network_bench.destroy()
    assert network_bench.account.inventory() == {}


def test_a_connector_that_is_not_wanted_any_more_is_removed(network_bench: Bench) -> None:
    network_bench.up()
    network_bench.change(egress=None)
    removed = [step.resource for step in network_bench.preview().steps if step.action == "delete"]
    assert removed == ["network_connector", "security_group", "network_operator_role"]
    assert list(network_bench.up().resources) == list(EVERYTHING)
    assert set(network_bench.account.inventory()) == {"roles", "buckets", "objects", "images"}


@pytest.fixture
def reused(network_bench: Bench) -> Bench:
    """Everything that can be reused is there, was made by others, and is named."""
    account = network_bench.account
    role = account.iam.make("theirs")
    operator = account.iam.make("their-operator")
    account.s3.make("their-bucket")
    group = account.ec2.add_group("their-group")
    network_bench.change(
        role=replace(network_bench.stack.role, arn=role),
        bucket=replace(network_bench.stack.bucket, name="their-bucket"),
        egress=EgressConfig(
            vpc_id="vpc-1", subnet_ids=("one", "subnet-2"), security_group_id=group, operator_role_arn=operator
        ),
    )
    return network_bench


def test_what_is_reused_is_neither_changed_nor_deleted(reused: Bench) -> None:
    before = reused.account.inventory()
    actions = reused.actions()
    assert [name for name, action in actions.items() if action == "reuse"] == [
        *("role", "network_operator_role", "bucket", "security_group"),
    ]
    state = reused.up()
    assert [line for line in reused.told(DONE) if "names it" in line] == [
        "role: role.arn names it",
        "network_operator_role: network.egress.operator_role_arn names it",
        "bucket: bucket.name names it",
        "security_group: network.egress.security_group_id names it",
    ]
    assert not reused.preview().has_changes
    reused.events.clear()
    reused.up()
    assert reused.events == []
    assert {name for name, resource in state.resources.items() if resource.managed} == {
        *("guest_object", "image", "network_connector"),
    }
    steps = reused.destroy()
    assert reused.account.inventory() == before
    assert {step.resource for step in steps if step.action == "reuse"} == {
        *("role", "bucket", "security_group", "network_operator_role"),
    }


def test_a_reused_connector_needs_nothing_else(bench: Bench) -> None:
    arn = bench.account.connectors.make("theirs")
    bench.change(egress=EgressConfig(connector_arn=arn))
    state = bench.up()
    assert state.outputs["egress_network_connector_arn"] == arn
    assert "network_operator_role" not in state.resources
    bench.destroy()
    assert bench.account.inventory() == {"connectors": [arn]}


def test_ours_give_way_to_what_is_reused(bench: Bench) -> None:
    ours = bench.up()
    role = bench.account.iam.make("theirs")
    bench.account.s3.make("their-bucket")
    bench.change(role=replace(bench.stack.role, arn=role), bucket=replace(bench.stack.bucket, name="their-bucket"))
    state = bench.up()
    assert not bench.preview().has_changes
    assert state.outputs["image_version"] == "2.0"
    assert set(state.resources) == set(EVERYTHING)
    assert "demo-exec" not in bench.account.iam.roles
    assert ours.resources["bucket"].id not in bench.account.s3.buckets


def test_a_stack_of_0_1_2_is_taken_over_with_its_names(bench: Bench) -> None:
    account = bench.account
    role = account.iam.make("demo-exec")
    account.s3.make("demo-dev-0a1b2c3d")
    account.s3.buckets["demo-dev-0a1b2c3d"]["objects"]["microvm-images/demo-guest.zip"] = b"zip"
    image = account.images.make("demo-guest")
    resources = {
        "role": Resource("iam-role", "demo-exec", True, {"arn": role}),
        "bucket": Resource("s3-bucket", "demo-dev-0a1b2c3d", True),
        "guest_object": Resource("s3-object", "microvm-images/demo-guest.zip", True, {"bucket": "demo-dev-0a1b2c3d"}),
        "image": Resource("microvm-image", image, True, {"version": "1.0"}),
    }
    bench.store.save(StackState("demo", "dev", resources=resources))
    state = bench.up()
    assert state.resources["bucket"].id == "demo-dev-0a1b2c3d"
    assert state.outputs["image_version"] == "2.0"
    assert ownership.owner_of(account.images.known[image]["tags"]) == "demo/dev"
    assert not bench.preview().has_changes
    bench.destroy()
    assert account.inventory() == {}


def test_a_lost_record_is_made_again_from_names_and_tags(network_bench: Bench) -> None:
    before = network_bench.up()
    network_bench.store.remove("demo/dev")
    assert not network_bench.preview().has_changes
    assert network_bench.up() == before
    network_bench.destroy()
    assert network_bench.account.inventory() == {}


def test_two_projects_at_once_share_one_file_and_one_account(tmp_path: Path) -> None:
    account = MemoryAccount()
    benches = [make_bench(tmp_path, account=account, project=project) for project in ("one", "two")]
    errors_seen: list[BaseException] = []

    def run(bench: Bench) -> None:
        try:
            bench.up()
        except BaseException as error:
            errors_seen.append(error)
            raise

    threads = [threading.Thread(target=run, args=(bench,)) for bench in benches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors_seen == []
    assert [state.key for state in sorted(benches[0].store.all(), key=lambda state: state.key)] == [
        "one/dev",
        "two/dev",
    ]
    benches[0].destroy()
    assert not benches[1].preview().has_changes
    benches[1].destroy()
    assert account.inventory() == {}


def test_two_projects_do_not_get_at_each_others_things(tmp_path: Path) -> None:
    account = MemoryAccount()
    one, two = (make_bench(tmp_path, account=account, project=project) for project in ("one", "two"))
    one.up()
    two.change(role=replace(two.stack.role, name="one-exec"))
    with pytest.raises(
        errors.InfrastructureError, match=r"the role one-exec exists and belongs to the stack one/dev"
    ) as e:
        two.preview()
    assert e.value.hint is not None
    assert "role.arn: arn:aws:iam::111122223333:role/one-exec in sandbox.yaml" in e.value.hint


def test_a_second_up_of_a_stack_is_refused_while_one_is_at_it(bench: Bench) -> None:
    with bench.store.hold("demo/dev"), pytest.raises(errors.InfrastructureError, match=r"another vmnest"):
        bench.up()
    assert bench.account.changes == 0


def test_a_local_stack_has_no_network(network_bench: Bench) -> None:
    network_bench.kind = "local"
    with pytest.raises(errors.UsageError, match=r"network\.egress, and there are no VPCs"):
        network_bench.preview()


def test_a_local_stack_has_a_key_of_its_own(bench: Bench) -> None:
    bench.kind = "local"
    assert bench.up().key == "local:demo/dev"
    assert {event.stack_key for event in bench.events} == {"local:demo/dev"}
    bench.destroy()
    assert bench.store.all() == []


def test_a_guest_that_is_not_there_is_said_before_anything_is_asked(bench: Bench) -> None:
    bench.change_image(guest_dir=str(bench.folder / "nowhere"))
    with pytest.raises(errors.GuestImageError, match="does not exist"):
        bench.up()
    assert bench.account.calls == []


def test_the_packaged_guest_has_hooks_and_the_plan_says_that_it_is_used(bench: Bench) -> None:
    bench.change_image(guest_dir=None)
    plan = bench.preview()
    assert plan.inputs is not None
    assert plan.inputs.artifact.hooks is not None
    assert plan.inputs.artifact.hooks.port == 9000
    assert any("the guest that comes with vmnest is used" in note for note in plan.notes)


def test_refresh_forgets_what_is_gone_and_brings_outputs_up_to_date(network_bench: Bench) -> None:
    network_bench.up()
    network_bench.account.iam.roles["demo-exec"]["inline"].clear()
    del network_bench.account.iam.roles["demo-exec"]
    (image,) = network_bench.account.images.known.values()
    image["active"] = "7.0"
    steps = network_bench.refresh()
    assert {(step.resource, step.action) for step in steps} == {("role", "delete"), ("image", "update")}
    state = network_bench.recorded()
    assert state is not None
    assert "execution_role_arn" not in state.outputs
    assert state.outputs["image_version"] == "7.0"


def test_refresh_of_what_was_never_made_changes_nothing(bench: Bench) -> None:
    assert bench.refresh() == ()
    assert bench.account.calls == []
    assert bench.store.all() == []


def test_refresh_forgets_a_stack_of_which_nothing_is_left(bench: Bench) -> None:
    bench.up()
    for things in (bench.account.iam.roles, bench.account.s3.buckets, bench.account.images.known):
        things.clear()
    bench.refresh()
    assert bench.recorded() is None


def test_destroy_of_what_was_never_made_does_nothing(bench: Bench) -> None:
    assert bench.destroy() == ()
    assert bench.account.calls == []


def test_what_destroy_would_do_is_told_from_the_record_alone(bench: Bench) -> None:
    bench.up()
    bench.account.calls.clear()
    plan = stacks.plan_removal(bench.stack, target=bench.account.target(), store=bench.store)  # type: ignore[arg-type]
    assert [(step.resource, step.action) for step in plan.steps] == [
        *(("image", "delete"), ("guest_object", "delete"), ("bucket", "delete"), ("role", "delete")),
    ]
    assert bench.account.calls == []


@pytest.mark.parametrize("verb", ["preview", "up", "refresh", "destroy"])
def test_keys_of_another_account_touch_nothing(bench: Bench, verb: str) -> None:
    bench.up()
    bench.account = MemoryAccount(account_id="999988887777")
    with pytest.raises(errors.InfrastructureError, match="made in account 111122223333"):
        getattr(bench, verb)()
    assert bench.account.changes == 0


def test_throttling_and_faults_that_pass_are_outlasted(network_bench: Bench) -> None:
    count = 0

    def fail_often(service: str, operation: str, is_done: bool) -> None:
        nonlocal count
        count += 1
        if count % 5 == 0:
            kind = errors.ThrottledError if count % 10 else errors.ServiceFaultError
            raise kind("not now", operation=operation, status=500)

    network_bench.account.on_call = fail_often
    network_bench.up()
    network_bench.write_guest("2\n")
    network_bench.up()
    network_bench.destroy()
    assert network_bench.account.inventory() == {}


def test_what_the_file_says_to_no_effect_is_told_with_the_plan(bench: Bench) -> None:
    bench.change(remarks=("sandbox.yaml: this has no effect",))
    assert bench.preview().notes == ("sandbox.yaml: this has no effect",)
    told: list[str] = []
    bench.up(on_plan=lambda plan: told.extend(plan.notes))
    assert told == ["sandbox.yaml: this has no effect"]
