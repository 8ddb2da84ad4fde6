"""This process's own standard stream on a terminal, for as long as a test wants it."""

from __future__ import annotations

import os
import termios
from collections.abc import Iterator
from contextlib import contextmanager


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
