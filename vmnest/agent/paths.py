"""Paths in a sandbox: text in which bytes that are no UTF-8 are lone surrogates, as ``os.fsdecode`` makes them."""

from __future__ import annotations

from urllib.parse import quote_from_bytes

from .. import errors
from . import arguments

__all__ = ["check_mode", "check_path", "route", "to_bytes"]


def route(path: str, *query: tuple[str, str]) -> str:
    """A route with its query, as it goes out."""
    return f"{path}?" + "&".join(f"{name}={quote_from_bytes(to_bytes(value, field=name))}" for name, value in query)


def check_path(path: object, *, field: str = "path") -> str:
    """The path, if it is one that a file can have.

    Raises:
        errors.BadArgumentError: it is not.
    """
    to_bytes(path, field=field)
    assert isinstance(path, str)
    return path


def to_bytes(path: object, *, field: str = "path") -> bytes:
    """A path's bytes: lone surrogates stand for those that are no UTF-8.

    Raises:
        errors.BadArgumentError: it is no path that a file can have.
    """
    try:
        data = path.encode("utf-8", "surrogateescape") if isinstance(path, str) else b""
    except UnicodeEncodeError:
        data = b""
    if not data or 0 in data:
        arguments.check_text(path, field=field, empty=False)
    return data


def check_mode(mode: int) -> int:
    """Permission bits, if they are some."""
    if isinstance(mode, bool) or not isinstance(mode, int) or not 0 <= mode <= 0o7777:
        raise errors.UsageError(f"mode must be permission bits, 0 to 0o7777: {mode!r}")
    return mode
