"""Plans are pure: facts and records in, steps out."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from vmnest import errors
from vmnest.control.connectors import Connector
from vmnest.control.images import Image, ImageVersion
from vmnest.infra import documents, naming, ownership, plan, recording
from vmnest.infra.account import Bucket, Role, SecurityGroup, Subnet
from vmnest.infra.facts import Artifact, ConnectorFacts, Facts, ImageFacts, Inputs, NetworkFacts
from vmnest.infra.resources import artifact, bucket, image, operator_role, role
from vmnest.infra.spec import EgressConfig, Stack
from vmnest.infra.state import Resource, StackState

STACK = Stack(project="demo", stack="dev", egress=EgressConfig(name="egress", vpc_id="vpc-1"))
STATE = StackState("demo", "dev", region="us-east-1")
TAGS = ownership.tags_of(STACK)
NETWORK = NetworkFacts("vpc-1", (Subnet("subnet-1", "vpc-1", "use1-az1"),), notes=("all are public",))
NOTHING = Facts(account_id="111122223333", region="us-east-1", base_image_arn="arn:base", network=NETWORK)
CONNECTOR = "arn:aws:lambda:us-east-1:111122223333:network-connector:nc-1"


def make_inputs(**changes: Any) -> Inputs:
    return replace(Inputs(STACK, NOTHING, STATE, Artifact("ab" * 32, size=2048)), **changes)


def settled() -> Inputs:
    """Everything is there as it is wanted."""
    empty = make_inputs()
    exec_role, operator = role.wish(empty), operator_role.wish(empty)
    name = bucket.name(empty)
    spec = image.spec(empty)
    version = ImageVersion(
        image_arn=image.arn(empty),
        image_version="1.0",
        state="SUCCESSFUL",
        status="ACTIVE",
        build_role_arn=spec.build_role_arn,
        code_uri=spec.code_uri,
        base_image_arn=spec.base_image_arn,
    )
    when = datetime(2026, 1, 1, tzinfo=timezone.utc)
    found = Image(version.image_arn, spec.name, "CREATED", when, latest_active_version="1.0", tags=TAGS)
    facts = replace(
        NOTHING,
        role=Role(exec_role.name, role.arn(empty), TAGS, exec_role.trust, dict([exec_role.policy])),
        operator_role=Role(operator.name, operator_role.arn(empty), TAGS, operator.trust, dict([operator.policy])),
        bucket=Bucket(
            name,
            region="us-east-1",
            tags=TAGS,
            is_private=True,
            ownership="BucketOwnerEnforced",
            encryption="AES256",
            versioning="Enabled",
            policy=documents.tls_only(name, partition="aws", present={}),
        ),
        has_artifact=True,
        image=ImageFacts(found, version, version),
        group=SecurityGroup("sg-1", "egress", "vpc-1", TAGS),
        connector=ConnectorFacts(
            Connector(
                CONNECTOR,
                "nc-1",
                "egress",
                "ACTIVE",
                operator_role_arn=operator_role.arn(empty),
                subnet_ids=("subnet-1",),
                security_group_ids=("sg-1",),
            ),
            TAGS,
        ),
    )
    return replace(empty, facts=facts)


def actions(inputs: Inputs) -> dict[str, str]:
    return {step.resource: step.action for step in plan.make(inputs).steps}


def test_from_nothing_everything_is_made_in_an_order_that_works() -> None:
    made = plan.make(make_inputs())
    assert [(step.resource, step.action) for step in made.steps] == [
        ("role", "create"),
        ("network_operator_role", "create"),
        ("bucket", "create"),
        ("guest_object", "create"),
        ("image", "create"),
        ("security_group", "create"),
        ("network_connector", "create"),
    ]
    assert made.has_changes
    assert made.stack_key == "demo/dev"


def test_with_everything_there_nothing_is_to_do() -> None:
    made = plan.make(settled())
    assert {step.action for step in made.steps} == {"nothing"}
    assert not made.has_changes


FACT_OF = {
    "role": "role",
    "network_operator_role": "operator_role",
    "bucket": "bucket",
    "image": "image",
    "security_group": "group",
    "network_connector": "connector",
}


@pytest.mark.parametrize("resource", FACT_OF)
def test_what_alone_is_missing_is_made_and_nothing_else(resource: str) -> None:
    inputs = settled()
    found = actions(replace(inputs, facts=replace(inputs.facts, **{FACT_OF[resource]: None})))
    assert found.pop(resource) == "create"
    if resource == "security_group":
        assert found.pop("network_connector") == "update"
    assert set(found.values()) == {"nothing"}


@pytest.mark.parametrize("resource", [name for name in FACT_OF if name != "image"])
def test_what_is_of_another_stack_is_refused(resource: str) -> None:
    inputs = settled()
    others = ownership.tags_of(Stack(project="other"))
    found: Any = replace(getattr(inputs.facts, FACT_OF[resource]), tags=others)
    with pytest.raises(errors.InfrastructureError, match="exists and belongs to the stack other/dev"):
        plan.make(replace(inputs, facts=replace(inputs.facts, **{FACT_OF[resource]: found})))


def test_a_rebuild_concerns_the_image_alone() -> None:
    found = actions(replace(settled(), rebuild=True))
    assert found.pop("image") == "update"
    assert set(found.values()) == {"nothing"}


def test_another_guest_is_uploaded_and_built() -> None:
    inputs = settled()
    changed = replace(inputs, artifact=Artifact("cd" * 32), facts=replace(inputs.facts, has_artifact=False))
    made = plan.make(changed)
    assert {step.resource: step.action for step in made.steps if step.is_change} == {
        "guest_object": "create",
        "image": "update",
    }
    (change,) = next(step for step in made.steps if step.resource == "image").changes
    assert (change.field, change.old, change.new) == ("guest", "abababababab", "cdcdcdcdcdcd")


def test_notes_of_the_caller_and_of_the_network_come_with_the_plan() -> None:
    assert plan.make(make_inputs(), notes=("the packaged guest",)).notes == ("the packaged guest", "all are public")


def test_what_was_replaced_is_removed_in_the_end_and_what_holds_it_first() -> None:
    inputs = settled()
    state = STATE
    for name, resource in {
        "role": Resource("iam-role", "old-exec", True),
        "guest_object": Resource("s3-object", "old.zip", True, {"bucket": "old"}),
        "bucket": Resource("s3-bucket", "theirs", False),
        "network_connector": Resource("network-connector", "arn:old", True),
        "security_group": Resource("ec2-sg", "sg-old", True),
    }.items():
        state = recording.put(state, name, resource)
    made = plan.make(replace(inputs, state=state))
    assert [(step.resource, step.id) for step in made.steps if step.action == "delete"] == [
        ("network_connector", "arn:old"),
        ("security_group", "sg-old"),
        ("guest_object", "old.zip"),
        ("role", "old-exec"),
    ]
    assert {step.reason for step in made.steps if step.action == "delete"} == {"has been replaced"}


def test_what_is_recorded_and_is_the_very_thing_is_kept() -> None:
    inputs = settled()
    state = STATE
    for name, resource in {
        "role": Resource("iam-role", inputs.stack.role.name, True),
        "guest_object": artifact.record(inputs),
        "image": Resource("microvm-image", image.arn(inputs), True),
        "network_connector": Resource("network-connector", CONNECTOR, True),
        "security_group": Resource("ec2-sg", "sg-1", True),
    }.items():
        state = recording.put(state, name, resource)
    assert not plan.make(replace(inputs, state=state)).has_changes


def test_the_same_zip_in_another_bucket_is_another_one() -> None:
    inputs = settled()
    old = Resource("s3-object", artifact.key(inputs), True, {"bucket": "old"})
    made = plan.make(replace(inputs, state=recording.put(STATE, "guest_object", old)))
    assert [(step.resource, step.target) for step in made.steps if step.is_change] == [("guest_object", old)]


def test_what_is_not_wanted_any_more_is_removed_if_it_is_ours() -> None:
    inputs = settled()
    ours = Resource("network-connector", CONNECTOR, True)
    theirs = Resource("ec2-sg", "sg-theirs", False)
    state = recording.put(recording.put(STATE, "network_connector", ours), "security_group", theirs)
    made = plan.make(replace(inputs, stack=replace(STACK, egress=None), state=state))
    (removal,) = (step for step in made.steps if step.is_change)
    assert (removal.resource, removal.reason) == ("network_connector", "is not wanted any more")
    assert made.forgets == ("security_group",)


def test_what_has_vanished_is_forgotten_and_not_removed() -> None:
    inputs = settled()
    state = recording.put(STATE, "role", Resource("iam-role", "old-exec", True))
    vanished = replace(inputs.facts, vanished=frozenset({"role"}))
    made = plan.make(replace(inputs, facts=vanished, state=state))
    assert not made.has_changes
    assert made.forgets == ("role",)


def test_a_connector_that_is_made_anew_under_its_name_is_not_removed_beside() -> None:
    inputs = settled()
    assert inputs.facts.connector is not None
    failed = replace(inputs.facts.connector, connector=inputs.facts.connector.connector._replace(state="FAILED"))
    state = recording.put(STATE, "network_connector", Resource("network-connector", CONNECTOR, True))
    made = plan.make(replace(inputs, facts=replace(inputs.facts, connector=failed), state=state))
    assert [(step.resource, step.action) for step in made.steps if step.is_change] == [("network_connector", "create")]


def test_roles_that_do_not_exist_yet_are_known_by_the_arn_that_they_will_have() -> None:
    inputs = settled()
    missing = replace(inputs, facts=replace(inputs.facts, role=None, operator_role=None))
    found = actions(missing)
    assert found["image"] == found["network_connector"] == "nothing"
    assert role.arn(missing) == naming.role_arn("agent-sandbox-exec", partition="aws", account_id="111122223333")
