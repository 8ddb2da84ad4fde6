"""``cp``: between this machine and sandboxes, within a sandbox, from one sandbox to another."""

from __future__ import annotations

import contextlib
import os

from .. import errors
from ..ops import copies, files
from . import batch, meter, output, terminal, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from . import verbs

__all__ = [
    "CopyOptions",
    "StandardInput",
    "add_options",
    "build_parser",
    "copy_all",
    "open_input",
    "parse_place",
    "run",
]

STREAM = "-"
MOST_SHOWN = 10  # of what was not copied, on a terminal


class CopyOptions(words.Options):
    """Of every verb that copies."""

    recursive: bool
    exclude: list[str] | None
    no_resume: bool


_NOTES = (
    "NAME:PATH is a path in a sandbox; a relative one begins at its working directory. A path with a colon that is\n"
    "one on this machine is written with its directory: ./a:b. A dash is standard input, or standard output.\n"
    "Into a directory that is there goes a copy of the source's name; DIRECTORY/. means what is in it.\n"
    "PATTERN is a name at any level (*.pyc), or with a slash a path from the directory that is copied (a/**/b)."
)


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    parser = words.Parser(verb.title, summary=verb.summary, names="SRC... DST", notes=_NOTES, options=CopyOptions)
    add_options(parser)
    return parser


def add_options(parser: words.Parser) -> None:
    """What ``cp`` and ``fs cp`` take."""
    parser.switch("-r", "-R", "--recursive", help="copy directories with all that is in them")
    parser.option(
        "--exclude",
        metavar="PATTERN",
        repeat=True,
        help="leave out what meets this in a directory (repeatable)",
    )
    parser.switch("--no-resume", help="fail if a sandbox is suspended, instead of resuming it")


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it."""
    assert isinstance(options, CopyOptions)
    output.remark_unusual_place(options=options)
    *sources, destination = options.names
    if STREAM not in options.names:
        return copy_all([parse_place(source) for source in sources], parse_place(destination), options=options)
    if len(sources) > 1 or sources == [destination]:
        raise errors.UsageError("a dash is for one copy: from standard input, or to standard output")
    if destination == STREAM:
        return _write_out(parse_place(sources[0]), options=options)
    return _read_in(parse_place(destination), options=options)


def parse_place(text: str) -> copies.Place:
    """``NAME:PATH``, or a path on this machine."""
    name, colon, path = text.partition(":")
    if not colon or "/" in name or name.startswith("."):
        # Arguments are UTF-8 by now (``values.to_utf8``); the names of files here are what the locale says.
        return copies.Place(None, os.fsdecode(text.encode("utf-8", "surrogateescape")))
    if not name:
        raise errors.UsageError(
            f"the name of the sandbox is missing: {text!r}", hint=f"A file of this machine is written ./{text}"
        )
    return copies.Place(name, path or files.WORKDIR)


def copy_all(sources: Sequence[copies.Place], destination: copies.Place, *, options: CopyOptions) -> int:
    """Copy each source, whatever becomes of the others, and tell all of it."""
    if destination.sandbox is None and any(source.sandbox is None for source in sources):
        raise _no_sandbox()
    copier = _copier(options)
    if len(sources) > 1:
        copier.check_takes_several(destination)

    def copy(source: copies.Place) -> dict[str, object]:
        with meter.open_meter("copying", options=options) as shown:
            return copier.copy(
                source,
                destination,
                recursive=options.recursive,
                exclude=options.exclude or (),
                progress=shown.take,
            )

    answers, failed = batch.attempt(copy, sources, options=options)
    return _tell(answers, failed, options=options)


def _no_sandbox() -> errors.UsageError:
    return errors.UsageError(
        "neither side is in a sandbox",
        hint="NAME:PATH is a path in a sandbox, for example: vmnest cp notes.txt demo:/work/",
    )


def _copier(options: CopyOptions) -> copies.Copier:
    return copies.Copier(resume=not options.no_resume, local=options.local or None, region=options.region)


def _tell(answers: list[dict[str, object]], failed: list[errors.VmnestError], *, options: words.Options) -> int:
    _tell_what_is_left_out(copies.left_out(answers), options=options)
    try:
        copies.check_whole(answers)
    except errors.IncompleteCopyError as error:
        failed.append(error)
    batch.conclude(answers, failed, options=options, done="copied")
    return 0


def _tell_what_is_left_out(skipped: list[dict[str, str]], *, options: words.Options) -> None:
    """All of it for whoever keeps it; on a terminal no more than leaves the rest of the screen to be seen."""
    count = len(skipped)
    shown = MOST_SHOWN if count > MOST_SHOWN and terminal.is_terminal(terminal.STDERR) else count
    for each in skipped[:shown]:
        output.remark(f"not copied: {each['path']}: {each['reason']}", options=options)
    if shown < count:
        output.remark(f"not copied: and {count - shown} more; --json tells all", options=options)


def _write_out(source: copies.Place, *, options: CopyOptions) -> int:
    if source.sandbox is None:
        raise _no_sandbox()
    if options.json:
        raise errors.UsageError("standard output is either the file or JSON", hint="Leave --json out.")
    with output.warnings_as_remarks(options=options):
        _copier(options).copy_out(source, sink=lambda data: terminal.write_bytes(terminal.STDOUT, data))
    return 0


def _read_in(destination: copies.Place, *, options: CopyOptions) -> int:
    if destination.sandbox is None:
        raise _no_sandbox()
    with output.warnings_as_remarks(options=options), open_input("copying", options=options) as source:
        copied = _copier(options).copy_in(source, destination, source=copies.Place(None, STREAM))
    return _tell([copied], [], options=options)


@contextlib.contextmanager
def open_input(doing: str, *, options: words.Options) -> Iterator[StandardInput]:
    """Standard input, with a meter of how much of it was read, unless the user types it."""
    if terminal.is_terminal(terminal.STDIN):
        yield StandardInput(lambda _: None)
    else:
        with meter.open_meter(doing, options=options) as shown:
            yield StandardInput(shown.take)


class StandardInput:
    """Standard input as a file that is read once, and as the account of how much of it was read."""

    total = None
    path = STREAM

    def __init__(self, watch: Callable[[StandardInput], object]) -> None:
        self.bytes = 0
        self._watch = watch

    def read(self, size: int, /) -> bytes:
        """Up to so many bytes; none at the end."""
        try:
            data = _read_patiently(size)
        except OSError as error:
            raise errors.LocalFileError(f"cannot read standard input: {error.strerror}") from error
        self.bytes += len(data)
        self._watch(self)
        return data


def _read_patiently(size: int) -> bytes:
    while True:
        try:
            return os.read(terminal.STDIN, size)
        except BlockingIOError:  # somebody who shares it made it non-blocking
            import select

            poller = select.poll()
            poller.register(terminal.STDIN, select.POLLIN)
            poller.poll()
