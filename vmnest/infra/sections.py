"""A document as a tree of what was written, and its values by key: each checked as it is taken out.

The tree is not what YAML makes of it: a number where a text is wanted is taken as it stands there (``1.10`` is not 1.1,
``0123`` not 83). Only what reads as true, false or nothing is refused: ``region: no`` is a mistake. Every error names
the file, the line and the key, and what is expected there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .. import errors, settings

__all__ = ["Entries", "Items", "Node", "Origin", "Scalar", "Section", "wrong"]

TEXT, NUMBER, FLAG, NOTHING = "text", "number", "flag", "nothing"


@dataclass(frozen=True)
class Scalar:
    """One value as it is written, and what YAML takes it for; ``line`` counts from 1."""

    text: str
    kind: str
    line: int


@dataclass(frozen=True)
class Items:
    """A list."""

    items: tuple[Node, ...]
    line: int


@dataclass(frozen=True)
class Entries:
    """A mapping; ``lines`` are those of its keys."""

    members: Mapping[str, Node]
    lines: Mapping[str, int]
    line: int


Node = Scalar | Items | Entries


@dataclass(frozen=True)
class Origin:
    """Where a document stands.

    Attributes:
        path: The file, as the user named it.
        folder: Its folder, absolute.
        document: Its number in a file with several; 0 if it is the only one.
        want_guest: The image is going to be built: its folder must be there, and its settings must be possible.
    """

    path: str
    folder: str
    document: int = 0
    want_guest: bool = False

    @property
    def label(self) -> str:
        """The document in a message."""
        return f"{self.path}, document {self.document}" if self.document else self.path


def wrong(path: str, line: int, message: str, *, hint: str | None = None) -> errors.ConfigurationError:
    """The error for what stands in a line of a file."""
    return errors.ConfigurationError(f"{path}:{line}: {message}", hint=hint, details={"file": path, "line": line})


class Section:
    """One mapping of the document: its values by key, each checked."""

    def __init__(self, node: Node | None, *, name: str, keys: Mapping[str, tuple[str, ...]], origin: Origin) -> None:
        """``keys`` has the keys of every mapping of the document, by the mapping's name; this one's is ``name``."""
        self._name = name
        self._keys = keys
        self._origin = origin
        self._members: Mapping[str, Node] = {}
        if isinstance(node, Entries):
            self._members = node.members
            for key in node.members:
                if key not in self._keys[name]:
                    raise self._unknown(key, node.lines[key])
        elif not (node is None or _is_nothing(node)):
            raise wrong(
                origin.path,
                node.line,
                f"{name or 'the document'} must be a mapping of keys to values, and is {_describe(node)}",
                hint=f"Its keys are {', '.join(self._keys[name])}.",
            )

    def _unknown(self, key: str, line: int) -> errors.ConfigurationError:
        from difflib import get_close_matches

        shown = errors.quote(self._path(key), limit=80)
        elsewhere = [f"{place}.{key}" if place else key for place, keys in self._keys.items() if key in keys]
        close = get_close_matches(key, self._keys[self._name], n=1)
        meant = [*(self._path(each) for each in close), *elsewhere]
        known = f"The keys {'of ' + self._name if self._name else 'here'} are {', '.join(self._keys[self._name])}."
        return wrong(
            self._origin.path, line, f"there is no key {shown}", hint=f"Did you mean {meant[0]}?" if meant else known
        )

    def _path(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key

    def fail(self, key: str, message: str, *, node: Node | None = None, hint: str | None = None) -> Exception:
        """The error for a key's value."""
        at = node or self._members[key]
        return wrong(self._origin.path, at.line, f"{self._path(key)} {message}", hint=hint)

    def section(self, key: str) -> Section:
        """The mapping below a key; an empty one if it is absent."""
        return Section(self._members.get(key), name=self._path(key), keys=self._keys, origin=self._origin)

    def line(self, key: str) -> int:
        """Where the value of a key stands."""
        return self._members[key].line

    def has(self, key: str) -> bool:
        """The key stands in the file and has a value."""
        node = self._members.get(key)
        return not (node is None or _is_nothing(node) or (isinstance(node, Scalar) and not node.text))

    def text(
        self, key: str, pattern: re.Pattern[str] | None, *, expected: str, default: str | None = None
    ) -> str | None:
        """A text. Empty ones are None where there is no default, and refused where there is one."""
        node = self._members.get(key)
        if node is None:
            return default
        text = "" if _is_nothing(node) else self._as_text(node, key, expected=expected)
        if not text and default is None:
            return None
        if not text or (pattern and not pattern.fullmatch(text)):
            shown = f": {errors.quote(text, limit=100)!r}" if text else ", and is empty"
            raise self.fail(key, f"must be {expected}{shown}")
        return text

    def named(self, key: str, pattern: re.Pattern[str], *, expected: str, default: str) -> str:
        """A text that cannot be empty."""
        return self.text(key, pattern, expected=expected, default=default) or default

    def texts(self, key: str, pattern: re.Pattern[str] | None, *, expected: str, most: int) -> tuple[str, ...]:
        """A list of texts, none of them twice."""
        node = self._members.get(key)
        if node is None or _is_nothing(node):
            return ()
        if not isinstance(node, Items):
            raise self.fail(
                key, f"must be a list, each {expected}, and is {_describe(node)}", hint=f"Write it as {key}: [...]"
            )
        found: dict[str, None] = {}
        for item in node.items:
            text = self._as_text(item, key, expected=f"a list, each {expected}")
            if not text or (pattern and not pattern.fullmatch(text)):
                raise self.fail(key, f"must be a list, each {expected}: {errors.quote(text, limit=100)!r}", node=item)
            if text in found:
                raise self.fail(key, f"names {text} twice", node=item)
            found[text] = None
        if len(found) > most:
            raise self.fail(key, f"has {len(found)} entries; at most {most} are possible")
        return tuple(found)

    def table(self, key: str, *, expected: str, check: Callable[[str, str], str | None]) -> dict[str, str]:
        """A mapping of texts to texts; ``check`` tells what is wrong with a pair, and never shows the value."""
        node = self._members.get(key)
        if node is None or _is_nothing(node):
            return {}
        if not isinstance(node, Entries):
            what = "a single text" if isinstance(node, Scalar) else _describe(node)  # which may be NAME=SECRET
            raise self.fail(key, f"must be a mapping of {expected}, and is {what}")
        found = {}
        for name, value in node.members.items():
            shown = errors.quote(f"{key}.{_without_value(name)}", limit=100)
            found[name] = self._as_text(value, shown, expected="a text") if not _is_nothing(value) else ""
            problem = check(name, found[name])
            if problem:
                raise wrong(self._origin.path, node.lines[name], f"{self._path(shown)} {problem}")
        return found

    def mib(self, key: str) -> int | None:
        """An amount of memory: MiB, or a text with a unit."""
        text = self.text(key, None, expected="a number of MiB, or a size such as 2GiB")
        if text is None:
            return None
        try:
            mib = settings.parse_count(text) if text.isdigit() else settings.parse_size(text) // 2**20
        except ValueError:
            mib = 0
        if not 0 < mib < 2**30:
            raise self.fail(key, f"must be a number of MiB, or a size such as 2GiB: {errors.quote(text, limit=40)!r}")
        return mib

    def _as_text(self, node: Node, key: str, *, expected: str) -> str:
        if isinstance(node, Scalar) and node.kind in (TEXT, NUMBER):
            return node.text
        hint = None
        if isinstance(node, Scalar) and node.kind in (FLAG, NOTHING):
            hint = f'If that word is meant, put it in quotes: "{node.text}"' if node.text else None
        raise self.fail(key, f"must be {expected}, and is {_describe(node)}", node=node, hint=hint)


def _without_value(name: str) -> str:
    """A key as it may be shown: what was meant as NAME=SECRET has its secret in the key."""
    head, mark, _ = name.partition("=")
    return f"{head}=..." if mark else head


def _is_nothing(node: Node) -> bool:
    return isinstance(node, Scalar) and node.kind == NOTHING


def _describe(node: Node) -> str:
    if isinstance(node, Items):
        return "a list"
    if isinstance(node, Entries):
        return "a mapping"
    shown = errors.quote(node.text, limit=40)
    words = {FLAG: f"{shown}, which YAML takes for true or false", NOTHING: "empty"}
    return words.get(node.kind, repr(shown))
