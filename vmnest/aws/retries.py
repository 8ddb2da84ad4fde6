"""Whether a failed attempt is made again, and when. Pure: the error in, seconds or None out.

Rules: what was throttled, lacked capacity, or was refused because of a role that is too new, was not done, so it can
always be made again, and so can what never left this machine. Everything else is made again only if the operation can
be repeated without harm: the model marks it, it has an idempotency token, or we know it. 402 (quota) never: it does not
pass by itself. The service's own ``Retry-After`` is honoured; when it asks for more than the call has left, the error
is the answer.

The models of the classic services mark nothing; there the first word of an operation's name tells, and a table what
else is known. What is made under a name that can be taken once (a role, a bucket) counts as harmless: the second
attempt is refused, and that error carries ``outcome: unknown``, so that who wants the thing looks whether it is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .. import deadline as deadlines
from .. import errors
from . import codec

MAX_ATTEMPTS = 5
# RunMicrovm is admitted once a second in a fresh account, so being throttled deserves more patience than a fault.
MAX_ATTEMPTS_THROTTLED = 8
# A role takes some ten seconds until it can be assumed everywhere; the attempts below go on for about half a minute.
MAX_ATTEMPTS_ROLE = 12
MAX_RETRY_AFTER_SECONDS = 60.0
FIRST_DELAY_SECONDS = 0.1
FIRST_DELAY_THROTTLED_SECONDS = 0.5

# Not marked in the model, and yet harmless to make twice: a second token is one token more; a status set again is set.
_HARMLESS_TWICE = frozenset({"CreateMicrovmAuthToken", "CreateMicrovmShellAuthToken", "UpdateMicrovmImageVersion"})
# Of the classic services: the first words of operations that only look, and of those that state a fact or an absence.
_LOOKS = r"(?:Describe|Filter|Get|Head|List|Lookup|Search|Select|Simulate|Validate)(?=[A-Z0-9])"
_STATEMENTS = (
    r"(?:Abort|Add|Associate|Attach|Authorize|Deactivate|Delete|Detach|Disable|Disassociate|Enable|Modify|Put|Remove|"
    r"Replace|Revoke|Set|Tag|Untag|Update)(?=[A-Z0-9])"
)
_APPENDING = frozenset({"PutLogEvents", "PutMetricData"})
_NAMED_ONCE = frozenset({
    "CreateInstanceProfile", "CreateLogGroup", "CreateLogStream", "CreatePolicy", "CreateRole", "CreateSecurityGroup",
    "CreateSubnet", "CreateUser",
})  # fmt: skip
_HARMLESS_ANYWAY = frozenset({"AssumeRole", "CreateTags"})
# What the service refused before it did anything, and will do later.
_NOT_DONE = (errors.ThrottledError, errors.CapacityError, errors.RoleNotReadyError)


class Retries:
    """The retries of one call. ``attempts`` counts those that were made."""

    def __init__(self, *, is_repeatable: bool) -> None:
        self.attempts = 1
        self._is_repeatable = is_repeatable
        self._delays = deadlines.backoff(first=FIRST_DELAY_SECONDS)
        self._slow_delays = deadlines.backoff(first=FIRST_DELAY_THROTTLED_SECONDS)

    def delay_after(self, error: errors.VmnestError, *, left: float | None, is_passing: bool = False) -> float | None:
        """Seconds to wait before the next attempt, or None if ``error`` stands.

        Args:
            error: What came of the last attempt.
            left: The seconds that the call has left.
            is_passing: The caller knows that this error passes by itself.
        """
        is_slow = is_passing or isinstance(error, _NOT_DONE)
        if not (is_passing or error.retryable) or self.attempts >= _most_attempts(error, is_slow=is_slow):
            return None
        if not (is_slow or self._is_repeatable or _was_not_sent(error)):
            return None
        delay = max(next(self._choose(is_slow)), getattr(error, "retry_after", None) or 0.0)
        if delay > MAX_RETRY_AFTER_SECONDS or (left is not None and delay >= left):
            return None
        self.attempts += 1
        return delay

    def _choose(self, is_slow: bool) -> Iterator[float]:
        return self._slow_delays if is_slow else self._delays


def _most_attempts(error: errors.VmnestError, *, is_slow: bool) -> int:
    if isinstance(error, errors.RoleNotReadyError):
        return MAX_ATTEMPTS_ROLE
    return MAX_ATTEMPTS_THROTTLED if is_slow else MAX_ATTEMPTS


def is_repeatable(operation: codec.Operation) -> bool:
    """The operation can be made twice and the effect is that of once."""
    return operation.is_idempotent or operation.token_member is not None or operation.name in _HARMLESS_TWICE


def is_look(name: str) -> bool:
    """By its name, the operation of a classic service changes nothing."""
    return re.match(_LOOKS, name) is not None


def is_harmless_twice(name: str) -> bool:
    """By its name, the operation of a classic service can be made twice."""
    if name in _APPENDING:
        return False
    return is_look(name) or re.match(_STATEMENTS, name) is not None or name in _NAMED_ONCE | _HARMLESS_ANYWAY


def _was_not_sent(error: errors.VmnestError) -> bool:
    return isinstance(error, errors.TransportError) and not error.sent
