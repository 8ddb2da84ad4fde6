"""Values to and from the wire: the corners that whole requests and answers do not reach."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import botocore.utils
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.shapes import MOMENTS
from vmnest.aws import model, values

MICROVM = model.load("lambda-microvms").shape("GetMicrovmResponse")
NOON = datetime(2026, 9, 15, 12, 30, 5, 250000, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "text",
    [
        "2026-09-15T12:30:05.250Z",
        "2026-09-15t12:30:05.25z",
        "2026-09-15T12:30:05.250000",
        "2026-09-15T14:30:05.250+0200",
        "2026-09-15T07:00:05.250-05:30",
        "2026-09-15T12:30:05.250+0000",
        "1789475405.25",
        "1.78947540525e9",
        1789475405.25,
    ],
)
def test_every_form_of_a_timestamp_is_read(text: str | float) -> None:
    assert values.parse_timestamp(text) == NOON
    assert values.parse_timestamp(text).utcoffset() == timedelta(0)


@pytest.mark.parametrize("text", ["Tue, 15 Sep 2026 12:30:05 GMT", "Tue, 15 Sep 2026 12:30:05 -0000", 1789475405])
def test_forms_without_a_fraction_are_read(text: str | int) -> None:
    assert values.parse_timestamp(text) == NOON.replace(microsecond=0)


@pytest.mark.parametrize(
    "junk",
    ["", "soon", "2026-13-45T00:00:00Z", "2026-09-15", True, None, [], 1e300, "nan", "inf", "1_000", "9e999", "٣"],
)
def test_what_is_no_timestamp_is_refused(junk: object) -> None:
    with pytest.raises(values.WireTypeError, match="is no timestamp"):
        values.parse_timestamp(junk, path="startedAt")


@given(value=st.floats(0, 4e9) | st.integers(0, 4_000_000_000) | MOMENTS.map(lambda moment: moment.isoformat()))
def test_timestamps_are_read_as_botocore_reads_them(value: float | str) -> None:
    assert values.parse_timestamp(value) == botocore.utils.parse_timestamp(value)


@given(text=st.text(max_size=30))
def test_any_text_is_a_timestamp_or_an_error(text: str) -> None:
    try:
        values.parse_timestamp(text)
    except values.WireTypeError:
        return


@given(moment=MOMENTS, style=st.sampled_from(["unixTimestamp", "iso8601"]))
def test_a_timestamp_comes_back_as_it_was_written(moment: datetime, style: str) -> None:
    assert values.parse_timestamp(values.format_timestamp(moment, style=style)) == moment


def test_timestamps_are_written_to_the_millisecond() -> None:
    exact = NOON.replace(microsecond=999999)
    assert values.format_timestamp(exact, style="iso8601") == "2026-09-15T12:30:05.999Z"
    assert values.format_timestamp(exact, style="unixTimestamp") == 1789475405.999
    assert values.format_timestamp(1789475405.0, style="unixTimestamp") == 1789475405
    east = exact.astimezone(timezone(timedelta(hours=9)))
    assert values.format_timestamp(east, style="iso8601") == "2026-09-15T12:30:05.999Z"


def test_a_member_that_is_null_is_absent_and_one_not_known_is_kept_or_dropped() -> None:
    wire = {"state": None, "idlePolicy": {"autoResumeEnabled": True, "new": None}, "extra": {"a": 1}}
    assert values.from_wire(MICROVM, wire, keep_unknown=True) == {
        "idlePolicy": {"autoResumeEnabled": True, "new": None},
        "extra": {"a": 1},
    }
    assert values.from_wire(MICROVM, wire, keep_unknown=False) == {"idlePolicy": {"autoResumeEnabled": True}}


def test_nulls_within_lists_stay() -> None:
    wire = {"ingressNetworkConnectors": ["a", None]}
    assert values.from_wire(MICROVM, wire, keep_unknown=True) == wire


def test_whole_floats_are_integers_and_others_are_not() -> None:
    assert values.from_wire(MICROVM, {"maximumDurationInSeconds": 60.0}, keep_unknown=True) == {
        "maximumDurationInSeconds": 60
    }
    for junk in (60.5, float("inf"), True, "60"):
        with pytest.raises(values.WireTypeError, match="maximumDurationInSeconds"):
            values.from_wire(MICROVM, {"maximumDurationInSeconds": junk}, keep_unknown=True)


def test_an_error_names_the_path() -> None:
    with pytest.raises(values.WireTypeError) as caught:
        values.from_wire(MICROVM, {"ingressNetworkConnectors": ["a", {}]}, keep_unknown=True)
    assert caught.value.path == "ingressNetworkConnectors[1]"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("integer", "-5", -5),
        ("long", "+7", 7),
        ("boolean", "TRUE", True),
        ("boolean", "false", False),
        ("string", "", ""),
    ],
)
def test_text_outside_the_body_is_read_by_its_kind(kind: str, text: str, value: object) -> None:
    shape = model.Shape(model.load("lambda-core"), name="Any", raw={"type": kind})
    assert values.parse_text(shape, text, path="x") == value


@pytest.mark.parametrize(("kind", "text"), [("integer", ""), ("integer", "1.0"), ("long", "٣"), ("boolean", "yes")])
def test_text_that_is_not_of_its_kind_is_refused(kind: str, text: str) -> None:
    shape = model.Shape(model.load("lambda-core"), name="Any", raw={"type": kind})
    with pytest.raises(values.WireTypeError, match="STRING_VALUE can not be converted"):
        values.parse_text(shape, text, path="x")


def test_booleans_travel_in_lower_case() -> None:
    assert [values.format_text(value) for value in (True, False, 5, "Aa")] == ["true", "false", "5", "Aa"]
