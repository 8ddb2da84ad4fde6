"""The query protocol of IAM and STS: a form in, XML out. What the actions do is in ``iam_calls`` and ``sts``.

An action is declared with its parameters; all that is wrong with those is said in one message, as AWS does.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import unquote_plus

from .. import errors
from ..aws import shapes
from ..wire import http1
from . import callers, faults, httpd, paging, xml_documents
from .xml_documents import Child

_LOG = logging.getLogger(__name__)

MAX_FIELDS = 1000
DEFAULT_PAGE = 100
Item = TypeVar("Item")

_SIGNATURE_ERRORS: callers.Refusals = {
    "missing": ("MissingAuthenticationToken", 403),
    "malformed": ("IncompleteSignature", 400),
    "unknown_key": ("InvalidClientTokenId", 403),
    "mismatch": ("SignatureDoesNotMatch", 403),
    "expired": ("SignatureDoesNotMatch", 403),
    "wrong_service": ("SignatureDoesNotMatch", 403),
}
_XML = ("Content-Type", "text/xml")


class Parameter(NamedTuple):
    """A parameter of an action; the bounds are of its length, or of its value if it is a number."""

    name: str
    is_required: bool = False
    pattern: str | None = None
    least: int | None = None
    most: int | None = None
    is_number: bool = False


class Call:
    """One call: its parameters by name, checked, and lists by what their members' names begin with."""

    def __init__(self, form: Mapping[str, str]) -> None:
        self._form = form

    def __getitem__(self, name: str) -> str:
        return self._form[name]

    def get(self, name: str) -> str | None:
        """A parameter, or None."""
        return self._form.get(name)

    def number(self, name: str, default: int) -> int:
        """A parameter that is a number."""
        text = self._form.get(name)
        return default if text is None else int(text)

    def texts(self, name: str) -> list[str]:
        """The members of a list of texts."""
        return [members.get("", "") for members in self._members(name)]

    def pairs(self, name: str, key: str, value: str) -> list[tuple[str, str]]:
        """The members of a list of pairs, such as tags."""
        return [(members.get(f".{key}", ""), members.get(f".{value}", "")) for members in self._members(name)]

    def _members(self, name: str) -> list[dict[str, str]]:
        found: dict[int, dict[str, str]] = {}
        start = f"{name}.member."
        for field, text in self._form.items():
            if field.startswith(start):
                number, dot, rest = field.removeprefix(start).partition(".")
                if number.isascii() and number.isdigit() and len(number) < 5:
                    found.setdefault(int(number), {})[dot + rest] = text
        return [found[number] for number in sorted(found)]


# What an action answers: the children of its result, or None if it has none.
Perform = Callable[[Call], "list[Child] | None"]


class Action(NamedTuple):
    """An action: its parameters, and what it does."""

    parameters: Sequence[Parameter]
    perform: Perform


class Service:
    """Answers the requests that are signed for one service."""

    def __init__(self, name: str, *, namespace: str, known: callers.Callers, actions: Mapping[str, Action]) -> None:
        self._name = name
        self._namespace = namespace
        self._callers = known
        self._actions = actions

    def answer(self, request: http1.Request, body: bytes) -> httpd.Reply:
        """The reply to a request."""
        request_id = str(uuid.uuid4())
        try:
            return self._answer(request, body, request_id=request_id)
        except faults.Fault as fault:
            found = fault
        except (errors.VmnestError, OSError) as error:
            _LOG.warning("%s failed: %s", self._name, error)
            found = faults.Fault(f"The local cloud failed: {error}", error_type="ServiceFailure", status=500)
        except Exception:  # the last line of a call: the daemon goes on
            _LOG.exception("%s failed", self._name)
            found = faults.Fault("Internal error", error_type="ServiceFailure", status=500)
        return self._error(found, request_id)

    def _answer(self, request: http1.Request, body: bytes, *, request_id: str) -> httpd.Reply:
        self._callers.check(request, body, service=self._name, refusals=_SIGNATURE_ERRORS)
        path, _, query = request.target.partition("?")
        form = _parse_form("&".join(part for part in (query, body.decode("latin-1")) if part))
        name = form.get("Action", "")
        action = self._actions.get(name)
        if action is None or path != "/":
            raise faults.Fault(
                f"The local cloud's {self._name} does not have {name[:60] or 'that'}; it has: "
                f"{', '.join(sorted(self._actions))}.",
                error_type="InvalidAction",
                status=400,
            )
        violations = [text for one in action.parameters for text in find_violations(one, form.get(one.name))]
        if violations:
            raise invalid(shapes.violations_message(violations))
        result = action.perform(Call(form))
        content: list[Child] = [] if result is None else [(f"{name}Result", result)]
        content.append(("ResponseMetadata", [("RequestId", request_id)]))
        return httpd.Reply(
            200,
            [_XML, ("x-amzn-RequestId", request_id)],
            xml_documents.build(f"{name}Response", content, namespace=self._namespace),
        )

    def _error(self, fault: faults.Fault, request_id: str) -> httpd.Reply:
        told: list[Child] = [
            ("Type", "Sender" if fault.status < 500 else "Receiver"),
            ("Code", fault.error_type),
            ("Message", fault.message),
        ]
        body = xml_documents.build(
            "ErrorResponse", [("Error", told), ("RequestId", request_id)], namespace=self._namespace
        )
        return httpd.Reply(fault.status, [_XML, ("x-amzn-RequestId", request_id)], body)


def _parse_form(text: str) -> dict[str, str]:
    fields = text.split("&")
    if len(fields) > MAX_FIELDS:
        raise invalid(f"The request has more than {MAX_FIELDS} parameters")
    try:
        pairs = [field.partition("=") for field in fields if field]
        return {unquote_plus(name, errors="strict"): unquote_plus(value, errors="strict") for name, _, value in pairs}
    except UnicodeDecodeError as error:
        raise invalid("The request is not UTF-8") from error


def find_violations(parameter: Parameter, value: str | None) -> list[str]:
    """What is wrong with a parameter, in AWS's words."""
    where = parameter.name[:1].lower() + parameter.name[1:]
    if value is None:
        if not parameter.is_required:
            return []
        return [f"Value null at '{where}' failed to satisfy constraint: Member must not be null"]
    shown = value if len(value) <= 200 else value[:200] + "..."
    return [
        f"Value '{shown}' at '{where}' failed to satisfy constraint: Member must {constraint}"
        for constraint in _broken(parameter, value)
    ]


def _broken(parameter: Parameter, value: str) -> list[str]:
    if parameter.is_number:
        if not re.fullmatch(r"-?[0-9]{1,9}", value, re.ASCII):
            return ["be a number"]
        size, what = int(value), "value"
    else:
        size, what = len(value), "length"
    found = []
    if parameter.most is not None and size > parameter.most:
        found.append(f"have {what} less than or equal to {parameter.most}")
    if parameter.least is not None and size < parameter.least:
        found.append(f"have {what} greater than or equal to {parameter.least}")
    if parameter.pattern is not None and not re.fullmatch(parameter.pattern, value, re.ASCII):
        found.append(f"satisfy regular expression pattern: {parameter.pattern}")
    return found


def page(items: Sequence[Item], call: Call, *, key: Callable[[Item], str]) -> tuple[list[Item], list[Child]]:
    """The items of the page that is asked for, and what the answer says of there being more.

    The marker is the key of the last item, so that a list may change between two pages.
    """
    marker = call.get("Marker")
    after = None if marker is None else _parse_marker(marker)
    rest = [item for item in items if after is None or key(item) > after]
    chosen = rest[: call.number("MaxItems", DEFAULT_PAGE)]
    if len(rest) == len(chosen):
        return chosen, [("IsTruncated", False)]
    return chosen, [("IsTruncated", True), ("Marker", paging.build_marker(key(chosen[-1])))]


def _parse_marker(marker: str) -> str:
    after = paging.parse_marker(marker)
    if after is None:
        raise invalid("Invalid Marker.")
    return after


def invalid(message: str) -> faults.Fault:
    """Parameters make no sense (400)."""
    return faults.Fault(message, error_type="ValidationError", status=400)
