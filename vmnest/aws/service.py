"""One caller for the services whose model is rest-json: build, sign, send, read; again if that helps.

``Service.call`` checks the request against the model, then makes attempts until one is answered. Each attempt takes
credentials anew and is signed anew; the request itself, its idempotency token included, stays the same. ``retries``
decides whether there is a next attempt, ``refusals`` what an error answer means.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, TypeGuard

from .. import errors
from ..deadline import SYSTEM_CLOCK, Clock, Deadline
from ..wire import names
from . import model, refusals, retries, shapes, signing

if TYPE_CHECKING:
    from ..transport import Headers, Transport
    from .credentials import Credentials, CredentialSource

MAX_ANSWER_BYTES = 8 * 2**20
READ_TIMEOUT_SECONDS = 60.0
# The service allows 15 minutes (design of SigV4); less than this is not what made it refuse.
_SKEW_THAT_MATTERS_SECONDS = 240.0

_log = logging.getLogger(__name__)


class Service:
    """Calls to one service at one endpoint. Safe for threads.

    Args:
        service: Name of the model, ``lambda-microvms`` or ``lambda-core``.
        endpoint: Base URL.
        region: For the signature, and for messages.
        credentials: Asked anew for each attempt.
        transport: Sends.
        clock: Time of signing, and the waits between attempts.
        on_refused: Called once in a call when no connection can be made, with the call's deadline; returns the endpoint
            to try instead.
    """

    def __init__(
        self,
        service: str,
        *,
        endpoint: str,
        region: str,
        credentials: CredentialSource,
        transport: Transport,
        clock: Clock = SYSTEM_CLOCK,
        on_refused: Callable[[Deadline], str] | None = None,
    ) -> None:
        self._model = model.load(service)
        self.endpoint = endpoint
        self.region = region
        self._credentials = credentials
        self._transport = transport
        self._clock = clock
        self._on_refused = on_refused
        self._clock_offset = 0.0

    def call(
        self,
        operation: str,
        params: Mapping[str, object],
        *,
        deadline: Deadline,
        extra_headers: Sequence[tuple[str, str]] = (),
        is_passing: Callable[[errors.ServiceError], bool] | None = None,
    ) -> dict[str, object]:
        """Make one call and return the answer's members.

        Parameters that are None are left out. An idempotency token that the model has and ``params`` has not is made
        up, once for all attempts.

        Args:
            operation: Its name in the model.
            params: Its parameters by their names in the model.
            deadline: The end of all attempts.
            extra_headers: Sent and signed.
            is_passing: Asked about a refusal that would end the call: True if it will pass by itself.

        Raises:
            errors.RequestInvalidError: ``params`` break the model; nothing was sent.
            errors.CredentialsError: there are no usable credentials.
            errors.ServiceError: the service refuses (see its subclasses).
            errors.TransportError: no answer.
            errors.WaitTimeoutError: the deadline passed before an attempt was made.

        Of a call that changes something, the error's ``details["outcome"]`` is ``unknown`` if it may have been obeyed.
        """
        modelled = self._model.operation(operation)
        call = _Call(modelled, shapes.build_request(modelled, params), extra_headers, deadline)
        left = retries.Retries(is_repeatable=retries.is_repeatable(modelled))
        may_move = True
        while True:
            try:
                return self._attempt(call)
            except errors.VmnestError as error:
                if may_move and isinstance(error, errors.ConnectError) and self._on_refused is not None:
                    may_move = False
                    self.endpoint = self._on_refused(call.deadline)
                    continue
                delay = left.delay_after(error, left=deadline.remaining())
                if delay is None and is_passing is not None and _is_refusal(error) and is_passing(error):
                    delay = left.delay_after(error, left=deadline.remaining(), is_passing=True)
                if delay is None:
                    self._complete(error, call)
                    raise
                call.may_be_done = call.may_be_done or _may_be_done(error)
                _log.debug("%s: attempt %d: %s; again in %.2f s", operation, left.attempts - 1, error, delay)
            self._clock.sleep(delay)

    def _complete(self, error: errors.VmnestError, call: _Call) -> None:
        """Add to the error that ends a call what it cannot know by itself."""
        if call.request.method != "GET" and (call.may_be_done or _may_be_done(error)):
            # However clearly the last attempt was refused: the one whose answer was lost may have been obeyed.
            error.details["outcome"] = "unknown"
        if isinstance(error, errors.TransportError) and error.hint is None:
            is_local = self._on_refused is not None
            cause = (
                "the local cloud: vmnest local status" if is_local else f"{self.endpoint} and this machine's network."
            )
            error.add_hint(f"Try again; if it stays so, check {cause}")

    def _attempt(self, call: _Call) -> dict[str, object]:
        """Sign, send and read once; once more if the service shows that our clock is off."""
        call.deadline.check(call.operation.name)
        status, headers, body = self._exchange(call)
        if 200 <= status < 300:
            return self._read(call, status, headers, body)
        refusal = self._refusal(call, status, headers, body)
        _log.debug("%s: %d %s (request %s)", refusal.operation, status, refusal.error_type, refusal.request_id)
        if not refusals.is_about_the_clock(refusal):
            error = refusals.to_error(refusal)
            if self._has_other_keys(error, call):
                return self._attempt(call)
            raise error
        if call.has_corrected_clock:
            raise refusals.clock_error(refusal, skew=self._clock_offset)
        now, date = self._clock.time(), refusals.parse_date(headers.get("date"))
        # Not against our clock, but what we took for the service's: ours may have been set right since it was learned.
        if date is None or abs(date - (now + self._clock_offset)) < _SKEW_THAT_MATTERS_SECONDS:
            raise refusals.to_error(refusal)
        call.has_corrected_clock = True
        self._clock_offset = date - now
        return self._attempt(call)

    def _has_other_keys(self, error: errors.ServiceError, call: _Call) -> bool:
        """The keys were refused, and there are others: asked once in a call."""
        if call.has_renewed or call.keys is None or not isinstance(error, errors.SignatureRefusedError):
            return False
        call.has_renewed = True
        try:
            return self._credentials.renew(call.keys)
        except errors.CredentialsError as failure:
            raise failure from error

    def _exchange(self, call: _Call) -> tuple[int, Headers, bytes]:
        request, url = call.request, self.endpoint + call.request.target
        call.keys = self._credentials.get()
        signature = signing.sign(
            method=request.method,
            url=url,
            headers=call.headers,
            body_sha256=call.body_sha256,
            credentials=call.keys,
            region=self.region,
            service=self._model.signing_name,
            when=datetime.fromtimestamp(self._clock.time() + self._clock_offset, timezone.utc),
        )
        with self._transport.send(
            request.method,
            url,
            headers=[*call.headers, *signature],
            body=request.body or None,
            deadline=call.deadline,
            read_timeout=READ_TIMEOUT_SECONDS,
            retry_stale=False,  # ``call`` repeats it, and keeps in mind that it may have been obeyed
        ) as response:
            return response.status, response.headers, response.read(MAX_ANSWER_BYTES)

    def _read(self, call: _Call, status: int, headers: Headers, body: bytes) -> dict[str, object]:
        problem = f"not JSON: {refusals.gateway_text(body)}"
        if not body or _is_object(body):
            try:
                answer: dict[str, object] = shapes.parse_answer(call.operation, headers, body)
                return answer
            except shapes.AnswerMalformed as error:
                problem = f"not what the service's model says: {error}"
        refusal = self._make_refusal(call, status, headers)
        raise refusals.invalid_answer(refusal, problem=problem, endpoint=self.endpoint)

    def _refusal(self, call: _Call, status: int, headers: Headers, body: bytes) -> refusals.Refusal:
        answer = shapes.parse_error(headers, status, body)
        error_type, message = answer.error_type, answer.message
        is_page = not _is_object(body)
        if is_page:
            page_type, page_text = refusals.parse_page(body)
            error_type, message = error_type or page_type, message or page_text
        return self._make_refusal(call, status, headers, error_type=error_type, message=message, is_page=is_page)

    def _make_refusal(
        self,
        call: _Call,
        status: int,
        headers: Headers,
        *,
        error_type: str | None = None,
        message: str | None = None,
        is_page: bool = False,
    ) -> refusals.Refusal:
        date = refusals.parse_date(headers.get("date"))
        return refusals.Refusal(
            operation=call.operation.name,
            region=self.region,
            status=status,
            error_type=error_type,
            message=message,
            request_id=headers.get(names.REQUEST_ID_HEADER),
            retry_after=refusals.parse_retry_after(headers.get("retry-after"), date=date),
            is_page=is_page,
            origin="" if call.keys is None else call.keys.origin,
        )


class _Call:
    """What all attempts of one call share."""

    __slots__ = (
        *("body_sha256", "deadline", "has_corrected_clock", "has_renewed", "headers", "keys", "may_be_done"),
        *("operation", "request"),
    )

    def __init__(
        self,
        operation: model.Operation,
        request: shapes.WireRequest,
        extra_headers: Sequence[tuple[str, str]],
        deadline: Deadline,
    ) -> None:
        self.operation = operation
        self.request = request
        self.headers = [*request.headers, *extra_headers]
        self.body_sha256 = hashlib.sha256(request.body).hexdigest()
        self.deadline = deadline
        self.has_corrected_clock = False
        self.may_be_done = False  # an attempt was made whose outcome nobody knows
        self.has_renewed = False
        self.keys: Credentials | None = None  # those of the last attempt


def _may_be_done(error: errors.VmnestError) -> bool:
    """The attempt that ended so may have had its effect."""
    if isinstance(error, errors.TransportError):
        return error.sent
    return isinstance(error, (errors.ServiceFaultError, errors.AnswerInvalidError))


def _is_refusal(error: errors.VmnestError) -> TypeGuard[errors.ServiceError]:
    return isinstance(error, errors.ServiceError)


def _is_object(body: bytes) -> bool:
    """The body may be a JSON object. Its content type proves nothing: emulators call JSON HTML, gateways HTML JSON."""
    return body.lstrip()[:1] == b"{"
