"""This process's own standard stream on a terminal, for as long as a test wants it, and what comes from one."""

from __future__ import annotations

import os
import re
import select
import termios
from collections.abc import Iterator
from contextlib import contextmanager

WAIT_SECONDS = 60.0


@contextmanager
def on_terminal(fd: int) -> Iterator[int]:
    """The stream ``fd`` is a terminal that passes everything on as it is; its other end.

    A context manager rather than a fixture: between fixtures and test pytest puts streams of its own there.
    """
    master, slave = os.openpty()
    modes = termios.tcgetattr(slave)
    modes[1] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, modes)
    kept = os.dup(fd)
    os.dup2(slave, fd)
    os.close(slave)
    try:
        yield master
    finally:
        os.dup2(kept, fd)
        os.close(kept)
        os.close(master)


def read_until(fd: int, text: bytes | re.Pattern[bytes]) -> bytes:
    """All that comes from ``fd`` until the text is there: what was written at once may come in pieces.

    With a pattern, until it is found. It fails when nothing more comes.
    """
    pattern = re.compile(re.escape(text)) if isinstance(text, bytes) else text
    seen = b""
    while not pattern.search(seen):
        ready, _, _ = select.select([fd], [], [], WAIT_SECONDS)
        data = os.read(fd, 65536) if ready else b""
        assert data, f"{pattern.pattern!r} did not come: {seen!r}"
        seen += data
    return seen
