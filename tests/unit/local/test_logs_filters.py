"""Filter patterns of logs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local import faults, logs_filters


@pytest.mark.parametrize(
    ("pattern", "message", "expected"),
    [
        ("", "anything", True),
        ("error", "an error here", True),
        ("Error", "an error here", False),
        ("a b", "b and a", True),
        ("a b", "a alone", False),
        ('"a b"', "x a b x", True),
        ('"a b"', "b a", False),
        ('"a\\"b"', 'a"b', True),
        ("a -b", "a", True),
        ("a -b", "a b", False),
        ("?a ?b", "b", True),
        ("?a ?b", "c", False),
        ("c ?a ?b", "c b", True),
        ('-"a b"', "a b", False),
    ],
)
def test_words_and_phrases(pattern, message, expected):
    assert logs_filters.parse_pattern(pattern)(message) is expected


@pytest.mark.parametrize("pattern", ["{ $.a = 1 }", "[a, b]", "%x%", '"open', 'a "'])
def test_other_patterns_are_refused(pattern):
    with pytest.raises(faults.Fault, match="Invalid filter pattern") as caught:
        logs_filters.parse_pattern(pattern)
    assert caught.value.error_type == "InvalidParameterException"


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_pattern_is_read_or_refused(pattern, message):
    try:
        logs_filters.parse_pattern(pattern)(message)
    except faults.Fault:
        return
