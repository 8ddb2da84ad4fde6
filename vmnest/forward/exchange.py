"""One request of a client, and its answer: where it goes, what became of it, and whether it is sent again.

Until something of the answer has reached the client the request may be sent again, if all of it is still here and
nothing of it can have been executed: on a new connection when a used one turns out to be dead, with a new token, or to
a sandbox that was just resumed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeGuard

from .. import errors
from ..deadline import Deadline, backoff
from ..wire import bodies, http1
from ..wire.pipes import Pipe
from . import heads, pages, patience, tunnels, verdicts
from .crossing import Crossing
from .flows import BrokenError, Flow
from .gate import OVER, Gate, HeaderPairs
from .patience import GoneError
from .upstreams import Upstream, Upstreams
from .verdicts import Verdict

__all__ = ["Exchange", "Shared"]

PATIENCE_SECONDS = 10.0  # with a sandbox that is resuming
RECOVER_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.25
_LAST_PAUSE_SECONDS = 2.0
_PEEK_BYTES = 2048
_PEEK_SECONDS = 1.0
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Shared(NamedTuple):
    """What all exchanges of a forwarder have in common.

    Attributes:
        gate: The sandbox.
        upstreams: The connections to it.
        locals: The forwarded ports: that in the sandbox → that of this machine.
        is_direct: Requests do not go through the agent's relay.
        report: Told of problems, a line each.
        end: Ends the forwarder for that reason.
        ending: Set when it ends.
    """

    gate: Gate
    upstreams: Upstreams
    locals: Mapping[int, int]
    is_direct: bool
    report: Callable[[str], None]
    end: Callable[[errors.VmnestError], None]
    ending: threading.Event


class Exchange:
    """Carries one request whose head was read. ``run`` says whether the client's connection can be used further."""

    def __init__(self, shared: Shared, client: Pipe, request: http1.Request, *, remote: int, address: str) -> None:
        framing = http1.request_framing(request)
        self._shared = shared
        self._client = client
        self._request = request
        self._framing = framing
        self._remote = remote
        self._address = address
        self._is_safe = request.method in _SAFE and framing.kind == http1.NONE
        self._crossing = Crossing(client, framing)
        self._context: heads.Context
        self._upstream: Upstream | None = None
        self._refused: HeaderPairs | None = None
        self._resumes_until: Deadline | None = None
        self._pauses = backoff(first=_FIRST_PAUSE_SECONDS, last=_LAST_PAUSE_SECONDS)
        self._tried: set[str] = set()  # the causes for which it was sent again
        self._is_answered = False

    def run(self) -> bool:
        """Carry it, whatever comes of it.

        Raises:
            GoneError: the client is gone, or has to be cut off.
        """
        try:
            while (outcome := self._try()) is None:
                pass
            return outcome
        except BrokenError as error:
            self._drop()
            if self._is_answered or error.pipe is not self._client or not _is_malformed(error.reason):
                raise GoneError from error
            return self._tell(pages.for_message(error.reason), keep=False)
        finally:
            self._drop()

    # -- one try -------------------------------------------------------------------------------------------------------

    def _try(self) -> bool | None:
        """Whether the client's connection can be used further; None: try again."""
        try:
            self._shared.gate.check()
            agent_port = self._relay()
            token = self._shared.gate.headers(agent_port or self._remote, refused=self._refused)
            upstream = self._shared.upstreams.take(is_repeatable=self._is_safe, must_be_new="stale" in self._tried)
        except errors.ConnectError as error:
            # It may have moved, as one of this machine does. Nothing was sent.
            return self._recover(Verdict.UNREACHABLE) if self._may_try_again("connect") else self._fail(error)
        except errors.VmnestError as error:
            return self._fail(error)
        self._upstream = upstream
        try:
            self._begin(upstream, agent_port, token)
            response = self._ask(upstream)
        except BrokenError as error:
            if error.pipe is self._client:
                raise
            return self._lost(upstream, error)
        return self._take(upstream, response, token)

    def _relay(self) -> int | None:
        gate = self._shared.gate
        if self._shared.is_direct or self._remote == gate.agent_port:
            return None
        return gate.agent_port if gate.has_relay() else None

    def _begin(self, upstream: Upstream, agent_port: int | None, token: HeaderPairs) -> None:
        self._context = heads.Context(
            self._remote, self._shared.gate.authority, agent_port, self._shared.locals, self._address
        )
        head = heads.to_upstream(self._request, self._framing, context=self._context, token=token)
        self._crossing.begin(upstream, head=http1.serialize_request(head))

    def _ask(self, upstream: Upstream) -> http1.Response:
        """The head of the final answer; what comes before it is passed on."""
        for _ in range(http1.MAX_INTERIM):
            response = self._crossing.read_head()
            if response.status == http1.SWITCHING_PROTOCOLS:
                if not heads.upgrades(self._request) or not self._crossing.is_sent:
                    raise BrokenError(upstream, http1.MessageError("a change of protocol that nobody has asked for"))
                return response
            if response.status >= 200:
                return response
            if self._request.minor >= 1:
                patience.send(self._client, http1.serialize_response(heads.interim_to_client(response)))
        raise BrokenError(upstream, http1.MessageError("interim answers without end"))

    def _take(self, upstream: Upstream, response: http1.Response, token: HeaderPairs) -> bool | None:
        """The head of a final answer is here: pass it on, unless it is the platform's own word."""
        if response.status == http1.SWITCHING_PROTOCOLS:
            return self._switch(upstream, response)
        try:
            framing = http1.response_framing(response, method=self._request.method)
        except http1.MessageError as error:
            return self._lost(upstream, BrokenError(upstream, error))
        relayed = self._context.agent_port is not None
        body = _peek(upstream, framing) if verdicts.wants_body(response, relayed=relayed) else b"?"
        verdict = verdicts.judge(response, body, relayed=relayed)
        if verdict is not None:
            self._drop()
            return self._follow(verdict, token)
        if not relayed and (setting := verdicts.hint_of_host_check(response.status, body)):
            named = f"the server on port {self._remote} refuses the endpoint's name"
            self._shared.report(f"{named}; allow it there ({setting})")
        return self._answer(upstream, response, framing)

    # -- when there is no answer of the server's own -------------------------------------------------------------------

    def _may_try_again(self, cause: str) -> bool:
        """Whether it was not sent again for that cause, and all of it is here."""
        if cause in self._tried or not self._crossing.can_repeat:
            return False
        self._tried.add(cause)
        return True

    def _lost(self, upstream: Upstream, error: BrokenError) -> bool | None:
        """The endpoint ended the connection before an answer, or its answer is none."""
        self._drop()
        if self._shared.ending.is_set():
            raise GoneError from error
        has_ended = not _is_malformed(error.reason)
        # What cannot be repeated has got a used connection only if that was fresh: see ``Upstreams.take``.
        is_stale = upstream.was_used and not self._crossing.is_heard
        if has_ended and is_stale and self._may_try_again("stale"):
            return None
        if has_ended and self._is_safe and self._may_try_again("lost"):
            return self._recover(Verdict.UNNAMED)
        return self._page(pages.for_verdict(Verdict.BROKEN, remote=self._remote), why=str(error.reason))

    def _follow(self, verdict: Verdict, token: HeaderPairs) -> bool | None:
        if verdict is Verdict.TOKEN_REFUSED:
            return self._renew(token)
        if verdict is Verdict.NO_RELAY and self._may_try_again("relay"):
            try:
                self._shared.gate.has_relay(again=True)
            except errors.VmnestError as error:
                return self._fail(error)
            return None
        if verdict in {Verdict.UNREACHABLE, Verdict.UNNAMED} and self._crossing.can_repeat:
            self._resumes_until = self._resumes_until or Deadline(PATIENCE_SECONDS)
            if not self._resumes_until.expired:
                return self._recover(verdict)
        return self._page(pages.for_verdict(verdict, remote=self._remote))

    def _renew(self, token: HeaderPairs) -> bool | None:
        """The endpoint wants another token: for this request, or, if too much of it has gone, for the next one."""
        if self._may_try_again("token"):
            self._refused = token
            return None
        if "token" in self._tried:
            return self._page(pages.for_verdict(Verdict.TOKEN_REFUSED, remote=self._remote))
        try:
            self._shared.gate.headers(self._context.agent_port or self._remote, refused=token)
        except errors.VmnestError as error:
            return self._fail(error)
        return self._page(pages.token_renewed())

    def _recover(self, verdict: Verdict) -> bool | None:
        """See what became of the sandbox, and try again, unless the request may have been executed."""
        self._shared.upstreams.drop_idle()
        try:
            has_slept = self._shared.gate.recover(Deadline(RECOVER_SECONDS))
        except errors.VmnestError as error:
            return self._fail(error)
        if verdict is Verdict.UNNAMED and not (has_slept or self._is_safe):
            return self._page(pages.for_verdict(verdict, remote=self._remote))
        if self._shared.ending.wait(next(self._pauses)):
            raise GoneError
        return None

    def _fail(self, error: errors.VmnestError) -> bool:
        self._drop()
        try:
            return self._page(pages.for_error(error), why=None if isinstance(error, OVER) else error.message)
        finally:
            if isinstance(error, OVER):
                self._shared.end(error)

    def _page(self, page: pages.Page, *, why: str | None = None) -> bool:
        told = page.title if why is None or why in page.title else f"{page.title}: {why}"
        self._shared.report(f"{told[:1].lower()}{told[1:]}")
        return self._tell(page, keep=self._crossing.is_received and http1.keeps_alive(self._request))

    def _tell(self, page: pages.Page, *, keep: bool) -> bool:
        patience.send(self._client, pages.render(page, self._request, keep=keep))
        if not keep:
            patience.linger(self._client)
        return keep

    # -- the answer ----------------------------------------------------------------------------------------------------

    def _answer(self, upstream: Upstream, response: http1.Response, framing: http1.Framing) -> bool:
        """Pass the answer on; whether another request may come."""
        out = http1.passed_framing(framing, minor=self._request.minor)
        ends_by_closing = out.kind == http1.UNTIL_CLOSE
        keep = http1.keeps_alive(self._request) and not ends_by_closing and self._crossing.is_received
        head = heads.to_client(response, self._request, framing=framing, out=out, context=self._context, keep=keep)
        is_reusable = framing.kind != http1.UNTIL_CLOSE and http1.keeps_alive(response)

        def settle() -> None:
            """All of the answer is here: the next request may have the connection before the client has got it."""
            if is_reusable and self._crossing.is_sent and self._upstream is not None:
                self._upstream = None
                self._shared.upstreams.give_back(upstream)

        lead = http1.serialize_response(head)
        download = Flow(upstream, self._client, framing, out=out, lead=lead, on_read=settle)
        self._is_answered = True
        if download.is_read:
            settle()
        try:
            self._crossing.carry(download)
        except BrokenError:
            if ends_by_closing:
                patience.abort(self._client)
            raise
        if not ends_by_closing:
            self._crossing.finish()
        settle()
        if not keep:
            patience.linger(self._client)
        return keep

    def _switch(self, upstream: Upstream, response: http1.Response) -> bool:
        """Pass the 101 on, and then bytes."""
        head = heads.to_client(
            response, self._request, framing=http1.NO_BODY, out=http1.NO_BODY, context=self._context, keep=True
        )
        patience.send(self._client, http1.serialize_response(head))
        kinds = {kind.lower() for kind in http1.elements(response.fields, "upgrade")}
        tunnels.carry(self._client, upstream, is_websocket="websocket" in kinds)
        return False

    def _drop(self) -> None:
        if self._upstream is not None:
            upstream, self._upstream = self._upstream, None
            self._shared.upstreams.drop(upstream)


def _is_malformed(reason: Exception) -> TypeGuard[http1.MessageError]:
    """There was something to read, and it is no message."""
    return isinstance(reason, http1.MessageError) and not isinstance(reason, http1.TruncatedError)


def _peek(upstream: Upstream, framing: http1.Framing) -> bytes:
    """The beginning of a body, all of which is still to be read afterwards; "?" if nothing comes of one."""
    decoder = bodies.BodyDecoder(framing)
    end = Deadline(_PEEK_SECONDS)
    came = body = b""
    try:
        while not decoder.complete and len(body) < _PEEK_BYTES and (left := end.remaining()):
            data = patience.receive(upstream, seconds=left)
            came += data
            body += decoder.feed(data)
            if not data:
                decoder.finish()
    except (GoneError, http1.MessageError):
        pass  # whoever reads it will find out
    upstream.ahead = came + upstream.ahead
    return body if body or decoder.complete else b"?"
