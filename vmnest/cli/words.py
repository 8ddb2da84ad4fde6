"""Takes a command line apart: ``argparse`` for what options mean, and our own rules for where they end.

Those rules, which argparse does not have:

- Options of vmnest stand anywhere before the command to run, also before the verb: ``vmnest --json ls``.
- The command to run begins after ``--``, or (``exec``) with the first word after the name; nothing in it is parsed, so
  ``exec demo ls -la`` and ``exec demo -- --odd`` mean what they say.
- A value may begin with a dash: ``--env -X=1``, ``-e -X=1``.
- Options are never abbreviated, so that a new one cannot change what an old script means.
"""

from __future__ import annotations

import argparse

from .. import errors
from . import verbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import NoReturn

__all__ = ["Option", "Options", "Parser", "Split", "WITHOUT_NAME", "add_globals", "add_no_resume", "split"]


WITHOUT_NAME = "vmnest ls lists all sandboxes. "  # the advice of most verbs
_UNITS = "SECONDS is a number, or one with a unit: 90s, 15m, 2h."


class Options(argparse.Namespace):
    """What every verb has."""

    local: bool
    json: bool
    quiet: bool
    debug: bool
    help: bool
    region: str | None
    names: list[str]
    words: list[str]


class Option:
    """An option, as whoever describes the command line needs it.

    Attributes:
        flags: Its spellings.
        metavar: What its value is called in the help; empty if it takes none.
        help: What it does.
        is_repeatable: It may be given several times, and each of them counts.
    """

    __slots__ = ("flags", "help", "is_repeatable", "metavar")

    def __init__(self, flags: tuple[str, ...], *, metavar: str, help: str, is_repeatable: bool) -> None:  # noqa: A002 - as argparse
        self.flags = flags
        self.metavar = metavar
        self.help = help
        self.is_repeatable = is_repeatable


class Parser:
    """The options and names of one verb.

    Args:
        title: The verb as the user types it.
        summary: What it does; the first line of its help.
        names: The names before the command or the end, as the usage shows them: ``NAME``, ``NAME...``, ``[IMAGE]``,
            ``SRC... DST``.
        command: ``"none"``, or where the command to run begins: ``"after--"``, or ``"after names"`` too.
        notes: Further text for the help.
        without_name: What to do where the name is missing; ends with a space.
        with_more: What to do where there is a name too many; ends with a space.
        habits: What users of other programs type, and does not mean the same here: options, also with the ``--`` behind
            them; and what to do instead, which ends with a space.
        options: The class that declares the verb's own options.
    """

    def __init__(
        self,
        title: str,
        *,
        summary: str,
        names: str = "",
        command: str = "none",
        notes: str = "",
        without_name: str = "",
        with_more: str = "",
        habits: Mapping[str, str] | None = None,
        options: type[Options] = Options,
    ) -> None:
        usage = " ".join(
            part for part in ("vmnest", title, "[options]", names, "" if command == "none" else "-- COMMAND...") if part
        )
        self.title = title
        self.rows: list[Option] = []  # its options, in the order in which help has them
        self.habits = habits or {}
        self._without_name = without_name
        self._with_more = with_more
        self._options = options
        self.usage = usage
        self.names = names
        self.least_names = sum(not name.startswith("[") for name in names.split())
        self.most_names = None if "..." in names else len(names.split())
        self.has_command = command != "none"
        self.starts_command = command == "after names"
        self._long: dict[str, str] = {}  # every spelling of an option -> the one that argparse is given
        self._switches: set[str] = set()
        self._values: list[str] = []
        self._argparse = _Argparse(
            prog=f"vmnest {title}",
            usage=usage.replace("%", "%%"),
            description=summary + ".",
            epilog=notes or None,
            add_help=False,
            allow_abbrev=False,
            formatter_class=_HelpFormatter,
        )

    def switch(self, *flags: str, help: str) -> None:  # noqa: A002 - argparse's own word
        """Add an option without a value."""
        self._argparse.add_argument(*flags, action="store_true", help=help)
        self._know(Option(flags, metavar="", help=help, is_repeatable=False))
        self._switches.update(flags)

    def option(
        self,
        *flags: str,
        metavar: str,
        help: str,  # noqa: A002 - argparse's own word
        kind: Callable[[str], object] = str,
        repeat: bool = False,
    ) -> None:
        """Add an option with a value; ``kind`` makes it from the text, and raises ValueError with the reason."""
        action = "append" if repeat else "store"
        self._argparse.add_argument(*flags, metavar=metavar, help=help, type=self._by_number(kind), action=action)
        self._know(Option(flags, metavar=metavar, help=help, is_repeatable=repeat))
        if metavar == "SECONDS" and _UNITS not in (self._argparse.epilog or ""):
            self._argparse.epilog = "\n".join(filter(None, (self._argparse.epilog, _UNITS)))

    def _by_number(self, kind: Callable[[str], object]) -> Callable[[str], object]:
        def convert(number: str) -> object:
            try:
                return kind(self._values[int(number)])
            except ValueError as error:
                raise argparse.ArgumentTypeError(str(error)) from error

        return convert

    def _know(self, option: Option) -> None:
        self.rows.append(option)
        long = next((flag for flag in option.flags if flag.startswith("--")), option.flags[0])
        self._long.update(dict.fromkeys(option.flags, long))

    @property
    def notes(self) -> str:
        """The further text of its help."""
        return self._argparse.epilog or ""

    def is_known(self, flag: str) -> bool:
        """There is such an option."""
        return flag in self._long

    def is_switch(self, flag: str) -> bool:
        """It takes no value."""
        return flag in self._switches

    def long(self, flag: str) -> str:
        """The option's long spelling."""
        return self._long[flag]

    def parse(self, parts: Split) -> Options:
        """The values of all options, the names and the command's words.

        Raises:
            errors.UsageError: the line cannot be meant.
        """
        if parts.wrong is not None:
            raise parts.wrong
        options = self._options()
        self._values = parts.values
        self._argparse.parse_args(parts.options, namespace=options)
        self._check(parts)
        options.names = parts.names
        options.words = parts.words
        return options

    def kind(self, index: int) -> str:
        """What the usage calls the name at this place: after ``SRC...`` all are SRC; empty if there is none."""
        kinds = self.names.split()
        repeated = next((place for place, kind in enumerate(kinds) if "..." in kind), len(kinds))
        place = min(index, repeated)
        return kinds[place].strip("[].") if place < len(kinds) else ""

    def _check(self, parts: Split) -> None:
        if len(parts.names) < self.least_names:
            missing = self.names.split()[len(parts.names)].rstrip(".")
            if missing == "NAME" and not parts.names:
                missing = "name"
            raise self.wrong(f"the {missing} is missing", advice=self._without_name)
        if self.has_command and not parts.words:
            begin = "" if self.starts_command else "; it begins after --"
            taken = f" ({parts.names[0]!r} is taken for the {self.names.strip('[]')})" if parts.names else ""
            raise self.wrong(f"the command to run is missing{begin}{taken}")
        if self.most_names is not None and len(parts.names) > self.most_names:
            extra = parts.names[self.most_names]
            raise self.wrong(f"what is {extra!r} for? There is one name too many", advice=self._with_more)
        if "" in parts.names:  # as an unset variable of a script leaves it
            kind = self.kind(parts.names.index(""))
            raise self.wrong(f"the {'name' if kind == 'NAME' else kind} is empty", advice=self._without_name)

    def wrong(self, message: str, *, advice: str = "") -> errors.UsageError:
        """The error for a command line that cannot be meant; ``advice`` ends with a space."""
        return errors.UsageError(message, hint=f"{advice}Usage: {self.usage}")

    def unknown(self, flag: str) -> errors.UsageError:
        """The error for an option that there is not."""
        from difflib import get_close_matches

        # Without the dashes, which would make all of them look alike.
        known = [each[2:] for each in self._long if each.startswith("--")]
        close = get_close_matches(flag[2:], known, n=1) if flag.startswith("--") else []
        otherwise = "Options of the command to run stand after --. " if self.has_command else ""
        advice = self.habits.get(flag) or (f"Did you mean --{close[0]}? " if close else otherwise)
        return self.wrong(f"there is no option {flag}", advice=advice)

    def help(self) -> str:
        """The verb's help."""
        return self._argparse.format_help()


def add_globals(parser: Parser) -> None:
    """Add the options that every verb has."""
    for flags, value, meaning in verbs.GLOBAL_OPTIONS:
        if value:
            parser.option(*flags, metavar=value, help=meaning)
        else:
            parser.switch(*flags, help=meaning)
    parser.switch("-h", "--help", help="show this help")


def add_no_resume(parser: Parser) -> None:
    """Add the option of verbs that would resume the sandbox which they use."""
    parser.switch("--no-resume", help="fail if the sandbox is suspended, instead of resuming it")


class Split:
    """A command line in parts: options in their long spelling, names, and the words of the command to run.

    ``options`` has the number of a value in the place of the value, which ``argparse`` would look into (it takes even
    the ``--`` out of ``--env=--``). ``wrong`` is the first mistake in the line. It is kept, not raised, so that
    ``--json`` behind it is still seen.
    """

    __slots__ = ("names", "options", "values", "words", "wrong")

    def __init__(self) -> None:
        self.options: list[str] = []
        self.values: list[str] = []
        self.names: list[str] = []
        self.words: list[str] = []
        self.wrong: errors.UsageError | None = None

    def has(self, flag: str) -> bool:
        """The switch of this long spelling is given."""
        return flag in self.options


def split(parser: Parser, arguments: Sequence[str]) -> Split:
    """Take the arguments of a verb apart."""
    parts = Split()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            _take_after_dashes(parser, parts, rest)
            break
        if word.startswith("-") and word != "-":
            _take_option(parser, parts, word, rest)
        elif parser.starts_command and len(parts.names) == parser.most_names:
            parts.words = [word, *rest]
            break
        else:
            parts.names.append(word)
    return parts


def _take_after_dashes(parser: Parser, parts: Split, rest: list[str]) -> None:
    if not parser.has_command:
        parts.names += rest
        return
    # "exec -- -odd cmd": only now is a name that begins with a dash no option.
    while rest and len(parts.names) < parser.least_names:
        parts.names.append(rest.pop(0))
        if rest[:1] == ["--"]:
            rest.pop(0)
    parts.words = rest


def _take_option(parser: Parser, parts: Split, word: str, rest: list[str]) -> None:
    if word.startswith("--"):
        flag, equals, value = word.partition("=")
        _take_flag(parser, parts, flag, value=value if equals else None, rest=rest)
        return
    typed = word if word in parser.habits or rest[:1] != ["--"] else f"{word} --"
    if typed in parser.habits and parts.wrong is None and _means_something(parser, word):
        parts.wrong = parser.wrong(f"{word} is not here what it is elsewhere", advice=parser.habits[typed])
    # "-qm512": switches, up to the first option with a value, whose value is what follows or the next word.
    letters = word[1:]
    while letters:
        flag, letters = f"-{letters[0]}", letters[1:]
        if parser.is_known(flag) and not parser.is_switch(flag):
            _take_flag(parser, parts, flag, value=letters or None, rest=rest)
            return
        _take_flag(parser, parts, flag, value=None, rest=rest)


def _means_something(parser: Parser, word: str) -> bool:
    """It is an option, or several letters in one word, which are to be told of together."""
    return len(word) > 2 or parser.is_known(word)


def _take_flag(parser: Parser, parts: Split, flag: str, *, value: str | None, rest: list[str]) -> None:
    wrong = ""
    if not parser.is_known(flag):
        parts.wrong = parts.wrong or parser.unknown(flag)
    elif not parser.is_switch(flag):
        if value is None and rest:
            value = rest.pop(0)
        if value is None:
            wrong = f"the value of {flag} is missing"
        else:
            parts.options.append(f"{parser.long(flag)}={len(parts.values)}")
            parts.values.append(value)
    elif value is None:
        parts.options.append(parser.long(flag))
    else:
        wrong = f"{flag} takes no value"
    if wrong and parts.wrong is None:
        parts.wrong = parser.wrong(wrong)


class _Argparse(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise errors.UsageError(message.removeprefix("argument "), hint=f"Usage: {self.usage}")


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        # A fixed width: help is the same text in a pipe, in a narrow window and in the manual.
        super().__init__(prog, max_help_position=30, width=100)

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        super().add_usage(usage, actions, groups, "Usage: ")

    def start_section(self, heading: str | None) -> None:
        super().start_section(heading and heading.capitalize())
