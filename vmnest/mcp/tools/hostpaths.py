"""Paths of this machine that a tool reads as a whole: configuration, and directories to make images of."""

from __future__ import annotations

import os

from .. import policy

__all__ = ["allow"]


def allow(path: str) -> str:
    """The path without links, if this server may read there.

    Raises:
        errors.HostPathRefusedError: it may not.
        errors.LocalFileError: there is no such directory.
    """
    real = os.path.realpath(path)
    with policy.from_settings().open(real):
        return real
