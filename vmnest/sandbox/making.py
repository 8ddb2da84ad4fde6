"""Making a sandbox: what is asked for is found, its MicroVM run and its agent awaited. Or nothing is left behind."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from .. import errors, registry, settings
from . import launch, wishes
from .link import Link, place_of
from .phases import Phases

if TYPE_CHECKING:
    from ..deadline import Deadline
    from ..target import Target

__all__ = ["make"]

_LAST_LINES = 5
_LONGEST_LINE = 200
_LOOK_SECONDS = 2.0


def make(
    wish: wishes.Wish,
    *,
    place: Target,
    deadline: Deadline,
    records: registry.Registry | None = None,
    verify_tls: bool | None = None,
    replace: bool = False,
) -> Link:
    """A new sandbox, whose agent answers.

    Args:
        wish: What is asked for; what of it cannot be had is refused before anything is recorded, ended or started.
        place: Where to make it.
        deadline: Until when.
        records: Where to record it, if not where the environment says.
        verify_tls: False: do not verify its endpoint's certificate.
        replace: End the sandbox that has the name, if there is one.
    """
    records = records or registry.open_default(place.environ)
    wishes.check(wish, place=place)
    verify_tls = settings.is_on("verify_tls", flag=verify_tls, environ=place.environ)
    if not replace:
        records.check_free(wish.name)
    phases = Phases()
    with phases.phase("reach"):
        place.check_isolation(deadline=deadline)
        control = place.control(deadline=deadline)
    with phases.phase("plan"):
        record, spec = launch.plan(wish, place=place, control=control, deadline=deadline)
    present = records.get(wish.name) if replace else None
    if present is not None:
        is_here = (present.target, present.region) == (place.kind, place.region)
        home = control if is_here else place_of(present).control(deadline=deadline)
        launch.end(present, control=home, deadline=deadline)
    with phases.phase("run"):
        record = launch.start(record, spec, control=control, registry=records, deadline=deadline, instead_of=present)
    link: Link | None = None
    try:
        link = Link(record, place=place, records=records, verify_tls=verify_tls)
        link.control(control)
        link.is_new = True
        with phases.phase("agent"):
            link.wait_ready(deadline=deadline)
    except BaseException as error:
        launch.discard(record, because=error, control=control, registry=records)
        if link is not None and place.is_local and isinstance(error, errors.VmnestError):
            _show_console(error, link)
        raise
    return link


def _show_console(error: errors.VmnestError, link: Link) -> None:
    """Add the last that it printed: on this machine that is known at once, on AWS only after a while."""
    from .logs import Logs

    lines: list[str] = []
    with contextlib.suppress(errors.VmnestError):  # that it cannot be had is no reason to hide what happened
        for event in Logs(link).read(tail=_LAST_LINES, timeout=_LOOK_SECONDS):
            lines.extend(errors.quote(line, limit=_LONGEST_LINE) for line in event.message.splitlines() if line.strip())
    if lines:
        error.details["log"] = lines[-_LAST_LINES:]
        error.add_hint("\n".join(["It printed at last:", *(f"  {line}" for line in lines[-_LAST_LINES:])]))
