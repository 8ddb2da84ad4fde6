"""WebSocket (RFC 6455) without I/O, for either side: the opening handshake, frames in, frames out.

Strategy: ``Receiver`` takes bytes as they come and gives whole messages and control frames; ``Sender`` makes frames.
A client masks what it sends and a server does not; each refuses what the other must not send. No extensions: reserved
bits are refused. The caller owns the socket, answers pings, and ends the connection after a CLOSE.

A ``ProtocolError`` knows the code to close with; what came before it was good, and nothing after it is.
"""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from .. import errors
from . import http1

__all__ = [
    "BINARY",
    "CLOSE",
    "CONTINUATION",
    "INTERNAL_ERROR",
    "MAX_CONTROL_BYTES",
    "NORMAL",
    "PING",
    "PONG",
    "TEXT",
    "Message",
    "ProtocolError",
    "Receiver",
    "Sender",
    "check_request",
    "check_response",
    "make_key",
    "request_fields",
    "response_fields",
]

CONTINUATION = 0
TEXT = 1
BINARY = 2
CLOSE = 8
PING = 9
PONG = 10

# What a peer closes with (RFC 6455 section 7.4.1).
NORMAL = 1000
PROTOCOL_ERROR = 1002
NO_STATUS = 1005  # stands for a CLOSE without a code; never on the wire
BAD_TEXT = 1007
TOO_BIG = 1009
INTERNAL_ERROR = 1011

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_CONTROL_BYTES = 125
VERSION = "13"
_KEY_BYTES = 16
_MASK_BYTES = 4
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KINDS = frozenset({CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG})
_CONTROL = frozenset({CLOSE, PING, PONG})
_CODES_NOT_SENT = frozenset({1004, 1005, 1006, 1015})
_FINAL, _RESERVED, _KIND, _MASKED, _LENGTH = 0x80, 0x70, 0x0F, 0x80, 0x7F


class ProtocolError(errors.VmnestError):
    """The peer does not speak the protocol; ``close_code`` is what to close with."""

    code = "websocket_protocol"

    def __init__(self, message: str, *, close_code: int = PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.close_code = close_code


# -- the handshake -----------------------------------------------------------------------------------------------------


def make_key(random: Callable[[int], bytes] = os.urandom) -> str:
    """A client's key for one handshake."""
    return base64.b64encode(random(_KEY_BYTES)).decode("ascii")


def accept_value(key: str) -> str:
    """What a server answers to a key."""
    digest = hashlib.sha1(key.encode("latin-1") + _MAGIC, usedforsecurity=False).digest()
    return base64.b64encode(digest).decode("ascii")


def request_fields(key: str, *, protocols: Sequence[str] = ()) -> list[http1.Field]:
    """The fields by which a client asks for a WebSocket."""
    fields = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", VERSION),
        ("Sec-WebSocket-Key", key),
    ]
    return [*fields, ("Sec-WebSocket-Protocol", ", ".join(protocols))] if protocols else fields


def check_response(response: http1.Response, *, key: str, protocols: Sequence[str] = ()) -> str | None:
    """The subprotocol that the server selected, if any.

    Raises:
        ProtocolError: this is no answer to our handshake.
    """
    if response.status != 101 or not _asks_for_it(response):
        raise ProtocolError("the server did not change to a WebSocket")
    if http1.values(response.fields, "sec-websocket-accept") != [accept_value(key)]:
        raise ProtocolError("the server's answer belongs to another handshake")
    if http1.elements(response.fields, "sec-websocket-extensions"):
        raise ProtocolError("the server uses an extension unasked")
    selected = http1.values(response.fields, "sec-websocket-protocol")
    if len(selected) > 1 or (selected and selected[0] not in protocols):
        raise ProtocolError("the server selected a subprotocol that was not offered")
    return selected[0] if selected else None


def check_request(request: http1.Request) -> str:
    """The key of a client's handshake.

    Raises:
        http1.MessageError: it is none; ``status`` is what to answer.
    """
    if request.method != "GET" or request.minor < 1 or not _asks_for_it(request):
        raise http1.MessageError("not a WebSocket's handshake")
    if http1.values(request.fields, "sec-websocket-version") != [VERSION]:
        raise http1.MessageError(f"the WebSocket's version is not {VERSION}", status=426)
    keys = http1.values(request.fields, "sec-websocket-key")
    if len(keys) != 1 or not _is_key(keys[0]):
        raise http1.MessageError("the WebSocket's key is malformed")
    return keys[0]


def response_fields(key: str, *, protocol: str | None = None) -> list[http1.Field]:
    """The fields of a server's 101."""
    fields = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Accept", accept_value(key))]
    return fields if protocol is None else [*fields, ("Sec-WebSocket-Protocol", protocol)]


def _asks_for_it(head: http1.Request | http1.Response) -> bool:
    upgrades = [value.lower() for value in http1.elements(head.fields, "upgrade")]
    return http1.asks_upgrade(head) and upgrades == ["websocket"]


def _is_key(key: str) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == _KEY_BYTES
    except ValueError:
        return False


# -- frames in ---------------------------------------------------------------------------------------------------------


class Message(NamedTuple):
    """A whole message (TEXT, BINARY) or a control frame (PING, PONG, CLOSE)."""

    kind: int
    data: bytes

    @property
    def text(self) -> str:
        """The text of a TEXT, which was checked; the reason of a CLOSE."""
        return (self.data[2:] if self.kind == CLOSE else self.data).decode()

    @property
    def close_code(self) -> int:
        """The code of a CLOSE."""
        return int.from_bytes(self.data[:2], "big") if self.data else NO_STATUS


class _Head(NamedTuple):
    kind: int
    is_final: bool
    length: int
    mask: bytes


class Receiver:
    """Bytes in, messages out. ``from_client``: they come from a client, and have to be masked."""

    def __init__(self, *, from_client: bool, max_message: int = MAX_MESSAGE_BYTES) -> None:
        self._is_masked = from_client
        self._max_message = max_message
        self._data = bytearray()
        self._head: _Head | None = None  # of the frame whose payload is awaited
        self._kind = CONTINUATION  # of the message whose fragments are gathered
        self._fragments: list[bytes] = []
        self._size = 0
        self._is_closed = False

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that ``data`` completes. Nothing comes after a CLOSE.

        Raises:
            ProtocolError: see there.
        """
        self._data += data
        while not self._is_closed:
            if self._head is None:
                self._head = self._take_head()
            if self._head is None or len(self._data) < self._head.length:
                return
            head, self._head = self._head, None
            payload = _unmask(self._take(head.length), head.mask)
            message = self._take_frame(head, payload)
            if message is not None:
                self._is_closed = message.kind == CLOSE
                yield message

    def _take(self, count: int) -> bytes:
        taken = bytes(memoryview(self._data)[:count])
        del self._data[:count]
        return taken

    def _take_head(self) -> _Head | None:
        if len(self._data) < 2:
            return None
        first, second = self._data[0], self._data[1]
        self._check_first(first)
        if bool(second & _MASKED) != self._is_masked:
            raise ProtocolError("a frame of a client is not masked" if self._is_masked else "a server masks its frames")
        length, size = second & _LENGTH, 2
        if length > MAX_CONTROL_BYTES:
            size += 2 if length == 126 else 8
        masked_size = size + (_MASK_BYTES if self._is_masked else 0)
        if len(self._data) < masked_size:
            return None
        if size > 2:
            length = int.from_bytes(self._data[2:size], "big")
        mask = bytes(self._data[size:masked_size])
        head = _Head(first & _KIND, bool(first & _FINAL), length, mask)
        self._check(head)
        del self._data[:masked_size]
        return head

    @staticmethod
    def _check_first(first: int) -> None:
        # At once: what is no WebSocket is refused with its first bytes, whatever length they seem to announce.
        if first & _RESERVED:
            raise ProtocolError("a frame has bits of an extension that was not agreed on")
        if first & _KIND not in _KINDS:
            raise ProtocolError("a frame is of a kind that there is not")

    def _check(self, head: _Head) -> None:
        if head.kind in _CONTROL:
            if not head.is_final or head.length > MAX_CONTROL_BYTES:
                raise ProtocolError("a control frame is in fragments, or too large")
            return
        if (head.kind == CONTINUATION) != (self._kind != CONTINUATION):
            raise ProtocolError("fragments of messages are mixed")
        if self._size + head.length > self._max_message:
            raise ProtocolError(f"a message is larger than {self._max_message} bytes", close_code=TOO_BIG)

    def _take_frame(self, head: _Head, payload: bytes) -> Message | None:
        if head.kind in _CONTROL:
            return _control(head.kind, payload)
        self._kind = head.kind or self._kind
        if payload:  # empty fragments without end would be a list without end
            self._fragments.append(payload)
        self._size += len(payload)
        if not head.is_final:
            return None
        kind, data = self._kind, b"".join(self._fragments)
        self._kind, self._fragments, self._size = CONTINUATION, [], 0
        if kind == TEXT:
            _check_text(data)
        return Message(kind, data)


def _control(kind: int, payload: bytes) -> Message:
    message = Message(kind, payload)
    if kind == CLOSE and payload:
        code = message.close_code
        if len(payload) < 2 or code < 1000 or code in _CODES_NOT_SENT or 1016 <= code < 3000 or code >= 5000:
            raise ProtocolError("the code of a close frame is malformed")
        _check_text(payload[2:])
    return message


def _check_text(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        raise ProtocolError("text that is not UTF-8", close_code=BAD_TEXT) from None


def _unmask(payload: bytes, mask: bytes) -> bytes:
    """The exclusive or of both, in one go over large integers: the fastest that plain Python has."""
    size = len(payload)
    if not mask or not size:
        return payload
    stream = (mask * (size // _MASK_BYTES + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(stream, "big")).to_bytes(size, "big")


# -- frames out --------------------------------------------------------------------------------------------------------


class Sender:
    """Makes frames, each of which is a whole message. ``is_client``: they are masked, each with bytes of ``random``."""

    def __init__(self, *, is_client: bool, random: Callable[[int], bytes] = os.urandom) -> None:
        self._is_client = is_client
        self._random = random

    def encode(self, kind: int, payload: bytes) -> bytes:
        """One frame: TEXT (UTF-8), BINARY, PING or PONG."""
        length = len(payload)
        if kind in _CONTROL and length > MAX_CONTROL_BYTES:
            raise ValueError(f"a control frame holds at most {MAX_CONTROL_BYTES} bytes")
        bit = _MASKED if self._is_client else 0
        if length <= MAX_CONTROL_BYTES:
            head = struct.pack(">BB", _FINAL | kind, bit | length)
        elif length < 1 << 16:
            head = struct.pack(">BBH", _FINAL | kind, bit | 126, length)
        else:
            head = struct.pack(">BBQ", _FINAL | kind, bit | 127, length)
        if not self._is_client:
            return head + payload
        mask = self._random(_MASK_BYTES)
        return head + mask + _unmask(payload, mask)

    def encode_close(self, code: int, reason: str = "") -> bytes:
        """A CLOSE; a reason that is too long is cut."""
        said = reason.encode()[: MAX_CONTROL_BYTES - 2].decode(errors="ignore")
        return self.encode(CLOSE, struct.pack(">H", code) + said.encode())
