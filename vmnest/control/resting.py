"""The local cloud while it does not run and nothing of it lives: what it has noted answers, and nobody starts it.

Who looks at what has ended, or ends it once more, needs no daemon for that. All other calls go to the real service,
which starts one; so do these where a note says that there is work for it, or makes no sense here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone

from .. import errors, rendezvous
from ..aws.service import Service
from ..deadline import Deadline
from ..wire import names

__all__ = ["Resting", "is_resting"]

_SCHEMA = 1
_SUFFIX = ".json"
_MAX_NOTE_BYTES = 1 << 20
_NUMBERS = (int, float)


def is_resting(folder: str) -> bool:
    """No daemon of that folder runs, and nothing lives that one has left.

    Raises:
        errors.LocalCloudError: the folder is somebody else's, or none.
    """
    if not os.path.lexists(folder):
        return True
    rendezvous.prepare_folder(folder)
    return not rendezvous.is_alive(folder) and not rendezvous.has_vms(folder)


class _NeededError(ValueError):
    """What is asked for takes a daemon."""


class Resting(Service):
    """The service ``lambda-microvms`` of such a local cloud. Safe for threads.

    Args:
        folder: The local cloud's.
        region: For messages.
        wake: Makes the real service, once that is needed.
    """

    def __init__(self, folder: str, *, region: str, wake: Callable[[Deadline], Service]) -> None:
        # Not that of a service: there is no endpoint, and nothing to sign with before it is needed.
        self.region = region
        self.endpoint = None
        self._folder = folder
        self._wake = wake
        self._awake: Service | None = None

    def call(
        self,
        operation: str,
        params: Mapping[str, object],
        *,
        deadline: Deadline,
        extra_headers: Sequence[tuple[str, str]] = (),
        is_passing: Callable[[errors.ServiceError], bool] | None = None,
    ) -> dict[str, object]:
        """See ``Service.call``."""
        if self._awake is None and is_resting(self._folder):
            try:
                return self._look_up(operation, params)
            except _NeededError:
                pass
        if self._awake is None:
            self._awake = self._wake(deadline)
        return self._awake.call(
            operation, params, deadline=deadline, extra_headers=extra_headers, is_passing=is_passing
        )

    def _look_up(self, operation: str, params: Mapping[str, object]) -> dict[str, object]:
        if operation == "ListMicrovms":
            return {"items": [_describe(note) for note in self._notes() if _is_of(note, params)]}
        if operation not in ("GetMicrovm", "TerminateMicrovm"):
            raise _NeededError
        microvm_id = str(params["microvmIdentifier"])
        note = self._note(microvm_id + _SUFFIX)
        if note is None:
            raise errors.ResourceNotFoundError(f"MicroVM not found: {microvm_id}", operation=operation, status=404)
        return _describe(note) if operation == "GetMicrovm" else {}

    def _notes(self) -> list[dict[str, object]]:
        try:
            found = os.listdir(os.path.join(self._folder, rendezvous.NOTES_FOLDER))
        except FileNotFoundError:
            return []
        notes = [self._note(name) for name in found if name.endswith(_SUFFIX)]
        return [note for note in notes if note is not None]

    def _note(self, name: str) -> dict[str, object] | None:
        """A note of what has ended, or None if there is none."""
        if os.path.basename(name) != name:
            return None
        try:
            descriptor = os.open(
                os.path.join(self._folder, rendezvous.NOTES_FOLDER, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
            )
            with open(descriptor, "rb") as file:
                note = json.loads(file.read(_MAX_NOTE_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise _NeededError from error
        is_known = isinstance(note, dict) and note.get("schema") == _SCHEMA and isinstance(note.get("spec"), dict)
        if not is_known or note.get("state") != names.TERMINATED or note.get("microvm_id") != name[: -len(_SUFFIX)]:
            raise _NeededError
        return dict(note)


def _is_of(note: Mapping[str, object], params: Mapping[str, object]) -> bool:
    """It is of the image, and the version, that a listing is limited to."""
    spec = _object(note["spec"])
    wanted = {"image_arn": params.get("imageIdentifier"), "image_version": params.get("imageVersion")}
    return all(value is None or spec.get(member) == value for member, value in wanted.items())


def _describe(note: Mapping[str, object]) -> dict[str, object]:
    """The answer of GetMicrovm, as the daemon would make it of this note."""
    spec = _object(note["spec"])
    options = _object(spec.get("options"))
    return {
        "microvmId": note["microvm_id"],
        "state": note["state"],
        "endpoint": note.get("endpoint"),
        "imageArn": spec.get("image_arn"),
        "imageVersion": spec.get("image_version"),
        "startedAt": _moment(note.get("started_at")),
        "terminatedAt": _moment(note.get("terminated_at")),
        "stateReason": note.get("state_reason"),
        "maximumDurationInSeconds": spec.get("max_seconds"),
        "idlePolicy": spec.get("idle_policy"),
        "executionRoleArn": spec.get("execution_role_arn"),
        "ingressNetworkConnectors": spec.get("ingress"),
        "egressNetworkConnectors": spec.get("egress"),
        names.LOCAL_DETAILS_MEMBER: {
            "cpus": options.get("cpus"),
            "memory": options.get("memory_mib"),
            "egress": options.get("egress_allow"),
        },
    }


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _NeededError
    return value


def _moment(value: object) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, _NUMBERS) or isinstance(value, bool):
        raise _NeededError
    try:
        return datetime.fromtimestamp(value, timezone.utc)
    except (ValueError, OverflowError, OSError) as error:
        raise _NeededError from error
