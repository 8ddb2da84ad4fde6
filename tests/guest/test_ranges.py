"""Parts of files and the conditions on them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.agentd import ranges


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=0-9", (0, 10)),
        ("bytes=3-5", (3, 6)),
        ("bytes=3-", (3, 10)),
        ("bytes=9-", (9, 10)),
        ("bytes=5-100", (5, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-10", (0, 10)),
        ("bytes=-100", (0, 10)),
        ("Bytes=0-0", (0, 1)),
        (" bytes=0-0 ", (0, 1)),
        # None of these is a reason to refuse: the whole file is a right answer to them.
        ("", None),
        ("bytes", None),
        ("bytes=", None),
        ("bytes=-", None),
        ("bytes=5-3", None),
        ("bytes=a-b", None),
        ("bytes=0-0,3-4", None),
        ("lines=0-3", None),
        ("bytes=+1-2", None),
        ("bytes=1-2\n", (1, 3)),
        ("bytes=0-" + "9" * 30, None),
    ],
)
def test_a_range_of_ten_bytes(text: str, expected: tuple[int, int] | None) -> None:
    assert ranges.parse_range(text, 10) == expected


@pytest.mark.parametrize(("text", "size"), [("bytes=10-", 10), ("bytes=10-20", 10), ("bytes=-0", 10), ("bytes=0-", 0)])
def test_a_part_outside_of_the_file_is_an_error(text: str, size: int) -> None:
    with pytest.raises(ranges.RangeError):
        ranges.parse_range(text, size)


@given(st.text(max_size=30), st.integers(0, 2**63))
def test_whatever_is_asked_for_is_in_the_file(text: str, size: int) -> None:
    for wish in (text, f"bytes={text}"):
        try:
            part = ranges.parse_range(wish, size)
        except ranges.RangeError:
            continue
        assert part is None or 0 <= part[0] < part[1] <= size


def test_a_tag_is_another_one_after_a_change(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one")
    tags = [ranges.build_tag(path.stat())]
    assert tags[0] == ranges.build_tag(path.stat())
    for stamp in (5, 4):  # also back in time
        os.utime(path, ns=(stamp, stamp))
        tags.append(ranges.build_tag(path.stat()))
    path.write_bytes(b"longer")
    tags.append(ranges.build_tag(path.stat()))
    (tmp_path / "g").write_bytes(b"longer")
    (tmp_path / "g").rename(path)
    tags.append(ranges.build_tag(path.stat()))
    assert len(set(tags)) == 5
    assert all(tag[0] == tag[-1] == '"' and tag.count('"') == 2 for tag in tags)


@pytest.mark.parametrize(
    ("text", "expected"),
    [('"a"', True), ("*", True), ('"b", "a"', True), ('"b"', False), ('W/"a"', False), ("a", False), ("", False)],
)
def test_a_condition_names_the_tag_or_not(text: str, expected: bool) -> None:
    assert ranges.names_tag(text, '"a"') is expected
