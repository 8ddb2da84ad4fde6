"""What a command left: ExecResult."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import NamedTuple

from .. import errors

__all__ = ["ExecResult", "Missing", "parse_exit", "whole_characters"]


class Missing:
    """Output that was not kept, in the middle of what was.

    Attributes:
        position: Where it would stand in the bytes that were kept.
        count: How many bytes it had; 0 if it is only known that this stream may have lost some of ``either_missing``.
    """

    __slots__ = ("count", "position")

    def __init__(self, position: int, count: int) -> None:
        self.position = position
        self.count = count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Missing) and (self.position, self.count) == (other.position, other.count)

    def __hash__(self) -> int:
        return hash((self.position, self.count))

    def __repr__(self) -> str:
        return f"Missing(position={self.position}, count={self.count})"


class ExecResult(NamedTuple):
    """The end of a command in a sandbox.

    Attributes:
        exit_code: The command's status; 128+N when signal N ended it.
        stdout: Its standard output, as bytes.
        stderr: Its standard error, as bytes.
        signal: The signal's name (``SIGKILL``), or None.
        timed_out: The command was ended at its timeout.
        truncated: Output beyond a limit was dropped.
        stdout_missing: What is missing in the middle of standard output, or None.
        stderr_missing: The same of standard error.
        either_missing: Bytes that the sandbox did not keep, and of which nobody knows the stream. None of them is in
            the counts of the two.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    signal: str | None = None
    timed_out: bool = False
    truncated: bool = False
    stdout_missing: Missing | None = None
    stderr_missing: Missing | None = None
    either_missing: int = 0

    @property
    def success(self) -> bool:
        """The command ended with status 0."""
        return self.exit_code == 0

    @property
    def stdout_text(self) -> str:
        """Standard output as UTF-8; bytes that are not become U+FFFD. A line tells of what is missing."""
        return _to_text(self.stdout, self.stdout_missing, either=self.either_missing)

    @property
    def stderr_text(self) -> str:
        """Standard error as UTF-8; bytes that are not become U+FFFD. A line tells of what is missing."""
        return _to_text(self.stderr, self.stderr_missing, either=self.either_missing)


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


def _to_text(data: bytes, missing: Missing | None, *, either: int) -> str:
    if missing is None:
        return data.decode("utf-8", errors="replace")
    head, tail = whole_characters(data[: missing.position], data[missing.position :])
    end = "" if not head or head.endswith(b"\n") else "\n"
    count = f"up to {missing.count + either}" if either else f"{missing.count}"
    note = f"{end}[... {count} bytes are missing here ...]\n"
    return head.decode("utf-8", errors="replace") + note + tail.decode("utf-8", errors="replace")


def whole_characters(head: bytes, tail: bytes) -> tuple[bytes, bytes]:
    """Without the parts of a character at the cut: they would look like damage."""
    for length in range(1, min(4, len(head)) + 1):
        lead = head[-length]
        if lead >= 0xC0:
            is_cut = length < (2 if lead < 0xE0 else 3 if lead < 0xF0 else 4)
            head = head[:-length] if is_cut else head
            break
        if lead < 0x80:
            break
    at = 0
    while at < min(3, len(tail)) and 0x80 <= tail[at] < 0xC0:
        at += 1
    return head, tail[at:]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
