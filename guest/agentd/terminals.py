"""Pseudo-terminals: our end of one, and what can be done with it."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
import sys
import termios

from . import wire
from .errors import RequestError, bad_argument, is_exhaustion, overloaded

_MAX_CELLS = 65535
_SIZE = struct.Struct("HHHH")  # rows, columns, and two sizes in pixels that nobody knows
# While a line is edited, the erase key takes a whole character. Only newer Pythons have these names.
_IUTF8 = 0x4000
_TIOCGPTN = 0x80045430
_LINE_ENDS = (b"\n", b"\r")
_PIECE_BYTES = 65536

DEFAULT_TERM = b"xterm-256color"
DEFAULT_LOCALE = b"C.UTF-8"


def parse_size(value: object, *, field: str = "pty") -> tuple[int, int]:
    """Columns and rows of ``{"cols": 80, "rows": 24}``.

    Raises:
        RequestError: ``bad_argument``.
    """
    if not isinstance(value, dict):
        raise bad_argument(field, "must be an object with cols and rows")
    cols, rows = (_parse_cells(value.get(name), field=f"{field}.{name}") for name in ("cols", "rows"))
    return cols, rows


def _parse_cells(value: object, *, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_CELLS:
        raise bad_argument(field, f"must be a number from 1 to {_MAX_CELLS}")
    return value


def open_pair(size: tuple[int, int]) -> tuple[int, int]:
    """A new terminal of so many columns and rows: our end, non-blocking, and the one of its programs.

    Raises:
        RequestError: there is none to be had.
    """
    try:
        ours, theirs = os.openpty()
    except OSError as error:
        if is_exhaustion(error) or error.errno == errno.ENOSPC:  # as many terminals as there may be
            raise overloaded(error) from error
        raise RequestError(500, wire.INTERNAL, f"no terminal can be made: {error.strerror}") from error
    os.set_blocking(ours, False)
    resize(ours, size)
    attributes = termios.tcgetattr(theirs)
    attributes[0] |= _IUTF8
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    return ours, theirs


def resize(terminal: int, size: tuple[int, int]) -> None:
    """Change the size; the programs in the foreground get a SIGWINCH if it is another one."""
    cols, rows = size
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, _SIZE.pack(rows, cols, 0, 0))


def read(terminal: int) -> bytes | None:
    """What its programs wrote; None if there is nothing now, b"" when no program has the terminal open.

    Even then it is to be closed only after the process has ended: to close it is to hang up, which ends the session.
    """
    try:
        return os.read(terminal, _PIECE_BYTES)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno == errno.EIO:  # the end of a terminal, where a pipe would give b""
            return b""
        raise


def write(terminal: int, data: bytes | memoryview) -> int:
    """Type as much of ``data`` as the terminal takes now; how much it was.

    Nothing is lost as long as the terminal is read meanwhile; but a reader in line mode gets no more than 4,095 bytes
    of any line. That nobody has the terminal open any more is not noticed here: only reading tells.
    """
    try:
        return os.write(terminal, data)
    except BlockingIOError:
        return 0


def build_end(terminal: int, *, last: bytes, is_again: bool = False) -> bytes:
    """What to type so that its reader sees the end of input; ``last`` is the last byte that was typed before.

    A first end-of-file character in the midst of a line only hands out what there is of the line. ``is_again``: one was
    typed for a reader of lines, and there is none any more: what became of it (a NUL) may stand in a line that a
    program edits by itself, and is erased.
    """
    mode, controls = _attributes(terminal)
    character = controls[termios.VEOF]
    if character in (b"", b"\0"):  # switched off
        return b""
    if is_again and not mode & termios.ICANON:
        return controls[termios.VERASE] + character
    is_mid_line = bool(mode & termios.ICANON) and last != b"" and last not in _LINE_ENDS
    return character * 2 if is_mid_line else character


def look(terminal: int) -> tuple[bool, bool] | None:
    """Whether its reader gets whole lines, and whether something typed waits to be read; None if nobody can tell.

    Our end does not know what waits, so the other one is opened for it.
    """
    mode, _ = _attributes(terminal)
    try:
        number = int.from_bytes(fcntl.ioctl(terminal, _TIOCGPTN, bytes(4)), sys.byteorder)
        theirs = os.open(f"/dev/pts/{number}", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        poller = select.poll()
        poller.register(theirs, select.POLLIN)
        return bool(mode & termios.ICANON), bool(poller.poll(0))
    finally:
        os.close(theirs)


def _attributes(terminal: int) -> tuple[int, list[bytes]]:
    attributes = termios.tcgetattr(terminal)
    controls = [value if isinstance(value, bytes) else b"" for value in attributes[6]]
    return int(attributes[3]), controls


def find_foreground(terminal: int) -> int | None:
    """The process group in the foreground, or None."""
    try:
        group = os.tcgetpgrp(terminal)
    except OSError:
        return None
    return group if group > 0 else None
