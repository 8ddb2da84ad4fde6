"""The guest that is part of this package, as a directory.

It is one already in a checkout, an install and a copy. Inside a zip archive it is not, and where they were made with an
odd umask it would make another image: then it is unpacked once, into a folder of ours that is named by its content, and
looked at before each use.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from .. import deadline as deadlines
from .. import errors, rendezvous, systems

if TYPE_CHECKING:
    from importlib.abc import Traversable

FOLDER = "guest"
_LOCK = "lock"  # whoever unpacks holds it
_LOCK_SECONDS = 20.0
_LOCK_POLL_SECONDS = 0.005
_BYTE_CODE = ".pyc"  # beside the sources in an archive, for the host's Python
_PACKAGE = f"{__name__.removesuffix('.guest_image.packaged')}._guest"


def find(environ: Mapping[str, str]) -> str:
    """The directory's path.

    Raises:
        errors.GuestImageError: it cannot be unpacked.
    """
    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_guest")
    if os.path.isdir(path) and _has_plain_modes(path):
        return os.path.realpath(path)
    return unpack(read(), environ=environ)


def _has_plain_modes(path: str) -> bool:
    """Modes are part of the image, and those who share one need not share a umask."""
    if systems.user_id() is None:  # Windows, where files have none
        return True
    return all(stat.S_IMODE(mode) == _plain_mode(mode) for _, mode in _list_modes(path))


def _plain_mode(mode: int) -> int:
    """That of a checkout with the usual umask."""
    return 0o755 if stat.S_ISDIR(mode) else 0o644


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
        if is_fallback:  # anybody may have made it; what is in a home folder may be a link
            rendezvous.prepare_folder(base)
        rendezvous.prepare_folder(home)
        if not _holds(path, files):
            with _open_lock(home):
                # Another process may have done it meanwhile, and now packs what is there.
                if not _holds(path, files):
                    _write(path, files)
        _set_modes(path)
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


@contextlib.contextmanager
def _open_lock(home: str) -> Iterator[None]:
    lock = systems.FileLock(os.path.join(home, _LOCK))
    deadline = deadlines.Deadline(_LOCK_SECONDS)
    try:
        while not lock.try_take():
            deadline.check("waiting for another process that unpacks the guest")
            deadlines.SYSTEM_CLOCK.sleep(_LOCK_POLL_SECONDS)
        yield
    finally:
        lock.release()


def _holds(path: str, files: Mapping[str, bytes]) -> bool:
    """Whether the directory has these files, and nothing else. Whoever changed them has not changed what we ship."""
    wanted = dict.fromkeys(files, stat.S_IFREG)
    for name in files:
        wanted.update(dict.fromkeys(_parents(name), stat.S_IFDIR))
    try:
        found = {name: stat.S_IFMT(mode) for name, mode in _list_modes(path)}
        return found == wanted and all(_read(os.path.join(path, name)) == data for name, data in files.items())
    except OSError:
        return False


def _parents(name: str) -> Iterator[str]:
    while name := name.rpartition("/")[0]:
        yield name


def _list_modes(path: str) -> Iterator[tuple[str, int]]:
    """Whatever is below, with its type and mode; byte code is not part of the guest."""
    for here, folders, names in os.walk(path):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for place in (os.path.join(here, name) for name in (*folders, *names)):
            yield os.path.relpath(place, path).replace(os.sep, "/"), os.lstat(place).st_mode


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, files: Mapping[str, bytes]) -> None:
    fresh, old = f"{path}.new", f"{path}.old"
    for left in (fresh, old):  # by somebody who was killed
        _remove(left)
    try:
        for name, data in files.items():
            place = os.path.join(fresh, *name.split("/"))
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "wb") as file:
                file.write(data)
        if os.path.lexists(path):
            os.rename(path, old)
        os.rename(fresh, path)
    finally:
        for left in (fresh, old):
            _remove(left)


def _remove(path: str) -> None:
    """Whatever it is."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.unlink(path)


def _set_modes(path: str) -> None:
    """Whatever the umask. The folder itself is nobody else's."""
    for name, mode in _list_modes(path):
        if stat.S_IMODE(mode) != _plain_mode(mode):
            os.chmod(os.path.join(path, name), _plain_mode(mode))
