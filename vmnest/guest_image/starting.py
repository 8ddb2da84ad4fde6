"""A directory to begin with for an image of one's own: the guest that comes with vmnest, written where one wants it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .. import errors
from . import packaged

__all__ = ["write"]

_MARKER = "__init__.py"  # at its top: the guest is a package here, for whoever looks for it


def write(path: str) -> tuple[str, ...]:
    """Write the guest, with its Dockerfile; the names of its files. The directory may be there already, if it is empty.

    Raises:
        errors.GuestImageError: there is something already, or it cannot be written.
    """
    files = {name: data for name, data in packaged.read().items() if name != _MARKER}
    try:
        _write(path, files)
    except FileExistsError as error:
        raise errors.GuestImageError(
            f"{path} is there already, and no empty directory", hint="Name a directory that is not there yet."
        ) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise errors.GuestImageError(f"cannot write the guest into {path}: {reason}") from error
    return tuple(sorted(files))


def _write(path: str, files: Mapping[str, bytes]) -> None:
    os.makedirs(path, exist_ok=True)
    if os.listdir(path):
        raise FileExistsError(path)
    for name, data in files.items():
        place = os.path.join(path, *name.split("/"))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "xb") as file:
            file.write(data)
