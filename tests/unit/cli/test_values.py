"""What the texts of options mean."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.agentd import limits
from vmnest import errors
from vmnest.cli import values


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60", 60.0), ("0.5", 0.5), ("1e2", 100.0), ("90s", 90.0), ("15m", 900.0), ("2h", 7200.0), ("1.5m", 90.0)],
)
def test_seconds(text: str, seconds: float) -> None:
    assert values.parse_seconds(text) == seconds


NO_SECONDS = ["", "x", "-1", "1e10", "nan", "inf", "-inf", "1,5", "s", "1d", "1 minute", "1M", "1mm", "-1s"]
OTHER_DIGITS = ["1_0", " 1", "1 s", "\uff11"]


@pytest.mark.parametrize("text", [*NO_SECONDS, *OTHER_DIGITS, "0", "0s"])
def test_what_is_no_number_of_seconds(text: str) -> None:
    with pytest.raises(ValueError, match="seconds"):
        values.parse_seconds(text)


@pytest.mark.parametrize("text", ["1e10", "1000001", "1e5m"])
def test_more_seconds_than_there_may_be_are_told_how_many_may_be(text: str) -> None:
    with pytest.raises(ValueError, match="at most 1000000 s"):
        values.parse_seconds(text)


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("60", 60), ("60.0", 60), ("1m", 60), ("0.5m", 30)])
def test_whole_seconds(text: str, seconds: int) -> None:
    found = values.parse_seconds_from(0, 60)(text)
    assert found == seconds
    assert isinstance(found, int)  # the wire wants no "60.0"


@pytest.mark.parametrize("text", [*NO_SECONDS, "0.5", "61", "2m"])
def test_what_is_no_whole_number_of_seconds_within_bounds(text: str) -> None:
    with pytest.raises(ValueError, match="whole number of seconds, 0 to 60"):
        values.parse_seconds_from(0, 60)(text)


@given(st.text())
def test_any_text_is_a_number_of_seconds_or_refused(text: str) -> None:
    for parse in (values.parse_seconds, values.parse_seconds_from(0, 10**6)):
        with contextlib.suppress(ValueError):
            assert 0 <= parse(text) <= 10**6


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("64k", 65536), ("16M", 16 * 2**20), ("1GiB", 2**30)])
def test_bytes(text: str, count: int) -> None:
    assert values.parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "0", "-1", "k", "1.5M", "1x"])
def test_what_is_no_number_of_bytes(text: str) -> None:
    with pytest.raises(ValueError, match="number of bytes"):
        values.parse_bytes(text)


@pytest.mark.parametrize(("text", "offset"), [("0", 0), ("17", 17)])
def test_offsets(text: str, offset: int) -> None:
    assert values.parse_offset(text) == offset


@pytest.mark.parametrize("text", ["", "-1", "1k", "x", "9" * 19, "\u0663"])
def test_what_is_no_offset(text: str) -> None:
    with pytest.raises(ValueError, match="number of bytes"):
        values.parse_offset(text)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("nofile=1024", ("nofile", (1024, 1024))),
        ("NOFILE=0:4096", ("nofile", (0, 4096))),
        ("core=-1", ("core", (-1, -1))),
        ("as=1048576:unlimited", ("as", (1048576, -1))),
    ],
)
def test_resource_limits(text: str, limit: tuple[str, tuple[int, int]]) -> None:
    assert values.parse_ulimit(text) == limit


@pytest.mark.parametrize("text", ["", "nofile", "=1", "nofile=", "nofile=x", "nofile=1:", "nofile=1:2:3", "no file=1"])
def test_what_is_no_resource_limit(text: str) -> None:
    with pytest.raises(ValueError, match="NAME=SOFT:HARD"):
        values.parse_ulimit(text)


@pytest.mark.parametrize("text", ["nofile=2:1", "core=-1:0", "as=unlimited:9"])
def test_a_soft_limit_above_the_hard_one_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="soft limit must not be above"):
        values.parse_ulimit(text)


def test_a_limit_that_no_sandbox_has_is_told_with_those_that_it_has() -> None:
    with pytest.raises(ValueError, match=r"there is no limit 'files', but as, core,.* nofile"):
        values.parse_ulimit("files=1")
    assert set(values.LIMITS) == set(limits.NUMBERS)


@pytest.mark.parametrize(
    ("text", "sent"), [("INT", "SIGINT"), ("sigkill", "SIGKILL"), ("9", 9), ("64", 64), ("usr1", "SIGUSR1")]
)
def test_signals(text: str, sent: str | int) -> None:
    assert values.parse_signal(text) == sent


@pytest.mark.parametrize("text", ["", "0", "65", "999", "-9", "x", "SIG", "SIG_DFL", "ALL", "9" * 5000, "\u0663"])
def test_what_is_no_signal(text: str) -> None:
    with pytest.raises(ValueError, match="must be a signal"):
        values.parse_signal(text)


@pytest.mark.parametrize(("text", "value"), [("1", 1.0), ("0.5", 0.5)])
def test_cpus(text: str, value: float) -> None:
    assert values.parse_cpus(text) == value


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "x", ""])
def test_what_is_no_number_of_cpus(text: str) -> None:
    with pytest.raises(ValueError, match="CPUs"):
        values.parse_cpus(text)


@pytest.mark.parametrize(("text", "mib"), [("512", 512), ("2GiB", 2048), ("512M", 512), ("1g", 1024), ("300", 300)])
def test_memory(text: str, mib: int) -> None:
    assert values.parse_memory(text) == mib


@pytest.mark.parametrize("text", ["0", "", "x", "-5", "1.5", "100K", "9" * 30, "٣"])
def test_what_is_no_memory(text: str) -> None:
    with pytest.raises(ValueError, match="MiB"):
        values.parse_memory(text)


@pytest.mark.parametrize("text", ["RUNNING", "running", "Running"])
def test_a_state_in_any_case(text: str) -> None:
    assert values.parse_state_of(("PENDING", "RUNNING"))(text) == "RUNNING"


@pytest.mark.parametrize("text", ["", "RUN", "GONE"])
def test_what_is_none_of_the_states_is_told_with_them(text: str) -> None:
    with pytest.raises(ValueError, match=rf"must be one of PENDING, RUNNING: {text!r}"):
        values.parse_state_of(("PENDING", "RUNNING"))(text)


@pytest.mark.parametrize(("text", "label"), [("a=1", ("a", "1")), ("a=", ("a", "")), ("a=b=c d", ("a", "b=c d"))])
def test_a_label(text: str, label: tuple[str, str]) -> None:
    assert values.parse_label(text) == label


@pytest.mark.parametrize("text", ["", "a", "=1", "a=\n", "a\x1b=1", "a=\udcff"])
def test_what_is_no_label(text: str) -> None:
    with pytest.raises(ValueError, match="KEY=VALUE"):
        values.parse_label(text)


# -- the payload -------------------------------------------------------------------------------------------------------


def test_a_payload_is_the_text_or_a_files_content(tmp_path: Path) -> None:
    path = tmp_path / "payload"
    path.write_bytes('{"a": "ä"}\r\n'.encode())
    assert values.parse_payload('{"a": 1}') == '{"a": 1}'
    assert values.parse_payload("") == ""
    assert values.parse_payload(f"@{path}") == '{"a": "ä"}\r\n'
    path.write_bytes(b"x" * 4096)
    assert len(values.parse_payload(f"@{path}")) == 4096


@pytest.mark.parametrize(
    ("content", "reason"), [(b"hunter2" * 1000, "more"), (b"hunter2\xff", "not UTF-8")], ids=["long", "no text"]
)
def test_a_payload_that_cannot_be_is_not_shown(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "payload"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=reason) as caught:
        values.parse_payload(f"@{path}")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", ["@/no/such", "@/etc", "@"])
def test_a_payload_file_that_cannot_be_read_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=f"cannot read {text[1:]}: "):
        values.parse_payload(text)


def test_a_payload_of_other_bytes_than_text_is_refused() -> None:
    with pytest.raises(ValueError, match="not UTF-8"):
        values.parse_payload("\udcff")


def test_bytes_that_are_no_text_are_told_with_what_they_were_given_for() -> None:
    values.check_text("naïve", what="word 1")
    values.check_option("naïve", what="--user")
    values.check_option(None, what="--user")
    with pytest.raises(errors.UsageError, match="word 1 is not UTF-8"):
        values.check_text("\udcff", what="word 1")
