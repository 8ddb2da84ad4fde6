"""Images on disk: a file each in ``<folder>/images``, and one for each client token that an answer was given for.

A file is replaced as a whole, so that an image is there with all its versions or not at all. An image that was deleted
leaves its name behind, since deleting it once more is no error. Client tokens are for ever, as on AWS: a token that was
used gets its answer again, even when the image is gone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from . import built, image_records, keeping
from .image_records import Build, Image, Version

FOLDER = "images"
SCHEMA = 1
_TOKENS = "tokens"
_NOTE = ".json"

Wire = Mapping[str, object]
Item = TypeVar("Item")


class Store:
    """See the module. Not for two threads at once with the same image, or the same client token."""

    def __init__(self, folder: str) -> None:
        self._folder = keeping.open_folder(os.path.join(folder, FOLDER))
        self._tokens = keeping.open_folder(os.path.join(self._folder, _TOKENS))

    def load(self) -> list[Image]:
        """All images in the order in which they were made, deleted ones too. Damaged files are kept aside."""
        found = []
        for path in keeping.files(self._folder, _NOTE):
            image = keeping.load(path, _parse_image)
            if image is not None and self._path(image.name) == path:
                found.append(image)
        return sorted(found, key=lambda image: image.number)

    def save(self, image: Image) -> None:
        """Note how the image is now.

        Raises:
            errors.LocalCloudError: it cannot be written; what was noted before still is.
        """
        keeping.save(self._path(image.name), _image_to_wire(image))

    def forget(self, image: Image) -> None:
        """The image is of no use any more."""
        keeping.remove(self._path(image.name))

    # -- client tokens -------------------------------------------------------------------------------------------------

    def answer(self, operation: str, token: str) -> tuple[str, Wire] | None:
        """The fingerprint of the call that the token was used for, and its answer; None if it was not."""
        return keeping.load(self._token_path(operation, token), _parse_answer)

    def keep_answer(self, operation: str, token: str, *, fingerprint: str, answer: Wire) -> None:
        """Note what a call with that token was answered.

        Raises:
            errors.LocalCloudError: it cannot be written.
        """
        note = {"schema": SCHEMA, "fingerprint": fingerprint, "answer": answer}
        keeping.save(self._token_path(operation, token), note)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name + _NOTE)

    def _token_path(self, operation: str, token: str) -> str:
        digest = hashlib.sha256(json.dumps([operation, token]).encode()).hexdigest()
        return os.path.join(self._tokens, digest + _NOTE)


# -- to JSON -----------------------------------------------------------------------------------------------------------


def _image_to_wire(image: Image) -> Wire:
    return {
        "schema": SCHEMA,
        "name": image.name,
        "image_id": image.image_id,
        "number": image.number,
        "created_at": image.created_at,
        "updated_at": image.updated_at,
        "state": image.state,
        "last_number": image.last_number,
        "versions": [_version_to_wire(version) for version in image.versions],
    }


def _version_to_wire(version: Version) -> Wire:
    return {
        "number": version.number,
        "settings": version.settings,
        "created_at": version.created_at,
        "updated_at": version.updated_at,
        "state": version.state,
        "status": version.status,
        "reason": version.reason,
        "built": None if version.built is None else version.built.to_wire(),
        "builds": [_build_to_wire(build) for build in version.builds],
    }


def _build_to_wire(build: Build) -> Wire:
    return {
        "build_id": build.build_id,
        "generation": build.generation,
        "created_at": build.created_at,
        "state": build.state,
        "reason": build.reason,
    }


# -- from JSON: what stands in a file may be anything ------------------------------------------------------------------


def _parse_image(value: object) -> Image:
    note = _of_schema(value)
    versions = tuple(_each(note, "versions", _parse_version))
    numbers = [version.number for version in versions]
    last = _whole(note, "last_number")
    if numbers != sorted(set(numbers)) or (numbers and numbers[-1] > last):
        raise ValueError("the numbers of its versions make no sense")
    image = Image(
        name=keeping.text(note, "name"),
        image_id=keeping.text(note, "image_id"),
        number=_whole(note, "number"),
        created_at=keeping.number(note, "created_at"),
        updated_at=keeping.number(note, "updated_at"),
        state=_chosen(note, "state", image_records.IMAGE_STATES),
        last_number=last,
        versions=versions,
    )
    if not image.is_consistent:
        raise ValueError("its states make no sense")
    return image


def _parse_version(note: dict[str, object]) -> Version:
    made = note.get("built")
    return Version(
        number=_whole(note, "number"),
        settings=keeping.mapping(note.get("settings")),
        created_at=keeping.number(note, "created_at"),
        updated_at=keeping.number(note, "updated_at"),
        state=_chosen(note, "state", image_records.VERSION_STATES),
        status=_chosen(note, "status", (image_records.ACTIVE, image_records.INACTIVE)),
        reason=_text_or_none(note, "reason"),
        built=None if made is None else built.Built.from_wire(keeping.mapping(made)),
        builds=tuple(_each(note, "builds", _parse_build)),
    )


def _parse_build(note: dict[str, object]) -> Build:
    return Build(
        build_id=keeping.text(note, "build_id"),
        generation=keeping.text(note, "generation"),
        created_at=keeping.number(note, "created_at"),
        state=_chosen(note, "state", image_records.BUILD_STATES),
        reason=_text_or_none(note, "reason"),
    )


def _parse_answer(value: object) -> tuple[str, Wire]:
    note = _of_schema(value)
    return keeping.text(note, "fingerprint"), keeping.mapping(note.get("answer"))


def _of_schema(value: object) -> dict[str, object]:
    note = keeping.mapping(value)
    if note.get("schema") != SCHEMA:
        raise ValueError("it has another schema")
    return note


def _each(note: dict[str, object], name: str, parse: Callable[[dict[str, object]], Item]) -> Iterable[Item]:
    items = note.get(name)
    if not isinstance(items, list):
        raise ValueError(f"its member {name} is no list")
    return [parse(keeping.mapping(item)) for item in items]


def _whole(note: dict[str, object], name: str) -> int:
    value = keeping.number(note, name)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"its member {name} is no whole number")
    return value


def _chosen(note: dict[str, object], name: str, choices: Iterable[str]) -> str:
    value = keeping.text(note, name)
    if value not in choices:
        raise ValueError(f"its member {name} is unknown")
    return value


def _text_or_none(note: dict[str, object], name: str) -> str | None:
    return None if note.get(name) is None else keeping.text(note, name)
