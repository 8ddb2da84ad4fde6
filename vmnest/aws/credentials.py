"""AWS credentials: what they are, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass


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


@dataclass(frozen=True)
class Credentials:
    """An access key with its secret; ``expires_at`` is in seconds since the epoch, None for keys without an end."""

    access_key: str
    secret_key: Secret
    token: Secret | None = None
    expires_at: float | None = None
