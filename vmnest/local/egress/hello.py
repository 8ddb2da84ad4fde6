"""What a TLS client says first: the ClientHello, and in it the name of the server that it wants (RFC 8446, 6066).

Behind a CONNECT everything is a secret between client and server, but for this. A server that many share looks at this
name, not at the one that the connection was asked for by; so the two have to be the same. Without I/O: the bytes are
taken as they come. A hello may be spread over several records, and a record over several packets.
"""

from __future__ import annotations

import re
import struct

__all__ = ["ACCESS_DENIED", "MAX_BYTES", "Hello", "HelloError", "NotTlsError"]

MAX_BYTES = 65536
# A fatal alert that clients show as "access denied", where a closed connection would only be one.
ACCESS_DENIED = bytes((21, 3, 1, 0, 2, 2, 49))

_HANDSHAKE = 22
_CLIENT_HELLO = 1
_RECORD_HEAD = struct.Struct(">BBBH")
_MAX_RECORD_BYTES = 16384
_HELLO_HEAD_BYTES = 4
_BEFORE_SESSION_ID = 34  # version and random
_SERVER_NAME = 0
_HOST_NAME = 0
_NAME = re.compile(rb"[\x21-\x7e]{1,255}")


class NotTlsError(Exception):
    """What the client says is not TLS."""


class HelloError(Exception):
    """What the client says is no ClientHello as it should be."""


class Hello:
    """Takes a client's first bytes.

    Attributes:
        server_name: The name that it wants, as it says it, once ``feed`` has returned True; None if it says none.
    """

    def __init__(self) -> None:
        self.server_name: str | None = None
        self._data = b""  # of records that are not complete
        self._message = b""
        self._taken = 0

    def feed(self, data: bytes) -> bool:
        """Whether the hello is complete.

        Raises:
            NotTlsError: it is no TLS.
            HelloError: it is none that is well-formed and of bounded size.
        """
        self._data += data
        self._taken += len(data)
        if self._taken > MAX_BYTES:
            raise HelloError("the hello has no end")
        _check_start(self._data if not self._message else b"")
        while (record := self._take_record()) is not None:
            self._message += record
            if self._message[0] != _CLIENT_HELLO:
                raise HelloError("it begins with another message")
            if len(self._message) >= _HELLO_HEAD_BYTES:
                end = _HELLO_HEAD_BYTES + int.from_bytes(self._message[1:_HELLO_HEAD_BYTES], "big")
                if len(self._message) >= end:
                    self.server_name = _find_name(_Reader(self._message[_HELLO_HEAD_BYTES:end]))
                    return True
        return False

    def _take_record(self) -> bytes | None:
        if len(self._data) < _RECORD_HEAD.size:
            return None
        kind, major, _, length = _RECORD_HEAD.unpack_from(self._data)
        if kind != _HANDSHAKE or major != 3 or not 0 < length <= _MAX_RECORD_BYTES:
            raise HelloError("a record of it is malformed")
        end = _RECORD_HEAD.size + length
        if len(self._data) < end:
            return None
        record, self._data = self._data[_RECORD_HEAD.size : end], self._data[end:]
        return record


def _check_start(data: bytes) -> None:
    if data[:1] not in (b"", bytes((_HANDSHAKE,))) or data[1:2] not in (b"", b"\3"):
        raise NotTlsError("it does not begin as TLS does")


class _Reader:
    """Takes apart what has its lengths before it."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __bool__(self) -> bool:
        return bool(self._data)

    def take(self, count: int) -> bytes:
        if len(self._data) < count:
            raise HelloError("it ends too early")
        taken, self._data = self._data[:count], self._data[count:]
        return taken

    def take_all(self) -> bytes:
        return self.take(len(self._data))

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> _Reader:
        """What has its length, of so many bytes, before it."""
        return _Reader(self.take(self.number(size)))


def _find_name(hello: _Reader) -> str | None:
    hello.take(_BEFORE_SESSION_ID)
    hello.vector(1)  # the session's id
    hello.vector(2)  # ciphers
    hello.vector(1)  # compressions
    if not hello:
        return None
    extensions = hello.vector(2)
    names: list[str] = []
    while extensions:
        kind = extensions.number(2)
        content = extensions.vector(2)
        if kind == _SERVER_NAME:
            names += _read_names(content.vector(2))
    if len(names) > 1:
        raise HelloError("it wants several servers")
    return names[0] if names else None


def _read_names(entries: _Reader) -> list[str]:
    names = []
    while entries:
        kind = entries.number(1)
        name = entries.vector(2).take_all()
        if kind != _HOST_NAME or not _NAME.fullmatch(name):
            raise HelloError("the name of the server is malformed")
        names.append(name.decode("ascii"))
    if not names:
        raise HelloError("the name of the server is missing")
    return names
