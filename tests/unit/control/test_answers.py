"""An answer whose members are missing or of other types is an error of ours, never a TypeError further on."""

import pytest

from vmnest import errors
from vmnest.control import answers


def test_a_member_is_taken_with_its_type():
    assert answers.take({"a": "x"}, "a", str, operation="Op") == "x"
    assert answers.find({"a": "x"}, "a", str, operation="Op") == "x"
    assert answers.find({"a": None}, "a", str, operation="Op") is None
    assert answers.find({}, "a", str, operation="Op") is None
    assert answers.texts({"a": ["x", "y"]}, "a", operation="Op") == ("x", "y")
    assert answers.texts({}, "a", operation="Op") == ()


@pytest.mark.parametrize("answer", [{}, {"a": None}, {"a": 5}])
def test_a_member_that_is_not_there_or_something_else_is_an_error_of_ours(answer):
    with pytest.raises(errors.AnswerInvalidError, match="Op: the answer's a is no text"):
        answers.take(answer, "a", str, operation="Op")


def test_an_optional_member_of_another_type_is_an_error_too():
    with pytest.raises(errors.AnswerInvalidError, match="no list"):
        answers.texts({"a": "x"}, "a", operation="Op")
