"""Which part of a file a request asks for, and on which conditions (RFC 9110, sections 13 and 14). No I/O."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))", re.IGNORECASE)


class RangeError(ValueError):
    """The part that is asked for lies outside of the file."""


def build_tag(status: os.stat_result) -> str:
    """An entity tag: another one as soon as the file is replaced or changed, if only back in time."""
    marks = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return '"' + "-".join(f"{mark:x}" for mark in marks) + '"'


def parse_range(text: str, size: int) -> tuple[int, int] | None:
    """The first byte and the one after the last; None for the whole file.

    A header that is malformed, of another unit, or about several parts is as good as none.

    Raises:
        RangeError: there is no such part.
    """
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        return None
    if match[3] is not None:
        start, end = max(size - int(match[3]), 0), size
        if int(match[3]) == 0:
            raise RangeError
    else:
        start = int(match[1])
        end = min(int(match[2]) + 1, size) if match[2] else size
        if match[2] and int(match[2]) < start:
            return None
    if start >= size:
        raise RangeError
    return start, end


def names_tag(text: str, tag: str) -> bool:
    """Whether the value of an ``If-Match`` header is met by the tag; weak ones never are."""
    return text.strip() == "*" or tag in [word.strip() for word in text.split(",")]
