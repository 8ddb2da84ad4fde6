"""Whose log a name stands for: a sandbox's, or that of a MicroVM which no record has (any more)."""

from __future__ import annotations

import re

from .. import errors, registry
from .. import target as targets
from . import sandboxes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..deadline import Deadline
    from ..registry import Record
    from ..sandbox.logbook import Logbook

__all__ = ["find"]

_ID = re.compile(r"(?:microvm|mvm)-[0-9A-Za-z-]{4,200}")


def find(name: str, *, local: bool | None, region: str | None, deadline: Deadline) -> Logbook:
    """The log of the sandbox of that name, or of the MicroVM of that id.

    Raises:
        errors.SandboxNotFoundError: it is neither.
        errors.MicroVMNotFoundError: it is being started.
    """
    from ..sandbox.logbook import Logbook

    record = _find_record(name, local=local)
    if record is None:
        place = targets.resolve_for(name, local=local, region=region)
    else:
        place = targets.resolve(local=record.is_local, region=region or record.region, arn=record.image_arn)
    microvm_id = name if record is None else record.microvm_id
    if microvm_id is None:
        raise errors.MicroVMNotFoundError(
            f"{name} has no MicroVM yet: it is being started, or whoever started it was cut off"
        )
    return Logbook(microvm_id, record=record, place=place, control=place.control(deadline=deadline), deadline=deadline)


def _find_record(name: str, *, local: bool | None) -> Record | None:
    """The record of that name, or that MicroVM; none for the id of a MicroVM that no record has."""
    known = registry.open_default()
    if known.get(name) is None:
        for record in known.all():
            if record.microvm_id == name:
                return sandboxes.require(record.name, local=local)
        if _ID.fullmatch(name):
            return None
    try:
        return sandboxes.require(name, local=local)
    except errors.SandboxNotFoundError as error:
        error.add_hint("The log of one that was removed is found by the id of its MicroVM.")
        raise
