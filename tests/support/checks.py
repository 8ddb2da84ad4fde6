"""What the checks of doctor are tried with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from vmnest.deadline import Deadline
from vmnest.ops.checks import Check, Context

PROBE_SECONDS = 60.0


def make_context(environ: Mapping[str, str], *, cwd: Path | str = "/", seconds: float = PROBE_SECONDS) -> Context:
    """Circumstances of the test's own: the environment has a PATH and what the test gives it."""
    whole = {"PATH": os.environ["PATH"], **environ}
    return Context(environ=whole, deadline=Deadline(seconds), cwd=str(cwd))


def by_id(checks: Iterable[Check]) -> dict[str, Check]:
    """The checks by their ids, of which there is one each."""
    found: dict[str, Check] = {}
    for each in checks:
        assert each.id not in found
        found[each.id] = each
    return found
