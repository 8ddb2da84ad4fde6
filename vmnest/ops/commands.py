"""Commands in sandboxes: ``exec`` in one that is there, ``run`` in one of its own."""

from __future__ import annotations

from .. import errors
from .._guest.agentd import wire
from . import creation, sandboxes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol

    from ..agent.results import ExecResult, Missing
    from ..sandbox import Process, Sandbox

    Sink = Callable[[bytes], None]

    class Front(Protocol):
        """Whoever sits before a command while it runs: sees its output as it comes, types, interrupts."""

        def attend(self, process: Process) -> ExecResult | None:
            """Stay until the process has ended, and say how, with what is not shown yet; None: it was left running."""

        @property
        def on_stdout(self) -> Sink | None:
            """Where standard output goes that comes in one piece at the end (of agents that cannot do better)."""

        @property
        def on_stderr(self) -> Sink | None:
            """The same for standard error."""


__all__ = ["Command", "describe", "exec_command", "run_command", "spawn", "to_text"]


class Command:
    """What to run in a sandbox, and how. What is not given is as by default.

    Attributes:
        words: The program and its arguments.
        shell: Join the words by spaces and let a login shell run them.
        cwd: The command's working directory.
        env: Environment variables to add.
        timeout: Seconds after which the command is ended; none by default.
        user: User to run it as, a name or a number; the agent's by default.
        rlimits: Resource limits by name (nofile, nproc, core, ...), each soft and hard; -1 is for no limit.
        output_limit: Bytes of each stream of output that are kept; the beginning and the end of a longer one.
        takes_input: Whether it has a standard input; it finds the end of it at once by default.
        terminal: Columns and rows of the terminal that it runs in; none by default.
    """

    __slots__ = (
        *("cwd", "env", "output_limit", "rlimits", "shell", "takes_input", "terminal", "timeout", "user", "words"),
    )

    def __init__(
        self,
        words: Sequence[str],
        *,
        shell: bool = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        user: str | None = None,
        rlimits: Mapping[str, tuple[int, int]] | None = None,
        output_limit: int | None = None,
        takes_input: bool = False,
        terminal: tuple[int, int] | None = None,
    ) -> None:
        self.words = words
        self.shell = shell
        self.cwd = cwd
        self.env = env
        self.timeout = timeout
        self.user = user
        self.rlimits = rlimits
        self.output_limit = output_limit
        self.takes_input = takes_input
        self.terminal = terminal

    def __repr__(self) -> str:
        return f"Command({self.words!r})"  # its variables may be secrets

    def check(self) -> None:
        """Refuse what is none, before anything is begun."""
        if not self.words or not self.words[0]:
            raise errors.UsageError("there is no command to run")

    @property
    def is_plain(self) -> bool:
        """Every agent can run it."""
        return not (self.takes_input or self.terminal or self.user or self.rlimits)


def exec_command(
    *,
    name: str,
    command: Command,
    resume: bool = True,
    local: bool | None = None,
    region: str | None = None,
    front: Front | None = None,
) -> dict[str, object]:
    """Run a command in a sandbox and wait for its end. A suspended sandbox is resumed.

    Args:
        name: The sandbox.
        command: What to run.
        resume: False: refuse a suspended sandbox instead of resuming it.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
        front: Attends to the command, which is ended when that fails. It may leave it running: the answer is its id
            then.
    """
    command.check()
    sandbox = sandboxes.open_sandbox(name, resume=resume, local=local, region=region)
    return _run(sandbox, command, front=front, outlives=True)


def run_command(
    *,
    command: Command,
    demand: creation.Demand | None = None,
    local: bool | None = None,
    region: str | None = None,
    on_ready: Callable[[], None] | None = None,
    front: Front | None = None,
) -> dict[str, object]:
    """Run a command in a sandbox of its own, which is removed afterwards, whatever happens.

    Args:
        command: What to run.
        demand: What the sandbox shall be.
        local: True: on this machine; False: on AWS.
        region: AWS region.
        on_ready: Called once the sandbox runs.
        front: Attends to the command.
    """
    command.check()
    with creation.start(_passing_name(), demand or creation.Demand(), local=local, region=region) as sandbox:
        if on_ready is not None:
            on_ready()
        try:
            return _run(sandbox, command, front=front)
        except errors.MicroVMEndedError as error:
            from ..control import waiting

            error.hint = waiting.advice(error.details.get("state_reason"))  # there is no name that has to be forgotten
            raise


def spawn(
    sandbox: Sandbox, command: Command, *, process_id: str | None = None, retain: str = wire.RETAIN_BLOCK
) -> Process:
    """Start a command and leave it running.

    Args:
        sandbox: Where.
        command: What to run.
        process_id: The id that it shall have; made up if None.
        retain: ``block`` if somebody reads its output, ``drop`` if perhaps nobody does.
    """
    line, args = _line(command)
    return sandbox.spawn(
        line,
        args,
        shell=command.shell,
        cwd=command.cwd,
        env=command.env,
        user=command.user,
        stdin=command.takes_input,
        pty=command.terminal,
        timeout=command.timeout,
        retain=retain,
        # A reader keeps what it wants itself; what it has not read yet must not be dropped before.
        output_limit=command.output_limit if retain == wire.RETAIN_DROP else None,
        rlimits=command.rlimits,
        watch=retain == wire.RETAIN_BLOCK,
        id=process_id,
    )


def _line(command: Command) -> tuple[str, Sequence[str] | None]:
    return (" ".join(command.words), None) if command.shell else (command.words[0], command.words[1:])


def _run(sandbox: Sandbox, command: Command, *, front: Front | None, outlives: bool = False) -> dict[str, object]:
    """Run it; a command that was ended at its timeout is a result too. ``outlives``: the sandbox does the command."""
    try:
        data = None if front is None else _attend(sandbox, command, front=front, outlives=outlives)
        return describe(_exec(sandbox, command, front=front)) if data is None else data
    except errors.CommandTimedOutError as error:
        return describe(error.result)


def _attend(sandbox: Sandbox, command: Command, *, front: Front, outlives: bool) -> dict[str, object] | None:
    """Run it with somebody before it; when they are gone before its end, it is ended. None: the agent cannot do so."""
    from . import processes

    process_id = processes.new_id()
    try:
        process = _spawn_if_possible(sandbox, command, process_id=process_id)
        if process is None:
            return None
        try:
            result = front.attend(process)
        finally:
            process.detach()
    except BaseException as error:
        if outlives and _is_ours(error):
            processes.end(sandbox, process_id)
        raise
    return {"job": process_id} if result is None else describe(result)


def _spawn_if_possible(sandbox: Sandbox, command: Command, *, process_id: str) -> Process | None:
    """Start it; None for a plain command whose agent knows no processes, and has done nothing."""
    try:
        return spawn(sandbox, command, process_id=process_id)
    except errors.UnsupportedError:
        if not command.is_plain:
            raise
        return None


def _is_ours(error: BaseException) -> bool:
    """It came from this side: the command may well be running. Other errors tell what became of it themselves."""
    return isinstance(error, (errors.InputError, errors.OutputError)) or not isinstance(error, errors.VmnestError)


def _exec(sandbox: Sandbox, command: Command, *, front: Front | None) -> ExecResult:
    """Run it at an agent that tells all at the end, or for nobody who could see it earlier."""
    from ..agent.client import OUTPUT_LIMIT_BYTES

    on_stdout, on_stderr = (None, None) if front is None else (front.on_stdout, front.on_stderr)
    limit = OUTPUT_LIMIT_BYTES if command.output_limit is None else command.output_limit
    line, args = _line(command)
    if command.shell:
        return sandbox.shell(
            line, cwd=command.cwd, env=command.env, timeout=command.timeout, user=command.user,
            rlimits=command.rlimits, output_limit=limit, on_stdout=on_stdout, on_stderr=on_stderr,
        )  # fmt: skip
    return sandbox.exec(
        line, args, cwd=command.cwd, env=command.env, timeout=command.timeout, user=command.user,
        rlimits=command.rlimits, output_limit=limit, on_stdout=on_stdout, on_stderr=on_stderr,
    )  # fmt: skip


def _passing_name() -> str:
    import os

    return f"run-{os.urandom(4).hex()}"


def describe(result: ExecResult) -> dict[str, object]:
    """What a command left, as ``--json`` and the MCP server show it: text where it is text, else base64."""
    stdout, stdout_encoding, stdout_missing = _describe_stream(result.stdout, result.stdout_missing)
    stderr, stderr_encoding, stderr_missing = _describe_stream(result.stderr, result.stderr_missing)
    return {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "timed_out": result.timed_out,
        "truncated": result.truncated,
        "encoding": {"stdout": stdout_encoding, "stderr": stderr_encoding},
        "missing": {"stdout": stdout_missing, "stderr": stderr_missing, "either": result.either_missing},
        "stdout": stdout,
        "stderr": stderr,
    }


def _describe_stream(data: bytes, missing: Missing | None) -> tuple[str, str, dict[str, int] | None]:
    """Text, its encoding, and how many bytes are missing after how many."""
    if missing is None:
        return *to_text(data), None
    from ..agent import results

    # What is missing may begin and end in the middle of a character: that shall not make base64 of a text.
    head, tail = results.whole_characters(data[: missing.position], data[missing.position :])
    text, encoding = to_text(head + tail)
    if encoding != wire.ENCODING_TEXT:
        return *to_text(data), {"position": missing.position, "bytes": missing.count}
    dropped = len(data) - len(head) - len(tail)
    return text, encoding, {"position": len(head), "bytes": missing.count + dropped}


def to_text(data: bytes) -> tuple[str, str]:
    """Bytes as text and the name of its encoding."""
    try:
        return data.decode("utf-8"), wire.ENCODING_TEXT
    except UnicodeDecodeError:
        import base64

        return base64.b64encode(data).decode("ascii"), wire.ENCODING_BASE64
