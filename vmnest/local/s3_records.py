"""What the local S3 keeps of buckets and objects, as values and as JSON."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from . import keeping

NULL_VERSION = "null"  # the one version of a key for which versions are not kept
ENABLED = "Enabled"
SUSPENDED = "Suspended"
FULL_OBJECT = "FULL_OBJECT"
COMPOSITE = "COMPOSITE"


@dataclass(frozen=True)
class Content:
    """What is said of an object beside its bytes.

    Attributes:
        headers: Of its content (``content-type`` and the like), by their names in lower case.
        metadata: The user's own, by the names behind ``x-amz-meta-``.
        checksums: Base64 by algorithm (``crc32``); of COMPOSITE ones with the number of parts behind a dash.
        checksum_type: FULL_OBJECT or COMPOSITE.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)
    checksum_type: str = FULL_OBJECT

    def to_wire(self) -> dict[str, object]:
        """As JSON."""
        return {
            "headers": dict(self.headers),
            "metadata": dict(self.metadata),
            "checksums": dict(self.checksums),
            "checksum_type": self.checksum_type,
        }


@dataclass(frozen=True)
class Version:
    """A version of an object, or a delete marker.

    Attributes:
        version_id: NULL_VERSION, or random.
        modified_at: When it was put.
        is_marker: It is a delete marker: all below is empty.
        data: The name of the file with its bytes.
        etag: Without quotes.
    """

    version_id: str
    modified_at: float
    is_marker: bool = False
    data: str = ""
    size: int = 0
    etag: str = ""
    content: Content = field(default_factory=Content)

    def to_wire(self) -> dict[str, object]:
        """As JSON."""
        return {
            "version_id": self.version_id,
            "modified_at": self.modified_at,
            "is_marker": self.is_marker,
            "data": self.data,
            "size": self.size,
            "etag": self.etag,
            "content": self.content.to_wire(),
        }


@dataclass(frozen=True)
class Entry:
    """A key and its versions, the newest first; there is at least one."""

    key: str
    versions: Sequence[Version]

    @property
    def current(self) -> Version | None:
        """The object of that key; None if it was deleted."""
        newest = self.versions[0]
        return None if newest.is_marker else newest

    def to_wire(self) -> dict[str, object]:
        """As JSON."""
        return {"key": self.key, "versions": [version.to_wire() for version in self.versions]}


@dataclass(frozen=True)
class Bucket:
    """A bucket. ``settings`` are the texts of its subresources (``policy``, …), as they are answered."""

    name: str
    created_at: float
    region: str
    versioning: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    def to_wire(self) -> dict[str, object]:
        """As JSON."""
        return {
            "name": self.name,
            "created_at": self.created_at,
            "region": self.region,
            "versioning": self.versioning,
            "settings": dict(self.settings),
        }


def parse_bucket(value: object) -> Bucket:
    """The bucket in a record. Raises ValueError."""
    record = keeping.mapping(value)
    return Bucket(
        name=keeping.text(record, "name"),
        created_at=keeping.number(record, "created_at"),
        region=keeping.text(record, "region"),
        versioning=keeping.text(record, "versioning"),
        settings=keeping.texts(record, "settings"),
    )


def parse_entry(value: object) -> Entry:
    """The key and its versions in a record. Raises ValueError."""
    record = keeping.mapping(value)
    versions = record.get("versions")
    if not isinstance(versions, list) or not versions:
        raise ValueError("it has no versions")
    return Entry(keeping.text(record, "key"), tuple(_parse_version(each) for each in versions))


def _parse_version(value: object) -> Version:
    record = keeping.mapping(value)
    data = keeping.text(record, "data")
    if "/" in data or data in {".", ".."}:
        raise ValueError("its data is elsewhere")
    return Version(
        version_id=keeping.text(record, "version_id"),
        modified_at=keeping.number(record, "modified_at"),
        is_marker=record.get("is_marker") is True,
        data=data,
        size=int(keeping.number(record, "size")),
        etag=keeping.text(record, "etag"),
        content=parse_content(record.get("content")),
    )


def parse_content(value: object) -> Content:
    """What is said of an object, in a record. Raises ValueError."""
    record = keeping.mapping(value)
    return Content(
        headers=keeping.texts(record, "headers"),
        metadata=keeping.texts(record, "metadata"),
        checksums=keeping.texts(record, "checksums"),
        checksum_type=keeping.text(record, "checksum_type"),
    )


def new_version_id() -> str:
    """As S3's: 32 characters that say nothing."""
    return base64.b64encode(os.urandom(24), altchars=b"_.").decode()
