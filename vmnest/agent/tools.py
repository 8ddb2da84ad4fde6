"""The POSIX tools of a sandbox: small shell scripts, run by ``/v1/exec``, where the agent has no route for the job.

Paths travel as arguments, never as script. Bytes that are no UTF-8 do not fit into the base contract's JSON: each path
is written in the escapes of ``printf %b``, and decoded by the first line of every script. What a script finds wrong it
says with one of the agent's error codes; of what a tool finds wrong, the system's own words for the error are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import errors
from .._guest.agentd import wire
from . import cuts, paths

if TYPE_CHECKING:
    from ..deadline import Deadline
    from .client import AgentClient

__all__ = ["Tools"]

# Of two paths, $a and $b. The dot keeps newlines at a name's end, which a command substitution would cut off.
_PRELUDE = """\
fail() { echo "vmnest:$1" >&2; exit 90; }
need() { for tool do command -v "$tool" >/dev/null 2>&1 || fail "missing:$tool"; done; }
is_there() { [ -e "$1" ] || [ -L "$1" ]; }
a=$(printf '%b.' "$1"); a=${a%.}; b=$(printf '%b.' "$2"); b=${b%.}; shift 2
"""
_MARK = "vmnest:"
_MISSING = "missing:"
_ENVIRONMENT = {"LC_ALL": "C"}  # bytes are bytes, and errors have the words that are known here
_FAILED_STATUS = 90
_MAX_OUTPUT_BYTES = 1024 * 1024
_MAX_COMPLAINT_BYTES = 65536
_MAX_QUOTED_CHARS = 500

_CLASSES: dict[str, type[errors.RemoteFileError]] = {
    wire.FILE_NOT_FOUND: errors.RemoteFileNotFoundError,
    wire.FILE_EXISTS: errors.RemoteFileExistsError,
    wire.NOT_A_FILE: errors.NotAFileError,
    wire.NOT_A_DIRECTORY: errors.RemoteNotADirectoryError,
    wire.DIRECTORY_NOT_EMPTY: errors.DirectoryNotEmptyError,
    wire.PERMISSION_DENIED: errors.RemotePermissionError,
    wire.CHECKSUM_MISMATCH: errors.ChecksumMismatchError,
}
_MEANINGS = {
    wire.FILE_NOT_FOUND: "no such file",
    wire.FILE_EXISTS: "there is something of that name already",
    wire.NOT_A_FILE: "not a regular file",
    wire.NOT_A_DIRECTORY: "not a directory",
    wire.DIRECTORY_NOT_EMPTY: "the directory is not empty",
    wire.PERMISSION_DENIED: "permission denied",
    wire.CHECKSUM_MISMATCH: "what arrived is not what was sent",
}
# The words of the C library for what can go wrong, which all tools use.
_WORDS: dict[str, type[errors.RemoteFileError]] = {
    "No space left on device": errors.NoSpaceError,
    "Disk quota exceeded": errors.NoSpaceError,
    "Permission denied": errors.RemotePermissionError,
    "Operation not permitted": errors.RemotePermissionError,
    "Read-only file system": errors.RemotePermissionError,
    "No such file or directory": errors.RemoteFileNotFoundError,
    "Directory not empty": errors.DirectoryNotEmptyError,
    "Not a directory": errors.RemoteNotADirectoryError,
    "File exists": errors.RemoteFileExistsError,
    "Is a directory": errors.NotAFileError,
}


class Tools:
    """Runs scripts in a sandbox for one of the extensions that its agent does not have."""

    def __init__(self, client: AgentClient, *, feature: str) -> None:
        self._client = client
        self._feature = feature

    def run(
        self,
        script: str,
        *words: str,
        path: str,
        other: str = "",
        repeatable: bool = True,
        fine: frozenset[int] = frozenset({0}),
        most: int = _MAX_OUTPUT_BYTES,
        deadline: Deadline,
    ) -> tuple[bytes, bytes]:
        """What a script writes to its standard output and error.

        Args:
            script: Has the paths as ``$a`` and ``$b``, and the ``words`` as ``$1`` and so on.
            path: The first path, which messages name.
            other: The second one.
            repeatable: It does the same when it runs twice, and is run again if its answer was lost.
            fine: The statuses that are no errors.
            most: The most bytes to take of its standard output.
            deadline: When to stop waiting.

        Raises:
            errors.UnsupportedError: the image has no shell, or a tool is missing.
            errors.RemoteFileError: it failed, or writes more than that.
        """
        args = ["-c", _PRELUDE + script, "sh", _escape(path), _escape(other) if other else "", *words]
        output = bytearray()

        def take(piece: bytes) -> None:
            output.extend(piece)
            if len(output) > most:
                shown = errors.quote(path, limit=_MAX_QUOTED_CHARS)
                raise errors.RemoteFileError(f"what a tool in the sandbox says of {shown} is more than {most} bytes")

        def ask(_wakes: bool) -> tuple[int, bytes]:
            output.clear()
            result = self._client.exec(
                "sh",
                args,
                env=_ENVIRONMENT,
                on_stdout=take,
                output_limit=_MAX_COMPLAINT_BYTES,
                deadline=deadline,
            )
            return result.exit_code, result.stderr

        try:
            status, complaint = cuts.repeated(self._client, ask, may_repeat=lambda: repeatable, deadline=deadline)
        except errors.CommandNotFoundError as error:
            raise self._lacking("shell (sh)") from error
        if status not in fine:
            raise self._failure(status, complaint.decode("utf-8", "replace"), path=path, other=other)
        return bytes(output), complaint

    def _failure(self, status: int, complaint: str, *, path: str, other: str) -> errors.VmnestError:
        last = complaint.strip().rpartition("\n")[2]
        if status == _FAILED_STATUS and last.startswith(_MARK):
            code = last[len(_MARK) :]
            if code.startswith(_MISSING):
                return self._lacking(code[len(_MISSING) :])
            code, _, of_other = code.partition(":")
            shown = errors.quote(other if of_other else path, limit=_MAX_QUOTED_CHARS)
            return _CLASSES.get(code, errors.RemoteFileError)(f"{_MEANINGS.get(code, code)}: {shown}")
        found = (kind for words, kind in _WORDS.items() if words in complaint)
        kind = next(found, errors.RemoteFileError)
        said = errors.quote(last, limit=_MAX_QUOTED_CHARS) or f"a tool ended with status {status}"
        return kind(f"{said} ({errors.quote(path, limit=_MAX_QUOTED_CHARS)} in the sandbox)")

    def _lacking(self, tool: str) -> errors.UnsupportedError:
        shown = errors.quote(tool, limit=100)
        return errors.UnsupportedError(
            f"the agent in this sandbox does not have {self._feature!r}, and its image has no {shown} to do without",
            hint="An image with the agent of this version has it.",
            details={"feature": self._feature, "tool": shown},
        )


def _escape(path: str) -> str:
    """A path for ``printf %b``: no tool takes it for an option, and all of it is text."""
    data = paths.to_bytes(path)
    rooted = data if data.startswith(b"/") else b"./" + data
    text = rooted.replace(b"\\", b"\\\\").decode("utf-8", "surrogateescape")
    return "".join(f"\\0{ord(each) - 0xDC00:03o}" if "\udc80" <= each <= "\udcff" else each for each in text)
