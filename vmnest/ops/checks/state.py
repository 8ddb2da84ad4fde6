"""The files that remember sandboxes and infrastructure: can they be read and written, and by us alone?"""

from __future__ import annotations

import fcntl
import os

from ... import errors, registry
from ...deadline import Deadline, backoff
from . import check, places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .check import Check
    from .context import Context
    from .places import Finding

__all__ = ["PROBES"]

_LOCK_SECONDS = 1.0


def names(context: Context) -> list[Check]:
    """The file of names."""
    place = registry.locate(context.environ)
    held = registry.Registry(place.path, private_folder=place.private_folder)

    def count() -> str:
        return _several(len(held.all()), "name", "names")

    found = _File("state.names", title="names of sandboxes", path=held.path, count=count).look()
    if place.note and found.verdict == check.OK:
        return [_with_note(found, place.note)]
    return [found]


def _with_note(found: Check, note: str) -> Check:
    return check.Check(
        found.id,
        title=found.title,
        verdict=check.WARNING,
        detail=f"{found.detail}; {note}",
        remedy="Set AGENT_SANDBOX_STATE to a file that stays, or HOME to a folder that can be written to.",
        data=found.data,
    )


def infrastructure(context: Context) -> list[Check]:
    """The file of stacks."""
    from ...infra import state

    path, private_folder = state.locate(context.environ)
    held = state.Store(path, private_folder=private_folder)

    def count() -> str:
        return _several(len(held.all()), "stack", "stacks")

    return [_File("state.infrastructure", title="infrastructure", path=held.path, count=count).look()]


def _several(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


class _File:
    """A state file that is looked at."""

    def __init__(self, name: str, *, title: str, path: str, count: Callable[[], str]) -> None:
        self._name = name
        self._title = title
        self._path = path
        self._count = count

    def look(self) -> Check:
        """All that can be wrong with it."""
        exists = os.path.lexists(self._path)
        try:
            content = self._count()
        except (errors.StateFileError, errors.LocalCloudError) as error:
            findings = [places.Finding(check.FAILED, error.message, remedy=error.hint)]
            content = ""
        else:
            findings = []
        findings += self._look_around()
        return places.combine(
            self._name,
            title=self._title,
            fine=f"{content} in {self._path}" if exists else f"none yet; they will be kept in {self._path}",
            findings=findings,
            data={"path": self._path, "exists": exists},
        )

    def _look_around(self) -> Iterator[Finding]:
        path = os.path.realpath(self._path)  # a link is followed before the file is replaced
        folder = os.path.dirname(path)
        yield from places.look_at_folder(folder, private=os.path.basename(folder) == ".agent_sandbox")
        yield from places.look_at_file(path)
        yield from places.look_at_room(folder)
        yield from _look_at_lock(f"{path}.lock")


def _look_at_lock(path: str) -> Iterator[Finding]:
    """Writers hold it for milliseconds: who holds it for long is stopped."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # nobody has written yet, or the folder is closed to us, which is told already
        return
    try:
        if not _can_lock(fd):
            yield places.Finding(
                check.WARNING,
                f"another process keeps {path} locked",
                remedy="Look for a vmnest process that is stopped, and end it.",
            )
    finally:
        os.close(fd)


def _can_lock(fd: int) -> bool:
    import time

    deadline = Deadline(_LOCK_SECONDS)
    for delay in backoff(first=0.01, last=0.1):
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if deadline.expired:
                return False
            time.sleep(deadline.clamp(delay))
        else:
            fcntl.flock(fd, fcntl.LOCK_UN)
            return True
    raise AssertionError("backoff ended")


PROBES = (names, infrastructure)
