"""Results on standard output, remarks on standard error, each as the global options want it."""

from __future__ import annotations

import contextlib

from .. import daemon, registry, settings
from . import render, tables, terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .words import Options

__all__ = [
    "is_local",
    "progress",
    "remark",
    "remark_failures",
    "remark_local_cloud",
    "remark_unusual_place",
    "result",
    "table",
    "warnings_as_remarks",
]


def result(data: object, *, options: Options, text: str) -> None:
    """The command's result: ``data`` as one JSON object with ``--json``, else ``text``."""
    if options.json:
        text = render.render_json(data, indented=terminal.is_terminal(terminal.STDOUT))
    terminal.write_text(terminal.STDOUT, text)


def table(columns: Sequence[tables.Column | str], rows: Iterable[Sequence[object]], *, wide: bool = False) -> str:
    """A table for standard output: as wide as the terminal if it is one, unless it shall be ``wide``; else whole."""
    fits = terminal.is_terminal(terminal.STDOUT) and not wide
    return tables.render_table(
        columns,
        rows,
        room=terminal.size()[0] if fits else None,
        colour=terminal.want_colour(terminal.STDOUT),
        ellipsis=terminal.ellipsis(),
    )


def remark(text: str | None, *, options: Options) -> None:
    """A line for the user beside the result. Not with ``--json``, where standard error is for a JSON error alone."""
    if text and not options.quiet and not options.json:
        terminal.tell(f"vmnest: {render.render_remark(text, room=terminal.room(terminal.STDERR))}")


def remark_failures(failures: Iterable[tuple[str, object]], *, options: Options) -> None:
    """Remarks on what went wrong beside the result: a text and an error (as JSON has it) each.

    What was said already is not said again. Below it stands what to do, if that is known.
    """
    told: set[str] = set()
    for text, error in failures:
        if text not in told:
            told.add(text)
            remark(text, options=options)
            hint = error.get("hint") if isinstance(error, dict) else None
            if hint and hint not in told and not options.quiet and not options.json:
                told.add(hint)
                terminal.tell(render.render_hint(hint, room=terminal.room(terminal.STDERR)))


def remark_unusual_place(*, options: Options) -> None:
    """Say where the names of sandboxes are kept, if that is not the usual place."""
    remark(registry.locate().note, options=options)


def is_local(*, options: Options) -> bool:
    """What is made is made on this machine."""
    return settings.is_local(options.local or None, environ=settings.environment())


def remark_local_cloud(*, options: Options) -> None:
    """Say of the local cloud that runs what is not as this environment asks for it. For verbs that make sandboxes."""
    if is_local(options=options):
        for note in daemon.notes(settings.environment()):
            remark(note, options=options)


def progress(text: str, *, options: Options) -> terminal.Progress:
    """Say what takes so long, once it does, if somebody watches."""
    return terminal.Progress(render.to_printable(text), shown=not options.quiet and not options.json)


@contextlib.contextmanager
def warnings_as_remarks(*, options: Options) -> Iterator[None]:
    """Make remarks of the library's warnings; Python would print them as they are, also beside ``--json``.

    For verbs that load ``logging`` anyway: it is slow.
    """
    import logging

    class Remarks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            remark(record.getMessage(), options=options)

    handler = Remarks(logging.WARNING)
    logger = logging.getLogger(__package__.rpartition(".")[0])
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
