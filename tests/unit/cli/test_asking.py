"""Only a clear yes at a terminal removes anything; where nobody can be asked, the option is named that says yes."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.screens import read_until
from vmnest import errors
from vmnest.cli import asking, words


def options(*, json: bool = False) -> words.Options:
    return words.Options(json=json, quiet=False)


@contextmanager
def terminal(answer: bytes) -> Iterator[int]:
    """A terminal as standard input and error, on which somebody has typed the answer."""
    ours, theirs = pty.openpty()
    kept = [os.dup(0), os.dup(2)]
    try:
        os.dup2(theirs, 0)
        os.dup2(theirs, 2)
        os.write(ours, answer)
        yield ours
    finally:
        sys.stderr.flush()
        for number, descriptor in zip((0, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(ours)
        os.close(theirs)


def ask(**members: bool) -> None:
    asking.agree("one\n", question="Delete these?", refusal="this would delete one image", options=options(**members))


@pytest.mark.parametrize("answer", [b"y\n", b"YES\n", b" yes \n"])
def test_yes_is_yes(answer):
    with terminal(answer) as ours:
        ask()
        read_until(ours, b"one\r\nDelete these? [y/N]")


@pytest.mark.parametrize("answer", [b"\n", b"n\n", b"yess\n", b"\xff\n", b"\x04"])
def test_all_else_is_no(answer):
    with terminal(answer), pytest.raises(errors.VmnestError, match="nothing was removed"):
        ask()


def test_where_nobody_can_be_asked_the_option_is_named():
    with pytest.raises(errors.UsageError, match="would delete one image") as caught:
        ask()
    assert "--yes" in str(caught.value.hint)


def test_json_asks_nobody():
    with terminal(b"y\n"), pytest.raises(errors.UsageError):
        ask(json=True)
