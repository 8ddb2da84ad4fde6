"""Commands in sandboxes: ``exec`` in one that is there, ``run`` in one of its own."""

from __future__ import annotations

from .. import errors
from . import creation, sandboxes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..agent.results import ExecResult
    from ..sandbox import Sandbox

    Sink = Callable[[bytes], None]

__all__ = ["describe", "exec_command", "run_command"]


def exec_command(
    *,
    name: str,
    words: Sequence[str],
    shell: bool = False,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    resume: bool = True,
    local: bool | None = None,
    region: str | None = None,
    on_stdout: Sink | None = None,
    on_stderr: Sink | None = None,
) -> dict[str, object]:
    """Run a command in a sandbox and wait for its end. A suspended sandbox is resumed.

    Args:
        name: The sandbox.
        words: The program and its arguments.
        shell: Join the words by spaces and let a login shell run them.
        cwd: The command's working directory.
        env: Environment variables to add.
        timeout: Seconds after which the command is ended; none by default.
        resume: False: refuse a suspended sandbox instead of resuming it.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
        on_stdout: Gets standard output in pieces, once the command has ended; the result then holds none.
        on_stderr: The same for standard error.
    """
    from ..sandbox import Sandbox

    _check(words)
    sandbox = Sandbox.from_record(sandboxes.require(name, local=local), region=region, auto_resume=resume)
    return _exec(
        sandbox, words, shell=shell, cwd=cwd, env=env, timeout=timeout, on_stdout=on_stdout, on_stderr=on_stderr
    )


def run_command(
    *,
    words: Sequence[str],
    demand: creation.Demand | None = None,
    shell: bool = False,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    local: bool | None = None,
    region: str | None = None,
    on_ready: Callable[[], None] | None = None,
    on_stdout: Sink | None = None,
    on_stderr: Sink | None = None,
) -> dict[str, object]:
    """Run a command in a sandbox of its own, which is removed afterwards, whatever happens.

    Args:
        words: The program and its arguments.
        demand: What the sandbox shall be.
        shell: Join the words by spaces and let a login shell run them.
        cwd: The command's working directory.
        env: Environment variables to add.
        timeout: Seconds after which the command is ended; none by default.
        local: True: on this machine; False: on AWS.
        region: AWS region.
        on_ready: Called once the sandbox runs.
        on_stdout: Gets standard output in pieces, once the command has ended; the result then holds none.
        on_stderr: The same for standard error.
    """
    _check(words)
    with creation.start(_passing_name(), demand or creation.Demand(), local=local, region=region) as sandbox:
        if on_ready is not None:
            on_ready()
        return _exec(
            sandbox, words, shell=shell, cwd=cwd, env=env, timeout=timeout, on_stdout=on_stdout, on_stderr=on_stderr
        )


def _check(words: Sequence[str]) -> None:
    if not words or not words[0]:
        raise errors.UsageError("there is no command to run")


def _passing_name() -> str:
    import os

    return f"run-{os.urandom(4).hex()}"


def _exec(
    sandbox: Sandbox,
    words: Sequence[str],
    *,
    shell: bool,
    cwd: str | None,
    env: Mapping[str, str] | None,
    timeout: float | None,
    on_stdout: Sink | None,
    on_stderr: Sink | None,
) -> dict[str, object]:
    """Run it; a command that was ended at its timeout is a result too."""
    command, args = (" ".join(words), None) if shell else (words[0], words[1:])
    try:
        if args is None:
            result = sandbox.shell(command, cwd=cwd, env=env, timeout=timeout, on_stdout=on_stdout, on_stderr=on_stderr)
        else:
            result = sandbox.exec(
                command, args, cwd=cwd, env=env, timeout=timeout, on_stdout=on_stdout, on_stderr=on_stderr
            )
    except errors.CommandTimedOutError as error:
        result = error.result
    return describe(result)


def describe(result: ExecResult) -> dict[str, object]:
    """What a command left, as ``--json`` and the MCP server show it: text where it is text, else base64."""
    stdout, stdout_encoding = _to_text(result.stdout)
    stderr, stderr_encoding = _to_text(result.stderr)
    return {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "timed_out": result.timed_out,
        "truncated": result.truncated,
        "encoding": {"stdout": stdout_encoding, "stderr": stderr_encoding},
        "stdout": stdout,
        "stderr": stderr,
    }


def _to_text(data: bytes) -> tuple[str, str]:
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        import base64

        return base64.b64encode(data).decode("ascii"), "base64"
