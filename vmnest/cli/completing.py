"""What a shell may offer for the word at the cursor: ``vmnest --complete SHELL WORD... CURRENT``.

The shells' own part (``completion``) knows no verb and no option: it asks here at every TAB, so that what was installed
once completes later versions too. The answer's first line says what the shell is to add by itself (``nothing``,
``files``, ``directories``); then comes a candidate a line, for zsh and fish with a tab and its description.

It costs little more than the start of Python: the table of verbs, the parser of one verb and the names of sandboxes are
read, no service is asked, no lock is taken. What is wrong is no matter for whoever presses TAB: then there is less to
choose from.
"""

from __future__ import annotations

import re

from .. import errors, registry, settings
from ..wire import names
from . import manual, render, terminal, values, verbs, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Candidates = Iterator[tuple[str, str]]

__all__ = ["SHELLS", "Offer", "offer", "run"]

SHELLS = ("bash", "zsh", "fish")
NOTHING, FILES, DIRECTORIES = "nothing", "files", "directories"


class Offer:
    """What there is to choose from.

    Attributes:
        candidates: Whole words, each with its description.
        adds: What else the shell offers by itself.
    """

    __slots__ = ("adds", "candidates")

    def __init__(self, candidates: Candidates | None = None, *, adds: str = NOTHING) -> None:
        self.candidates = list(candidates or ())
        self.adds = adds


def run(arguments: Sequence[str]) -> int:
    """Answer a shell."""
    shell, *typed = arguments if len(arguments) > 1 else ("", "")
    answer = _for_bash(typed) if shell == "bash" else _with_descriptions(offer(typed[:-1], current=typed[-1]))
    # UTF-8 as it was read, whatever the locale is: a candidate that is written otherwise names nothing.
    terminal.write_bytes(terminal.STDOUT, answer.encode("utf-8", "surrogateescape"))
    return 0


def _with_descriptions(offered: Offer) -> str:
    lines = (f"{word}\t{render.to_printable(meaning)}\n" for word, meaning in offered.candidates)
    return f"{offered.adds}\n{''.join(lines)}"


# -- what there is -----------------------------------------------------------------------------------------------------


class _Here(str):
    """The word at the cursor on its way through the parser, which keeps it as it is where it takes it for a word."""

    __slots__ = ()


def offer(typed: Sequence[str], *, current: str) -> Offer:
    """What the word at the cursor may become, also what does not begin with it.

    Args:
        typed: The words before it, without the program and without quoting.
        current: Its beginning.
    """
    found = verbs.look_for(typed)
    if found.verb is None:
        return _offer_verbs(found, current=current)
    parser = verbs.build_parser(found.verb)
    words.add_globals(parser)
    # Any option that there is would do.
    here = _Here("--help" if current.startswith("-") else "")
    parts = words.split(parser, [*found.before, *found.rest, here])
    if parts.words and parts.words[-1] is here:
        return Offer(adds=FILES)
    if parts.values and parts.values[-1] is here:
        return _offer_values(parser.title, parts.options[-1].partition("=")[0], current=current)
    if parts.names and parts.names[-1] is here:
        return _offer_names(parser, parts, current=current)
    flag, equals, value = current.partition("=")
    if equals:
        return _offer_values(parser.title, flag, current=value, prefix=f"{flag}=")
    return Offer(_options(parser, given=parts.options[:-1], current=current))


def _offer_verbs(found: verbs.Found, *, current: str) -> Offer:
    if found.rest or (found.words and found.words[0] not in verbs.GROUPS) or len(found.words) > 1:
        return Offer()  # after a word that is no verb
    if found.before[-1:] == ["--region"]:
        return Offer()
    if current.startswith("-"):
        return Offer(_options_before_verb())
    return Offer(_verbs_in(found.words[0]) if found.words else _first_words())


def _options_before_verb() -> Candidates:
    for spelled, meaning in manual.OPTIONS:
        for flag in spelled.split(", "):
            yield flag.partition(" ")[0], meaning


def _verbs_in(group: str) -> Candidates:
    return ((verb.words[1], verb.summary) for verb in verbs.in_group(group))


def _first_words() -> Candidates:
    yield from ((verb.title, verb.summary) for verb in verbs.VERBS if len(verb.words) == 1)
    yield from verbs.GROUPS.items()


def _options(parser: words.Parser, *, given: Sequence[str], current: str) -> Candidates:
    used = {option.partition("=")[0] for option in given}
    for row in parser.rows:
        if row.is_repeatable or used.isdisjoint(row.flags):
            for flag in row.flags:
                if flag.startswith("--") or not current.startswith("--"):
                    yield flag, row.help


# -- values ------------------------------------------------------------------------------------------------------------


def _words(*known: str) -> Callable[[], Candidates]:
    return lambda: ((word, "") for word in known)


def _signals() -> Candidates:
    import signal

    return ((each.name.removeprefix("SIG"), str(each.value)) for each in signal.Signals)


def _limits() -> Candidates:
    return ((f"{name}=", "") for name in values.LIMITS)


def _variables() -> Candidates:
    return ((name, "") for name in sorted(settings.environment()) if name.isascii() and name.isidentifier())


def _listed_states() -> Candidates:
    from ..ops import views

    return ((state, "") for state in views.STATES)


def _memory_classes() -> Candidates:
    from ..control import image_specs

    return ((str(mib), "MiB") for mib in image_specs.MEMORY_CLASSES_MIB)


# Of options (of one verb, or of all) whose values are known, or files of this machine: others may be anything, or are
# in the sandbox.
_VALUES: dict[str, Callable[[], Candidates] | str] = {
    "ls --state": _listed_states,
    "image build --memory": _memory_classes,
    "--state": _words(*names.STATES),
    "--signal": _signals,
    "--ulimit": _limits,
    "--env": _variables,
    "--secret": _variables,
    "--ingress": _words(*names.INGRESS_CONNECTORS),
    "--egress-connector": _words(*names.EGRESS_CONNECTORS),
    "--egress-allow": _words("internet"),
    "--env-file": FILES,
    "--file": FILES,
}


def _offer_values(title: str, flag: str, *, current: str, prefix: str = "") -> Offer:
    known = _VALUES.get(f"{title} {flag}", _VALUES.get(flag, NOTHING))
    if isinstance(known, str):
        return Offer(adds=known)
    # What follows in a value that has an equals sign of its own may be anything.
    return Offer() if "=" in current else Offer((prefix + word, meaning) for word, meaning in known())


# -- names -------------------------------------------------------------------------------------------------------------

# Verbs whose NAME is no sandbox's, or none that exists; and those whose paths are in the sandbox.
_OTHER_NAMES = {("create", "NAME"), ("adopt", "NAME"), ("infra output", "NAME"), ("fs cp", "SRC"), ("fs mv", "SRC")}


def _offer_names(parser: words.Parser, parts: words.Split, *, current: str) -> Offer:
    kind = parser.kind(len(parts.names) - 1)
    if (parser.title, kind) in _OTHER_NAMES:
        return Offer()
    given = parts.names[:-1] if "..." in parser.names else []
    is_local = parts.has("--local")
    if kind == "NAME":
        return Offer(each for each in _sandboxes(is_local=is_local) if each[0] not in given)
    if kind == "SRC":
        return _offer_places(current, is_local=is_local)
    if kind == "SHELL":
        return Offer((shell, "") for shell in SHELLS)
    if kind == "config":
        return Offer(iter([("config", "Print what makes a host program start the server")]))
    if kind == "CLIENT":
        from . import hosts

        return Offer((client, host.title) for client, host in hosts.HOSTS.items())
    return Offer(adds=DIRECTORIES if kind == "DIR" else NOTHING)


def _sandboxes(*, is_local: bool) -> Candidates:
    try:
        records = registry.open_default().all()
    except errors.VmnestError:
        return  # the next command tells what is wrong
    for record in records:
        # Names that older versions took may be anything.
        if record.name.isprintable() and not record.name.startswith("-"):
            if record.target == settings.TARGET_LOCAL:
                yield record.name, "on this machine"
            elif not is_local:
                yield record.name, " ".join(filter(None, ("on AWS,", record.region or "no region")))


def _offer_places(current: str, *, is_local: bool) -> Offer:
    """``NAME:PATH``, or a path on this machine."""
    name, colon, _ = current.partition(":")
    if "/" in name or name.startswith((".", "~")):
        return Offer(adds=FILES)
    if colon:
        return Offer()  # a path in a sandbox, which would have to be asked
    known = _sandboxes(is_local=is_local)
    return Offer(((f"{name}:", where) for name, where in known if not set(name) & {":", "/"}), adds=FILES)


# -- bash --------------------------------------------------------------------------------------------------------------


def _for_bash(typed: Sequence[str]) -> str:
    """Bash neither takes the quoting off the words nor puts it on the candidates, and shows what it is given."""
    *before, (current, quote) = map(_unquote, typed)
    offered = offer([word for word, _ in before], current=current)
    fitting = (_quote(word, quote) for word, _ in offered.candidates if word.startswith(current))
    return "".join(f"{line}\n" for line in (offered.adds, *filter(None, fitting)))


def _unquote(raw: str) -> tuple[str, str]:
    """A word as the command gets it, and the quotation mark that is still open at its end."""
    text, quote = "", ""
    chars = iter(raw)
    for char in chars:
        if char == "\\" and quote != "'":
            escaped = next(chars, "")
            text += f"\\{escaped}" if quote and escaped not in '"\\$`' else escaped
        elif char == quote:
            quote = ""
        elif char in "'\"" and not quote:
            quote = char
        else:
            text += char
    return text, quote


def _quote(word: str, quote: str) -> str:
    """A candidate as bash puts it into the line, where this quotation mark is open; empty if that cannot be."""
    if not quote:
        return re.sub(r"[^\w@%+=:,./-]", r"\\\g<0>", word)
    if quote in word or (quote == '"' and "!" in word):
        return ""
    return word if quote == "'" else re.sub(r"[\\$`]", r"\\\g<0>", word)
