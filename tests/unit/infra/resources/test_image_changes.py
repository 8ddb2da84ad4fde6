"""What the service fills in is no difference; each true one is named, and no variable's value shown."""

from __future__ import annotations

from typing import Any

import pytest

from vmnest.control.image_specs import Hooks, ImageSpec
from vmnest.control.images import ImageVersion
from vmnest.infra import naming
from vmnest.infra.resources import image_changes
from vmnest.infra.steps import Change

INTERNET = "arn:aws:lambda:us-east-1:aws:network-connector:aws-network-connector:INTERNET_EGRESS"
SPEC = ImageSpec(name="guest", code_uri="s3://b/k.zip", build_role_arn="arn:role", base_image_arn="arn:base")
# As the service echoes a version that was made of SPEC.
VERSION = ImageVersion(
    image_arn="arn:image",
    image_version="1.0",
    state="SUCCESSFUL",
    status="ACTIVE",
    memory_mib=2048,
    base_image_arn="arn:base",
    base_image_version="1.0",
    build_role_arn="arn:role",
    code_uri="s3://b/k.zip",
    egress_connectors=(INTERNET,),
)


def find(version: ImageVersion = VERSION, spec: ImageSpec = SPEC, **options: Any) -> tuple[Change, ...]:
    return image_changes.find(version, spec, **options)


def test_what_the_service_fills_in_is_no_difference() -> None:
    assert find() == ()


HOOKS = Hooks(port=9000)
ECHOED_HOOKS = {
    **HOOKS.to_wire(),
    "microvmHooks": {**HOOKS.to_wire()["microvmHooks"], "terminate": "ENABLED"},  # type: ignore[dict-item]
}


@pytest.mark.parametrize(
    ("version", "spec"),
    [
        ({"base_image_version": "1.0"}, {"base_image_version": "1"}),
        ({"base_image_version": "2"}, {"base_image_version": "2.0"}),
        ({"base_image_version": "7.0"}, {}),
        ({"base_image_arn": "arn:older"}, {}),
        ({"memory_mib": None}, {"memory_mib": 2048}),
        ({"memory_mib": 2048}, {"memory_mib": None}),
        ({"egress_connectors": ()}, {"egress_connectors": (INTERNET,)}),
        ({"hooks": ECHOED_HOOKS}, {"hooks": HOOKS}),
        ({"hooks": {"port": 9000, "microvmHooks": {"run": "DISABLED"}, "microvmImageHooks": None}}, {}),
        ({"environment": {"A": "1"}}, {"environment": {"A": "1"}}),
        ({"description": "theirs"}, {"description": "ours"}),
    ],
)
def test_the_same_said_otherwise_is_no_difference(version: dict[str, Any], spec: dict[str, Any]) -> None:
    assert find(VERSION._replace(**version), SPEC._replace(**spec)) == ()


@pytest.mark.parametrize(
    ("version", "spec", "change"),
    [
        ({}, {"code_uri": "s3://b/other.zip"}, Change("guest", "s3://b/k.zip", "s3://b/other.zip")),
        ({}, {"build_role_arn": "arn:new"}, Change("build role", "arn:role", "arn:new")),
        ({}, {"base_image_version": "2"}, Change("base image version", "1.0", "2")),
        ({"base_image_version": None}, {"base_image_version": "2"}, Change("base image version", None, "2")),
        ({}, {"memory_mib": 4096}, Change("memory", "2048 MiB", "4096 MiB")),
        ({"memory_mib": 512}, {}, Change("memory", "512 MiB", "2048 MiB")),
        ({}, {"environment": {"A": "1"}}, Change("variable A", None, "set")),
        ({"environment": {"A": "1"}}, {}, Change("variable A", "set", None)),
        ({"environment": {"A": "1"}}, {"environment": {"A": "2"}}, Change("variable A", "set", "another value")),
        ({}, {"has_all_capabilities": True}, Change("capabilities", None, "ALL")),
        ({"has_all_capabilities": True}, {}, Change("capabilities", "ALL", None)),
        ({}, {"log_group": "/mine"}, Change("log group", None, "/mine")),
        ({"hooks": ECHOED_HOOKS}, {"hooks": Hooks(port=9000, run_seconds=61)}, Change("hook run", "60 s", "61 s")),
        ({"hooks": ECHOED_HOOKS}, {"hooks": Hooks(port=9001)}, Change("hook port", "9000", "9001")),
        ({}, {"egress_connectors": ("arn:vpc",)}, Change("egress", INTERNET, "arn:vpc")),
    ],
    ids=lambda value: value.field if isinstance(value, Change) else "",
)
def test_a_difference_is_named(version: dict[str, Any], spec: dict[str, Any], change: Change) -> None:
    assert find(VERSION._replace(**version), SPEC._replace(**spec)) == (change,)


def test_a_base_image_counts_if_the_user_wants_that_one() -> None:
    version = VERSION._replace(base_image_arn="arn:older")
    assert find(version, is_base_wanted=True) == (Change("base image", "arn:older", "arn:base"),)


def test_all_hooks_that_are_switched_on_are_named() -> None:
    changes = find(VERSION, SPEC._replace(hooks=HOOKS))
    assert {change.field for change in changes} == {
        *("hook port", "hook ready", "hook validate", "hook run", "hook resume", "hook suspend", "hook terminate"),
    }


def test_no_value_of_a_variable_is_shown() -> None:
    changes = find(VERSION._replace(environment={"A": "s3cret"}), SPEC._replace(environment={"A": "hidden", "B": "x9"}))
    assert not any(value in repr(changes) for value in ("s3cret", "hidden", "x9"))


def test_of_our_zips_the_beginning_of_the_digest_is_shown() -> None:
    old, new = ("s3://b/" + naming.artifact_key("guest", digit * 64) for digit in "ab")
    (change,) = find(VERSION._replace(code_uri=old), SPEC._replace(code_uri=new))
    assert change == Change("guest", "a" * 12, "b" * 12)
    assert find(VERSION._replace(code_uri=None))[0].old is None


def test_the_newest_version_is_that_with_the_highest_number() -> None:
    versions = [VERSION._replace(image_version=number) for number in ("9.0", "10.0", "2.0")]
    newest = image_changes.newest_of(versions)
    assert newest is not None
    assert newest.image_version == "10.0"
    assert image_changes.newest_of([]) is None
