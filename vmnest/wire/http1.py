"""HTTP/1.1 heads and framing, without I/O (RFC 9110, 9112).

Strategy: ``HeadBuffer`` gathers bytes until a head is complete; ``parse_request`` and ``parse_response`` turn one into
a frozen value; ``request_framing`` and ``response_framing`` say how the body is delimited; ``bodies.BodyDecoder`` takes
the body's bytes as they come and says where it ends. The caller owns the sockets.

Rules:

- What was sent is kept as it was sent: the raw target, and the fields with their order, case and repetitions.
- Whatever two parties could read in two ways is refused rather than repaired (RFC 9112 section 11.2, request
  smuggling): bare LF, folded fields, a space before the colon, Content-Length beside Transfer-Encoding, two different
  Content-Lengths, a signed or spaced number.
- Every size has a limit, and a limit has its status: 414 and 431 for heads, 413 for bodies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .. import errors

__all__ = [
    "CHUNKED",
    "FRAMING_FIELDS",
    "LENGTH",
    "MAX_FIELDS",
    "MAX_HEAD_BYTES",
    "MAX_INTERIM",
    "NONE",
    "NO_BODY",
    "REASONS",
    "SWITCHING_PROTOCOLS",
    "UNTIL_CLOSE",
    "Field",
    "Fields",
    "Framing",
    "HeadBuffer",
    "MessageError",
    "Request",
    "Response",
    "TruncatedError",
    "asks_upgrade",
    "elements",
    "expects_continue",
    "first",
    "framed_fields",
    "keeps_alive",
    "parse_field",
    "parse_request",
    "parse_response",
    "passed_framing",
    "request_framing",
    "response_framing",
    "serialize_fields",
    "serialize_request",
    "serialize_response",
    "values",
    "without",
]

Field = tuple[str, str]
Fields = Sequence[Field]

SWITCHING_PROTOCOLS = 101
MAX_HEAD_BYTES = 131072
MAX_FIELDS = 512
MAX_INTERIM = 32  # responses before the final one that who passes them on puts up with
FRAMING_FIELDS = frozenset({"content-length", "transfer-encoding"})
_MAX_LENGTH_DIGITS = 18

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = re.compile(rb"[\x21-\x7e\x80-\xff]+")
_VERSION = re.compile(rb"HTTP/([0-9])\.([0-9])")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_BARE_LF = re.compile(rb"(?<!\r)\n")

REASONS = {
    100: "Continue", 101: "Switching Protocols", 200: "OK", 201: "Created", 202: "Accepted", 204: "No Content",
    206: "Partial Content", 304: "Not Modified",
    400: "Bad Request", 402: "Payment Required", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 409: "Conflict", 411: "Length Required", 412: "Precondition Failed",
    413: "Content Too Large", 414: "URI Too Long", 416: "Range Not Satisfiable", 417: "Expectation Failed",
    429: "Too Many Requests", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable",
    504: "Gateway Timeout", 505: "HTTP Version Not Supported",
}  # fmt: skip


class MessageError(errors.VmnestError):
    """A message that cannot be understood, or not safely; ``status`` is what a server answers to it."""

    code = "http_malformed"

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class TruncatedError(MessageError):
    """The connection ended in the middle of a message."""

    code = "http_truncated"


# -- heads -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A request's head. ``target`` is what stood in the request line, byte for byte (as Latin-1)."""

    method: str
    target: str
    fields: Fields
    minor: int = 1


@dataclass(frozen=True)
class Response:
    """A response's head."""

    status: int
    reason: str
    fields: Fields
    minor: int = 1


class HeadBuffer:
    """Gathers the bytes of a head. After ``feed`` returned one, ``rest`` is what came behind it."""

    def __init__(self, *, limit: int = MAX_HEAD_BYTES, skip_empty_lines: bool = False) -> None:
        self._limit = limit
        self._skip = skip_empty_lines
        self._data = bytearray()
        self.rest = b""

    @property
    def is_empty(self) -> bool:
        """No byte of a head has come yet."""
        return not self._data

    def feed(self, data: bytes) -> bytes | None:
        """The head without its last empty line once it is complete, else None.

        Raises:
            MessageError: the head is too large, or a line ends with a bare LF.
        """
        # The end may straddle what was there and what came: look again at the last three bytes.
        start = max(0, len(self._data) - 3)
        self._data += data
        if self._skip:
            # RFC 9112 section 2.2: a server ignores empty lines that some clients send behind a body.
            while self._data.startswith(b"\r\n"):
                del self._data[:2]
                start = 0
        end = self._data.find(b"\r\n\r\n", start)
        head = self._data if end < 0 else self._data[: end + 2]
        if _BARE_LF.search(head, start):
            raise MessageError("a line of the head ends with LF alone")
        if len(head) > self._limit:
            too_long = 414 if b"\r\n" not in head else 431
            raise MessageError(f"the head is larger than {self._limit} bytes", status=too_long)
        if end < 0:
            return None
        self.rest = bytes(self._data[end + 4 :])
        self._data = bytearray()
        return bytes(head[:-2])


def parse_request(head: bytes) -> Request:
    """The request that ``head`` (as HeadBuffer returned it) begins.

    Raises:
        MessageError: the head breaks the grammar; status 505 for a version other than 1.0 and 1.1.
    """
    line, _, block = head.partition(b"\r\n")
    parts = line.split(b" ")
    if len(parts) != 3 or not _TOKEN.fullmatch(parts[0]) or not _TARGET.fullmatch(parts[1]):
        raise MessageError("the request line is malformed")
    version = _VERSION.fullmatch(parts[2])
    if version is None:
        raise MessageError("the request line names no HTTP version")
    if version[1] != b"1" or version[2] > b"1":
        raise MessageError("the HTTP version is not supported", status=505)
    return Request(parts[0].decode(), parts[1].decode("latin-1"), parse_fields(block), int(version[2]))


def parse_response(head: bytes) -> Response:
    """The response that ``head`` (as HeadBuffer returned it) begins.

    Raises:
        MessageError: the head breaks the grammar.
    """
    line, _, block = head.partition(b"\r\n")
    status = _STATUS_LINE.fullmatch(line)
    if status is None:
        raise MessageError("the status line is malformed")
    reason = (status[3] or b"").decode("latin-1")
    return Response(int(status[2]), reason, parse_fields(block), int(status[1]))


def parse_fields(block: bytes) -> tuple[Field, ...]:
    """The fields in ``block``: lines that are parted by CRLF."""
    if not block:
        return ()
    lines = block.split(b"\r\n")
    if len(lines) > MAX_FIELDS:
        raise MessageError(f"more than {MAX_FIELDS} header fields", status=431)
    return tuple(parse_field(line) for line in lines)


def parse_field(line: bytes) -> Field:
    """The field in one line."""
    name, colon, value = line.partition(b":")
    # The token also refuses a space before the colon, and a line that starts with one (obs-fold).
    if not colon or not _TOKEN.fullmatch(name):
        raise MessageError("a header field is malformed")
    value = value.strip(b" \t")
    if _CONTROL.search(value):
        raise MessageError("a header field contains a control character")
    return name.decode(), value.decode("latin-1")


def serialize_request(request: Request) -> bytes:
    """The bytes of a request's head, its empty line included."""
    return _serialize(f"{request.method} {request.target} HTTP/1.{request.minor}", request.fields)


def serialize_response(response: Response) -> bytes:
    """The bytes of a response's head, its empty line included."""
    return _serialize(f"HTTP/1.{response.minor} {response.status} {response.reason}", response.fields)


def serialize_fields(fields: Fields) -> bytes:
    """The bytes of fields, each line with its CRLF."""
    block = "".join(f"{name}: {value}\r\n" for name, value in fields).encode("latin-1")
    if block.count(b"\n") != len(fields) or block.count(b"\r") != len(fields) or b"\0" in block:
        raise MessageError("a header field to send contains a line break or NUL", status=500)
    return block


def _serialize(line: str, fields: Fields) -> bytes:
    start = line.encode("latin-1")
    if _CONTROL.search(start):
        raise MessageError("a first line to send contains a control character", status=500)
    return b"%b\r\n%b\r\n" % (start, serialize_fields(fields))


# -- looking at fields -------------------------------------------------------------------------------------------------


def first(fields: Fields, name: str) -> str | None:
    """The first value of that field (the name in lower case), or None."""
    return next((value for key, value in fields if key.lower() == name), None)


def values(fields: Fields, name: str) -> list[str]:
    """All values of that field (the name in lower case), in order."""
    return [value for key, value in fields if key.lower() == name]


def elements(fields: Fields, name: str) -> list[str]:
    """The elements of a field that is a comma-separated list, over all its lines, empty ones left out."""
    return [part for value in values(fields, name) for item in value.split(",") if (part := item.strip(" \t"))]


def without(fields: Fields, names: Iterable[str]) -> list[Field]:
    """The fields but those of these names (in lower case)."""
    dropped = frozenset(names)
    return [field for field in fields if field[0].lower() not in dropped]


def keeps_alive(head: Request | Response) -> bool:
    """Whether the sender of this head wants the connection to last beyond the message (RFC 9112 section 9.3)."""
    options = {option.lower() for option in elements(head.fields, "connection")}
    return "close" not in options and (head.minor >= 1 or "keep-alive" in options)


def asks_upgrade(head: Request | Response) -> bool:
    """Whether the head's Connection and Upgrade fields speak of another protocol."""
    options = {option.lower() for option in elements(head.fields, "connection")}
    return "upgrade" in options and first(head.fields, "upgrade") is not None


def expects_continue(request: Request) -> bool:
    """Whether the sender waits for ``100 Continue`` before it sends the body."""
    return request.minor >= 1 and (first(request.fields, "expect") or "").lower() == "100-continue"


# -- framing -----------------------------------------------------------------------------------------------------------

NONE = "none"
LENGTH = "length"
CHUNKED = "chunked"
UNTIL_CLOSE = "until-close"


@dataclass(frozen=True)
class Framing:
    """How a body is delimited: NONE, LENGTH (of ``length`` bytes), CHUNKED or UNTIL_CLOSE."""

    kind: str
    length: int = 0

    @property
    def field(self) -> Field | None:
        """The one field that says so, for a head that is written anew."""
        if self.kind == LENGTH:
            return ("Content-Length", str(self.length))
        return ("Transfer-Encoding", "chunked") if self.kind == CHUNKED else None


NO_BODY = Framing(NONE)


def request_framing(request: Request) -> Framing:
    """How the body of ``request`` is delimited (RFC 9112 section 6.3).

    Raises:
        MessageError: the fields contradict each other, or name a coding other than chunked (501).
    """
    return _declared_framing(request) or NO_BODY


def response_framing(response: Response, *, method: str) -> Framing:
    """How the body of the response to a request of ``method`` is delimited.

    Raises:
        MessageError: the fields contradict each other, or name a coding other than chunked.
    """
    if method == "HEAD" or response.status < 200 or response.status in {204, 304}:
        return NO_BODY
    return _declared_framing(response) or Framing(UNTIL_CLOSE)


def _declared_framing(head: Request | Response) -> Framing | None:
    codings = values(head.fields, "transfer-encoding")
    lengths = set(values(head.fields, "content-length"))
    if codings:
        if lengths:
            raise MessageError("Content-Length stands beside Transfer-Encoding")
        if head.minor < 1:
            raise MessageError("Transfer-Encoding in an HTTP/1.0 message")
        if len(codings) != 1 or codings[0].lower() != "chunked":
            raise MessageError("a transfer coding other than chunked", status=501)
        return Framing(CHUNKED)
    if not lengths:
        return None
    if len(lengths) > 1:
        raise MessageError("two different Content-Lengths")
    text = lengths.pop()
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_LENGTH_DIGITS):
        raise MessageError("Content-Length is not a number of bytes")
    return Framing(LENGTH, int(text))


def passed_framing(framing: Framing, *, minor: int) -> Framing:
    """How a body is delimited when it is passed on while it comes, to a peer that speaks HTTP/1.``minor``.

    What lasts until the close is chunked for those who know chunks: their connection can be kept, and they see when a
    body was cut off. What is chunked lasts until the close for those who do not.
    """
    if framing.kind == UNTIL_CLOSE and minor >= 1:
        return Framing(CHUNKED)
    if framing.kind == CHUNKED and minor < 1:
        return Framing(UNTIL_CLOSE)
    return framing


def framed_fields(fields: Fields, framing: Framing) -> list[Field]:
    """The fields with exactly one that tells the framing, at the place of the first that did."""
    told: list[Field] = [] if framing.field is None else [framing.field]
    result: list[Field] = []
    for field in fields:
        if field[0].lower() in {"content-length", "transfer-encoding"}:
            result += told
            told = []
        else:
            result.append(field)
    return result + told
