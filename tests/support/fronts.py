"""Fronts of commands for tests: they keep what they see."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from vmnest.agent.results import ExecResult
from vmnest.sandbox import Process

if TYPE_CHECKING:
    from vmnest.ops.commands import Sink


class RecordingFront:
    """Keeps all output as it comes, and calls ``action`` with each piece of it."""

    def __init__(self, action: Callable[[bytes], object] = bytes) -> None:
        self.outputs: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self.process: Process | None = None
        self._action = action

    def attend(self, process: Process) -> ExecResult | None:
        self.process = process
        for chunk in process.chunks():
            self._take(chunk.stream, chunk.data)
        assert process.exit_code is not None
        return ExecResult(process.exit_code, b"", b"", signal=process.signal_name, timed_out=process.timed_out)

    @property
    def on_stdout(self) -> Sink:
        return lambda data: self._take("stdout", data)

    @property
    def on_stderr(self) -> Sink:
        return lambda data: self._take("stderr", data)

    def _take(self, stream: str, data: bytes) -> None:
        self.outputs[stream] += data
        self._action(data)


class LeavingFront(RecordingFront):
    """Leaves the command running as soon as it has begun."""

    def attend(self, process: Process) -> ExecResult | None:
        self.process = process
        return None
