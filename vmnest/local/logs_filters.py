"""Filter patterns of CloudWatch Logs: words and phrases. Pure.

``error failed`` wants both, ``"a phrase"`` all of it as it stands, ``-debug`` its absence, ``?a ?b`` one of them.
Patterns for JSON and for columns are not here, and refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from . import faults

_TERM = re.compile(r'\s*([-?]?)(?:"((?:[^"\\]|\\.)*)"|([^\s"]+))')


def parse_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether a message matches the pattern; an empty one matches all.

    Raises:
        faults.Fault: it is none of words and phrases.
    """
    text = pattern.strip()
    if text.startswith(("{", "[", "%")):
        raise _invalid("the local cloud takes words and phrases alone")
    terms: dict[str, list[str]] = {"": [], "-": [], "?": []}
    at = 0
    while at < len(text):
        found = _TERM.match(text, at)
        if found is None:
            raise _invalid(f"it cannot be read at {text[at : at + 20]!r}")
        term = found[3] if found[2] is None else re.sub(r"\\(.)", r"\1", found[2])
        terms[found[1]].append(term)
        at = found.end()

    def matches(message: str) -> bool:
        if not all(term in message for term in terms[""]) or any(term in message for term in terms["-"]):
            return False
        return not terms["?"] or any(term in message for term in terms["?"])

    return matches


def _invalid(reason: str) -> faults.Fault:
    return faults.Fault(f"Invalid filter pattern: {reason}.", error_type="InvalidParameterException", status=400)
