"""The rest-json protocol over botocore's model data, for both ends of the wire. Pure: no socket, no clock.

A client builds a request from parameters and parses the answer; the local cloud finds the operation of a request,
parses it and builds the answer. Tests hold each direction to botocore's own serializer and parser. The parts: ``model``
(the data), ``values`` (Python to JSON and back), ``constraints`` (what a request must satisfy).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, Protocol
from urllib.parse import quote, unquote

from .. import errors
from ..wire import names
from . import constraints, values
from .model import HEADER, QUERY, URI, Member, Model, Operation, Shape, load, load_from
from .values import WireTypeError, format_timestamp, parse_timestamp

__all__ = [
    "load",
    "load_from",
    "Model",
    "Operation",
    "Shape",
    "WireRequest",
    "build_request",
    "check",
    "AnswerMalformed",
    "parse_answer",
    "ErrorAnswer",
    "parse_error",
    "match",
    "RequestMalformed",
    "parse_request",
    "violations_message",
    "WireAnswer",
    "build_answer",
    "build_error",
    "format_timestamp",
    "parse_timestamp",
]

JSON = "application/json"
SERIALIZATION_ERROR = "SerializationException"

_UNRESERVED = "-._~"
_TYPE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
# How services differ beyond their models, as recorded: this one says null for what is absent.
_SAYS_NULL = {"lambda-microvms"}


class HasItems(Protocol):
    """Headers as a mapping, or as ``transport`` has them."""

    def items(self) -> Iterable[tuple[str, str]]: ...


Headers = HasItems | Iterable[tuple[str, str]]


class AnswerMalformed(ValueError):  # noqa: N818 - a finding about the answer; the caller makes the error of it
    """A successful answer that the model does not allow: no JSON, a wrong type, a missing member."""


class RequestMalformed(ValueError):  # noqa: N818 - likewise; the server makes the answer of it
    """A request that cannot be read at all. AWS answers 400 with ``error_type`` and the message."""

    error_type = SERIALIZATION_ERROR
    status = 400

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class WireRequest(NamedTuple):
    """A request before it is signed. ``target`` is the path and query as they stand on the request line."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


class WireAnswer(NamedTuple):
    """An answer; the server adds what belongs to the connection."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class ErrorAnswer(NamedTuple):
    """What an error answer says of itself; both texts are None where a gateway answered in place of the service."""

    error_type: str | None
    message: str | None
    members: Mapping[str, Any] = MappingProxyType({})
    request_id: str | None = None  # where it stands in the body


def new_client_token() -> str:
    """A random UUID, as botocore fills in. (The uuid module is not worth its import.)"""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


# -- the client's side -------------------------------------------------------------------------------------------------


def build_request(
    operation: Operation, params: Mapping[str, Any], *, new_token: Callable[[], str] = new_client_token
) -> WireRequest:
    """The request for a call. A parameter that is None is absent; an absent client token is filled in.

    Raises:
        errors.RequestInvalidError: parameters break the model's rules; the error lists all violations.
    """
    given = {name: value for name, value in params.items() if value is not None}
    if operation.token_member is not None and operation.token_member not in given:
        given[operation.token_member] = new_token()
    check(operation, given)
    shape = operation.input
    if shape is None:
        return WireRequest(operation.method, operation.path_template, [], b"")
    located: dict[str | None, list[tuple[Member, Any]]] = {URI: [], QUERY: [], HEADER: [], None: []}
    for name, value in given.items():
        located[shape.members[name].location].append((shape.members[name], value))
    path = operation.path_template
    for member, value in located[URI]:
        path = path.replace(f"{{{member.wire_name}}}", _encoded(value))
    query = "&".join(f"{_encoded(member.wire_name)}={_encoded(one)}" for member, one in _each(located[QUERY]))
    headers = [(member.wire_name, values.format_text(value)) for member, value in located[HEADER]]
    body = b""
    if shape.by_wire_name:
        body = json.dumps(values.to_wire(shape, given)).encode()
        headers.append(("Content-Type", JSON))
    return WireRequest(operation.method, f"{path}?{query}" if query else path, headers, body)


def check(operation: Operation, params: Mapping[str, Any]) -> None:
    """See that parameters satisfy the model.

    Raises:
        errors.RequestInvalidError: they do not; the error lists all violations.
    """
    if operation.input is None:
        violations = [constraints.Violation((name,), "Member is not known") for name in params]
    else:
        violations = list(constraints.find_violations(operation.input, params, is_client=True))
    if not violations:
        return
    said = "; ".join(violation.to_client() for violation in violations)
    raise errors.RequestInvalidError(
        f"{operation.name} was not sent: {said}",
        details={
            "operation": operation.name,
            "violations": [{"member": one.member, "constraint": one.constraint} for one in violations],
        },
    )


def _each(located: Iterable[tuple[Member, Any]]) -> Iterable[tuple[Member, Any]]:
    for member, value in located:
        for one in value if isinstance(value, list | tuple) else (value,):
            yield member, one


def _encoded(value: str | int | bool) -> str:
    return quote(values.format_text(value), safe=_UNRESERVED)


def parse_answer(operation: Operation, headers: Headers, body: bytes) -> dict[str, Any]:
    """The result of a call, from an answer with a status of success.

    Members that are null are absent; members that the model does not know are kept as they came.

    Raises:
        AnswerMalformed: the body is not what the model says (a gateway's HTML, for example).
    """
    if operation.output is None:
        return {}
    try:
        content = _json_object(body) if body else {}
        result: dict[str, Any] = values.from_wire(operation.output, content, keep_unknown=True)
        result.update(_from_headers(operation.output, headers))
    except (WireTypeError, ValueError, RecursionError) as error:
        raise AnswerMalformed(str(error)) from error
    missing = sorted(operation.output.required - result.keys())
    if missing:
        raise AnswerMalformed(f"it has no {', '.join(missing)}")
    return result


def parse_error(headers: Headers, status: int, body: bytes) -> ErrorAnswer:
    """What an error answer says; never fails, whatever a gateway or proxy sent."""
    try:
        content = _json_object(body)
    except (ValueError, RecursionError):
        content = {}
    told = _field(headers, names.ERROR_TYPE_HEADER)
    named = told or content.get("code") or content.get("Code") or content.get("__type")
    message = content.get("message", content.get("Message"))
    return ErrorAnswer(
        error_type=_type_name(named) if isinstance(named, str) else None,
        message=message if isinstance(message, str) else None,
        members=content,
    )


def _type_name(named: str) -> str | None:
    """The type in "com.amazonaws.lambda#ThrottlingException:http://…", one of several forms; None if it is no name."""
    name = named.split(":", 1)[0].rsplit("#", 1)[-1].strip()
    return name if _TYPE_NAME.fullmatch(name) else None


# -- the service's side ------------------------------------------------------------------------------------------------


def match(models: Sequence[Model], method: str, raw_path: str) -> tuple[Model, Operation, dict[str, str]] | None:
    """The operation that a request line names, with the parameters in its path decoded; None if there is none.

    Args:
        models: The services behind one listener.
        method: As on the request line.
        raw_path: As on the request line, without the query. ARNs may be encoded, or have plain colons.
    """
    segments = raw_path.split("/")
    for model in models:
        for template, name in model.routes.get((method, len(segments)), ()):
            found = _match_segments(template, segments)
            if found is not None:
                return model, model.operation(name), found
    return None


def _match_segments(template: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for wanted, segment in zip(template, segments, strict=True):
        if wanted.startswith("{") and segment:
            found[wanted[1:-1]] = unquote(segment)
        elif wanted != segment:
            return None
    return found


def parse_request(
    operation: Operation,
    path_params: Mapping[str, str],
    *,
    raw_query: str = "",
    headers: Headers = (),
    body: bytes = b"",
) -> tuple[dict[str, Any], list[str]]:
    """The parameters of a call, and all violations of the model's constraints in AWS's words and order.

    Members that the model does not know are dropped, as AWS drops them.

    Raises:
        RequestMalformed: the body is no JSON object, or a value has the wrong type.
    """
    shape = operation.input
    if shape is None:
        return {}, []
    try:
        content = _json_object(body) if body and shape.by_wire_name else {}
        params: dict[str, Any] = values.from_wire(shape, content, keep_unknown=False)
        params.update(_from_path(shape, path_params))
        params.update(_from_query(shape, raw_query))
        params.update(_from_headers(shape, headers))
    except WireTypeError as error:
        raise RequestMalformed(error.message) from error
    except (ValueError, RecursionError) as error:
        raise RequestMalformed(f"The body cannot be read as a JSON object: {error}") from error
    found = constraints.find_violations(shape, params, is_client=False)
    return params, [violation.to_service() for violation in found]


def violations_message(violations: Sequence[str]) -> str:
    """All violations as the one message of a ValidationException."""
    return f"{len(violations)} validation error{'s'[: len(violations) > 1]} detected: {'; '.join(violations)}"


def _from_path(shape: Shape, path_params: Mapping[str, str]) -> dict[str, Any]:
    return {
        member.name: values.parse_text(member.shape, path_params[member.wire_name], path=member.name)
        for member in shape.members.values()
        if member.location == URI and member.wire_name in path_params
    }


def _from_query(shape: Shape, raw_query: str) -> dict[str, Any]:
    # Not parse_qs: a plus sign is one, and empty values count.
    pairs = [pair.partition("=") for pair in raw_query.split("&") if pair]
    sent = [(unquote(key), unquote(value)) for key, _, value in pairs]
    found: dict[str, Any] = {}
    for member in shape.members.values():
        texts = [value for key, value in sent if key == member.wire_name]
        if member.location != QUERY or not texts:
            continue
        if member.shape.kind == "list":
            found[member.name] = [values.parse_text(member.shape.element, one, path=member.name) for one in texts]
        else:
            found[member.name] = values.parse_text(member.shape, texts[-1], path=member.name)
    return found


def _from_headers(shape: Shape, headers: Headers) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for member in shape.members.values():
        text = _field(headers, member.wire_name) if member.location == HEADER else None
        if text is not None:
            found[member.name] = values.parse_text(member.shape, text, path=member.name)
    return found


def build_answer(operation: Operation, result: Mapping[str, Any]) -> WireAnswer:
    """The answer to a call that succeeded. Members that the model does not know are sent as they are."""
    if operation.output is None:
        return WireAnswer(operation.success_status, [], b"")
    says_null = operation.model.service in _SAYS_NULL
    body = json.dumps(values.to_wire(operation.output, result, nulls=says_null)).encode()
    return WireAnswer(operation.success_status, [("Content-Type", JSON)], body)


def build_error(
    error_type: str,
    status: int,
    message: str | None,
    *,
    members: Mapping[str, Any] | None = None,
    model: Model | None = None,
) -> WireAnswer:
    """The answer to a call that failed.

    With the ``model`` of the service the body gets all members of that error, absent ones as null where the service
    does so, and the message under the name that the model gives it (``message`` or ``Message``).
    """
    shape = None if model is None else model.error(error_type)
    known = {} if shape is None else shape.members
    wanted = "Message" if "Message" in known or error_type == SERIALIZATION_ERROR else "message"
    body: dict[str, Any] = {}
    headers = [("Content-Type", JSON), (names.ERROR_TYPE_HEADER, error_type)]
    says_null = model is not None and model.service in _SAYS_NULL
    if says_null and "Type" in known:
        body["Type"] = "User" if status < 500 else "Service"
    body[wanted] = message
    if says_null and shape is not None:
        body.update({name: None for name in shape.by_wire_name if name not in body})
    for name, value in (members or {}).items():
        if name in known and known[name].location == HEADER:
            headers.append((known[name].wire_name, values.format_text(value)))
        else:
            body[name] = value
    return WireAnswer(status, headers, json.dumps(body).encode())


# -- for both ----------------------------------------------------------------------------------------------------------


def _json_object(body: bytes) -> dict[str, Any]:
    content = json.loads(body, parse_constant=_no_constant)
    if not isinstance(content, dict):
        raise ValueError(f"it is a {type(content).__name__}")
    return content


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _field(headers: Headers, name: str) -> str | None:
    pairs = headers if isinstance(headers, Iterable) and not hasattr(headers, "items") else headers.items()
    return next((value for key, value in pairs if key.lower() == name.lower()), None)
