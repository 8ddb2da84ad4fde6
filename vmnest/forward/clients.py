"""One client connection: its requests one after the other, each checked, and carried by an exchange."""

from __future__ import annotations

import re
import select
import time
from collections.abc import Collection

from ..wire import http1
from ..wire.pipes import Pipe
from . import exchange, heads, hosts, pages, patience
from .exchange import Shared
from .patience import GoneError

__all__ = ["MAX_HEAD_BYTES", "serve"]

IDLE_SECONDS = 120.0  # between two requests
HEAD_SECONDS = 60.0  # from the first byte of a head to its last
MAX_HEAD_BYTES = 65536

_TLS_HELLO = b"\x16\x03"
_BEGINNINGS = frozenset(b"!#$%&'*+.^_`|~-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz\r\n")
# A whole first line that is no request line: its sender waits for an answer in its own protocol.
_GREETING = re.compile(rb"\r?\n?(?!.{0,%d} HTTP/)[^\r\n]+\r?\n" % MAX_HEAD_BYTES)


def serve(pipe: Pipe, *, shared: Shared, remote: int, address: str, allowed: Collection[str]) -> None:
    """Serve one client until either side ends the connection. The caller closes it.

    Args:
        pipe: The connection.
        shared: What all exchanges share.
        remote: The port in the sandbox.
        address: Where the client is.
        allowed: Names that ``Host`` may say beside those that nobody else can have, in lower case.
    """
    client = _Client(pipe, shared, remote=remote, address=address, allowed=allowed)
    try:
        while client.serve_one():
            pass
    except GoneError:
        return


class _Client:
    def __init__(self, pipe: Pipe, shared: Shared, *, remote: int, address: str, allowed: Collection[str]) -> None:
        self._pipe = pipe
        self._shared = shared
        self._remote = remote
        self._address = address
        self._allowed = allowed

    def serve_one(self) -> bool:
        """Serve a request; whether another one may come."""
        try:
            head = self._read_head()
        except http1.TruncatedError:
            return False
        except http1.MessageError as error:
            return self._refuse(pages.for_message(error), None)
        if head is None:
            return False
        return self._serve(head)

    def _serve(self, head: bytes) -> bool:
        request = None
        try:
            request = http1.parse_request(head)
            request = heads.normalize(request)
            refusal = self._check(request)
            if refusal is not None:
                return self._refuse(refusal, request)
            one = exchange.Exchange(self._shared, self._pipe, request, remote=self._remote, address=self._address)
        except http1.MessageError as error:
            return self._refuse(pages.for_message(error), request)
        return one.run()

    def _check(self, request: http1.Request) -> pages.Page | None:
        host = http1.first(request.fields, "host")
        if host is not None and not hosts.is_allowed(host, allowed=self._allowed):
            return pages.foreign_host(host)
        origin = http1.first(request.fields, "origin")
        is_agents = self._remote == self._shared.gate.agent_port
        if is_agents and origin is not None and not hosts.is_same_origin(origin, host or ""):
            return pages.foreign_origin()
        return None

    def _refuse(self, page: pages.Page, request: http1.Request | None) -> bool:
        self._shared.report(f"{page.title[:1].lower()}{page.title[1:]}")
        patience.send(self._pipe, pages.render(page, request, keep=False))
        patience.linger(self._pipe)
        return False

    def _read_head(self) -> bytes | None:
        """The next head, or None if the client has no more requests."""
        buffer = http1.HeadBuffer(limit=MAX_HEAD_BYTES, skip_empty_lines=True)
        end = time.monotonic() + IDLE_SECONDS
        while True:
            data = self._receive(end)
            if not data:
                return None
            if buffer.is_empty:
                end = min(end, time.monotonic() + HEAD_SECONDS)  # an empty line begins no head, and wins no time
                if data[0] not in _BEGINNINGS or _GREETING.match(data):
                    self._refuse(pages.not_http(is_tls=data.startswith(_TLS_HELLO)), None)
                    return None
            head = buffer.feed(data)
            if head is not None:
                self._pipe.ahead = buffer.rest + self._pipe.ahead
                return head

    def _receive(self, end: float) -> bytes | None:
        """What comes until then; nothing if the client says no more."""
        try:
            while (data := self._pipe.receive()) is None:
                poller = select.poll()
                poller.register(self._pipe, select.POLLIN)
                if not poller.poll(max(0.0, end - time.monotonic()) * 1000):
                    return None
        except OSError as error:
            raise GoneError from error
        return data
