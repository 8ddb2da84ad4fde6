"""An AWS account in memory, at the seam of ``Service.call``: IAM, S3, EC2, images, connectors, logs.

It keeps the rules that order the engine's steps: a role with policies, a bucket with objects, a group in use cannot be
deleted; a build needs a role that may read an artifact that is there. States go on with each look at them.

A test breaks calls through ``MemoryAccount.on_call``: it is told of each one before it has its effect and after, and
may raise.
"""

# ruff: noqa: N803 - the parameters are named as on the wire

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from typing import Any, BinaryIO

from tests.support.memory_images import MemoryConnectors, MemoryImages
from vmnest import errors
from vmnest.aws.s3 import ObjectInfo
from vmnest.deadline import Deadline

ACCOUNT = "111122223333"
REGION = "us-east-1"
MOMENT = datetime(2026, 1, 1, tzinfo=timezone.utc)
_READING = ("Get", "List", "Describe", "Head", "Filter")

Params = Mapping[str, Any]


class Killed(BaseException):
    """The process ends here."""


def missing(operation: str, what: str, error_type: str = "NotFound") -> errors.ResourceNotFoundError:
    return errors.ResourceNotFoundError(what, operation=operation, status=404, error_type=error_type)


def conflict(operation: str, error_type: str) -> errors.ConflictError:
    return errors.ConflictError(f"{operation}: {error_type}", operation=operation, status=409, error_type=error_type)


class MemoryAccount:
    """Attributes:
    calls: ``service.Operation`` of every call, in order.
    changes: How many of them can change something.
    on_call: ``on_call(service, operation, is_done)``.
    """

    def __init__(self, *, account_id: str = ACCOUNT, region: str = REGION) -> None:
        self.id = account_id
        self.region = region
        self.calls: list[str] = []
        self.changes = 0
        self.on_call: Callable[[str, str, bool], None] = lambda service, operation, is_done: None
        self.log: list[str] = []
        self.iam = MemoryRoles(self)
        self.s3 = MemoryS3(self)
        self.ec2 = MemoryNetwork(self)
        self.images = MemoryImages(self)
        self.connectors = MemoryConnectors(self)
        self._services = {
            "iam": self.iam,
            "s3": self.s3,
            "ec2": self.ec2,
            "lambda-microvms": self.images,
            "lambda-core": self.connectors,
            "logs": MemoryLogs(self),
        }

    def target(self, *, kind: str = "aws") -> MemoryTarget:
        return MemoryTarget(self, kind)

    def service(self, name: str) -> MemoryService:
        return self._services[name]

    def inventory(self) -> dict[str, list[str]]:
        """Everything that is there, but what the network was made with."""
        found = {
            "roles": sorted(self.iam.roles),
            "buckets": sorted(self.s3.buckets),
            "objects": sorted(f"{name}/{key}" for name, bucket in self.s3.buckets.items() for key in bucket["objects"]),
            "groups": sorted(self.ec2.groups),
            "images": sorted(self.images.known),
            "connectors": sorted(self.connectors.known),
        }
        return {kind: names for kind, names in found.items() if names}


class MemoryTarget:
    """What the engine knows of ``vmnest.target.Target``."""

    def __init__(self, account: MemoryAccount, kind: str) -> None:
        self._account = account
        self.kind = kind
        self.region = account.region
        self.environ: dict[str, str] = {}

    @property
    def is_local(self) -> bool:
        return self.kind == "local"

    def check_isolation(self, *, deadline: Deadline) -> None:
        """It isolates well enough."""

    def service(self, name: str, *, deadline: Deadline) -> MemoryService:
        return self._account.service(name)

    def s3(self, *, deadline: Deadline) -> MemoryService:
        return self._account.s3

    def account_id(self, *, deadline: Deadline) -> str:
        return self._account.id


class MemoryService:
    """``call`` finds the method of the operation's name."""

    name = ""

    def __init__(self, account: MemoryAccount) -> None:
        self.account = account

    def call(self, operation: str, params: Params, *, deadline: Deadline, **options: Any) -> dict[str, Any]:
        kept = {name: value for name, value in params.items() if value is not None}
        return self.run(operation, lambda: getattr(self, operation)(**kept) or {})

    def run(self, operation: str, effect: Callable[[], Any]) -> Any:
        self.account.calls.append(f"{self.name}.{operation}")
        if not operation.startswith(_READING):
            self.account.changes += 1
        self.account.on_call(self.name, operation, False)
        answer = effect()
        self.account.on_call(self.name, operation, True)
        return answer

    def pages(self, operation: str, params: Params, *, deadline: Deadline, items: str) -> Iterator[Any]:
        yield from self.call(operation, params, deadline=deadline)[items]


class MemoryRoles(MemoryService):
    name = "iam"

    def __init__(self, account: MemoryAccount) -> None:
        super().__init__(account)
        self.roles: dict[str, dict[str, Any]] = {}
        self.is_hidden = False

    def make(self, name: str, tags: Mapping[str, str] | None = None) -> str:
        """A role that was there before; its ARN."""
        listed = [{"Key": key, "Value": value} for key, value in (tags or {}).items()]
        self.CreateRole(RoleName=name, AssumeRolePolicyDocument="{}", Tags=listed)
        return str(self.roles[name]["Arn"])

    def may_read(self, arn: str, bucket: str, key: str) -> bool:
        """Whether the role may read an object; one that was there before may."""
        role = next((role for role in self.roles.values() if role["Arn"] == arn), None)
        if role is None:
            return False
        statements = [each for text in role["inline"].values() for each in json.loads(text)["Statement"]]
        wanted = f"arn:aws:s3:::{bucket}/{key}"
        granted = [pattern for each in statements if "s3:GetObject" in each["Action"] for pattern in each["Resource"]]
        return not role["inline"] or any(fnmatchcase(wanted, pattern) for pattern in granted)

    def _role(self, operation: str, name: str) -> dict[str, Any]:
        if self.is_hidden:
            raise errors.AccessDeniedError("not allowed", operation=operation, status=403)
        if name not in self.roles:
            raise missing(operation, f"no role {name}", "NoSuchEntity")
        return self.roles[name]

    def CreateRole(self, RoleName: str, AssumeRolePolicyDocument: str, Tags: Any, Description: str = "") -> Params:
        if RoleName in self.roles:
            raise conflict("CreateRole", "EntityAlreadyExists")
        self.roles[RoleName] = {
            "RoleName": RoleName,
            "Arn": f"arn:aws:iam::{self.account.id}:role/{RoleName}",
            "AssumeRolePolicyDocument": AssumeRolePolicyDocument,
            "Tags": list(Tags),
            "inline": {},
            "attached": [],
        }
        return {"Role": self.roles[RoleName]}

    def GetRole(self, RoleName: str) -> Params:
        return {"Role": self._role("GetRole", RoleName)}

    def ListRolePolicies(self, RoleName: str) -> Params:
        return {"PolicyNames": list(self._role("ListRolePolicies", RoleName)["inline"])}

    def GetRolePolicy(self, RoleName: str, PolicyName: str) -> Params:
        return {"PolicyDocument": self._role("GetRolePolicy", RoleName)["inline"][PolicyName]}

    def ListAttachedRolePolicies(self, RoleName: str) -> Params:
        attached = self._role("ListAttachedRolePolicies", RoleName)["attached"]
        return {"AttachedPolicies": [{"PolicyArn": arn} for arn in attached]}

    def UpdateAssumeRolePolicy(self, RoleName: str, PolicyDocument: str) -> None:
        self._role("UpdateAssumeRolePolicy", RoleName)["AssumeRolePolicyDocument"] = PolicyDocument

    def PutRolePolicy(self, RoleName: str, PolicyName: str, PolicyDocument: str) -> None:
        self._role("PutRolePolicy", RoleName)["inline"][PolicyName] = PolicyDocument

    def AttachRolePolicy(self, RoleName: str, PolicyArn: str) -> None:
        role = self._role("AttachRolePolicy", RoleName)
        role["attached"] = sorted({*role["attached"], PolicyArn})

    def DetachRolePolicy(self, RoleName: str, PolicyArn: str) -> None:
        role = self._role("DetachRolePolicy", RoleName)
        if PolicyArn not in role["attached"]:
            raise missing("DetachRolePolicy", "not attached", "NoSuchEntity")
        role["attached"].remove(PolicyArn)

    def TagRole(self, RoleName: str, Tags: Any) -> None:
        role = self._role("TagRole", RoleName)
        new = {tag["Key"]: tag for tag in (*role["Tags"], *Tags)}
        role["Tags"] = list(new.values())

    def DeleteRolePolicy(self, RoleName: str, PolicyName: str) -> None:
        if self._role("DeleteRolePolicy", RoleName)["inline"].pop(PolicyName, None) is None:
            raise missing("DeleteRolePolicy", "no such policy", "NoSuchEntity")

    def DeleteRole(self, RoleName: str) -> None:
        role = self._role("DeleteRole", RoleName)
        if role["inline"] or role["attached"]:
            raise conflict("DeleteRole", "DeleteConflict")
        del self.roles[RoleName]


class MemoryS3(MemoryService):
    """The service and ``vmnest.aws.s3.S3`` in one. Every object has one version."""

    name = "s3"

    def __init__(self, account: MemoryAccount) -> None:
        super().__init__(account)
        self.buckets: dict[str, dict[str, Any]] = {}
        self.foreign: set[str] = set()

    @property
    def region(self) -> str:
        return self.account.region

    def make(self, name: str, *, tags: Mapping[str, str] | None = None, region: str | None = None) -> None:
        """A bucket that was there before."""
        self.buckets[name] = {"objects": {}, "uploads": {}, "region": region or self.region, "settings": {}}
        if tags:
            listed = [{"Key": key, "Value": value} for key, value in tags.items()]
            self.buckets[name]["settings"]["Tagging"] = {"TagSet": listed}

    def _bucket(self, operation: str, name: str) -> dict[str, Any]:
        if name in self.foreign:
            raise errors.AccessDeniedError("Forbidden", operation=operation, status=403)
        if name not in self.buckets:
            raise missing(operation, f"no bucket {name}", "NoSuchBucket")
        return self.buckets[name]

    def create_bucket(self, bucket: str, *, deadline: Deadline) -> bool:
        def effect() -> bool:
            if bucket in self.foreign:
                raise conflict("CreateBucket", "BucketAlreadyExists")
            if bucket in self.buckets:
                return False
            self.make(bucket)
            return True

        return bool(self.run("CreateBucket", effect))

    def exists(self, bucket: str, key: str, *, deadline: Deadline) -> ObjectInfo | None:
        def effect() -> ObjectInfo | None:
            found = self.buckets.get(bucket, {"objects": {}})["objects"].get(key)
            return None if found is None else ObjectInfo(key, len(found), "etag", MOMENT)

        found: ObjectInfo | None = self.run("HeadObject", effect)
        return found

    def upload(
        self, bucket: str, key: str, file: BinaryIO, *, size: int, deadline: Deadline, on_progress: Any = None
    ) -> None:
        def effect() -> None:
            file.seek(0)
            self._bucket("PutObject", bucket)["objects"][key] = file.read(size)
            if on_progress is not None:
                on_progress(size, size)

        self.run("PutObject", effect)

    def empty(self, bucket: str, *, deadline: Deadline) -> int:
        def effect() -> int:
            objects = self._bucket("DeleteObjects", bucket)["objects"]
            count = len(objects)
            objects.clear()
            return count

        return int(self.run("DeleteObjects", effect))

    def HeadBucket(self, Bucket: str, ExpectedBucketOwner: str = "") -> Params:
        return {"BucketRegion": self._bucket("HeadBucket", Bucket)["region"]}

    def ListObjectVersions(self, Bucket: str, Prefix: str) -> Params:
        keys = [key for key in self._bucket("ListObjectVersions", Bucket)["objects"] if key.startswith(Prefix)]
        return {"Versions": [{"Key": key, "VersionId": "v1"} for key in keys], "IsTruncated": False}

    def DeleteObject(self, Bucket: str, Key: str, VersionId: str) -> None:
        self._bucket("DeleteObject", Bucket)["objects"].pop(Key, None)

    def ListMultipartUploads(self, Bucket: str, Prefix: str) -> Params:
        """Two at a time."""
        uploads = self._bucket("ListMultipartUploads", Bucket)["uploads"]
        found = [{"Key": key, "UploadId": each} for each, key in uploads.items() if key.startswith(Prefix)]
        return {"Uploads": found[:2], "IsTruncated": len(found) > 2} if found else {}

    def AbortMultipartUpload(self, Bucket: str, Key: str, UploadId: str) -> None:
        if self._bucket("AbortMultipartUpload", Bucket)["uploads"].pop(UploadId, None) != Key:
            raise missing("AbortMultipartUpload", "no such upload", "NoSuchUpload")

    def DeleteBucket(self, Bucket: str) -> None:
        if self._bucket("DeleteBucket", Bucket)["objects"]:
            raise conflict("DeleteBucket", "BucketNotEmpty")
        del self.buckets[Bucket]

    def _set(self, operation: str, name: str, setting: str, value: Any) -> None:
        self._bucket(operation, name)["settings"][setting] = value

    def _get(self, operation: str, name: str, setting: str) -> Any:
        settings = self._bucket(operation, name)["settings"]
        if setting not in settings:
            raise missing(operation, f"no {setting}", f"NoSuch{setting}")
        return settings[setting]

    def PutBucketTagging(self, Bucket: str, Tagging: Any) -> None:
        self._set("PutBucketTagging", Bucket, "Tagging", Tagging)

    def GetBucketTagging(self, Bucket: str) -> Params:
        tags: Params = self._get("GetBucketTagging", Bucket, "Tagging")
        return tags

    def PutPublicAccessBlock(self, Bucket: str, PublicAccessBlockConfiguration: Any) -> None:
        self._set("PutPublicAccessBlock", Bucket, "Block", PublicAccessBlockConfiguration)

    def GetPublicAccessBlock(self, Bucket: str) -> Params:
        return {"PublicAccessBlockConfiguration": self._get("GetPublicAccessBlock", Bucket, "Block")}

    def PutBucketOwnershipControls(self, Bucket: str, OwnershipControls: Any) -> None:
        self._set("PutBucketOwnershipControls", Bucket, "Ownership", OwnershipControls)

    def GetBucketOwnershipControls(self, Bucket: str) -> Params:
        return {"OwnershipControls": self._get("GetBucketOwnershipControls", Bucket, "Ownership")}

    def PutBucketEncryption(self, Bucket: str, ServerSideEncryptionConfiguration: Any) -> None:
        self._set("PutBucketEncryption", Bucket, "Encryption", ServerSideEncryptionConfiguration)

    def GetBucketEncryption(self, Bucket: str) -> Params:
        return {"ServerSideEncryptionConfiguration": self._get("GetBucketEncryption", Bucket, "Encryption")}

    def PutBucketVersioning(self, Bucket: str, VersioningConfiguration: Any) -> None:
        self._set("PutBucketVersioning", Bucket, "Versioning", VersioningConfiguration)

    def GetBucketVersioning(self, Bucket: str) -> Params:
        found: Params = self._bucket("GetBucketVersioning", Bucket)["settings"].get("Versioning", {})
        return found

    def PutBucketPolicy(self, Bucket: str, Policy: str) -> None:
        self._set("PutBucketPolicy", Bucket, "Policy", Policy)

    def GetBucketPolicy(self, Bucket: str) -> Params:
        return {"Policy": self._get("GetBucketPolicy", Bucket, "Policy")}


class MemoryNetwork(MemoryService):
    """A default VPC with two subnets. ``lingering`` deletions of a group fail after its connector went."""

    name = "ec2"

    def __init__(self, account: MemoryAccount) -> None:
        super().__init__(account)
        self.vpcs: dict[str, dict[str, Any]] = {}
        self.subnets: dict[str, dict[str, Any]] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        self.lingering = 0
        self.add_vpc("vpc-1", is_default=True)
        self.add_subnet("subnet-1", zone_id="use1-az1", name="one")
        self.add_subnet("subnet-2", zone_id="use1-az2", name="two")

    def add_vpc(self, vpc_id: str, *, is_default: bool = False) -> None:
        self.vpcs[vpc_id] = {"VpcId": vpc_id, "isDefault": str(is_default).lower()}

    def add_subnet(
        self, subnet_id: str, *, zone_id: str, name: str = "", vpc_id: str = "vpc-1", is_public: bool = False
    ) -> None:
        self.subnets[subnet_id] = {
            "SubnetId": subnet_id,
            "VpcId": vpc_id,
            "State": "available",
            "AvailabilityZoneId": zone_id,
            "AvailabilityZone": zone_id.replace("use1-az", "us-east-1"),
            "MapPublicIpOnLaunch": is_public,
            "Tags": [{"Key": "Name", "Value": name}],
        }

    def add_group(self, name: str, *, vpc_id: str = "vpc-1", tags: Any = ()) -> str:
        group_id = f"sg-{len(self.groups) + 1}-{name}"
        self.groups[group_id] = {"GroupId": group_id, "GroupName": name, "VpcId": vpc_id, "Tags": list(tags)}
        return group_id

    def _select(self, found: Mapping[str, Mapping[str, Any]], filters: Any) -> list[Mapping[str, Any]]:
        members = {
            "vpc-id": "VpcId",
            "subnet-id": "SubnetId",
            "group-id": "GroupId",
            "group-name": "GroupName",
            "state": "State",
            "isDefault": "isDefault",
        }
        return [
            each for each in found.values() if all(each[members[rule["Name"]]] in rule["Values"] for rule in filters)
        ]

    def DescribeVpcs(self, Filters: Any) -> Params:
        return {"Vpcs": self._select(self.vpcs, Filters)}

    def DescribeSubnets(self, Filters: Any) -> Params:
        return {"Subnets": self._select(self.subnets, Filters)}

    def DescribeSecurityGroups(self, Filters: Any) -> Params:
        return {"SecurityGroups": self._select(self.groups, Filters)}

    def CreateSecurityGroup(self, GroupName: str, Description: str, VpcId: str, TagSpecifications: Any) -> Params:
        if any(group["GroupName"] == GroupName and group["VpcId"] == VpcId for group in self.groups.values()):
            raise conflict("CreateSecurityGroup", "InvalidGroup.Duplicate")
        return {"GroupId": self.add_group(GroupName, vpc_id=VpcId, tags=TagSpecifications[0]["Tags"])}

    def CreateTags(self, Resources: Any, Tags: Any) -> None:
        for resource in Resources:
            group = self.groups[resource]
            group["Tags"] = list({tag["Key"]: tag for tag in (*group["Tags"], *Tags)}.values())

    def DeleteSecurityGroup(self, GroupId: str) -> None:
        if GroupId not in self.groups:
            raise missing("DeleteSecurityGroup", f"no group {GroupId}", "InvalidGroup.NotFound")
        if self.lingering or self.account.connectors.uses(GroupId):
            self.lingering = max(0, self.lingering - 1)
            raise errors.ValidationError(
                f"{GroupId} has a dependent object",
                operation="DeleteSecurityGroup",
                status=400,
                error_type="DependencyViolation",
            )
        del self.groups[GroupId]


class MemoryLogs(MemoryService):
    name = "logs"

    def FilterLogEvents(self, logGroupName: str, startTime: int) -> Params:
        if not self.account.log:
            raise missing("FilterLogEvents", "no such group", "ResourceNotFoundException")
        return {"events": [{"message": line, "timestamp": startTime} for line in self.account.log]}
