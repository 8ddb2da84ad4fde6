"""What can be wrong with the service: credentials, and what it answers."""

from __future__ import annotations

from .root import EXIT_NOT_FOUND, NotFoundError, UsageError, VmnestError


class CredentialsError(VmnestError):
    """Root of what can be wrong with AWS credentials."""

    code = "credentials"


class CredentialsNotFoundError(CredentialsError):
    """No credentials anywhere; the message says where they were looked for."""

    code = "credentials_not_found"


class CredentialsBrokenError(CredentialsError):
    """A source of credentials exists and cannot be used."""

    code = "credentials_broken"


class RegionNotFoundError(VmnestError):
    """No AWS region is configured."""

    code = "region_not_found"


class RequestInvalidError(UsageError):
    """A request breaks the service's own rules (checked before it is sent)."""

    code = "request_invalid"


class ServiceError(VmnestError):
    """The service answered with an error.

    Args:
        message: See VmnestError.
        operation: The operation's name, for example ``RunMicrovm``.
        status: The HTTP status.
        error_type: The service's name of the error, or None.
        request_id: The service's id of the request, or None.
        retry_after: Seconds that the service asked to wait, or None.
        reason: The service's own words, or None if it gave none.
    """

    code = "service_error"

    def __init__(
        self,
        message: str,
        *,
        operation: str,
        status: int,
        error_type: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        reason: str | None = None,
        hint: str | None = None,
    ) -> None:
        details = {"operation": operation, "status": status, "error_type": error_type, "request_id": request_id}
        super().__init__(message, hint=hint, details={k: v for k, v in details.items() if v is not None})
        self.operation = operation
        self.status = status
        self.error_type = error_type
        self.request_id = request_id
        self.retry_after = retry_after
        self.reason = reason


class AccessDeniedError(ServiceError):
    """The credentials are valid and may not do this (403)."""

    code = "access_denied"


class SignatureRefusedError(ServiceError):
    """The service does not accept the signature: unknown key, wrong secret, expired token."""

    code = "signature_refused"


class CredentialsExpiredError(SignatureRefusedError):
    """The session that the keys belong to has ended."""

    code = "credentials_expired"


class ClockSkewError(SignatureRefusedError):
    """The service refuses the signature because this machine's clock is off."""

    code = "clock_skew"


class ThrottledError(ServiceError):
    """Too many calls (429)."""

    code = "throttled"
    retryable = True


class QuotaExceededError(ServiceError):
    """A quota of the account is used up (402). A retry does not help until something is released."""

    code = "quota_exceeded"


class CapacityError(ServiceError):
    """The service has no room at the moment."""

    code = "no_capacity"
    retryable = True


class ServiceFaultError(ServiceError):
    """The service failed (5xx)."""

    code = "service_fault"
    retryable = True


class ConflictError(ServiceError):
    """The thing is in a state that does not allow this (409)."""

    code = "conflict"


class ValidationError(ServiceError):
    """The service refuses the request's content (400)."""

    code = "validation"


class RoleNotReadyError(ValidationError):
    """The service cannot assume the role (yet): one that was made a moment ago takes some seconds."""

    code = "role_not_ready"
    retryable = True


class ResourceNotFoundError(ServiceError, NotFoundError):
    """The service does not know what the request names (404)."""

    code = "not_found"
    exit_status = EXIT_NOT_FOUND


class AnswerInvalidError(ServiceError):
    """The answer is not what the service's model says (HTML from a gateway, missing members)."""

    code = "answer_invalid"


class MicroVMEndedError(VmnestError):
    """The MicroVM ended while it was waited for or used; the message carries the service's reason."""

    code = "microvm_ended"


class ImageBuildError(VmnestError):
    """The build of an image's version failed; the message carries the reasons of its builds."""

    code = "image_build_failed"


class ConnectorError(VmnestError):
    """A network connector could not be made ready; the message carries the service's reason."""

    code = "connector_failed"


class GuestImageError(UsageError):
    """A directory cannot be made an image of (checked before anything is uploaded)."""

    code = "guest_image"


class InfrastructureError(VmnestError):
    """The infrastructure cannot be made, changed or removed as asked."""

    code = "infrastructure"


class ConfigurationError(UsageError):
    """``sandbox.yaml`` says something that cannot be; the message names file, line and key."""

    code = "configuration"
