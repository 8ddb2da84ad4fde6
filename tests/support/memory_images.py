"""Images and connectors of the account in memory (``memory_account``). Their states go on with each look."""

# ruff: noqa: N803 - the parameters are named as on the wire

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from vmnest import errors
from vmnest.deadline import Deadline

if TYPE_CHECKING:
    from tests.support.memory_account import MemoryAccount

MOMENT = datetime(2026, 1, 1, tzinfo=timezone.utc)
BASE = "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1"
INTERNET = "arn:aws:lambda:us-east-1:aws:network-connector:aws-network-connector:INTERNET_EGRESS"
LOOKS = 2  # at a thing in change, until it is what it becomes

Params = Mapping[str, Any]


def missing(operation: str, what: str) -> errors.ResourceNotFoundError:
    return errors.ResourceNotFoundError(what, operation=operation, status=404)


def invalid(operation: str, message: str) -> errors.ValidationError:
    return errors.ValidationError(message, operation=operation, status=400, error_type="ValidationException")


class _Calls:
    """The same road into a method as of the other services (imported late: the modules need each other)."""

    name = ""

    def __init__(self, account: MemoryAccount) -> None:
        self.account = account

    @property
    def region(self) -> str:
        return self.account.region

    def call(self, operation: str, params: Params, *, deadline: Deadline, **options: Any) -> dict[str, Any]:
        from tests.support.memory_account import MemoryService

        for _ in range(5):  # the real caller repeats these: the model calls them idempotent, or they have a token
            try:
                return MemoryService.call(self, operation, params, deadline=deadline)  # type: ignore[arg-type]
            except errors.ServiceError as error:
                if not error.retryable:
                    raise
        return MemoryService.call(self, operation, params, deadline=deadline)  # type: ignore[arg-type]

    def run(self, operation: str, effect: Any) -> Any:
        from tests.support.memory_account import MemoryService

        return MemoryService.run(self, operation, effect)  # type: ignore[arg-type]


class MemoryImages(_Calls):
    """``failures`` are the reasons for which the next builds fail; ``has_microvms`` forbids deletions.

    ``refused_builds``: so many builds find as many others under way as there may be.
    """

    name = "lambda-microvms"

    def __init__(self, account: MemoryAccount) -> None:
        super().__init__(account)
        self.known: dict[str, dict[str, Any]] = {}
        self.failures: list[str] = []
        self.has_microvms = False
        self.refused_deletions = 0
        self.refused_builds = 0

    def arn(self, name: str) -> str:
        return f"arn:aws:lambda:{self.account.region}:{self.account.id}:microvm-image:{name}"

    def make(self, name: str, *, tags: Mapping[str, str] | None = None, **members: Any) -> str:
        """An image that was there before; its ARN."""
        given = {"codeArtifact": {"uri": "s3://theirs/x.zip"}, "buildRoleArn": "arn:theirs", "baseImageArn": BASE}
        image = self._new(name, {**given, **members}, dict(tags or {}))
        self._finish(image, image["versions"][-1])
        return str(image["arn"])

    def CreateMicrovmImage(self, name: str, tags: Any = None, **members: Any) -> Params:
        self._check_room("CreateMicrovmImage")
        if any(image["name"] == name for image in self.known.values()):
            raise invalid("CreateMicrovmImage", f"A MicroVM image with the name '{name}' already exists")
        return self._draft(self._new(name, members, dict(tags or {})))

    def UpdateMicrovmImage(self, imageIdentifier: str, **members: Any) -> Params:
        image = self._image("UpdateMicrovmImage", imageIdentifier)
        if image["state"] in ("CREATING", "UPDATING", "DELETING"):
            raise errors.ConflictError(
                "MicroVM Image is already in state: UPDATING", operation="UpdateMicrovmImage", status=409
            )
        self._check_room("UpdateMicrovmImage")
        image["state"] = "UPDATING"
        self._add_version(image, members)
        return self._draft(image)

    def _check_room(self, operation: str) -> None:
        if self.refused_builds:
            self.refused_builds -= 1
            text = "Account 1 has reached the maximum number of concurrent builds allowed."
            raise errors.QuotaExceededError(text, operation=operation, status=402)

    def GetMicrovmImage(self, imageIdentifier: str) -> Params:
        image = self._image("GetMicrovmImage", imageIdentifier)
        if image["state"] == "DELETING":
            image["looks"] += 1
            if image["looks"] > LOOKS:
                del self.known[image["arn"]]
                raise missing("GetMicrovmImage", "gone")
        answer = self._answer(image)
        self._go_on(image, image["versions"][-1])
        return answer

    def ListMicrovmImages(self, nameFilter: str = "", nextToken: str = "") -> Params:
        return {"items": [self._answer(image) for image in self.known.values() if nameFilter in image["name"]]}

    def ListMicrovms(self, imageIdentifier: str, maxResults: int = 50) -> Params:
        state = "RUNNING" if self.has_microvms else "TERMINATED"
        began = datetime(2026, 9, 15, tzinfo=timezone.utc)
        members = {"imageArn": imageIdentifier, "imageVersion": "1.0", "startedAt": began}
        return {"items": [{"microvmId": "microvm-1", "state": state, **members}]}

    def GetMicrovmImageVersion(self, imageIdentifier: str, imageVersion: str) -> Params:
        image = self._image("GetMicrovmImageVersion", imageIdentifier)
        version = next((each for each in image["versions"] if each["imageVersion"] == imageVersion), None)
        if version is None:
            raise missing("GetMicrovmImageVersion", "no such version")
        self._go_on(image, version)
        return self._version(image, version)

    def ListMicrovmImageVersions(self, imageIdentifier: str) -> Params:
        image = self._image("ListMicrovmImageVersions", imageIdentifier)
        return {"items": [self._version(image, version) for version in image["versions"]]}

    def ListMicrovmImageBuilds(self, imageIdentifier: str, imageVersion: str) -> Params:
        image = self._image("ListMicrovmImageBuilds", imageIdentifier)
        version = next(each for each in image["versions"] if each["imageVersion"] == imageVersion)
        return {
            "items": [
                {"buildId": generation, "buildState": version["state"], "stateReason": version.get("why")}
                for generation in ("4", "3")
            ]
        }

    def ListManagedMicrovmImages(self) -> Params:
        return {"items": [{"imageArn": BASE}]}

    def DeleteMicrovmImage(self, imageIdentifier: str) -> Params:
        image = self._image("DeleteMicrovmImage", imageIdentifier)
        if self.has_microvms or self.refused_deletions:
            self.refused_deletions = max(0, self.refused_deletions - 1)
            raise invalid("DeleteMicrovmImage", "Cannot delete microvm image with running microvms.")
        if image["state"] in ("CREATING", "UPDATING"):
            raise invalid("DeleteMicrovmImage", "Cannot delete MicroVM image in its current state")
        image.update(state="DELETING", looks=0)
        return {}

    def TagResource(self, Resource: str, Tags: Any) -> None:
        self._tags("TagResource", Resource).update(Tags)

    def ListTags(self, Resource: str) -> Params:
        return {"Tags": dict(self._tags("ListTags", Resource))}

    def _tags(self, operation: str, arn: str) -> dict[str, str]:
        thing = self.known.get(arn) or self.account.connectors.known.get(arn)
        if thing is None:
            raise missing(operation, arn)
        tags: dict[str, str] = thing["tags"]
        return tags

    def _image(self, operation: str, arn: str) -> dict[str, Any]:
        if arn not in self.known:
            raise missing(operation, f"MicroVMImage not found for MicroVMImageID: {arn}")
        return self.known[arn]

    def _new(self, name: str, members: Params, tags: dict[str, str]) -> dict[str, Any]:
        arn = self.arn(name)
        image = {"arn": arn, "name": name, "state": "CREATING", "versions": [], "tags": tags, "looks": 0}
        self.known[arn] = image
        self._add_version(image, members)
        return image

    def _add_version(self, image: dict[str, Any], members: Params) -> None:
        number = f"{len(image['versions']) + 1}.0"
        kept = {name: value for name, value in members.items() if value is not None}
        defaults = {"resources": [{"minimumMemoryInMiB": 2048}], "egressNetworkConnectors": [INTERNET]}
        image["versions"].append(
            {**defaults, "baseImageVersion": "1.0", **kept, "imageVersion": number, "state": "PENDING", "looks": 0}
        )

    def _go_on(self, image: dict[str, Any], version: dict[str, Any]) -> None:
        if version["state"] not in ("PENDING", "IN_PROGRESS"):
            return
        version["looks"] += 1
        version["state"] = "IN_PROGRESS"
        if version["looks"] > LOOKS:
            self._finish(image, version)

    def _finish(self, image: dict[str, Any], version: dict[str, Any]) -> None:
        is_first = len(image["versions"]) == 1
        why = self.failures.pop(0) if self.failures else self._obstacle(version)
        if why:
            version.update(state="FAILED", status="INACTIVE", why=why)
            image["state"] = "CREATE_FAILED" if is_first else "UPDATE_FAILED"
            return
        version.update(state="SUCCESSFUL", status="ACTIVE")
        image["active"] = version["imageVersion"]
        image["state"] = "CREATED" if is_first else "UPDATED"

    def _obstacle(self, version: Params) -> str | None:
        bucket, _, key = version["codeArtifact"]["uri"].removeprefix("s3://").partition("/")
        if bucket == "theirs":
            return None
        if not self.account.iam.may_read(version["buildRoleArn"], bucket, key):
            return "S3_ACCESS_DENIED"
        return None if key in self.account.s3.buckets[bucket]["objects"] else "S3_NO_SUCH_KEY"

    def _draft(self, image: dict[str, Any]) -> Params:
        return {
            "imageArn": image["arn"],
            "imageVersion": image["versions"][-1]["imageVersion"],
            "state": image["state"],
        }

    def _answer(self, image: dict[str, Any]) -> Params:
        return {
            "imageArn": image["arn"],
            "name": image["name"],
            "state": image["state"],
            "createdAt": MOMENT,
            "latestActiveImageVersion": image.get("active"),
            "tags": dict(image["tags"]),
        }

    def _version(self, image: dict[str, Any], version: Params) -> Params:
        return {**version, "imageArn": image["arn"], "createdAt": MOMENT}


class MemoryConnectors(_Calls):
    """``unsupported_zones`` have no MicroVMs; ``late_failures`` are reasons for which the next ones fail later on."""

    name = "lambda-core"

    def __init__(self, account: MemoryAccount) -> None:
        super().__init__(account)
        self.known: dict[str, dict[str, Any]] = {}
        self.unsupported_zones: set[str] = set()
        self.late_failures: list[str] = []
        self.made = 0

    def uses(self, group_id: str) -> bool:
        return any(group_id in each["vpc"]["SecurityGroupIds"] for each in self.known.values())

    def make(self, name: str, *, tags: Mapping[str, str] | None = None, subnet_ids: Any = ("subnet-1",)) -> str:
        """A connector that was there before; its ARN."""
        vpc = {"SubnetIds": list(subnet_ids), "SecurityGroupIds": ["sg-theirs"]}
        connector = self._add(name, vpc, "arn:theirs", dict(tags or {}))
        connector["state"] = "ACTIVE"
        return str(connector["arn"])

    def CreateNetworkConnector(self, Name: str, Configuration: Any, OperatorRole: str, Tags: Any = None) -> Params:
        if any(each["name"] == Name for each in self.known.values()):
            raise errors.ConflictError("it exists", operation="CreateNetworkConnector", status=409)
        vpc = Configuration["VpcEgressConfiguration"]
        self._check(vpc, OperatorRole)
        return self._answer(self._add(Name, vpc, OperatorRole, dict(Tags or {})))

    def UpdateNetworkConnector(self, Identifier: str, Configuration: Any, OperatorRole: str) -> Params:
        connector = self._connector("UpdateNetworkConnector", Identifier)
        vpc = Configuration["VpcEgressConfiguration"]
        self._check(vpc, OperatorRole)
        connector.update(vpc=vpc, role=OperatorRole, update="InProgress", looks=0)
        return self._answer(connector)

    def GetNetworkConnector(self, Identifier: str) -> Params:
        connector = self._connector("GetNetworkConnector", Identifier)
        connector["looks"] += 1
        if connector["looks"] > LOOKS:
            self._finish(connector)
        if connector["arn"] not in self.known:
            raise missing("GetNetworkConnector", "gone")
        return self._answer(connector)

    def DeleteNetworkConnector(self, Identifier: str) -> Params:
        self._connector("DeleteNetworkConnector", Identifier).update(state="DELETING", looks=0)
        return {}

    def _finish(self, connector: dict[str, Any]) -> None:
        if connector["state"] == "DELETING":
            del self.known[connector["arn"]]
        elif connector["state"] == "PENDING":
            connector["reason"] = self.late_failures.pop(0) if self.late_failures else None
            connector["state"] = "FAILED" if connector["reason"] else "ACTIVE"
        elif connector.get("update") == "InProgress":
            connector["update"] = "Successful"

    def _check(self, vpc: Params, role: str) -> None:
        if not any(known["Arn"] == role for known in self.account.iam.roles.values()):
            raise invalid("CreateNetworkConnector", "invalid ConnectorOperatorRole")
        for subnet_id in vpc["SubnetIds"]:
            zone = self.account.ec2.subnets[subnet_id]["AvailabilityZoneId"]
            if zone in self.unsupported_zones:
                raise invalid(
                    "CreateNetworkConnector", f"Availability zone {zone} is not available for compute type MicroVm"
                )

    def _add(self, name: str, vpc: Params, role: str, tags: dict[str, str]) -> dict[str, Any]:
        self.made += 1
        arn = f"arn:aws:lambda:{self.account.region}:{self.account.id}:network-connector:nc-{self.made}"
        connector = {"arn": arn, "name": name, "vpc": vpc, "role": role, "tags": tags, "state": "PENDING", "looks": 0}
        self.known[arn] = connector
        return connector

    def _connector(self, operation: str, identifier: str) -> dict[str, Any]:
        for connector in self.known.values():
            if identifier in (connector["arn"], connector["name"]):
                return connector
        raise missing(operation, f"Network connector not found for: {identifier}")

    def _answer(self, connector: dict[str, Any]) -> Params:
        return {
            "Arn": connector["arn"],
            "Id": connector["arn"].rpartition(":")[2],
            "Name": connector["name"],
            "State": connector["state"],
            "StateReason": connector.get("reason"),
            "LastUpdateStatus": connector.get("update"),
            "OperatorRole": connector["role"],
            "Configuration": {"VpcEgressConfiguration": connector["vpc"]},
        }
