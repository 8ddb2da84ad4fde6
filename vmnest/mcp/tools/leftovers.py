"""What a copy left out, as much of it as one reads: the list is the sandbox's, and may be anything."""

from __future__ import annotations

from ... import errors
from ...ops import copies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LONGEST_TOLD", "MOST_SKIPPED", "shorten"]

MOST_SKIPPED = 50
LONGEST_TOLD = 300  # characters of a path or a reason


def shorten(data: Mapping[str, object]) -> dict[str, object]:
    """A copy as ``ops.copies`` describes it, with ``complete``: nothing is missing that a copy is expected to have."""
    skipped = copies.left_out([dict(data)])
    try:
        copies.check_whole([dict(data)])
    except errors.IncompleteCopyError:
        is_complete = False
    else:
        is_complete = True
    shown = [
        {name: errors.quote(text, limit=LONGEST_TOLD) for name, text in each.items()} for each in skipped[:MOST_SKIPPED]
    ]
    return {**data, "complete": is_complete, "skipped": shown, "skipped_count": len(skipped)}
