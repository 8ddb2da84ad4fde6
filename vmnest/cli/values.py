"""What options' texts mean; a ValueError's text is the reason that the user reads."""

from __future__ import annotations

import math
import os

from .. import errors, settings
from ..wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = [
    "check_option",
    "check_text",
    "is_text",
    "parse_bytes",
    "parse_cpus",
    "parse_label",
    "parse_memory",
    "parse_number",
    "parse_offset",
    "parse_payload",
    "parse_seconds",
    "parse_seconds_from",
    "parse_signal",
    "parse_state_of",
    "parse_ulimit",
    "to_utf8",
]

UNLIMITED = -1
# What Linux has: the sandbox's kernel, whatever this machine is.
LIMITS = (
    *("as", "core", "cpu", "data", "fsize", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio"),
    *("rttime", "sigpending", "stack"),
)
LARGEST_SIGNAL = 64
_SECONDS_OF_UNIT = {"s": 1, "m": 60, "h": 3600}


def to_utf8(text: str) -> str:
    """What Python made of an argument's bytes by the locale (which may be ASCII), made of them by UTF-8 instead."""
    return text if text.isascii() else os.fsencode(text).decode("utf-8", errors="surrogateescape")


def parse_seconds(text: str) -> float:
    """``90``, ``0.5``, or with a unit ``90s``, ``15m``, ``2h``."""
    seconds = _seconds(text)
    if not seconds:
        from ..deadline import LONGEST_SECONDS

        most = f"{LONGEST_SECONDS:.0f} s"
        raise ValueError(f"must be a number of seconds above 0, or 90s, 15m, 2h, and at most {most}: {text!r}")
    return seconds


def parse_seconds_from(least: int, most: int) -> Callable[[str], int]:
    """A parser of the same in whole seconds, within these bounds."""

    def parse(text: str) -> int:
        seconds = _seconds(text)
        if seconds is None or seconds != int(seconds) or not least <= seconds <= most:
            raise ValueError(f"must be a whole number of seconds, {least} to {most}, or 90s, 15m, 2h: {text!r}")
        return int(seconds)

    return parse


def _seconds(text: str) -> float | None:
    from ..deadline import check_seconds

    number, factor = (text[:-1], _SECONDS_OF_UNIT[text[-1]]) if text[-1:] in _SECONDS_OF_UNIT else (text, 1)
    try:
        return check_seconds(parse_number(number) * factor)
    except (ValueError, errors.UsageError):
        return None


def parse_number(text: str) -> float:
    """A number as people write it, and not all that Python takes for one: ``1_0``, digits of other scripts, spaces."""
    if not text.isascii() or "_" in text or text != text.strip():
        raise ValueError(f"must be a number: {text!r}")
    return float(text)


def parse_cpus(text: str) -> float:
    """``1``, ``0.5``."""
    try:
        number = parse_number(text)
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


def parse_bytes(text: str) -> int:
    """``65536``, or with a unit ``64k``, ``16M``."""
    try:
        return settings.parse_size(text)
    except ValueError:
        raise ValueError(f"must be a number of bytes above 0, or a size such as 64k or 16M: {text!r}") from None


def parse_offset(text: str) -> int:
    """A number of bytes, also 0."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(f"must be a number of bytes: {text!r}")
    return int(text)


def parse_ulimit(text: str) -> tuple[str, tuple[int, int]]:
    """``NAME=LIMIT`` or ``NAME=SOFT:HARD``: the name, and both limits. ``-1`` or ``unlimited`` is for none."""
    name, equals, limits = text.partition("=")
    soft, colon, hard = limits.partition(":")
    try:
        if not equals or not (name.isascii() and name.isalnum()):
            raise ValueError
        found = _limit(soft), _limit(hard if colon else soft)
    except ValueError:
        raise ValueError(f"must be NAME=LIMIT or NAME=SOFT:HARD, such as nofile=1024:4096: {text!r}") from None
    if name.lower() not in LIMITS:
        raise ValueError(f"there is no limit {name!r}, but {', '.join(LIMITS)}")
    if found[1] != UNLIMITED and not 0 <= found[0] <= found[1]:
        raise ValueError(f"the soft limit must not be above the hard one: {text!r}")
    return name.lower(), found


def _limit(text: str) -> int:
    if text in ("-1", "unlimited"):
        return UNLIMITED
    return 0 if text == "0" else settings.parse_count(text)


def parse_signal(text: str) -> str | int:
    """``INT``, ``SIGINT`` or ``2``: the whole name, or the number, which means what it does in the sandbox."""
    import signal

    if text.isascii() and text.isdigit() and 0 < int(text[:3]) <= LARGEST_SIGNAL and len(text) <= 3:
        return int(text)
    name = f"SIG{text.upper().removeprefix('SIG')}"
    if name not in signal.Signals.__members__:
        raise ValueError(f"must be a signal, such as TERM, KILL or 9: {text!r}")
    return name


def parse_state_of(states: Collection[str]) -> Callable[[str], str]:
    """A parser of one of these, in any case."""

    def parse(text: str) -> str:
        if text.upper() not in states:
            raise ValueError(f"must be one of {', '.join(states)}: {text!r}")
        return text.upper()

    return parse


def parse_label(text: str) -> tuple[str, str]:
    """``KEY=VALUE``."""
    key, equals, value = text.partition("=")
    if not key or not equals or not text.isprintable():
        raise ValueError(f"must be KEY=VALUE: {text!r}")
    return key, value


def parse_payload(text: str) -> str:
    """The text itself, or with ``@`` before it the content of the file that it names. Errors show none of it."""
    if not text.startswith("@"):
        if not is_text(text):
            raise ValueError("must be text, and it is not UTF-8")
        return text
    path = text[1:]
    try:
        with open(path, "rb") as file:
            content = file.read(names.LONGEST_PAYLOAD_BYTES + 1)
        if len(content) > names.LONGEST_PAYLOAD_BYTES:
            raise ValueError(f"takes up to {names.LONGEST_PAYLOAD_BYTES} bytes, and {path} has more")
        return content.decode("utf-8")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ValueError(f"must be text, and {path} is not UTF-8") from None


def is_text(text: str) -> bool:
    """It came from bytes that are UTF-8 (Python keeps other bytes as lone surrogates)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def check_option(value: str | None, *, what: str) -> None:
    """Raise UsageError for the value of an option that is no text, or nothing."""
    if value == "":
        raise errors.UsageError(f"{what} must not be empty")
    check_text(value or "", what=what)


def check_text(text: str, *, what: str) -> None:
    """Raise UsageError for what is no text."""
    if not is_text(text):
        raise errors.UsageError(
            f"{what} is not UTF-8: {text!a}",
            hint="Arguments travel as text. Let the command make the bytes (printf '\\377'), or read them from a file.",
        )
