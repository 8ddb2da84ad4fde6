"""The refusals of the agent."""

from __future__ import annotations

import errno
import os

import pytest

from guest.agentd import errors


def test_a_bad_argument_names_its_field() -> None:
    error = errors.bad_argument("args[2]", "must be a string")
    assert (error.status, error.code, error.detail) == (400, "bad_argument", "args[2]: must be a string")


@pytest.mark.parametrize(
    ("number", "exhausted"),
    [(errno.EMFILE, True), (errno.ENFILE, True), (errno.EAGAIN, True), (errno.ENOMEM, True), (errno.ENOENT, False)],
)
def test_want_of_resources_is_told_from_faults_of_the_request(number: int, exhausted: bool) -> None:
    assert errors.is_exhaustion(OSError(number, os.strerror(number))) is exhausted


def test_want_of_resources_is_a_503_with_its_reason() -> None:
    error = errors.overloaded(OSError(errno.EMFILE, "Too many open files"))
    assert (error.status, error.code) == (503, "overloaded")
    assert "Too many open files" in error.detail
