"""JSON Schema of a function's parameters, and arguments checked by it.

What hosts accept is a subset of JSON Schema 2020-12: an object at the root, no ``anyOf``, no ``$ref``, no lists of
types, ``items`` for every array, a description for every property. So a parameter that may be None is an optional one.

The types are read as they are written: the modules have ``from __future__ import annotations``, and nothing slow is
imported to understand ``list[str] | None``. Models send ``"5"`` for 5 and ``"true"`` for true; what can mean only one
thing is taken for it.
"""

from __future__ import annotations

import ast
import json

from .. import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Doc", "build_schema", "check_arguments", "parse_doc"]

_KINDS: Mapping[str, Mapping[str, object]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list[str]": {"type": "array", "items": {"type": "string"}},
    "list[int]": {"type": "array", "items": {"type": "integer"}},
    "dict[str, str]": {"type": "object", "additionalProperties": {"type": "string"}},
}
_OPTIONAL = " | None"
MOST = 2**53  # and its negative: what every JSON reader keeps exactly, and more than anything here can be
_CHOICE = "Literal["


class Doc:
    """A docstring in its parts.

    Attributes:
        text: What comes before the sections, its lines joined.
        arguments: Parameter -> its description.
        returns: What the section about the result says; empty without one.
    """

    __slots__ = ("arguments", "returns", "text")

    def __init__(self, text: str, arguments: Mapping[str, str], returns: str) -> None:
        self.text = text
        self.arguments = arguments
        self.returns = returns


def parse_doc(doc: str) -> Doc:
    """The parts of a docstring."""
    sections: dict[str, list[str]] = {"": []}
    section = ""
    for line in doc.splitlines():
        if line.strip() in ("Args:", "Returns:", "Raises:"):
            section = line.strip()
        sections.setdefault(section, []).append(line)
    return Doc(
        _join(sections[""]), _parse_arguments(sections.get("Args:", [])[1:]), _join(sections.get("Returns:", [])[1:])
    )


def _join(lines: list[str]) -> str:
    paragraphs = "\n".join(line.strip() for line in lines).strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _parse_arguments(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) == indent:
            name, _, text = line.strip().partition(": ")
            found[name] = text
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return found


def build_schema(function: Callable[..., object], *, without: tuple[str, ...] = ()) -> dict[str, object]:
    """The schema of a function's keyword-only parameters.

    Args:
        function: The function; its docstring describes each parameter.
        without: Parameters that no caller gives.
    """
    described = parse_doc(function.__doc__ or "").arguments
    defaults = function.__kwdefaults__ or {}
    properties: dict[str, object] = {}
    for name, annotation in function.__annotations__.items():
        if name not in without and name != "return":
            kind = _kind(annotation)
            default = defaults.get(name)
            # A switch that is off is what everybody expects; a list of tools has dozens of them.
            shown = {} if default is None or default is False else {"default": default}
            properties[name] = {**kind, **shown, "description": described[name]}
    required = [name for name in properties if name not in defaults]
    named = {"required": required} if required else {}
    return {"type": "object", "properties": properties, **named, "additionalProperties": False}


def _kind(annotation: str) -> Mapping[str, object]:
    plain = annotation.removesuffix(_OPTIONAL)
    if plain.startswith(_CHOICE):
        choices = ast.literal_eval(f"[{plain.removeprefix(_CHOICE)}")
        return {"type": "string", "enum": choices}
    return _KINDS[plain]


def check_arguments(schema: Mapping[str, object], arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments as the function takes them; null counts as not given.

    Raises:
        errors.UsageError: one is missing, unknown, or of a wrong type; the message names it.
    """
    properties = schema["properties"]
    assert isinstance(properties, dict)
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in given:
        if name not in properties:
            known = ", ".join(properties) or "none"
            raise errors.UsageError(f"there is no argument {errors.quote(name, limit=60)}", hint=f"There are: {known}.")
    required = schema.get("required", [])
    assert isinstance(required, list)
    for name in required:
        if name not in given:
            raise errors.UsageError(
                f"the argument {name} is missing", hint=f"{name}: {properties[name]['description']}"
            )
    return {name: _check(name, properties[name], value) for name, value in given.items()}


def _check(name: str, kind: Mapping[str, object], value: object) -> object:
    found = _convert(kind, value)
    if found is None:
        raise errors.UsageError(f"the argument {name} must be {_name(kind)}", hint=f"{name}: {kind['description']}")
    choices = kind.get("enum")
    if isinstance(choices, list) and found not in choices:
        raise errors.UsageError(f"the argument {name} must be one of {', '.join(choices)}")
    return found


_NAMES = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
}


def _name(kind: Mapping[str, object]) -> str:
    inner = kind.get("items") or kind.get("additionalProperties")
    of = f" of {_NAMES[str(inner['type'])].removeprefix('a ')}s" if isinstance(inner, dict) else ""
    return _NAMES[str(kind["type"])] + of


def _convert(kind: Mapping[str, object], value: object) -> object:
    """The value as that kind; None if it is none."""
    wanted = kind["type"]
    if wanted == "string":
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return str(value) if is_number or isinstance(value, str) else None
    if isinstance(value, str):
        value = _read(value)
    if wanted == "boolean":
        return value if isinstance(value, bool) else None
    if wanted in ("integer", "number"):
        return _number(value, is_whole=wanted == "integer")
    return _collection(kind, value)


def _read(text: str) -> object:
    """What a text says as JSON, for models that quote what is no text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _number(value: object, *, is_whole: bool) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -MOST <= value <= MOST:
        return None
    if is_whole:
        return int(value) if value == int(value) else None
    return value


def _collection(kind: Mapping[str, object], value: object) -> object:
    if kind["type"] == "array":
        item = kind["items"]
        assert isinstance(item, dict)
        if not isinstance(value, list):
            return None
        items = [_convert(item, each) for each in value]
        return None if any(each is None for each in items) else items
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        return None
    return value
