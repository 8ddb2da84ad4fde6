"""One request of a client, and its answer: one thread, and one poll for both ways.

The request goes on as it comes while the answer may be on its way already. Until something of the answer has reached
the client the request may be sent again, if all of it is still here and nothing of it can have been executed: on a new
connection when a used one turns out to be dead, with a new token, or to a sandbox that was just resumed.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .. import errors
from ..deadline import Deadline
from ..wire import http1
from ..wire.pipes import Pipe
from . import heads, pages, tunnels, verdicts
from .flows import BrokenError, Flow
from .gate import Gate, HeaderPairs
from .upstreams import Upstream, Upstreams
from .verdicts import Verdict

__all__ = ["Exchange", "GoneError", "Shared"]

HELD_BYTES = 65536  # of a request's body that are read before it is sent, so that it can be sent again
LINGER_SECONDS = 1.0
PATIENCE_SECONDS = 10.0  # with a sandbox that is resuming
RECOVER_SECONDS = 60.0
SILENCE_SECONDS = 10.0  # of an answer whose client has ended its side, and may have left
SEND_SECONDS = 60.0
_PAUSE_SECONDS = 0.25
_MAX_INTERIM = 32
_MAX_AHEAD_BYTES = 65536
_PEEK_BYTES = 2048
_PEEK_SECONDS = 5.0
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OVER = (errors.SandboxSuspendedError, errors.MicroVMEndedError, errors.SandboxNotFoundError)


class GoneError(Exception):
    """The client's connection is of no use any more."""


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
        self._shared = shared
        self._client = client
        self._request = request
        self._framing = http1.request_framing(request)
        self._remote = remote
        self._address = address
        self._held = b""
        self._context: heads.Context
        self._upstream: Upstream | None = None
        self._upload: Flow | None = None
        self._upload_is_over = False  # complete, or nobody takes the rest
        self._client_has_ended = False
        self._refused: HeaderPairs | None = None
        self._patience: Deadline | None = None
        self._tried: set[str] = set()  # the causes for which it was sent again

    def run(self) -> bool:
        """Carry it, whatever comes of it.

        Raises:
            GoneError: the client is gone, or has to be cut off.
        """
        try:
            self._hold_small_body()
            while True:
                outcome = self._try()
                if outcome is not None:
                    return outcome
        except BrokenError as error:
            if error.pipe is self._client and isinstance(error.reason, http1.MessageError):
                self._drop()
                if not isinstance(error.reason, http1.TruncatedError):
                    return self._tell(pages.for_message(error.reason), keep=False)
            raise GoneError from error
        finally:
            self._drop()

    def _hold_small_body(self) -> None:
        is_small = self._framing.kind == http1.LENGTH and self._framing.length <= HELD_BYTES
        if not is_small or http1.expects_continue(self._request):
            return
        while len(self._held) < self._framing.length:
            data = _receive(self._client, self._framing.length - len(self._held), seconds=SEND_SECONDS)
            if not data:
                raise GoneError
            self._held += data

    # -- one try -------------------------------------------------------------------------------------------------------

    def _try(self) -> bool | None:
        """Whether the client's connection can be used further; None: try again."""
        try:
            self._shared.gate.check()
            agent_port = self._relay()
            token = self._shared.gate.headers(agent_port or self._remote, refused=self._refused)
            self._begin(agent_port, token)
        except errors.VmnestError as error:
            return self._fail(error)
        try:
            response = self._ask()
        except BrokenError as error:
            if error.pipe is self._client:
                raise
            return self._lost(error)
        return self._take(response, token)

    def _relay(self) -> int | None:
        gate = self._shared.gate
        if self._shared.is_direct or self._remote == gate.agent_port:
            return None
        return gate.agent_port if gate.has_relay() else None

    def _begin(self, agent_port: int | None, token: HeaderPairs) -> None:
        """Take a connection, and have the request's head ready for it."""
        self._context = heads.Context(
            self._remote, self._shared.gate.authority, agent_port, self._shared.locals, self._address
        )
        head = heads.to_upstream(self._request, self._framing, context=self._context, token=token)
        self._upstream = self._shared.upstreams.take(is_repeatable=self._is_safe, must_be_new="stale" in self._tried)
        framing = http1.NO_BODY if self._held else self._framing
        self._upload_is_over = False
        self._upload = Flow(
            self._client, self._upstream, framing, out=framing, lead=http1.serialize_request(head) + self._held
        )

    @property
    def _is_safe(self) -> bool:
        return self._request.method in _SAFE and self._framing.kind == http1.NONE

    @property
    def _is_whole(self) -> bool:
        """All of the request is still here."""
        return self._upload is None or not self._upload.has_taken

    def _ask(self) -> http1.Response:
        """Send the request, or as much as is wanted of it, and read the head of the final answer."""
        assert self._upstream is not None
        for _ in range(_MAX_INTERIM):
            head = self._read_head(self._upstream)
            try:
                response = http1.parse_response(head)
            except http1.MessageError as error:
                raise BrokenError(self._upstream, error) from error
            if response.status == http1.SWITCHING_PROTOCOLS and not http1.asks_upgrade(self._request):
                break
            if response.status == http1.SWITCHING_PROTOCOLS or response.status >= 200:
                return response
            if self._request.minor >= 1:
                self._send(http1.serialize_response(heads.interim_to_client(response)))
        raise BrokenError(self._upstream, http1.MessageError("interim answers without end, or a 101 unasked"))

    def _read_head(self, upstream: Upstream) -> bytes:
        buffer = http1.HeadBuffer()
        while True:
            self._advance_upload()
            try:
                data = upstream.receive()
                if data == b"":
                    raise http1.TruncatedError("the connection ended without an answer")
                head = None if data is None else buffer.feed(data)
            except (OSError, http1.MessageError) as error:
                raise BrokenError(upstream, error) from error
            if head is not None:
                upstream.ahead = buffer.rest + upstream.ahead
                return head
            if data is None:
                self._wait(None)

    def _take(self, response: http1.Response, token: HeaderPairs) -> bool | None:
        """The head of a final answer is here: pass it on, unless it is the platform's own word."""
        if response.status == http1.SWITCHING_PROTOCOLS:
            return self._switch(response)
        relayed = self._context.agent_port is not None
        try:
            body = self._peek(response) if self._is_worth_a_look(response, relayed=relayed) else None
        except BrokenError as error:
            return self._lost(error)
        verdict = verdicts.judge(response, b"?" if body is None else body, relayed=relayed)
        if verdict is None:
            if not relayed and body and (setting := verdicts.hint_of_host_check(response.status, body)):
                named = f"the server on port {self._remote} refuses the endpoint's name"
                self._shared.report(f"{named}; allow it there ({setting})")
            return self._answer(response)
        self._drop()
        return self._follow(verdict, token)

    def _is_worth_a_look(self, response: http1.Response, *, relayed: bool) -> bool:
        return verdicts.may_be_platforms(response, relayed=relayed) or (not relayed and response.status in {400, 403})

    def _peek(self, response: http1.Response) -> bytes | None:
        """A short body, which is still to be read afterwards; None if it is not short."""
        upstream = self._upstream
        assert upstream is not None
        try:
            framing = http1.response_framing(response, method=self._request.method)
        except http1.MessageError as error:
            raise BrokenError(upstream, error) from error
        if framing.kind == http1.NONE:
            return b""
        if framing.kind != http1.LENGTH or framing.length > _PEEK_BYTES:
            return None
        body = b""
        end = Deadline(_PEEK_SECONDS)
        while len(body) < framing.length and not end.expired:
            try:
                data = _receive(upstream, framing.length - len(body), seconds=_PEEK_SECONDS)
            except GoneError as error:
                raise BrokenError(upstream, error) from error
            if not data:
                break
            body += data
        upstream.ahead = body + upstream.ahead
        return body

    # -- when there is no answer of the server's own -------------------------------------------------------------------

    def _may_try_again(self, cause: str) -> bool:
        if cause in self._tried or not self._is_whole:
            return False
        self._tried.add(cause)
        return True

    def _lost(self, error: BrokenError) -> bool | None:
        """The endpoint ended the connection before an answer."""
        was_used = self._upstream is not None and self._upstream.was_used
        self._drop()
        if self._shared.ending.is_set():
            raise GoneError from error
        is_unsent = self._is_safe or (was_used and self._framing.kind != http1.CHUNKED)
        if was_used and is_unsent and self._may_try_again("stale"):
            return None
        if self._is_safe and self._may_try_again("lost"):
            return self._recover(Verdict.UNNAMED)
        return self._page(pages.for_verdict(Verdict.BROKEN, remote=self._remote), why=str(error.reason))

    def _follow(self, verdict: Verdict, token: HeaderPairs) -> bool | None:
        if verdict is Verdict.TOKEN_REFUSED and self._may_try_again("token"):
            self._refused = token
            return None
        if verdict is Verdict.NO_RELAY and self._may_try_again("relay"):
            try:
                self._shared.gate.has_relay(again=True)
            except errors.VmnestError as error:
                return self._fail(error)
            return None
        if verdict in {Verdict.UNREACHABLE, Verdict.UNNAMED} and self._is_whole:
            self._patience = self._patience or Deadline(PATIENCE_SECONDS)
            if not self._patience.expired:
                return self._recover(verdict)
        return self._page(pages.for_verdict(verdict, remote=self._remote))

    def _recover(self, verdict: Verdict) -> bool | None:
        """See what became of the sandbox, and try again, unless the request may have been executed."""
        self._shared.upstreams.drop_idle()
        try:
            has_slept = self._shared.gate.recover(Deadline(RECOVER_SECONDS))
        except errors.VmnestError as error:
            return self._fail(error)
        if verdict is Verdict.UNNAMED and not (has_slept or self._is_safe):
            return self._page(pages.for_verdict(verdict, remote=self._remote))
        if self._shared.ending.wait(_PAUSE_SECONDS):
            raise GoneError
        return None

    def _fail(self, error: errors.VmnestError) -> bool:
        self._drop()
        try:
            return self._page(pages.for_error(error), why=None if isinstance(error, _OVER) else error.message)
        finally:
            if isinstance(error, _OVER):
                self._shared.end(error)

    def _page(self, page: pages.Page, *, why: str | None = None) -> bool:
        told = page.title if why is None or why in page.title else f"{page.title}: {why}"
        self._shared.report(f"{told[:1].lower()}{told[1:]}")
        keep = self._framing.kind == http1.NONE or bool(self._held)
        return self._tell(page, keep=keep and http1.keeps_alive(self._request))

    def _tell(self, page: pages.Page, *, keep: bool) -> bool:
        self._send(pages.render(page, self._request, keep=keep))
        if not keep:
            linger(self._client)
        return keep

    # -- the answer ----------------------------------------------------------------------------------------------------

    def _answer(self, response: http1.Response) -> bool:
        upstream, upload = self._upstream, self._upload
        assert upstream is not None
        assert upload is not None
        try:
            framing = http1.response_framing(response, method=self._request.method)
        except http1.MessageError as error:
            self._drop()
            return self._page(pages.for_verdict(Verdict.BROKEN, remote=self._remote), why=error.message)
        out = self._out_framing(framing)
        keep = http1.keeps_alive(self._request) and out.kind != http1.UNTIL_CLOSE and upload.is_done
        head = heads.to_client(response, self._request, framing=framing, out=out, context=self._context, keep=keep)
        is_reusable = framing.kind != http1.UNTIL_CLOSE and http1.keeps_alive(response)

        def settle() -> None:
            """All of the answer is here: the next request may have the connection before the client has got it."""
            if is_reusable and upload.is_done and self._upstream is not None:
                self._upstream = None
                self._shared.upstreams.give_back(upstream)

        lead = http1.serialize_response(head)
        download = Flow(upstream, self._client, framing, out=out, lead=lead, on_read=settle)
        if download.is_read:
            settle()
        while not download.is_done:
            moved = download.advance()
            self._advance_upload()
            if not moved and not download.is_done:
                self._wait(download)
        settle()
        if not keep:
            linger(self._client)
        return keep

    def _out_framing(self, framing: http1.Framing) -> http1.Framing:
        if framing.kind == http1.UNTIL_CLOSE and self._request.minor >= 1:
            return http1.Framing(http1.CHUNKED)
        if framing.kind == http1.CHUNKED and self._request.minor < 1:
            return http1.Framing(http1.UNTIL_CLOSE)
        return framing

    def _switch(self, response: http1.Response) -> bool:
        """Pass the 101 on, and then bytes."""
        upstream = self._upstream
        assert upstream is not None
        head = heads.to_client(
            response, self._request, framing=http1.NO_BODY, out=http1.NO_BODY, context=self._context, keep=True
        )
        self._send(http1.serialize_response(head))
        kinds = {kind.lower() for kind in http1.elements(response.fields, "upgrade")}
        tunnels.carry(self._client, upstream, is_websocket="websocket" in kinds)
        return False

    # -- moving bytes --------------------------------------------------------------------------------------------------

    def _advance_upload(self) -> None:
        upload = self._upload
        if upload is None or self._upload_is_over:
            return
        try:
            upload.advance()
        except BrokenError as error:
            if error.pipe is self._client:
                raise
            self._upload_is_over = True  # it takes no more, and its answer may be on the way
            return
        self._upload_is_over = upload.is_done

    def _wait(self, download: Flow | None) -> None:
        """Sleep until one of the ways can go on. None: the head of the answer is awaited."""
        upstream, upload = self._upstream, self._upload
        assert upload is not None
        uploads = not self._upload_is_over
        reads_answer = download is None or download.wants_to_read
        watches = upload.is_read and not self._client_has_ended and len(self._client.ahead) < _MAX_AHEAD_BYTES
        reads_client = (uploads and upload.wants_to_read) or watches
        if uploads and upload.wants_to_read and self._client.has_pending:
            return
        poller = select.poll()
        if upstream is not None:
            if reads_answer and upstream.has_pending:
                return
            interest = upstream.interest(reading=reads_answer, writing=uploads and upload.wants_to_write)
            if interest:  # a connection that was reset would be reported again and again
                poller.register(upstream, interest)
        poller.register(
            self._client,
            self._client.interest(reading=reads_client, writing=download is not None and download.wants_to_write),
        )
        ready = dict(poller.poll(SILENCE_SECONDS * 1000 if self._client_has_ended else None))
        if not ready and self._client_has_ended:
            raise GoneError  # nobody seems to wait for the rest
        events = ready.get(self._client.fileno(), 0)
        if events & select.POLLERR:
            raise GoneError
        if watches and events & (select.POLLIN | select.POLLHUP):
            self._watch()

    def _watch(self) -> None:
        """Take what the client sends while it is answered: its next request, or the end of its side."""
        client = self._client
        ahead, client.ahead = client.ahead, b""
        try:
            data = client.receive()
        except OSError as error:
            raise GoneError from error
        client.ahead = ahead + (data or b"")
        self._client_has_ended = data == b""

    def _send(self, data: bytes) -> None:
        send(self._client, data)

    def _drop(self) -> None:
        if self._upstream is not None:
            upstream, self._upstream = self._upstream, None
            self._shared.upstreams.drop(upstream)


def send(pipe: Pipe, data: bytes) -> None:
    """Send a few bytes whatever else may be going on.

    Raises:
        GoneError: the peer is gone, or takes nothing for a minute.
    """
    end = time.monotonic() + SEND_SECONDS
    rest = memoryview(data)
    try:
        while rest := rest[pipe.send(rest) :]:
            poller = select.poll()
            poller.register(pipe, pipe.interest(reading=False, writing=True))
            if not poller.poll(max(0.0, end - time.monotonic()) * 1000):
                raise GoneError
    except OSError as error:
        raise GoneError from error


def _receive(pipe: Pipe, limit: int, *, seconds: float) -> bytes:
    """Some bytes; GoneError if none come in time."""
    try:
        while (data := pipe.receive(limit)) is None:
            poller = select.poll()
            poller.register(pipe, pipe.interest(reading=True, writing=False))
            if not poller.poll(seconds * 1000):
                raise GoneError
    except OSError as error:
        raise GoneError from error
    return data


def linger(pipe: Pipe) -> None:
    """Read on for a moment after the last answer, which a reset would take away from a client that still sends."""
    end = time.monotonic() + LINGER_SECONDS
    pipe.ahead = b""
    pipe.end_sending()
    try:
        while (left := end - time.monotonic()) > 0 and _receive(pipe, _MAX_AHEAD_BYTES, seconds=left):
            pass
    except GoneError:
        return
