"""Answers that are no success, to errors.

Two parties can refuse. The data plane in front of the guest answers plain text or nothing, and names its reason in a
header; such bodies are never parsed. The agent answers JSON: ``detail`` for people, and from our own agent ``code`` for
machines. Other agents have no ``code``: then the status means what it means in the upstream agent.

All of it may have been written by the guest: what is quoted is cut short, and made printable.
"""

from __future__ import annotations

import json

from .. import errors
from .._guest.agentd import wire
from ..wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..transport import Headers

__all__ = [
    "EXEC",
    "FILE",
    "HEALTH",
    "MAX_BODY_BYTES",
    "PROCESS",
    "STATS",
    "build",
    "cast_doubt",
    "is_agent_answer",
    "is_in_doubt",
    "is_unexecuted",
]

MAX_BODY_BYTES = 65536
MAX_QUOTED_CHARS = 500

# What was asked for: it decides what a status without a code means.
EXEC, FILE, HEALTH, PROCESS, STATS = "exec", "file", "health", "process", "stats"

_CLASSES: dict[str, type[errors.AgentError | errors.EndpointError]] = {
    wire.CWD_NOT_FOUND: errors.CwdNotFoundError,
    wire.COMMAND_NOT_FOUND: errors.CommandNotFoundError,
    wire.NOT_EXECUTABLE: errors.NotExecutableError,
    wire.ARGUMENT_TOO_LONG: errors.ArgumentTooLongError,
    wire.BAD_ARGUMENT: errors.BadArgumentError,
    wire.FILE_NOT_FOUND: errors.RemoteFileNotFoundError,
    wire.NOT_A_FILE: errors.NotAFileError,
    wire.FILE_ERROR: errors.RemoteFileError,
    wire.FILE_EXISTS: errors.RemoteFileExistsError,
    wire.NOT_A_DIRECTORY: errors.RemoteNotADirectoryError,
    wire.DIRECTORY_NOT_EMPTY: errors.DirectoryNotEmptyError,
    wire.PERMISSION_DENIED: errors.RemotePermissionError,
    wire.NO_SPACE: errors.NoSpaceError,
    wire.CHECKSUM_MISMATCH: errors.ChecksumMismatchError,
    wire.FILE_CHANGED: errors.FileChangedError,
    wire.UNSAFE_PATH: errors.UnsafePathError,
    wire.TOO_LARGE: errors.RequestTooLargeError,
    wire.OVERLOADED: errors.EndpointThrottledError,
    wire.SUSPENDING: errors.EndpointUnavailableError,
    wire.ALREADY_STARTED: errors.AgentUnreachableError,
    wire.NO_SUCH_PROCESS: errors.ProcessNotFoundError,
    wire.NO_SUCH_USER: errors.UserNotFoundError,
    wire.NO_STDIN: errors.NoInputError,
    wire.NO_PTY: errors.NoTerminalError,
}

_HINTS: dict[type[errors.VmnestError], str] = {
    errors.ArgumentTooLongError: (
        "Send large input as a file (vmnest cp, Python: files.write, MCP: sandbox_fs_write), and name the file in the "
        "arguments."
    ),
    errors.CommandNotFoundError: (
        "The sandbox's own PATH counts; shell syntax needs --shell (Python: shell, MCP: sandbox_shell)."
    ),
    errors.EndpointThrottledError: "Try again in a moment, with fewer commands at a time.",
    errors.EndpointUnavailableError: "It can be used again once it is resumed.",
    errors.NoInputError: "Start it with -i (Python: stdin=True), so that it has one.",
    errors.NoTerminalError: "Start it with -t (Python: pty=(80, 24)), so that it has one.",
    errors.AgentUnreachableError: "The command has run, or is still running; what it left cannot be had any more.",
}

# What no agent answers unless it gives a code. The texts that come with them are not all known.
_DATA_PLANE_STATUSES = frozenset({403, 429, 502})

# What a web framework says when it has no such route, where the agent would name the file.
_NO_ROUTE_DETAIL = "Not Found"


def is_agent_answer(headers: Headers) -> bool:
    """The answer was made by the agent (or by what poses as it in the guest), not by the data plane before it."""
    if headers.get(names.PROXY_ERROR_HEADER) is not None:
        return False
    media_type = (headers.get("content-type") or "").partition(";")[0].strip().lower()
    return media_type == "application/json"


def is_unexecuted(error: errors.VmnestError) -> bool:
    """Whether nothing of the refused request can have been executed, so that even a command may be sent again."""
    if isinstance(error, errors.TransportError):
        return not error.sent
    if isinstance(error, errors.EndpointUnavailableError):
        # Only the data plane's own word says that it never got as far as the agent (and the agent's, that it began
        # nothing): a 502 may also be the end of a connection on which the agent had begun its work.
        if error.details.get("agent_code") == wire.SUSPENDING:
            return True
        return error.details.get("proxy_error") in (names.APP_CONNECT_FAILED, names.MICROVM_CONNECT_FAILED)
    return isinstance(error, (errors.TokenRefusedError, errors.EndpointThrottledError))


def cast_doubt(error: errors.VmnestError) -> None:
    """The command of which the error tells may have run."""
    if not is_in_doubt(error):
        error.details["outcome"] = "unknown"
        error.retryable = False
        error.add_hint("The command may have run.")


def is_in_doubt(error: errors.VmnestError) -> bool:
    """Whether the command of which the error tells may have run."""
    return error.details.get("outcome") == "unknown"


def build(status: int, headers: Headers, body: bytes, *, asked: str, port: int) -> errors.VmnestError:
    """The error for an answer with that status.

    Args:
        status: The HTTP status, no success.
        headers: The answer's headers.
        body: The beginning of its body.
        asked: ``EXEC``, ``FILE`` or ``HEALTH``.
        port: The guest's port that was asked for.
    """
    if is_agent_answer(headers) and not (status in _DATA_PLANE_STATUSES and "code" not in _to_object(body)):
        return _agent_error(status, body, asked=asked)
    error = _endpoint_error(status, headers, body.decode("utf-8", "replace"), port=port)
    if asked == EXEC and not 300 <= status < 500 and not is_unexecuted(error):
        cast_doubt(error)
    return error


def _endpoint_error(status: int, headers: Headers, text: str, *, port: int) -> errors.VmnestError:
    proxy_error = headers.get(names.PROXY_ERROR_HEADER)
    details: dict[str, object] = {"status": status}
    if proxy_error is not None:
        details["proxy_error"] = _printable(proxy_error)
    if status == 403:
        return _refused(text, details, port=port)
    said = f": {_printable(text)}" if text.strip() and "<" not in text else ""
    if status == 429:
        return errors.EndpointThrottledError(
            f"the endpoint takes no more requests for now (429){said}",
            hint="Try again in a moment, with fewer requests at a time: a larger image is allowed more.",
            details=details,
        )
    if status in (502, 503):
        reason = f" ({_printable(proxy_error)})" if proxy_error else ""
        return errors.EndpointUnavailableError(
            f"the endpoint cannot reach port {port} in the sandbox{reason}{said}",
            hint=f"Is the sandbox running, and does its agent listen on port {port}?",
            details=details,
        )
    if status == 504:
        return errors.AgentUnreachableError(
            "something between here and the agent gave up waiting (504)", details=details
        )
    return errors.EndpointError(
        f"the sandbox's endpoint answered with status {status}{said}",
        hint="Does something between here and the sandbox (a proxy, a login page) answer in its place, or a server in "
        f"it that is not the agent, on port {port}?",
        details=details,
    )


def _refused(text: str, details: dict[str, object], *, port: int) -> errors.EndpointError:
    if text.strip() == names.BODY_WRONG_PORT:
        return errors.PortRefusedError(
            f"the token does not cover port {port}",
            hint="AGENT_SANDBOX_AGENT_PORT must be the port on which the agent in the image listens.",
            details=details,
        )
    said = (_printable(text) if "<" not in text else "") or "no reason given"
    return errors.TokenRefusedError(
        f"the sandbox's endpoint does not accept the token: {said}",
        hint="A new token was tried, too. Does this endpoint belong to the sandbox (vmnest ps NAME)? The policy of a "
        "VPC endpoint may also refuse (lambda:ConnectMicrovm).",
        details=details,
    )


def _agent_error(status: int, body: bytes, *, asked: str) -> errors.VmnestError:
    answer = _to_object(body)
    detail, code = _detail(answer.get("detail")), answer.get("code")
    kind = _CLASSES.get(code) if isinstance(code, str) else _class_without_code(status, detail, asked=asked)
    details: dict[str, object] = {"status": status}
    if isinstance(code, str):
        details["agent_code"] = _printable(code)
    if code == wire.ALREADY_STARTED:
        detail, details["outcome"] = "the command was started, and its answer was lost", "unknown"
    if status in (404, 405) and kind is None:
        return errors.UnsupportedError(
            f"the agent in this sandbox has no such route ({asked}): {detail or status}", details=details
        )
    kind = kind or errors.AgentError
    hint = _HINTS.get(kind) or (None if detail else "Is it the agent that listens on the agent's port?")
    return kind(detail or f"the agent answered with status {status}", hint=hint, details=details)


def _class_without_code(status: int, detail: str, *, asked: str) -> type[errors.AgentError] | None:
    if status == 413:
        return errors.RequestTooLargeError
    if status == 422:
        return errors.BadArgumentError
    if asked == EXEC and status == 400:
        return errors.CommandNotFoundError
    if asked == FILE and status == 404 and detail != _NO_ROUTE_DETAIL:
        return errors.RemoteFileNotFoundError
    if asked == FILE and status == 400:
        return errors.RemoteFileError
    return None


def _to_object(body: bytes) -> dict[str, object]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _detail(detail: object) -> str:
    """The text of ``detail``; frameworks make a list of it: ``[{"loc": ["body", "args", 0], "msg": "…"}]``."""
    if isinstance(detail, str):
        return _printable(detail)
    if isinstance(detail, list):
        return _printable("; ".join(_violation(item) for item in detail[:20]))
    return ""


def _violation(item: object) -> str:
    if not isinstance(item, dict):
        return str(item)
    place = item.get("loc")
    where = ".".join(str(part) for part in place if part != "body") if isinstance(place, list) else ""
    return f"{where}: {item.get('msg')}" if where else str(item.get("msg"))


def _printable(text: str) -> str:
    return errors.quote(text, limit=MAX_QUOTED_CHARS)
