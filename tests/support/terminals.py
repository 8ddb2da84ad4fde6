"""A terminal of its own for a program: a pty, whose other side the test holds."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.paths import ROOT

WAIT_SECONDS = 30.0
# The session's leader takes the terminal as its own: then it gets the terminal's signals.
LAUNCHER = (
    "import fcntl, os, sys, termios; fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0);"
    "os.execvp(sys.argv[2], sys.argv[2:])"
)


class Terminal:
    """A program on a terminal, until the end of the ``with`` block."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        size: tuple[int, int] = (80, 24),
        stdin: int | None = None,
        stdout: int | None = None,
        cwd: Path = ROOT,
    ) -> None:
        self.master, self._slave = os.openpty()
        self.seen = b""
        self.resize(*size)
        self.modes_before = self.modes()
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, str(self._slave), *argv],
            stdin=self._slave if stdin is None else stdin,
            stdout=self._slave if stdout is None else stdout,
            stderr=self._slave,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
            pass_fds=[self._slave],
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()
        if self._slave >= 0:
            os.close(self._slave)

    def modes(self) -> list[object]:
        """How the terminal is set."""
        return termios.tcgetattr(self._slave)

    @property
    def is_raw(self) -> bool:
        """Keys are passed on one by one, unseen."""
        local = termios.tcgetattr(self._slave)[3]
        return not local & (termios.ICANON | termios.ECHO | termios.ISIG)

    def resize(self, columns: int, rows: int) -> None:
        """Give the window another size."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        """Press keys."""
        view = memoryview(keys)
        while view:
            view = view[os.write(self.master, view) :]

    def read_until(self, text: bytes, *, seconds: float = WAIT_SECONDS) -> bytes:
        """What is shown up to and with ``text``; from there on the next call reads."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            left = end - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"{text!r} was not shown, but {self.seen[-2000:]!r}")
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def read_rest(self) -> bytes:
        """All that is shown until the program ends."""
        end = time.monotonic() + WAIT_SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            self._read(0.05)
        while self._read(0):
            pass
        rest, self.seen = self.seen, b""
        return rest

    def wait(self) -> int:
        """The status of the program, which has to end by itself."""
        end = time.monotonic() + WAIT_SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            self._read(0.05)  # a terminal that is full would keep it
        assert self.process.returncode is not None, self.seen
        return self.process.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send the program a signal."""
        self.process.send_signal(number)

    def hang_up(self) -> None:
        """Close the window."""
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.seen += data
        return bool(data)
