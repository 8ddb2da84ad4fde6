"""Parameters of a target, by type."""

from __future__ import annotations

import pytest

from guest.agentd import heads, queries
from guest.agentd.errors import RequestError


def query(text: str) -> queries.Query:
    return queries.Query(heads.parse([f"GET /x?{text} HTTP/1.1".encode()]))


def test_parameters_come_out_by_type() -> None:
    given = query("n=7&s=2.5&on=1&off=0&p=%FF/a&x=1&x=2")
    assert given.count("n") == 7
    assert given.count("absent", 3) == 3
    assert given.seconds("s", 1.0, maximum=25.0) == 2.5
    assert given.seconds("absent", 1.0, maximum=25.0) == 1.0
    assert given.flag("on")
    assert not given.flag("off")
    assert not given.flag("absent")
    assert given.path("p") == b"\xff/a"
    assert given.all("x") == [b"1", b"2"]
    assert given.all("absent") == []
    assert given.one("absent") is None


def test_a_longer_wait_than_there_is_becomes_the_longest() -> None:
    assert query("s=1000").seconds("s", 1.0, maximum=25.0) == 25.0


@pytest.mark.parametrize("value", ["", "-1", "+1", "1e3", "0x1", "1_0", "1" * 19, "%C2%B2", "1%0A"])
def test_what_is_no_count_is_refused(value: str) -> None:
    with pytest.raises(RequestError, match="n: must be a whole number"):
        query(f"n={value}").count("n")


@pytest.mark.parametrize("value", ["", "-1", "nan", "inf", "1e3", ".", "1%0A", "1" * 10])
def test_what_is_no_time_is_refused(value: str) -> None:
    with pytest.raises(RequestError, match="s: must be a number of seconds"):
        query(f"s={value}").seconds("s", 1.0, maximum=25.0)


@pytest.mark.parametrize("value", ["", "true", "2"])
def test_what_is_no_switch_is_refused(value: str) -> None:
    with pytest.raises(RequestError, match="on: must be 0 or 1"):
        query(f"on={value}").flag("on")


@pytest.mark.parametrize(("text", "problem"), [("", "is required"), ("p=", "must not be empty"), ("p=%00", "NUL")])
def test_what_is_no_path_is_refused(text: str, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        query(text).path("p")


def test_a_parameter_that_is_given_twice_is_refused() -> None:
    with pytest.raises(RequestError, match="x: is given more than once"):
        query("x=1&x=1").count("x")
