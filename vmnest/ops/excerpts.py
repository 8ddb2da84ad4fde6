"""Parts of files and directories of a sandbox, for readers that can take only so much at once.

A part is read in requests of bounded size within one deadline, so that neither a huge file nor an agent that never ends
keeps anybody. Each part tells where the next one begins.
"""

from __future__ import annotations

import base64
import codecs

from .. import errors
from ..deadline import Deadline
from . import files as opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..sandbox.files import Files

__all__ = ["list_part", "read_bytes", "read_lines", "shorten"]

BYTES, LINES = "bytes", "lines"
BLOCK_BYTES = 1024 * 1024  # of a request, while the first line is looked for
LONGEST_TEXT = 8192  # characters
_LONGEST_CHARACTER = 4  # bytes
_MOST_OFFSET = 1 << 62


def read_bytes(
    files: Files, *, path: str, offset: int = 0, limit: int | None = None, most: int, deadline: Deadline
) -> dict[str, object]:
    """Bytes of a file, in base64.

    Args:
        files: The sandbox's files.
        path: The file.
        offset: The first byte.
        limit: How many bytes; as many as fit by default.
        most: Characters of base64 that there may be.
        deadline: When it must be done.

    Raises:
        errors.RemoteFileError: it cannot be read.
        errors.UsageError: ``offset`` or ``limit`` is none.
    """
    _check(offset, least=0, name="offset")
    room = max(1, most // 4 * 3)
    count = room if limit is None else min(_check(limit, least=1, name="limit"), room)
    data = files.read(path, offset=offset, length=count + 1, limit=count + 1, timeout=deadline.remaining())
    has_more = len(data) > count
    data = data[:count]
    end = offset + len(data)
    total = files.stat(path, timeout=deadline.remaining()).size if has_more or (offset and not data) else end
    text = base64.b64encode(data).decode("ascii")
    return _describe(path, "base64", text, returned=len(data), total=total, unit=BYTES, next_=end if has_more else None)


def read_lines(
    files: Files,
    *,
    path: str,
    offset: int = 1,
    limit: int | None = None,
    most: int,
    deadline: Deadline,
    check: Callable[[], object] = lambda: None,
) -> dict[str, object]:
    """Lines of a text file; of one that is no UTF-8 the bytes from there on, in base64.

    A line ends with LF, which is kept. Of a line that alone is more than ``most`` bytes, the rest is left out.

    Args:
        files: The sandbox's files.
        path: The file.
        offset: The first line; 1 is the file's first.
        limit: How many lines; as many as fit by default.
        most: Bytes of text that there may be.
        deadline: When it must be done.
        check: Called before each request; what it raises ends the reading.

    Raises:
        errors.RemoteFileError: it cannot be read.
        errors.UsageError: ``offset`` or ``limit`` is none.
    """
    _check(offset, least=1, name="offset")
    wanted = None if limit is None else _check(limit, least=1, name="limit")
    reader = _Lines(files, path, deadline=deadline, check=check)
    reader.skip(offset - 1)
    reader.fill(most + _LONGEST_CHARACTER)
    data = _take_lines(reader.held, wanted=wanted, most=most)
    is_cut = not data.endswith(b"\n") and len(data) < len(reader.held)
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=not is_cut)
    except UnicodeDecodeError:
        return read_bytes(files, path=path, offset=reader.start, most=most, deadline=deadline)
    has_more = len(data) < len(reader.held)
    count = data.count(b"\n") + (data[-1:] not in (b"", b"\n"))
    total = files.stat(path, timeout=deadline.remaining()).size if has_more else reader.start + len(data)
    shown = _describe(
        path,
        "text",
        text,
        returned=len(text.encode("utf-8")),
        total=total,
        unit=LINES,
        next_=offset + count if has_more else None,
    )
    cut = {"line_cut": True} if is_cut else {}
    return {**shown, "first_line": offset, "lines": count, **cut}


def _take_lines(held: bytes, *, wanted: int | None, most: int) -> bytes:
    """The whole lines at the beginning that are wanted and fit; of the first one its beginning, if it does not."""
    end = 0
    if wanted is None:
        end = len(held) if len(held) <= most else held.rfind(b"\n", 0, most) + 1
    else:
        for _ in range(wanted):
            found = held.find(b"\n", end) + 1 or len(held)
            if found > most or end == len(held):
                break
            end = found
    return held[: end or most]


class _Lines:
    """A file from some line on. ``held`` begins at byte ``start``."""

    def __init__(self, files: Files, path: str, *, deadline: Deadline, check: Callable[[], object]) -> None:
        self._files = files
        self._path = path
        self._deadline = deadline
        self._check = check
        self._has_ended = False
        self.held = b""
        self.start = 0

    def skip(self, lines: int) -> None:
        """Leave lines out; beyond the end there is nothing."""
        while lines:
            if not self.held:
                self._read(BLOCK_BYTES)
            if not self.held:
                return
            count = self.held.count(b"\n")
            if count < lines:
                lines -= count
                self._drop(len(self.held))
            else:
                self._drop(_end_of_line(self.held, lines))
                return

    def fill(self, size: int) -> None:
        """Hold so many bytes, or what there is."""
        while len(self.held) < size and not self._has_ended:
            self._read(size - len(self.held))

    def _drop(self, count: int) -> None:
        self.start += count
        self.held = self.held[count:]

    def _read(self, size: int) -> None:
        if self._has_ended:
            return
        self._check()
        at = self.start + len(self.held)
        data = self._files.read(self._path, offset=at, length=size, limit=size, timeout=self._deadline.remaining())
        self._has_ended = len(data) < size
        self.held += data


def _end_of_line(data: bytes, number: int) -> int:
    """Where the line of that number ends, of those that do."""
    end = 0
    for _ in range(number):
        end = data.index(b"\n", end) + 1
    return end


def _describe(
    path: str, encoding: str, text: str, *, returned: int, total: int, unit: str, next_: int | None
) -> dict[str, object]:
    content: dict[str, object] = {
        "text": text,
        "truncated": next_ is not None,
        "total_bytes": max(total, returned),
        "returned_bytes": returned,
    }
    return {"path": path, "encoding": encoding, "content": content, "next_offset": next_, "unit": unit}


def list_part(
    files: Files, *, path: str, depth: int = 1, offset: int = 0, limit: int, most: int, deadline: Deadline
) -> dict[str, object]:
    """Entries of a directory, in the order in which the agent tells them.

    Args:
        files: The sandbox's files.
        path: The directory.
        depth: Levels to list.
        offset: Entries to leave out.
        limit: Entries to tell.
        most: Characters of paths and targets that there may be.
        deadline: When it must be done.

    Raises:
        errors.RemoteFileError: it cannot be listed.
        errors.UsageError: a number is none.
    """
    _check(offset, least=0, name="offset")
    _check(limit, least=1, name="limit")
    found: list[dict[str, object]] = []
    used = 0
    has_more = False
    for number, entry in enumerate(files.scan(path, depth=depth, timeout=deadline.remaining())):
        if number < offset:
            continue
        used += len(entry.path) + len(entry.target or "") + len(entry.error or "")
        if len(found) == limit or (found and used > most):
            has_more = True
            break
        found.append(shorten(opened.describe(entry)))
    following = offset + len(found) if has_more else None
    return {"path": path, "entries": found, "truncated": has_more, "next_offset": following}


def shorten(entry: dict[str, object]) -> dict[str, object]:
    """An entry without the ends of texts that no path has: an agent may tell anything."""
    return {
        name: f"{value[:LONGEST_TEXT]}…" if isinstance(value, str) and len(value) > LONGEST_TEXT else value
        for name, value in entry.items()
    }


def _check(number: int, *, least: int, name: str) -> int:
    if not least <= number <= _MOST_OFFSET:
        raise errors.UsageError(f"{name} must be a whole number from {least}: {number}")
    return number
