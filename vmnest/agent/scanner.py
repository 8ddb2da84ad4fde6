"""Finds the members of one JSON object while it arrives, without keeping its huge strings.

Strategy: everything is small except the strings whose names the caller gives. A small name or value is searched for its
end and parsed by ``json.loads`` once it is complete. A huge string is handed out piece by piece as it stands in the
JSON; its end is found with ``str.find``, and a piece never ends inside an escape, so that each can be unescaped alone.

What arrives was written by the guest, which nobody trusts: every deviation is an AgentAnswerError, what is kept is
bounded, and no loop goes over the characters of a huge string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import NoReturn

from .. import errors

__all__ = ["ObjectScanner", "refuse", "unescape"]

MAX_SMALL_CHARS = 65536  # names and values outside the huge strings, all together

_SPACE = re.compile(r"[ \t\n\r]*")
_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["\[\]{},:]')


class ObjectScanner:
    """Takes the text of one JSON object in pieces of any size.

    Args:
        large: Names of the members whose strings may be huge; any other value of theirs is treated as small.
        on_piece: Called with a large member's name and the next piece of its string, still escaped.
        on_end: Called with a large member's name when its string ended (also an empty one).

    Attributes:
        members: The other members found so far, parsed.
    """

    def __init__(
        self, large: frozenset[str], *, on_piece: Callable[[str, str], None], on_end: Callable[[str], None]
    ) -> None:
        self.members: dict[str, object] = {}
        self._large = large
        self._on_piece = on_piece
        self._on_end = on_end
        self._text = ""
        self._at = 0  # everything before is done with
        self._seen = 0  # how far the search for the end of a small value got
        self._depth = 0
        self._quoted = False
        self._budget = MAX_SMALL_CHARS
        self._names: set[str] = set()
        self._name = ""
        self._step: Callable[[], bool] = self._begin

    def feed(self, text: str) -> None:
        """Take the next text."""
        self._text = self._text[self._at :] + text if self._at < len(self._text) else text
        self._seen -= self._at
        self._at = 0
        while self._step():
            pass
        if self._step != self._large_value and len(self._text) - self._at > self._budget:
            refuse("its small members are too large")

    def finish(self) -> dict[str, object]:
        """The parsed members, if the object is complete."""
        if self._step != self._end:
            refuse("it ends too early")
        return self.members

    # Each step consumes what it can, names the next step, and tells whether to go on with the text at hand.

    def _begin(self) -> bool:
        return self._expect({"{": self._first_name})

    def _first_name(self) -> bool:
        return self._expect({"}": self._end, '"': self._take_name}, keep='"')

    def _next_name(self) -> bool:
        return self._expect({'"': self._take_name}, keep='"')

    def _take_name(self) -> bool:
        raw = self._take_small(":")
        if raw is None:
            return False
        name = _parse(raw)
        if not isinstance(name, str) or name in self._names:
            refuse("it has a malformed or repeated member name")
        self._names.add(name)
        self._name = name
        self._at += 1
        self._step = self._value
        return True

    def _value(self) -> bool:
        if not self._skip_space():
            return False
        if self._text[self._at] == '"' and self._name in self._large:
            self._at += 1
            self._step = self._large_value
        else:
            self._seen = self._at
            self._step = self._small_value
        return True

    def _small_value(self) -> bool:
        raw = self._take_small(",}")
        if raw is None:
            return False
        self.members[self._name] = _parse(raw)
        self._step = self._after_value
        return True

    def _large_value(self) -> bool:
        end, stop = self._end_of_piece()
        if stop > self._at:
            self._on_piece(self._name, self._text[self._at : stop])
        self._at = stop
        if end < 0:
            return False
        self._at = end + 1
        self._on_end(self._name)
        self._step = self._after_value
        return True

    def _after_value(self) -> bool:
        return self._expect({",": self._next_name, "}": self._end})

    def _end(self) -> bool:
        if self._skip_space():
            refuse("something follows its end")
        return False

    def _skip_space(self) -> bool:
        """Whether a character that is no space is at hand."""
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return self._at < len(self._text)

    def _expect(self, steps: Mapping[str, Callable[[], bool]], *, keep: str = "") -> bool:
        if not self._skip_space():
            return False
        mark = self._text[self._at]
        if mark not in steps:
            refuse("it is no JSON object")
        if mark == keep:
            self._seen = self._at
        else:
            self._at += 1
        self._step = steps[mark]
        return True

    def _take_small(self, stops: str) -> str | None:
        """The text before the first of ``stops`` outside strings and brackets; None while that has not arrived."""
        end = self._end_of_small(stops)
        if end < 0:
            return None
        raw = self._text[self._at : end]
        self._budget -= len(raw)
        if self._budget < 0:
            refuse("its small members are too large")
        self._at = end
        return raw

    def _end_of_small(self, stops: str) -> int:
        text = self._text
        while match := (_IN_STRING if self._quoted else _OUTSIDE).search(text, self._seen):
            mark = match[0]
            if mark in stops and not self._quoted and not self._depth:
                return match.start()
            # The character after a backslash is skipped, also when it has not arrived yet.
            self._seen = match.end() + (mark == "\\")
            if mark == '"':
                self._quoted = not self._quoted
            elif not self._quoted:
                self._depth += (mark in "[{") - (mark in "]}")
                if self._depth < 0:
                    refuse("it is no JSON object")
        self._seen = max(self._seen, len(text))
        return -1

    def _end_of_piece(self) -> tuple[int, int]:
        """Of a huge string's text at hand: its closing quote or -1, and where the next piece of it ends."""
        text, start = self._text, self._at
        end = text.find('"', start)
        if text.find("\\", start, end if end >= 0 else len(text)) < 0:
            return end, end if end >= 0 else len(text)
        # Pairs of backslashes are masked from the left, as they are read: each one that is left begins an escape.
        masked = text[start:].replace("\\\\", "__").replace('\\"', "__")
        end = masked.find('"')
        if end >= 0:
            return start + end, start + end
        return -1, start + _escape_boundary(masked)


def _escape_boundary(masked: str) -> int:
    """The text's length, or where the escape begins that its end cuts."""
    slash = masked.rfind("\\", max(0, len(masked) - 5))  # the longest cut escape is \uXXX
    if slash < 0:
        return len(masked)
    length = 6 if masked[slash + 1 : slash + 2] == "u" else 2
    return slash if len(masked) - slash < length else len(masked)


def unescape(piece: str) -> str:
    """The text of a piece of a JSON string; halves of surrogate pairs may stand at its ends."""
    value = _parse(f'"{piece}"')
    assert isinstance(value, str)
    return value


def _parse(raw: str) -> object:
    def refuse_constant(name: str) -> NoReturn:
        refuse(f"it holds {name}")

    try:
        value: object = json.loads(raw, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        refuse("it is no JSON object")
    return value


def refuse(what: str) -> NoReturn:
    """Raise the error of an answer that is not what the protocol says."""
    raise errors.AgentAnswerError(
        f"the agent's answer is not what the protocol says: {what}",
        hint="Is something other than the agent listening on the agent's port?",
    )
