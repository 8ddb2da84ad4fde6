"""Errors of the service."""

from __future__ import annotations

import pytest

from vmnest import errors


def test_details_are_in_the_wire_form_when_there_are_any() -> None:
    error = errors.ThrottledError("RunMicrovm: too many calls", operation="RunMicrovm", status=429, retry_after=2.0)
    assert error.to_wire()["details"] == {"operation": "RunMicrovm", "status": 429}


def test_what_is_not_given_is_no_detail() -> None:
    assert errors.ConflictError("x", operation="RunMicrovm", status=409).details == {
        "operation": "RunMicrovm",
        "status": 409,
    }


@pytest.mark.parametrize(
    ("error_class", "parent"),
    [
        (errors.ResourceNotFoundError, errors.NotFoundError),
        (errors.CredentialsExpiredError, errors.SignatureRefusedError),
        (errors.RoleNotReadyError, errors.ValidationError),
        (errors.RequestInvalidError, errors.UsageError),
    ],
)
def test_a_particular_error_is_also_the_general_one(
    error_class: type[errors.VmnestError], parent: type[errors.VmnestError]
) -> None:
    assert issubclass(error_class, parent)
