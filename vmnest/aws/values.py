"""Values of a model's shapes to and from their JSON form, for both ends of the wire.

What Python holds: dict, list, str, int, bool, and datetime for timestamps. What a shape does not know is kept on the
way out of a service and into a client (a newer service may say more than our model), and dropped on the way into a
service, which is what AWS does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from .model import Shape

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ISO8601 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):?(\d\d))?", re.ASCII | re.IGNORECASE
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)
_TYPE_WORDS = {"string": "a String", "integer": "an Integer", "long": "a Long", "boolean": "a Boolean"}


class WireTypeError(ValueError):
    """A JSON value does not fit its shape. ``path`` names the member, ``message`` says it as AWS does."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(f"{path or 'body'}: {message}")
        self.message = message
        self.path = path


# -- Python to JSON ----------------------------------------------------------------------------------------------------


def to_wire(shape: Shape, value: Any, *, nulls: bool = False) -> Any:
    """The JSON form of a value that fits its shape. None in a structure is an absent member.

    Args:
        shape: The type.
        value: Members that the shape does not know are passed through as they are.
        nulls: Write absent members as null, as lambda-microvms does in its answers.
    """
    if value is None:
        return None
    if shape.kind == "structure":
        return _structure_to_wire(shape, value, nulls=nulls)
    if shape.kind == "list":
        return [to_wire(shape.element, element, nulls=nulls) for element in value]
    if shape.kind == "map":
        return {key: to_wire(shape.value, element, nulls=nulls) for key, element in value.items()}
    if shape.kind == "timestamp":
        return format_timestamp(value, style=shape.timestamp_format)
    return value


def _structure_to_wire(shape: Shape, value: Mapping[str, Any], *, nulls: bool) -> dict[str, Any]:
    wire: dict[str, Any] = {}
    for name, content in value.items():
        member = shape.members.get(name)
        if member is None:
            wire[name] = content
        elif content is not None and member.location is None:
            wire[member.wire_name] = to_wire(member.shape, content, nulls=nulls)
    # One member of a union is set, and that is all there is to say.
    if nulls and not shape.is_union:
        wire.update({name: None for name in shape.by_wire_name if name not in wire})
    return wire


def format_timestamp(value: datetime | float, *, style: str) -> Any:
    """A moment (or seconds since the epoch) as the model's ``style`` says, to the millisecond as AWS does."""
    moment = value if isinstance(value, datetime) else _EPOCH + timedelta(seconds=value)
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    if style.lower() != "iso8601":
        return milliseconds // 1000 if milliseconds % 1000 == 0 else milliseconds / 1000
    utc = moment.astimezone(timezone.utc)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


# -- JSON to Python ----------------------------------------------------------------------------------------------------


def from_wire(shape: Shape, value: Any, *, keep_unknown: bool, path: str = "") -> Any:
    """The value that a JSON value stands for; members that are null are absent.

    Raises:
        WireTypeError: it does not fit the shape.
    """
    if shape.kind == "structure":
        return _structure_from_wire(shape, value, keep_unknown=keep_unknown, path=path)
    if shape.kind == "map":
        content = _of_type(value, dict, path=path)
        return {
            key: _element_from_wire(shape.value, element, keep_unknown=keep_unknown, path=f"{path}.{key}")
            for key, element in content.items()
        }
    if shape.kind == "list":
        return [
            _element_from_wire(shape.element, element, keep_unknown=keep_unknown, path=f"{path}[{index}]")
            for index, element in enumerate(_of_type(value, list, path=path))
        ]
    if shape.kind == "timestamp":
        return parse_timestamp(value, path=path)
    return _scalar_from_wire(shape, value, path=path)


def _structure_from_wire(shape: Shape, value: Any, *, keep_unknown: bool, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, content in _of_type(value, dict, path=path).items():
        member = shape.by_wire_name.get(name)
        if member is None:
            if keep_unknown:
                found[name] = content
        elif content is not None:
            inner = f"{path}.{name}" if path else name
            found[member.name] = from_wire(member.shape, content, keep_unknown=keep_unknown, path=inner)
    return found


def _element_from_wire(shape: Shape, value: Any, *, keep_unknown: bool, path: str) -> Any:
    return None if value is None else from_wire(shape, value, keep_unknown=keep_unknown, path=path)


def _of_type(value: Any, wanted: type, *, path: str) -> Any:
    if isinstance(value, wanted):
        return value
    raise _misplaced(value, path=path)


def _misplaced(value: object, *, path: str) -> WireTypeError:
    if isinstance(value, list):
        return WireTypeError("Start of list found where not expected.", path=path)
    if isinstance(value, dict):
        return WireTypeError("Start of structure or map found where not expected.", path=path)
    return WireTypeError("Expected null", path=path)


def _scalar_from_wire(shape: Shape, value: Any, *, path: str) -> Any:
    kind = shape.kind
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind in {"integer", "long"} and not isinstance(value, bool):
        if isinstance(value, int):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
    if isinstance(value, list | dict):
        raise _misplaced(value, path=path)
    raise WireTypeError(f"{_token(value)} can not be converted to {_TYPE_WORDS[kind]}", path=path)


def parse_text(shape: Shape, text: str, *, path: str) -> Any:
    """A scalar that travelled outside the body, where everything is text."""
    if shape.kind in {"integer", "long"}:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
            raise WireTypeError(f"{_token(text)} can not be converted to {_TYPE_WORDS[shape.kind]}", path=path)
        return int(text)
    if shape.kind == "boolean":
        if text.lower() not in {"true", "false"}:
            raise WireTypeError(f"{_token(text)} can not be converted to a Boolean", path=path)
        return text.lower() == "true"
    return text


def format_text(value: str | int | bool) -> str:
    """A scalar as it travels outside the body."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _token(value: object) -> str:
    if isinstance(value, bool):
        return "TRUE_VALUE" if value else "FALSE_VALUE"
    return "STRING_VALUE" if isinstance(value, str) else "NUMBER_VALUE"


def parse_timestamp(value: object, *, path: str = "") -> datetime:
    """A moment in UTC, from any form that AWS services use: seconds since the epoch, ISO 8601, or an HTTP date."""
    try:
        if isinstance(value, str):
            return _moment_of_text(value.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _moment_of_seconds(value)
    except (ValueError, OverflowError):
        pass  # said below, in one place for all forms
    raise WireTypeError(f"{str(value)[:60]!r} is no timestamp", path=path)


def _moment_of_text(text: str) -> datetime:
    if _NUMBER.fullmatch(text):
        return _moment_of_seconds(float(text))
    match = _ISO8601.fullmatch(text)
    if match is None:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    *numbers, fraction, sign, hours, minutes = match.groups()
    year, month, day, hour, minute, second = map(int, numbers)
    microsecond = int((fraction or "0").ljust(6, "0")[:6])
    moment = datetime(year, month, day, hour, minute, second, microsecond, tzinfo=timezone.utc)
    if sign is None:
        return moment
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return moment - offset if sign == "+" else moment + offset


def _moment_of_seconds(seconds: float) -> datetime:
    # Not datetime.fromtimestamp: its range is the platform's.
    return _EPOCH + timedelta(seconds=seconds)
