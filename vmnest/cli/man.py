"""``vmnest --man``: the man page, in the macros of man(7), from the tables that also make the help."""

from __future__ import annotations

import re

from .. import __version__, settings
from . import manual, terminal, verbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from . import words

__all__ = ["render_man", "run"]


def run() -> int:
    """Print it."""
    terminal.write_text(terminal.STDOUT, render_man())
    return 0


def render_man() -> str:
    """The page."""
    return "".join(f"{line}\n" for line in _lines())


def _lines() -> Iterator[str]:
    yield f'.TH VMNEST 1 "" "vmnest {__version__}" "vmnest"'
    yield from (".nh", ".ad l")  # what is broken by a hyphen cannot be copied
    about = manual.ABOUT.rstrip(".")
    yield from (".SH NAME", f"vmnest \\- {_text(about[:1].lower() + about[1:])}")
    yield from (".SH SYNOPSIS", _line(manual.USAGE))
    yield from (".SH DESCRIPTION", *_paragraphs(_DESCRIPTION))
    yield from (".SH OPTIONS", *_paragraphs(_WHERE_OPTIONS_STAND), *_items(manual.OPTIONS))
    yield ".SH COMMANDS"
    for verb in verbs.VERBS:
        yield from _verb(verb)
    yield from (".SH EXIT STATUS", *_items(manual.EXIT_STATUSES))
    of = ", ".join(verb.title for verb in verbs.VERBS if verb.is_exec)
    yield from (".PP", _line(f"Of {of}:"), *_items(manual.EXEC_STATUSES))
    yield ".SH ENVIRONMENT"
    for row in settings.SETTINGS.values():
        yield from _item(row.env, f"{row.meaning} (default: {row.shown_default})")
    yield from (".SH EXAMPLES", *_paragraphs(_EXAMPLES))


_DESCRIPTION = (
    f"{manual.ABOUT} A sandbox has a name, which this machine remembers, and a MicroVM, which the service knows.\n\n"
    "What follows -- is the command to run, and is not looked at. Options cannot be abbreviated. Results go to\n"
    "standard output, all else to standard error. With --json a command prints one object; if it fails, standard\n"
    'output stays empty, and standard error gets {"error": {"code", "message", "hint", "retryable"}}.'
)
_WHERE_OPTIONS_STAND = "They stand before the command or after it; --version, --man and --tree stand alone."
_EXAMPLES = (
    "A command in a sandbox of its own:\n"
    f"    {manual.EXAMPLE}\n"
    "A sandbox that stays, with a file and a server in it:\n"
    "    vmnest --local create demo\n"
    "    vmnest cp index.html demo:/work/\n"
    "    vmnest exec demo --background -- python3 -m http.server 8000\n"
    "    vmnest forward demo -r 8000\n"
    "    vmnest rm demo"
)


def _verb(verb: verbs.Verb) -> Iterator[str]:
    parser = verbs.build_parser(verb)
    yield f".SS {_quoted(parser.usage)}"
    yield from _paragraphs(f"{verb.summary}.")
    yield from _items((_spelled(option), option.help) for option in parser.rows)
    if parser.notes:
        yield from (".PP", *_paragraphs(parser.notes))


def _spelled(option: words.Option) -> str:
    value = f" {option.metavar}" if option.metavar else ""
    return ", ".join(f"{flag}{value}" for flag in option.flags)


def _items(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for head, meaning in rows:
        yield from _item(head, meaning[:1].upper() + meaning[1:])


def _item(head: str, meaning: str) -> Iterator[str]:
    yield from (".TP", f".B {_text(head)}", _line(f"{meaning}."))


def _paragraphs(text: str) -> Iterator[str]:
    """Text of which lines that are indented are kept as they are; an empty line begins a paragraph."""
    is_kept = False
    for line in text.split("\n"):
        if line.startswith(" ") != is_kept:
            is_kept = not is_kept
            yield from (".PP", ".RS 4", ".nf") if is_kept else (".fi", ".RE", ".PP")
        yield _line(line.strip()) if line else ".PP"
    if is_kept:
        yield from (".fi", ".RE")


def _line(text: str) -> str:
    """A line of text, which must not begin as a request does."""
    shown = _text(text)
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown


def _quoted(text: str) -> str:
    return '"{}"'.format(_text(text).replace('"', "\\(dq"))


_ESCAPES = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}


def _text(text: str) -> str:
    """What roff prints as this text: dashes and quotes that can be copied, and ASCII only."""
    return re.sub(r"[^ -~]|[\\\-'`^~]", lambda found: _ESCAPES.get(found[0]) or f"\\[u{ord(found[0]):04X}]", text)
