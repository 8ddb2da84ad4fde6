"""What options' texts mean; a ValueError's text is the reason that the user reads."""

from __future__ import annotations

import math
import os

from .. import errors, settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["check_text", "parse_cpus", "parse_memory", "parse_seconds", "resolve_variables", "to_utf8"]


def to_utf8(text: str) -> str:
    """What Python made of an argument's bytes by the locale (which may be ASCII), made of them by UTF-8 instead."""
    return text if text.isascii() else os.fsencode(text).decode("utf-8", errors="surrogateescape")


def parse_seconds(text: str) -> float:
    """``90``, ``0.5``."""
    from ..deadline import check_seconds

    try:
        seconds = check_seconds(float(text))
    except (ValueError, errors.UsageError):
        seconds = 0.0
    if not seconds:
        raise ValueError(f"must be a number of seconds, above 0: {text!r}")
    return seconds


def parse_cpus(text: str) -> float:
    """``1``, ``0.5``."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:  # how many there can be is not for us to say
        raise ValueError(f"must be a number of CPUs, above 0: {text!r}")
    return number


def parse_memory(text: str) -> int:
    """MiB: ``2048``, or with a unit ``2GiB``, ``512M``."""
    try:
        mib = settings.parse_count(text) if text.isdigit() else settings.parse_size(text) // 2**20
    except ValueError:
        mib = 0
    if not 0 < mib < 2**30:
        raise ValueError(f"must be a number of MiB, or a size such as 2GiB: {text!r}")
    return mib


def resolve_variables(given: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """``NAME=VALUE`` as it is; ``NAME`` alone with its value here.

    Raises:
        errors.UsageError: a name is empty, or has no value here.
    """
    variables: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or "\0" in text:
            raise errors.UsageError(
                f"not NAME or NAME=VALUE: --env {text!r}", hint="NAME alone gives the variable the value it has here."
            )
        if not equals and name not in environ:
            raise errors.UsageError(
                f"--env {name}: there is no such variable here", hint=f"Give its value: --env {name}=VALUE"
            )
        variables[name] = value if equals else to_utf8(environ[name])
        check_text(name + variables[name], what=f"--env {name}")
    return variables


def check_text(text: str, *, what: str) -> None:
    """Raise UsageError for what came from bytes that are no text (Python keeps those as lone surrogates)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise errors.UsageError(
            f"{what} is not UTF-8: {text!a}",
            hint="Arguments travel as text. Let the command make the bytes (printf '\\377'), or read them from a file.",
        ) from None
