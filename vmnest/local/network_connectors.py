"""Network connectors of the local account: records with the service's states and rules. They carry nothing.

States follow from times alone, so that no timer has to be kept and a daemon goes on where another one ended: a
connector is PENDING until ``active_at``, and DELETING until ``gone_at``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .. import deadline
from ..wire import names
from . import faults, keeping

FILE = "connectors.json"
PENDING_SECONDS = 1.0  # AWS: some four minutes
UPDATE_SECONDS = 0.5
DELETING_SECONDS = 1.0
MAX_CONNECTORS = 100
MAX_VERSIONS = 100

PENDING = "PENDING"
ACTIVE = "ACTIVE"
DELETING = "DELETING"
TYPE = "VPC_EGRESS"
IN_PROGRESS = "InProgress"
SUCCESSFUL = "Successful"
_CREATED = "Initial creation"
_UNCHANGED = "No configuration changes detected"
_VPC = "VpcEgressConfiguration"

Wire = Mapping[str, object]


@dataclass(frozen=True)
class Version:
    """What a connector was made of, from one change to the next."""

    number: int
    configuration: Wire
    operator_role: str
    made_at: float

    def is_like(self, configuration: Wire, operator_role: str) -> bool:
        """It says the same, in whatever order."""
        return (_canonical(self.configuration), self.operator_role) == (_canonical(configuration), operator_role)


@dataclass(frozen=True)
class Connector:
    """A connector. Its versions are ordered, the newest last.

    Attributes:
        number: Its place in lists.
        tokens: What each client token was used for, as a digest.
        update: Status and reason of the last update, if there was one; ``updated_at`` is when it is through.
    """

    connector_id: str
    name: str
    number: int
    versions: Sequence[Version]
    active_at: float
    gone_at: float | None = None
    tokens: Mapping[str, str] = dataclasses.field(default_factory=dict)
    update: Sequence[str] | None = None
    updated_at: float = 0.0

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:lambda:{names.LOCAL_REGION}:{names.LOCAL_ACCOUNT}:network-connector:{self.connector_id}"

    @property
    def latest(self) -> Version:
        """The newest version."""
        return self.versions[-1]

    def state(self, now: float) -> str:
        """Its state at that moment."""
        if self.gone_at is not None:
            return DELETING
        return PENDING if now < self.active_at else ACTIVE


# Whether a role may do that: the local account's roles are looked at, others are taken as able.
MayDo = Callable[[str, str], bool]


class NetworkConnectors:
    """All connectors of the account. Thread-safe."""

    def __init__(self, folder: str, *, may_do: MayDo, clock: deadline.Clock = deadline.SYSTEM_CLOCK) -> None:
        self._path = os.path.join(keeping.open_folder(os.path.join(folder, keeping.FOLDER)), FILE)
        self._may_do = may_do
        self._clock = clock
        self._lock = threading.Lock()  # guards the connectors and their file
        self._connectors: dict[str, Connector] = keeping.load(self._path, _parse) or {}

    def state_of(self, arn: str) -> str | None:
        """The state of the connector of that ARN, be it of one version; None if there is none."""
        with self._lock:
            found = self._look_up(arn)
            if found is None or not arn.startswith("arn:"):
                return None
            return found[0].state(self._clock.time())

    def create(self, params: Wire) -> tuple[Connector, bool]:
        """CreateNetworkConnector: the connector, and whether it is new.

        Raises:
            faults.Fault: by the service's rules.
        """
        name, token = str(params["Name"]), _token(params)
        configuration, role = _checked(params["Configuration"]), params.get("OperatorRole")
        if not isinstance(role, str) or not role:
            raise invalid("NetworkConnectorOperatorRole is required for VPC_EGRESS connector type")
        if name.startswith("arn:"):
            raise invalid(f"Invalid network connector name: {name}")
        digest = _digest(name, configuration, role)
        with self._lock:
            self._sweep()
            again = self._of_token(token, digest)
            if again is not None:
                return again, False
            if any(each.name == name for each in self._connectors.values()):
                raise conflict(f"Network connector with name {name} already exists")
            if len(self._connectors) >= MAX_CONNECTORS:
                raise _limit_exceeded(f"Cannot exceed quota of {MAX_CONNECTORS} network connectors")
            self._check_role(role)
            now = self._clock.time()
            connector = Connector(
                f"nc-{uuid.uuid4()}",
                name=name,
                number=1 + max((each.number for each in self._connectors.values()), default=0),
                versions=(Version(1, configuration, role, made_at=now),),
                active_at=now + PENDING_SECONDS,
                tokens={token: digest},
            )
            self._put(connector)
            return connector, True

    def update(self, params: Wire) -> Connector:
        """UpdateNetworkConnector. Raises by the service's rules."""
        token = _token(params)
        with self._lock:
            connector, version = self._named(str(params["Identifier"]))
            if version is not None:
                raise invalid("A version of a network connector cannot be updated")
            told = params.get("Configuration")
            configuration = connector.latest.configuration if told is None else _checked(told)
            role = str(params.get("OperatorRole") or connector.latest.operator_role)
            digest = _digest(connector.connector_id, configuration, role)
            if self._of_token(token, digest) is not None:
                return connector
            now = self._clock.time()
            self._check_updatable(connector, now)
            tokens = {**connector.tokens, token: digest}
            if connector.latest.is_like(configuration, role):
                changed = dataclasses.replace(connector, tokens=tokens, update=(SUCCESSFUL, _UNCHANGED), updated_at=now)
            else:
                if len(connector.versions) >= MAX_VERSIONS:
                    raise _limit_exceeded(f"Cannot exceed quota of {MAX_VERSIONS} versions of a network connector")
                self._check_role(role)
                made = Version(connector.latest.number + 1, configuration, role, made_at=now)
                changed = dataclasses.replace(
                    connector,
                    versions=(*connector.versions, made),
                    tokens=tokens,
                    update=(IN_PROGRESS, ""),
                    updated_at=now + UPDATE_SECONDS,
                )
            self._put(changed)
            return changed

    def delete(self, identifier: str) -> tuple[Connector, Version]:
        """DeleteNetworkConnector: a connector that goes, or an old version that is gone. Raises by the rules."""
        with self._lock:
            connector, version = self._named(identifier)
            now = self._clock.time()
            if version is not None:
                if version is connector.latest:
                    raise conflict("The latest version of a network connector cannot be deleted")
                left = tuple(each for each in connector.versions if each is not version)
                self._put(dataclasses.replace(connector, versions=left))
                return connector, version
            state = connector.state(now)
            if state == PENDING:
                raise conflict(f"Network connector {connector.arn} cannot be deleted in state: {state}")
            if state != DELETING:
                connector = dataclasses.replace(connector, gone_at=now + DELETING_SECONDS)
                self._put(connector)
            return connector, connector.latest

    def get(self, identifier: str) -> tuple[Connector, Version | None]:
        """The connector of that id, name or ARN, and the version that the ARN names.

        Raises:
            faults.Fault: there is none.
        """
        with self._lock:
            return self._named(identifier)

    def all(self) -> list[Connector]:
        """All connectors, as they were made."""
        with self._lock:
            self._sweep()
            return sorted(self._connectors.values(), key=lambda each: each.number)

    def now(self) -> float:
        """By the clock that states follow."""
        return self._clock.time()

    # -- their parts ---------------------------------------------------------------------------------------------------

    def _named(self, identifier: str) -> tuple[Connector, Version | None]:
        self._sweep()
        found = self._look_up(identifier)
        if found is None:
            raise faults.not_found(f"Network connector not found for: {identifier}")
        return found

    def _look_up(self, identifier: str) -> tuple[Connector, Version | None] | None:
        now = self._clock.time()
        for each in self._connectors.values():
            if each.gone_at is not None and now >= each.gone_at:
                continue
            if identifier in {each.arn, each.connector_id, each.name}:
                return each, None
            for version in each.versions:
                if identifier == f"{each.arn}:{version.number}":
                    return each, version
        return None

    def _of_token(self, token: str, digest: str) -> Connector | None:
        for each in self._connectors.values():
            if token in each.tokens:
                if each.tokens[token] != digest:
                    raise conflict("The client token was used with other parameters")
                return each
        return None

    def _check_updatable(self, connector: Connector, now: float) -> None:
        state = connector.state(now)
        if state != ACTIVE:
            raise conflict(f"Network connector {connector.arn} cannot be updated in state: {state}")
        if now < connector.updated_at:
            raise conflict(f"An update is in progress for network connector: {connector.arn}")

    def _check_role(self, role: str) -> None:
        if not self._may_do(role, "ec2:CreateNetworkInterface"):
            raise invalid(
                "Encountered unauthorized operation while calling EC2 due to invalid ConnectorOperatorRole permissions"
            )

    def _sweep(self) -> None:
        now = self._clock.time()
        left = {key: each for key, each in self._connectors.items() if each.gone_at is None or now < each.gone_at}
        if len(left) < len(self._connectors):
            self._save(left)

    def _put(self, connector: Connector) -> None:
        self._save({**self._connectors, connector.connector_id: connector})

    def _save(self, connectors: dict[str, Connector]) -> None:
        records = [dataclasses.asdict(each) for each in connectors.values()]
        keeping.save(self._path, {"schema": 1, "connectors": records})
        self._connectors = connectors


# -- the service's rules beyond its model ------------------------------------------------------------------------------


def _token(params: Wire) -> str:
    token = params.get("ClientToken")
    if not isinstance(token, str):
        raise invalid("ClientToken is a required field")
    return token


def _checked(configuration: object) -> Wire:
    told = configuration.get(_VPC) if isinstance(configuration, Mapping) else None
    if not isinstance(told, Mapping):
        raise invalid(f"{_VPC} is a required field")
    for member in ("SubnetIds", "NetworkProtocol", "AssociatedComputeResourceTypes"):
        if not told.get(member):
            raise invalid(f"{member} is a required field")
    return {_VPC: {"SecurityGroupIds": [], **told}}


def invalid(message: str) -> faults.Fault:
    """A parameter that the model allows, and the service does not (400)."""
    return faults.Fault(message, error_type="InvalidParameterValueException", status=400)


def conflict(message: str) -> faults.Fault:
    """What is there does not allow it (409)."""
    return faults.Fault(message, error_type="ResourceConflictException", status=409)


def _limit_exceeded(message: str) -> faults.Fault:
    return faults.Fault(message, error_type="NetworkConnectorLimitExceededException", status=400)


def _canonical(value: object) -> str:
    def ordered(each: object) -> object:
        if isinstance(each, Mapping):
            return {key: ordered(each[key]) for key in sorted(each)}
        return sorted(str(item) for item in each) if isinstance(each, list | tuple) else each

    return json.dumps(ordered(value))


def _digest(name: str, configuration: Wire, role: str) -> str:
    return hashlib.sha256(json.dumps([name, _canonical(configuration), role]).encode()).hexdigest()


# -- what an earlier daemon left ---------------------------------------------------------------------------------------


def _parse(value: object) -> dict[str, Connector]:
    record = keeping.mapping(value)
    told = record.get("connectors")
    if record.get("schema") != 1 or not isinstance(told, list):
        raise ValueError("it has another schema")
    found = [_parse_connector(keeping.mapping(each)) for each in told]
    return {each.connector_id: each for each in found}


def _parse_connector(record: dict[str, object]) -> Connector:
    versions, update, gone_at = record.get("versions"), record.get("update"), record.get("gone_at")
    if not isinstance(versions, list) or not versions:
        raise ValueError("it has no versions")
    return Connector(
        connector_id=keeping.text(record, "connector_id"),
        name=keeping.text(record, "name"),
        number=int(keeping.number(record, "number")),
        versions=tuple(_parse_version(keeping.mapping(each)) for each in versions),
        active_at=keeping.number(record, "active_at"),
        gone_at=None if gone_at is None else keeping.number(record, "gone_at"),
        tokens=keeping.texts(record, "tokens"),
        update=tuple(str(each) for each in update) if isinstance(update, list) and len(update) == 2 else None,
        updated_at=keeping.number(record, "updated_at"),
    )


def _parse_version(record: dict[str, object]) -> Version:
    return Version(
        number=int(keeping.number(record, "number")),
        configuration=keeping.mapping(record.get("configuration")),
        operator_role=keeping.text(record, "operator_role"),
        made_at=keeping.number(record, "made_at"),
    )


# -- as they are answered ----------------------------------------------------------------------------------------------


def describe(connector: Connector, version: Version | None = None, *, now: float) -> dict[str, object]:
    """Of create, update and delete, and the start of what Get answers."""
    shown = version or connector.latest
    return {
        "Arn": connector.arn,
        "Id": connector.connector_id,
        "Name": connector.name,
        "State": connector.state(now),
        "Version": shown.number,
        "VersionArn": f"{connector.arn}:{shown.number}",
        "Configuration": shown.configuration,
        "OperatorRole": shown.operator_role,
    }


def describe_update(connector: Connector, *, now: float) -> dict[str, object]:
    """What is told of the last update, if there was one."""
    if connector.update is None:
        return {}
    status, reason = connector.update
    if status == IN_PROGRESS and now >= connector.updated_at:
        status = SUCCESSFUL
    return {"LastUpdateStatus": status, "LastUpdateStatusReason": reason or None}


def describe_fully(connector: Connector, version: Version | None, *, now: float) -> dict[str, object]:
    """Of Get. Who names no version is told of the latest one under other names."""
    told = describe(connector, version, now=now)
    if version is None:
        del told["VersionArn"]
        told["LatestVersion"] = connector.latest.number
        told["LatestVersionArn"] = f"{connector.arn}:{connector.latest.number}"
    told["StateReason"] = _CREATED
    told["LastModified"] = (version or connector.latest).made_at
    return {**told, **describe_update(connector, now=now)}


def summarize(connector: Connector, *, now: float) -> dict[str, object]:
    """Of lists."""
    return {
        "Arn": connector.arn,
        "Id": connector.connector_id,
        "LastModified": connector.latest.made_at,
        "Name": connector.name,
        "State": connector.state(now),
        "Type": TYPE,
        "LatestVersion": connector.latest.number,
        "LatestVersionArn": f"{connector.arn}:{connector.latest.number}",
    }


def summarize_version(connector: Connector, version: Version, *, now: float) -> dict[str, object]:
    """Of lists of versions."""
    return {
        "Arn": connector.arn,
        "VersionArn": f"{connector.arn}:{version.number}",
        "Id": connector.connector_id,
        "Name": connector.name,
        "Version": version.number,
        "State": connector.state(now),
        "StateReason": _CREATED if version.number == 1 else None,
        "LastModified": version.made_at,
    }
