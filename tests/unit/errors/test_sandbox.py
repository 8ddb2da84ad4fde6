"""Errors of a sandbox, its files and its commands."""

from __future__ import annotations

import pytest

from vmnest import errors
from vmnest.agent.results import ExecResult


def test_an_error_about_a_command_carries_its_result() -> None:
    result = ExecResult(exit_code=3, stdout=b"out", stderr=b"err")
    assert errors.CommandFailedError("false: exit status 3", result=result).result is result


@pytest.mark.parametrize(
    ("error_class", "parent"),
    [
        (errors.RemoteFileNotFoundError, errors.NotFoundError),
        (errors.ProcessNotFoundError, errors.NotFoundError),
        (errors.NoSpaceError, errors.RemoteFileError),
        (errors.UnsafePathError, errors.RemoteFileError),
        (errors.FileChangedError, errors.RemoteFileError),
        (errors.CommandTimedOutError, errors.ExecError),
    ],
)
def test_a_particular_error_is_also_the_general_one(
    error_class: type[errors.VmnestError], parent: type[errors.VmnestError]
) -> None:
    assert issubclass(error_class, parent)


def test_what_may_go_better_next_time_says_so() -> None:
    assert errors.FileChangedError.retryable
    assert errors.ChecksumMismatchError.retryable
    assert not errors.NoSpaceError.retryable
