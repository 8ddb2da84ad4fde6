"""What the agent tells about files, taken apart."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.agent.entries import (
    Entry,
    Skipped,
    Transfer,
    check_below,
    parse_entry,
    parse_skipped,
    parse_transfer,
    to_text,
)

FILE = {
    "name": "a",
    "path": "/x/a",
    "type": "file",
    "size": 3,
    "mode": 0o644,
    "mtime": 1.5,
    "uid": 7,
    "gid": 8,
    "sha256": "ab",
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=10,
)


def test_an_entry_has_all_that_the_agent_tells() -> None:
    assert parse_entry(FILE) == Entry("a", "/x/a", "file", 3, 0o644, 1.5, 7, 8, None, "ab", None)


def test_an_entry_that_cannot_be_seen_has_a_name_and_the_reason() -> None:
    entry = parse_entry({"name": "a", "path": "a", "error": "permission denied"})
    assert (entry.type, entry.error) == ("unknown", "permission denied")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("file", (True, False, False)),
        ("directory", (False, True, False)),
        ("link", (False, False, True)),
        ("fifo", (False, False, False)),
    ],
)
def test_an_entry_says_what_it_is(kind: str, expected: tuple[bool, bool, bool]) -> None:
    entry = Entry("a", "a", kind)
    assert (entry.is_file, entry.is_directory, entry.is_link) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {"name": "a"},
        {**FILE, "name": 1},
        {**FILE, "size": "3"},
        {**FILE, "size": True},
        {**FILE, "size": -1},
        {**FILE, "size": 1 << 64},
        {**FILE, "mode": 0o10000},
        {**FILE, "mtime": "now"},
        {**FILE, "mtime": 10**400},
        {**FILE, "mtime": -math.inf},
        {**FILE, "target": 5},
        {**FILE, "error": {}},
    ],
    ids=repr,
)
def test_what_is_no_entry_is_refused(wrong: object) -> None:
    with pytest.raises(errors.AgentAnswerError, match="does not describe files"):
        parse_entry(wrong)


@given(JSON | st.fixed_dictionaries({name: JSON | st.just(value) for name, value in FILE.items()}))
def test_any_json_is_an_entry_or_an_error_of_ours(value: object) -> None:
    try:
        entry = parse_entry(value)
    except errors.AgentAnswerError:
        return
    assert isinstance(entry.name, str)
    assert isinstance(entry.size, int)


def test_a_time_without_a_fraction_is_a_time() -> None:
    assert parse_entry({**FILE, "mtime": 7}).mtime == 7.0
    assert math.isnan(parse_entry({**FILE, "mtime": math.nan}).mtime)


@pytest.mark.parametrize(
    ("folder", "path"), [("x", "x/a"), ("x/", "x/a"), ("/", "/a"), (".", "./a"), ("/x", "/x/b/..a"), ("..", "../a")]
)
def test_an_entry_of_a_list_is_below_its_directory(folder: str, path: str) -> None:
    entry = Entry(path.rpartition("/")[2], path)
    assert check_below(entry, folder) is entry


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a", "/etc/a"),
        ("a", "xa"),
        ("a", "a"),
        ("x", "x"),
        ("", "x/"),
        ("..", "x/.."),
        ("a", "x/../a"),
        ("a", "x//a"),
        ("../a", "x/a"),
        ("b", "x/a"),
    ],
)
def test_an_entry_of_a_list_that_leads_elsewhere_is_refused(name: str, path: str) -> None:
    with pytest.raises(errors.AgentAnswerError, match="does not describe files"):
        check_below(Entry(name, path), "x")


def test_the_account_of_a_tree_is_taken_over() -> None:
    told = {
        "files": 1,
        "directories": 2,
        "links": 3,
        "bytes": 4,
        "skipped": [{"path": "p", "reason": "a socket"}],
    }
    assert parse_transfer(told) == Transfer(1, 2, 3, 4, (Skipped("p", "a socket"),))
    assert parse_transfer({}) == Transfer()


@pytest.mark.parametrize("wrong", [None, 3, {"files": "1"}, {"skipped": 3}, {"skipped": ["x"]}], ids=repr)
def test_what_is_no_account_of_a_tree_is_refused(wrong: object) -> None:
    with pytest.raises(errors.AgentAnswerError):
        parse_transfer(wrong)


@pytest.mark.parametrize("wrong", [3, ["x"], [{"path": "a"}], [{"reason": "a"}]], ids=repr)
def test_what_is_no_list_of_what_was_left_out_is_refused(wrong: object) -> None:
    with pytest.raises(errors.AgentAnswerError):
        parse_skipped(wrong)


def test_nothing_left_out_is_nothing() -> None:
    assert parse_skipped(None) == ()
    assert parse_skipped([]) == ()


def test_an_answer_that_is_quoted_is_short_and_printable() -> None:
    with pytest.raises(errors.AgentAnswerError) as caught:
        parse_entry({"name": "\x1b[31m" + "x" * 5000})
    assert len(caught.value.message) < 300
    assert "\x1b" not in caught.value.message


def test_bytes_that_are_no_utf8_are_lone_surrogates() -> None:
    assert to_text("é".encode() + b"\xff") == "é\udcff"
