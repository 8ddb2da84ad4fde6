"""Answers of the agent: a status, headers, and a body that may be produced while it is sent."""

from __future__ import annotations

import binascii
import json

from .errors import RequestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# A multiple of 3, so that the base64 of the blocks, joined, is the base64 of the whole.
BLOCK_BYTES = 3 * 65536


class Answer:
    """One answer. ``length`` is the exact number of bytes that ``blocks`` gives, or None for a stream.

    A stream travels in chunks, each block flushed when it is made; if its making fails, it ends without the last chunk.
    Whoever sends an answer calls ``close`` afterwards, whether or not it could be sent.
    """

    __slots__ = ("blocks", "close", "headers", "length", "status")

    def __init__(
        self,
        status: int,
        *,
        length: int | None = 0,
        blocks: Iterable[bytes] = (),
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.status = status
        self.length = length
        self.blocks = blocks
        self.headers = headers
        self.close: Callable[[], object] = _nothing


def build_json(status: int, document: object) -> Answer:
    """An answer whose body is a small JSON document."""
    body = json.dumps(document, separators=(",", ":")).encode("ascii")
    return Answer(status, length=len(body), blocks=(body,), headers=(("Content-Type", "application/json"),))


def build_error(error: RequestError) -> Answer:
    """The answer to a refused request."""
    return build_json(error.status, {"detail": error.detail, "code": error.code})


def build_bulky(status: int, document: dict[str, object], bulk: Iterable[tuple[str, int, Iterable[bytes]]]) -> Answer:
    """A JSON object whose last members are base64 strings that are encoded while they are sent.

    Args:
        status: The HTTP status.
        document: The members that come first; at least one.
        bulk: Name, number of bytes and pieces of each long member, in order.
    """
    parts: list[bytes | Iterable[bytes]] = [json.dumps(document, separators=(",", ":")).encode("ascii")[:-1]]
    length = len(parts[0]) + 1 if isinstance(parts[0], bytes) else 0
    for name, size, pieces in bulk:
        opening = b',"%b":"' % name.encode("ascii")
        parts += [opening, encode_base64(pieces), b'"']
        length += len(opening) + 4 * ((size + 2) // 3) + 1
    parts.append(b"}")
    return Answer(status, length=length, blocks=_join(parts), headers=(("Content-Type", "application/json"),))


def encode_base64(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The base64 of all pieces together, block by block."""
    rest = b""
    for piece in pieces:
        data = rest + piece if rest else piece
        whole = len(data) - len(data) % 3
        for start in range(0, whole, BLOCK_BYTES):
            yield binascii.b2a_base64(data[start : min(start + BLOCK_BYTES, whole)], newline=False)
        rest = data[whole:]
    if rest:
        yield binascii.b2a_base64(rest, newline=False)


def _nothing() -> None:
    """Most answers hold nothing that has to be given back."""


def _join(parts: list[bytes | Iterable[bytes]]) -> Iterator[bytes]:
    for part in parts:
        if isinstance(part, bytes):
            yield part
        else:
            yield from part
