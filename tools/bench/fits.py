"""Straight lines through measured points: what a thing costs at all, and what each more of something adds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_NO_SPREAD = 1e-12  # of relative errors: what rounding leaves


@dataclass(frozen=True)
class Line:
    """``fixed + slope * size``.

    Attributes:
        fixed: What nothing would cost.
        slope: What each more costs.
        fit: How much of the spread the line explains, from 0 to 1; 1 if there is none.
    """

    fixed: float
    slope: float
    fit: float


def fit_line(points: Mapping[float, float]) -> Line:
    """The line with the least squares of the *relative* errors, so that small sizes count as much as large ones."""
    weights = {size: 1 / max(abs(value), 1e-9) ** 2 for size, value in points.items()}
    whole = sum(weights.values())
    middle = sum(weights[size] * size for size in points) / whole
    height = sum(weights[size] * value for size, value in points.items()) / whole
    width = sum(weights[size] * (size - middle) ** 2 for size in points)
    rise = sum(weights[size] * (size - middle) * (value - height) for size, value in points.items())
    slope = rise / width
    fixed = height - slope * middle
    missed = sum(weights[size] * (value - fixed - slope * size) ** 2 for size, value in points.items())
    spread = sum(weights[size] * (value - height) ** 2 for size, value in points.items())
    return Line(fixed, slope, 1.0 if spread < _NO_SPREAD else 1 - missed / spread)


@dataclass(frozen=True)
class Growth:
    """How a cost grows with a size.

    Attributes:
        name: What costs.
        side: Whom: ``ours`` or ``theirs``.
        unit: The unit of the cost.
        per: What the size counts: ``MB``, ``sandbox``, ``client``.
        rows: The values measured at each size.
        goal: The most that the slope should be.
    """

    name: str
    side: str
    unit: str
    per: str
    rows: Mapping[int, Sequence[float]]
    goal: float | None = None

    @property
    def points(self) -> dict[float, float]:
        """The median at each size."""
        return {size: statistics.median(values) for size, values in self.rows.items()}

    @property
    def line(self) -> Line:
        """The line through the medians."""
        return fit_line(self.points)

    @property
    def exponent(self) -> float:
        """Between the two largest sizes the cost grows with this power of the size: 1 in proportion, 0 not at all."""
        (low, before), (high, after) = sorted(self.points.items())[-2:]
        return math.log(max(after, 1e-9) / max(before, 1e-9)) / math.log(high / low)

    def to_wire(self) -> dict[str, object]:
        """For the JSON file."""
        line = self.line
        return {
            "name": self.name,
            "side": self.side,
            "unit": self.unit,
            "per": self.per,
            "medians": {str(size): value for size, value in self.points.items()},
            "fixed": line.fixed,
            "slope": line.slope,
            "fit": line.fit,
            "exponent": self.exponent,
            "goal": self.goal,
        }

    def render(self) -> str:
        """One line of the table."""
        line = self.line
        values = "  ".join(f"{size:g}: {value:.4g}" for size, value in self.points.items())
        slope = f"{line.slope:.3g} {self.unit}/{self.per}"
        goal = f"{self.goal:g}" if self.goal is not None else "-"
        name = f"{self.name}: {self.side}"
        return f"{name:44} {slope:>20} {goal:>6} {line.fixed:>9.4g} {line.fit:5.2f} {self.exponent:5.2f}   {values}"


HEADING = f"{'growth':44} {'slope':>20} {'goal':>6} {'fixed':>9} {'fit':>5} {'power':>5}   medians at each size"
