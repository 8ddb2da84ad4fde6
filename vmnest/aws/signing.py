"""AWS Signature Version 4, made and verified. Pure: values in, headers or an error out.

The staircase of the specification, each step a function of its own: ``canonical_request`` → ``string_to_sign`` →
``signature``; ``sign`` and ``verify`` both walk it, so what one makes the other accepts. Rules that are easy to miss:

- Every service but S3 normalizes the path on the request line (``//``, ``.``, ``..``) and encodes it *once more*, so
  ``%3A`` of an ARN is signed as ``%253A``. S3 keys are bytes: encoded once, never normalized.
- Query pairs are encoded anew and then sorted; a key may repeat, and a key without a value gets ``=``.
- Header values are signed as the bytes that travel: latin-1, since that is what ``http.client`` sends.
- Headers that proxies and clients add or change on the way are left out (botocore's list).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from urllib.parse import quote, unquote_to_bytes, urlsplit

from .credentials import Credentials, Secret

__all__ = [
    "sign", "verify", "claimed_access_key", "claimed_service", "Verified", "SignatureError", "Credentials", "Secret",
    "Scope", "canonical_request", "string_to_sign", "signature", "canonical_path", "canonical_query",
    "EMPTY_SHA256", "UNSIGNED_PAYLOAD", "STREAMING_UNSIGNED_PAYLOAD", "SKEW_SECONDS",
]  # fmt: skip

ALGORITHM = "AWS4-HMAC-SHA256"
TERMINATOR = "aws4_request"
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
STREAMING_UNSIGNED_PAYLOAD = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
SKEW_SECONDS = 900

Headers = Sequence[tuple[str, str]]

_S3 = "s3"
_DATE_FORMAT = "%Y%m%dT%H%M%SZ"
_CONTENT_SHA256 = "x-amz-content-sha256"
_ADDED_BY_SIGNING = frozenset({"authorization", "x-amz-date", "x-amz-security-token"})
_NEVER_SIGNED = frozenset({
    "authorization", "baggage", "connection", "expect", "keep-alive", "proxy-authenticate", "proxy-authorization", "te",
    "traceparent", "tracestate", "trailer", "transfer-encoding", "upgrade", "user-agent", "x-amzn-trace-id",
})  # fmt: skip
# Not str.split(): in latin-1, 0x85 and 0xA0 are bytes of the value.
_BLANKS = re.compile(r"[ \t\r\n\f\v]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DATE = re.compile(r"[0-9]{8}T[0-9]{6}Z")


class SignatureError(ValueError):
    """A request whose signature does not hold.

    ``kind``: ``missing``, ``malformed``, ``unknown_key``, ``mismatch``, ``expired`` or ``wrong_service``.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Verified:
    """Who signed a request, for which region, and which headers the signature covers (lower case).

    ``payload`` is the digest of the body that was signed, or, for S3 alone, the word that says why there is none.
    """

    __slots__ = ("access_key", "payload", "region", "signed_headers")

    def __init__(self, *, access_key: str, region: str, signed_headers: tuple[str, ...], payload: str) -> None:
        self.access_key = access_key
        self.region = region
        self.signed_headers = signed_headers
        self.payload = payload


class Scope:
    """What a signature is good for: one day, one region, one service."""

    __slots__ = ("day", "region", "service")

    def __init__(self, *, day: str, region: str, service: str) -> None:
        self.day = day
        self.region = region
        self.service = service

    def __str__(self) -> str:
        return f"{self.day}/{self.region}/{self.service}/{TERMINATOR}"


# -- making ------------------------------------------------------------------------------------------------------------


def sign(
    *,
    method: str,
    url: str,
    headers: Headers,
    body_sha256: str,
    credentials: Credentials,
    region: str,
    service: str,
    when: datetime,
) -> list[tuple[str, str]]:
    """The headers to add to a request so that it is signed; those given are signed too and must be sent unchanged.

    Args:
        method: In capitals, as sent.
        url: With the path and query exactly as they will stand on the request line.
        headers: What will be sent. ``Host`` is added if absent.
        body_sha256: Hex digest of the body; for S3 also ``UNSIGNED-PAYLOAD``.
        credentials: The key; a session token is added and signed.
        region: Region of the scope.
        service: Signing name, for example ``lambda``.
        when: Time of signing, with a time zone.
    """
    names = {name.lower() for name, _ in headers}
    if names & _ADDED_BY_SIGNING:
        raise ValueError(f"signing adds these headers itself: {', '.join(sorted(names & _ADDED_BY_SIGNING))}")
    stamp = when.astimezone(timezone.utc).strftime(_DATE_FORMAT)
    added = [] if "host" in names else [("Host", _host(url))]
    added.append(("X-Amz-Date", stamp))
    if credentials.token is not None:
        added.append(("X-Amz-Security-Token", credentials.token.reveal()))
    if service == _S3 and _CONTENT_SHA256 not in names:
        added.append(("X-Amz-Content-SHA256", body_sha256))

    everything = [*headers, *added]
    signed = sorted({name.lower() for name, _ in everything} - _NEVER_SIGNED)
    canonical = canonical_request(
        method=method,
        target=_target(url),
        headers=everything,
        signed_headers=signed,
        payload=_first(everything, _CONTENT_SHA256) or body_sha256,
        service=service,
    )
    scope = Scope(day=stamp[:8], region=region, service=service)
    made = signature(credentials.secret_key, scope=scope, text=string_to_sign(canonical, stamp=stamp, scope=scope))
    authorization = (
        f"{ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={';'.join(signed)}, Signature={made}"
    )
    return [*added, ("Authorization", authorization)]


def _host(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return host if parts.port in (None, default) else f"{host}:{parts.port}"


def _target(url: str) -> str:
    # Not urlsplit: it drops characters (tabs, line ends) and an empty query, and the target is signed as it travels.
    _, _, rest = url.partition("://")
    start = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    return rest[start:].partition("#")[0]


# -- the staircase -----------------------------------------------------------------------------------------------------


def canonical_request(
    *, method: str, target: str, headers: Headers, signed_headers: Iterable[str], payload: str, service: str
) -> str:
    """Step 1: the request in the one form that both ends agree on."""
    path, _, query = target.partition("?")
    names = sorted(signed_headers)
    lines = [method, canonical_path(path, service=service), canonical_query(query)]
    lines += [f"{name}:{_canonical_value(headers, name)}" for name in names]
    lines += ["", ";".join(names), payload]
    return "\n".join(lines)


def string_to_sign(canonical: str, *, stamp: str, scope: Scope) -> str:
    """Step 2: the digest of the canonical request, bound to a moment and a scope."""
    return f"{ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(_bytes_sent(canonical)).hexdigest()}"


def signature(secret_key: Secret, *, scope: Scope, text: str) -> str:
    """Step 3: the hex signature, by a key derived from the secret for this scope alone."""
    key = f"AWS4{secret_key.reveal()}".encode()
    for part in (scope.day, scope.region, scope.service, TERMINATOR):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


def canonical_path(path: str, *, service: str) -> str:
    """The path of the canonical request, from the path on the request line."""
    if service == _S3:
        return quote(unquote_to_bytes(path), safe="/~") or "/"
    return quote(_without_dot_segments(path), safe="/~")


def _without_dot_segments(path: str) -> str:
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in {"", "."}:
            kept.append(segment)
    last = "/" if kept and path.endswith("/") else ""
    return "/" + "/".join(kept) + last


def canonical_query(query: str) -> str:
    """The query of the canonical request, from the query on the request line (``+`` is a plus sign, not a space)."""
    parts = [pair.partition("=") for pair in query.split("&") if pair]
    # Sorted as pairs: joined first, "a-b=" would come before "a=".
    pairs = sorted((_encoded_anew(key), _encoded_anew(value)) for key, _, value in parts)
    return "&".join(f"{key}={value}" for key, value in pairs)


def _encoded_anew(text: str) -> str:
    return quote(unquote_to_bytes(text), safe="~")


def _canonical_value(headers: Headers, name: str) -> str:
    return ",".join(_BLANKS.sub(" ", value).strip(" ") for key, value in headers if key.lower() == name)


def _bytes_sent(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


# -- verifying ---------------------------------------------------------------------------------------------------------


def verify(
    *,
    method: str,
    raw_target: str,
    headers: Headers,
    body_sha256: str | None,
    secret_for: Callable[[str], Secret | None],
    service: str,
    now: datetime,
    skew_seconds: float = SKEW_SECONDS,
) -> Verified:
    """Check a request as a server received it; any region is accepted.

    Args:
        method: As on the request line.
        raw_target: As on the request line, nothing decoded or normalized.
        headers: All of them, in order, decoded as latin-1.
        body_sha256: Hex digest of the body that arrived. None, for S3 alone: it is still to come, and whoever reads it
            holds it to ``Verified.payload``.
        secret_for: Access key → its secret, or None if the key is unknown.
        service: The signing name that the scope must carry.
        now: With a time zone.
        skew_seconds: How far the date of the request may be off, either way.

    Raises:
        SignatureError: with the kind of fault; the message is fit for the caller of the service.
    """
    if not raw_target.isascii():
        raise SignatureError("malformed", "The request target must be ASCII.")
    claim = _parse_authorization(headers)
    stamp = _parse_date(headers)
    _check_claim(claim, headers=headers, stamp=stamp, service=service)
    secret = secret_for(claim.access_key)
    if secret is None:
        raise SignatureError("unknown_key", "The security token included in the request is invalid.")
    _check_date(stamp, now=now, skew_seconds=skew_seconds)
    payload = _payload(headers, body_sha256=body_sha256, service=service)
    canonical = canonical_request(
        method=method,
        target=raw_target,
        headers=headers,
        signed_headers=claim.signed_headers,
        payload=payload,
        service=service,
    )
    text = string_to_sign(canonical, stamp=stamp, scope=claim.scope)
    if not hmac.compare_digest(signature(secret, scope=claim.scope, text=text), claim.signature):
        raise _mismatch()
    return Verified(
        access_key=claim.access_key,
        region=claim.scope.region,
        signed_headers=tuple(sorted(claim.signed_headers)),
        payload=payload,
    )


def claimed_service(headers: Headers) -> str | None:
    """The service that a request says it is signed for; None if it does not say. Nothing is verified."""
    try:
        return _parse_authorization(headers).scope.service
    except SignatureError:
        return None


def claimed_access_key(headers: Headers) -> str | None:
    """The access key that a request says it is signed with; None if it does not say. Nothing is verified."""
    try:
        return _parse_authorization(headers).access_key
    except SignatureError:
        return None


class _Claim:
    """The Authorization header, taken apart."""

    __slots__ = ("access_key", "scope", "signature", "signed_headers", "terminator")

    def __init__(self, credential: str, *, signed_headers: str, signature: str) -> None:
        # An access key has no slash today; split from the right so that one with a slash would still be read.
        parts = credential.rsplit("/", 4)
        if len(parts) != 5 or not all(parts):
            raise SignatureError(
                "malformed", "Credential must be of the form <access key>/<day>/<region>/<service>/aws4_request."
            )
        self.access_key, day, region, service, self.terminator = parts
        self.scope = Scope(day=day, region=region, service=service)
        self.signed_headers = signed_headers.split(";")
        self.signature = signature


def _parse_authorization(headers: Headers) -> _Claim:
    values = [value for name, value in headers if name.lower() == "authorization"]
    if not values:
        raise SignatureError("missing", "Missing Authentication Token")
    algorithm, _, rest = values[0].strip().partition(" ")
    if len(values) > 1 or algorithm != ALGORITHM:
        raise SignatureError("malformed", f"Authorization must be one header that starts with {ALGORITHM}.")
    fields: dict[str, str] = {}
    for item in rest.split(","):
        name, equals, value = item.strip().partition("=")
        if not equals or name in fields:
            raise SignatureError("malformed", f"Authorization cannot be read at {item.strip()[:40]!r}.")
        fields[name] = value
    missing = [name for name in ("Credential", "SignedHeaders", "Signature") if not fields.get(name)]
    if missing:
        raise SignatureError(
            "malformed", " ".join(f"Authorization header requires '{name}' parameter." for name in missing)
        )
    if not _SHA256.fullmatch(fields["Signature"]):
        raise SignatureError("malformed", "Signature must be 64 hexadecimal digits in lower case.")
    return _Claim(fields["Credential"], signed_headers=fields["SignedHeaders"], signature=fields["Signature"])


def _parse_date(headers: Headers) -> str:
    value = _first(headers, "x-amz-date") or _first(headers, "date")
    if value is None:
        raise SignatureError(
            "malformed", "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header."
        )
    try:
        if _DATE.fullmatch(value):
            return _moment(value).strftime(_DATE_FORMAT)
        moment = parsedate_to_datetime(value)
        if moment.tzinfo is None:  # "-0000": a date in UTC from a host that does not tell where it is
            moment = moment.replace(tzinfo=timezone.utc)
        return moment.astimezone(timezone.utc).strftime(_DATE_FORMAT)
    except (ValueError, OverflowError):
        raise SignatureError("malformed", f"Date must be in ISO-8601 'basic format'. Got '{value[:40]}'.") from None


def _check_claim(claim: _Claim, *, headers: Headers, stamp: str, service: str) -> None:
    if claim.terminator != TERMINATOR:
        raise SignatureError("malformed", f"Credential should be scoped with a valid terminator: '{TERMINATOR}'.")
    if claim.scope.service != service:
        raise SignatureError("wrong_service", f"Credential should be scoped to correct service: '{service}'.")
    if claim.scope.day != stamp[:8]:
        raise SignatureError("malformed", f"Date in Credential scope does not match the date of the request: {stamp}.")
    present = [name.lower() for name, _ in headers]
    signed = set(claim.signed_headers)
    if "host" not in signed or present.count("host") != 1:
        raise SignatureError("malformed", "'Host' must be one header and a 'SignedHeader' in the AWS Authorization.")
    # The token may be added after signing: some services ask for that, and it guards itself.
    unsigned = {name for name in present if name.startswith("x-amz-")} - signed - {"x-amz-security-token"}
    if unsigned or not signed <= set(present):
        named = ", ".join(sorted(unsigned or signed - set(present)))
        raise SignatureError(
            "malformed", f"Every x-amz- header must be signed and every signed header sent: {named[:200]}."
        )


def _check_date(stamp: str, *, now: datetime, skew_seconds: float) -> None:
    ahead = (_moment(stamp) - now).total_seconds()
    if abs(ahead) <= skew_seconds:
        return
    here, window = now.astimezone(timezone.utc).strftime(_DATE_FORMAT), f"{skew_seconds / 60:g} min."
    if ahead < 0:
        raise SignatureError("expired", f"Signature expired: {stamp} is now earlier than {here} - {window}")
    raise SignatureError("expired", f"Signature not yet current: {stamp} is still later than {here} + {window}")


def _payload(headers: Headers, *, body_sha256: str | None, service: str) -> str:
    declared = _first(headers, _CONTENT_SHA256)
    if declared is None:
        if body_sha256 is None:
            raise SignatureError("malformed", f"Missing required header for this request: {_CONTENT_SHA256}")
        return body_sha256
    if service == _S3 and declared in {UNSIGNED_PAYLOAD, STREAMING_UNSIGNED_PAYLOAD}:
        return declared
    if service == _S3 and declared.startswith("STREAMING-"):
        raise SignatureError("malformed", f"Bodies whose chunks are signed are not supported: {declared[:60]}.")
    if body_sha256 is None:
        if service != _S3 or not _SHA256.fullmatch(declared):
            raise SignatureError("malformed", f"{_CONTENT_SHA256} must be {UNSIGNED_PAYLOAD}, or a SHA-256 digest.")
    elif not hmac.compare_digest(declared.encode(), body_sha256.encode()):
        raise _mismatch()
    return declared


def _mismatch() -> SignatureError:
    return SignatureError(
        "mismatch",
        "The request signature we calculated does not match the signature you provided. "
        "Check your AWS Secret Access Key and signing method.",
    )


def _first(headers: Headers, name: str) -> str | None:
    return next((value.strip() for key, value in headers if key.lower() == name), None)


def _moment(stamp: str) -> datetime:
    return datetime.strptime(stamp, _DATE_FORMAT).replace(tzinfo=timezone.utc)
