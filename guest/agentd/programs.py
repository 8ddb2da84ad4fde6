"""What to run: a command as bytes, where its program is, and why it could not be started."""

from __future__ import annotations

import errno
import os
import stat

from . import terminals, wire
from .errors import RequestError, is_exhaustion, overloaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .users import User

_LOCALE_VARIABLES = (b"LC_ALL", b"LC_CTYPE", b"LANG")  # in the order in which they count
_SIZE_VARIABLES = (b"COLUMNS", b"LINES")


class Command:
    """One command to run. Everything is bytes, so that the locale of the agent plays no part.

    Args:
        argv: The program and its arguments.
        cwd: Where it runs.
        environment: All of its variables; see ``build_environment``.
        timeout: Seconds until it is ended.
        stdin: Whether its standard input is a pipe; else it is empty.
        pty: Columns and rows of its terminal. The terminal is then all three of its streams.
        user: Whom it runs as; None for the agent's own user.
        rlimits: Soft and hard limits, by name.
    """

    __slots__ = ("argv", "cwd", "environment", "pty", "rlimits", "stdin", "timeout", "user")

    def __init__(
        self,
        argv: Sequence[bytes],
        *,
        cwd: bytes,
        environment: Mapping[bytes, bytes],
        timeout: float | None = None,
        stdin: bool = False,
        pty: tuple[int, int] | None = None,
        user: User | None = None,
        rlimits: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        self.argv = argv
        self.cwd = cwd
        self.environment = environment
        self.timeout = timeout
        self.stdin = stdin
        self.pty = pty
        self.user = user
        self.rlimits = rlimits or {}

    @property
    def name(self) -> str:
        """The program's name for messages."""
        return self.argv[0].decode("utf-8", "backslashreplace")


def resolve(command: Command) -> bytes:
    """The file to execute: the name itself if it has a slash, else the first match on the command's own PATH.

    Raises:
        RequestError: ``cwd_not_found``, ``command_not_found`` or ``not_executable``.
    """
    if not os.path.isdir(command.cwd):
        raise _cwd_error(command, os.path.lexists(command.cwd))
    found: bytes | None = None
    for candidate in find_candidates(command):
        place = os.path.join(command.cwd, candidate)
        if not os.path.exists(place):
            continue
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return candidate
        found = found or place
    if found is None:
        raise RequestError(400, wire.COMMAND_NOT_FOUND, f"command not found: {command.name}")
    reason = "is a directory" if os.path.isdir(found) else "permission denied"
    raise RequestError(400, wire.NOT_EXECUTABLE, f"command not executable: {command.name}: {reason}")


def explain(error: OSError, command: Command) -> RequestError:
    """Why the system refused to start a command that ``resolve`` had found."""
    reason = (error.strerror or str(error)).lower()
    if is_exhaustion(error):
        return overloaded(error)
    if error.errno == errno.E2BIG:
        return RequestError(
            400, wire.ARGUMENT_TOO_LONG, f"argument too long (E2BIG): the arguments or environment of {command.name}"
        )
    if error.filename == command.cwd:
        return _cwd_error(command, error.errno != errno.ENOENT)
    if error.errno == errno.ENOENT:
        # The file is there; what the kernel did not find is the interpreter of its first line, or its loader.
        reason = "its interpreter does not exist"
    elif error.errno == errno.ENOEXEC:
        reason = "neither a program nor a script with an interpreter line (exec format error)"
    return RequestError(400, wire.NOT_EXECUTABLE, f"command not executable: {command.name}: {reason}")


def ensure_workdir(path: bytes) -> None:
    """Make the default working directory on its first use.

    Raises:
        RequestError: ``cwd_not_found``: it is absent and cannot be made.
    """
    if os.path.isdir(path):
        return
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        text = path.decode("utf-8", "backslashreplace")
        reason = f"cannot make the working directory {text} (AGENT_SANDBOX_WORKDIR): {error.strerror}"
        raise RequestError(400, wire.CWD_NOT_FOUND, reason) from error


def build_environment(
    common: Mapping[bytes, bytes], *, own: Mapping[bytes, bytes], user: User | None = None, is_terminal: bool = False
) -> dict[bytes, bytes]:
    """A command's variables: what all commands get, then what its user and its terminal call for, then its own."""
    environment = dict(common)
    if user is not None:
        environment.update(user.environment)
    if is_terminal:
        for name in _SIZE_VARIABLES:  # of the terminal in which the agent was started
            environment.pop(name, None)
        environment[b"TERM"] = terminals.DEFAULT_TERM
        if not any(own.get(name) for name in _LOCALE_VARIABLES):
            _ensure_utf8(environment)
    environment.update(own)
    return environment


def _ensure_utf8(environment: dict[bytes, bytes]) -> None:
    given = [name for name in _LOCALE_VARIABLES if environment.get(name)]
    charset = environment[given[0]].lower().replace(b"-", b"") if given else b""
    if not charset.endswith(b"utf8"):
        environment.update(dict.fromkeys([*given, b"LANG"], terminals.DEFAULT_LOCALE))


def find_candidates(command: Command) -> Iterator[bytes]:
    """The files that the command's name may mean, whether or not they are there, in the order of its own PATH."""
    name = command.argv[0]
    if b"/" in name:
        yield name
    elif name:
        path = command.environment.get(b"PATH", os.fsencode(os.defpath))
        for folder in path.split(b":"):
            yield os.path.join(folder or b".", name)


def _cwd_error(command: Command, exists: bool) -> RequestError:
    text = command.cwd.decode("utf-8", "backslashreplace")
    if not exists:
        reason = "no such directory"
    else:
        reason = "permission denied" if _is_directory(command.cwd) else "not a directory"
    return RequestError(400, wire.CWD_NOT_FOUND, f"cwd: {reason}: {text}")


def _is_directory(path: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError:
        return False
