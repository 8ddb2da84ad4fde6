"""The help of the whole program, from the tables that hold its parts."""

from __future__ import annotations

from . import verbs

__all__ = [
    "ABOUT",
    "EXAMPLE",
    "EXEC_STATUSES",
    "EXIT_STATUSES",
    "OPTIONS",
    "USAGE",
    "group_help",
    "help_text",
    "short_help",
]

ABOUT = "Disposable microVM sandboxes for code that nobody has vetted: on AWS, or on this machine (--local)."
USAGE = "vmnest [options] COMMAND ..."
EXAMPLE = "vmnest --local run -- echo hello"

OPTIONS = (
    *((f"{', '.join(flags)} {value}".rstrip(), meaning) for flags, value, meaning in verbs.GLOBAL_OPTIONS),
    ("-h, --help", "show this help, or a command's: vmnest exec --help"),
    ("--version", "show the version"),
    ("--man", "print a man page (vmnest --man | man -l -)"),
    ("--tree", "show the commands as a tree; with --json also their options, for programs"),
)

EXIT_STATUSES = (
    ("0", "done"),
    ("1", "failed"),
    ("2", "the command line or a setting is wrong"),
    ("3", "there is no such thing: sandbox, image, file"),
    ("130", "interrupted (128+N: ended by signal N)"),
)
EXEC_STATUSES = (
    ("N", "the command's own status; 128+N when signal N ended it"),
    ("124", "the command was ended at its --timeout"),
    ("125", "vmnest failed before the command or around it"),
    ("126", "the command cannot be executed"),
    ("127", "the command does not exist"),
)


def _rows(rows: tuple[tuple[str, str], ...]) -> str:
    widest = max(len(left) for left, _ in rows)
    return "".join(f"  {left.ljust(widest)}  {right}\n" for left, right in rows)


def help_text() -> str:
    """What ``vmnest --help`` prints."""
    commands = tuple((verb.title, verb.summary) for verb in verbs.VERBS)
    *others, last = (verb.title for verb in verbs.VERBS if verb.is_exec)
    return (
        f"Usage: {USAGE}\n\n"
        f"{ABOUT}\n\n"
        f"To begin with:\n  {EXAMPLE}\n\n"
        f"Commands:\n{_rows(commands)}\n"
        f"Options, before or after the command:\n{_rows(OPTIONS)}\n"
        f"Exit status:\n{_rows(EXIT_STATUSES)}"
        f"of {', '.join(others)} and {last}:\n{_rows(EXEC_STATUSES)}"
    )


def short_help() -> str:
    """What ``vmnest`` alone prints."""
    commands = tuple((verb.title, verb.summary) for verb in verbs.VERBS)
    return f"Usage: {USAGE}\n\nTo begin with:\n  {EXAMPLE}\n\nCommands:\n{_rows(commands)}\nvmnest --help tells more.\n"


def group_help(group: str) -> str:
    """What ``vmnest GROUP --help`` prints."""
    commands = tuple((verb.title, verb.summary) for verb in verbs.in_group(group))
    return f"Usage: vmnest {group} COMMAND [options]\n\n{verbs.GROUPS[group]}.\n\nCommands:\n{_rows(commands)}"
