"""Bytes in, lines out, and the other way round. Standard output is ours alone.

One message is one line that ends with LF, and nothing else separates lines: U+2028 and the like are legal inside JSON.
"""

from __future__ import annotations

import os
import threading

__all__ = [
    "LONGEST_LINE_BYTES",
    "Lines",
    "TooLong",
    "Wire",
    "open_missing",
    "take_standard_input",
    "take_standard_output",
]

LONGEST_LINE_BYTES = 16 << 20
READ_BYTES = 1 << 16
_BOM = b"\xef\xbb\xbf"


class TooLong:
    """In the place of a line that was longer than what is accepted; its bytes are gone."""


class Lines:
    """Splits what comes into lines. What is too long is dropped as it comes, so that memory stays bounded.

    Args:
        longest: Bytes of the longest line that is taken.
    """

    def __init__(self, *, longest: int = LONGEST_LINE_BYTES) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0
        self._is_first = True

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """The lines that this completes, empty ones left out."""
        *ends, rest = data.split(b"\n")
        found = [line for end in ends if (line := self._end(end))]
        self._keep(rest)
        return found

    def _end(self, last: bytes) -> bytes | TooLong | None:
        self._keep(last)
        line, size = b"".join(self._parts), self._size
        self._parts, self._size = [], 0
        if size > self._longest:
            return TooLong()
        if self._is_first:
            line = line.removeprefix(_BOM)
            self._is_first = False
        return line.removesuffix(b"\r").strip(b" \t") or None

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._longest:
            self._parts = []
        elif part:
            self._parts.append(part)


def open_missing() -> None:
    """Point standard descriptors that are closed to /dev/null: what is opened next would pass for one of them."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free descriptor, that is this one


def take_standard_input() -> int:
    """A descriptor of our own for standard input; all others, children too, find its end there from now on."""
    source = os.dup(0)  # not inherited by children
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return source


def take_standard_output() -> int:
    """A descriptor of our own for standard output; what others write there from now on goes to standard error.

    To be called before anything else is imported: a library that prints, and a child that inherits descriptor 1, must
    not come between messages.
    """
    wire = os.dup(1)  # not inherited by children
    os.dup2(2, 1)
    return wire


class Wire:
    """Writes lines, each in one piece. Thread-safe.

    Attributes:
        is_broken: Nobody reads any more. What is written then goes nowhere.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self.is_broken = False

    def write(self, line: bytes) -> None:
        """Write a line that ends with LF."""
        with self._lock:
            view = memoryview(line)
            while view and not self.is_broken:
                try:
                    view = view[os.write(self._descriptor, view) :]
                except BlockingIOError:
                    _wait(self._descriptor)  # somebody else made the pipe non-blocking
                except OSError:
                    self.is_broken = True


def _wait(descriptor: int) -> None:
    import select

    poller = select.poll()
    poller.register(descriptor, select.POLLOUT)
    poller.poll()
