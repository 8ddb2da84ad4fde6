"""What a caller hands to the agent, checked before it is sent.

No program can get a NUL in an argument or a ``=`` in a variable's name, and no UTF-8 holds half of a surrogate pair.
Each is refused here with the field's name, instead of failing somewhere on the way.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence

from .. import deadline, errors
from .._guest.agentd import wire

__all__ = ["build_exec", "build_read", "build_write", "check_text"]


def build_exec(
    command: str,
    args: Sequence[str] | None,
    *,
    cwd: str | None,
    env: Mapping[str, str] | None,
    timeout: float | None,
) -> bytes:
    """The body of an exec request.

    Raises:
        errors.BadArgumentError: an argument that no program can get; the message names it.
        errors.UsageError: the timeout is no usable number of seconds.
    """
    if not isinstance(command, str):
        raise _bad("command", "must be text", hint='The program and its arguments are separate: exec("ls", ["-l"]).')
    request: dict[str, object] = {"command": check_text(command, field="command", empty=False)}
    request["args"] = _check_args(args)
    if cwd is not None:
        request["cwd"] = check_text(cwd, field="cwd", empty=False)
    if env is not None:
        request["env"] = _check_env(env)
    if timeout is not None:
        request["timeout"] = _check_timeout(timeout)
    return _to_json(request)


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


def _check_timeout(timeout: float) -> float:
    if not (seconds := deadline.check_seconds(timeout)):
        raise errors.UsageError("timeout must be above 0", hint="None is for no timeout.")
    return seconds


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
