"""What one sandbox costs, from what is known of it. Pure.

A sandbox that runs costs the same every second; one that is suspended costs next to nothing. How long it was suspended
nobody tells, so that an amount is a range:

- high: it ran, and will run, all the time, but for a stop by hand that it is still in;
- low: its idle policy suspended it as early as it could, and will do so at once from now on. Nothing else did.
"""

from __future__ import annotations

from decimal import Decimal

from .. import settings
from ..wire import names
from . import moments, prices
from .prices import Range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

__all__ = ["AMOUNTS", "Estimate", "Size", "estimate", "total"]

AMOUNTS = ("per_hour", "so_far", "until_expiry")

_NOTHING = Range()
_RUNNING = (names.PENDING, names.RUNNING)


class Size:
    """How large an image version is.

    Attributes:
        memory_mib: The baseline of its MicroVMs; None if that is not known.
        loaded: Bytes of the snapshot that a launch reads; None if they are not known.
        stored: Bytes of all its snapshots; None if they are not known.
        reason: Why something is not known.
    """

    __slots__ = ("loaded", "memory_mib", "reason", "stored")

    def __init__(
        self,
        memory_mib: int | None = None,
        *,
        loaded: Range | None = None,
        stored: Range | None = None,
        reason: str | None = None,
    ) -> None:
        self.memory_mib = memory_mib
        self.loaded = loaded
        self.stored = stored
        self.reason = reason


class Estimate:
    """What a sandbox costs.

    Attributes:
        view: The sandbox, as ``ls`` knows it.
        memory_mib: Its baseline; of a local one, what it may use at most. None if that is not known.
        amounts: In dollars, by the names in ``AMOUNTS``; None where something that it takes is not known.
        reasons: Why an amount is None, or what it leaves out.
    """

    __slots__ = ("amounts", "memory_mib", "reasons", "view")

    def __init__(
        self,
        view: Mapping[str, object],
        *,
        memory_mib: int | None,
        amounts: Mapping[str, Range | None],
        reasons: Sequence[str],
    ) -> None:
        self.view = view
        self.memory_mib = memory_mib
        self.amounts = amounts
        self.reasons = reasons

    def to_json(self) -> dict[str, object]:
        """As ``--json`` shows it."""
        return {
            **{member: self.view.get(member) for member in _KEPT},
            "memory": self.memory_mib,
            **{name: None if amount is None else amount.to_json() for name, amount in self.amounts.items()},
            "reasons": list(self.reasons),
        }


_KEPT = ("name", "microvm_id", "target", "region", "state", "image_arn", "image_version", "started_at", "expires_at")


def estimate(view: Mapping[str, object], size: Size, *, now: datetime) -> Estimate:
    """What a sandbox costs.

    Args:
        view: The sandbox, as ``ls`` knows it.
        size: Of the image version that it was started from.
        now: The time.
    """
    if view.get("target") == settings.TARGET_LOCAL:
        details = view.get("local_details")
        memory = details.get("memory") if isinstance(details, dict) else None
        memory = memory if isinstance(memory, int) else None
        return Estimate(view, memory_mib=memory, amounts=dict.fromkeys(AMOUNTS, _NOTHING), reasons=())
    reasons: list[str] = []
    amounts = _amounts(view, size, now=now, reasons=reasons)
    return Estimate(view, memory_mib=size.memory_mib, amounts=amounts, reasons=reasons)


def _amounts(view: Mapping[str, object], size: Size, *, now: datetime, reasons: list[str]) -> dict[str, Range | None]:
    state = view.get("state")
    started = moments.from_iso(view.get("started_at"))
    if state not in names.STATES or started is None:
        reasons.append(_why_unknown(view))
        return dict.fromkeys(AMOUNTS)
    is_over = state in names.ENDED_STATES
    if size.memory_mib is None:
        reasons.append(size.reason or "the size of its image version is not known")
        return {**dict.fromkeys(AMOUNTS), **({"per_hour": _NOTHING, "until_expiry": _NOTHING} if is_over else {})}
    rates = _Rates(size.memory_mib)
    so_far = _so_far(view, rates, started=started, now=now, reasons=reasons)
    if size.loaded is None:
        reasons.append(f"what its start cost is left out: {size.reason or 'the size of its snapshot is not known'}")
    elif so_far is not None:
        so_far += prices.snapshot_read(size.loaded)
    return {
        "per_hour": rates.of(str(state)).times(3600),
        "so_far": so_far,
        "until_expiry": _NOTHING if is_over else _until_expiry(view, rates, started=started, now=now),
    }


def _why_unknown(view: Mapping[str, object]) -> str:
    error = view.get("error")
    if isinstance(error, dict):
        return str(error.get("message"))
    state = view.get("state")
    return f"its state is {state}" if state not in names.STATES else "when it started is not known"


class _Rates:
    """What a second costs, of a MicroVM of that size."""

    def __init__(self, memory_mib: int) -> None:
        self.running = Range(prices.running_second(memory_mib))
        self.suspended = prices.suspended_second(memory_mib)

    def of(self, state: str) -> Range:
        if state in names.ENDED_STATES:
            return _NOTHING
        if state in _RUNNING:
            return self.running
        return self.suspended if state == names.SUSPENDED else Range(self.suspended.low, self.running.high)

    def over(
        self, seconds: Decimal, *, least_running: Decimal | None = None, most_running: Decimal | None = None
    ) -> Range:
        """So many seconds, of which it ran at least and at most so many: none of them, or all."""
        least_running = Decimal(0) if least_running is None else least_running
        most_running = seconds if most_running is None else most_running
        low = self.running.low * least_running + self.suspended.low * (seconds - least_running)
        high = self.running.high * most_running + self.suspended.high * (seconds - most_running)
        return Range(low, high)


def _so_far(
    view: Mapping[str, object], rates: _Rates, *, started: datetime, now: datetime, reasons: list[str]
) -> Range | None:
    ended = moments.from_iso(view.get("terminated_at"))
    if view.get("state") == names.TERMINATED and ended is None:
        reasons.append("when it ended is not known")
        return None
    seconds = _seconds(started, ended or now)
    longest = view.get("max_duration_seconds")
    if isinstance(longest, int):
        seconds = min(seconds, Decimal(longest))  # our clock may be ahead of the service's
    stopped = moments.from_iso(view.get("stopped_at")) if view.get("state") == names.SUSPENDED else None
    most = seconds if stopped is None else min(seconds, _seconds(started, stopped))
    return rates.over(seconds, least_running=_least_running(view, most), most_running=most)


def _least_running(view: Mapping[str, object], most: Decimal) -> Decimal:
    """For how long it ran if only its idle policy suspended it, as early as it could."""
    if view.get("max_duration_seconds") is None:
        return Decimal(0)  # a list says neither this nor whether there is a policy
    policy = view.get("idle_policy")
    idle = policy.get("max_idle_duration_seconds") if isinstance(policy, dict) else None
    return min(most, Decimal(idle)) if isinstance(idle, int) else most


def _until_expiry(view: Mapping[str, object], rates: _Rates, *, started: datetime, now: datetime) -> Range:
    expires = moments.from_iso(view.get("expires_at"))
    if expires is None:  # what a list tells of a MicroVM does not say; none lives longer
        return rates.over(names.LONGEST_LIFE_SECONDS - min(_seconds(started, now), Decimal(names.LONGEST_LIFE_SECONDS)))
    seconds = _seconds(now, expires)
    stays_awake = view.get("state") in _RUNNING and view.get("idle_policy") is None
    return rates.over(seconds, least_running=seconds if stays_awake else None)


def _seconds(start: datetime, end: datetime) -> Decimal:
    return Decimal(max(0, int((end - start).total_seconds())))


def total(estimates: Sequence[Estimate]) -> dict[str, object]:
    """The sum of each amount over the sandboxes of which it is known; None if it is known of none of them.

    ``left_out`` tells of how many it is not known.
    """
    sums: dict[str, object] = {}
    left_out: dict[str, int] = {}
    for name in AMOUNTS:
        amounts = [each.amounts[name] for each in estimates]
        known = [amount for amount in amounts if amount is not None]
        sums[name] = sum(known, _NOTHING).to_json() if known or not amounts else None
        left_out[name] = len(amounts) - len(known)
    return {**sums, "left_out": left_out}
