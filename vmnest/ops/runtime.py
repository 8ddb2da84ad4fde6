"""What runs here."""

from __future__ import annotations

import os
import sys

from .. import __version__

__all__ = ["version"]


def version() -> dict[str, object]:
    """The version of vmnest, where it lies, and the Python that runs it."""
    return {
        "version": __version__,
        "python": sys.version.split()[0],
        "platform": sys.platform,
        "path": os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    }
