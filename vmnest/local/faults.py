"""The errors that the local control plane answers, with the texts recorded from the service."""

from __future__ import annotations

from collections.abc import Mapping

from .. import errors
from ..wire import names

VALIDATION = "ValidationException"
NOT_FOUND = "ResourceNotFoundException"


class Fault(errors.VmnestError):
    """An error answer: its type, its status and its members beside the message."""

    code = "local_fault"

    def __init__(
        self, message: str, *, error_type: str, status: int, members: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.status = status
        self.members: Mapping[str, object] = members or {}


def validation(message: str) -> Fault:
    """What the request says cannot be done (400)."""
    return Fault(message, error_type=VALIDATION, status=400)


def not_found(message: str) -> Fault:
    """What the request names does not exist (404)."""
    return Fault(message, error_type=NOT_FOUND, status=404)


def conflict(message: str) -> Fault:
    """The thing is in a state that does not allow this (409)."""
    return Fault(message, error_type="ConflictException", status=409)


def quota(message: str) -> Fault:
    """The account has as much of it as it may (402)."""
    return Fault(message, error_type="ServiceQuotaExceededException", status=402)


def internal(message: str = "Internal error") -> Fault:
    """The local cloud failed, or is about to end (500)."""
    return Fault(message, error_type="InternalServerException", status=500)


def unknown_operation(request_line: str) -> Fault:
    """No operation of the services here has that method and path (404)."""
    return Fault(f"No operation is {request_line}", error_type="UnknownOperationException", status=404)


def microvm_not_found(microvm_id: str) -> Fault:
    """No MicroVM of that id."""
    return not_found(f"MicroVM not found: {microvm_id}")


def microvm_ended(microvm_id: str) -> Fault:
    """The MicroVM ends, or has ended."""
    return validation(f"The MicroVM {microvm_id} has been terminated and its state cannot be changed.")


def access_denied(action: str, resource: str) -> Fault:
    """The caller may not do this to that resource (403)."""
    return Fault(
        f"User: arn:aws:iam::{names.LOCAL_ACCOUNT}:user/local is not authorized to perform: lambda:{action} "
        f"on resource: {resource}",
        error_type="AccessDeniedException",
        status=403,
    )


# -- S3's, which builds meet when they fetch an artifact ---------------------------------------------------------------

S3_NO_SUCH_BUCKET = "NoSuchBucket"
S3_NO_SUCH_KEY = "NoSuchKey"


def no_such_bucket(name: str) -> Fault:
    """S3 has no bucket of that name."""
    return Fault(
        "The specified bucket does not exist", error_type=S3_NO_SUCH_BUCKET, status=404, members={"BucketName": name}
    )


def no_such_key(key: str) -> Fault:
    """The bucket has no object of that key, or its newest version is a delete marker."""
    return Fault("The specified key does not exist.", error_type=S3_NO_SUCH_KEY, status=404, members={"Key": key})
