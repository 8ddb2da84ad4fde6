"""The data plane: requests to a VM's endpoint, checked, and carried to a port in the VM.

Each client connection has a thread, and in turn at most one connection into the VM (``clients``), which is used again
for the next request if that comes soon. Bodies are carried as they come, in both directions at once; back-pressure is
the sockets' own. From a ``101`` on, bytes are carried until either side ends (``relay``). A WebSocket to the service's
own shell is answered here (``shell``).

A request that was admitted wakes a suspended VM if its policy says so, and is held until the VM runs; its bytes, both
ways, are what keeps a VM from being idle. A request that is refused does neither.

What the proxy itself answers, and the order of its checks, is the recorded behaviour of the service's own.
"""

from __future__ import annotations

import logging
import socket
import threading
import uuid
from collections.abc import Collection

from .. import deadline
from ..wire import bodies, http1, names, relay, streams
from . import admission, clients, httpd, records, shell, tokens

_LOG = logging.getLogger(__name__)

IDLE_SECONDS = 120.0  # between two requests of a client
_SMALL_BODY_BYTES = 65536
HEAD_SECONDS = 60.0  # the longest pause within a response's head

# Fields about a connection, not about what travels through it (RFC 9110 section 7.6.1).
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "proxy-connection", "te", "upgrade", "expect"})


class Proxy:
    """Serves the endpoints of all VMs."""

    def __init__(self, seal: tokens.Seal, *, clock: deadline.Clock = deadline.SYSTEM_CLOCK) -> None:
        self._seal = seal
        self._clock = clock

    def serve(self, record: records.Record, sock: socket.socket) -> None:
        """Serve one client connection of a VM's endpoint until it ends. The caller closes it."""
        sock.settimeout(IDLE_SECONDS)
        client = clients.Client(streams.Stream(sock), record, clock=self._clock)
        try:
            while self._serve_one(client):
                pass
        except http1.TruncatedError as error:
            _LOG.debug("%s: a client's request was cut short: %s", record.microvm_id, error)
        except http1.MessageError as error:
            httpd.refuse(client.stream, error)
        except (clients.ClientGoneError, ConnectionError, TimeoutError) as error:
            _LOG.debug("%s: a client's connection ended: %r", record.microvm_id, error)
        finally:
            client.drop_guest()

    def _serve_one(self, client: clients.Client) -> bool:
        client.stream.socket.settimeout(IDLE_SECONDS)
        head = client.stream.read_head(skip_empty_lines=True)
        if head is None:
            return False
        # From here on both sides may be silent as long as they like.
        client.stream.socket.settimeout(None)
        request = http1.parse_request(head)
        exchange = _Exchange(client, request)
        try:
            admitted = admission.admit(request, client.record, seal=self._seal, now=self._clock.time())
            return exchange.open_shell(admitted) if admitted.is_for_shell else exchange.carry(admitted)
        except admission.RefusedError as refusal:
            return exchange.refuse(refusal.reply())
        except clients.Unreachable as failure:
            return exchange.refuse(admission.unreachable(failure.kind))
        finally:
            exchange.end_upload()
            client.leave()


class _Exchange:
    """One request and its response."""

    def __init__(self, client: clients.Client, request: http1.Request) -> None:
        self._client = client
        self._stream = client.stream
        self._request = request
        self._request_id = str(uuid.uuid4())
        self._framing = http1.request_framing(request)
        self._body = bodies.BodyDecoder(self._framing)
        self._upload: threading.Thread | None = None
        self._broken: http1.MessageError | None = None  # what is wrong with the request's body
        self._guest: streams.Stream | None = None  # where the upload goes

    # -- what the proxy answers itself ---------------------------------------------------------------------------------

    def refuse(self, reply: httpd.Reply) -> bool:
        """Answer in the VM's place; whether the connection can be used further."""
        # An unread body is not worth reading: the client is told, and the connection ends.
        keep = self._body.complete and http1.keeps_alive(self._request)
        fields = [*reply.fields, (names.REQUEST_ID_HEADER, self._request_id)]
        answer = httpd.Reply(reply.status, fields, reply.body)
        self._stream.send(answer.serialize(close=not keep, without_body=self._request.method == "HEAD"))
        if not keep:
            httpd.linger(self._stream)
        return keep

    # -- the shell -----------------------------------------------------------------------------------------------------

    def open_shell(self, admitted: admission.Admitted) -> bool:
        """Serve a shell in the VM; the connection cannot be used further."""
        self._client.enter()
        shell.serve(self._client, self._request, protocol=names.SUBPROTOCOL_MARKER if admitted.marker_offered else None)
        return False

    # -- what the VM answers -------------------------------------------------------------------------------------------

    def carry(self, admitted: admission.Admitted) -> bool:
        """Carry the request to the VM and its response back; whether the connection can be used further."""
        if http1.expects_continue(self._request) and not self._body.complete and not self._stream.ahead:
            self._stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        head = http1.serialize_request(self._to_guest(admitted))
        if self._framing.kind == http1.LENGTH and self._framing.length <= _SMALL_BODY_BYTES:
            # No thread for what is here in an instant, and no second packet.
            head += b"".join(self._stream.body(self._body))
        self._client.enter()
        guest, was_used = self._client.open_guest(admitted.port)
        try:
            response = self._ask(guest, head)
        except (ConnectionError, TimeoutError, http1.MessageError) as error:
            if not (was_used and self._is_repeatable()):
                raise self._lost(error) from error
            # The VM closed the connection just when it was used again.
            self._client.drop_guest()
            guest, _ = self._client.open_guest(admitted.port)
            try:
                response = self._ask(guest, head)
            except (ConnectionError, TimeoutError, http1.MessageError) as again:
                raise self._lost(again) from again
        if response.status == 101:
            self._switch(guest, response, admitted)
            return False
        return self._answer(guest, response)

    def _is_repeatable(self) -> bool:
        return self._request.method in {"GET", "HEAD", "OPTIONS"} and self._framing.kind == http1.NONE

    def _lost(self, error: Exception) -> Exception:
        """What to raise when no answer came: the VM's fault, or the client's if its body was none."""
        _LOG.debug("%s: no answer from the VM: %r", self._client.record.microvm_id, error)
        self._client.drop_guest()
        if self._broken is not None:
            return self._broken
        # What the service says here is not known. A name would say that the request did not get into the VM, and make
        # clients send it again.
        return clients.Unreachable(None)

    def _ask(self, guest: streams.Stream, head: bytes) -> http1.Response:
        guest.send(head)
        if not self._body.complete:
            self._start_upload(guest)
        return self._read_response(guest)

    def _to_guest(self, admitted: admission.Admitted) -> http1.Request:
        dropped = set(_HOP_BY_HOP) | {option.lower() for option in http1.elements(self._request.fields, "connection")}
        dropped.add(names.REQUEST_ID_HEADER)
        kept = http1.without(admitted.fields, dropped)
        if admitted.upgrades:
            upgrade = http1.first(self._request.fields, "upgrade") or ""
            kept += [("Connection", "Upgrade"), ("Upgrade", upgrade)]
        if http1.first(kept, "host") is None:  # HTTP/1.0
            kept.insert(0, ("Host", self._client.record.endpoint.rpartition("/")[2]))
        kept.append((names.REQUEST_ID_HEADER, self._request_id))
        return http1.Request(
            self._request.method, self._request.target, http1.framed_fields(kept, self._framing), minor=1
        )

    def _start_upload(self, guest: streams.Stream) -> None:
        """Carry the body in a thread: a VM may answer before it has read everything, and both ways must move."""
        self._guest = guest
        self._upload = threading.Thread(target=self._carry_body, name="upload", daemon=True)
        self._upload.start()

    def _carry_body(self) -> None:
        chunked = self._framing.kind == http1.CHUNKED
        guest = self._guest
        assert guest is not None
        try:
            for payload in self._stream.body(self._body):
                self._client.touch()
                guest.send(bodies.encode_chunk(payload) if chunked else payload)
            if chunked:
                guest.send(bodies.encode_last_chunk(self._body.trailers))
        except http1.MessageError as error:
            _LOG.debug("%s: an upload broke off: %s", self._client.record.microvm_id, error)
            self._broken = error
            guest.interrupt()  # what came is not a whole request
        except OSError as error:
            # The VM reads no further: its answer is on the way, or its end.
            _LOG.debug("%s: an upload ended early: %s", self._client.record.microvm_id, error)

    def end_upload(self) -> None:
        """Wait for the upload's end; if nothing waits for it any more, end it."""
        if self._upload is None:
            return
        if not self._body.complete and self._broken is None:
            self._stream.interrupt()
            assert self._guest is not None
            self._guest.interrupt()
        self._upload.join()

    def _read_response(self, guest: streams.Stream) -> http1.Response:
        for _ in range(http1.MAX_INTERIM):
            self._client.wait_for(guest)
            guest.socket.settimeout(HEAD_SECONDS)
            head = guest.read_head()
            guest.socket.settimeout(None)
            if head is None:
                raise http1.TruncatedError("the VM ended the connection without an answer")
            response = http1.parse_response(head)
            if response.status == 101 and not http1.asks_upgrade(self._request):
                raise http1.MessageError("the VM changed the protocol unasked")
            if response.status == 101 or response.status >= 200:
                return response
            # 100 was answered by us; other interim responses are the client's business, if it can take them.
            if response.status != 100 and self._request.minor >= 1:
                fields = _heard(response, {*_HOP_BY_HOP, *http1.FRAMING_FIELDS})
                self._stream.send(http1.serialize_response(http1.Response(response.status, response.reason, fields)))
        raise http1.MessageError("the VM sent interim responses without end")

    def _answer(self, guest: streams.Stream, response: http1.Response) -> bool:
        try:
            framing = http1.response_framing(response, method=self._request.method)
        except http1.MessageError as error:
            raise self._lost(error) from error
        out = http1.passed_framing(framing, minor=self._request.minor)
        keep = http1.keeps_alive(self._request) and out.kind != http1.UNTIL_CLOSE and self._body.complete
        self._stream.send(http1.serialize_response(self._to_client(response, framing, out, keep=keep)))
        decoder = bodies.BodyDecoder(framing)
        self._carry_answer(guest, decoder, out)
        return self._settle(response, framing, keep=keep)

    def _to_client(
        self, response: http1.Response, framing: http1.Framing, out: http1.Framing, *, keep: bool
    ) -> http1.Response:
        dropped = set(_HOP_BY_HOP) | {option.lower() for option in http1.elements(response.fields, "connection")}
        if response.status == 204:  # it has no body, whatever it says; a client might wait for one
            dropped |= http1.FRAMING_FIELDS
        kept = _heard(response, dropped)
        # A response without a body (HEAD, 304) tells the length of the one it stands for: that is left as it is.
        fields = kept if framing.kind == http1.NONE else http1.framed_fields(kept, out)
        fields.append((names.REQUEST_ID_HEADER, self._request_id))
        if not keep:
            fields.append(("Connection", "close"))
        return http1.Response(response.status, response.reason, fields)

    def _carry_answer(self, guest: streams.Stream, decoder: bodies.BodyDecoder, out: http1.Framing) -> None:
        try:
            while not decoder.complete:
                self._client.wait_for(guest)
                data = guest.receive()
                self._client.touch()
                if data:
                    payload = decoder.feed(data)
                else:
                    decoder.finish()
                    payload = b""
                if payload:
                    self._stream.send(bodies.encode_chunk(payload) if out.kind == http1.CHUNKED else payload)
        except http1.MessageError as error:
            # The head is out: an early end of the connection is all that can still tell that the body is not whole.
            self._client.drop_guest()
            raise clients.ClientGoneError("the VM's answer broke off") from error
        guest.ahead = decoder.rest
        if out.kind == http1.CHUNKED:
            self._stream.send(bodies.encode_last_chunk(decoder.trailers))

    def _settle(self, response: http1.Response, framing: http1.Framing, *, keep: bool) -> bool:
        """After the response: what can be used again."""
        if not self._body.complete:
            # The VM did not want the rest of the body. Let the client read the answer, and end.
            self._client.drop_guest()
            httpd.linger(self._stream)
            return False
        if framing.kind == http1.UNTIL_CLOSE or not http1.keeps_alive(response):
            self._client.drop_guest()
        else:
            self._client.keep_guest()
        return keep

    # -- upgrades ------------------------------------------------------------------------------------------------------

    def _switch(self, guest: streams.Stream, response: http1.Response, admitted: admission.Admitted) -> None:
        """Pass the ``101`` on, and then bytes."""
        fields = _heard(response, ())
        if admitted.marker_offered and http1.first(fields, admission.SUBPROTOCOL_FIELD) is None:
            fields.append(("Sec-WebSocket-Protocol", names.SUBPROTOCOL_MARKER))
        fields.append((names.REQUEST_ID_HEADER, self._request_id))
        self._stream.send(http1.serialize_response(http1.Response(101, response.reason, fields)))
        relay.pump(
            self._stream.socket,
            guest.socket,
            from_left=self._stream.ahead,
            from_right=guest.ahead,
            on_bytes=lambda count: self._client.touch(),
        )
        self._client.drop_guest()


def _heard(response: http1.Response, dropped: Collection[str]) -> list[http1.Field]:
    """The fields of a guest's response without ``dropped``, and without what only the proxy says.

    A guest that speaks in the proxy's name would make clients believe what is not so.
    """
    return [
        field
        for field in http1.without(response.fields, {*dropped, names.REQUEST_ID_HEADER})
        if not field[0].lower().startswith(names.PROXY_HEADER_PREFIX)
    ]
