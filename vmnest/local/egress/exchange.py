"""A request in the clear and its answer, carried between a client in a sandbox and a server outside.

Bodies are carried as they come, both ways at once: a server may answer before it has read everything. Nothing is kept
of them. What is about one connection only stays with it (RFC 9110 section 7.6.1). The request that goes out is written
anew: the server reads what was judged, and nothing else.
"""

from __future__ import annotations

import logging
import re
import select
import threading
from collections.abc import Callable, Collection
from typing import NamedTuple

from ...wire import bodies, hostnames, http1, proxies, relay, streams
from .. import httpd
from . import outlet

__all__ = ["BrokenError", "Exchange", "Origin", "check_host", "check_path", "parse_place", "parse_target"]

_LOG = logging.getLogger(__name__)

_DEFAULT_PORT = 80
_HOP_BY_HOP = frozenset(
    {"connection", "expect", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te"}
    | {"upgrade"}
)
_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)")


class BrokenError(Exception):
    """The exchange cannot be ended as it was begun: all that is left is to end the connection."""


class Origin(NamedTuple):
    """Where a request goes: a host in its one form, a port, and the rest of the URL if that was whole."""

    host: str
    port: int
    path: str | None = None

    @property
    def authority(self) -> str:
        """What ``Host`` says of it."""
        return hostnames.show(self.host, None if self.port == _DEFAULT_PORT else self.port)


def parse_place(text: str, *, default_port: int | None = None) -> Origin:
    """Host and port, as a request names them: in ASCII.

    Raises:
        http1.MessageError: it names none.
    """
    if not text.isascii():
        raise http1.MessageError("the name of a host that is not ASCII")
    try:
        return Origin(*hostnames.parse_authority(text, default_port=default_port))
    except hostnames.HostError as error:
        raise http1.MessageError(error.message) from error


def parse_target(target: str) -> Origin:
    """Where a request with a whole URL goes.

    Raises:
        http1.MessageError: it has none, or one of another scheme.
    """
    found = _URL.fullmatch(target)
    if found is None:
        raise http1.MessageError("this is the proxy for what the sandbox may reach: it takes CONNECT and whole URLs")
    scheme, authority, path = found.groups()
    if scheme.lower() != "http":
        raise http1.MessageError("of whole URLs only those of http are carried; for https there is CONNECT")
    if "#" in path:
        raise http1.MessageError("a URL with a fragment")
    place = parse_place(authority, default_port=_DEFAULT_PORT)
    return place._replace(path=path if path.startswith("/") else f"/{path}")


def check_path(request: http1.Request) -> None:
    """Whether the target is one for the server itself, as it has to be in a tunnel.

    Raises:
        http1.MessageError: it is not.
    """
    if not request.target.startswith("/") and (request.method, request.target) != ("OPTIONS", "*"):
        raise http1.MessageError("the target of a request in a tunnel is no path")


def check_host(request: http1.Request, origin: Origin) -> None:
    """Whether ``Host`` says the same as the target: a proxy goes by that, but a server may not (RFC 9112 section 3.2).

    Raises:
        http1.MessageError: it does not, or not once.
    """
    hosts = http1.values(request.fields, "host")
    if not hosts and request.minor < 1:
        return
    # Behind CONNECT some clients leave the port out, which means that of the target as well as the default one.
    default_port = origin.port if request.method == "CONNECT" else _DEFAULT_PORT
    if len(hosts) != 1 or parse_place(hosts[0], default_port=default_port)[:2] != origin[:2]:
        raise http1.MessageError("Host does not say where the request goes")


class Exchange:
    """One request and its answer.

    Attributes:
        is_line_usable: The connection to the server can be used for another request.
    """

    def __init__(self, stream: streams.Stream, request: http1.Request, origin: Origin, *, silence: float) -> None:
        self.is_line_usable = False
        self._stream = stream
        self._request = request
        self._origin = origin
        self._silence = silence
        self._framing = http1.request_framing(request)
        self._body = bodies.BodyDecoder(self._framing)
        self._upgrade = _wanted_upgrade(request)
        self._server: streams.Stream | None = None
        self._upload: threading.Thread | None = None
        self._broken: http1.MessageError | None = None  # what is wrong with the request's body

    def carry(self, line: outlet.Line, *, is_fresh: bool, renew: Callable[[], outlet.Line]) -> bool:
        """Carry both; whether the client's connection can be used further. ``end`` must follow.

        Args:
            line: The connection to the server.
            is_fresh: It was not used before.
            renew: Makes another one, should the server have closed this one just now.

        Raises:
            outlet.UnreachableError: no answer came.
            BrokenError: it broke off.
        """
        try:
            response = self._ask(line)
        except (OSError, http1.MessageError) as error:
            is_repeatable = self._framing.kind == http1.NONE and self._request.method in {"GET", "HEAD", "OPTIONS"}
            if is_fresh or not is_repeatable:
                raise self._lost(error) from error
            try:
                response = self._ask(renew())
            except (OSError, http1.MessageError) as again:
                raise self._lost(again) from again
        if response.status == http1.SWITCHING_PROTOCOLS:
            self._switch(response)
            return False
        return self._answer(response)

    def end(self) -> None:
        """Wait for the upload's end; if nothing waits for it any more, end it."""
        if self._upload is None:
            return
        if not self._body.complete and self._broken is None:
            self._stream.interrupt()
            assert self._server is not None
            self._server.interrupt()
        self._upload.join()

    def _lost(self, error: Exception) -> Exception:
        if self._broken is not None:
            return self._broken
        return outlet.UnreachableError(
            f"{self._origin.authority} gave no answer: {error}",
            status=504 if isinstance(error, TimeoutError) else 502,
        )

    # -- to the server -------------------------------------------------------------------------------------------------

    def _ask(self, line: outlet.Line) -> http1.Response:
        self._server = line.stream
        if http1.expects_continue(self._request) and not self._body.complete and not self._stream.ahead:
            self._stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        line.stream.send(http1.serialize_request(self._to_server(line.proxy)))
        if not self._body.complete:
            self._upload = threading.Thread(target=self._carry_body, name="egress upload", daemon=True)
            self._upload.start()
        return self._read_response()

    def _to_server(self, proxy: proxies.Proxy | None) -> http1.Request:
        dropped = {
            *_HOP_BY_HOP,
            "host",
            *(option.lower() for option in http1.elements(self._request.fields, "connection")),
        }
        dropped -= http1.FRAMING_FIELDS  # no option of a connection, whatever it says
        fields = [("Host", self._origin.authority), *http1.without(self._request.fields, dropped)]
        if self._upgrade is not None:
            fields += [("Connection", "Upgrade"), ("Upgrade", self._upgrade)]
        path = self._request.target if self._origin.path is None else self._origin.path
        if proxy is not None:
            path = f"http://{self._origin.authority}{path.removeprefix('*')}"
            if proxy.authorization is not None:
                fields.append(("Proxy-Authorization", proxy.authorization))
        return http1.Request(self._request.method, path, http1.framed_fields(fields, self._framing))

    def _carry_body(self) -> None:
        is_chunked = self._framing.kind == http1.CHUNKED
        server = self._server
        assert server is not None
        try:
            for payload in self._stream.body(self._body):
                server.send(bodies.encode_chunk(payload) if is_chunked else payload)
            if is_chunked:
                server.send(bodies.encode_last_chunk(self._body.trailers))
        except http1.MessageError as error:
            self._broken = error
            server.interrupt()  # what came is not a whole request
        except OSError as error:
            # The server reads no further: its answer is on the way, or its end.
            _LOG.debug("an upload ended early: %s", error)

    # -- to the client -------------------------------------------------------------------------------------------------

    def _read_response(self) -> http1.Response:
        server = self._server
        assert server is not None
        for _ in range(http1.MAX_INTERIM):
            self._wait_for(server)
            head = server.read_head()
            if head is None:
                raise http1.TruncatedError("it ended the connection")
            response = http1.parse_response(head)
            if response.status == http1.SWITCHING_PROTOCOLS and self._upgrade is None:
                raise http1.MessageError("it changed the protocol unasked")
            if response.status == http1.SWITCHING_PROTOCOLS or response.status >= 200:
                return response
            # 100 was answered by us; other interim responses are the client's business, if it can take them.
            if response.status != 100 and self._request.minor >= 1:
                fields = http1.without(response.fields, _HOP_BY_HOP | http1.FRAMING_FIELDS)
                self._stream.send(http1.serialize_response(http1.Response(response.status, response.reason, fields)))
        raise http1.MessageError("it sent interim responses without end")

    def _wait_for(self, server: streams.Stream) -> None:
        """Wait until the server has something to say, unless the client goes first."""
        if server.ahead:
            return
        poller = select.poll()
        poller.register(server.socket, select.POLLIN)
        poller.register(self._stream.socket, _GONE)
        ready = dict(poller.poll(self._silence * 1000))
        if not ready:
            raise TimeoutError("it says nothing")
        if server.socket.fileno() not in ready:
            raise BrokenError("the client ended the connection before the answer")

    def _answer(self, response: http1.Response) -> bool:
        try:
            framing = http1.response_framing(response, method=self._request.method)
        except http1.MessageError as error:
            raise self._lost(error) from error
        out = http1.passed_framing(framing, minor=self._request.minor)
        keep = http1.keeps_alive(self._request) and out.kind != http1.UNTIL_CLOSE and self._body.complete
        self._stream.send(http1.serialize_response(_to_client(response, framing, out, keep=keep)))
        self._carry_answer(bodies.BodyDecoder(framing), out)
        if not self._body.complete:
            # The server did not want the rest of the body. Let the client read the answer, and end.
            httpd.linger(self._stream)
            return False
        self.is_line_usable = framing.kind != http1.UNTIL_CLOSE and http1.keeps_alive(response)
        return keep

    def _carry_answer(self, decoder: bodies.BodyDecoder, out: http1.Framing) -> None:
        server = self._server
        assert server is not None
        try:
            while not decoder.complete:
                self._wait_for(server)
                data = server.receive()
                if data:
                    payload = decoder.feed(data)
                else:
                    decoder.finish()
                    payload = b""
                if payload:
                    self._stream.send(bodies.encode_chunk(payload) if out.kind == http1.CHUNKED else payload)
        except http1.MessageError as error:
            # The head is out: an early end of the connection is all that can still tell that the body is not whole.
            raise BrokenError("the server's answer broke off") from error
        server.ahead = decoder.rest
        if out.kind == http1.CHUNKED:
            self._stream.send(bodies.encode_last_chunk(decoder.trailers))

    def _switch(self, response: http1.Response) -> None:
        """Pass the ``101`` on, and then bytes."""
        server = self._server
        assert server is not None
        self._stream.send(http1.serialize_response(http1.Response(101, response.reason, response.fields)))
        relay.pump(
            self._stream.socket,
            server.socket,
            from_left=self._stream.ahead,
            from_right=server.ahead,
            idle_seconds=self._silence,
        )


def _wanted_upgrade(request: http1.Request) -> str | None:
    """``websocket``, if that is what the client wants. With a change to HTTP/2, say, requests would go unjudged."""
    wanted = http1.first(request.fields, "upgrade") if http1.asks_upgrade(request) else None
    return "websocket" if wanted is not None and wanted.lower() == "websocket" else None


def _to_client(response: http1.Response, framing: http1.Framing, out: http1.Framing, *, keep: bool) -> http1.Response:
    dropped: Collection[str] = {
        *_HOP_BY_HOP, *(option.lower() for option in http1.elements(response.fields, "connection"))
    }  # fmt: skip
    if response.status == 204:  # it has no body, whatever it says; a client might wait for one
        dropped = {*dropped, *http1.FRAMING_FIELDS}
    kept = http1.without(response.fields, dropped)
    # A response without a body (HEAD, 304) tells the length of the one it stands for: that is left as it is.
    fields = kept if framing.kind == http1.NONE else http1.framed_fields(kept, out)
    if not keep:
        fields.append(("Connection", "close"))
    return http1.Response(response.status, response.reason, fields)
