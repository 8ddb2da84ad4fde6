"""One caller for all services: build, sign, send, read; again if that helps.

``Service.call`` checks the request against the model, then makes attempts until one is answered. Each attempt takes
credentials anew and is signed anew; the request itself, its idempotency token included, stays the same. A ``codec``
knows the service's protocol, ``retries`` decides whether there is a next attempt, ``refusals`` what an error answer
means.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from .. import errors
from ..deadline import SYSTEM_CLOCK, Clock, Deadline
from ..wire import names
from . import codec, refusals, retries, shapes, signing

if TYPE_CHECKING:
    from ..transport import Response, Transport
    from .credentials import Credentials, CredentialSource

__all__ = ["Service"]

MAX_ANSWER_BYTES = 8 * 2**20
READ_TIMEOUT_SECONDS = 60.0
# The service allows 15 minutes (design of SigV4); less than this is not what made it refuse.
_SKEW_THAT_MATTERS_SECONDS = 240.0

_REQUEST_ID_HEADERS = (names.REQUEST_ID_HEADER, "x-amz-request-id")

_log = logging.getLogger(__name__)


class Service:
    """Calls to one service at one endpoint. Safe for threads.

    Args:
        service: Name of the model: ``lambda-microvms``, ``lambda-core``, or one of ``codec.CLASSIC``.
        endpoint: Base URL; None for the service's own host in the region, by the rules that only the latter have.
        region: For the signature (where the rules do not name another), and for messages.
        credentials: Asked anew for each attempt.
        transport: Sends.
        clock: Time of signing, and the waits between attempts.
        on_refused: Called once in a call when no connection can be made, with the call's deadline; returns the endpoint
            to try instead.
        variant: Which of the service's own hosts.
    """

    def __init__(
        self,
        service: str,
        *,
        endpoint: str | None,
        region: str,
        credentials: CredentialSource,
        transport: Transport,
        clock: Clock = SYSTEM_CLOCK,
        on_refused: Callable[[Deadline], str] | None = None,
        variant: codec.Variant | None = None,
    ) -> None:
        self._codec = codec.load(service, variant=variant)
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
        answer, _ = self._attempts(self._build(operation, params, extra_headers, deadline), is_passing)
        return answer

    def open(
        self,
        operation: str,
        params: Mapping[str, object],
        *,
        deadline: Deadline,
        extra_headers: Sequence[tuple[str, str]] = (),
    ) -> tuple[dict[str, object], Response]:
        """As ``call``, but the body of a success stays on the wire, and the caller closes it.

        The first part of the result are the members that do not travel in the body. ``deadline`` bounds the reading,
        too.
        """
        call = self._build(operation, params, extra_headers, deadline)
        call.is_streamed = True
        answer, response = self._attempts(call, None)
        assert response is not None
        return answer, response

    def pages(self, operation: str, params: Mapping[str, object], *, deadline: Deadline, items: str) -> Iterator[Any]:
        """What a listing holds, one by one, page after page as they are used up; errors as of ``call``.

        Args:
            operation: One that the model has a paginator for.
            params: Those of the first page; all pages get them.
            deadline: The end of it all.
            items: The member of the answers that lists.

        Raises:
            errors.AnswerInvalidError: the pages have no end.
        """
        from . import paging

        walk = paging.Walk(paging.load(self._codec.service, operation))
        following: dict[str, object] | None = {}
        while following is not None:
            answer = self.call(operation, {**params, **following}, deadline=deadline)
            yield from cast("list[Any]", answer.get(items) or ())
            try:
                following = walk.next_params(answer)
            except paging.Broken as error:
                raise refusals.invalid_answer(
                    refusals.Refusal(
                        service=self._codec.service,
                        operation=operation,
                        region=self.region,
                        status=200,
                        error_type=None,
                        message=None,
                    ),
                    problem=f"no part of a list: {error}",
                    endpoint=self.endpoint or self._codec.service,
                ) from error

    def _build(
        self,
        operation: str,
        params: Mapping[str, object],
        extra_headers: Sequence[tuple[str, str]],
        deadline: Deadline,
    ) -> _Call:
        modelled = self._codec.operation(operation)
        return _Call(modelled, self._codec.build(operation, params), extra_headers, deadline, region=self.region)

    def _attempts(
        self, call: _Call, is_passing: Callable[[errors.ServiceError], bool] | None
    ) -> tuple[dict[str, object], Response | None]:
        left = retries.Retries(is_repeatable=retries.is_repeatable(call.operation))
        may_move = True
        while True:
            try:
                return self._attempt(call)
            except errors.VmnestError as error:
                if may_move and isinstance(error, errors.ConnectError) and self._on_refused is not None:
                    may_move = False
                    self.endpoint = self._on_refused(call.deadline)
                    continue
                delay = left.delay_after(error, left=call.deadline.remaining())
                if delay is None and is_passing is not None and _is_refusal(error) and is_passing(error):
                    delay = left.delay_after(error, left=call.deadline.remaining(), is_passing=True)
                if delay is None:
                    self._complete(error, call)
                    raise
                call.may_be_done = call.may_be_done or _may_be_done(error)
                _log.debug("%s: attempt %d: %s; again in %.2f s", call.operation.name, left.attempts - 1, error, delay)
            self._clock.sleep(delay)

    def _complete(self, error: errors.VmnestError, call: _Call) -> None:
        """Add to the error that ends a call what it cannot know by itself."""
        if not call.operation.is_look and (call.may_be_done or _may_be_done(error)):
            # However clearly the last attempt was refused: the one whose answer was lost may have been obeyed.
            error.details["outcome"] = "unknown"
        if isinstance(error, errors.TransportError) and error.hint is None:
            is_local = self._on_refused is not None
            cause = "the local cloud: vmnest local status" if is_local else f"{call.base} and this machine's network."
            error.add_hint(f"Try again; if it stays so, check {cause}")

    def _attempt(self, call: _Call) -> tuple[dict[str, object], Response | None]:
        """Sign, send and read once; once more if the service shows that our clock is off, or names another region."""
        call.deadline.check(call.operation.name)
        answer, response = self._exchange(call)
        status = self._codec.status(call.operation.name, answer)
        if 200 <= status < 300:
            return self._read(call, answer, response), response
        answer = answer._replace(status=status)
        if self._is_elsewhere(call, answer):
            return self._attempt(call)
        refusal = self._refusal(call, answer)
        _log.debug("%s: %d %s (request %s)", refusal.operation, status, refusal.error_type, refusal.request_id)
        if not refusals.is_about_the_clock(refusal):
            error = refusals.to_error(refusal)
            if self._has_other_keys(error, call):
                return self._attempt(call)
            raise error
        if call.has_corrected_clock:
            raise refusals.clock_error(refusal, skew=self._clock_offset)
        now, date = self._clock.time(), refusals.parse_date(answer.headers.get("date"))
        # Not against our clock, but what we took for the service's: ours may have been set right since it was learned.
        if date is None or abs(date - (now + self._clock_offset)) < _SKEW_THAT_MATTERS_SECONDS:
            raise refusals.to_error(refusal)
        call.has_corrected_clock = True
        self._clock_offset = date - now
        return self._attempt(call)

    def _is_elsewhere(self, call: _Call, answer: codec.Answer) -> bool:
        """The service names another region than the request's: believed once in a call."""
        region = None if call.has_moved else self._codec.other_region(call.request, answer)
        if region is None or region == call.region:
            return False
        call.has_moved, call.region = True, region
        return True

    def _has_other_keys(self, error: errors.ServiceError, call: _Call) -> bool:
        """The keys were refused, and there are others: asked once in a call."""
        if call.has_renewed or call.keys is None or not isinstance(error, errors.SignatureRefusedError):
            return False
        call.has_renewed = True
        try:
            return self._credentials.renew(call.keys)
        except errors.CredentialsError as failure:
            raise failure from error

    def _exchange(self, call: _Call) -> tuple[codec.Answer, Response | None]:
        place = self._codec.locate(call.request, endpoint=self.endpoint, region=call.region)
        call.base, url = place.base, place.base + call.request.target
        call.keys = self._credentials.get()
        signature = signing.sign(
            method=call.request.method,
            url=url,
            headers=call.headers,
            body_sha256=call.body_sha256,
            credentials=call.keys,
            region=place.region,
            service=place.signing_name,
            when=datetime.fromtimestamp(self._clock.time() + self._clock_offset, timezone.utc),
        )
        response = self._transport.send(
            call.request.method,
            url,
            headers=[*call.headers, *signature],
            body=call.body,
            deadline=call.deadline,
            read_timeout=READ_TIMEOUT_SECONDS,
            retry_stale=False,  # ``call`` repeats it, and keeps in mind that it may have been obeyed
        )
        if call.is_streamed and 200 <= response.status < 300:
            return codec.Answer(response.status, response.headers, b""), response
        with response:
            return codec.Answer(response.status, response.headers, response.read(MAX_ANSWER_BYTES)), None

    def _read(self, call: _Call, answer: codec.Answer, response: Response | None) -> dict[str, object]:
        if not answer.body or self._codec.is_own_body(answer.body):
            try:
                return self._codec.read(call.operation.name, answer)
            except shapes.AnswerMalformed as error:
                problem = f"not what the service's model says: {error}"
        else:
            problem = f"not {self._codec.language}: {refusals.gateway_text(answer.body)}"
        if response is not None:
            response.close()
        raise refusals.invalid_answer(self._make_refusal(call, answer), problem=problem, endpoint=call.base)

    def _refusal(self, call: _Call, answer: codec.Answer) -> refusals.Refusal:
        said = self._codec.read_error(call.operation.name, answer)
        error_type, message = said.error_type, said.message
        is_page = self._codec.is_page(call.operation.name, answer)
        if is_page:
            page_type, page_text = refusals.parse_page(answer.body)
            error_type, message = error_type or page_type, message or page_text
        return self._make_refusal(
            call, answer, error_type=error_type, message=message, is_page=is_page, request_id=said.request_id
        )

    def _make_refusal(
        self,
        call: _Call,
        answer: codec.Answer,
        *,
        error_type: str | None = None,
        message: str | None = None,
        is_page: bool = False,
        request_id: str | None = None,
    ) -> refusals.Refusal:
        headers = answer.headers
        date = refusals.parse_date(headers.get("date"))
        ids = (headers.get(name) for name in _REQUEST_ID_HEADERS)
        return refusals.Refusal(
            service=self._codec.service,
            operation=call.operation.name,
            region=call.region,
            status=answer.status,
            error_type=error_type,
            message=message,
            request_id=next(filter(None, ids), request_id),
            retry_after=refusals.parse_retry_after(headers.get("retry-after"), date=date),
            is_page=is_page,
            origin="" if call.keys is None else call.keys.origin,
        )


class _Call:
    """What all attempts of one call share."""

    __slots__ = (
        *("base", "body", "body_sha256", "deadline", "has_corrected_clock", "has_moved", "has_renewed", "headers"),
        *("is_streamed", "keys", "may_be_done", "operation", "region", "request"),
    )

    def __init__(
        self,
        operation: codec.Operation,
        request: codec.Request,
        extra_headers: Sequence[tuple[str, str]],
        deadline: Deadline,
        *,
        region: str,
    ) -> None:
        self.operation = operation
        self.request = request
        self.headers = [*request.headers, *extra_headers]
        self.body: bytes | Callable[[], Iterable[bytes]] | None
        if isinstance(request.body, bytes):
            self.body = request.body or None
            self.body_sha256 = hashlib.sha256(request.body).hexdigest()
        else:
            self.body = request.body.open
            self.body_sha256 = request.body.sha256
            self.headers.append(("Content-Length", str(request.body.size)))
        self.deadline = deadline
        self.region = region  # for the rules and the signature
        self.base = ""  # where the last attempt went
        self.has_corrected_clock = False
        self.may_be_done = False  # an attempt was made whose outcome nobody knows
        self.has_moved = False  # to another region
        self.has_renewed = False
        self.is_streamed = False
        self.keys: Credentials | None = None  # those of the last attempt


def _may_be_done(error: errors.VmnestError) -> bool:
    """The attempt that ended so may have had its effect."""
    if isinstance(error, errors.TransportError):
        return error.sent
    return isinstance(error, (errors.ServiceFaultError, errors.AnswerInvalidError))


def _is_refusal(error: errors.VmnestError) -> TypeGuard[errors.ServiceError]:
    return isinstance(error, errors.ServiceError)
