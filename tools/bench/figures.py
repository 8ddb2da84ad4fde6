"""What was measured: rows of both sides, their medians and ratio, the goal beside them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured thing. Lower is better for all of them.

    Attributes:
        name: What was measured.
        unit: Its unit.
        ours: vmnest's values, one a round.
        theirs: The upstream package's, in the same order, or what else ours are held against; none if there is none.
        goal: The ratio to aim for; without ``theirs`` the absolute value.
    """

    name: str
    unit: str
    ours: Sequence[float]
    theirs: Sequence[float] = ()
    goal: float | None = None

    @property
    def ratio(self) -> float | None:
        """Ours by theirs, round by round, so that a drift of the machine falls on both; the median of that."""
        if not self.theirs:
            return None
        return statistics.median(mine / other for mine, other in zip(self.ours, self.theirs, strict=True))

    def to_wire(self) -> dict[str, object]:
        """For the JSON file."""
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": statistics.median(self.ours),
            "theirs": statistics.median(self.theirs) if self.theirs else None,
            "ratio": self.ratio,
            "goal": self.goal,
            "rounds": len(self.ours),
        }

    def render(self) -> str:
        """One line of the table."""
        theirs = f"{statistics.median(self.theirs):10.1f}" if self.theirs else f"{'-':>10}"
        ratio = f"{self.ratio:7.3f}" if self.ratio is not None else f"{'-':>7}"
        goal = f"{self.goal:g}" if self.goal is not None else "-"
        return f"{self.name:52} {statistics.median(self.ours):10.1f} {theirs} {self.unit:4} {ratio}  {goal:>6}"


HEADING = f"{'figure (median)':52} {'ours':>10} {'theirs':>10} {'unit':4} {'ratio':>7}  {'goal':>6}"
