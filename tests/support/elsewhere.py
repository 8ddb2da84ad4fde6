"""This Python as it is on another system: without the modules and names that only POSIX systems have.

``python elsewhere.py WORD...`` runs the command line so; without a WORD it imports all of the client.
It cannot show how Windows behaves. It shows what vmnest takes for granted.
"""

from __future__ import annotations

import importlib
import importlib.abc
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

# The standard library chooses its ways when it is imported: these have chosen those of this system before names go.
PRELOADED = (
    *("concurrent.futures.thread", "http.client", "http.server", "logging.handlers", "selectors", "subprocess"),
    *("tarfile", "tempfile", "uuid"),
)
MODULES = frozenset({"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"})
NAMES: dict[ModuleType, tuple[str, ...]] = {
    os: (
        *("O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_PATH"),
        *("chown", "fchdir", "fchmod", "fchown", "fork", "forkpty", "fstatvfs", "getegid", "geteuid", "getgid"),
        *("getgroups", "getpgid", "getpgrp", "getpriority", "getsid", "getuid", "killpg", "lchown", "mkfifo", "mknod"),
        *("nice", "openpty", "posix_fadvise", "posix_fallocate", "pread", "pwrite", "register_at_fork", "sendfile"),
        *("sched_getaffinity", "setsid", "statvfs", "tcgetpgrp", "tcsetpgrp", "ttyname", "uname", "waitid", "WNOHANG"),
    ),
    select: ("epoll", "poll", "POLLERR", "POLLHUP", "POLLIN", "POLLNVAL", "POLLOUT", "POLLPRI", "POLLRDHUP"),
    signal: (
        *("SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGTSTP", "SIGUSR1"),
        *("SIGUSR2", "SIGWINCH", "SIG_BLOCK", "SIG_SETMASK", "SIG_UNBLOCK", "alarm", "pthread_kill", "pthread_sigmask"),
        *("setitimer", "sigpending", "sigtimedwait", "sigwait", "sigwaitinfo"),
    ),
    socket: ("AF_UNIX", "SO_REUSEPORT", "recv_fds", "send_fds"),
    time: ("tzset",),
}

DISK = shutil._ntuple_diskusage(2**40, 2**39, 2**39)  # type: ignore[attr-defined]


class _Absent(importlib.abc.MetaPathFinder):
    """Finds that some modules do not exist."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def leave() -> None:
    """Go to the other system, for the rest of the process."""
    for name in PRELOADED:
        importlib.import_module(name)
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Absent())
    for module, names in NAMES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "win32"
    shutil.disk_usage = lambda path: DISK  # it asks the system each time
    for place in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
        place.clear()


def import_all() -> None:
    """Import each module of the client."""
    import vmnest

    root = Path(vmnest.__path__[0])
    for path in sorted(root.rglob("*.py")):
        names = path.relative_to(root).with_suffix("").parts
        if names[0] not in ("local", "_guest") and names[-1] not in ("__main__", "__init__"):
            importlib.import_module(".".join(("vmnest", *names)))


if __name__ == "__main__":
    leave()
    if sys.argv[1:]:
        from vmnest import __main__ as program

        program.console()
    else:
        import_all()
