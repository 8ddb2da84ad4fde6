"""Whose uid a sandbox has on the host."""

from __future__ import annotations

import os
import pwd
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local.drivers import identity

FULL = "         0          0 4294967295\n"
CONTAINER = "0 100000 1000\n1000 1000 1\n1001 101001 64535\n"


def test_a_map_is_read_as_ranges() -> None:
    assert identity.parse_map(FULL) == [(0, 4294967294)]
    assert identity.parse_map(CONTAINER) == [(0, 999), (1000, 1000), (1001, 65535)]


def test_where_all_uids_exist_a_high_one_is_taken() -> None:
    for uid in islice(identity.candidates(identity.parse_map(FULL), seed="1:2"), 5):
        assert 1879048192 <= uid <= 2147483647


def test_in_a_container_one_of_its_own_is_taken() -> None:
    for uid in islice(identity.candidates(identity.parse_map(CONTAINER), seed="1:2"), 5):
        assert 1001 <= uid <= 65533


def test_a_map_of_one_uid_has_no_second() -> None:
    assert list(identity.candidates(identity.parse_map("0 1000 1\n"), seed="x")) == []


@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 2), st.integers(1, 2**31)), min_size=1, max_size=4), st.text(max_size=20)
)
def test_a_candidate_is_mapped_unnamed_and_not_nobody(rows: list[tuple[int, int]], seed: str) -> None:
    ranges = [(first, min(first + count - 1, 2**32 - 2)) for first, count in rows]
    for uid in islice(identity.candidates(ranges, seed=seed), 20):
        assert any(first <= uid <= last for first, last in ranges)
        assert uid >= 1000
        assert uid not in (65534, 65535)
        with pytest.raises(KeyError):
            pwd.getpwuid(uid)


def test_another_folder_gets_another_uid_mostly() -> None:
    ranges = identity.parse_map(FULL)
    assert len({next(identity.candidates(ranges, seed=str(number))) for number in range(50)}) > 45


@pytest.mark.skipif(os.geteuid() != 0, reason="only root chooses")
def test_a_folder_keeps_its_uid(tmp_path: Path) -> None:
    first = identity.choose(str(tmp_path))
    assert first is not None
    assert identity.choose(str(tmp_path)) == first
    assert (tmp_path / "sandbox-uid").read_text() == f"{first}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root chooses")
@pytest.mark.parametrize("text", ["", "0\n", "root\n", "99999999999\n"])
def test_a_record_that_cannot_be_used_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "sandbox-uid").write_text(text)
    uid = identity.choose(str(tmp_path))
    assert uid is not None
    assert uid >= 1000
    assert (tmp_path / "sandbox-uid").read_text() == f"{uid}\n"
