"""The files that remember sandboxes and infrastructure: can they be read and written, and by us alone?"""

from __future__ import annotations

import os

from ... import errors, registry, systems
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
_OUR_FOLDER = ".agent_sandbox"  # others may have reasons for the modes of theirs


class _File:
    """A state file: where it is, which variable names another, and what counts its entries."""

    def __init__(self, path: str, *, variable: str, count: Callable[[], str]) -> None:
        self.path = path
        self.real_path = os.path.realpath(path)  # a link is followed before the file is replaced
        self.folder = os.path.dirname(self.real_path)
        self.variable = variable
        self.count = count


def _names_file(context: Context) -> tuple[_File, str | None]:
    place = registry.locate(context.environ)
    held = registry.Registry(place.path, private_folder=place.private_folder)
    file = _File(
        held.path, variable="AGENT_SANDBOX_STATE", count=lambda: _several(len(held.all()), "sandbox", "sandboxes")
    )
    return file, place.note


def _infrastructure_file(context: Context) -> _File:
    from ...infra import state

    path, private_folder = state.locate(context.environ)
    held = state.Store(path, private_folder=private_folder)
    return _File(
        held.path, variable="AGENT_SANDBOX_INFRA_STATE", count=lambda: _several(len(held.all()), "stack", "stacks")
    )


def _several(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def names(context: Context) -> list[Check]:
    """The file of names."""
    file, note = _names_file(context)
    more = []
    if note:
        remedy = "Set HOME to a folder that can be written to, or AGENT_SANDBOX_STATE to a file that stays."
        more.append(places.Finding(check.WARNING, note, remedy=remedy))
    return [_look("state.names", "names of sandboxes", file, more)]


def infrastructure(context: Context) -> list[Check]:
    """The file of stacks."""
    return [_look("state.infrastructure", "infrastructure", _infrastructure_file(context), [])]


def _look(name: str, title: str, file: _File, more: list[Finding]) -> Check:
    exists = os.path.lexists(file.path)
    fine, findings = f"none recorded yet; the file will be {file.path}", list(more)
    try:
        content = file.count()
    except (errors.StateFileError, errors.LocalCloudError) as error:
        findings.append(places.Finding(check.FAILED, error.message, remedy=error.hint))
    else:
        fine = f"{content} in {file.path}" if exists else fine
    findings += places.look_at_writing(file.folder, variable=file.variable)
    findings += places.look_at_room(file.folder, variable=file.variable)
    findings += _look_at_lock(f"{file.real_path}.lock")
    return places.combine(name, title=title, fine=fine, findings=findings, data={"path": file.path, "exists": exists})


def permissions(context: Context) -> list[Check]:
    """Who gets at these files, and at the folders that they are in."""
    files = [_names_file(context)[0], _infrastructure_file(context)]
    findings: list[Finding] = []
    for folder in dict.fromkeys(file.folder for file in files):
        if os.path.basename(folder) == _OUR_FOLDER:
            findings += places.look_at_access(folder, wanted=0o700)
    for file in files:
        if os.path.isfile(file.real_path):  # to anything else that would do harm
            findings += places.look_at_access(file.real_path, wanted=0o600)
    fine = "for nobody else"
    return [places.combine("state.permissions", title="permissions", fine=fine, findings=findings)]


def _look_at_lock(path: str) -> Iterator[Finding]:
    """Writers hold it for milliseconds: who holds it for long is stopped."""
    try:
        if not _gets_free(path):
            text = f"another process keeps {path} locked"
            remedy = "Look for a vmnest process that is stopped, and end it."
            yield places.Finding(check.WARNING, text, remedy=remedy)
    except OSError:  # nobody has written yet, or the folder is closed to us, which is told already
        return


def _gets_free(path: str) -> bool:
    import time

    deadline = Deadline(_LOCK_SECONDS)
    for delay in backoff(first=0.01, last=0.1):
        if not systems.is_locked(path):
            return True
        if deadline.expired:
            return False
        time.sleep(deadline.clamp(delay))
    raise AssertionError("backoff ended")


PROBES = (names, infrastructure, permissions)
