"""What a command left: ExecResult."""

from __future__ import annotations

from dataclasses import dataclass


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
