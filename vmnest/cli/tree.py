"""``vmnest --tree``: all commands at a glance; with ``--json`` everything that there is to know of each."""

from __future__ import annotations

from .. import __version__
from . import manual, render, tables, terminal, verbs, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["describe", "render_tree", "run"]

_LINES = ("├── ", "└── ", "│   ")
_PLAIN_LINES = ("|-- ", "`-- ", "|   ")


def run(*, json: bool) -> int:
    """Print it."""
    is_watched = terminal.is_terminal(terminal.STDOUT)
    if json:
        text = render.render_json(describe(), indented=is_watched)
    else:
        text = render_tree(
            lines=_LINES if terminal.can_express("".join(_LINES)) else _PLAIN_LINES,
            room=terminal.size()[0] if is_watched else None,
            ellipsis=terminal.ellipsis(),
        )
    terminal.write_text(terminal.STDOUT, text)
    return 0


def render_tree(*, lines: tuple[str, str, str] = _LINES, room: int | None = None, ellipsis: str = "…") -> str:
    """A line a command, with its summary, which is cut where there is no room for it."""
    branches = list(_branches(lines))
    widest = max(len(branch) for branch, _ in branches)
    shown = (f"{branch.ljust(widest)}  {summary}" for branch, summary in branches)
    cut = (line if room is None else tables.cut(line, room, ellipsis=ellipsis) for line in shown)
    return "vmnest\n" + "".join(f"{line.rstrip()}\n" for line in cut)


def _branches(lines: tuple[str, str, str]) -> Iterator[tuple[str, str]]:
    fork, end, down = lines
    first = list(dict.fromkeys(verb.words[0] for verb in verbs.VERBS))
    for word in first:
        is_last = word == first[-1]
        verb = verbs.find((word,))
        yield (end if is_last else fork) + word, verb.summary if verb else verbs.GROUPS[word]
        within = list(verbs.in_group(word))
        for each in within:
            trunk = " " * len(down) if is_last else down
            yield trunk + (end if each is within[-1] else fork) + each.words[1], each.summary


def describe() -> dict[str, object]:
    """All commands with all their options, exit statuses and what else a program has to know to call them."""
    return {
        "program": "vmnest",
        "version": __version__,
        "about": manual.ABOUT,
        "usage": manual.USAGE,
        "options": [_describe_global(spelled, meaning) for spelled, meaning in manual.OPTIONS],
        "groups": dict(verbs.GROUPS),
        "commands": [_describe_verb(verb) for verb in verbs.VERBS],
        "exit_statuses": dict(manual.EXIT_STATUSES),
        "exit_statuses_of_commands_run": dict(manual.EXEC_STATUSES),
    }


def _describe_global(spelled: str, meaning: str) -> dict[str, object]:
    """An option that all commands have, or that stands in the place of one."""
    parts = [part.split(" ") for part in spelled.split(", ")]
    flags = tuple(part[0] for part in parts)
    option = words.Option(flags, metavar="".join(parts[-1][1:]), help=meaning, is_repeatable=False)
    known = words.Parser("", summary="")
    words.add_globals(known)
    return {**_describe_option(option), "with_every_command": known.is_known(flags[-1])}


def _describe_option(option: words.Option) -> dict[str, object]:
    return {
        "flags": list(option.flags),
        "metavar": option.metavar or None,
        "switch": not option.metavar,
        "repeatable": option.is_repeatable,
        "help": option.help,
    }


def _describe_verb(verb: verbs.Verb) -> dict[str, object]:
    parser = verbs.build_parser(verb)
    return {
        "command": verb.title,
        "group": verb.words[0] if len(verb.words) > 1 else None,
        "summary": verb.summary,
        "usage": parser.usage,
        "names": [_describe_name(name) for name in parser.names.split()],
        "options": [_describe_option(option) for option in parser.rows],
        "takes_command": parser.has_command,
        "status_is_of_command": verb.is_exec,
        "notes": parser.notes or None,
    }


def _describe_name(usage: str) -> dict[str, object]:
    return {"name": usage.strip("[]."), "required": not usage.startswith("["), "repeatable": "..." in usage}
