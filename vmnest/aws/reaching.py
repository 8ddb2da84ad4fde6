"""Who answers at a service's address, and what time it is there: asked without a signature, and so without keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..deadline import SYSTEM_CLOCK, Clock, Deadline
from ..wire import names
from . import refusals

if TYPE_CHECKING:
    from ..transport import Response, Transport

__all__ = ["Reached", "reach"]

# A request that the service has, so that it is the service itself that refuses it, and not what stands before it.
_PATH = "/2025-09-09/microvms?maxResults=1"
_ANSWER_BYTES = 65536
# Of AWS; of what stands in for it, any JSON will do.
_REQUEST_ID_HEADERS = (names.REQUEST_ID_HEADER, "x-amzn-request-id", "x-amz-request-id")


class Reached(NamedTuple):
    """An answer.

    Attributes:
        status: Of it.
        seconds: From the request, with the connection that was made for it, to the end of the answer.
        skew: How many seconds this machine's clock is behind the peer's (negative: ahead); None if it does not say.
        is_foreign: A web page or a redirection: no service that speaks JSON.
        text: What such a page says, or where it sends to.
    """

    status: int
    seconds: float
    skew: float | None
    is_foreign: bool
    text: str | None


def reach(base: str, *, transport: Transport, deadline: Deadline, clock: Clock = SYSTEM_CLOCK) -> Reached:
    """Ask at ``base`` (no slash at its end), and see who answers.

    Raises:
        errors.TransportError: nobody does.
    """
    began, before = clock.time(), clock.monotonic()
    with transport.send("GET", base + _PATH, deadline=deadline) as response:
        body = next(response.chunks(_ANSWER_BYTES), b"")  # the beginning of a page will do
        seconds = clock.monotonic() - before
        date = refusals.parse_date(response.headers.get("date"))
        is_foreign = _is_foreign(response, body)
        text = None
        if is_foreign:
            text = response.headers.get("location") or refusals.gateway_text(body)
        # The date was written somewhere between, and says no more than the second.
        skew = None if date is None else date + 0.5 - (began + seconds / 2)
        return Reached(response.status, seconds, skew, is_foreign, text and refusals.one_line(text))


def _is_foreign(response: Response, body: bytes) -> bool:
    if any(response.headers.get(name) for name in _REQUEST_ID_HEADERS):
        return False
    return 300 <= response.status < 400 or body.lstrip()[:1] != b"{"
