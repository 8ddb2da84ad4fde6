"""What a command left: ExecResult."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass

from .. import errors

__all__ = ["ExecResult", "parse_exit"]


@dataclass(frozen=True)
class ExecResult:
    """The end of a command in a sandbox.

    Attributes:
        exit_code: The command's status; 128+N when signal N ended it.
        stdout: Its standard output, as bytes.
        stderr: Its standard error, as bytes.
        signal: The signal's name (``SIGKILL``), or None.
        timed_out: The command was ended at its timeout.
        truncated: Output beyond the caller's limit was dropped.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    signal: str | None = None
    timed_out: bool = False
    truncated: bool = False

    @property
    def success(self) -> bool:
        """The command ended with status 0."""
        return self.exit_code == 0

    @property
    def stdout_text(self) -> str:
        """Standard output as UTF-8; bytes that are not become U+FFFD."""
        return self.stdout.decode("utf-8", errors="replace")

    @property
    def stderr_text(self) -> str:
        """Standard error as UTF-8; bytes that are not become U+FFFD."""
        return self.stderr.decode("utf-8", errors="replace")


def parse_exit(members: Mapping[str, object], *, timed_out: bool) -> tuple[int, str | None]:
    """Status and signal of an exec answer. Other agents give -N for signal N, and nothing at all at a timeout.

    Raises:
        errors.AgentAnswerError: there is no status, or one that no process can have.
    """
    status, name = members.get("exit_code"), members.get("signal")
    if status is None and timed_out:
        return errors.EXIT_TIMED_OUT, None
    if not isinstance(status, int) or isinstance(status, bool) or not -128 < status < 2**32:
        raise errors.AgentAnswerError(f"the agent's answer has no usable exit code: {str(status)[:40]!r}")
    if status < 0:
        return 128 - status, _signal_name(-status)
    return status, name if isinstance(name, str) else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
