"""S3 buckets: look at, make, set up, empty, delete."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, BinaryIO

from ... import errors
from ...deadline import Clock, Deadline
from . import answers, attempts
from .roles import Document, parse_document

if TYPE_CHECKING:
    from ...aws.s3 import S3

_ALL_BLOCKED = {
    "BlockPublicAcls": True,
    "IgnorePublicAcls": True,
    "BlockPublicPolicy": True,
    "RestrictPublicBuckets": True,
}
OWNER_ENFORCED = "BucketOwnerEnforced"
ENCRYPTION = "AES256"
VERSIONED = "Enabled"
# Of a bucket that was made, or changed, a moment ago.
_PASSING = frozenset({"OperationAborted"})


@dataclass(frozen=True)
class Bucket:
    """A bucket, as far as that was looked at.

    Attributes:
        name: Which one.
        region: Where it is.
        is_foreign: It belongs to another account, or nothing of it may be seen.
        tags: Of it.
        is_private: All public access is blocked.
        ownership: Who owns its objects (``BucketOwnerEnforced``: the bucket's owner).
        encryption: How objects are encrypted by default.
        versioning: ``Enabled``, or not.
        policy: Its policy document.
    """

    name: str
    region: str | None = None
    is_foreign: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    is_private: bool = False
    ownership: str | None = None
    encryption: str | None = None
    versioning: str | None = None
    policy: Document = field(default_factory=dict)


class Buckets:
    """Calls to S3. What can be made twice is repeated through faults that pass."""

    def __init__(self, s3: S3, *, deadline: Deadline, clock: Clock) -> None:
        self._s3 = s3
        self._deadline = deadline
        self._clock = clock

    def find(self, name: str, *, owner: str | None = None) -> Bucket | None:
        """The bucket of that name with its settings, or None if there is none in any account.

        Args:
            name: Which one.
            owner: The account that it must belong to; in another one it is only said to be foreign.
        """
        located = self.locate(name, owner=owner)
        if located is None or located.is_foreign:
            return located
        return replace(
            located,
            tags=answers.tags(self._setting("GetBucketTagging", name).get("TagSet")),
            is_private=self._is_private(name),
            ownership=self._ownership(name),
            encryption=self._encryption(name),
            versioning=_text(self._setting("GetBucketVersioning", name).get("Status")),
            policy=parse_document(self._setting("GetBucketPolicy", name).get("Policy")),
        )

    def locate(self, name: str, *, owner: str | None = None) -> Bucket | None:
        """The bucket of that name without its settings: all that matters of one that is not ours to change."""
        try:
            head = self._call("HeadBucket", Bucket=name, ExpectedBucketOwner=owner)
        except errors.ResourceNotFoundError:
            return None
        except errors.AccessDeniedError:
            return Bucket(name, is_foreign=True)
        return Bucket(name, region=_text(head.get("BucketRegion")) or self._s3.region)

    def create(self, name: str, *, owner: str | None = None) -> Bucket:
        """Make a bucket, or return the one of that name."""

        def make() -> object:
            return self._s3.create_bucket(name, deadline=self._deadline)

        return attempts.create(make, lambda: self.find(name, owner=owner), deadline=self._deadline, clock=self._clock)

    def tag(self, name: str, tags: Mapping[str, str]) -> None:
        """Set all tags."""
        self._call("PutBucketTagging", Bucket=name, Tagging={"TagSet": answers.tag_list(tags)})

    def block_public(self, name: str) -> None:
        """Block all public access."""
        self._call("PutPublicAccessBlock", Bucket=name, PublicAccessBlockConfiguration=_ALL_BLOCKED)

    def own_objects(self, name: str) -> None:
        """Let the bucket's owner own what others put there; access lists count no more."""
        rules = {"Rules": [{"ObjectOwnership": OWNER_ENFORCED}]}
        self._call("PutBucketOwnershipControls", Bucket=name, OwnershipControls=rules)

    def encrypt(self, name: str) -> None:
        """Encrypt objects with S3's own keys by default."""
        rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": ENCRYPTION}}
        self._call("PutBucketEncryption", Bucket=name, ServerSideEncryptionConfiguration={"Rules": [rule]})

    def keep_versions(self, name: str) -> None:
        """Keep what is overwritten."""
        self._call("PutBucketVersioning", Bucket=name, VersioningConfiguration={"Status": VERSIONED})

    def set_policy(self, name: str, policy: Document) -> None:
        """Set the policy."""
        self._call("PutBucketPolicy", Bucket=name, Policy=json.dumps(policy))

    def has_object(self, name: str, key: str) -> bool:
        """Whether there is an object of that key."""
        try:
            return attempts.repeat(
                lambda: self._s3.exists(name, key, deadline=self._deadline) is not None,
                deadline=self._deadline,
                clock=self._clock,
            )
        except errors.ResourceNotFoundError:
            return False
        except errors.AccessDeniedError:
            # Said of a key that is not there to who may not list the bucket. Who may not write either is told so then.
            return False

    def upload(
        self, name: str, key: str, file: BinaryIO, *, size: int, on_progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Put a file there."""
        attempts.repeat(
            lambda: self._s3.upload(name, key, file, size=size, deadline=self._deadline, on_progress=on_progress),
            deadline=self._deadline,
            clock=self._clock,
        )

    def delete_object(self, name: str, key: str) -> None:
        """Delete all versions of an object, and what is left of uploads of it. What is gone already is no error."""
        try:
            for version in self._versions(name, key):
                self._call("DeleteObject", Bucket=name, Key=key, VersionId=version)
            self._abort_uploads(name, key)
        except errors.ResourceNotFoundError:
            return

    def delete(self, name: str) -> None:
        """Empty a bucket with all versions of all objects, and delete it. What is gone already is no error."""
        try:
            attempts.repeat(
                lambda: self._s3.empty(name, deadline=self._deadline), deadline=self._deadline, clock=self._clock
            )
            self._call("DeleteBucket", Bucket=name)
        except errors.ResourceNotFoundError:
            return

    def _versions(self, name: str, key: str) -> list[str]:
        found: list[str] = []
        marks: dict[str, object] = {}
        while True:
            answer = self._call("ListObjectVersions", Bucket=name, Prefix=key, **marks)
            for item in (*answers.items(answer.get("Versions")), *answers.items(answer.get("DeleteMarkers"))):
                if item.get("Key") == key and isinstance(item.get("VersionId"), str):
                    found.append(str(item["VersionId"]))
            if not answer.get("IsTruncated"):
                return found
            marks = {"KeyMarker": answer.get("NextKeyMarker"), "VersionIdMarker": answer.get("NextVersionIdMarker")}

    def _abort_uploads(self, name: str, key: str) -> None:
        """End the uploads whose process was killed: nobody sees their parts, and they are paid for."""
        seen: set[str] = set()
        while True:
            try:
                answer = self._call("ListMultipartUploads", Bucket=name, Prefix=key)
            except errors.AccessDeniedError:
                return  # the bucket of somebody who does not let us see them
            listed = [each for each in answers.items(answer.get("Uploads")) if each.get("Key") == key]
            found = {answers.text(each, "UploadId") for each in listed} - seen
            for upload in found:
                self._abort(name, key, upload)
            if not found:
                return
            seen |= found

    def _abort(self, name: str, key: str, upload: str) -> None:
        try:
            self._call("AbortMultipartUpload", Bucket=name, Key=key, UploadId=upload)
        except errors.ResourceNotFoundError:
            return

    def _is_private(self, name: str) -> bool:
        blocks = self._setting("GetPublicAccessBlock", name).get("PublicAccessBlockConfiguration")
        return isinstance(blocks, Mapping) and all(blocks.get(each) is True for each in _ALL_BLOCKED)

    def _ownership(self, name: str) -> str | None:
        controls = self._setting("GetBucketOwnershipControls", name).get("OwnershipControls")
        rules = answers.items(controls.get("Rules")) if isinstance(controls, Mapping) else ()
        return _text(rules[0].get("ObjectOwnership")) if rules else None

    def _encryption(self, name: str) -> str | None:
        configuration = self._setting("GetBucketEncryption", name).get("ServerSideEncryptionConfiguration")
        rules = answers.items(configuration.get("Rules")) if isinstance(configuration, Mapping) else ()
        default = rules[0].get("ApplyServerSideEncryptionByDefault") if rules else None
        return _text(default.get("SSEAlgorithm")) if isinstance(default, Mapping) else None

    def _setting(self, operation: str, name: str) -> answers.Answer:
        """A setting of the bucket; one that was never set is answered like something that does not exist."""
        try:
            return self._call(operation, Bucket=name)
        except errors.ResourceNotFoundError:
            return {}

    def _call(self, operation: str, **params: object) -> answers.Answer:
        def ask() -> answers.Answer:
            return self._s3.call(operation, params, deadline=self._deadline)

        return attempts.repeat(ask, deadline=self._deadline, clock=self._clock, passing=_PASSING)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
