"""The objects of the local S3: buckets, keys and their versions, on disk.

Below ``<folder>/account/s3`` each bucket has a folder: ``bucket.json``, a note for each key (named by its digest, since
keys are anything), and a file for the bytes of each version. Bytes come as a file that was written elsewhere on the
same filesystem and is renamed into place. What is open stays readable when its object is deleted or replaced.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import BinaryIO

from .. import deadline
from . import faults, keeping, s3_records
from .s3_records import Bucket, Content, Entry, Version

_LOG = logging.getLogger(__name__)

S3_FOLDER = "s3"
_BUCKET_FILE = "bucket.json"
_KEYS = "keys"
_DATA = "data"
_NOTE = ".json"

Change = Callable[[Bucket], Bucket]


class _Held:
    """A bucket in memory."""

    def __init__(self, bucket: Bucket, folder: str) -> None:
        self.bucket = bucket
        self.folder = folder
        self.entries: dict[str, Entry] = {}

    def note(self, key: str) -> str:
        return os.path.join(self.folder, _KEYS, hashlib.sha256(key.encode()).hexdigest() + _NOTE)

    def data(self, version: Version) -> str:
        return os.path.join(self.folder, _DATA, version.data)


class Store:
    """All buckets of the local account. Thread-safe."""

    def __init__(self, folder: str, *, clock: deadline.Clock = deadline.SYSTEM_CLOCK) -> None:
        self._folder = keeping.open_folder(os.path.join(folder, keeping.FOLDER, S3_FOLDER))
        self._clock = clock
        self._lock = threading.RLock()  # guards the buckets and the notes of their keys
        self._buckets = {held.bucket.name: held for held in self._load()}

    # -- buckets -------------------------------------------------------------------------------------------------------

    def create(self, name: str, *, region: str, settings: dict[str, str]) -> Bucket:
        """Make a bucket.

        Raises:
            faults.Fault: it is there already.
        """
        with self._lock:
            if name in self._buckets:
                raise faults.Fault(
                    "Your previous request to create the named bucket succeeded and you already own it.",
                    error_type="BucketAlreadyOwnedByYou",
                    status=409,
                    members={"BucketName": name},
                )
            bucket = Bucket(name, created_at=self._clock.time(), region=region, settings=settings)
            held = _Held(bucket, os.path.join(self._folder, name))
            shutil.rmtree(held.folder, ignore_errors=True)  # of one whose deletion was cut short
            for part in (_KEYS, _DATA):
                keeping.open_folder(os.path.join(held.folder, part))
            keeping.save(os.path.join(held.folder, _BUCKET_FILE), bucket.to_wire())
            self._buckets[name] = held
            return bucket

    def all(self) -> list[Bucket]:
        """All buckets, by name."""
        with self._lock:
            return [self._buckets[name].bucket for name in sorted(self._buckets)]

    def get(self, name: str) -> Bucket:
        """That bucket.

        Raises:
            faults.Fault: S3_NO_SUCH_BUCKET.
        """
        with self._lock:
            return self._held(name).bucket

    def folder(self, name: str) -> str:
        """That bucket's own folder, for what else belongs to it. Raises as ``get``."""
        with self._lock:
            return self._held(name).folder

    def change(self, name: str, change: Change) -> Bucket:
        """Replace what is said of a bucket. Raises as ``get``."""
        with self._lock:
            held = self._held(name)
            changed = change(held.bucket)
            keeping.save(os.path.join(held.folder, _BUCKET_FILE), changed.to_wire())
            held.bucket = changed
            return changed

    def delete(self, name: str) -> None:
        """Remove an empty bucket; unfinished uploads go with it.

        Raises:
            faults.Fault: it is not there, or has versions or delete markers.
        """
        with self._lock:
            held = self._held(name)
            if held.entries:
                versioned = " You must delete all versions in the bucket." if held.bucket.versioning else ""
                raise faults.Fault(
                    f"The bucket you tried to delete is not empty.{versioned}",
                    error_type="BucketNotEmpty",
                    status=409,
                    members={"BucketName": name},
                )
            # First its name: should the rest fail, it is no bucket any more.
            keeping.remove(os.path.join(held.folder, _BUCKET_FILE))
            del self._buckets[name]
            shutil.rmtree(held.folder, ignore_errors=True)

    # -- objects -------------------------------------------------------------------------------------------------------

    def put(self, name: str, key: str, *, path: str, etag: str, content: Content, only_new: bool = False) -> Version:
        """Make the file at ``path`` the newest version of ``key``; it is the store's from then on.

        Args:
            name: The bucket.
            key: The key.
            path: The bytes, on the filesystem of the folder.
            etag: Their ETag.
            content: What is said of them.
            only_new: Refuse if there is an object of that key.

        Raises:
            faults.Fault: there is no such bucket; or ``only_new`` is set, and there is an object.
        """
        with self._lock:
            held = self._held(name)
            entry = held.entries.get(key)
            if only_new and entry is not None and entry.current is not None:
                raise precondition_failed("If-None-Match")
            version = Version(
                version_id=self._new_id(held),
                modified_at=self._clock.time(),
                data=uuid.uuid4().hex,
                size=os.stat(path).st_size,
                etag=etag,
                content=content,
            )
            os.rename(path, held.data(version))
            try:
                self._add(held, key, version)
            except BaseException:
                keeping.remove(held.data(version))
                raise
            return version

    def find(self, name: str, key: str, version_id: str | None = None) -> Version:
        """The newest version of a key, or the one of that id; it may be a delete marker then.

        Raises:
            faults.Fault: there is no such bucket, key or version.
        """
        with self._lock:
            entry = self._held(name).entries.get(key)
            if version_id is None:
                current = None if entry is None else entry.current
                if current is None:
                    raise faults.no_such_key(key)
                return current
            for version in () if entry is None else entry.versions:
                if version.version_id == version_id:
                    return version
            raise _no_such_version(key, version_id)

    def newest(self, name: str, key: str) -> Version | None:
        """The newest version of a key, be it a delete marker; None if there is none at all."""
        with self._lock:
            entry = self._held(name).entries.get(key)
            return None if entry is None else entry.versions[0]

    def open_object(self, name: str, key: str, version_id: str | None = None) -> BinaryIO:
        """The bytes of an object. Raises as ``find``."""
        return self.open_version(name, key, version_id)[1]

    def open_version(self, name: str, key: str, version_id: str | None = None) -> tuple[Version, BinaryIO]:
        """A version and its bytes, as they belong together, whatever is put meanwhile. Raises as ``find``."""
        with self._lock:
            version = self.find(name, key, version_id)
            if version.is_marker:
                raise faults.no_such_key(key)
            return version, open(self._held(name).data(version), "rb")

    def remove(self, name: str, key: str, version_id: str | None = None) -> Version | None:
        """Delete a key or one version of it; the delete marker that was made, or the version that was removed.

        None if there was nothing to remove, which is no error.
        """
        with self._lock:
            held = self._held(name)
            if version_id is None and held.bucket.versioning:
                marker = Version(self._new_id(held), modified_at=self._clock.time(), is_marker=True)
                self._add(held, key, marker)
                return marker
            entry = held.entries.get(key)
            wanted = version_id or s3_records.NULL_VERSION
            gone = [each for each in entry.versions if each.version_id == wanted] if entry is not None else []
            if entry is None or not gone:
                return None
            self._replace(held, key, [each for each in entry.versions if each.version_id != wanted])
            self._discard(held, gone)
            return gone[0]

    def entries(self, name: str) -> list[Entry]:
        """All keys with their versions, in the order of the keys' bytes. Raises as ``get``."""
        with self._lock:
            found = list(self._held(name).entries.values())
        return sorted(found, key=lambda entry: entry.key.encode())

    # -- their parts ---------------------------------------------------------------------------------------------------

    def _held(self, name: str) -> _Held:
        held = self._buckets.get(name)
        if held is None:
            raise faults.no_such_bucket(name)
        return held

    def _new_id(self, held: _Held) -> str:
        is_versioned = held.bucket.versioning == s3_records.ENABLED
        return s3_records.new_version_id() if is_versioned else s3_records.NULL_VERSION

    def _add(self, held: _Held, key: str, version: Version) -> None:
        entry = held.entries.get(key)
        before = list(entry.versions) if entry is not None else []
        replaced = [each for each in before if each.version_id == version.version_id]
        self._replace(held, key, [version, *(each for each in before if each not in replaced)])
        self._discard(held, replaced)

    def _replace(self, held: _Held, key: str, versions: list[Version]) -> None:
        if not versions:
            keeping.remove(held.note(key))
            held.entries.pop(key, None)
            return
        entry = Entry(key, tuple(versions))
        keeping.save(held.note(key), entry.to_wire(), synced=False)
        held.entries[key] = entry

    def _discard(self, held: _Held, versions: Iterable[Version]) -> None:
        for version in versions:
            if version.data:
                keeping.remove(held.data(version))

    # -- what an earlier daemon left -----------------------------------------------------------------------------------

    def _load(self) -> Iterable[_Held]:
        for found in sorted(os.scandir(self._folder), key=lambda each: each.name):
            if not found.is_dir(follow_symlinks=False):
                continue
            bucket = keeping.load(os.path.join(found.path, _BUCKET_FILE), s3_records.parse_bucket)
            if bucket is None or bucket.name != found.name:
                continue
            held = _Held(bucket, found.path)
            for part in (_KEYS, _DATA):
                keeping.open_folder(os.path.join(held.folder, part))
            self._load_entries(held)
            yield held

    def _load_entries(self, held: _Held) -> None:
        for path in keeping.files(os.path.join(held.folder, _KEYS), _NOTE):
            entry = keeping.load(path, s3_records.parse_entry)
            if entry is None or held.note(entry.key) != path:
                continue
            whole = [version for version in entry.versions if version.is_marker or _is_whole(held, version)]
            if len(whole) < len(entry.versions):
                _LOG.warning("the bytes of %s in bucket %s are lost", entry.key, held.bucket.name)
            if whole:
                held.entries[entry.key] = dataclasses.replace(entry, versions=tuple(whole))
        # Of a daemon that was killed between the bytes and their note, or between a note and the old bytes.
        known = {version.data for entry in held.entries.values() for version in entry.versions}
        for path in keeping.files(os.path.join(held.folder, _DATA), ""):
            if os.path.basename(path) not in known:
                keeping.remove(path)


def _is_whole(held: _Held, version: Version) -> bool:
    with contextlib.suppress(OSError):
        return os.stat(held.data(version)).st_size == version.size
    return False


def precondition_failed(condition: str) -> faults.Fault:
    """A condition of the request does not hold (412)."""
    return faults.Fault(
        "At least one of the pre-conditions you specified did not hold",
        error_type="PreconditionFailed",
        status=412,
        members={"Condition": condition},
    )


def _no_such_version(key: str, version_id: str) -> faults.Fault:
    return faults.Fault(
        "The specified version does not exist.",
        error_type="NoSuchVersion",
        status=404,
        members={"Key": key, "VersionId": version_id},
    )
