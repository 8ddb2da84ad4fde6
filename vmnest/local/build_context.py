"""What COPY and ADD choose from: an unpacked artifact. Patterns, links and digests, without touching a disk."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from .build_artifact import FOLDER, LINK, Entry

_MAX_LINKS = 40
_WILD = re.compile(r"[*?\[]")
_MAX_PATTERN = 4096  # no name is longer
_MAX_SOURCES = 200_000


class ContextError(Exception):
    """A source is not there, or cannot be used; the message says which."""


class Context:
    """What is in the build directory, by path (``""`` is the directory itself)."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = {"": Entry(FOLDER, 0o755), **entries}
        self._children: dict[str, list[str]] = {}
        for path in sorted(entries):
            self._children.setdefault(posixpath.dirname(path), []).append(path)

    def match(self, patterns: Sequence[str]) -> list[tuple[str, str]]:
        """The sources that patterns mean, in order: the name that each had, and its place once links are followed.

        Raises:
            ContextError: a pattern means nothing, or something outside.
        """
        found: list[tuple[str, str]] = []
        for pattern in patterns:
            path = _normalize(pattern)
            chosen = self._glob(path) if _WILD.search(path) else [path]
            if not chosen:
                raise ContextError(f"nothing in the build directory matches {pattern!r}")
            if len(found) + len(chosen) > _MAX_SOURCES:
                raise ContextError(f"there are more than {_MAX_SOURCES} sources")
            found += [(name, self._follow(name, pattern)) for name in chosen]
        return found

    def is_folder(self, path: str) -> bool:
        """Whether a directory is there."""
        entry = self._entries.get(path)
        return entry is not None and entry.kind == FOLDER

    def digest(self, places: Sequence[str]) -> str:
        """Equal for equal content, names and modes of what is at these places, directories with all that is in them."""
        digest = hashlib.sha256()
        for number, place in enumerate(places):
            for path in self._walk(place):
                entry = self._entries[path]
                inner = path.removeprefix(place)
                line = [number, inner or posixpath.basename(path), entry.kind, entry.mode, entry.content]
                digest.update(json.dumps(line).encode() + b"\n")
        return digest.hexdigest()

    def _walk(self, place: str) -> Iterator[str]:
        pending = [place]
        while pending:
            path = pending.pop()
            yield path
            pending += reversed(self._children.get(path, []))

    def _glob(self, pattern: str) -> list[str]:
        """Paths that a pattern means, part by part: no wildcard goes over a slash."""
        found = [""]
        for part in pattern.split("/"):
            expression = _translate(part)
            found = [
                child
                for folder in found
                for child in self._children.get(folder, [])
                if expression.fullmatch(posixpath.basename(child))
            ]
        return found

    def _follow(self, path: str, pattern: str) -> str:
        """Where a path leads, links and all; the build directory is the root of all links."""
        done, pending = "", path.split("/") if path else []
        links = 0
        while pending:
            part = pending.pop(0)
            if part == "..":
                done = posixpath.dirname(done)
                continue
            if part in ("", "."):
                continue
            here = posixpath.join(done, part)
            entry = self._entries.get(here)
            if entry is None:
                raise ContextError(f"there is no {pattern!r} in the build directory")
            if entry.kind != LINK:
                done = here
                continue
            links += 1
            if links > _MAX_LINKS:
                raise ContextError(f"too many links lead from {pattern!r}")
            if entry.content.startswith("/"):
                done = ""
            pending = entry.content.split("/") + pending
        return done


def _normalize(pattern: str) -> str:
    path = posixpath.normpath(pattern.lstrip("/") or ".")
    if path == ".." or path.startswith("../"):
        raise ContextError(f"{pattern!r} lies outside of the build directory")
    return "" if path == "." else path


def _translate(part: str) -> re.Pattern[str]:
    """A part of a path with ``*``, ``?``, ``[a-z]``, ``[^a-z]`` and ``\\`` before what is to mean itself."""
    pieces, result, index = [""], "", 0
    if len(part) > _MAX_PATTERN:
        raise ContextError("a pattern is longer than any name")
    while index < len(part):
        char = part[index]
        index += 1
        result = ""
        if char == "*":
            pieces += [] if pieces[1:] and not pieces[-1] else [""]
        elif char == "?":
            result = "."
        elif char == "\\" and index < len(part):
            result = re.escape(part[index])
            index += 1
        elif char == "[":
            end = part.find("]", index + 1)
            if end < 0:
                raise ContextError(f"the bracket in {part!r} is not closed")
            inner = part[index:end]
            sign = "^" if inner[0] in "^!" else ""
            result = f"[{sign}{_members(inner[1:] if sign else inner)}]"
            index = end + 1
        else:
            result = re.escape(char)
        pieces[-1] += result
    try:
        return re.compile(_join(pieces), re.DOTALL)
    except re.error as error:
        raise ContextError(f"{part!r} is no pattern: {error}") from error


def _join(pieces: Sequence[str]) -> str:
    """What stands between the ``*`` of a pattern, each found as early as can be, and never looked for anew.

    A plain ``.*`` would go back and forth between all of them, for years.
    """
    first, *others = pieces
    if not others:
        return first
    middle = "".join(f"(?=(?P<p{index}>.*?{piece}))(?P=p{index})" for index, piece in enumerate(others[:-1]))
    return f"{first}{middle}.*{others[-1]}"


def _members(text: str) -> str:
    """What stands in brackets: characters, and ranges of them."""
    found = re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
    result, index = "", 0
    while index < len(found):
        is_range = found[index + 1 : index + 2] == "-" and index + 2 < len(found)
        if is_range:
            result += f"{re.escape(found[index])}-{re.escape(found[index + 2])}"
        else:
            result += re.escape(found[index])
        index += 3 if is_range else 1
    return result
