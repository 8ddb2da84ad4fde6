"""What a service's refusal means: its type, status and message → one class of the error tree. Pure.

The type is what a service calls the error; gateways in front of it answer without one, so the status decides then.
Messages are kept to one line and say which call failed; hints say what to do.
"""

from __future__ import annotations

import re

from .. import errors

_SNIPPET_CHARACTERS = 300

# Types of all services that vmnest calls, rest-json, XML and query alike.
_THROTTLED = (
    "ThrottlingException Throttling ThrottledException TooManyRequestsException RequestThrottled RequestLimitExceeded "
    "RequestThrottledException SlowDown BandwidthLimitExceeded PriorRequestNotComplete ServiceUnavailable "
    "EC2ThrottledException Ec2RequestLimitExceeded"
)
_SIGNATURE = (
    "UnrecognizedClientException InvalidSignatureException SignatureDoesNotMatch InvalidClientTokenId AuthFailure "
    "InvalidAccessKeyId InvalidToken IncompleteSignature "
    "IncompleteSignatureException MissingAuthenticationToken MissingAuthenticationTokenException "
    "RequestExpired RequestTimeTooSkewed InvalidSecurity"
)
_FAULTS = "InternalServerException ServiceException InternalFailure InternalError RequestTimeout Unavailable"
_CONFLICTS = (
    "ConflictException ResourceConflictException ConcurrentModification OperationAborted OperationAbortedException"
)
# What is wanted exists, and what is to go is still in use: conflicts that do not pass by themselves.
_EXISTING = (
    "EntityAlreadyExists BucketAlreadyExists BucketAlreadyOwnedByYou ResourceAlreadyExistsException "
    "InvalidGroup.Duplicate InvalidPermission.Duplicate"
)
_IN_USE = "DeleteConflict DependencyViolation BucketNotEmpty ResourceInUseException ResourceInUse"
_NOT_FOUND = (
    "ResourceNotFoundException ResourceNotFound NoSuchEntity NoSuchBucket NoSuchKey NoSuchUpload NoSuchVersion "
    "NoSuchBucketPolicy NotFound 404"
)
_BY_TYPE: dict[str, type[errors.ServiceError]] = {
    **dict.fromkeys(_THROTTLED.split(), errors.ThrottledError),
    **dict.fromkeys(_SIGNATURE.split(), errors.SignatureRefusedError),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException"), errors.CredentialsExpiredError),
    **dict.fromkeys(
        ("AccessDeniedException", "AccessDenied", "UnauthorizedOperation", "OptInRequired"), errors.AccessDeniedError
    ),
    **dict.fromkeys(f"{_CONFLICTS} {_EXISTING} {_IN_USE}".split(), errors.ConflictError),
    **dict.fromkeys(("ValidationException", "InvalidParameterValueException"), errors.ValidationError),
    **dict.fromkeys(_FAULTS.split(), errors.ServiceFaultError),
    **dict.fromkeys(("ServiceQuotaExceededException", "TooManyBuckets"), errors.QuotaExceededError),
    "InsufficientCapacityException": errors.CapacityError,
    **dict.fromkeys(_NOT_FOUND.split(), errors.ResourceNotFoundError),
}
# Where the type is one of many of a kind (InvalidSubnetID.NotFound, SecurityGroupLimitExceeded). Patterns that only
# refusals need are compiled by the first one.
_BY_PATTERN: tuple[tuple[str, type[errors.ServiceError]], ...] = (
    (r"(?i)throttl", errors.ThrottledError),
    (r"\.NotFound\Z", errors.ResourceNotFoundError),
    (r"\.(?:Duplicate|Conflict|InUse)\Z", errors.ConflictError),
    (r"LimitExceeded(?:Exception)?\Z", errors.QuotaExceededError),
)
_BY_STATUS: dict[int, type[errors.ServiceError]] = {
    400: errors.ValidationError,
    401: errors.SignatureRefusedError,
    402: errors.QuotaExceededError,
    403: errors.AccessDeniedError,
    404: errors.ResourceNotFoundError,
    409: errors.ConflictError,
    429: errors.ThrottledError,
}
# Refusals of a signature that a wrong clock explains, if the server's Date says so too.
_CLOCK_TYPES = frozenset({"RequestExpired", "RequestTimeTooSkewed"})
_CLOCK_TEXT = re.compile(r"signature (?:has )?expired|not yet current|request has expired", re.IGNORECASE)

# IAM's changes take some seconds to be seen by others, and what these say meanwhile is what they say of a mistake. Of
# a role that Lambda cannot assume ("The role defined for the function cannot be assumed by Lambda."), of one without
# the rights that a network connector needs, of a policy that names a principal made a moment ago.
_TRUST = "Let the role trust lambda.amazonaws.com (sts:AssumeRole); a change takes a minute."
_NOT_READY: tuple[tuple[str, str], ...] = (
    (r"(?i)\brole\b.* cannot be assumed", _TRUST),
    (
        r"(?i)invalid ConnectorOperatorRole permissions",
        "Allow the operator role what a connector needs of EC2, and let it trust lambda.amazonaws.com; "
        "a change takes a minute.",
    ),
    (
        r"(?i)\binvalid principal in policy\b",
        "Check that the principals in the policy exist; those made a moment ago take a minute.",
    ),
)

_SCOPE_TEXT = re.compile(r"credential should be scoped to a valid region", re.IGNORECASE)

_HOME = "us-east-1"  # every account has the service there, if it has it at all
_UNSUPPORTED_HINT = (
    f"A refusal without a reason means most often that region {{region}} does not offer the service: try {_HOME}, "
    "or the region of the image's ARN."
)
_REFUSED_AT_HOME_HINT = (
    "The region {region} offers the service: a refusal without a reason means there that this account may not use it, "
    "or that a policy of its organization forbids it."
)
_HINTS: dict[type[errors.ServiceError], str] = {
    errors.AccessDeniedError: "Allow the named action (prefix {prefix}:) to this identity; "
    "a change of a policy takes some seconds to be seen.",
    errors.SignatureRefusedError: "Check the access key, its secret and its session token: they belong together.",
    errors.CredentialsExpiredError: "Get new ones: aws sso login, or whatever gave out these.",
    errors.ThrottledError: "Make fewer calls at a time, or ask AWS for a higher rate.",
    errors.QuotaExceededError: "Delete what nobody needs, or ask AWS for a higher quota.",
    errors.CapacityError: "Try again in a moment, or in another region.",
    errors.ServiceFaultError: "Try again in a moment.",
    errors.ConflictError: "Something else is changing it: try again in a moment.",
    errors.ValidationError: "Check what was given: names, ARNs, the region that they belong to, and sizes.",
}
_SANDBOX_QUOTA_HINT = "End sandboxes that nobody needs (suspended ones count), or ask AWS for a higher quota."
_QUOTA_HINTS = (
    ("concurrent builds", "Wait until other builds have ended (vmnest image ls), or ask AWS for a higher quota."),
    ("number of MicroVM images", "Remove images that nobody needs: vmnest image prune, or vmnest image rm NAME."),
    (
        "number of versions",
        "Remove old versions: vmnest image prune --versions, or vmnest image rm NAME --image-version VERSION.",
    ),
)
# Services whose actions in policies have another prefix than their name.
_ACTION_PREFIXES = {"lambda-microvms": "lambda", "lambda-core": "lambda", "service-quotas": "servicequotas"}
_SANDBOX_SERVICE = "lambda-microvms"
# Of those, a denial without a reason means that the region does not have them.
_REGIONAL = frozenset({"lambda-microvms", "lambda-core"})
_HINTS_BY_TYPE = {
    **dict.fromkeys(_EXISTING.split(), "It is there already: use it, or choose another name."),
    **dict.fromkeys(_IN_USE.split(), "Something still belongs to it, or uses it: remove that first."),
    "ServiceUnavailable": "Try again in a moment; if there were many calls at a time, with fewer.",
    "OptInRequired": "Switch the service, or the region, on for the account.",
    **dict.fromkeys(
        ("UnrecognizedClientException", "InvalidClientTokenId", "InvalidAccessKeyId"),
        "AWS does not know the access key, or its session token is missing or another's: check them.",
    ),
    **dict.fromkeys(
        ("InvalidSignatureException", "SignatureDoesNotMatch"), "The secret key is not the access key's: check both."
    ),
}
_PAGE_HINT = "Something else than the service answered: check the endpoint's URL, and what stands before it (a proxy)."
_REDIRECT_HINT = "The service has moved: check the endpoint's URL and the region."


class Refusal:
    """An error answer, read but not yet judged.

    ``is_page``: its body is none of the service's. ``origin``: where the keys of the request are from.
    """

    __slots__ = (
        *("error_type", "is_page", "message", "operation", "origin", "region", "request_id", "retry_after", "service"),
        "status",
    )

    def __init__(
        self,
        *,
        operation: str,
        region: str,
        status: int,
        error_type: str | None,
        message: str | None,
        request_id: str | None = None,
        retry_after: float | None = None,
        is_page: bool = False,
        origin: str = "",
        service: str = _SANDBOX_SERVICE,
    ) -> None:
        self.service = service
        self.operation = operation
        self.origin = origin
        self.region = region
        self.status = status
        self.error_type = error_type
        self.message = message
        self.request_id = request_id
        self.retry_after = retry_after
        self.is_page = is_page


def is_about_the_clock(refusal: Refusal) -> bool:
    """The service says that the time of signing is too far from its own."""
    return refusal.error_type in _CLOCK_TYPES or _CLOCK_TEXT.search(refusal.message or "") is not None


def to_error(refusal: Refusal) -> errors.ServiceError:
    """The error of this tree for a refusal."""
    kind = _kind(refusal)
    hint = _hint(kind, refusal)
    reason = one_line(refusal.message or "the service gave no reason")
    shown = refusal.error_type or f"HTTP {refusal.status}"
    if refusal.status >= 500 and refusal.request_id:
        shown += f", request {one_line(refusal.request_id)}"  # what AWS's support asks for
    return _build(kind, f"{refusal.operation}: {reason} ({shown})", refusal=refusal, hint=hint)


def _hint(kind: type[errors.ServiceError], refusal: Refusal) -> str | None:
    if kind is errors.RoleNotReadyError:
        return next(hint for pattern, hint in _NOT_READY if re.search(pattern, refusal.message or ""))
    if kind is errors.AccessDeniedError and not refusal.message and refusal.service in _REGIONAL:
        return (_REFUSED_AT_HOME_HINT if refusal.region == _HOME else _UNSUPPORTED_HINT).format(region=refusal.region)
    if issubclass(kind, errors.SignatureRefusedError):
        return _signature_hint(kind, refusal)
    if 300 <= refusal.status < 400:
        return _REDIRECT_HINT
    if refusal.is_page and refusal.error_type is None and refusal.message and refusal.status < 500:
        return _PAGE_HINT
    if kind is errors.QuotaExceededError and refusal.service == _SANDBOX_SERVICE:
        message = refusal.message or ""
        return next((hint for words, hint in _QUOTA_HINTS if words in message), _SANDBOX_QUOTA_HINT)
    if kind is errors.ServiceError and refusal.error_type is None:
        return _PAGE_HINT
    hint = _HINTS_BY_TYPE.get(refusal.error_type or "") or _HINTS.get(kind)
    return hint and hint.replace("{prefix}", _ACTION_PREFIXES.get(refusal.service, refusal.service))


def _signature_hint(kind: type[errors.ServiceError], refusal: Refusal) -> str:
    if is_about_the_clock(refusal):
        return "Check this machine's clock; if it is right, something holds requests back for minutes."
    if _SCOPE_TEXT.search(refusal.message or ""):
        return f"The endpoint belongs to another region than {refusal.region}: check --region and AWS_ENDPOINT_URL."
    hint = _HINTS_BY_TYPE.get(refusal.error_type or "", _HINTS[kind])
    return f"{hint} These are from: {refusal.origin}." if refusal.origin else hint


def clock_error(refusal: Refusal, *, skew: float) -> errors.ServiceError:
    """The error for a clock that is off by ``skew`` seconds, and signing with the service's clock did not help."""
    direction = "behind" if skew > 0 else "ahead of"
    message = f"{refusal.operation}: this machine's clock is {abs(skew):.0f} s {direction} the service's"
    return _build(errors.ClockSkewError, message, refusal=refusal, hint="Set the clock (timedatectl set-ntp true).")


def invalid_answer(refusal: Refusal, *, problem: str, endpoint: str) -> errors.ServiceError:
    """The error for an answer of success that cannot be one."""
    hint = f"Check that {endpoint} is the service's endpoint, and that no proxy or login page stands before it."
    message = f"{refusal.operation}: the answer is {one_line(problem)}"
    return _build(errors.AnswerInvalidError, message, refusal=refusal, hint=hint)


def _build(
    kind: type[errors.ServiceError], message: str, *, refusal: Refusal, hint: str | None = None
) -> errors.ServiceError:
    return kind(
        message,
        operation=refusal.operation,
        status=refusal.status,
        error_type=refusal.error_type,
        request_id=refusal.request_id,
        retry_after=refusal.retry_after,
        reason=refusal.message,
        hint=hint,
    )


def _kind(refusal: Refusal) -> type[errors.ServiceError]:
    message, error_type = refusal.message or "", refusal.error_type
    if refusal.status == 400 and any(re.search(pattern, message) for pattern, _ in _NOT_READY):
        return errors.RoleNotReadyError  # its type is that of any other wrong value
    if error_type in _BY_TYPE:
        return _BY_TYPE[error_type]
    if refusal.status == 404 and refusal.is_page and error_type is None:
        return errors.ServiceError  # a gateway does not know the path: this says nothing about what was asked for
    for pattern, kind in _BY_PATTERN:
        if error_type is not None and re.search(pattern, error_type):
            return kind
    if refusal.status in _BY_STATUS:
        return _BY_STATUS[refusal.status]
    return errors.ServiceFaultError if refusal.status >= 500 else errors.ServiceError


def one_line(text: str) -> str:
    """A text of somebody else's as one line of bounded length."""
    return errors.quote(text, limit=_SNIPPET_CHARACTERS)


_XML_CODE = re.compile(rb"<Code>([A-Za-z.]{1,100})</Code>")
_XML_MESSAGE = re.compile(rb"<Message>(.{0,2000}?)</Message>", re.DOTALL)
_TITLE = re.compile(rb"<title[^>]*>(.{0,200}?)</title>", re.IGNORECASE | re.DOTALL)


def parse_page(body: bytes) -> tuple[str | None, str | None]:
    """Type and message of an error that is not JSON: the XML of some front ends of AWS, or a gateway's page."""
    code = _XML_CODE.search(body)
    if code is None:
        return None, gateway_text(body)
    message = _XML_MESSAGE.search(body)
    return code.group(1).decode("ascii"), None if message is None else one_line(
        message.group(1).decode("utf-8", "replace")
    )


def gateway_text(body: bytes) -> str | None:
    """What a page says that no service wrote: its title, or its beginning; None if there is nothing to say."""
    match = _TITLE.search(body)
    text = one_line((match.group(1) if match else body[:_SNIPPET_CHARACTERS]).decode("utf-8", "replace"))
    return text or None


def parse_retry_after(value: str | None, *, date: float | None) -> float | None:
    """Seconds to wait, from a ``Retry-After`` of either form; ``date`` is the server's own idea of now."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text)  # however long: a wait that nobody keeps is not the same as none
    at = parse_date(text)
    return None if at is None or date is None else max(0.0, at - date)


def parse_date(value: str | None) -> float | None:
    """An HTTP date as seconds since the epoch; None if it is absent or none."""
    from email.utils import parsedate_to_datetime

    try:
        return None if value is None else parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None
