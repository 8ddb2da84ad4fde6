"""Settings of a bucket that are kept and answered, and have no other effect: who may read it is nobody's question here.

A document is taken apart, checked and written anew, so that what is answered is well-formed whatever was sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from . import faults, s3_answers, xml_documents
from .xml_documents import Child, Element

MAX_POLICY_BYTES = 20 << 10
MAX_TAGS = 50
POLICY = "policy"
_BLOCKS = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
_ENCRYPTIONS = ("AES256", "aws:kms", "aws:kms:dsse")
_OWNERSHIPS = ("BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter")


class Setting(NamedTuple):
    """A subresource of a bucket.

    Attributes:
        root: Of its document.
        read: The children of the document, checked.
        missing: Type and message of the error where there is none.
        put_status: Of the answer to who sets it.
    """

    root: str
    read: Callable[[Element], list[Child]]
    missing: tuple[str, str]
    put_status: int = 200


def _read_public_access(element: Element) -> list[Child]:
    told = {child.name: child.text.strip().lower() for child in element.children}
    if not set(told) <= set(_BLOCKS) or not set(told.values()) <= {"true", "false"}:
        raise s3_answers.malformed_xml()
    return [(name, told.get(name) == "true") for name in _BLOCKS]


def _read_encryption(element: Element) -> list[Child]:
    rules: list[Child] = []
    for rule in element.all("Rule"):
        default = rule.find("ApplyServerSideEncryptionByDefault")
        algorithm = None if default is None else default.value("SSEAlgorithm")
        key = None if default is None else default.value("KMSMasterKeyID")
        if algorithm not in _ENCRYPTIONS:
            raise s3_answers.malformed_xml()
        has_bucket_key = (rule.value("BucketKeyEnabled") or "").strip().lower() == "true"
        how: list[Child] = [("SSEAlgorithm", str(algorithm)), None if key is None else ("KMSMasterKeyID", key)]
        rules.append(("Rule", [("ApplyServerSideEncryptionByDefault", how), ("BucketKeyEnabled", has_bucket_key)]))
    if len(rules) != 1:
        raise s3_answers.malformed_xml()
    return rules


def _read_ownership(element: Element) -> list[Child]:
    owners = [rule.value("ObjectOwnership") for rule in element.all("Rule")]
    if len(owners) != 1 or owners[0] not in _OWNERSHIPS:
        raise s3_answers.malformed_xml()
    return _ownership(owners[0])


def _ownership(owner: str) -> list[Child]:
    return [("Rule", [("ObjectOwnership", owner)])]


def _read_tags(element: Element) -> list[Child]:
    tag_set = element.find("TagSet")
    if tag_set is None:
        raise s3_answers.malformed_xml()
    tags: dict[str, str] = {}
    for tag in tag_set.all("Tag"):
        key, value = tag.value("Key"), tag.value("Value")
        if not key or value is None or len(key) > 128 or len(value) > 256:
            raise _invalid_tag("The TagKey or TagValue you have provided is invalid")
        if key in tags:
            raise _invalid_tag("Cannot provide multiple Tags with the same key")
        tags[key] = value
    if len(tags) > MAX_TAGS:
        raise faults.Fault(f"Bucket tag count cannot be greater than {MAX_TAGS}", error_type="BadRequest", status=400)
    return tags_document(tags)


def tags_document(tags: Mapping[str, str]) -> list[Child]:
    """The children of a document of tags."""
    return [("TagSet", [("Tag", [("Key", key), ("Value", value)]) for key, value in tags.items()])]


def _invalid_tag(message: str) -> faults.Fault:
    return faults.Fault(message, error_type="InvalidTag", status=400)


def _read_nothing(element: Element) -> list[Child]:
    return []


SETTINGS: Mapping[str, Setting] = {
    "publicAccessBlock": Setting(
        "PublicAccessBlockConfiguration",
        _read_public_access,
        ("NoSuchPublicAccessBlockConfiguration", "The public access block configuration was not found"),
    ),
    "encryption": Setting(
        "ServerSideEncryptionConfiguration",
        _read_encryption,
        (
            "ServerSideEncryptionConfigurationNotFoundError",
            "The server side encryption configuration was not found",
        ),
    ),
    "ownershipControls": Setting(
        "OwnershipControls",
        _read_ownership,
        ("OwnershipControlsNotFoundError", "The bucket ownership controls were not found"),
    ),
    "tagging": Setting("Tagging", _read_tags, ("NoSuchTagSet", "The TagSet does not exist"), 204),
    POLICY: Setting("", _read_nothing, ("NoSuchBucketPolicy", "The bucket policy does not exist"), 204),
}


def parse_setting(name: str, root: Element) -> str:
    """The text of a setting to be kept and answered.

    Raises:
        faults.Fault: the document is none of it.
    """
    return _text(name, SETTINGS[name].read(root))


def parse_policy(data: bytes) -> str:
    """A bucket's policy, as it is kept.

    Raises:
        faults.Fault: it is no policy.
    """
    if len(data) > MAX_POLICY_BYTES:
        raise _malformed_policy(f"Policy document must not be greater than {MAX_POLICY_BYTES} bytes")
    try:
        text = data.decode()
        policy = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _malformed_policy("Policies must be valid JSON and the first byte must be '{'") from error
    if not isinstance(policy, dict):
        raise _malformed_policy("Policies must be valid JSON and the first byte must be '{'")
    if not policy.get("Statement"):
        raise _malformed_policy("Missing required field Statement")
    return text


def defaults(ownership: str | None) -> dict[str, str]:
    """What holds for a new bucket.

    Raises:
        faults.Fault: there is no such ownership.
    """
    if ownership not in {None, *_OWNERSHIPS}:
        raise s3_answers.invalid_argument(
            "Invalid x-amz-object-ownership header", name="x-amz-object-ownership", value=str(ownership)
        )
    return {
        "publicAccessBlock": _text("publicAccessBlock", [(name, True) for name in _BLOCKS]),
        "encryption": default_encryption(),
        "ownershipControls": _text("ownershipControls", _ownership(ownership or _OWNERSHIPS[0])),
    }


def default_encryption() -> str:
    """What holds where none is configured."""
    rule: list[Child] = [
        ("ApplyServerSideEncryptionByDefault", [("SSEAlgorithm", "AES256")]),
        ("BucketKeyEnabled", False),
    ]
    return _text("encryption", [("Rule", rule)])


def _text(name: str, children: list[Child]) -> str:
    return xml_documents.build(SETTINGS[name].root, children, namespace=s3_answers.NAMESPACE).decode()


def _malformed_policy(message: str) -> faults.Fault:
    return faults.Fault(message, error_type="MalformedPolicy", status=400)
