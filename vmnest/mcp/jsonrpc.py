"""JSON-RPC 2.0 as MCP uses it: a line in, a message out, and the other way round. No input or output here.

Rules that bite (https://www.jsonrpc.org/specification, and the MCP schema of each revision):

- An id is a string or a whole number, never null, never a fraction; ``True == 1 == 1.0`` in Python, so that types are
  checked before values. It goes back as it came.
- A message with a method and without an id is a notification, and never answered, not even with an error.
- ``params`` is an object or absent; null counts as absent.
- What goes out is one line of ASCII. A lone surrogate is valid in Python and in JSON's grammar, and unreadable for
  strict readers: it is replaced. NaN and Infinity are no JSON.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "Batch",
    "Invalid",
    "Message",
    "Notification",
    "ProtocolError",
    "Request",
    "Response",
    "build_error",
    "build_notification",
    "build_result",
    "invalid_params",
    "parse",
    "to_line",
]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

VERSION = "2.0"
MOST_IN_BATCH = 1000


class ProtocolError(Exception):
    """A request that is itself wrong: answered with a JSON-RPC error.

    Attributes:
        code: One of the codes above, or of MCP.
        message: One short sentence.
        data: More about it, as JSON, or None.
    """

    def __init__(self, code: int, message: str, *, data: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def invalid_params(reason: str) -> ProtocolError:
    """The error for a request whose params are not what its method takes."""
    return ProtocolError(INVALID_PARAMS, f"Invalid params: {reason}")


class Request:
    """Wants an answer. ``params`` is never None."""

    __slots__ = ("id", "method", "params")

    def __init__(self, id: str | int, method: str, params: Mapping[str, object]) -> None:  # noqa: A002 - its name
        self.id = id
        self.method = method
        self.params = params


class Notification:
    """Wants none."""

    __slots__ = ("method", "params")

    def __init__(self, method: str, params: Mapping[str, object]) -> None:
        self.method = method
        self.params = params


class Response:
    """The answer to a request of ours, of which there are none: nobody waits for it."""

    __slots__ = ()


class Invalid:
    """No message. ``reply`` is what is to be answered."""

    __slots__ = ("reply",)

    def __init__(self, code: int, message: str, *, id: str | int | None = None) -> None:  # noqa: A002 - its name
        self.reply = build_error(id, ProtocolError(code, message))


class Batch:
    """Several messages in one line, none of them a batch."""

    __slots__ = ("messages",)

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages


if TYPE_CHECKING:
    Message = Request | Notification | Response | Invalid | Batch


def parse(line: bytes) -> Message:
    """The message in a line. Whatever is in the line, this does not raise."""
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return Invalid(PARSE_ERROR, "Parse error: the line is not JSON")
    return _batch(value) if isinstance(value, list) else _single(value)


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


def _batch(values: list[object]) -> Message:
    if not values:
        return Invalid(INVALID_REQUEST, "Invalid request: the batch is empty")
    if len(values) > MOST_IN_BATCH:
        return Invalid(INVALID_REQUEST, f"Invalid request: a batch has at most {MOST_IN_BATCH} messages")
    return Batch([_single(value) for value in values])


def _single(value: object) -> Message:
    if not isinstance(value, dict):
        return Invalid(INVALID_REQUEST, "Invalid request: a message is an object")
    identity = value.get("id")
    known = identity if _is_id(identity) else None
    if value.get("jsonrpc") != VERSION:
        return Invalid(INVALID_REQUEST, 'Invalid request: jsonrpc must be "2.0"', id=known)
    if "method" not in value:
        if "result" in value or "error" in value:
            return Response()
        return Invalid(INVALID_REQUEST, "Invalid request: there is no method", id=known)
    method, params = value["method"], value.get("params")
    if "id" not in value:
        if not isinstance(method, str) or not isinstance(params, (dict, type(None))):
            return Notification("", {})  # no method has this name
        return Notification(method, params or {})
    if known is None:
        return Invalid(INVALID_REQUEST, "Invalid request: id must be a string or a whole number")
    if not isinstance(method, str):
        return Invalid(INVALID_REQUEST, "Invalid request: method must be a string", id=known)
    if params is not None and not isinstance(params, dict):
        return Invalid(INVALID_PARAMS, "Invalid params: params must be an object", id=known)
    return Request(known, method, params or {})


def _is_id(value: object) -> bool:
    """It can be echoed exactly."""
    if isinstance(value, str):
        return not _has_surrogate(value)
    return isinstance(value, int) and not isinstance(value, bool)


def build_result(id: str | int, result: Mapping[str, object]) -> dict[str, object]:  # noqa: A002 - its name
    """The answer to a request."""
    return {"jsonrpc": VERSION, "id": id, "result": result}


def build_error(id: str | int | None, error: ProtocolError) -> dict[str, object]:  # noqa: A002 - its name
    """The refusal of a request. Without a known id it is null: no client breaks, and a human sees an answer."""
    told: dict[str, object] = {"code": error.code, "message": error.message}
    if error.data is not None:
        told["data"] = error.data
    return {"jsonrpc": VERSION, "id": id, "error": told}


def build_notification(method: str, params: Mapping[str, object] | None = None) -> dict[str, object]:
    """A message that wants no answer."""
    return {"jsonrpc": VERSION, "method": method, **({} if params is None else {"params": params})}


def to_line(message: object) -> bytes:
    """The line that carries a message, or a list of them.

    Raises:
        ValueError: it has a number that is none, or a cycle.
        TypeError: it has what is no JSON.
    """
    text = _dump(message)
    if "\\ud" in text:  # of a surrogate, lone or not, or of a backslash before "ud"
        text = _dump(_without_surrogates(message))
    return text.encode("ascii") + b"\n"


def _dump(message: object) -> str:
    return json.dumps(message, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _has_surrogate(value) else value
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_surrogates(item) for item in value]
    return value


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)
