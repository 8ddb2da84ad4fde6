"""What AWS's wire has no member for, on its way to the local cloud: one header, signed like the others."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ..wire import names


def to_headers(options: Mapping[str, object] | None) -> list[tuple[str, str]]:
    """The header that carries them, if there are any."""
    if not options:
        return []
    return [(names.LOCAL_OPTIONS_HEADER, json.dumps(options, separators=(",", ":"), sort_keys=True))]
