"""The guest that is part of this package, as a directory.

It is one already in a checkout, an install and a copy. Inside a zip archive it is not: it is unpacked once, into a
folder of ours that is named by its content, and looked at before each use.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.resources
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from .. import errors, rendezvous

if TYPE_CHECKING:
    from importlib.abc import Traversable

FOLDER = "guest"
_BYTE_CODE = ".pyc"  # beside the sources in an archive, for the host's Python
_PACKAGE = f"{__name__.removesuffix('.guest_image.packaged')}._guest"


def find(environ: Mapping[str, str]) -> str:
    """The directory's path.

    Raises:
        errors.GuestImageError: the archive's guest cannot be unpacked.
    """
    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_guest")
    return os.path.realpath(path) if os.path.isdir(path) else unpack(read(), environ=environ)


def read() -> dict[str, bytes]:
    """Path in the guest → content, read through the package's loader."""
    return dict(_walk(importlib.resources.files(_PACKAGE), ""))


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        elif not entry.name.endswith(_BYTE_CODE):
            yield f"{prefix}{entry.name}", entry.read_bytes()


def unpack(files: Mapping[str, bytes], *, environ: Mapping[str, str]) -> str:
    """Lay files down in a folder of ours, unless they are there as they should be; its path.

    Raises:
        errors.GuestImageError: it cannot be written.
    """
    base, is_fallback = rendezvous.state_folder(environ)
    if is_fallback:
        base = rendezvous.folder(environ)
    home = os.path.join(base, FOLDER)
    path = os.path.join(home, _digest(files))
    try:
        for folder in (base, home):
            rendezvous.prepare_folder(folder)
        if not _holds(path, files):
            _write(path, files)
    except (errors.LocalCloudError, OSError) as error:
        reason = error.message if isinstance(error, errors.LocalCloudError) else error.strerror
        raise errors.GuestImageError(
            f"cannot unpack the guest that comes with vmnest into {path}: {reason}",
            hint="Set HOME to a folder that can be written to, or name a directory with a Dockerfile in it.",
        ) from error
    return path


def _digest(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]


def _holds(path: str, files: Mapping[str, bytes]) -> bool:
    """Whether the directory has these files, and no others. Whoever changed them has not changed what we ship."""
    found = {
        os.path.relpath(os.path.join(here, name), path).replace(os.sep, "/")
        for here, _, names in os.walk(path)
        for name in names
    }
    return found == set(files) and all(_read(os.path.join(path, name)) == data for name, data in files.items())


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, files: Mapping[str, bytes]) -> None:
    fresh = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.new"
    try:
        for name, data in files.items():
            place = os.path.join(fresh, *name.split("/"))
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "wb") as file:
                file.write(data)
        _set_modes(fresh)
        shutil.rmtree(path, ignore_errors=True)
        try:
            os.rename(fresh, path)
        except OSError as error:
            # Somebody else has put the same there meanwhile.
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) or not _holds(path, files):
                raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(fresh)


def _set_modes(folder: str) -> None:
    """Those of a checkout, whatever the umask: modes are part of the image. The folder itself is nobody else's."""
    for here, folders, names in os.walk(folder):
        for name in folders:
            os.chmod(os.path.join(here, name), 0o755)  # noqa: S103 - for inside the image
        for name in names:
            os.chmod(os.path.join(here, name), 0o644)
