"""Data-plane tokens: made by the control plane, opened by the proxy, opaque to everybody else.

They look like AWS's (a JWE in compact form: five parts, the second empty, about 770 characters whatever they cover),
so that clients which take a liking to that form work the same. The standard library has no AES: the content is hidden
under a keystream of SHAKE-256 and authenticated, with header and nonce, by HMAC-SHA-256 (encrypt, then MAC). Both keys
come from the folder's secret key, so that a token outlives a daemon.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from .. import errors

PortRange = tuple[int, int]
ALL_PORTS: PortRange = (1, 65535)
MAX_TOKEN_CHARACTERS = 8000

_NONCE_BYTES = 12
_TAG_BYTES = 16
_PAD_BYTES = 464


class TokenInvalidError(errors.VmnestError):
    """The text is no token of this folder."""

    code = "local_token"


@dataclass(frozen=True)
class Grant:
    """What a token allows: ports of one MicroVM until a time; a shell token is for the shell alone."""

    microvm_id: str
    ports: Sequence[PortRange]
    expires_at: float
    for_shell: bool = False

    def covers(self, port: int) -> bool:
        """Whether the port is among the allowed ones."""
        return any(low <= port <= high for low, high in self.ports)


class Seal:
    """Makes and opens the tokens of one folder. Thread-safe."""

    def __init__(self, secret: str) -> None:
        self._hide_key = hmac.digest(secret.encode(), b"vmnest data-plane token: content", "sha256")
        self._tag_key = hmac.digest(secret.encode(), b"vmnest data-plane token: tag", "sha256")
        kid = uuid.UUID(bytes=hmac.digest(secret.encode(), b"vmnest data-plane token: id", "sha256")[:16], version=4)
        header = {"kid": str(kid), "alg": "dir", "enc": "A256GCM"}
        self._header = _encode(json.dumps(header, separators=(",", ":")).encode())

    def make(self, grant: Grant) -> str:
        """The token that stands for ``grant``."""
        content = json.dumps(
            {"v": grant.microvm_id, "p": list(grant.ports), "x": grant.expires_at, "s": grant.for_shell},
            separators=(",", ":"),
        ).encode()
        content = content.ljust(-(-len(content) // _PAD_BYTES) * _PAD_BYTES)
        nonce = os.urandom(_NONCE_BYTES)
        hidden = self._mask(content, nonce)
        return ".".join([self._header, "", _encode(nonce), _encode(hidden), _encode(self._tag(nonce, hidden))])

    def open(self, token: str) -> Grant:
        """The grant that the token stands for. Its expiry is not looked at.

        Raises:
            TokenInvalidError: this folder has not made the token.
        """
        parts = token.split(".") if len(token) <= MAX_TOKEN_CHARACTERS else []
        if len(parts) != 5 or parts[0] != self._header or parts[1]:
            raise TokenInvalidError("this is no token of this local cloud")
        nonce, hidden, tag = (_decode(part) for part in parts[2:])
        if not hmac.compare_digest(self._tag(nonce, hidden), tag):
            raise TokenInvalidError("this is no token of this local cloud")
        fields = json.loads(self._mask(hidden, nonce))
        ports = tuple((low, high) for low, high in fields["p"])
        return Grant(fields["v"], ports=ports, expires_at=fields["x"], for_shell=fields["s"])

    def _mask(self, content: bytes, nonce: bytes) -> bytes:
        stream = hashlib.shake_256(self._hide_key + nonce).digest(len(content))
        size = len(content)
        return (int.from_bytes(content, "big") ^ int.from_bytes(stream, "big")).to_bytes(size, "big")

    def _tag(self, nonce: bytes, hidden: bytes) -> bytes:
        # The parts before the content have a fixed length, so that their joint is no second way to read them.
        if len(nonce) != _NONCE_BYTES:
            return b""
        return hmac.digest(self._tag_key, self._header.encode() + b"." + nonce + hidden, "sha256")[:_TAG_BYTES]


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise TokenInvalidError("this is no token of this local cloud") from error
