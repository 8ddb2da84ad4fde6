"""What a caller hands to the agent, checked before it is sent.

No program can get a NUL in an argument or a ``=`` in a variable's name, and no UTF-8 holds half of a surrogate pair.
Each is refused here with the field's name, instead of failing somewhere on the way.
"""

from __future__ import annotations

import base64
import json
import re
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .. import deadline, errors
from .._guest.agentd import wire

__all__ = [
    "Command",
    "RlimitValue",
    "build_exec",
    "build_process",
    "build_read",
    "build_size",
    "build_write",
    "check_process_id",
    "check_signal",
    "check_text",
]

# A shell line is run by bash, or by sh where there is none; the choice is made by the process that becomes the shell.
SHELL = 'if command -v bash >/dev/null 2>&1; then exec bash -lc "$1"; else exec sh -lc "$1"; fi'
MAX_TERMINAL_SIDE = 65535
SIGNALS = range(1, 65)

_PROCESS_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{wire.MAX_EXEC_ID_CHARS}}}")
_LIMIT_NAME = re.compile(r"[a-z]{1,16}")

RlimitValue = int | tuple[int, int]


class Command(NamedTuple):
    """What is to be run, as a caller says it; ``build_exec`` and ``build_process`` check it.

    Attributes:
        command: The program, or a line of shell.
        args: The program's arguments.
        is_shell: ``command`` is a line, for ``bash -lc``, or ``sh -lc`` where there is no bash.
        cwd: Its working directory; None: the agent's default.
        env: Variables that are added to the sandbox's environment.
        timeout: Seconds after which it is ended with all its children; None: never.
        user: The name or the number of the user that it runs as; None: the agent's own.
        rlimits: Resource limits by name (``nofile``): one number, or the soft and the hard one.
        has_stdin: It has a standard input that can be written to.
        pty: Columns and rows of a terminal that it runs in; None: it runs in none.
        retain: ``wire.RETAIN_BLOCK`` or ``wire.RETAIN_DROP``.
        output_limit: Bytes of its output that the agent keeps; None: its default.
    """

    command: str
    args: Sequence[str] | None = None
    is_shell: bool = False
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    timeout: float | None = None
    user: str | int | None = None
    rlimits: Mapping[str, RlimitValue] | None = None
    has_stdin: bool = False
    pty: tuple[int, int] | None = None
    retain: str = wire.RETAIN_BLOCK
    output_limit: int | None = None


def build_exec(command: Command) -> bytes:
    """The body of an exec request of the base contract, which knows no user, no limits and no input.

    Raises:
        errors.BadArgumentError: an argument that no program can get; the message names it.
        errors.UsageError: the timeout is no usable number of seconds.
    """
    request = _build_common(command)
    if command.is_shell:
        request["command"], request["args"] = "sh", ["-c", SHELL, "sh", request["command"]]
    return _to_json(request)


def build_process(command: Command, *, process_id: str) -> bytes:
    """The body of a request to start a process. Raises as ``build_exec`` does."""
    request: dict[str, object] = {"id": check_process_id(process_id), **_build_common(command)}
    if command.is_shell:
        request["shell"] = request.pop("command")
        del request["args"]
    if command.user is not None:
        request["user"] = _check_user(command.user)
    if command.rlimits is not None:
        request["rlimits"] = _check_rlimits(command.rlimits)
    if command.has_stdin:
        request["stdin"] = wire.STDIN_PIPE
    if command.pty is not None:
        request["pty"] = _check_size(command.pty)
    if command.retain != wire.RETAIN_BLOCK:
        request["retain"] = _check_retain(command.retain)
    if command.output_limit is not None:
        request["output_limit"] = _check_output_limit(command.output_limit)
    return _to_json(request)


def _build_common(command: Command) -> dict[str, object]:
    if not isinstance(command.command, str):
        raise _bad("command", "must be text", hint='The program and its arguments are separate: exec("ls", ["-l"]).')
    request: dict[str, object] = {"command": check_text(command.command, field="command", empty=False)}
    request["args"] = _check_args(command.args)
    if command.is_shell and command.args:
        raise errors.UsageError("a line of shell has no arguments beside it", hint="Quote them into the line.")
    if command.cwd is not None:
        request["cwd"] = check_text(command.cwd, field="cwd", empty=False)
    if command.env is not None:
        request["env"] = _check_env(command.env)
    if command.timeout is not None:
        request["timeout"] = _check_timeout(command.timeout)
    return request


def build_size(columns: int, rows: int) -> bytes:
    """The body of a request that gives a terminal another size."""
    return _to_json(_check_size((columns, rows)))


def build_read(path: str) -> bytes:
    """The body of a request to read a file."""
    return _to_json({"path": check_text(path, field="path", empty=False)})


def build_write(path: str, data: bytes | bytearray | memoryview) -> bytes:
    """The body of a request to write a file."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise _bad("data", f"must be bytes, not {type(data).__name__}")
    checked = check_text(path, field="path", empty=False)
    content = base64.b64encode(data).decode("ascii")
    return _to_json({"path": checked, "encoding": wire.ENCODING_BASE64, "content": content})


def check_text(value: object, *, field: str, empty: bool = True) -> str:
    """The value, if it is text that can travel and reach a program; else BadArgumentError naming ``field``."""
    if not isinstance(value, str):
        raise _bad(field, f"must be text, not {type(value).__name__}")
    if not value and not empty:
        raise _bad(field, "must not be empty")
    if "\0" in value:
        raise _bad(field, "holds a NUL character")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise _bad(field, "holds half of a surrogate pair, which is no Unicode text") from None
    return value


def check_process_id(value: object) -> str:
    """The id, if a process can have it; else UsageError."""
    if not isinstance(value, str) or not _PROCESS_ID.fullmatch(value):
        raise errors.UsageError(
            f"no id of a process: {value!r:.100}", hint="It has 1 to 64 letters, digits, hyphens and underscores."
        )
    return value


def check_signal(value: str | int) -> str:
    """The signal as it travels: ``INT`` for ``INT``, ``SIGINT``, ``signal.SIGINT`` and 2; else UsageError."""
    if isinstance(value, int) and not isinstance(value, bool) and value in SIGNALS:
        try:
            return signal.Signals(value).name.removeprefix("SIG")
        except ValueError:
            return str(int(value))
    name = value.upper().removeprefix("SIG") if isinstance(value, str) else ""
    if name.isdecimal() and int(name[:9]) in SIGNALS and len(name) <= 9:
        return check_signal(int(name))
    # The guest's own list counts: this machine may be of another kind.
    if not re.fullmatch(r"[A-Z][A-Z0-9+-]{1,15}", name):
        raise errors.UsageError(f"no signal: {value!r:.100}", hint="INT, SIGINT and 2 are the same one.")
    return name


def _check_user(user: str | int) -> str | int:
    if isinstance(user, int) and not isinstance(user, bool):
        if not 0 <= user < 2**32 - 1:
            raise _bad("user", f"is no number of a user: {user}")
        return user
    return check_text(user, field="user", empty=False)


def _check_rlimits(rlimits: Mapping[str, RlimitValue]) -> dict[str, object]:
    if not isinstance(rlimits, Mapping):
        raise _bad("rlimits", f"must map names to numbers, not be {type(rlimits).__name__}")
    checked: dict[str, object] = {}
    for name, value in rlimits.items():
        if not isinstance(name, str) or not _LIMIT_NAME.fullmatch(name):
            raise _bad("a name in rlimits", f"is no limit: {name!r:.40}", hint="Names are as nofile, nproc, cpu.")
        numbers = list(value) if isinstance(value, (tuple, list)) else [value]
        if len(numbers) > 2 or not numbers or not all(_is_limit(number) for number in numbers):
            raise _bad(f"rlimits[{name!r}]", "must be a number, or a soft and a hard one")
        checked[name] = numbers if len(numbers) == 2 else numbers[0]
    return checked


def _is_limit(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value < 2**63


def _check_size(size: tuple[int, int]) -> dict[str, object]:
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        raise errors.UsageError(f"the size of a terminal is (columns, rows): {size!r:.100}")
    for side in size:
        if isinstance(side, bool) or not isinstance(side, int) or not 1 <= side <= MAX_TERMINAL_SIDE:
            raise errors.UsageError(f"a terminal has 1 to {MAX_TERMINAL_SIDE} columns and rows: {side!r:.100}")
    return {"cols": size[0], "rows": size[1]}


def _check_retain(retain: str) -> str:
    if retain not in (wire.RETAIN_BLOCK, wire.RETAIN_DROP):
        raise errors.UsageError(f"retain must be {wire.RETAIN_BLOCK!r} or {wire.RETAIN_DROP!r}: {retain!r:.100}")
    return retain


def _check_output_limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 <= limit <= wire.MAX_OUTPUT_BYTES:
        raise errors.UsageError(f"output_limit must be 0 to {wire.MAX_OUTPUT_BYTES} bytes: {limit!r:.100}")
    return limit


def _check_timeout(timeout: float) -> float:
    try:
        return deadline.check_seconds(timeout, zero=False)
    except errors.UsageError as error:
        error.add_hint("None is for no timeout.")
        raise


def _check_args(args: Sequence[str] | None) -> list[str]:
    if args is None:
        return []
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise _bad("args", f"must be a list of texts, not {type(args).__name__}")
    return [check_text(value, field=f"args[{index}]") for index, value in enumerate(args)]


def _check_env(env: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(env, Mapping):
        raise _bad("env", f"must map names to texts, not be {type(env).__name__}")
    checked = {}
    for name, value in env.items():
        check_text(name, field="a name in env", empty=False)
        if "=" in name:
            raise _bad(f"env[{name!r}]", "has a '=' in its name")
        checked[name] = check_text(value, field=f"env[{name!r}]")
    return checked


def _bad(field: str, what: str, *, hint: str | None = None) -> errors.BadArgumentError:
    return errors.BadArgumentError(f"{field} {what}", hint=hint, details={"field": field})


def _to_json(request: Mapping[str, object]) -> bytes:
    return json.dumps(request, separators=(",", ":")).encode("ascii")
