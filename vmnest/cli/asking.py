"""Asking the user before something is removed for good."""

from __future__ import annotations

from .. import errors
from . import render, terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .words import Options

__all__ = ["agree"]

_YES = ("y", "yes")


def agree(shown: str, *, question: str, refusal: str, options: Options) -> None:
    """Show what goes, and have the user agree.

    Args:
        shown: Lines that say what goes.
        question: What is asked; ``[y/N]`` is added.
        refusal: The error's message where nobody can be asked.
        options: With ``--json`` nobody is asked.

    Raises:
        errors.UsageError: there is no terminal to ask on.
        errors.VmnestError: the answer is no.
    """
    if options.json or not (terminal.is_terminal(terminal.STDIN) and terminal.is_terminal(terminal.STDERR)):
        raise errors.UsageError(refusal, hint="If you mean it: --yes. On a terminal, it asks.")
    terminal.tell(f"{shown}{render.to_printable(question)} [y/N] ")
    answer = terminal.read_bytes(terminal.STDIN, 1024).decode("utf-8", errors="replace").strip().lower()
    if answer not in _YES:
        raise errors.VmnestError("nothing was removed")
