"""Commands that go on between calls: servers, long work, and what reads its input."""

from __future__ import annotations

import base64

from ... import errors
from ...deadline import check_seconds
from ...ops import commands, processes, sessions
from . import output
from .tool import Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from ..calls import Call

__all__ = ["TOOLS"]

MOST_WAIT_SECONDS = 45.0


def sandbox_exec_start(
    *,
    name: str,
    command: str,
    args: list[str] | None = None,
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    timeout: float | None = None,
    shell: bool = False,
    terminal: bool = False,
    call: Call,
) -> dict[str, object]:
    """Start a program in a sandbox and leave it running: a server, a build, an interpreter that is fed.

    Go on with sandbox_exec_poll; sandbox_exec_write_stdin feeds it. With an idle sandbox that is suspended it freezes.

    Args:
        name: Sandbox.
        command: The program; with shell a line for bash -lc.
        args: Its arguments.
        cwd: Working directory (/work).
        env: Variables to add.
        timeout: Seconds until it is ended; none by default.
        shell: Run command as a line of shell.
        terminal: Run it in a terminal, 120x40.

    Returns:
        id, by which the other sandbox_exec_* tools know it; pid.
    """
    if shell and args:
        raise errors.UsageError("a line of shell has no args beside it", hint="Write them into command.")
    size = (120, 40) if terminal else None
    wanted = commands.Command(
        [command, *(args or [])], shell=shell, cwd=cwd, env=env, timeout=timeout, takes_input=True, terminal=size
    )
    started = sessions.start_session(name=name, command=wanted)
    if call.is_cancelled:
        sessions.close_session(name=name, id=str(started["id"]))  # nobody has heard of it
        call.check()
    return started


def sandbox_exec_list(*, name: str) -> dict[str, object]:
    """List the programs that run in a sandbox, and those of sandbox_exec_start that have ended.

    Args:
        name: Sandbox.

    Returns:
        programs {id, state, command, exit_code, ...}; count.
    """
    jobs = processes.list_jobs(name=name)["jobs"]
    assert isinstance(jobs, list)
    programs = [{"id": job, **facts} for job, facts in ((each.pop("job"), each) for each in jobs)]
    return {"programs": programs, "count": len(programs)}


def sandbox_exec_poll(
    *,
    name: str,
    id: str,  # noqa: A002 - what every answer calls it
    offset: int = 0,
    wait: float = 10.0,
    max_bytes: int | None = None,
) -> dict[str, object]:
    """Read what a program has written since an offset, as soon as there is something, and see whether it has ended.

    Args:
        name: Sandbox.
        id: Its id.
        offset: next_offset of the last answer; 0 for all that is kept.
        wait: Seconds to wait for output or the end, up to 45; 0 only looks.
        max_bytes: Bytes (20000).

    Returns:
        running, exit_code, stdout and stderr as plain text, next_offset; missing: bytes that are not kept any more.
    """
    limit = output.resolve_limit(max_bytes)
    seconds = min(check_seconds(wait, name="wait"), MOST_WAIT_SECONDS)
    while True:
        data = sessions.poll_session(name=name, id=id, offset=offset, wait=seconds, limit=limit)
        if output.fits(data):
            return data
        limit, seconds = output.shrink(limit, data), 0.0


def sandbox_exec_write_stdin(
    *,
    name: str,
    id: str,  # noqa: A002 - what every answer calls it
    data: str = "",
    encoding: Literal["text", "base64"] = "text",
    eof: bool = False,
) -> dict[str, object]:
    r"""Write to a program's standard input. A line has to end with \n.

    Args:
        name: Sandbox.
        id: Its id.
        data: What to write.
        encoding: How data is written.
        eof: Close the input then: the program reads its end.

    Returns:
        written: bytes that it took.
    """
    return sessions.write_session(name=name, id=id, data=_decode(data, encoding), eof=eof)


def _decode(data: str, encoding: str) -> bytes:
    if encoding == "text":
        return data.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise errors.UsageError(f"data is no base64: {error}") from error


def sandbox_exec_signal(
    *,
    name: str,
    id: str,  # noqa: A002 - what every answer calls it
    signal: str = "TERM",
) -> dict[str, object]:
    """Send a signal to a program and all that it has started.

    Args:
        name: Sandbox.
        id: Its id.
        signal: Its name or number: INT, TERM, KILL, HUP, ...

    Returns:
        delivered: false if nobody was left to get it.
    """
    return sessions.signal_session(name=name, id=id, signal=signal)


def sandbox_exec_close(
    *,
    name: str,
    id: str,  # noqa: A002 - what every answer calls it
) -> dict[str, object]:
    """End a program that still runs, and forget it and its output.

    Args:
        name: Sandbox.
        id: Its id.

    Returns:
        exit_code, as far as it is known.
    """
    return sessions.close_session(name=name, id=id)


TOOLS = (
    Tool(sandbox_exec_start, title="Start a program", destroys=True, is_open=True),
    Tool(sandbox_exec_list, title="List programs", reads=True),
    Tool(sandbox_exec_poll, title="Read a program's output", reads=True, is_open=True),
    Tool(sandbox_exec_write_stdin, title="Write to a program", destroys=True, is_open=True),
    Tool(sandbox_exec_signal, title="Signal a program", destroys=True),
    Tool(sandbox_exec_close, title="End a program", destroys=True, repeatable=True),
)
