"""Rights that were changed by hand are put right; roles that are others', or have become so, are left alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.infra import Bench
from vmnest import errors
from vmnest.infra.resources.role import POLICY
from vmnest.infra.steps import NOTE, Step

NAME = "demo-exec"


def step(bench: Bench) -> Step:
    return next(step for step in bench.preview().steps if step.resource == "role")


def with_role(bench: Bench, **changes: object) -> None:
    bench.change(role=replace(bench.stack.role, **changes))  # type: ignore[arg-type]


def test_it_may_read_what_is_in_the_stacks_own_bucket(bench: Bench) -> None:
    state = bench.up()
    role = bench.account.iam.roles[NAME]
    document = json.loads(role["inline"][POLICY])
    bucket = state.resources["bucket"].id
    assert document["Statement"][0]["Resource"] == [f"arn:aws:s3:::{bucket}/vmnest/demo-guest/*"]
    assert {tag["Key"] for tag in role["Tags"]} == {"team", "vmnest:managed-by", "vmnest:project", "vmnest:stack"}


@pytest.mark.parametrize(
    ("spoil", "field"),
    [
        (lambda role: role["inline"].update({POLICY: "{}"}), "policy"),
        (lambda role: role["inline"].clear(), "policy"),
        (lambda role: role.update(AssumeRolePolicyDocument="{}"), "trust"),
        (lambda role: role["Tags"].pop(0), "tag team"),
    ],
    ids=["other policy", "no policy", "trust", "tag"],
)
def test_what_was_changed_is_put_right(bench: Bench, spoil: object, field: str) -> None:
    bench.up()
    spoil(bench.account.iam.roles[NAME])  # type: ignore[operator]
    found = step(bench)
    assert (found.action, [change.field for change in found.changes]) == ("update", [field])
    bench.up()
    assert step(bench).action == "nothing"


def test_policies_that_are_configured_are_attached_and_taken_away_again(bench: Bench) -> None:
    with_role(bench, extra_policy_arns=("arn:one", "arn:two"))
    bench.up()
    role = bench.account.iam.roles[NAME]
    assert role["attached"] == ["arn:one", "arn:two"]
    role["attached"].append("arn:by-hand")
    with_role(bench, extra_policy_arns=("arn:two", "arn:three"))
    assert {(change.old, change.new) for change in step(bench).changes} == {("arn:one", None), (None, "arn:three")}
    bench.up()
    assert role["attached"] == ["arn:by-hand", "arn:three", "arn:two"]
    assert step(bench).action == "nothing"


def test_one_to_reuse_must_exist(bench: Bench) -> None:
    with_role(bench, arn="arn:aws:iam::111122223333:role/theirs")
    with pytest.raises(errors.InfrastructureError, match=r"role\.arn names a role that does not exist") as caught:
        bench.preview()
    assert caught.value.hint == "Correct role.arn, or leave it empty to make one."


def test_one_of_another_account_does_not_exist_here(bench: Bench) -> None:
    bench.account.iam.make("theirs")
    with_role(bench, arn="arn:aws:iam::999988887777:role/theirs")
    with pytest.raises(errors.InfrastructureError, match="does not exist"):
        bench.preview()


def test_one_to_reuse_need_not_be_visible(bench: Bench) -> None:
    arn = bench.account.iam.make("theirs")
    with_role(bench, arn=arn)
    bench.account.iam.is_hidden = True
    assert bench.up().outputs["execution_role_arn"] == arn
    assert bench.refresh() == ()


def test_one_of_that_name_that_others_made_is_left_alone(bench: Bench) -> None:
    arn = bench.account.iam.make(NAME)
    with pytest.raises(errors.InfrastructureError, match="the role demo-exec exists and was not made by") as caught:
        bench.up()
    assert caught.value.hint is not None
    assert f"role.arn: {arn}" in caught.value.hint
    assert bench.recorded() is None


def test_a_new_name_makes_a_new_role_and_removes_the_old_one_when_nothing_needs_it(bench: Bench) -> None:
    bench.up()
    with_role(bench, name="another")
    assert [(step.resource, step.action) for step in bench.preview().steps if step.is_change] == [
        *(("role", "create"), ("image", "update"), ("role", "delete")),
    ]
    bench.up()
    assert list(bench.account.iam.roles) == ["another"]
    assert not bench.preview().has_changes


def test_one_that_has_become_somebody_elses_is_not_deleted(bench: Bench) -> None:
    bench.up()
    for tag in bench.account.iam.roles[NAME]["Tags"]:
        if tag["Key"] == "vmnest:stack":
            tag["Value"] = "prod"
    (kept,) = (step for step in bench.destroy() if step.action == "reuse")
    assert (kept.resource, kept.reason) == ("role", "is not ours any more by its tags, and stays")
    assert bench.account.inventory() == {"roles": [NAME]}


def test_one_that_was_replaced_and_has_become_somebody_elses_stays_with_a_note(bench: Bench) -> None:
    bench.up()
    for tag in bench.account.iam.roles[NAME]["Tags"]:
        if tag["Key"] == "vmnest:stack":
            tag["Value"] = "prod"
    with_role(bench, name="another")
    state = bench.up()
    assert bench.told(NOTE) == ["role: demo-exec is not ours any more by its tags, and stays"]
    assert list(state.resources) == ["role", "bucket", "guest_object", "image"]
    assert set(bench.account.iam.roles) == {NAME, "another"}
