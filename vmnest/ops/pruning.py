"""Forgetting the names of what has ended, and ending what began long ago."""

from __future__ import annotations

import time

from .. import errors, registry, settings
from ..deadline import Deadline
from ..wire import names
from . import crowd, inventory, moments, removal, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["END", "FORGET", "plan_prune", "prune_sandboxes"]

ASK_SECONDS = 30.0
PRUNE_SECONDS = 120.0
FORGET = "forget"
END = "end"
# What the service allows at most, and for clocks that differ some more: after that no MicroVM of a record is left.
_LONGEST_LIFE_SECONDS = names.LONGEST_LIFE_SECONDS + 900
_TOLD = ("name", "microvm_id", "target", "region", "state", "image_arn", "created_at", "started_at")


def plan_prune(
    *,
    older_than: float | None = None,
    unnamed: bool = False,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = ASK_SECONDS,
) -> dict[str, object]:
    """Find the names whose MicroVMs have ended, and what began long ago; change nothing.

    ``sandboxes`` tells what is to be done with each: to ``forget`` its name, or to ``end`` it. ``doubtful`` are those
    that AWS does not know although they may live: in another account, for example. ``failed`` is what could not be
    asked, ``left_out`` a place that was not, since it is not set up here and nobody has chosen it.

    Args:
        older_than: Also the sandboxes that began longer ago than so many seconds: they are to be ended.
        unnamed: Of these also the MicroVMs that have no name here.
        local: True: only on this machine; False: only on AWS.
        region: AWS region to ask, instead of the recorded ones.
        timeout: Seconds that this may take.
    """
    if unnamed and older_than is None:
        raise errors.UsageError(
            "what has no name here has none to be forgotten",
            hint="To end what began long ago, also without a name: vmnest prune --all --older-than 2h",
        )
    places, found = inventory.survey(unnamed=unnamed, local=local, region=region, timeout=timeout)
    now = time.time()
    planned: list[dict[str, object]] = []
    doubtful: list[dict[str, object]] = []
    failed, left_out = inventory.failures(places) if unnamed else ([], [])
    for each in found:
        told = {member: each[member] for member in _TOLD}
        action = _action(each, older_than=older_than, now=now)
        if action is not None:
            planned.append({**told, "action": action})
        elif "error" in each:
            failed.append({**told, "error": each["error"]})
        elif each["state"] == views.GONE:
            doubtful.append(told)
    more: dict[str, object] = {"left_out": left_out} if left_out else {}
    return {"sandboxes": planned, "doubtful": doubtful, "failed": failed, **more}


def _action(view: Mapping[str, object], *, older_than: float | None, now: float) -> str | None:
    began = _seconds(view["started_at"]) or _seconds(view["created_at"])
    age = 0.0 if began is None else now - began
    state = view["state"]
    if view["name"] is not None:
        if state in names.ENDED_STATES or (state == views.GONE and view["target"] == settings.TARGET_LOCAL):
            return FORGET
        is_lost = state in (views.GONE, views.LAUNCHING) or (
            state == names.UNKNOWN and view["target"] == settings.TARGET_AWS
        )
        if is_lost and age > _LONGEST_LIFE_SECONDS:
            return FORGET
    is_alive = state not in (*names.ENDED_STATES, views.GONE, names.UNKNOWN)
    return END if is_alive and older_than is not None and age > older_than else None


def _seconds(moment: object) -> float | None:
    """A view's moment in seconds since the epoch."""
    found = moments.from_iso(moment)
    return None if found is None else found.timestamp()


def prune_sandboxes(
    *,
    older_than: float | None = None,
    unnamed: bool = False,
    only: Sequence[Mapping[str, object]] | None = None,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = PRUNE_SECONDS,
) -> dict[str, object]:
    """Forget the names whose MicroVMs have ended, and end what began long ago; see ``plan_prune``.

    Args:
        older_than: Also end the sandboxes that began longer ago than so many seconds, and forget their names.
        unnamed: Of these also the MicroVMs that have no name here.
        only: Of these, what ``plan_prune`` found before and somebody agreed to.
        local: True: only on this machine; False: only on AWS.
        region: AWS region to ask, instead of the recorded ones.
        timeout: Seconds that this may take.
    """
    deadline = Deadline(timeout)
    planned = plan_prune(older_than=older_than, unnamed=unnamed, local=local, region=region, timeout=timeout)
    found, failed = planned["sandboxes"], planned["failed"]
    assert isinstance(found, list)
    assert isinstance(failed, list)
    if only is not None:
        agreed = {(each["name"], each["microvm_id"]): each["action"] for each in only}
        # Who agreed to the end of one agreed that its name goes, should it have ended by itself meanwhile.
        found = [each for each in found if agreed.get((each["name"], each["microvm_id"])) in (END, each["action"])]
    recorded = {record.name: record for record in registry.open_default().all()}
    controls = views.Controls(region=region, deadline=deadline)
    work: list[tuple[dict[str, object], registry.Record]] = []
    for each in found:
        record = recorded.get(str(each["name"])) if each["name"] is not None else _stand_in(each)
        if record is not None and record.microvm_id == each["microvm_id"]:
            work.append((each, record))
            controls.try_reach(record)

    def perform(item: tuple[dict[str, object], registry.Record]) -> errors.VmnestError | None:
        each, record = item
        try:
            if each["action"] == FORGET:
                registry.open_default().remove(record.name, expected=record)
            else:
                removal.end(record, control=controls.reach(record), region=region, deadline=deadline)
        except errors.VmnestError as error:
            return error
        return None

    outcomes = crowd.map_parallel(perform, work)
    done = [each for (each, _), error in zip(work, outcomes, strict=True) if error is None]
    failed += [
        {**each, "error": error.to_wire()} for (each, _), error in zip(work, outcomes, strict=True) if error is not None
    ]
    return {**planned, "sandboxes": done, "failed": failed}


def _stand_in(each: Mapping[str, object]) -> registry.Record:
    """A record for what has no name, and is in no file: the name is one that none can have."""
    region = each["region"]
    return registry.Record(
        "",
        microvm_id=str(each["microvm_id"]),
        region=region if isinstance(region, str) else None,
        target=str(each["target"]),
    )
