"""Words of a Dockerfile's line: quotes, the escape character, and variables.

Rules, as Docker's reference gives them: in single quotes nothing is special; in double quotes variables are, and the
escape character before a quote, a dollar or itself; elsewhere the escape character takes the meaning of what follows.
A variable is ``$name``, ``${name}``, or ``${name`` followed by ``-``, ``+`` or ``?``, a word and ``}``: the word if
the variable is not set, if it is set, or to complain with; after ``:``, an empty variable counts as not set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"[0-9]+")
_SPACES = " \t"
_MAX_DEPTH = 50
MAX_LENGTH = 1 << 17  # no argument and no variable of a program can be longer


class WordError(Exception):
    """A word makes no sense; the message says why."""


def split(text: str, *, escape: str = "\\") -> list[str]:
    """The words of a line, separated by spaces outside of quotes; quotes and escapes are still in them.

    Raises:
        WordError: a quote is not closed.
    """
    words: list[str] = []
    word, quote, index = "", "", 0
    while index < len(text):
        char = text[index]
        if char == escape and quote != "'" and index + 1 < len(text):
            word += text[index : index + 2]
            index += 2
            continue
        if char in _SPACES and not quote:
            words += [word] if word else []
            word = ""
        else:
            word += char
            if quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
        index += 1
    if quote:
        raise WordError(f"the quote {quote} is not closed")
    return words + ([word] if word else [])


def expand(text: str, values: Mapping[str, str], *, escape: str = "\\") -> str:
    """The text with its variables replaced, and without its quotes and escapes. Unknown variables are empty.

    Raises:
        WordError: a quote or a brace is not closed, a variable is used in a way that is not known, or it becomes longer
            than anything that a program can be given.
    """
    reader = _Reader(text, values, escape=escape)
    return reader.read(until="")


class _Reader:
    """Reads a text once, from left to right."""

    def __init__(self, text: str, values: Mapping[str, str], *, escape: str) -> None:
        self._text = text
        self._values = values
        self._escape = escape
        self._at = 0
        self._depth = 0

    def read(self, *, until: str) -> str:
        """What stands before the character ``until``, which is taken too; or all of it."""
        result = ""
        while self._at < len(self._text):
            char = self._take()
            if char == until:
                return result
            if char == "'":
                result += self._take_single_quoted()
            elif char == '"':
                result += self._take_double_quoted()
            elif char == "$":
                result += self._take_variable()
            elif char == self._escape and self._at < len(self._text):
                result += self._take()
            else:
                result += char
            _check_length(result)
        if until:
            raise WordError(f"{until} is missing in {self._text!r}")
        return result

    def _take(self) -> str:
        self._at += 1
        return self._text[self._at - 1]

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take_single_quoted(self) -> str:
        end = self._text.find("'", self._at)
        if end < 0:
            raise WordError(f"the quote ' is not closed in {self._text!r}")
        inner = self._text[self._at : end]
        self._at = end + 1
        return inner

    def _take_double_quoted(self) -> str:
        result = ""
        while self._at < len(self._text):
            char = self._take()
            if char == '"':
                return result
            if char == "$":
                result += self._take_variable()
            elif char == self._escape and self._next() and self._next() in f'"${self._escape}':
                result += self._take()
            else:
                result += char
            _check_length(result)
        raise WordError(f'the quote " is not closed in {self._text!r}')

    def _take_variable(self) -> str:
        """What stands for the variable whose dollar has been taken."""
        if self._next() == "{":
            self._at += 1
            return self._take_braced()
        name = _NAME.match(self._text, self._at) or _NUMBER.match(self._text, self._at)
        if name is None:
            return "$"
        self._at = name.end()
        return self._values.get(name.group(), "")

    def _take_braced(self) -> str:
        name = _NAME.match(self._text, self._at) or _NUMBER.match(self._text, self._at)
        if name is None:
            raise WordError(f"a variable's name is missing in {self._text!r}")
        self._at = name.end()
        value = self._values.get(name.group())
        if self._next() == "}":
            self._at += 1
            return value or ""
        if self._next() == ":":
            self._at += 1
            value = value or None
        modifier = self._next()
        if not modifier or modifier not in "-+?":
            raise WordError(f"the variable {name.group()} is used in a way that is not known, in {self._text!r}")
        self._at += 1
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise WordError("too many variables within each other")
        word = self.read(until="}")
        self._depth -= 1
        if modifier == "?" and value is None:
            raise WordError(f"{name.group()}: {word or 'it is not set'}")
        if modifier == "+":
            return "" if value is None else word
        return word if value is None else value


def _check_length(result: str) -> None:
    """Variables of variables of variables would fill any memory."""
    if len(result) > MAX_LENGTH:
        raise WordError(f"with its variables a text has more than {MAX_LENGTH} characters")
