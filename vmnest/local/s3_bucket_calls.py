"""Calls of the local S3 about buckets and what is set for them."""

from __future__ import annotations

import dataclasses
import ipaddress
import re

from . import faults, httpd, s3_answers, s3_records, s3_settings, xml_documents
from .s3_calls import Call
from .xml_documents import Child, Element

US_EAST_1 = "us-east-1"  # the region that has no name in a location constraint
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]")


def list_buckets(call: Call) -> httpd.Reply:
    """ListBuckets."""
    prefix, region = call.query.get("prefix", ""), call.query.get("bucket-region")
    limit = call.number("max-buckets", default=10_000, most=10_000)
    after = call.query.get("continuation-token", "")
    found = [
        bucket
        for bucket in call.parts.store.all()
        if bucket.name.startswith(prefix) and bucket.name > after and region in {None, bucket.region}
    ]
    chosen = found[:limit]
    items: list[Child] = [
        (
            "Bucket",
            [
                ("Name", bucket.name),
                ("CreationDate", s3_answers.moment(bucket.created_at)),
                ("BucketRegion", bucket.region),
            ],
        )
        for bucket in chosen
    ]
    token: Child = ("ContinuationToken", chosen[-1].name) if chosen and len(found) > limit else None
    return s3_answers.document(
        "ListAllMyBucketsResult",
        [s3_answers.owner(), ("Buckets", items), ("Prefix", prefix) if prefix else None, token],
    )


def create(call: Call) -> httpd.Reply:
    """CreateBucket."""
    _check_name(call.bucket)
    if (call.field("x-amz-bucket-object-lock-enabled") or "").lower() == "true":
        raise s3_answers.not_implemented("locks no objects: x-amz-bucket-object-lock-enabled")
    settings = s3_settings.defaults(call.field("x-amz-object-ownership"))
    data = call.body.read()
    configuration = None if not data else _parse_configuration(call, data)
    constraint = None if configuration is None else configuration.value("LocationConstraint")
    tags = None if configuration is None else configuration.find("Tags")
    if tags is not None:
        wrapped = Element("Tagging", [Element("TagSet", tags.children)])
        settings["tagging"] = s3_settings.parse_setting("tagging", wrapped)
    region = _region(constraint or None, signed_for=call.region)
    call.parts.store.create(call.bucket, region=region, settings=settings)
    return s3_answers.empty(fields=[("Location", f"/{call.bucket}"), ("x-amz-bucket-arn", _arn(call.bucket))])


def head(call: Call) -> httpd.Reply:
    """HeadBucket."""
    bucket = call.parts.store.get(call.bucket)
    fields = [
        ("x-amz-bucket-region", bucket.region),
        ("x-amz-bucket-arn", _arn(bucket.name)),
        ("x-amz-access-point-alias", "false"),
    ]
    return s3_answers.empty(fields=[*fields, ("Content-Type", "application/xml")])


def delete(call: Call) -> httpd.Reply:
    """DeleteBucket."""
    call.parts.store.delete(call.bucket)
    return s3_answers.empty(204)


def location(call: Call) -> httpd.Reply:
    """GetBucketLocation: nothing for us-east-1."""
    region = call.parts.store.get(call.bucket).region
    # The one document whose root is its text.
    text = "" if region == US_EAST_1 else region
    root = f'<LocationConstraint xmlns="{s3_answers.NAMESPACE}">{text}</LocationConstraint>'
    return s3_answers.text(f'<?xml version="1.0" encoding="UTF-8"?>\n{root}')


def get_versioning(call: Call) -> httpd.Reply:
    """GetBucketVersioning."""
    status = call.parts.store.get(call.bucket).versioning
    return s3_answers.document("VersioningConfiguration", [("Status", status) if status else None])


def put_versioning(call: Call) -> httpd.Reply:
    """PutBucketVersioning."""
    call.parts.store.get(call.bucket)
    status = call.document("VersioningConfiguration").value("Status")
    if status not in {s3_records.ENABLED, s3_records.SUSPENDED}:
        raise s3_answers.malformed_xml()
    call.parts.store.change(call.bucket, lambda bucket: dataclasses.replace(bucket, versioning=str(status)))
    return s3_answers.empty()


# -- settings: one set of calls for all of them ------------------------------------------------------------------------


def get_setting(call: Call, name: str) -> httpd.Reply:
    """GetBucketPolicy, GetPublicAccessBlock, …"""
    text = call.parts.store.get(call.bucket).settings.get(name)
    if text is None:
        error_type, message = s3_settings.SETTINGS[name].missing
        raise faults.Fault(message, error_type=error_type, status=404, members={"BucketName": call.bucket})
    is_policy = name == s3_settings.POLICY
    return s3_answers.text(text, kind="application/json" if is_policy else "application/xml")


def put_setting(call: Call, name: str) -> httpd.Reply:
    """PutBucketPolicy, PutPublicAccessBlock, …"""
    call.parts.store.get(call.bucket)
    setting = s3_settings.SETTINGS[name]
    if name == s3_settings.POLICY:
        text = s3_settings.parse_policy(call.body.read())
    else:
        text = s3_settings.parse_setting(name, call.document(setting.root))
    call.parts.store.change(
        call.bucket, lambda bucket: dataclasses.replace(bucket, settings={**bucket.settings, name: text})
    )
    return s3_answers.empty(setting.put_status)


def delete_setting(call: Call, name: str) -> httpd.Reply:
    """DeleteBucketPolicy, DeletePublicAccessBlock, …: what is not there is fine. Encryption has a default."""

    def without(bucket: s3_records.Bucket) -> s3_records.Bucket:
        left = {key: value for key, value in bucket.settings.items() if key != name}
        if name == "encryption":
            left[name] = s3_settings.default_encryption()
        return dataclasses.replace(bucket, settings=left)

    call.parts.store.change(call.bucket, without)
    return s3_answers.empty(204)


# -- their parts -------------------------------------------------------------------------------------------------------


def _check_name(name: str) -> None:
    is_address = True
    try:
        ipaddress.IPv4Address(name)
    except ValueError:
        is_address = False
    if is_address or not _NAME.fullmatch(name) or ".." in name:
        raise faults.Fault(
            "The specified bucket is not valid.",
            error_type="InvalidBucketName",
            status=400,
            members={"BucketName": name[:100]},
        )


def _parse_configuration(call: Call, data: bytes) -> Element:
    try:
        root = xml_documents.parse(data)
    except xml_documents.MalformedError as error:
        raise s3_answers.malformed_xml() from error
    if root.name != "CreateBucketConfiguration":
        raise s3_answers.malformed_xml()
    return root


def _region(constraint: str | None, *, signed_for: str) -> str:
    """Where the bucket is to be, by S3's rule: us-east-1 is named by no constraint, any other by its own."""
    region = {"EU": "eu-west-1"}.get(constraint or "", constraint)
    if region == US_EAST_1 or (region is not None and not _REGION.fullmatch(region)):
        raise faults.Fault(
            "The specified location-constraint is not valid",
            error_type="InvalidLocationConstraint",
            status=400,
            members={"LocationConstraint": str(constraint)[:100]},
        )
    # Whoever signs for us-east-1 talks to the one endpoint that makes buckets everywhere.
    if signed_for != US_EAST_1 and region != signed_for:
        raise faults.Fault(
            f"The {constraint or 'unspecified'} location constraint is incompatible for the region specific endpoint "
            "this request was sent to.",
            error_type="IllegalLocationConstraintException",
            status=400,
        )
    return region or US_EAST_1


def _arn(name: str) -> str:
    return f"arn:aws:s3:::{name}"
