"""What sandboxes cost, and the images that they start from: an estimate, of their states and sizes."""

from __future__ import annotations

from .. import errors, settings
from ..deadline import Deadline
from . import crowd, estimates, image_sizes, inventory, prices, sandboxes, views
from .estimates import Size
from .prices import Range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .image_sizes import Key, Sizes
    from .inventory import Place

__all__ = ["LONGEST_HOURS", "MOST_HOURS", "estimate_cost", "quote_cost"]

ASK_SECONDS = 60.0
LONGEST_HOURS = 8.0  # no MicroVM lives longer
MOST_HOURS = 1_000_000  # of many, one after the other

_ABOUT_TIME = (
    "How long a sandbox was suspended is not known. The most is if it never was, but for a stop that it is still in; "
    "the least is if it was as soon as its idle policy allows, and is so from now on.",
)
_ABOUT_SANDBOXES = (
    f"Prices are those of {prices.REGION} as of {prices.AS_OF}; another region may have others.",
    "A sandbox that runs is taken to keep to its baseline; what it uses beyond that is billed on top, up to four times "
    "as much.",
    *_ABOUT_TIME,
    "How large a snapshot is while a sandbox is suspended is not known: at most all its memory and its disk.",
    f"Left out are suspends and resumes (${prices.TABLE['snapshot_write_gb']} and ${prices.TABLE['snapshot_read_gb']} "
    "per GB of the snapshot, each time), logs, traffic and taxes.",
)
_ABOUT_IMAGES = (
    "An image has a snapshot for each kind of processor; whether one or all of them are billed is not known.",
    f"A version of an image is billed for at least {prices.LEAST_STORED_DAYS} days, also while it is INACTIVE.",
)
_ABOUT_LOCAL = "Sandboxes on this machine cost nothing."


def estimate_cost(
    *,
    names: Sequence[str] = (),
    unnamed: bool = False,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = ASK_SECONDS,
) -> dict[str, object]:
    """Estimate what sandboxes cost an hour as they are, cost so far, and may cost until they expire, in US dollars.

    Amounts are ranges, since nobody tells how long a sandbox was suspended; what an amount takes for granted is told in
    ``assumptions``. An amount is null where something that it takes is not known, as ``reasons`` says. The storage of
    images is apart, and by the month. Sandboxes on this machine cost nothing.

    Args:
        names: Of these sandboxes only.
        unnamed: Also of the MicroVMs that have no name here and have not ended, and of all images of the account.
        local: True: only those on this machine; False: only those on AWS.
        region: AWS region to ask, instead of the recorded ones.
        timeout: Seconds that asking may take.
    """
    from datetime import datetime, timezone

    deadline = Deadline(timeout)
    places: list[Place] = []
    if names:
        found = _show(names, local=local, region=region, deadline=deadline)
    else:
        places, found = inventory.survey(unnamed=unnamed, local=local, region=region, timeout=timeout)
    billed = [view for view in found if view["target"] != settings.TARGET_LOCAL]
    sizes = image_sizes.Sizes(region=region, deadline=deadline)
    failed = [place.to_failure() for place in places if place.failure is not None] if unnamed else []
    used = [key for key in map(image_sizes.key_of, billed) if key is not None]
    kept = _list_kept(places, sizes, failed) if unnamed else []
    known = sizes.find([*used, *kept])
    now = datetime.now(timezone.utc)
    priced = [estimates.estimate(view, _size_of(view, known), now=now) for view in found]
    return {
        "sandboxes": [each.to_json() for each in priced],
        "images": [_describe_image(key, size) for key, size in known.items()],
        "total": {**estimates.total(priced), "images_per_month": _total_stored([*known.values()])},
        "currency": prices.CURRENCY,
        "prices": {"as_of": prices.AS_OF, "region": prices.REGION, **_table()},
        "assumptions": _assumptions(
            has_billed=bool(billed), has_images=bool(known), has_local=len(billed) < len(found)
        ),
        **({"failed": failed} if failed else {}),
    }


def _show(
    names: Sequence[str], *, local: bool | None, region: str | None, deadline: Deadline
) -> list[dict[str, object]]:
    """What is known of sandboxes. Of one alone it is an error that the service cannot be asked; else it is told."""
    records = [sandboxes.require(name, local=local) for name in dict.fromkeys(names)]
    controls = views.Controls(region=region, deadline=deadline)
    for record in records:
        controls.try_reach(record)  # before threads do
    look = views.Look(region=region, deadline=deadline, controls=controls)
    return crowd.map_parallel(look.closely_at if len(records) == 1 else look.at, records)


def quote_cost(*, memory: int, hours: float = LONGEST_HOURS) -> dict[str, object]:
    """Estimate what a sandbox of a size would cost on AWS, in US dollars. Asks nobody, and needs no account.

    Args:
        memory: Its memory in MiB: 512, 1024, 2048, 4096 or 8192.
        hours: How long it runs.
    """
    from decimal import Decimal

    from ..control.image_specs import MEMORY_CLASSES_MIB

    if memory not in MEMORY_CLASSES_MIB:
        sizes = ", ".join(map(str, MEMORY_CLASSES_MIB))
        raise errors.UsageError(f"no memory of a MicroVM on AWS: {memory} MiB", hint=f"In MiB it is one of {sizes}.")
    if not 0 < hours <= MOST_HOURS:
        raise errors.UsageError(f"hours must be a number up to {MOST_HOURS}: {hours}")
    running = prices.Range(prices.running_second(memory)).times(3600)
    return {
        "memory": memory,
        "cpus": memory / prices.MIB_PER_VCPU,
        "hours": hours,
        "running_hour": running.to_json(),
        "suspended_hour": prices.suspended_second(memory).times(3600).to_json(),
        "running": running.times(Decimal(str(hours))).to_json(),
        "currency": prices.CURRENCY,
        "prices": {"as_of": prices.AS_OF, "region": prices.REGION, **_table()},
        "assumptions": [line for line in _ABOUT_SANDBOXES if line not in _ABOUT_TIME],
    }


def _size_of(view: dict[str, object], known: dict[Key, Size]) -> Size:
    key = image_sizes.key_of(view)
    return Size(reason="its image version is not known") if key is None else known.get(key, Size())


def _list_kept(places: Sequence[Place], sizes: Sizes, failed: list[dict[str, object]]) -> list[Key]:
    """The image versions that are kept in the places that can be asked; of the others, it is told why they cannot."""
    kept: list[Key] = []
    for place in places:
        if place.target == settings.TARGET_LOCAL or place.failure is not None:
            continue
        try:
            kept += sizes.list_kept(place.region or "")
        except errors.VmnestError as error:
            failed.append({"target": place.target, "region": place.region, "error": error.to_wire()})
    return kept


def _describe_image(key: Key, size: Size) -> dict[str, object]:
    region, image_arn, number = key
    return {
        "image_arn": image_arn,
        "image_version": number,
        "region": region or None,
        "memory": size.memory_mib,
        "stored_bytes": None if size.stored is None else {"low": int(size.stored.low), "high": int(size.stored.high)},
        "per_month": None if size.stored is None else prices.stored_month(size.stored).to_json(),
        "reason": size.reason,
    }


def _total_stored(sizes: Sequence[Size]) -> dict[str, float] | None:
    stored = [prices.stored_month(size.stored) for size in sizes if size.stored is not None]
    return sum(stored, Range()).to_json() if stored or not sizes else None


def _table() -> dict[str, float]:
    return {name: float(price) for name, price in prices.TABLE.items()}


def _assumptions(*, has_billed: bool, has_images: bool, has_local: bool) -> list[str]:
    lines: list[str] = []
    if has_billed:
        lines += _ABOUT_SANDBOXES
    elif has_images:
        lines.append(_ABOUT_SANDBOXES[0])
    if has_images:
        lines += _ABOUT_IMAGES
    if has_local:
        lines.append(_ABOUT_LOCAL)
    return lines
