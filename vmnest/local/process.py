"""What makes a process a daemon: detached from its starter's session, folder, descriptors and limits; and its log."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import resource
import signal
import sys
from collections.abc import Iterable

LOG_BYTES = 4 * 1024 * 1024
_LOG_FORMAT = "%(asctime)s %(levelname)s %(threadName)s %(message)s"
_FIRST_OTHER_FD = 3


def detach(*, keep: Iterable[int]) -> None:
    """Leave everything that belongs to the starter, but for its session and the descriptors in ``keep``."""
    os.chdir("/")
    os.umask(0o077)
    _close_descriptors(frozenset(keep))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    _raise_limits()


def leave_session() -> None:
    """Have a session of our own, if we can: who leads its group (a foreground start) stays in its terminal."""
    with contextlib.suppress(PermissionError):
        os.setsid()


def open_log(path: str) -> None:
    """Send log, stdout and stderr to a file that is rotated once (``.1``). stdin is empty from now on."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    handler = _Log(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(logging.Formatter(_LOG_FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)


class _Log(logging.handlers.RotatingFileHandler):
    """A rotated log that stdout and stderr follow: a print of a library, and a crash of the interpreter, land in it."""

    def _open(self):  # type: ignore[no-untyped-def]  # logging's own signature has no types
        stream = super()._open()
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        return stream


def _close_descriptors(keep: frozenset[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number >= _FIRST_OTHER_FD and number not in keep:
            # The listing's own descriptor is among them, and closed already.
            with contextlib.suppress(OSError):
                os.close(number)


def _raise_limits() -> None:
    """As many descriptors as the system allows us; no limit of a careful shell on files or processes."""
    for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU):
        _, hard = resource.getrlimit(kind)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (hard, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
