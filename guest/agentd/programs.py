"""What to run: a command as bytes, where its program is, and why it could not be started."""

from __future__ import annotations

import errno
import os
import stat

from . import wire
from .errors import RequestError, is_exhaustion, overloaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Command:
    """One command to run. Everything is bytes, so that the locale of the agent plays no part."""

    __slots__ = ("argv", "cwd", "environment", "timeout")

    def __init__(
        self, argv: Sequence[bytes], *, cwd: bytes, environment: Mapping[bytes, bytes], timeout: float | None = None
    ) -> None:
        self.argv = argv
        self.cwd = cwd
        self.environment = environment
        self.timeout = timeout

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
    for candidate in _candidates(command):
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
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        text = path.decode("utf-8", "backslashreplace")
        reason = f"cannot make the working directory {text} (AGENT_SANDBOX_WORKDIR): {error.strerror}"
        raise RequestError(400, wire.CWD_NOT_FOUND, reason) from error


def _candidates(command: Command) -> Iterator[bytes]:
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
