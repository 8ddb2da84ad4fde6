"""One sandbox without a daemon: what a daemon would find here, found out in a folder that is gone afterwards.

It is made in the local cloud's folder, or where that would be made: whether overlays work is the file system's affair.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Mapping

from .. import rendezvous, settings
from .drivers import cgroups, removal, rubbish, selection
from .drivers.namespace import Cell, NamespaceDriver

__all__ = ["run"]

_REMOVE_SECONDS = 5.0
_PAUSE_SECONDS = 0.05
_MEMORY_BYTES = 64 * 2**20


def run(folder: str, *, environ: Mapping[str, str]) -> dict[str, object]:
    """Make a sandbox, use it, remove it, and say what it was made of.

    Args:
        folder: The local cloud's folder; it need not exist.
        environ: The environment that a daemon would have.

    Raises:
        errors.SettingError: a setting of the daemon has a bad value.
        errors.IsolationUnavailableError: there can be no sandbox; the hint is the remedy.
        errors.LocalCloudError: there is no place to make one in.
    """
    began = time.monotonic()
    selection.require(settings.text("local_isolation", environ=environ) or settings.ISOLATIONS[0])
    visible = settings.resolve("local_visible", environ=environ).value
    assert isinstance(visible, tuple)
    with _make_place(folder) as place:
        cell = selection.prepare(folder=place, visible=visible, environ=environ)
        return {
            "driver": NamespaceDriver.name,
            "isolation": NamespaceDriver.isolation,
            "writable": cell.writable,
            "interpreter": cell.interpreter.path,
            "uid": cell.uid,
            "limits": _list_limits(cell),
            "seconds": round(time.monotonic() - began, 2),
        }


@contextlib.contextmanager
def _make_place(folder: str) -> Iterator[str]:
    above = folder
    while not os.path.isdir(above):
        above = os.path.dirname(above)
    try:
        place = tempfile.mkdtemp(prefix="vmnest-trial-", dir=above)
    except OSError as error:
        raise rendezvous.unusable(above, error) from error
    try:
        yield place
    finally:
        _remove(place)


def _remove(place: str) -> None:
    """Remove it, also while a remover that the sandbox's end has started is at work in it."""
    deadline = time.monotonic() + _REMOVE_SECONDS
    while True:
        try:
            with _remover_done(place):
                removal.remove_tree(place)
        except OSError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return


@contextlib.contextmanager
def _remover_done(place: str) -> Iterator[None]:
    try:
        heap = os.open(os.path.join(place, rubbish.FOLDER), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # it has not come so far
        yield
        return
    try:
        fcntl.flock(heap, fcntl.LOCK_EX)
        yield
    finally:
        os.close(heap)


def _list_limits(cell: Cell) -> list[str]:
    """What control groups limit, or do, for sandboxes here: some of ``memory``, ``cpu``, ``freezer``."""
    name = "trial"
    found = cell.places.reserve(name, roles=(cgroups.MEMORY, cgroups.CPU, cgroups.FREEZER))
    group = cgroups.Group(found, name)
    try:
        group.open(memory_bytes=_MEMORY_BYTES, cpus=1.0)
        return sorted(group.roles)
    finally:
        group.remove()
        for descriptor in group.descriptors():
            os.close(descriptor)
        cell.places.sweep()
