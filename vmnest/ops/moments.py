"""Moments as JSON has them, in one form: ISO 8601 with the offset, in UTC (``2026-11-30T11:39:05+00:00``)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["from_epoch", "from_iso", "to_iso"]


def to_iso(moment: datetime, *, fractions: bool = False) -> str:
    """The text of a moment, to the second, or to the millisecond. It must know its time zone."""
    from datetime import timezone

    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds" if fractions else "seconds")


def from_epoch(seconds: float | None, *, fractions: bool = False) -> str | None:
    """The text of seconds since the epoch; None if they are none, or no time that there is: files say anything."""
    from datetime import datetime, timezone

    try:
        if seconds is None:
            return None
        return to_iso(datetime.fromtimestamp(seconds, timezone.utc), fractions=fractions)
    except (OverflowError, ValueError, OSError):
        return None


def from_iso(text: object) -> datetime | None:
    """The moment that a member of JSON tells; None if that is no text."""
    if not isinstance(text, str):
        return None
    from datetime import datetime

    return datetime.fromisoformat(text)
