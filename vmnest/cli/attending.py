"""Fronts of commands: what becomes of their output as it comes, and of keys and Ctrl+C meanwhile."""

from __future__ import annotations

import contextlib

from .. import errors
from ..ops import commands
from . import console, failure, ndjson, output, render, signals, terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..agent.results import ExecResult
    from ..sandbox import Process
    from .words import Options

__all__ = ["CollectingFront", "Front", "LinesFront"]

HOLD_SECONDS = 20.0  # the agent takes a reader for gone who is silent for a minute
JOIN_SECONDS = 0.5


class Front:
    """Shows output on the standard streams.

    Args:
        options: The command line's.
        name: The sandbox's name, if the user may leave the command in it.
        reads: Standard input is for the command.
        leaves: The command is another's: Ctrl+C only ends the looking on. With a terminal ``~.`` does that, too.

    Attributes:
        was_killed: The user pressed Ctrl+C twice.
    """

    def __init__(self, options: Options, *, name: str | None, reads: bool, leaves: bool = False) -> None:
        if reads:
            console.check_input()  # before the command is started
        self.was_killed = False
        self._options = options
        self._name = name
        self._reads = reads
        self._leaves = leaves

    def attend(self, process: Process) -> ExecResult | None:
        """Stay until the process has ended, or the user leaves it (None)."""
        is_watched = terminal.is_terminal(terminal.STDERR)
        interrupts = signals.Interrupts(process, remark=self._remark, advises=is_watched)
        is_forwarding = self._reads or not self._leaves
        try:
            with _held(process):
                console.interact(
                    process,
                    options=self._options,
                    read_input=self._reads,
                    escape=self._reads and self._name is not None,
                    resumes=not getattr(self._options, "no_resume", False),
                    interrupts=interrupts if is_forwarding else None,
                    show=self.show(),
                )
        except console.Left:
            self._advise(process)
            return None
        except failure.Ended:
            if interrupts.is_paused or self._leaves:
                self._advise(process)
            raise
        except errors.AgentUnreachableError as error:
            if self._name is not None:
                error.add_hint(f"Should it still run, this shows its output: vmnest attach {self._name} {process.id}")
            raise
        finally:
            self.was_killed = interrupts.was_killed
        return self.result(process)

    def show(self) -> Callable[[console.Piece], None] | None:
        """What takes the output, if that is not the standard streams."""
        return None

    def result(self, process: Process) -> ExecResult:
        """How it ended, with the output that is not shown yet."""
        from ..agent import results

        assert process.exit_code is not None
        return results.ExecResult(process.exit_code, b"", b"", signal=process.signal_name, timed_out=process.timed_out)

    @property
    def on_stdout(self) -> commands.Sink | None:
        """Where standard output goes that comes at the end only."""
        return _to_stdout

    @property
    def on_stderr(self) -> commands.Sink | None:
        """The same for standard error."""
        return _to_stderr

    def _advise(self, process: Process) -> None:
        if self._name is not None:
            back = "attach -i" if self._reads else "attach"
            self._remark(f"it goes on in the sandbox: vmnest {back} {self._name} {process.id}")

    def _remark(self, text: str) -> None:
        output.remark(text, options=self._options)


class CollectingFront(Front):
    """Keeps output for the one JSON object at the end, of each stream up to ``limit`` bytes."""

    def __init__(
        self, options: Options, *, name: str | None, reads: bool, leaves: bool = False, limit: int | None = None
    ) -> None:
        from ..agent.commands import OUTPUT_LIMIT_BYTES, Outlet
        from ..agent.outputs import Chunk

        super().__init__(options, name=name, reads=reads, leaves=leaves)
        self._chunk = Chunk
        self._outlet = Outlet(limit=OUTPUT_LIMIT_BYTES if limit is None else limit)

    def show(self) -> Callable[[console.Piece], None]:
        """Keep it."""
        return lambda piece: self._outlet.take(self._chunk(piece.stream, piece.data, 0, piece.missing))

    def result(self, process: Process) -> ExecResult:
        """How it ended, with all output that was kept."""
        from ..agent import outputs

        assert process.exit_code is not None
        return self._outlet.to_result(outputs.Exit(process.exit_code, process.signal_name, process.timed_out))

    @property
    def on_stdout(self) -> None:
        """Nowhere: then the result holds what comes at the end only."""
        return None

    @property
    def on_stderr(self) -> None:
        """The same for standard error."""
        return None


class LinesFront(Front):
    """Shows output as lines of JSON."""

    def __init__(self, options: Options, *, name: str | None, reads: bool, leaves: bool = False) -> None:
        super().__init__(options, name=name, reads=reads, leaves=leaves)
        self._lines = ndjson.Lines()

    def attend(self, process: Process) -> ExecResult | None:
        """Stay until the process has ended, or the user leaves it (None)."""
        self._lines.offset = process.offset
        return super().attend(process)

    def show(self) -> Callable[[console.Piece], None]:
        """Write it."""
        return self._write

    def _write(self, piece: console.Piece) -> None:
        terminal.write_text(terminal.STDOUT, self._lines.feed(piece))

    def end(self, data: dict[str, object]) -> None:
        """Write the last line: how it ended."""
        members = {name: data[name] for name in ("exit_code", "signal", "timed_out")}
        last = self._lines.finish() + render.render_json({**members, "offset": self._lines.offset})
        terminal.write_text(terminal.STDOUT, last)

    @property
    def on_stdout(self) -> commands.Sink:
        """Where standard output goes that comes at the end only: offsets then count in the order of coming."""
        return lambda data: self._write(_Output("stdout", data))

    @property
    def on_stderr(self) -> commands.Sink:
        """The same for standard error."""
        return lambda data: self._write(_Output("stderr", data))


class _Output:
    """A piece of output."""

    __slots__ = ("data", "missing", "stream")

    def __init__(self, stream: str, data: bytes) -> None:
        self.stream = stream
        self.data = data
        self.missing = 0


@contextlib.contextmanager
def _held(process: Process) -> Iterator[None]:
    """While we wait for whoever reads our output (a pager may stand still for long), the process waits for us."""
    import threading

    is_over = threading.Event()

    def hold() -> None:
        signals.leave_to_main_thread()
        while not is_over.wait(HOLD_SECONDS):
            # Whoever reads hears of it, and says it better.
            with contextlib.suppress(errors.VmnestError):
                process.hold()

    thread = threading.Thread(target=hold, name="vmnest-hold", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(JOIN_SECONDS)  # it may be in the middle of a request


def _to_stdout(data: bytes) -> None:
    terminal.write_bytes(terminal.STDOUT, data)


def _to_stderr(data: bytes) -> None:
    terminal.write_bytes(terminal.STDERR, data)
