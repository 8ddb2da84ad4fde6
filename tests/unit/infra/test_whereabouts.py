"""Keys of another account, or another region, are refused before they make a stack look empty."""

from __future__ import annotations

import pytest

from tests.support.memory_account import ACCOUNT, MemoryAccount
from vmnest import errors
from vmnest.deadline import Deadline
from vmnest.infra import whereabouts
from vmnest.infra.account import Account
from vmnest.infra.state import Resource, StackState

IMAGE = Resource("microvm-image", f"arn:aws:lambda:us-east-1:{ACCOUNT}:microvm-image:x", True)


def account(account_id: str = ACCOUNT) -> Account:
    return Account(MemoryAccount(account_id=account_id).target(), deadline=Deadline(60))  # type: ignore[arg-type]


def state(*resources: Resource, region: str | None = "us-east-1") -> StackState:
    named = {str(number): resource for number, resource in enumerate(resources)}
    return StackState("demo", "dev", region=region, resources=named)


@pytest.mark.parametrize(
    "recorded",
    [
        state(),
        state(region="eu-west-1"),  # nothing is there
        state(IMAGE),
        state(IMAGE, region=None),  # of 0.1.2
        state(Resource("iam-role", "x", True, {"arn": f"arn:aws:iam::{ACCOUNT}:role/x"})),
        state(Resource("iam-role", "x", False, {"arn": "arn:aws:iam::999:role/x"})),  # theirs
        state(Resource("s3-bucket", "x", True)),
    ],
)
def test_a_stack_of_this_place_passes(recorded: StackState) -> None:
    whereabouts.check(recorded, account())


def test_a_stack_of_another_region_is_refused() -> None:
    with pytest.raises(errors.InfrastructureError, match=r"made in eu-west-1, and us-east-1 is asked for"):
        whereabouts.check(state(IMAGE, region="eu-west-1"), account())


@pytest.mark.parametrize(
    "resource", [IMAGE, Resource("iam-role", "x", True, {"arn": f"arn:aws:iam::{ACCOUNT}:role/x"})]
)
def test_a_stack_of_another_account_is_refused(resource: Resource) -> None:
    with pytest.raises(errors.InfrastructureError, match=r"made in account 111122223333, .* of 999988887777"):
        whereabouts.check(state(resource), account("999988887777"))


def test_a_record_without_a_region_gets_this_one() -> None:
    assert whereabouts.fill(state(IMAGE, region=None), account()).region == "us-east-1"
