"""XML as S3, IAM and STS speak it: small documents, written, and read from whoever sends them. Pure.

What is read is UTF-8, has no document type (so no entities of its own), and bounded depth and size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

MAX_DEPTH = 16
MAX_ELEMENTS = 20_000
_TEXT_BYTES = 1 << 16
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'

# What XML 1.0 cannot say at all, not even by a reference; S3's keys may have it. Line ends would be normalized.
_SPECIAL = re.compile('[&<>"\r\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]')


class MalformedError(ValueError):
    """It is no XML, or none that is taken."""


@dataclass
class Element:
    """An element that was read; its name has no namespace."""

    name: str
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def find(self, name: str) -> Element | None:
        """The first child of that name."""
        return next((child for child in self.children if child.name == name), None)

    def all(self, name: str) -> Iterator[Element]:
        """The children of that name."""
        return (child for child in self.children if child.name == name)

    def value(self, name: str) -> str | None:
        """The text of the first child of that name."""
        found = self.find(name)
        return None if found is None else found.text


# -- writing -----------------------------------------------------------------------------------------------------------

# A child is (name, text), (name, children), or None, which is left out.
Child = tuple[str, "str | int | bool | Iterable[Child]"] | None


def build(name: str, children: Iterable[Child], *, namespace: str = "") -> bytes:
    """A document."""
    attribute = f' xmlns="{escape(namespace)}"' if namespace else ""
    return f"{HEAD}<{name}{attribute}>{_content(children)}</{name}>".encode()


def to_children(element: Element) -> list[Child]:
    """What was read, to be written again; white space between elements is dropped."""
    return [(child.name, to_children(child) if child.children else child.text) for child in element.children]


def _content(content: str | int | bool | Iterable[Child]) -> str:
    if isinstance(content, bool):
        return "true" if content else "false"
    if isinstance(content, str | int):
        return escape(str(content))
    return "".join(f"<{child[0]}>{_content(child[1])}</{child[0]}>" for child in content if child is not None)


def escape(text: str) -> str:
    """The text as the content of an element. What XML cannot say is a reference all the same, as S3 has it."""
    return _SPECIAL.sub(_reference, text)


def _reference(found: re.Match[str]) -> str:
    named = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}
    return named.get(found[0]) or f"&#x{ord(found[0]):x};"


# -- reading -----------------------------------------------------------------------------------------------------------


def parse(data: bytes) -> Element:
    """The root element.

    Raises:
        MalformedError: it is not well-formed, has a document type, or is too deep or large.
    """
    reader = _Reader()
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise MalformedError(str(error)) from error
    return reader.root()


class _Reader:
    def __init__(self) -> None:
        self._stack: list[Element] = [Element("")]
        self._texts: list[list[str]] = [[]]  # of each element of the stack, in the pieces in which they come
        self._count = 0
        # The encoding that is said here overrides the one that the document claims.
        self.parser = expat.ParserCreate("utf-8")
        # Else it tells each line, and each reference, by itself.
        self.parser.buffer_text, self.parser.buffer_size = True, _TEXT_BYTES
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text

    def root(self) -> Element:
        return self._stack[0].children[0]

    def _refuse(self, *parts: object) -> None:
        raise MalformedError("a document type is not taken")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._stack) > MAX_DEPTH or self._count > MAX_ELEMENTS:
            raise MalformedError("it is too deep, or has too many elements")
        element = Element(name.rpartition(":")[2])
        self._stack[-1].children.append(element)
        self._stack.append(element)
        self._texts.append([])

    def _end(self, name: str) -> None:
        self._stack.pop().text = "".join(self._texts.pop())

    def _text(self, text: str) -> None:
        self._texts[-1].append(text)


def listed(name: str, children: Iterable[Sequence[Child]], *, member: str = "member") -> Child:
    """A list as the query protocol writes it: an element for each, all of one name."""
    return name, [(member, list(each)) for each in children]
