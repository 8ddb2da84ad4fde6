"""``doctor``."""

from __future__ import annotations

from ..ops import doctor
from . import output, render, tables, terminal, values, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from . import verbs

__all__ = ["build_parser", "run"]


class _Options(words.Options):
    timeout: float | None


_NOTES = (
    "It changes nothing. The exit status is 1 if the target that commands would use is not ready: the one that\n"
    "--local or AGENT_SANDBOX_TARGET says, else AWS. With --local AWS is not looked at."
)
_GROUPS = {"host": "This machine", "state": "State files", "local": "Local cloud", "aws": "AWS"}
_TARGETS = {"aws": "on AWS", "local": "on this machine"}
_READY = {True: ("yes", "ok"), False: ("no", "failed"), None: ("-", "skipped")}
_INDENT = 11
_ARROW = "-> "


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    parser = words.Parser(verb.title, summary=verb.summary, notes=_NOTES, options=_Options)
    parser.option(
        "--timeout",
        metavar="SECONDS",
        kind=values.parse_seconds,
        help=f"how long it may take (default: {doctor.DIAGNOSE_SECONDS:.0f})",
    )
    return parser


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Print what was found; 1 if the target is not ready."""
    assert isinstance(options, _Options)
    with output.progress("looking", options=options):
        data = doctor.diagnose(
            local=options.local or None, region=options.region, timeout=options.timeout or doctor.DIAGNOSE_SECONDS
        )
    sheet = _Sheet(terminal.room(terminal.STDOUT), colour=terminal.want_colour(terminal.STDOUT))
    output.result(data, options=options, text="".join(f"{line}\n" for line in sheet.lines(data)))
    return 0 if data["ready"] else 1


class _Sheet:
    """Lines for people. On a terminal they are folded to its width; elsewhere each thing stands in one line."""

    def __init__(self, columns: int | None, *, colour: bool) -> None:
        self._columns = columns
        self._colour = colour

    def lines(self, data: Mapping[str, object]) -> Iterator[str]:
        """All of it."""
        for text in self._texts(data):
            yield from text.split("\n")

    def _texts(self, data: Mapping[str, object]) -> Iterator[str]:
        checks = data["checks"]
        assert isinstance(checks, list)
        for area, title in _GROUPS.items():
            within = [each for each in checks if each["area"] == area]
            if within:
                yield title
            for each in within:
                yield from self._check(each)
            if within:
                yield ""
        yield from self._conclusion(data)

    def _check(self, found: Mapping[str, object]) -> Iterator[str]:
        verdict = str(found["verdict"])
        yield from self._entry(verdict, f"{found['title']}: {found['detail']}", verdict=verdict)
        for remedy in str(found["remedy"] or "").splitlines():
            yield f"{'':{_INDENT}}{_ARROW}{self._fold(remedy, indent=_INDENT + len(_ARROW))}"

    def _conclusion(self, data: Mapping[str, object]) -> Iterator[str]:
        targets = data["targets"]
        assert isinstance(targets, dict)
        yield "Ready for sandboxes"
        for name, title in _TARGETS.items():
            word, verdict = _READY[targets[name]["ready"]]
            chosen = " (the target in use)" if name == data["target"] else ""
            yield from self._entry(word, f"{title}{chosen}", verdict=verdict)

    def _entry(self, word: str, text: str, *, verdict: str) -> Iterator[str]:
        """A word in its column, and folded text beside it."""
        padded = word.ljust(_INDENT - 2)
        colour = tables.VERDICT_COLOURS.get(verdict) if self._colour else None
        yield f"  {tables.paint(padded, colour) if colour else padded}{self._fold(text, indent=_INDENT)}"

    def _fold(self, text: str, *, indent: int) -> str:
        return render.fold(render.to_printable(text), self._columns, indent=" " * indent)
