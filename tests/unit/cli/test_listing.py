"""Files as text."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.screens import on_terminal, read_until
from vmnest.agent.entries import Entry
from vmnest.cli import listing, terminal

ODD = os.fsdecode(b"a\xff\nb\x1b[31m")


def entry(path: str, **members: object) -> Entry:
    return Entry(path.rpartition("/")[2], path, "file")._replace(**members)  # type: ignore[arg-type]


@given(st.binary())
def test_a_name_is_the_bytes_that_it_was(name: bytes) -> None:
    assert listing.to_bytes(os.fsdecode(name)) == name


@given(st.text(st.characters()))
def test_whatever_an_agent_says_becomes_bytes_and_nothing_that_steers(name: str) -> None:
    assert isinstance(listing.to_bytes(name), bytes)
    assert listing.to_safe(name).isprintable()


@pytest.mark.parametrize(
    ("name", "shown"),
    [("naïve 日", "naïve 日"), (ODD, "a\\xff\\nb\\x1b[31m"), ("\u202etxt", "\\u202etxt"), ("\ud800", "\\ud800")],
)
def test_what_would_steer_a_terminal_is_escaped(name: str, shown: str) -> None:
    assert listing.to_safe(name) == shown


def test_names_are_raw_for_other_programs(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    lister = listing.Lister(long=False, ends_with_nul=False)
    lister.write(entry("/d/" + ODD), below="/d/")
    lister.write(entry("/d/x/y"), below="/d")
    lister.write(entry("/other"), below="/d")
    assert capfdbinary.readouterr().out == b"a\xff\nb\x1b[31m\nx/y\n/other\n"
    listing.Lister(long=False, ends_with_nul=True).write(entry("/d/" + ODD), below="/d")
    assert capfdbinary.readouterr().out == b"a\xff\nb\x1b[31m\0"
    listing.Lister(long=False, ends_with_nul=False, named=True).write(entry("/d/x"), below="/d")
    assert capfdbinary.readouterr().out == b"/d/x\n"


def test_on_a_terminal_they_are_safe_unless_they_are_for_xargs() -> None:
    with on_terminal(terminal.STDOUT) as screen:
        listing.Lister(long=False, ends_with_nul=False).write(entry("/d/" + ODD), below="/d")
        assert read_until(screen, b"\n") == b"a\\xff\\nb\\x1b[31m\n"
        listing.Lister(long=True, ends_with_nul=False).write(entry("l", target="\x1b", type="link"), below=".")
        assert read_until(screen, b"\n").endswith(b"l -> \\x1b\n")
        listing.Lister(long=False, ends_with_nul=True).write(entry("/d/" + ODD), below="/d")
        assert read_until(screen, b"\0") == b"a\xff\nb\x1b[31m\0"


def test_a_long_line_has_the_facts(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lister = listing.Lister(long=True, ends_with_nul=False)
    lister.write(entry("./f", mode=0o640, uid=7, gid=1000, size=123456, mtime=0.5), below=".")
    lister.write(entry("./l", mode=0o777, type="link", target="../x", mtime=1e300), below=".")
    first, second = capfd.readouterr().out.splitlines()
    assert first.startswith("-rw-r-----     7  1000      123456 19")
    assert first.endswith(" f")
    assert second.split() == ["lrwxrwxrwx", "0", "0", "0", "-", "l", "->", "../x"]
    assert first.index(" f") == second.index(" l")
