"""Patterns of what is left out of a tree."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.agentd.patterns import MAX_PATTERN_BYTES, MAX_PATTERNS, Patterns

NAMES = st.binary(min_size=1, max_size=5).map(lambda data: data.replace(b"/", b"x"))
PATHS = st.lists(NAMES, min_size=1, max_size=5).map(b"/".join)


@pytest.mark.parametrize(
    ("pattern", "path", "is_folder", "expected"),
    [
        # a name, at any depth
        (b"*.pyc", b"a.pyc", False, True),
        (b"*.pyc", b"x/y/a.pyc", False, True),
        (b"*.pyc", b"a.py", False, False),
        (b"node_modules", b"x/node_modules", True, True),
        (b"node_modules", b"node_modules_2", True, False),
        (b".git", b".git", True, True),
        (b"*", b".hidden", False, True),
        (b"?", "é".encode(), False, False),
        (b"[ab]", b"b", False, True),
        (b"[!ab]", b"b", False, False),
        (b"[*]", b"x", False, False),
        (b"\xff*", b"\xff\xfe", False, True),
        (b"a\nb", b"a\nb", False, True),
        (b"A", b"a", False, False),
        # a path from the root
        (b"/build", b"build", False, True),
        (b"/build", b"x/build", False, False),
        (b"docs/*.html", b"docs/a.html", False, True),
        (b"docs/*.html", b"docs/b/a.html", False, False),
        (b"docs/*.html", b"x/docs/a.html", False, False),
        (b"./docs//a", b"docs/a", False, True),
        (b"a/b", b"a", True, False),
        # any number of folders
        (b"**/a", b"a", False, True),
        (b"**/a", b"x/y/a", False, True),
        (b"x/**/a", b"x/a", False, True),
        (b"x/**/a", b"x/1/2/a", False, True),
        (b"x/**/a", b"y/x/a", False, False),
        (b"x/**/a/**/b", b"x/a/a/c/b", False, True),
        (b"x/**", b"x", True, False),
        (b"x/**", b"x/y", True, True),
        (b"x/**", b"x/y/z", False, True),
        (b"/**", b"x", False, True),
        (b"x**y/z", b"xaby/z", False, True),
        # folders only
        (b"tmp/", b"tmp", True, True),
        (b"tmp/", b"tmp", False, False),
        (b"tmp/", b"x/tmp", True, True),
        (b"/tmp/", b"x/tmp", True, False),
        (b"x/tmp/", b"x/tmp", True, True),
        (b"x/tmp//", b"x/tmp", False, False),
    ],
)
def test_a_pattern_stands_for_what_it_says(pattern: bytes, path: bytes, is_folder: bool, expected: bool) -> None:
    assert Patterns([pattern]).match(path, is_folder=is_folder) is expected


@given(PATHS)
def test_nothing_is_left_out_without_patterns(path: bytes) -> None:
    assert not Patterns([]).match(path, is_folder=False)


@given(PATHS, st.booleans())
def test_a_path_with_its_special_characters_quoted_stands_for_itself(path: bytes, is_folder: bool) -> None:
    quoted = b"".join(b"[" + bytes([byte]) + b"]" if byte in b"*?[" else bytes([byte]) for byte in path)
    names = [name for name in path.split(b"/") if name != b"."]
    assert Patterns([b"/" + quoted]).match(path, is_folder=is_folder) is (len(names) == len(path.split(b"/")))


def test_one_of_several_is_enough() -> None:
    patterns = Patterns([b"a", b"/b/c", b"d/"])
    assert [patterns.match(path, is_folder=False) for path in (b"x/a", b"b/c", b"d", b"c")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("pattern", [b"", b"/", b"//", b"x" * (MAX_PATTERN_BYTES + 1)])
def test_a_pattern_that_cannot_be_used_is_refused(pattern: bytes) -> None:
    with pytest.raises(ValueError, match="a pattern is"):
        Patterns([b"good", pattern])


def test_there_is_a_limit_to_their_number() -> None:
    Patterns([b"x"] * MAX_PATTERNS)
    with pytest.raises(ValueError, match="more than"):
        Patterns([b"x"] * (MAX_PATTERNS + 1))


def test_many_stars_take_no_longer() -> None:
    begin = time.process_time()
    assert not Patterns([b"/" + b"**/a/" * 30 + b"b"]).match(b"/".join([b"a"] * 300), is_folder=False)
    assert not Patterns([b"*a" * 30 + b"b"]).match(b"a" * 250, is_folder=False)
    assert time.process_time() - begin < 2
