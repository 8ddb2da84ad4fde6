"""What the texts of options mean."""

from __future__ import annotations

import pytest

from vmnest import errors
from vmnest.cli.values import parse_cpus, parse_memory, parse_seconds, resolve_variables


@pytest.mark.parametrize(("text", "value"), [("60", 60.0), ("0.5", 0.5), ("1e2", 100.0)])
def test_seconds(text: str, value: float) -> None:
    assert parse_seconds(text) == value


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "1e10", "nan", "inf", "-inf", "1s", "1,5"])
def test_what_is_no_number_of_seconds(text: str) -> None:
    with pytest.raises(ValueError, match="seconds"):
        parse_seconds(text)


@pytest.mark.parametrize(("text", "value"), [("1", 1.0), ("0.5", 0.5)])
def test_cpus(text: str, value: float) -> None:
    assert parse_cpus(text) == value


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "x", ""])
def test_what_is_no_number_of_cpus(text: str) -> None:
    with pytest.raises(ValueError, match="CPUs"):
        parse_cpus(text)


@pytest.mark.parametrize(("text", "mib"), [("512", 512), ("2GiB", 2048), ("512M", 512), ("1g", 1024), ("300", 300)])
def test_memory(text: str, mib: int) -> None:
    assert parse_memory(text) == mib


@pytest.mark.parametrize("text", ["0", "", "x", "-5", "1.5", "100K", "9" * 30, "٣"])
def test_what_is_no_memory(text: str) -> None:
    with pytest.raises(ValueError, match="MiB"):
        parse_memory(text)


def test_variables_are_given_with_their_value_or_taken_from_here() -> None:
    given = ["A=1", "B", "C=", "D=a=b\n'\"$HOME", "A=2"]
    assert resolve_variables(given, {"B": "here"}) == {"A": "2", "B": "here", "C": "", "D": "a=b\n'\"$HOME"}


@pytest.mark.parametrize("text", ["", "=1", "A\0=1", "A=\0"])
def test_what_is_no_variable(text: str) -> None:
    with pytest.raises(errors.UsageError, match="NAME"):
        resolve_variables([text], {})


def test_a_variable_that_is_not_set_here_is_refused() -> None:
    with pytest.raises(errors.UsageError, match="no such variable"):
        resolve_variables(["NOT_SET"], {})
