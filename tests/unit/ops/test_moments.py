"""Moments in JSON."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.ops import moments

MOMENT = datetime(2026, 11, 30, 11, 39, 5, 250_900, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "offset", [timezone.utc, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=8))]
)
def test_a_moment_has_its_offset_whatever_its_own_zone_is(offset):
    assert moments.to_iso(MOMENT.astimezone(offset)) == "2026-11-30T11:39:05+00:00"
    assert moments.to_iso(MOMENT.astimezone(offset), fractions=True) == "2026-11-30T11:39:05.250+00:00"


@given(st.floats(min_value=0, max_value=4e9))
def test_what_is_written_can_be_read_again(seconds):
    text = moments.from_epoch(seconds, fractions=True)
    assert text is not None
    moment = moments.from_iso(text)
    assert moment is not None
    assert abs(moment.timestamp() - seconds) < 0.002


@pytest.mark.parametrize("member", [None, 1764502745, {"at": "2026-11-30"}])
def test_what_is_no_text_is_no_moment(member):
    assert moments.from_iso(member) is None


@pytest.mark.parametrize("seconds", [None, float("nan"), float("inf"), 1e300, -1e300])
def test_what_is_no_time_has_no_text(seconds):
    assert moments.from_epoch(seconds) is None
