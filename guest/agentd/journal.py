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


def report_exception(message: str) -> None:
    """Write one line about the exception that is being handled, with its traceback."""
    import traceback  # late: it loads the tokenizer

    report(f"{message}: {traceback.format_exc()}")
