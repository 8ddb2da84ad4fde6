"""``interact`` with a program of this machine in the place of one in a sandbox. Run on a terminal by the tests.

    python -m tests.support.console_program [--plain] [--pause] [--deaf] [--asleep] [--again] [--escape] COMMAND...

``--plain``: without a pty. ``--pause``: ``P`` and ``R`` as input stand for a suspension and its end. ``--deaf``: input
cannot be sent. ``--asleep``: nor before there is a file ``awake``. ``--again``: the first bytes of output are old.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from typing import NamedTuple

from vmnest import errors
from vmnest.cli import console, failure, signals, words

READ_BYTES = 65536


class Piece(NamedTuple):
    stream: str
    data: bytes
    missing: int = 0


class Program:
    """A child on a pty, or on pipes."""

    def __init__(self, argv: list[str], flags: set[str]) -> None:
        self._flags = flags
        self.is_pty = "--plain" not in flags
        self.backlog = 12 if "--again" in flags else 0
        self.state_watch: Callable[[str | None], object] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        if self.is_pty:
            self._pid, self._fd = pty.fork()
            if not self._pid:
                os.execvp(argv[0], argv)
        else:
            self._child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def chunks(self) -> Iterator[Piece]:
        if self._child is not None:
            assert self._child.stdout is not None
            fd = self._child.stdout.fileno()
        else:
            fd = self._fd
        with contextlib.suppress(OSError):
            while data := os.read(fd, READ_BYTES):
                yield Piece("stdout", data)
                if b"gap" in data:
                    yield Piece("gap", b"", 17)

    def write(self, data: bytes, /) -> int:
        if "--deaf" in self._flags:
            raise errors.ConnectionLostError("nobody hears")
        if "--asleep" in self._flags and not os.path.exists("awake"):
            raise errors.SandboxSuspendedError("sandbox demo is suspended")
        if "--pause" in self._flags and data in (b"P", b"R"):
            assert self.state_watch is not None
            self.state_watch("SUSPENDED" if data == b"P" else None)
            return 1
        if self._child is None:
            fd = self._fd
        else:
            assert self._child.stdin is not None
            fd = self._child.stdin.fileno()
        taken = 0
        with contextlib.suppress(BrokenPipeError):
            while taken < len(data):
                taken += os.write(fd, data[taken:])
        return taken

    def close_stdin(self) -> None:
        if self._child is not None:
            assert self._child.stdin is not None
            self._child.stdin.close()
        else:
            os.write(self._fd, b"\x04")

    def resize(self, columns: int, rows: int, /) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait(self) -> int:
        if self._child is not None:
            return self._child.wait()
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return status if status >= 0 else 128 - status


def run(arguments: list[str]) -> int:
    flags = {word for word in arguments if word.startswith("--")}
    program = Program([word for word in arguments if word not in flags], flags)
    options = words.Options(quiet=False, json=False)
    signals.raise_once()
    try:
        return console.interact(program, options=options, escape="--escape" in flags)
    except console.Left:
        return 77
    except BaseException as error:
        return failure.report(error, json=False, debug=False, is_exec=True)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
