"""The rules of ``.dockerignore``: what of a directory is no part of its image.

One pattern a line, matched against the path from the directory on; ``*`` and ``?`` stop at a slash, ``**`` does not;
``!`` takes back; the last pattern that matches decides. A pattern that matches a directory matches all that is in it.
Source: the reference of ``docker build``, "Dockerignore files".
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from .. import errors
from .source import DOCKERFILE

FILE_NAME = ".dockerignore"
_ALWAYS = (DOCKERFILE, FILE_NAME)  # the build reads them itself


class Rules:
    """The patterns of one file."""

    def __init__(self, patterns: Iterable[tuple[re.Pattern[str], bool]] = ()) -> None:
        self._patterns = list(patterns)
        self.has_exceptions = any(not excludes for _, excludes in self._patterns)

    def excludes(self, path: str) -> bool:
        """Whether that path (with slashes, from the directory on) is no part of the image."""
        if path in _ALWAYS:
            return False
        found = False
        for pattern, excludes in self._patterns:
            if excludes != found and pattern.match(path):
                found = excludes
        return found

    def excludes_all_below(self, path: str) -> bool:
        """Whether neither that directory nor anything in it is a part of the image."""
        return not self.has_exceptions and self.excludes(path)


def parse(text: str) -> Rules:
    """The rules in the text of a file.

    Raises:
        errors.GuestImageError: a pattern makes no sense; with its line.
    """
    return Rules(rule for number, line in enumerate(text.splitlines(), 1) if (rule := _parse_line(line, number)))


def _parse_line(line: str, number: int) -> tuple[re.Pattern[str], bool] | None:
    if number == 1:
        line = line.removeprefix("\ufeff")
    if line.startswith("#"):
        return None
    pattern = line.strip()
    if not pattern:
        return None
    excludes = not pattern.startswith("!")
    pattern = pattern.removeprefix("!").strip()
    if not pattern:
        raise _nonsense(number, "an exclamation mark alone")
    cleaned = posixpath.normpath(pattern).lstrip("/")
    if cleaned in {"", "."}:
        return None
    try:
        # All below a match as well.
        return re.compile(f"{_to_expression(cleaned)}(?:/.*)?\\Z", re.DOTALL), excludes
    except ValueError as error:
        raise _nonsense(number, str(error)) from error


def _nonsense(number: int, what: str) -> errors.GuestImageError:
    return errors.GuestImageError(f"{FILE_NAME}, line {number}: {what}", hint="Mend the pattern, or remove the line.")


def _to_expression(pattern: str) -> str:
    made, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**", at):
            at += 2
            if pattern.startswith("/", at):
                at += 1
                made += "(?:.*/)?"
            else:
                made += ".*"
        elif pattern[at] == "[":
            expression, at = _class(pattern, at)
            made += expression
        else:
            expression, at = _letter(pattern, at)
            made += expression
    return made


def _letter(pattern: str, at: int) -> tuple[str, int]:
    letter = pattern[at]
    if letter == "\\":
        if at + 1 == len(pattern):
            raise ValueError("a backslash at the end")
        return re.escape(pattern[at + 1]), at + 2
    return {"*": "[^/]*", "?": "[^/]"}.get(letter, re.escape(letter)), at + 1


def _class(pattern: str, at: int) -> tuple[str, int]:
    """``[a-c]`` and ``[^a-c]``, from its opening bracket on."""
    end, body = at + 1, ""
    negated = pattern.startswith("^", end)
    end += negated
    while end < len(pattern) and (pattern[end] != "]" or not body):
        if pattern[end] == "\\":
            end += 1
            if end == len(pattern):
                break
            body += re.escape(pattern[end])
        else:
            body += "-" if pattern[end] == "-" else re.escape(pattern[end])
        end += 1
    if end >= len(pattern):
        raise ValueError("a bracket that is not closed")
    try:
        re.compile(f"[{body}]")
    except re.error as error:
        raise ValueError(f"a range of letters that is none: {error}") from error
    return f"(?!/)[{'^' if negated else ''}{body}]", end + 1
