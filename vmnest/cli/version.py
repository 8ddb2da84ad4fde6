"""``version``."""

from __future__ import annotations

from ..ops import runtime
from . import output, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import verbs


def build_parser(verb: verbs.Verb) -> words.Parser:
    """No options of its own."""
    return words.Parser(verb.title, summary=verb.summary)


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Print it."""
    facts = runtime.version()
    output.result(facts, options=options, text=f"vmnest {facts['version']}\n")
    return 0
