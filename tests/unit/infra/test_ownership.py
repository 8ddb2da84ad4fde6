"""Its tags say whose a resource is, above any record; without tags it is ours only where a record says so."""

from __future__ import annotations

import pytest

from vmnest.infra import ownership
from vmnest.infra.spec import Stack
from vmnest.infra.state import Resource

STACK = Stack(project="demo", stack="dev", tags={"team": "a"})
OURS = ownership.tags_of(STACK)
MADE = Resource("iam-role", "exec", True)
REUSED = Resource("iam-role", "exec", False)
BEGUN = Resource("iam-role", "exec", True, {ownership.UNFINISHED: True})


def test_what_is_made_tells_whose_it_is() -> None:
    assert OURS == {"team": "a", "vmnest:managed-by": "vmnest", "vmnest:project": "demo", "vmnest:stack": "dev"}
    assert ownership.owner_of(OURS) == "demo/dev"


def test_the_users_tags_cannot_make_it_somebody_elses() -> None:
    assert ownership.owner_of(ownership.tags_of(Stack(tags={"vmnest:project": "other"}))) == "agent-microvm/dev"


@pytest.mark.parametrize("tags", [{}, {"team": "a"}, {"vmnest:project": "demo", "vmnest:stack": "dev"}])
def test_without_the_mark_of_vmnest_it_is_nobodys(tags: dict[str, str]) -> None:
    assert ownership.owner_of(tags) is None


OTHER = ownership.tags_of(Stack(project="other", stack="dev"))


@pytest.mark.parametrize(
    ("tags", "recorded", "is_ours"),
    [
        (OURS, None, True),
        (OURS, REUSED, True),
        (OTHER, MADE, False),
        ({}, None, False),
        ({}, MADE, True),  # of 0.1.2, which set no tags
        ({}, REUSED, False),
        ({}, BEGUN, False),  # what we make has tags from the beginning: this one was there
        (OURS, BEGUN, True),
    ],
)
def test_whose_it_is(tags: dict[str, str], recorded: Resource | None, is_ours: bool) -> None:
    assert ownership.is_ours(tags, stack=STACK, recorded=recorded) is is_ours
    if recorded is not None:
        assert ownership.judge(STACK, recorded)(tags) is is_ours


def test_missing_tags_are_those_that_are_absent_or_otherwise() -> None:
    assert ownership.missing_tags({**OURS, "mine": "x"}, stack=STACK) == {}
    assert ownership.missing_tags({**OURS, "team": "b"}, stack=STACK) == {"team": "a"}


@pytest.mark.parametrize(
    ("tags", "whose"), [(OTHER, "belongs to the stack other/dev"), ({}, "was not made by vmnest for this stack")]
)
def test_the_error_says_whose_it_is(tags: dict[str, str], whose: str) -> None:
    error = ownership.foreign("the role exec", tags, hint="do this")
    assert error.message == f"the role exec exists and {whose}"
    assert error.hint == "do this"


def test_what_is_named_is_reused_and_said_to_stay_if_we_made_it() -> None:
    assert ownership.reused("role.arn", {"a": "b"}) == "role.arn names it"
    ours = {ownership.MANAGER_TAG: ownership.MANAGER, ownership.PROJECT_TAG: "p", ownership.STACK_TAG: "s"}
    assert "is not removed, although vmnest made it" in ownership.reused("role.arn", ours)
