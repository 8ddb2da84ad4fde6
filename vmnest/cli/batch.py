"""Verbs that take several names: each is done, whatever becomes of the others, and all of it is told."""

from __future__ import annotations

from .. import errors
from . import output, render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .words import Options

__all__ = ["run"]


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
    answers: list[dict[str, object]] = []
    failed: list[errors.VmnestError] = []
    for name in dict.fromkeys(options.names):
        try:
            with (
                output.warnings_as_remarks(options=options),
                output.progress(f"{doing} {name}", options=options),
            ):
                answers.append(operate(name))
        except errors.VmnestError as error:
            failed.append(error)
    if not failed or not options.json:
        text = "".join(f"{render.to_printable(each['name'])}\n" for each in answers)
        output.result({done: answers}, options=options, text=text)
    if failed:
        failed[0].details[done] = [each["name"] for each in answers]
        for other in failed[1:]:
            output.remark(other.message, options=options)
        raise failed[0]
    return answers
