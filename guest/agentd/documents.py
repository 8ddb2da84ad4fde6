"""Request bodies in JSON: parsed within bounds, and members taken out by type."""

from __future__ import annotations

import json
import math

from . import wire
from .errors import RequestError, bad_argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from .bodies import Body

_MAX_NUMBER_DIGITS = 32  # int() of a long run of digits is quadratic, and holds the interpreter


class Document:
    """A JSON object. A member that is null counts as absent; members that nobody asks for are ignored."""

    def __init__(self, members: dict[str, object]) -> None:
        self._members = members

    def text(self, name: str, default: str | None = None) -> str:
        """A string member.

        Raises:
            RequestError: it is of another type, or absent without a default.
        """
        value = self._members.get(name)
        if value is None:
            value = default
        if not isinstance(value, str):
            raise bad_argument(name, "is required" if value is None else "must be a string")
        return value

    def optional_text(self, name: str) -> str | None:
        """A string member, or None where it is absent."""
        return None if self._members.get(name) is None else self.text(name)

    def seconds(self, name: str) -> float | None:
        """A number of seconds above 0, or None where it is absent."""
        value = self._members.get(name)
        if value is None:
            return None
        # bool is an int to Python, not to JSON.
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
            raise bad_argument(name, "must be a number of seconds above 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._members.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise bad_argument(name, "must be true or false")
        return value

    def optional_count(self, name: str, *, maximum: int) -> int | None:
        """A whole number from 0 to ``maximum``, or None where it is absent."""
        value = self._members.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
            raise bad_argument(name, f"must be a whole number, 0 to {maximum}")
        return value

    def count(self, name: str, default: int | None = None, *, maximum: int) -> int:
        """A whole number from 0 to ``maximum``."""
        value = self.optional_count(name, maximum=maximum)
        value = default if value is None else value
        if value is None:
            raise bad_argument(name, "is required")
        return value

    def child(self, name: str) -> Document | None:
        """An object, or None where it is absent."""
        value = self._members.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise bad_argument(name, "must be an object")
        return Document(value)

    def text_or_number(self, name: str) -> str | int | None:
        """A string or a whole number, or None where it is absent."""
        value = self._members.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (str, int))):
            raise bad_argument(name, "must be a string or a whole number")
        return value

    def raw(self, name: str) -> object:
        """A member of any type, None where it is absent: its reader checks it."""
        return self._members.get(name)

    def texts(self, name: str) -> list[str]:
        """A list of strings; empty where it is absent."""
        value = self._members.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise bad_argument(name, "must be a list of strings")
        for position, item in enumerate(value):
            if not isinstance(item, str):
                raise bad_argument(f"{name}[{position}]", "must be a string")
        return value

    def text_map(self, name: str) -> dict[str, str]:
        """An object whose members are strings; empty where it is absent."""
        value = self._members.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise bad_argument(name, "must be an object of strings")
        for key, item in value.items():
            if not isinstance(item, str):
                raise bad_argument(f"{name}[{key!r}]", "must be a string")
        return value


def receive(body: Body) -> Document:
    """The document in a request's body.

    Raises:
        RequestError: 400: it is not a JSON object in UTF-8; 413: it is too large.
    """
    try:
        # No name for the bytes: they are given back before the text is parsed.
        text = body.read(wire.MAX_JSON_BODY_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(400, wire.BAD_REQUEST, f"the body is not UTF-8: {error}") from None
    return parse(text)


def parse(text: str) -> Document:
    """The document in ``text``.

    Raises:
        RequestError: 400: it is not a JSON object.
    """
    try:
        members = json.loads(text, parse_int=_parse_int, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, wire.BAD_REQUEST, f"the body is not JSON: {error}") from None
    if not isinstance(members, dict):
        raise RequestError(400, wire.BAD_REQUEST, "the body must be a JSON object")
    return Document(members)


def encode_text(field: str, text: str) -> bytes:
    """Text as the bytes that the system takes.

    Raises:
        RequestError: it has a NUL, or half of a surrogate pair; the field is named.
    """
    if "\0" in text:
        raise bad_argument(field, "must not contain NUL")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise bad_argument(field, "must not contain a lone surrogate") from None


def encode_path(field: str, text: str) -> bytes:
    """A path or name as the system has it: bytes that are not UTF-8 travel as lone surrogates U+DC80 to U+DCFF.

    Raises:
        RequestError: it is empty, has a NUL or another surrogate; the field is named.
    """
    if not text:
        raise bad_argument(field, "must not be empty")
    if "\0" in text:
        raise bad_argument(field, "must not contain NUL")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise bad_argument(field, "must not contain half of a surrogate pair") from None


def decode_path(path: bytes) -> str:
    """The text for a path or name that ``encode_path`` turns back into the same bytes."""
    return path.decode("utf-8", "surrogateescape")


def _parse_int(text: str) -> int:
    if len(text) > _MAX_NUMBER_DIGITS:
        raise ValueError("a number is too long")
    return int(text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")
