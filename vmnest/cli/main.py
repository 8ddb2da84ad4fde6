"""From ``argv`` to an exit status: find the verb, load it, run it, and translate what is raised. Nothing else exits."""

from __future__ import annotations

import sys

from .. import __version__, errors, settings
from . import failure, signals, terminal, values, verbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn, Protocol

    from .words import Options, Parser

    class Group(Protocol):
        """What a module of verbs offers."""

        def build_parser(self, verb: verbs.Verb) -> Parser:
            """The options of a verb, without those that every verb has."""

        def run(self, verb: verbs.Verb, options: Options) -> int:
            """Do it, print the result, and return the exit status."""


__all__ = ["console", "main"]

_BEFORE_VERB = (
    "--local",
    "--json",
    "-q",
    "--quiet",
    "--debug",
    "-h",
    "--help",
    "--version",
    "--man",
    "--tree",
    "--region",
)


def console() -> NoReturn:
    """The program: ``main`` with the process's own arguments, streams and signals."""
    terminal.open_missing()
    become_deaf = signals.raise_once()
    status = main([values.to_utf8(word) for word in sys.argv[1:]])
    # All is done and told: while the interpreter ends, no signal may make a failure of it.
    become_deaf()
    sys.exit(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name) and return its exit status."""
    line = _Line(sys.argv[1:] if argv is None else argv)
    try:
        return line.run()
    except BaseException as error:
        is_exec = line.verb is not None and line.verb.is_exec
        return failure.report(error, json=line.json, debug=line.debug, is_exec=is_exec)


class _Line:
    """One command line on its way."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = list(argv)
        self.verb: verbs.Verb | None = None
        self.json = False
        self.debug = False

    def run(self) -> int:
        if self._argv[:1] == [verbs.COMPLETE]:
            from . import completing

            return completing.run(self._argv[1:])
        found = verbs.look_for(self._argv)
        self.verb = found.verb
        if found.verb is None:
            return self._run_without_verb(found.before, found.words)
        return self._run_verb(found.verb, found.before + found.rest)

    def _run_verb(self, verb: verbs.Verb, arguments: list[str]) -> int:
        from importlib import import_module

        from . import words

        group: Group = import_module(f".{verb.module}", __package__)
        parser = group.build_parser(verb)
        words.add_globals(parser)
        parts = words.split(parser, arguments)
        # Known before the values are: an error in the rest of the line obeys them already.
        self.json, self.debug = parts.has("--json"), parts.has("--debug")
        if parts.has("--help"):
            terminal.write_text(terminal.STDOUT, parser.help())
            return 0
        options = parser.parse(parts)
        if verb.words[0] not in verbs.WITHOUT_TARGET:
            # Also where nothing comes of it: who has named none shall not believe that one is looked at.
            settings.text("target", flag=settings.TARGET_LOCAL if options.local else None)
        return group.run(verb, options)

    def _run_without_verb(self, before: list[str], found: list[str]) -> int:
        self.json, self.debug = "--json" in self._argv, "--debug" in self._argv
        unknown = [word for word in before if word.startswith("-") and word.partition("=")[0] not in _BEFORE_VERB]
        if unknown:
            raise errors.UsageError(f"there is no option {unknown[0]} before the command", hint=_SEE_HELP)
        if not found and _lacks_region(before):
            raise errors.UsageError("the value of --region is missing", hint="As in: vmnest --region us-east-1 ls")
        group = found[0] if found and found[0] in verbs.GROUPS else ""
        if not found and "--version" in before:
            terminal.write_text(terminal.STDOUT, f"vmnest {__version__}\n")
            return 0
        if not found and "--man" in before:
            from . import man

            return man.run()
        if not found and "--tree" in before:
            from . import tree

            return tree.run(json=self.json)
        if len(found) <= bool(group) and not {"-h", "--help"}.isdisjoint(before):
            from . import manual

            terminal.write_text(terminal.STDOUT, manual.group_help(group) if group else manual.help_text())
            return 0
        if len(found) > bool(group):
            raise errors.UsageError(f"there is no command {' '.join(found)!r}", hint=_closest(found) or _SEE_HELP)
        return self._tell_missing(group)

    def _tell_missing(self, group: str) -> int:
        """That a command is missing, and which there are."""
        within = [verb.words[1] for verb in verbs.in_group(group)] if group else [verb.words[0] for verb in verbs.VERBS]
        message = f"a command is missing: {' '.join(filter(None, ['vmnest', group]))} ..."
        error = errors.UsageError(message, hint=_one_of(within))
        if self.json:
            raise error
        from . import manual

        shown = manual.group_help(group) if group else manual.short_help()
        terminal.tell(f"vmnest: {message}\n\n{shown}")
        return error.exit_status


def _lacks_region(before: list[str]) -> bool:
    """``--region`` stands last, or what should have been the command was taken for its value."""
    taken = before[before.index("--region") + 1 :] if "--region" in before else ["-"]
    return not taken or taken[0] in {verb.words[0] for verb in verbs.VERBS}


_SEE_HELP = "vmnest --help lists the commands; options of a command come after it."


# What people type for what are options here.
_OPTION_MEANT = {"help": "--help", "commands": "--help", "man": "--man", "manual": "--man", "tree": "--tree"}


_LIKENESS = 0.7  # what is less alike is another word, and not this one misspelt


def _closest(found: list[str]) -> str:
    """A question for the verb that was likely meant, or nothing."""
    from difflib import get_close_matches

    if found[0] in _OPTION_MEANT:
        return f"Did you mean vmnest {_OPTION_MEANT[found[0]]}? Of one command: vmnest COMMAND --help"
    # By the last word alone: "local" in common would make every verb of the group look alike.
    among = {verb.words[-1]: verb.title for verb in verbs.VERBS if verb.words[:-1] == tuple(found[:-1])}
    close = get_close_matches(found[-1], [*among, *(verbs.GROUPS if len(found) == 1 else ())], n=1, cutoff=_LIKENESS)
    elsewhere = [verb.title for verb in verbs.VERBS if verb.words[-1] == found[-1]]
    word = " ".join(found)
    other = [verbs.OTHER_WORDS[word]] if word in verbs.OTHER_WORDS else []
    meant = [*other, *elsewhere, *(among.get(word, word) for word in close)]
    return f"Did you mean vmnest {meant[0]}? All of them: vmnest --help" if meant else ""


def _one_of(words: list[str]) -> str:
    return f"One of: {', '.join(dict.fromkeys(words))}. See vmnest --help."
