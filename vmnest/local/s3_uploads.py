"""Multipart uploads of the local S3: parts on disk until they are one object, or are given up.

Each upload has a folder within its bucket's: a note of what the object is to be, and for each part a note and a file.
Nothing is held in memory, so that the next daemon goes on with what this one leaves.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from .. import deadline
from . import buckets, faults, keeping, s3_bodies, s3_checksums, s3_records

FOLDER = "uploads"
MAX_PARTS = 10_000
MIN_PART_BYTES = 5 << 20  # but for the last one
MAX_UPLOADS = 1000  # of a bucket, unfinished
_UPLOAD_FILE = "upload.json"
_PART = ".part.json"
_BYTES = ".bytes"
_ID = re.compile(r"[A-Za-z0-9_-]{20,60}")
_COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class Upload:
    """An upload.

    Attributes:
        content: What is to be said of the object.
        algorithm: Of its checksum, in lower case; empty: there is none.
        checksum_type: FULL_OBJECT or COMPOSITE.
    """

    upload_id: str
    key: str
    begun_at: float
    content: s3_records.Content
    algorithm: str = ""
    checksum_type: str = s3_records.COMPOSITE


@dataclass(frozen=True)
class Part:
    """A part that came. ``checksums`` are base64 by algorithm."""

    number: int
    etag: str
    size: int
    modified_at: float
    checksums: dict[str, str]
    data: str


@dataclass(frozen=True)
class Wanted:
    """A part as its sender lists it at the end."""

    number: int
    etag: str
    checksums: dict[str, str]


@dataclass(frozen=True)
class Expected:
    """What the object must be, as its sender says at the end: its size as a text, checksums by algorithm."""

    size: str | None = None
    checksums: Mapping[str, str] = field(default_factory=dict)


NOTHING_EXPECTED = Expected()


class Uploads:
    """The unfinished uploads to all buckets of a store. Thread-safe."""

    def __init__(self, store: buckets.Store, *, clock: deadline.Clock = deadline.SYSTEM_CLOCK) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()  # guards the folders of the uploads

    def begin(
        self, bucket: str, key: str, *, content: s3_records.Content, algorithm: str, checksum_type: str
    ) -> Upload:
        """A new upload.

        Raises:
            faults.Fault: there is no such bucket, or it has too many.
        """
        upload = Upload(
            base64.urlsafe_b64encode(os.urandom(30)).decode(),
            key=key,
            begun_at=self._clock.time(),
            content=content,
            algorithm=algorithm,
            checksum_type=checksum_type,
        )
        with self._lock:
            folder = os.path.join(self._store.folder(bucket), FOLDER)
            if os.path.isdir(folder) and len(os.listdir(folder)) >= MAX_UPLOADS:
                raise faults.Fault(
                    f"The bucket has {MAX_UPLOADS} unfinished uploads.", error_type="TooManyUploads", status=400
                )
            place = keeping.open_folder(os.path.join(folder, upload.upload_id))
            try:
                keeping.save(os.path.join(place, _UPLOAD_FILE), _to_wire(upload), synced=False)
            except BaseException:  # a full disk: a folder of no upload would count as one for ever
                _discard(place)
                raise
        return upload

    def get(self, bucket: str, key: str, upload_id: str) -> Upload:
        """That upload.

        Raises:
            faults.Fault: there is no such bucket, or no such upload to that key.
        """
        return self._find(bucket, key, upload_id)[0]

    def all(self, bucket: str) -> list[Upload]:
        """The uploads to a bucket, by key, and then as they were begun. Raises if there is no such bucket."""
        folder = os.path.join(self._store.folder(bucket), FOLDER)
        if not os.path.isdir(folder):
            return []
        found = [_load(os.path.join(folder, name)) for name in os.listdir(folder)]
        known = [upload for upload in found if upload is not None]
        return sorted(known, key=lambda upload: (upload.key.encode(), upload.begun_at, upload.upload_id))

    def put_part(self, bucket: str, key: str, upload_id: str, *, number: int, spooled: s3_bodies.Spooled) -> Part:
        """Take a part; the one of that number before it is replaced. Raises as ``get``."""
        facts = spooled.facts
        with self._lock:
            _, place = self._find(bucket, key, upload_id)
            part = Part(
                number,
                etag=facts.md5,
                size=facts.size,
                modified_at=self._clock.time(),
                checksums=facts.checksums,
                data=f"{number}.{os.urandom(6).hex()}{_BYTES}",
            )
            note = os.path.join(place, f"{number}{_PART}")
            before = keeping.load(note, _parse_part)
            os.rename(spooled.path, os.path.join(place, part.data))
            keeping.save(note, vars(part), synced=False)
            if before is not None:
                keeping.remove(os.path.join(place, before.data))
            return part

    def parts(self, bucket: str, key: str, upload_id: str) -> list[Part]:
        """The parts that came, by number. Raises as ``get``."""
        with self._lock:
            return _parts(self._find(bucket, key, upload_id)[1])

    def abort(self, bucket: str, key: str, upload_id: str) -> None:
        """Give it up. Raises as ``get``."""
        with self._lock:
            _, place = self._find(bucket, key, upload_id)
            _discard(place)

    def complete(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        *,
        wanted: Sequence[Wanted],
        spool: str,
        only_new: bool = False,
        expected: Expected = NOTHING_EXPECTED,
    ) -> s3_records.Version:
        """Make one object of the parts that are wanted; the upload is over.

        Raises:
            faults.Fault: as ``get``; or the parts are not what came; or as ``buckets.Store.put``.
        """
        with self._lock:
            upload, place = self._find(bucket, key, upload_id)
            chosen = _choose(wanted, {part.number: part for part in _parts(place)})
            _check_size(expected, chosen)
            path = os.path.join(spool, os.urandom(12).hex())
            try:
                with open(path, "xb") as target:
                    crc32 = _join([os.path.join(place, part.data) for part in chosen], target)
                content = _with_checksum(upload, chosen, crc32=crc32, said=expected.checksums)
                version = self._store.put(
                    bucket,
                    key,
                    path=path,
                    etag=s3_checksums.etag_of_parts([part.etag for part in chosen]),
                    content=content,
                    only_new=only_new,
                )
            finally:
                keeping.remove(path)
            _discard(place)
            return version

    def _find(self, bucket: str, key: str, upload_id: str) -> tuple[Upload, str]:
        place = os.path.join(self._store.folder(bucket), FOLDER, upload_id)
        upload = _load(place) if _ID.fullmatch(upload_id) else None
        if upload is None or upload.key != key:
            raise faults.Fault(
                "The specified upload does not exist. The upload ID may be invalid, or the upload may have been "
                "aborted or completed.",
                error_type="NoSuchUpload",
                status=404,
                members={"UploadId": upload_id},
            )
        return upload, place


def _choose(wanted: Sequence[Wanted], came: dict[int, Part]) -> list[Part]:
    numbers = [part.number for part in wanted]
    if numbers != sorted(set(numbers)):
        raise _fault("InvalidPartOrder", "The list of parts was not in ascending order.")
    chosen = []
    for each in wanted:
        part = came.get(each.number)
        if part is None or part.etag != each.etag or not _agree(each.checksums, part.checksums):
            raise _fault(
                "InvalidPart",
                "One or more of the specified parts could not be found. The part may not have been uploaded, or the "
                "specified entity tag may not match the part's entity tag.",
            )
        chosen.append(part)
    if any(part.size < MIN_PART_BYTES for part in chosen[:-1]):
        raise _fault("EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size")
    return chosen


def _agree(wanted: dict[str, str], came: dict[str, str]) -> bool:
    return all(came.get(algorithm, text) == text for algorithm, text in wanted.items())


def _join(paths: Sequence[str], target: BinaryIO) -> int:
    """Write all files into one; its CRC32, which costs little."""
    crc32 = 0
    for path in paths:
        with open(path, "rb") as source:
            while piece := source.read(_COPY_BYTES):
                crc32 = zlib.crc32(piece, crc32)
                target.write(piece)
    return crc32


def _check_size(expected: Expected, parts: Sequence[Part]) -> None:
    if expected.size is not None and expected.size != str(sum(part.size for part in parts)):
        raise _fault("InvalidRequest", "The provided 'x-amz-mp-object-size' header does not match what was computed.")


def _with_checksum(upload: Upload, parts: Sequence[Part], *, crc32: int, said: Mapping[str, str]) -> s3_records.Content:
    checksum = None
    if upload.checksum_type == s3_records.COMPOSITE and upload.algorithm:
        told = [part.checksums.get(upload.algorithm) for part in parts]
        checksum = s3_checksums.of_parts(upload.algorithm, [each or "?" for each in told])
    elif upload.algorithm == "crc32":
        checksum = s3_checksums.encode(crc32.to_bytes(4, "big"))
    elif upload.algorithm:
        checksum = said.get(upload.algorithm)  # too much to compute; its parts were held to theirs
    if checksum is not None and said.get(upload.algorithm, checksum).partition("-")[0] != checksum.partition("-")[0]:
        raise _fault("BadDigest", f"The {upload.algorithm.upper()} you specified did not match what we received.")
    checksums = {} if checksum is None else {upload.algorithm: checksum}
    return s3_records.Content(upload.content.headers, upload.content.metadata, checksums, upload.checksum_type)


def _parts(place: str) -> list[Part]:
    found = [keeping.load(path, _parse_part) for path in keeping.files(place, _PART)]
    return sorted((part for part in found if part is not None), key=lambda part: part.number)


def _discard(place: str) -> None:
    # First what makes it an upload: should the rest fail, it is none any more.
    keeping.remove(os.path.join(place, _UPLOAD_FILE))
    shutil.rmtree(place, ignore_errors=True)


def _to_wire(upload: Upload) -> dict[str, object]:
    return {**vars(upload), "content": upload.content.to_wire()}


def _load(place: str) -> Upload | None:
    upload = keeping.load(os.path.join(place, _UPLOAD_FILE), _parse_upload)
    return upload if upload is not None and upload.upload_id == os.path.basename(place) else None


def _parse_upload(value: object) -> Upload:
    record = keeping.mapping(value)
    return Upload(
        upload_id=keeping.text(record, "upload_id"),
        key=keeping.text(record, "key"),
        begun_at=keeping.number(record, "begun_at"),
        content=s3_records.parse_content(record.get("content")),
        algorithm=keeping.text(record, "algorithm"),
        checksum_type=keeping.text(record, "checksum_type"),
    )


def _parse_part(value: object) -> Part:
    record = keeping.mapping(value)
    data = keeping.text(record, "data")
    if "/" in data:
        raise ValueError("its bytes are elsewhere")
    return Part(
        number=int(keeping.number(record, "number")),
        etag=keeping.text(record, "etag"),
        size=int(keeping.number(record, "size")),
        modified_at=keeping.number(record, "modified_at"),
        checksums=keeping.texts(record, "checksums"),
        data=data,
    )


def _fault(error_type: str, message: str) -> faults.Fault:
    return faults.Fault(message, error_type=error_type, status=400)
