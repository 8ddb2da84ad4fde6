"""The files that remember sandboxes and infrastructure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .check import Check
    from .context import Context

__all__ = ["PROBES"]

PROBES: tuple[Callable[[Context], list[Check]], ...] = ()
