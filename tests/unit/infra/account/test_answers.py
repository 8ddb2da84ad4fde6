"""Answers that are no list of objects are empty ones, and a member that has to be there is named."""

from __future__ import annotations

import pytest

from vmnest import errors
from vmnest.infra.account import answers


def test_tags_go_both_ways() -> None:
    tags = {"a": "1", "b": ""}
    assert answers.tags(answers.tag_list(tags)) == tags


@pytest.mark.parametrize("value", [None, "text", 5, [None, "x"]])
def test_what_is_no_list_of_objects_is_empty(value: object) -> None:
    assert answers.items(value) == ()
    assert answers.tags(value) == {}


def test_a_member_that_must_be_there_is_named_when_it_is_not() -> None:
    assert answers.text({"Arn": "a"}, "Arn") == "a"
    assert answers.member({"Role": {"Arn": "a"}}, "Role") == {"Arn": "a"}
    with pytest.raises(errors.VmnestError, match="no Arn"):
        answers.text({"Arn": 5}, "Arn")
    with pytest.raises(errors.VmnestError, match="no Role"):
        answers.member({}, "Role")
