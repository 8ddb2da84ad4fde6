"""What ``doctor`` looks at. A module here ends with its ``PROBES``: ``def probe(context: Context) -> list[Check]``.

Probes run at the same time, each in a thread of its own, and change nothing. A probe says all it can within
``context.deadline``; what it raises becomes a check of the verdict ``unknown``. ``ops.doctor`` lists the modules.
"""

from __future__ import annotations

from .check import AREAS, FAILED, OK, SKIPPED, UNKNOWN, VERDICTS, WARNING, Check
from .context import Context

__all__ = ["AREAS", "FAILED", "OK", "SKIPPED", "UNKNOWN", "VERDICTS", "WARNING", "Check", "Context"]
