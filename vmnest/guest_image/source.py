"""Which directory an image is made of."""

from __future__ import annotations

import os
from typing import NamedTuple

from .. import errors, settings
from . import packaged

__all__ = ["DEFAULT_DIRECTORY", "DOCKERFILE", "Source", "find"]

DEFAULT_DIRECTORY = "guest"
DOCKERFILE = "Dockerfile"


class Source(NamedTuple):
    """A directory to make an image of. ``remark`` is for the user, if it is not the one that was asked for."""

    path: str
    is_packaged: bool = False
    remark: str | None = None


def find(given: str | None = None, *, folder: str | None = None) -> Source:
    """The directory that is given; else ``./guest``; else the guest that is part of this package.

    Args:
        given: A path, relative to ``folder``.
        folder: The current directory by default.

    Raises:
        errors.GuestImageError: it is no directory, or has no Dockerfile; or the package is a zip archive, and its guest
            cannot be unpacked.
    """
    base = os.getcwd() if folder is None else folder
    path = os.path.join(base, os.path.expanduser(DEFAULT_DIRECTORY if given is None else given))
    is_default = given is None or os.path.normpath(given) == DEFAULT_DIRECTORY
    if is_default and not os.path.lexists(path):
        remark = f"{path} does not exist: the guest that comes with vmnest is used"
        return Source(packaged.find(settings.environment()), is_packaged=True, remark=remark)
    if not os.path.isdir(path):
        what = "is no directory" if os.path.exists(path) else "does not exist"
        raise errors.GuestImageError(f"{path} {what}", hint="Name a directory with a Dockerfile in it.")
    _check_dockerfile(path)
    return Source(path)


def _check_dockerfile(path: str) -> None:
    if os.path.isfile(os.path.join(path, DOCKERFILE)):
        return
    others = sorted(name for name in os.listdir(path) if name.lower() == DOCKERFILE.lower())
    hint = f"Rename {others[0]}: the name counts by the letter." if others else "It must stand at its top level."
    if DOCKERFILE in others:
        hint = "What has that name must be a regular file, or a link to one."
    raise errors.GuestImageError(f"{path} has no file {DOCKERFILE}", hint=hint)
