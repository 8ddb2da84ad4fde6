"""Verbs that take several names: each is done, whatever becomes of the others, and all of it is told."""

from __future__ import annotations

from .. import errors
from . import output, render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    from .words import Options

    Item = TypeVar("Item")

__all__ = ["attempt", "conclude", "run"]


def run(
    operate: Callable[[str], dict[str, object]], *, options: Options, doing: str, done: str
) -> list[dict[str, object]]:
    """Call ``operate`` with each name, print the names of those for which it went well, and return what it answered.

    Args:
        operate: Does it, for one name.
        options: The command line's.
        doing: What the user is told while it takes long: ``ending``.
        done: What the answers are called in the JSON object: ``removed``.

    Raises:
        errors.VmnestError: the first failure, when all names were tried. With ``--json``, where only the error is
            printed, its details tell for which names it went well.
    """

    def watch(name: str) -> dict[str, object]:
        with output.progress(f"{doing} {name}", options=options):
            return operate(name)

    answers, failed = attempt(watch, options.names, options=options)
    text = "".join(f"{render.to_printable(each['name'])}\n" for each in answers)
    went_well = [each["name"] for each in answers]
    conclude(answers, failed, options=options, done=done, text=text, went_well=went_well)
    return answers


def attempt(
    operate: Callable[[Item], dict[str, object]], items: Iterable[Item], *, options: Options
) -> tuple[list[dict[str, object]], list[errors.VmnestError]]:
    """Call ``operate`` with each item; what it answered, and what it failed with."""
    answers: list[dict[str, object]] = []
    failed: list[errors.VmnestError] = []
    for item in dict.fromkeys(items):
        try:
            with output.warnings_as_remarks(options=options):
                answers.append(operate(item))
        except errors.VmnestError as error:
            failed.append(error)
    return answers, failed


def conclude(
    answers: list[dict[str, object]],
    failed: list[errors.VmnestError],
    *,
    options: Options,
    done: str,
    text: str = "",
    went_well: object = None,
) -> None:
    """Print the answers, tell the failures, and raise the first of them.

    Args:
        answers: What there is of them; with ``--json`` not printed if anything failed.
        failed: The failures.
        options: The command line's.
        done: What the answers are called in the JSON object, and in the details of an error.
        text: The answers as text.
        went_well: What stands for them in the details of an error, if not they themselves.
    """
    if not failed or not options.json:
        output.result({done: answers}, options=options, text=text)
    if failed:
        failed[0].details[done] = answers if went_well is None else went_well
        for other in failed[1:]:
            output.remark(other.message, options=options)
        raise failed[0]
