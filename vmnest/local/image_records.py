"""What is known of an image, its versions and their builds, and how their states change.

All of it is frozen: a change makes a new ``Image``, which is written to disk before anybody sees it. States change by
the tables below: what is not in them does not happen. An image takes one change at a time (``UPDATING`` also while a
version is being deleted, as on AWS), and its version numbers are never given twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from ..wire import names
from . import built

# States of an image.
CREATING = "CREATING"
CREATED = "CREATED"
CREATE_FAILED = "CREATE_FAILED"
UPDATING = "UPDATING"
UPDATED = "UPDATED"
UPDATE_FAILED = "UPDATE_FAILED"
DELETE_FAILED = "DELETE_FAILED"
# States of a version and of a build; DELETING, DELETED and DELETE_FAILED are an image's too.
PENDING = "PENDING"
IN_PROGRESS = "IN_PROGRESS"
SUCCESSFUL = "SUCCESSFUL"
FAILED = "FAILED"
DELETING = "DELETING"
DELETED = "DELETED"
# Whether a version may be run.
ACTIVE = "ACTIVE"
INACTIVE = "INACTIVE"

# What can happen.
UPDATE = "update"  # somebody wants another version
START = "start"  # a build begins
BUILT = "built"
NOT_BUILT = "not built"
DRAIN = "drain"  # somebody wants one version gone
DRAINED = "drained"
DELETE = "delete"  # somebody wants it gone
GONE = "gone"
KEPT = "kept"  # it could not be removed

_SETTLED = (CREATED, CREATE_FAILED, UPDATED, UPDATE_FAILED, DELETE_FAILED)
IMAGE_TRANSITIONS: Mapping[tuple[str, str], str] = {
    (CREATING, BUILT): CREATED,
    (CREATING, NOT_BUILT): CREATE_FAILED,
    (UPDATING, BUILT): UPDATED,
    (UPDATING, NOT_BUILT): UPDATE_FAILED,
    (UPDATING, DRAINED): UPDATED,
    (DELETING, GONE): DELETED,
    (DELETING, KEPT): DELETE_FAILED,
    **{(state, UPDATE): UPDATING for state in _SETTLED},
    **{(state, DRAIN): UPDATING for state in _SETTLED},
    **{(state, DELETE): DELETING for state in _SETTLED},
}
VERSION_TRANSITIONS: Mapping[tuple[str, str], str] = {
    (PENDING, START): IN_PROGRESS,
    (PENDING, NOT_BUILT): FAILED,
    (IN_PROGRESS, BUILT): SUCCESSFUL,
    (IN_PROGRESS, NOT_BUILT): FAILED,
    (SUCCESSFUL, DELETE): DELETING,
    (FAILED, DELETE): DELETING,
    (DELETE_FAILED, DELETE): DELETING,
    (DELETING, KEPT): DELETE_FAILED,
}

IMAGE_STATES = frozenset({CREATING, DELETED, *(state for state, _ in IMAGE_TRANSITIONS)})
VERSION_STATES = frozenset({SUCCESSFUL, FAILED, *(state for state, _ in VERSION_TRANSITIONS)})
BUILD_STATES = frozenset({PENDING, IN_PROGRESS, SUCCESSFUL, FAILED})

# The kinds of processor that the service builds each version for: it takes a snapshot on each.
GENERATIONS = ("4", "3")
REASON_BUILDS = "One or more builds failed."

_NUMBER = re.compile(r"(0|[1-9][0-9]{0,8})(\.0)?", re.ASCII)

Settings = Mapping[str, object]


class TransitionError(Exception):
    """The table has no such step: whoever asked should have looked at ``can`` before."""


@dataclass(frozen=True)
class Outcome:
    """How a build ended: with something to run, or for a reason."""

    built: built.Built | None = None
    reason: str | None = None

    @property
    def event(self) -> str:
        """What that is in the tables."""
        return NOT_BUILT if self.built is None else BUILT


@dataclass(frozen=True)
class Build:
    """A version's build for one kind of processor."""

    build_id: str
    generation: str
    created_at: float
    state: str = PENDING
    reason: str | None = None


@dataclass(frozen=True)
class Version:
    """One version of an image.

    Attributes:
        settings: What was asked for, as the service echoes it: members of CreateMicrovmImage, defaults filled in.
            Values of JSON. The environment may hold secrets: they do not print.
        built: What the build made; None also where there was no build (the agent is run).
    """

    number: int
    settings: Settings = field(repr=False)
    created_at: float
    updated_at: float
    builds: tuple[Build, ...]
    state: str = PENDING
    status: str = INACTIVE
    reason: str | None = None
    built: built.Built | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        """Its number as the service writes it."""
        return f"{self.number}.0"

    @property
    def is_runnable(self) -> bool:
        """MicroVMs may start from it."""
        return self.state == SUCCESSFUL and self.status == ACTIVE

    @property
    def is_being_built(self) -> bool:
        """Its build has not ended."""
        return self.state in {PENDING, IN_PROGRESS}

    @property
    def state_time_bucket(self) -> str:
        """A member of the service's answers that its model does not know: the state, and the hour that it came in."""
        return f"{self.state}#{datetime.fromtimestamp(self.updated_at, timezone.utc):%y%m%d%H}"

    def start(self) -> Version:
        """Its builds begin."""
        builds = tuple(replace(build, state=_next(VERSION_TRANSITIONS, build.state, START)) for build in self.builds)
        return replace(self, state=_next(VERSION_TRANSITIONS, self.state, START), builds=builds)

    def end(self, outcome: Outcome, *, at: float) -> Version:
        """Its builds have ended, all in the same way: it was built once."""
        event = outcome.event
        builds = tuple(
            replace(build, state=_next(VERSION_TRANSITIONS, build.state, event), reason=outcome.reason)
            for build in self.builds
        )
        return replace(
            self,
            state=_next(VERSION_TRANSITIONS, self.state, event),
            status=ACTIVE if event == BUILT else INACTIVE,
            reason=None if event == BUILT else REASON_BUILDS,
            builds=builds,
            built=outcome.built,
            updated_at=at,
        )


@dataclass(frozen=True)
class Image:
    """An image with all its versions, oldest first.

    Attributes:
        number: Its place in lists: no other image has it.
        last_number: Of the latest version that there ever was, 0 before the first.
        is_built_in: Nobody built it, and nobody can change it.
    """

    name: str
    image_id: str
    number: int
    created_at: float
    updated_at: float
    state: str = CREATING
    last_number: int = 0
    versions: tuple[Version, ...] = ()
    is_built_in: bool = False

    @property
    def arn(self) -> str:
        """Its ARN."""
        return names.image_arn(region=names.LOCAL_REGION, account=names.LOCAL_ACCOUNT, name=self.name)

    @property
    def latest_active(self) -> Version | None:
        """The version that is run unless another one is named."""
        return next((version for version in reversed(self.versions) if version.is_runnable), None)

    @property
    def latest_failed(self) -> Version | None:
        """The latest version that could not be built."""
        return next((version for version in reversed(self.versions) if version.state == FAILED), None)

    @property
    def is_changing(self) -> bool:
        """A change was asked for and has not ended."""
        return self.state in {CREATING, UPDATING, DELETING}

    @property
    def is_consistent(self) -> bool:
        """One version is being built or deleted if the image is CREATING or UPDATING, and else none."""
        in_change = [version for version in self.versions if version.is_being_built or version.state == DELETING]
        return len(in_change) == (1 if self.state in {CREATING, UPDATING} else 0)

    def can(self, event: str) -> bool:
        """Whether the table has a step for that event."""
        return (self.state, event) in IMAGE_TRANSITIONS

    def version(self, number: int | None) -> Version | None:
        """The version of that number, or None."""
        return next((version for version in self.versions if version.number == number), None)

    # -- changes -------------------------------------------------------------------------------------------------------

    def add_version(self, settings: Settings, *, at: float, new_id: Callable[[], str]) -> Image:
        """The next version is to be built; the first one of an image that is just being created, or an update."""
        is_first = self.state == CREATING and not self.last_number
        state = CREATING if is_first else _next(IMAGE_TRANSITIONS, self.state, UPDATE)
        builds = tuple(Build(new_id(), generation, at) for generation in GENERATIONS)
        number = self.last_number + 1
        added = Version(number, dict(settings), created_at=at, updated_at=at, builds=builds)
        return replace(self, state=state, last_number=number, versions=(*self.versions, added), updated_at=at)

    def interrupt(self, reason: str, *, at: float) -> Image:
        """Whoever built it is no more: what was being built is not built any more."""
        changed = self
        for version in self.versions:
            if version.is_being_built:
                changed = changed.end_build(version.number, Outcome(reason=reason), at=at)
        return changed

    def start_build(self, number: int) -> Image:
        """The builds of that version begin."""
        return self._with(self._known(number).start())

    def end_build(self, number: int, outcome: Outcome, *, at: float) -> Image:
        """The builds of that version have ended."""
        changed = self._with(self._known(number).end(outcome, at=at))
        return replace(changed, state=_next(IMAGE_TRANSITIONS, self.state, outcome.event), updated_at=at)

    def set_status(self, number: int, status: str, *, at: float) -> Image:
        """That version may be run from now on, or may not."""
        return replace(self._with(replace(self._known(number), status=status, updated_at=at)), updated_at=at)

    def begin_delete_version(self, number: int, *, at: float) -> Image:
        """That version is to go."""
        known = self._known(number)
        going = replace(known, state=_next(VERSION_TRANSITIONS, known.state, DELETE), updated_at=at)
        return replace(self._with(going), state=_next(IMAGE_TRANSITIONS, self.state, DRAIN), updated_at=at)

    def end_delete_version(self, number: int, *, at: float, is_gone: bool = True) -> Image:
        """That version is gone, or could not be removed."""
        known = self._known(number)
        if is_gone:
            changed = replace(self, versions=tuple(one for one in self.versions if one is not known))
        else:
            state = _next(VERSION_TRANSITIONS, known.state, KEPT)
            changed = self._with(replace(known, state=state, status=INACTIVE, updated_at=at))
        return replace(changed, state=_next(IMAGE_TRANSITIONS, self.state, DRAINED), updated_at=at)

    def begin_delete(self, *, at: float) -> Image:
        """It is to go."""
        return replace(self, state=_next(IMAGE_TRANSITIONS, self.state, DELETE), updated_at=at)

    def end_delete(self, *, at: float, is_gone: bool = True) -> Image:
        """It is gone (what is left tells that it was there), or could not be removed."""
        state = _next(IMAGE_TRANSITIONS, self.state, GONE if is_gone else KEPT)
        return replace(self, state=state, versions=() if is_gone else self.versions, updated_at=at)

    def _known(self, number: int) -> Version:
        found = self.version(number)
        if found is None:
            raise TransitionError(f"{self.name} has no version {number}.0")
        return found

    def _with(self, changed: Version) -> Image:
        return replace(self, versions=tuple(changed if one.number == changed.number else one for one in self.versions))


def parse_number(text: str) -> int | None:
    """The number of a version, given as ``2`` or ``2.0``; None if it is neither."""
    found = _NUMBER.fullmatch(text)
    return None if found is None else int(found.group(1))


def _next(table: Mapping[tuple[str, str], str], state: str, event: str) -> str:
    if (state, event) not in table:
        raise TransitionError(f"{event} does not happen to what is {state}")
    return table[state, event]
