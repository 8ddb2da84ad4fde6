"""What is replaced stays recorded until it is removed, and outputs tell only of what is there."""

from __future__ import annotations

from vmnest.infra import ownership, recording
from vmnest.infra.state import Resource, StackState

EMPTY = StackState("demo", "dev", region="us-east-1")
ROLE = Resource("iam-role", "exec", True, {"arn": "arn:role"})
OTHER = Resource("iam-role", "other", True, {"arn": "arn:other"})


def begun(resource: Resource) -> Resource:
    return Resource(resource.kind, resource.id, True, {ownership.UNFINISHED: True})


def zip_in(bucket: str) -> Resource:
    return Resource("s3-object", "key.zip", True, {"bucket": bucket})


def test_what_is_put_in_its_place_is_told_in_the_outputs() -> None:
    state = recording.put(EMPTY, "role", ROLE)
    assert state.resources == {"role": ROLE}
    assert state.outputs == {"region": "us-east-1", "execution_role_arn": "arn:role"}


def test_what_is_begun_is_recorded_and_not_told() -> None:
    state = recording.put(EMPTY, "role", begun(ROLE))
    assert state.outputs == {}
    assert list(recording.put(state, "role", ROLE).resources) == ["role"]


def test_what_is_ours_and_replaced_is_kept_until_it_is_removed() -> None:
    state = recording.put(recording.put(EMPTY, "role", ROLE), "role", OTHER)
    assert state.resources == {"role": OTHER, "role:exec": ROLE}
    assert state.outputs["execution_role_arn"] == "arn:other"
    assert recording.drop(state, ["role:exec"]).resources == {"role": OTHER}


def test_what_was_begun_and_is_replaced_is_kept_too() -> None:
    state = recording.put(recording.put(EMPTY, "role", begun(ROLE)), "role", begun(OTHER))
    assert set(state.resources) == {"role", "role:exec"}


def test_what_was_only_reused_is_not_kept() -> None:
    reused = Resource("iam-role", "theirs", False, {"arn": "arn:theirs"})
    assert recording.put(recording.put(EMPTY, "role", reused), "role", ROLE).resources == {"role": ROLE}


def test_what_comes_back_is_recorded_once() -> None:
    state = recording.put(recording.put(EMPTY, "role", ROLE), "role", OTHER)
    assert recording.put(state, "role", ROLE).resources == {"role": ROLE, "role:other": OTHER}


def test_the_same_key_in_another_bucket_is_another_zip() -> None:
    state = EMPTY
    for bucket in ("one", "two", "three"):
        state = recording.put(state, "guest_object", zip_in(bucket))
    assert {resource.attrs["bucket"] for resource in state.resources.values()} == {"one", "two", "three"}


def test_a_group_is_known_by_its_name_until_it_has_an_id() -> None:
    group = Resource("ec2-sg", "", True, {"name": "egress", "vpc_id": "vpc-1", ownership.UNFINISHED: True})
    assert recording.told(group) == "egress"
    made = Resource("ec2-sg", "sg-1", True, {"name": "egress", "vpc_id": "vpc-1"})
    assert recording.put(recording.put(EMPTY, "security_group", group), "security_group", made).resources == {
        "security_group": made
    }
    assert recording.told(made) == "sg-1"


def test_the_outputs_of_everything() -> None:
    state = EMPTY
    for name, resource in {
        "role": ROLE,
        "bucket": Resource("s3-bucket", "b", True),
        "image": Resource("microvm-image", "arn:image", True, {"version": "2.0"}),
        "network_connector": Resource(
            "network-connector",
            "arn:connector",
            True,
            {"subnet_ids": ["s1", "s2"], "security_group_id": "sg-1", "vpc_id": "vpc-1", "unsupported_zones": ["z"]},
        ),
    }.items():
        state = recording.put(state, name, resource)
    assert state.outputs == {
        "region": "us-east-1",
        "execution_role_arn": "arn:role",
        "build_bucket": "b",
        "image_arn": "arn:image",
        "image_version": "2.0",
        "egress_network_connector_arn": "arn:connector",
        "security_group_id": "sg-1",
        "vpc_id": "vpc-1",
        "subnet_ids": ["s1", "s2"],
    }
    assert recording.drop(state, list(state.resources)).outputs == {}
