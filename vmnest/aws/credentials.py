"""AWS credentials: what they are, and what gives them out. Where they come from is the business of ``sources``."""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

from .. import errors

__all__ = ["CredentialSource", "Credentials", "Secret", "Standing", "StaticSource", "build", "check"]

# Keys and tokens are letters, digits and punctuation; what else is in one was copied with it.
_PLAIN = re.compile(r"[!-~]+")


class Secret:
    """A text that does not print: only ``reveal()`` gives it away."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return "[secret]"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format("[secret]", spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class Credentials(NamedTuple):
    """An access key with its secret.

    ``expires_at`` is in seconds since the epoch, None for keys without an end, or whose source renews them itself.
    ``origin`` says in words where they are from.
    """

    access_key: str
    secret_key: Secret
    token: Secret | None = None
    expires_at: float | None = None
    origin: str = ""


class Standing(NamedTuple):
    """Credentials, and what is known of where they are from.

    Attributes:
        credentials: The keys.
        kind: ``environment``, ``profile``, ``assume-role``, ``web-identity``, ``sso``, ``login``, ``process``,
            ``container`` or ``instance``.
        expires_at: When these keys end, in seconds since the epoch; None if they do not, or it is not known.
        is_renewed: The source gives out new ones before that.
    """

    credentials: Credentials
    kind: str
    expires_at: float | None = None
    is_renewed: bool = False


class CredentialSource(Protocol):
    """Where credentials come from."""

    def get(self) -> Credentials:
        """Credentials that are good now.

        Raises:
            errors.CredentialsError: there are none, or the source fails.
        """
        ...

    def renew(self, refused: Credentials) -> bool:
        """The service refused these, though they should be good. True if ``get`` gives out others from now on.

        Raises:
            errors.CredentialsError: as ``get`` does.
        """
        ...


class StaticSource:
    """Keys that do not change."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def get(self) -> Credentials:
        """The keys."""
        return self._credentials

    def renew(self, refused: Credentials) -> bool:
        """There are no others."""
        return False


def build(
    access_key: str, secret_key: str, *, token: str | None = None, expires_at: float | None = None, origin: str = ""
) -> Credentials:
    """Credentials from plain texts."""
    return Credentials(access_key, Secret(secret_key), Secret(token) if token else None, expires_at, origin)


def check(found: Credentials) -> Credentials:
    """The same credentials, if they can be ones: a line end that was copied along would be refused as a wrong secret.

    Raises:
        errors.CredentialsBrokenError: a part of them has spaces or the like; the message names it, and not its value.
    """
    parts = {
        "access key": found.access_key,
        "secret key": found.secret_key.reveal(),
        "session token": None if found.token is None else found.token.reveal(),
    }
    for name, text in parts.items():
        if text is not None and not _PLAIN.fullmatch(text):
            raise errors.CredentialsBrokenError(
                f"the {name} from {found.origin} has characters that none has", hint="Is a space or a line end in it?"
            )
    return found
