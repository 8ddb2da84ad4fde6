"""Paths of this machine that a tool reads as a whole: configuration, and directories to make images of."""

from __future__ import annotations

from .. import policy

__all__ = ["allow"]


def allow(path: str) -> str:
    """The path without links, if this server may read there.

    Raises:
        errors.HostPathRefusedError: it may not.
        errors.LocalFileError: it is neither a file nor a directory.
    """
    return policy.from_settings().resolve(path)
