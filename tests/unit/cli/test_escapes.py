"""The way out: ``~.`` at the beginning of a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.cli.escapes import Escapes


@pytest.mark.parametrize(
    ("keys", "passed", "is_left"),
    [
        (b"~.", b"", True),
        (b"ls\r~.rest", b"ls\r", True),
        (b"ls\n~.", b"ls\n", True),
        (b"a~.", b"a~.", False),
        (b"~~.", b"~.", False),
        (b"~x.", b"~x.", False),
        (b"~", b"", False),
        (b"~\r~.", b"~\r", True),
        (b"cd ~\r.", b"cd ~\r.", False),
    ],
)
def test_only_at_the_beginning_of_a_line_a_tilde_means_something(keys: bytes, passed: bytes, is_left: bool) -> None:
    found = Escapes()
    assert (found.feed(keys), found.is_left) == (passed, is_left)


@given(keys=st.text(alphabet="~.\r\nab").map(str.encode), cuts=st.sets(st.integers(0, 30)))
def test_how_keys_come_in_pieces_makes_no_difference(keys: bytes, cuts: set[int]) -> None:
    whole, pieces = Escapes(), Escapes()
    expected = whole.feed(keys)
    got, start = b"", 0
    for end in [*sorted(cut for cut in cuts if cut < len(keys)), len(keys)]:
        if pieces.is_left:
            break
        got += pieces.feed(keys[start:end])
        start = end
    assert (got, pieces.is_left) == (expected, whole.is_left)


def test_many_lines_are_as_quick_as_one() -> None:
    keys = b"a line of a paste\r" * 500_000
    assert Escapes().feed(keys) == keys


@given(st.binary().filter(lambda keys: b"~" not in keys))
def test_other_keys_are_passed_on_as_they_are(keys: bytes) -> None:
    assert Escapes().feed(keys) == keys
