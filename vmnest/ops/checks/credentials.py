"""AWS credentials: where they are from, how long they last, and whose they are."""

from __future__ import annotations

import time

from ... import errors
from .. import moments
from . import access, check, services
from .check import Check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...aws.credentials import Standing
    from .context import Context

__all__ = ["PROBES"]

_ABOUT_TO_END_SECONDS = 900.0
_KEYS, _WHO = "credentials", "identity"


def credentials(context: Context) -> list[Check]:
    """The keys: absent, broken, or there, and until when."""
    found = access.standing(context)
    if isinstance(found, errors.VmnestError):
        is_absent = isinstance(found, errors.CredentialsNotFoundError)
        data = {"state": "absent" if is_absent else "broken"}
        return [access.of_error("aws.credentials", found, title=_KEYS, data=data)]
    return [_describe(found, now=time.time())]


def _describe(found: Standing, *, now: float) -> Check:
    left = None if found.expires_at is None else found.expires_at - now
    text, verdict, remedy = f"from {found.credentials.origin}", check.OK, None
    if left is not None:
        text += f", good until {moments.from_epoch(found.expires_at)} ({describe_seconds(left)})"
    if found.is_renewed:
        text += ", then renewed"
    elif left is not None and left < _ABOUT_TO_END_SECONDS:
        verdict, remedy = check.WARNING, "Get new ones soon: they end while sandboxes run, which then cannot be ended."
    elif left is None and found.credentials.token is not None:
        text += ", of a session that ends at a time unknown here"
    data = {
        "state": "found",
        "kind": found.kind,
        "origin": found.credentials.origin,
        "access_key": f"…{found.credentials.access_key[-4:]}",  # enough to tell two of them apart
        "expires_at": moments.from_epoch(found.expires_at),
        "is_renewed": found.is_renewed,
    }
    return check.Check("aws.credentials", title=_KEYS, verdict=verdict, detail=text, remedy=remedy, data=data)


def describe_seconds(seconds: float) -> str:
    """``in 12 min``, ``in 3 h 20 min``."""
    minutes = max(0, int(seconds // 60))
    return f"in {minutes} min" if minutes < 60 else f"in {minutes // 60} h {minutes % 60} min"


def identity(context: Context) -> list[Check]:
    """Whom they belong to, as AWS says: the account and the user or role."""
    if isinstance(access.region(context), errors.VmnestError):
        return [access.skipped("aws.identity", title=_WHO, reason=access.NO_REGION)]
    if isinstance(access.standing(context), errors.VmnestError):
        return [access.skipped("aws.identity", title=_WHO, reason=access.NO_CREDENTIALS)]
    found = access.caller(context)
    if isinstance(found, errors.DependencyMissingError):
        return [access.skipped("aws.identity", title=_WHO, reason="there is no botocore")]
    if isinstance(found, (errors.TransportError, errors.SettingError)) and not access.is_reachable(context):
        return [access.skipped("aws.identity", title=_WHO, reason="AWS cannot be reached")]
    if isinstance(found, errors.VmnestError):
        # Only AWS's own word condemns keys. That it cannot be asked may be a matter of the network, which others check.
        verdict = check.FAILED if isinstance(found, errors.SignatureRefusedError) else check.UNKNOWN
        if verdict == check.FAILED and not isinstance(found, errors.CredentialsExpiredError):
            _add_region(found, context)
        return [access.of_error("aws.identity", found, title=_WHO, verdict=verdict)]
    data = {"account": found.account, "arn": found.arn}
    text = f"{found.arn} in account {found.account}"
    return [check.Check("aws.identity", title=_WHO, verdict=check.OK, detail=text, data=data)]


def _add_region(error: errors.VmnestError, context: Context) -> None:
    """A region that the account has not switched on refuses good keys in the same words."""
    where = access.region(context)
    if not isinstance(where, errors.VmnestError) and where.name not in services.KNOWN_REGIONS:
        error.add_hint(f"Or {where.name} is not switched on for the account: try another region.")


PROBES = (credentials, identity)
