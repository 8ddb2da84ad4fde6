"""Request heads and chunk sizes of HTTP/1.x, without I/O (RFC 9110, 9112).

Strategy: a head is parsed as a whole, after its size was bounded. What could be read in two ways (two lengths, a
length beside a transfer coding, folded lines, bare CR) is refused, never guessed: the proxy in front may reuse one
connection for many clients, and both must see the same message boundaries.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(rb"[\x21-\x7e\x80-\xff]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_VERSION = re.compile(rb"HTTP/([0-9])\.([0-9])")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: [\t\x20-\x7e\x80-\xff]*)?")
_ABSOLUTE = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")

TOKEN_BYTES = frozenset(b"!#$%&'*+.^_`|~-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


class HeadError(ValueError):
    """A head that cannot be served; ``status`` is the answer."""

    def __init__(self, detail: str, *, status: int = 400) -> None:
        super().__init__(detail)
        self.status = status


class Head:
    """A parsed request head. Header names are in lower case; values keep their order.

    ``fields`` has them as they came: order, case and repetitions.
    """

    __slots__ = ("chunked", "fields", "headers", "length", "method", "target", "version")

    def __init__(self, method: str, target: str, *, version: tuple[int, int], fields: list[tuple[str, str]]) -> None:
        self.method = method
        self.target = target
        self.version = version
        self.fields = fields
        self.headers = _by_name(fields)
        self.length, self.chunked = parse_framing(self.headers)
        if self.chunked and version < (1, 1):  # RFC 9112 section 6.1: what is between may not know chunks
            raise HeadError("a chunked body in HTTP/1.0")

    def value(self, name: str) -> str:
        """The first value of a header, or an empty string."""
        return self.headers.get(name, [""])[0]

    @property
    def path(self) -> str:
        """The target's path as sent: no percent sign is decoded, no slash is folded."""
        return _ABSOLUTE.sub("", self.target, count=1).partition("?")[0] or "/"

    @property
    def query(self) -> dict[str, list[bytes]]:
        """The parameters after the question mark, percent signs decoded; a plus is a plus.

        Raises:
            HeadError: a percent sign begins no escape.
        """
        text = self.target.partition("?")[2]
        if _BAD_ESCAPE.search(text):
            raise HeadError("malformed percent escape in the query")
        parameters: dict[str, list[bytes]] = {}
        for field in text.split("&"):
            name, _, value = field.partition("=")
            if field:
                key = unquote_to_bytes(name.encode("latin-1")).decode("latin-1")
                parameters.setdefault(key, []).append(unquote_to_bytes(value.encode("latin-1")))
        return parameters

    @property
    def keeps_alive(self) -> bool:
        """Whether the client wants the connection to outlive this exchange."""
        wishes = connection_options(self.headers)
        if self.version >= (1, 1):
            return "close" not in wishes
        return "keep-alive" in wishes and "close" not in wishes

    @property
    def asks_upgrade(self) -> bool:
        """Whether the client wants to speak another protocol."""
        return self.version >= (1, 1) and "upgrade" in self.headers and "upgrade" in connection_options(self.headers)

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for ``100 Continue`` before it sends the body."""
        return self.version >= (1, 1) and self.value("expect").lower() == "100-continue"


def parse(lines: Sequence[bytes]) -> Head:
    """The head that these lines hold; they come without their line ends and without the empty last line.

    Raises:
        HeadError: the head is malformed or of another HTTP version.
    """
    words = lines[0].split(b" ")
    if len(words) != 3 or not _TOKEN.fullmatch(words[0]) or not _TARGET.fullmatch(words[1]):
        raise HeadError("malformed request line")
    version = _VERSION.fullmatch(words[2])
    if version is None:
        raise HeadError("malformed request line")
    if version[1] != b"1":
        raise HeadError("this HTTP version is not served", status=505)
    fields = parse_fields(lines[1:])
    return Head(words[0].decode("ascii"), words[1].decode("latin-1"), version=(1, int(version[2])), fields=fields)


class ResponseHead:
    """The parsed head of an answer. ``lines`` has it as it came."""

    __slots__ = ("headers", "lines", "status", "version")

    def __init__(
        self, status: int, *, version: tuple[int, int], headers: dict[str, list[str]], lines: list[bytes]
    ) -> None:
        self.status = status
        self.version = version
        self.headers = headers
        self.lines = lines

    @property
    def keeps_alive(self) -> bool:
        """Whether the server lets the connection outlive this exchange."""
        options = connection_options(self.headers)
        return "close" not in options and (self.version >= (1, 1) or "keep-alive" in options)


def parse_response(lines: list[bytes]) -> ResponseHead:
    """The head of an answer that these lines hold.

    Raises:
        HeadError: the head is malformed or of another HTTP version.
    """
    found = _STATUS_LINE.fullmatch(lines[0])
    if found is None:
        raise HeadError("malformed status line")
    headers = _by_name(parse_fields(lines[1:]))
    return ResponseHead(int(found[2]), version=(1, int(found[1])), headers=headers, lines=lines)


def parse_fields(lines: Sequence[bytes]) -> list[tuple[str, str]]:
    """The fields in these lines, in their order.

    Raises:
        HeadError: one is malformed.
    """
    fields = []
    for line in lines:
        name, colon, value = line.partition(b":")
        # A name with a space before the colon, or a folded line, fails the token here.
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise HeadError("malformed header line")
        fields.append((name.decode("ascii"), value.strip(b" \t").decode("latin-1")))
    return fields


def _by_name(fields: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for name, value in fields:
        headers.setdefault(name.lower(), []).append(value)
    return headers


def connection_options(headers: dict[str, list[str]]) -> set[str]:
    """What ``Connection`` lists, in lower case."""
    return {word.strip().lower() for value in headers.get("connection", ()) for word in value.split(",")}


def parse_framing(headers: dict[str, list[str]]) -> tuple[int, bool]:
    """How the body ends: (its length, False), or (0, True) for a chunked one."""
    codings = headers.get("transfer-encoding", [])
    lengths = headers.get("content-length", [])
    if codings:
        if lengths:
            raise HeadError("both Content-Length and Transfer-Encoding")
        if [coding.lower() for coding in codings] != ["chunked"]:
            raise HeadError("this transfer coding is not served", status=501)
        return 0, True
    if not lengths:
        return 0, False
    text = lengths[0]
    # int() would also take "+5", "1_0" and digits of other scripts.
    if any(other != text for other in lengths) or not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise HeadError("malformed Content-Length")
    return int(text), False


def parse_chunk_size(line: bytes) -> int:
    """The size in a chunk's first line (without its line end); extensions are ignored.

    Raises:
        HeadError: the line is malformed.
    """
    match = _CHUNK_SIZE.fullmatch(line)
    if match is None:
        raise HeadError("malformed chunk size")
    return int(match[1], 16)
