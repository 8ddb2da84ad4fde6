"""All images in memory, each also noted on disk, and the starts of MicroVMs that are under way. No lock of its own."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection

from .. import errors
from . import image_records, image_store
from .image_records import Image, Version

_LOG = logging.getLogger(__name__)

MAX_DELETED = 1000  # names of deleted images that are remembered


class Shelf:
    """See the module. Whoever calls it holds a lock.

    Args:
        store: Where images outlive the daemon.
        built_in: The image that is always there.
    """

    def __init__(self, store: image_store.Store, built_in: Image) -> None:
        self._store = store
        self._images = {built_in.name: built_in}
        self._pins: Counter[tuple[str, int]] = Counter()

    def load(self) -> list[Image]:
        """Take what is on disk; all of it that is in the middle of something."""
        for image in self._store.load():
            self._images.setdefault(image.name, image)
        self._forget_deleted()
        return [image for image in self.all() if image.is_changing]

    # -- looking -------------------------------------------------------------------------------------------------------

    def all(self) -> list[Image]:
        """All images, in the order in which they were made."""
        return [image for image in self._images.values() if image.state != image_records.DELETED]

    def find(self, name: str) -> Image | None:
        """The image of that name, or None."""
        image = self._images.get(name)
        return None if image is None or image.state == image_records.DELETED else image

    def was_deleted(self, name: str) -> bool:
        """There was an image of that name."""
        return name in self._images and self.find(name) is None

    @property
    def next_number(self) -> int:
        """The place of a new image in lists."""
        return 1 + max(image.number for image in self._images.values())

    @property
    def builds(self) -> list[tuple[Image, Version]]:
        """The versions that are being built."""
        return [
            (image, version) for image in self._images.values() for version in image.versions if version.is_being_built
        ]

    @property
    def is_busy(self) -> bool:
        """An image is being built, or deleted."""
        return any(image.is_changing for image in self._images.values())

    # -- changing ------------------------------------------------------------------------------------------------------

    def put(self, image: Image) -> Image:
        """The image is as given, once it is noted.

        Raises:
            errors.LocalCloudError: it cannot be noted; it is as it was.
        """
        self._store.save(image)
        self._place(image)
        return image

    def note(self, image: Image) -> Image:
        """The image is as given, even if it cannot be noted: it has happened."""
        try:
            return self.put(image)
        except errors.LocalCloudError:
            _LOG.exception("image %s could not be noted", image.name)
            self._place(image)
            return image

    def _place(self, image: Image) -> None:
        before = self._images.get(image.name)
        if before is not None and before.number != image.number:
            del self._images[image.name]  # another one of that name: its place in lists is the last
        self._images[image.name] = image
        if image.state == image_records.DELETED:
            self._forget_deleted()

    def _forget_deleted(self) -> None:
        deleted = [image for image in self._images.values() if image.state == image_records.DELETED]
        deleted.sort(key=lambda image: image.updated_at)
        for image in deleted[:-MAX_DELETED]:
            self._store.forget(image)
            del self._images[image.name]

    # -- starts of MicroVMs --------------------------------------------------------------------------------------------

    def pin(self, image: Image, version: Version) -> None:
        """A MicroVM is about to be started from that version."""
        self._pins[image.name, version.number] += 1

    def unpin(self, image: Image, version: Version) -> None:
        """It is there, or will not be."""
        self._pins[image.name, version.number] -= 1

    def is_pinned(self, image: Image) -> bool:
        """A MicroVM is about to be started from that image."""
        return any(count for (name, _), count in self._pins.items() if name == image.name)

    def layers_in_use(self) -> Collection[str]:
        """The layers of all versions but those that are being deleted."""
        return {
            layer
            for image in self._images.values()
            for version in image.versions
            if version.built is not None
            and (image_records.DELETING not in {image.state, version.state} or self._pins[image.name, version.number])
            for layer in version.built.layers
        }
