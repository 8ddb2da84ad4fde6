"""What a model demands of a request's values, and all the ways in which some values fall short.

One walk for both ends. The service's wording is used by both: the local cloud answers it as AWS does, and a client that
refuses a request says what the service would have said. A check that might refuse what the service accepts is left out:
patterns that Python does not read as Java does, and, for a client, lists of choices (a newer service knows more).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from .model import URI, Member, Shape

Path = tuple[str | int, ...]

_NOT_NULL = "Member must not be null"
_ONE_OF_UNION = "Member must have exactly one member set"
_PATTERN_LIMIT = 20_000  # characters; a longer value breaks a length limit before its pattern matters
_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "structure": (Mapping,),
    "map": (Mapping,),
    "list": (list, tuple),
    "string": (str,),
    "integer": (int,),
    "long": (int,),
    "boolean": (bool,),
    "timestamp": (datetime,),
    "blob": (bytes, bytearray),
    "float": (float, int),
    "double": (float, int),
}


class Violation(NamedTuple):
    """One constraint that one member breaks. ``value`` is None for a missing member, and for one that is secret."""

    path: Path
    constraint: str
    value: Any = None
    is_secret: bool = False

    def to_client(self) -> str:
        """For the caller of the library: ``allowedPorts[0].port: Member must …``."""
        return f"{self.member}: {self.constraint}"

    @property
    def member(self) -> str:
        """The path as Python would write it."""
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return text.removeprefix(".")

    def to_service(self) -> str:
        """As AWS words it. Paths are in lower camel case there, and elements count from 1."""
        parts = [f"{part + 1}.member" if isinstance(part, int) else part[:1].lower() + part[1:] for part in self.path]
        shown = "" if self.is_secret else " null" if self.value is None else f" '{_in_java(self.value)}'"
        return f"Value{shown} at '{'.'.join(parts)}' failed to satisfy constraint: {self.constraint}"


def find_violations(shape: Shape, value: Any, *, path: Path = (), is_client: bool) -> Iterator[Violation]:
    """All violations of ``value``, in the order in which AWS reports them.

    Args:
        shape: The type.
        value: A value of Python; on the service's side one that ``values.from_wire`` made.
        path: Where the value stands.
        is_client: Also check types and names of members; do not check choices.
    """
    if value is None:
        yield Violation(path, _NOT_NULL)
    elif not _is_of_kind(shape, value):
        yield Violation(path, f"Member must be of type {shape.kind}, not {type(value).__name__}", is_secret=True)
    elif shape.kind == "structure":
        yield from _in_structure(shape, value, path=path, is_client=is_client)
    elif shape.kind == "list":
        yield from _in_list(shape, value, path=path, is_client=is_client)
    elif shape.kind == "map":
        yield from _in_map(shape, value, path=path, is_client=is_client)
    else:
        for constraint in broken_constraints(shape, value, is_client=is_client):
            yield _violation(path, constraint, value, is_secret=shape.is_sensitive)


def _violation(path: Path, constraint: str, value: Any, *, is_secret: bool) -> Violation:
    return Violation(path, constraint, None if is_secret else value, is_secret)


def _is_of_kind(shape: Shape, value: Any) -> bool:
    if isinstance(value, bool) and shape.kind != "boolean":
        return False  # a bool is an int for Python, and for nobody else
    return isinstance(value, _PYTHON_TYPES[shape.kind])


# -- collections -------------------------------------------------------------------------------------------------------


def _in_structure(shape: Shape, value: Mapping[str, Any], *, path: Path, is_client: bool) -> Iterator[Violation]:
    given = {name: content for name, content in value.items() if content is not None}
    if is_client:
        known = ", ".join(shape.members)
        for name in value:
            if name not in shape.members:
                yield Violation((*path, str(name)), f"Member is not known; those known are {known}", is_secret=True)
    if shape.is_union and len(given) != 1:
        yield Violation(path, f"{_ONE_OF_UNION}: {', '.join(shape.members)}", is_secret=True)
    for name in in_java_order(shape.members):
        member, inner = shape.members[name], (*path, name)
        if name in given:
            yield from find_violations(member.shape, given[name], path=inner, is_client=is_client)
            yield from _in_path(member, given[name], path=inner)
        elif name in shape.required:
            yield Violation(inner, _NOT_NULL)


def _in_path(member: Member, value: Any, *, path: Path) -> Iterator[Violation]:
    # An empty segment would be another path, hence another operation.
    if member.location == URI and value == "" and not member.shape.minimum:
        yield Violation(path, _at_least("length", 1), value)


def _in_list(shape: Shape, value: Any, *, path: Path, is_client: bool) -> Iterator[Violation]:
    secret = shape.element.is_sensitive
    for constraint in broken_constraints(shape, value, is_client=is_client):
        yield _violation(path, constraint, value, is_secret=secret)
    if shape.element.kind in {"structure", "list", "map"} or not all(_is_of_kind(shape.element, one) for one in value):
        for index, one in enumerate(value):
            yield from find_violations(shape.element, one, path=(*path, index), is_client=is_client)
    elif any(broken_constraints(shape.element, one, is_client=is_client) for one in value):
        said = ", ".join(all_constraints(shape.element, is_client=is_client))
        yield _violation(path, f"Member must satisfy constraint: [{said}]", value, is_secret=secret)


def _in_map(shape: Shape, value: Mapping[Any, Any], *, path: Path, is_client: bool) -> Iterator[Violation]:
    secret = shape.key.is_sensitive or shape.value.is_sensitive
    for constraint in broken_constraints(shape, value, is_client=is_client):
        yield _violation(path, constraint, value, is_secret=secret)
    fits = {"keys": True, "value": True}
    for key, one in value.items():
        if not _is_of_kind(shape.key, key) or not _is_of_kind(shape.value, one):
            yield from find_violations(shape.value, one, path=(*path, str(key)), is_client=is_client)
            yield from find_violations(shape.key, key, path=(*path, str(key)), is_client=is_client)
            continue
        fits["keys"] = fits["keys"] and not broken_constraints(shape.key, key, is_client=is_client)
        fits["value"] = fits["value"] and not broken_constraints(shape.value, one, is_client=is_client)
    for name, part in (("keys", shape.key), ("value", shape.value)):
        if not fits[name]:
            said = ", ".join(all_constraints(part, is_client=is_client))
            yield _violation(path, f"Map {name} must satisfy constraint: [{said}]", value, is_secret=secret)


# -- single values -----------------------------------------------------------------------------------------------------


def broken_constraints(shape: Shape, value: Any, *, is_client: bool) -> list[str]:
    """The constraints that a value of the right type breaks."""
    broken = [text for text, holds in _sizes(shape, value) if not holds]
    if shape.kind == "string":
        if is_client and not _is_encodable(value):
            broken.append("Member must be text that UTF-8 can encode")
        if shape.pattern is not None and not _matches(shape.pattern, value):
            broken.append(_pattern_text(shape.pattern))
        if shape.choices and not is_client and value not in shape.choices:
            broken.append(_choices_text(shape))
    return broken


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def all_constraints(shape: Shape, *, is_client: bool) -> list[str]:
    """Every constraint of a shape, broken or not: AWS lists them all for elements of a collection."""
    texts = [text for text, _ in _sizes(shape, "" if shape.kind == "string" else 0)]
    if shape.pattern is not None:
        texts.append(_pattern_text(shape.pattern))
    if shape.choices and not is_client:
        texts.append(_choices_text(shape))
    return texts


def _sizes(shape: Shape, value: Any) -> Iterator[tuple[str, bool]]:
    what = "value" if shape.kind in {"integer", "long", "float", "double"} else "length"
    size = value if isinstance(value, int | float) else 0 if isinstance(value, datetime) else len(value)
    if shape.maximum is not None:
        yield f"Member must have {what} less than or equal to {shape.maximum}", size <= shape.maximum
    if shape.minimum is not None:
        yield _at_least(what, shape.minimum), size >= shape.minimum


def _at_least(what: str, minimum: int) -> str:
    return f"Member must have {what} greater than or equal to {minimum}"


def _pattern_text(pattern: str) -> str:
    return f"Member must satisfy regular expression pattern: {pattern}"


def _choices_text(shape: Shape) -> str:
    return f"Member must satisfy enum value set: [{', '.join(shape.choices)}]"


# -- Java --------------------------------------------------------------------------------------------------------------


def _matches(pattern: str, value: str) -> bool:
    compiled = compile_java(pattern)
    return compiled is None or len(value) > _PATTERN_LIMIT or compiled.fullmatch(value) is not None


# What means the same in both languages: escaped punctuation, the ASCII classes, plain line ends. In a class a second
# "[" or "&&" are set operations in Java; "++" and its kin are possessive; "(?" begins too many different things.
_SAFE_IN_BOTH = re.compile(
    r"(?: \\[^A-Za-z0-9] | \\[dwsDWSnrt] | [^\\\[\]*+?{}(] | \( (?!\?)"
    r" | (?: [*+?] | \{ \d+ (?:,\d*)? \} ) (?! [+?] )"
    r" | \[ (?: \\[^A-Za-z0-9] | \\[dwsDWSnrt] | [^\\\[\]&] | &(?!&) )+ \] )*",
    re.VERBOSE | re.ASCII,
)


@functools.cache
def compile_java(pattern: str) -> re.Pattern[str] | None:
    """Java's pattern for Python, or None if it might mean something else to Python."""
    if not _SAFE_IN_BOTH.fullmatch(pattern):
        return None
    try:
        # Java's \d, \w and \s know ASCII only; its dot stops at more line ends than Python's, so none of ours stops it.
        return re.compile(pattern, re.ASCII | re.DOTALL)
    except re.error:
        return None


def in_java_order(names: Mapping[str, object]) -> list[str]:
    """Names in the order in which a Java HashMap goes through them.

    The one recording of several violations (CreateMicrovmImage without baseImageArn, codeArtifact and buildRoleArn,
    reported in that order) is neither the model's order nor the alphabet's, and is this one.
    """
    buckets = 16
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    return sorted(names, key=lambda name: _java_hash(name) & (buckets - 1))


def _java_hash(text: str) -> int:
    code = 0
    for character in text:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return code ^ (code >> 16)


def _in_java(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}={_in_java(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_in_java(one) for one in value) + "]"
    return "null" if value is None else str(value)
