"""The parameters of a request's target, taken out by type as the members of its document are."""

from __future__ import annotations

import re

from .errors import bad_argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .heads import Head

_COUNT = re.compile(rb"[0-9]{1,18}")
_SECONDS = re.compile(rb"[0-9]{1,9}(\.[0-9]{0,9})?")


class Query:
    """The parameters of one request; those that nobody asks for are ignored.

    Raises:
        HeadError: the query is malformed.
    """

    def __init__(self, head: Head) -> None:
        self._parameters = head.query

    def all(self, name: str) -> list[bytes]:
        """Each value of a parameter that may be repeated."""
        return self._parameters.get(name, [])

    def one(self, name: str) -> bytes | None:
        """The value of a parameter, or None where it is absent.

        Raises:
            RequestError: it is given twice.
        """
        values = self._parameters.get(name, [])
        if len(values) > 1:
            raise bad_argument(name, "is given more than once")
        return values[0] if values else None

    def count(self, name: str, default: int = 0) -> int:
        """A whole number that is not negative."""
        value = self.one(name)
        if value is None:
            return default
        if not _COUNT.fullmatch(value):
            raise bad_argument(name, "must be a whole number that is not negative")
        return int(value)

    def seconds(self, name: str, default: float, *, maximum: float) -> float:
        """A number of seconds. More than ``maximum`` is as much as that: who asks again may wait longer."""
        value = self.one(name)
        if value is None:
            return default
        if not _SECONDS.fullmatch(value):
            raise bad_argument(name, "must be a number of seconds that is not negative")
        return min(float(value), maximum)

    def flag(self, name: str) -> bool:
        """Whether a switch is on: 1 or 0, off where it is absent."""
        value = self.one(name)
        if value not in (None, b"0", b"1"):
            raise bad_argument(name, "must be 0 or 1")
        return value == b"1"

    def path(self, name: str) -> bytes:
        """A path: bytes as they are.

        Raises:
            RequestError: it is absent, empty or has a NUL.
        """
        value = self.one(name)
        if not value:
            raise bad_argument(name, "is required" if value is None else "must not be empty")
        if b"\0" in value:
            raise bad_argument(name, "must not contain NUL")
        return value
