"""The agent's own messages: one line each on standard error, where the platform's log collects them."""

from __future__ import annotations

import sys


def report(message: str) -> None:
    """Write one line. A log that cannot be written must not take the agent down."""
    line = "agentd: " + message.replace("\n", "\\n") + "\n"
    try:
        sys.stderr.write(line)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # no standard error, a full disk, a closed stream
        return
