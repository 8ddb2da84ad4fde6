"""Words of a Dockerfile's line, as Docker's reference has them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local import dockerfile_words

VALUES = {"x": "value", "empty": "", "path": "/a b", "_1": "one"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("$x", "value"),
        ("${x}y", "valuey"),
        ("$x.y", "value.y"),
        ("$missing!", "!"),
        ("$_1", "one"),
        ("${missing:-other}", "other"),
        ("${x:-other}", "value"),
        ("${empty:-other}", "other"),
        ("${empty-other}", ""),
        ("${missing-other}", "other"),
        ("${x:+other}", "other"),
        ("${x+other}", "other"),
        ("${empty:+other}", ""),
        ("${empty+other}", "other"),
        ("${missing:+other}", ""),
        ("${missing:-${x}}", "value"),
        ("${missing:-a${missing:-b}c}", "abc"),
        ("${missing:-'}'}", "}"),
        ("${x:?why}", "value"),
        ("$", "$"),
        ("a$ b", "a$ b"),
        (r"\$x", "$x"),
        (r"a\ b", "a b"),
        (r"a\\b", r"a\b"),
        ("'$x'", "$x"),
        ('"$x"', "value"),
        (r'"\$x \" \\ \n"', r'$x " \ \n'),
        (r"'\'", "\\"),
        ("a'b'\"c\"", "abc"),
        ("\\", "\\"),
        ("ünï$x", "ünïvalue"),
    ],
)
def test_variables_quotes_and_escapes(text: str, expected: str) -> None:
    assert dockerfile_words.expand(text, VALUES) == expected


def test_another_escape_character_takes_its_place() -> None:
    assert dockerfile_words.expand(r"C:\dir`$x", VALUES, escape="`") == r"C:\dir$x"


@pytest.mark.parametrize("text", ["'a", '"a', "${x", "${x:-a", "${}", "${x/a/b}", "${x#a}", "${x:a}", '"${x"}'])
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(dockerfile_words.WordError):
        dockerfile_words.expand(text, VALUES)


@pytest.mark.parametrize("text", ["$long$long", '"$long$long"', "${none:-$long$long}", "$long" * 1000])
def test_a_text_that_variables_make_too_long_is_refused(text: str) -> None:
    with pytest.raises(dockerfile_words.WordError, match="more than"):
        dockerfile_words.expand(text, {"long": "x" * (dockerfile_words.MAX_LENGTH - 1)})


def test_variables_within_each_other_have_an_end() -> None:
    assert dockerfile_words.expand("${a:-" * 20 + "x" + "}" * 20, {}) == "x"
    with pytest.raises(dockerfile_words.WordError, match="within each other"):
        dockerfile_words.expand("${a:-" * 5000 + "x" + "}" * 5000, {})


@pytest.mark.parametrize("text", ["${missing?}", "${empty:?why not}"])
def test_a_variable_that_must_be_set_complains(text: str) -> None:
    with pytest.raises(dockerfile_words.WordError, match=r"missing: it is not set|empty: why not"):
        dockerfile_words.expand(text, VALUES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("a  b\tc", ["a", "b", "c"]),
        ("a='b c' d", ["a='b c'", "d"]),
        ('a="b\' c"', ['a="b\' c"']),
        (r"a=b\ c d", [r"a=b\ c", "d"]),
        (r'"a\" b" c', [r'"a\" b"', "c"]),
        ("' '", ["' '"]),
    ],
)
def test_spaces_in_quotes_separate_nothing(text: str, expected: list[str]) -> None:
    assert dockerfile_words.split(text) == expected


def test_a_quote_that_is_not_closed_is_refused() -> None:
    with pytest.raises(dockerfile_words.WordError):
        dockerfile_words.split("a 'b c")


@given(st.text())
def test_whatever_is_quoted_comes_back(text: str) -> None:
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$") + '"'
    assert dockerfile_words.expand(quoted, {}) == text
    assert dockerfile_words.split(quoted.replace("\n", "")) == [quoted.replace("\n", "")]


@given(st.text(alphabet="ab$ {}:-+?'\"\\"))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    with contextlib.suppress(dockerfile_words.WordError):
        assert "".join(dockerfile_words.split(text)) == text.replace(" ", "") or any(each in text for each in "'\"\\")
    with contextlib.suppress(dockerfile_words.WordError):
        assert "{" not in dockerfile_words.expand(text, {"a": "$b", "b": ""}) or "{" in text
