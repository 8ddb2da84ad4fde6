"""The images of this local cloud: the built-in one, ``local``, whose programs are this machine's, and those built here.

One lock guards them all. What the API asks for is checked, noted on disk and only then true; what takes time (building,
removing layers) is done by the workshop's threads, which come back with the outcome. MicroVMs are started inside
``to_run``: until it is left, nothing of the version goes away, and from then on the VM itself holds it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .. import deadline, errors
from ..wire import names
from . import (
    account,
    builder,
    connectors,
    faults,
    image_answers,
    image_builds,
    image_builtin,
    image_records,
    image_rules,
    image_shelf,
    image_store,
    records,
)
from .built import Built
from .image_records import Image, Outcome, Version

_LOG = logging.getLogger(__name__)

MAX_IMAGES = 100
MAX_VERSIONS = 50
MAX_BUILDS = 5


@dataclass(frozen=True)
class Runnable:
    """What RunMicrovm starts.

    Attributes:
        memory_mib: What its MicroVMs get unless somebody asks for something else.
        has_run_hook: A payload can be handed to its MicroVMs.
        egress: Its connectors, for a MicroVM that names none.
        built: What its build made; None for the built-in image.
    """

    image_arn: str
    image_version: str
    memory_mib: int
    has_run_hook: bool
    egress: tuple[str, ...] = ()
    built: Built | None = None


@dataclass(frozen=True)
class Neighbours:
    """What images need of the rest of the account.

    Attributes:
        tags: Tags of all resources.
        role_exists: Whether there is a role of that ARN.
        live: What the MicroVMs that have not ended were started with.
        connector_state: The state of a connector of the account's own; None if there is none of that ARN.
    """

    tags: account.Tags
    role_exists: image_rules.RoleExists
    live: Callable[[], Sequence[records.Spec]]
    connector_state: connectors.StateOf


class Images:
    """All images. Thread-safe.

    Attributes:
        answers: What was answered to calls with client tokens.
        neighbours: The rest of the account.
        created_at: When this local cloud was made.

    Args:
        store: Where they outlive the daemon.
        workshop: Builds them.
        neighbours: The rest of the account.
        created_at: When this local cloud was made.
        clock: Time of day for the records, and the clock of idle times.
        new_id: Makes UUIDs.
    """

    def __init__(
        self,
        store: image_store.Store,
        workshop: image_builds.Workshop,
        neighbours: Neighbours,
        *,
        created_at: float,
        clock: deadline.Clock = deadline.SYSTEM_CLOCK,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.neighbours = neighbours
        self.created_at = created_at
        self.answers = image_answers.Answers(store)
        self._workshop = workshop
        self._clock = clock
        self._new_id = new_id
        self._lock = threading.RLock()  # guards all below, and the files of images
        self._shelf = image_shelf.Shelf(store, image_builtin.built_in(created_at))
        self._is_closed = False
        self._last_busy = clock.monotonic()

    def open(self) -> None:
        """Take over what an earlier daemon noted, and end what it was in the middle of."""
        with self._lock:
            for image in self._shelf.load():
                self._recover(image)
            self._spawn("sweep layers", lambda: self._workshop.sweep(self._layers_in_use))

    # -- looking -------------------------------------------------------------------------------------------------------

    def all(self) -> list[Image]:
        """All images, in the order in which they were made."""
        with self._lock:
            return self._shelf.all()

    def find(self, arn: str) -> Image | None:
        """The image of that ARN, or None."""
        with self._lock:
            image = self._shelf.find(_name(arn))
        return image if image is not None and image.arn == arn else None

    def get(self, identifier: str, *, action: str) -> Image:
        """The image that an operation means.

        Raises:
            faults.Fault: that is no ARN, or somebody else's, or there is none.
        """
        _check_arn(identifier, action=action)
        image = self.find(identifier)
        if image is None:
            raise faults.not_found(f"MicroVMImage not found for MicroVMImageID: {identifier}")
        return image

    def version(self, identifier: str, label: str, *, action: str) -> tuple[Image, Version]:
        """The version that an operation means, and its image. Raises as ``get``."""
        image = self.get(identifier, action=action)
        version = image.version(image_records.parse_number(label))
        if version is None:
            raise faults.not_found(f"MicroVMImage not found for MicroVMImage: {image.arn}, Version: {label}")
        return image, version

    @contextlib.contextmanager
    def to_run(self, identifier: str, label: str | None) -> Iterator[Runnable]:
        """What RunMicrovm starts; it stays as it is until the block is left.

        Raises:
            faults.Fault: there is none that can be run.
        """
        if not identifier.startswith("arn:"):
            raise faults.validation("Malformed ARN - doesn't start with 'arn:'")
        _check_arn(identifier, action="RunMicrovm")
        with self._lock:
            image = self.find(identifier)
            version = None if image is None else _choose(image, label)
            if image is None or version is None:
                pinned = "" if label is None else f" and version {label}"
                raise faults.not_found(f"No active version found for MicroVM image {identifier}{pinned}")
            self._shelf.pin(image, version)
        try:
            yield _runnable(image, version)
        finally:
            with self._lock:
                self._shelf.unpin(image, version)

    # -- changes that the API asks for ---------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        settings: image_records.Settings,
        *,
        tags: Mapping[str, str],
        egress_allow: tuple[str, ...] = builder.INTERNET,
    ) -> tuple[Image, Version]:
        """Begin to build the first version of a new image; RUN may reach ``egress_allow``.

        Raises:
            faults.Fault: the name is taken, or there are too many images, builds or tags.
        """
        with self._lock:
            if self._shelf.find(name) is not None:
                raise faults.validation(f"A MicroVM image with the name '{name}' already exists in this account")
            if sum(not image.is_built_in for image in self._shelf.all()) >= MAX_IMAGES:
                raise faults.quota(f"Account {names.LOCAL_ACCOUNT} has reached the maximum number of MicroVM images.")
            self._check_can_build()
            now = self._clock.time()
            image = Image(name, self._new_id(), self._shelf.next_number, created_at=now, updated_at=now)
            self.neighbours.tags.replace(image.arn, tags)
            return self._begin_build(image.add_version(settings, at=now, new_id=self._new_id), egress_allow)

    def update(
        self,
        identifier: str,
        settings: image_records.Settings,
        *,
        egress_allow: tuple[str, ...] = builder.INTERNET,
    ) -> tuple[Image, Version]:
        """Begin to build the next version of an image; RUN may reach ``egress_allow``.

        Raises:
            faults.Fault: its state does not allow it, or there are too many versions or builds. And as ``get``.
        """
        with self._lock:
            image = self._changeable(identifier, action="UpdateMicrovmImage")
            if len(image.versions) >= MAX_VERSIONS:
                raise faults.quota(f"MicroVM image {image.arn} has reached the maximum number of versions.")
            self._check_can_build()
            changed = image.add_version(settings, at=self._clock.time(), new_id=self._new_id)
            return self._begin_build(changed, egress_allow)

    def set_status(self, identifier: str, label: str, status: str) -> tuple[Image, Version]:
        """Let MicroVMs be started from a version, or not.

        Raises:
            faults.Fault: its state does not allow it. And as ``version``.
        """
        action = "UpdateMicrovmImageVersion"
        with self._lock:
            image, version = self.version(identifier, label, action=action)
            self._changeable(identifier, action=action)
            if status == image_records.ACTIVE and version.state != image_records.SUCCESSFUL:
                raise faults.validation(
                    f"MicroVM image version {version.label} of {image.arn} cannot be activated in its current state: "
                    f"{version.state}"
                )
            changed = self._shelf.put(image.set_status(version.number, status, at=self._clock.time()))
            return changed, _known(changed, version.number)

    def delete(self, identifier: str) -> Image | None:
        """Begin to delete an image; None if it was deleted before.

        Raises:
            faults.Fault: its state does not allow it, or it has MicroVMs. And as ``get``.
        """
        action, name = "DeleteMicrovmImage", _name(identifier)
        _check_arn(identifier, action=action)
        with self._lock:
            if self._shelf.was_deleted(name) and identifier == _arn(name):
                return None
            image = self.get(identifier, action=action)
            if image.state == image_records.DELETING:
                return image
            _refuse_built_in(image)
            if not image.can(image_records.DELETE):
                raise faults.validation(f"Cannot delete MicroVM image in its current state: {image.arn}")
            is_live = any(spec.image_arn == image.arn for spec in self.neighbours.live())
            if is_live or self._shelf.is_pinned(image):
                raise faults.validation("Cannot delete microvm image with running microvms.")
            self._refuse_when_closed()
            self._spawn(f"delete {image.name}", lambda: self._delete(image.name))
            return self._shelf.put(image.begin_delete(at=self._clock.time()))

    def delete_version(self, identifier: str, label: str) -> tuple[Image, Version | None]:
        """Begin to delete a version; None if it was deleted before.

        Raises:
            faults.Fault: its state does not allow it, or it is the only one. And as ``version``.
        """
        action = "DeleteMicrovmImageVersion"
        with self._lock:
            image = self.get(identifier, action=action)
            number = image_records.parse_number(label)
            if number is not None and 1 <= number <= image.last_number and image.version(number) is None:
                return image, None
            image, version = self.version(identifier, label, action=action)
            self._changeable(identifier, action=action)
            if len(image.versions) == 1:
                raise faults.validation("This is the last version. Please delete the entire image")
            self._spawn(f"delete {image.name} {label}", lambda: self._delete_version(image.name, version.number))
            changed = self._shelf.put(image.begin_delete_version(version.number, at=self._clock.time()))
            return changed, _known(changed, version.number)

    # -- the daemon's life ---------------------------------------------------------------------------------------------

    def builds(self) -> list[str]:
        """What is being built: each as ``demo 2.0``."""
        with self._lock:
            return [f"{image.name} {version.label}" for image, version in self._shelf.builds]

    def idle_seconds(self) -> float:
        """How long no image has been built or deleted; 0 while one is."""
        with self._lock:
            now = self._clock.monotonic()
            if self._shelf.is_busy:
                self._last_busy = now
            return now - self._last_busy

    def retire(self) -> bool:
        """Begin no more work, if none is under way; False, and no change, if some is."""
        with self._lock:
            if self._shelf.is_busy:
                return False
            self._is_closed = True
            return True

    def reopen(self) -> None:
        """Be as before ``retire``."""
        with self._lock:
            self._is_closed = False

    def close(self) -> None:
        """End what is under way: builds fail."""
        with self._lock:
            self._is_closed = True
        self._workshop.close()

    # -- work ----------------------------------------------------------------------------------------------------------

    def _begin_build(self, image: Image, egress_allow: tuple[str, ...]) -> tuple[Image, Version]:
        number = image.last_number
        self._spawn(f"build {image.name} {number}.0", lambda: self._build(image.name, number, egress_allow))
        self._shelf.put(image)
        return image, _known(image, number)

    def _build(self, name: str, number: int, egress_allow: tuple[str, ...]) -> None:
        with self._lock:
            image = self._shelf.find(name)
            version = None if image is None else image.version(number)
            if image is None or version is None or version.state != image_records.PENDING:
                return
            image = self._shelf.note(image.start_build(number))
        self._workshop.build(
            image,
            _known(image, number),
            record=lambda outcome: self._end_build(name, number, outcome),
            egress_allow=egress_allow,
        )

    def _end_build(self, name: str, number: int, outcome: Outcome) -> None:
        if outcome.reason is not None:
            _LOG.warning("version %d.0 of image %s was not built: %s", number, name, outcome.reason)
        with self._lock:
            self._shelf.note(self._present(name).end_build(number, outcome, at=self._clock.time()))
            self._last_busy = self._clock.monotonic()

    def _delete_version(self, name: str, number: int) -> None:
        if not self._is_going(name, number):
            return
        self._workshop.sweep(self._layers_in_use)
        with self._lock:
            image, now = self._present(name), self._clock.time()
            try:
                self._shelf.put(image.end_delete_version(number, at=now))
            except errors.LocalCloudError:
                _LOG.exception("version %d.0 of image %s could not be deleted", number, name)
                self._shelf.note(image.end_delete_version(number, at=now, is_gone=False))
            self._last_busy = self._clock.monotonic()

    def _delete(self, name: str) -> None:
        if not self._is_going(name):
            return
        self._workshop.sweep(self._layers_in_use)
        with self._lock:
            image, now = self._present(name), self._clock.time()
            try:
                self.neighbours.tags.replace(image.arn, {})
                self._shelf.put(image.end_delete(at=now))
            except errors.LocalCloudError:
                _LOG.exception("image %s could not be deleted", name)
                self._shelf.note(image.end_delete(at=now, is_gone=False))
            self._last_busy = self._clock.monotonic()

    def _is_going(self, name: str, number: int | None = None) -> bool:
        with self._lock:
            image = self._shelf.find(name)
            thing = image if image is None or number is None else image.version(number)
            return thing is not None and thing.state == image_records.DELETING

    def _recover(self, image: Image) -> None:
        """End what an earlier daemon was in the middle of."""
        going = next((version for version in image.versions if version.state == image_records.DELETING), None)
        if image.state == image_records.DELETING:
            self._spawn(f"delete {image.name}", lambda: self._delete(image.name))
        elif going is not None:
            number = going.number
            self._spawn(f"delete {image.name} {number}.0", lambda: self._delete_version(image.name, number))
        else:
            self._shelf.note(image.interrupt(image_builds.REASON_INTERRUPTED, at=self._clock.time()))

    # -- their parts: the lock is held ---------------------------------------------------------------------------------

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        """Have that done once the lock is free. First of all: without a thread to be had nothing changes.

        The work looks whether the change that it belongs to has been made.
        """
        self._last_busy = self._clock.monotonic()
        self._workshop.spawn(name, work)

    def _present(self, name: str) -> Image:
        image = self._shelf.find(name)
        assert image is not None
        return image

    def _changeable(self, identifier: str, *, action: str) -> Image:
        image = self.get(identifier, action=action)
        _refuse_built_in(image)
        self._refuse_when_closed()
        if image.is_changing:
            raise faults.conflict(f"MicroVM Image is already in state: {image.state}")
        return image

    def _check_can_build(self) -> None:
        self._refuse_when_closed()
        if len(self._shelf.builds) >= MAX_BUILDS:
            raise faults.quota(
                f"Account {names.LOCAL_ACCOUNT} has reached the maximum number of concurrent builds allowed."
            )

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise faults.internal("The local cloud is ending.")

    def _layers_in_use(self) -> Collection[str]:
        with self._lock:
            # In this order: a start that is over by now has left a MicroVM.
            of_images = self._shelf.layers_in_use()
            live = [spec.built for spec in self.neighbours.live() if spec.built is not None]
            return {*of_images, *(layer for made in live for layer in made.layers)}


def _runnable(image: Image, version: Version) -> Runnable:
    egress = version.settings["egressNetworkConnectors"]
    assert isinstance(egress, list)
    return Runnable(
        image_arn=image.arn,
        image_version=version.label,
        memory_mib=image_rules.memory_mib(version.settings),
        has_run_hook=image_rules.has_hook(version.settings, "run"),
        egress=tuple(egress),
        built=version.built,
    )


def _choose(image: Image, label: str | None) -> Version | None:
    if image.state == image_records.DELETING:
        return None
    if label is None:
        return image.latest_active
    version = image.version(image_records.parse_number(label))
    return version if version is not None and version.is_runnable else None


def _known(image: Image, number: int) -> Version:
    version = image.version(number)
    assert version is not None
    return version


def _name(arn: str) -> str:
    return arn.rpartition(":")[2]


def _arn(name: str) -> str:
    return names.image_arn(region=names.LOCAL_REGION, account=names.LOCAL_ACCOUNT, name=name)


def _refuse_built_in(image: Image) -> None:
    if image.is_built_in:
        raise faults.validation(f"The built-in image of this local cloud cannot be changed: {image.arn}")


def _check_arn(arn: str, *, action: str) -> None:
    parts = arn.split(":")
    if not arn.startswith("arn:") or len(parts) < 7 or parts[5] != "microvm-image":
        raise faults.validation(f"Invalid ARN format: {arn}")
    if parts[4] != names.LOCAL_ACCOUNT:
        raise faults.access_denied(action, arn)
