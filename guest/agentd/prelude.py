"""What is done in a command's own process before the command: terminal, limits, user, working directory, exec.

``launch`` runs this file alone, as a program with ``-I -S``, since code between fork and exec is not safe in a process
with threads. Its argument is the number of a socket. The order comes in; the answer goes out: ``+`` when all is done
but the exec, which closes it; else, or behind it, the step that failed and the number of its error.
"""

from __future__ import annotations

import errno
import fcntl
import marshal
import os
import resource
import signal
import stat
import sys
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PIECE_BYTES = 65536
# The next one on PATH is tried after these, as a shell does.
_PASSED_OVER = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES})


def main(channel: int) -> None:
    """Carry out the order that comes in on ``channel``; comes back only if that failed."""
    os.set_inheritable(channel, False)
    order = marshal.loads(_read_all(channel))  # noqa: S302 - written by the agent, in the same version of Python
    step = "terminal"
    try:
        if order["terminal"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for name, number, limits in order["rlimits"]:
            step = f"rlimits.{name}"
            resource.setrlimit(number, limits)
        step = "user"
        if order["user"] is not None:
            _become(*order["user"])
        step = "cwd"
        os.chdir(order["cwd"])
        # The interpreter ignores these two, and a command would inherit that.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        step = "exec"
        os.write(channel, b"+")
        _execute(order)
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else errno.EPERM  # what setrlimit makes of it
        os.write(channel, f"{step} {number}".encode("ascii"))


def _read_all(channel: int) -> bytes:
    pieces = []
    while piece := os.read(channel, _PIECE_BYTES):
        pieces.append(piece)
    return b"".join(pieces)


def _become(uid: int, gid: int, groups: tuple[int, ...]) -> None:
    if (os.getuid(), os.getgid()) == (uid, gid):
        return  # also where no groups may be set: there are none to lose
    for descriptor in range(3):
        # Else /dev/stdout, which is opened anew, would be closed to the user whose output it is.
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode) or os.isatty(descriptor):
            os.fchown(descriptor, uid, -1)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _execute(order: dict[str, Any]) -> None:
    refusal: OSError | None = None
    for path in order["executables"]:
        try:
            os.execve(path, order["argv"], order["environment"])
        except OSError as error:
            if error.errno not in _PASSED_OVER:
                raise
            if refusal is None or error.errno == errno.EACCES:
                refusal = error
    if refusal is not None:
        raise refusal


if __name__ == "__main__":
    main(int(sys.argv[1]))
    os._exit(1)
