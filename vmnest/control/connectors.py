"""Network connectors to a VPC (service lambda-core): make, look at, change, delete, wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .. import deadline as deadlines
from .. import errors
from ..aws.service import Service
from ..deadline import SYSTEM_CLOCK, Clock, Deadline
from . import answers, outages

__all__ = ["Connector", "Connectors"]

PENDING = "PENDING"
ACTIVE = "ACTIVE"
IPV4 = "IPv4"
_COMPUTE = "MicroVm"  # the members that the model calls optional and the service demands
_OUT_OF_ORDER = ("FAILED", "INACTIVE")
_IN_PROGRESS = "InProgress"


class Connector(NamedTuple):
    """A connector. ``last_update_status`` is None until it was updated once."""

    arn: str
    id: str
    name: str
    state: str
    state_reason: str | None = None
    last_update_status: str | None = None
    last_update_reason: str | None = None
    operator_role_arn: str | None = None
    subnet_ids: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()
    protocol: str | None = None
    raw: Mapping[str, object] = answers.NOTHING

    @classmethod
    def from_wire(cls, answer: answers.Answer, *, operation: str) -> Connector:
        """The answer of an operation on one connector, or an item of the list."""

        def find(name: str) -> str | None:
            return answers.find(answer, name, str, operation=operation)

        configuration = answers.find(answer, "Configuration", dict, operation=operation) or {}
        vpc = answers.find(configuration, "VpcEgressConfiguration", dict, operation=operation) or {}
        return cls(
            arn=answers.take(answer, "Arn", str, operation=operation),
            id=answers.take(answer, "Id", str, operation=operation),
            name=answers.take(answer, "Name", str, operation=operation),
            state=find("State") or "",
            state_reason=find("StateReason"),
            last_update_status=find("LastUpdateStatus"),
            last_update_reason=find("LastUpdateStatusReason"),
            operator_role_arn=find("OperatorRole"),
            subnet_ids=answers.texts(vpc, "SubnetIds", operation=operation),
            security_group_ids=answers.texts(vpc, "SecurityGroupIds", operation=operation),
            protocol=answers.find(vpc, "NetworkProtocol", str, operation=operation),
            raw=answer,
        )


class Connectors:
    """Calls about connectors. One is named by its id, name or ARN.

    All of them raise ResourceNotFoundError for a connector that the service does not know.
    """

    def __init__(self, service: Service, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._service = service
        self._clock = clock

    def create(
        self,
        name: str,
        *,
        subnet_ids: Sequence[str],
        security_group_ids: Sequence[str],
        operator_role_arn: str,
        tags: Mapping[str, str],
        protocol: str = IPV4,
        deadline: Deadline,
    ) -> Connector:
        """Begin to make a connector; it is PENDING, and can be used once it is ACTIVE.

        Raises:
            errors.ConflictError: the name is taken.
        """
        params = {
            "Name": name,
            "Configuration": _configuration(subnet_ids, security_group_ids, protocol),
            "OperatorRole": operator_role_arn,
            "Tags": dict(tags) or None,
        }
        return self._call("CreateNetworkConnector", params, deadline)

    def get(self, identifier: str, *, deadline: Deadline) -> Connector:
        """Look at a connector."""
        return self._call("GetNetworkConnector", {"Identifier": identifier}, deadline)

    def list(self, *, deadline: Deadline) -> Iterator[Connector]:
        """All connectors of the account and region; without what each is made of."""
        operation = "ListNetworkConnectors"
        found = answers.pages(
            self._service, operation, {},
            items="NetworkConnectors", sent="Marker", received="NextMarker", deadline=deadline,
        )  # fmt: skip
        for item in found:
            yield Connector.from_wire(item, operation=operation)

    def update(
        self,
        identifier: str,
        *,
        subnet_ids: Sequence[str],
        security_group_ids: Sequence[str],
        operator_role_arn: str,
        protocol: str = IPV4,
        deadline: Deadline,
    ) -> Connector:
        """Begin to change a connector; it can be used meanwhile, as it was."""
        params = {
            "Identifier": identifier,
            "Configuration": _configuration(subnet_ids, security_group_ids, protocol),
            "OperatorRole": operator_role_arn,
        }
        return self._call("UpdateNetworkConnector", params, deadline)

    def delete(self, identifier: str, *, deadline: Deadline) -> None:
        """Begin to delete a connector."""
        self._service.call("DeleteNetworkConnector", {"Identifier": identifier}, deadline=deadline)

    def wait_active(
        self, identifier: str, *, deadline: Deadline, on_change: Callable[[str], None] | None = None
    ) -> Connector:
        """Wait until a connector is ACTIVE and no update of it goes on.

        Raises:
            errors.ConnectorError: it failed, with the service's reason.
            errors.WaitTimeoutError: the deadline passed.
        """
        told = ""
        for _ in self._looks(identifier, ACTIVE, deadline):
            connector = self._look(identifier, deadline)
            if on_change is not None and connector.state != told:
                told = connector.state
                on_change(told)
            if connector.state in _OUT_OF_ORDER:
                raise _failed(connector, connector.state_reason)
            if connector.state == ACTIVE and connector.last_update_status != _IN_PROGRESS:
                if connector.last_update_status == "Failed":
                    raise _failed(connector, connector.last_update_reason)
                return connector
        raise AssertionError("the schedule of looks has no end")

    def wait_deleted(self, identifier: str, *, deadline: Deadline) -> None:
        """Wait until nothing is left of a connector whose deletion has begun.

        Raises:
            errors.ConnectorError: it cannot be deleted, with the service's reason.
            errors.WaitTimeoutError: the deadline passed.
        """
        for _ in self._looks(identifier, "deleted", deadline):
            try:
                connector = self._look(identifier, deadline)
            except errors.ResourceNotFoundError:
                return
            if connector.state == "DELETE_FAILED":
                raise _failed(connector, connector.state_reason)

    def _call(self, operation: str, params: Mapping[str, object], deadline: Deadline) -> Connector:
        return Connector.from_wire(self._service.call(operation, params, deadline=deadline), operation=operation)

    def _look(self, identifier: str, deadline: Deadline) -> Connector:
        return outages.outlast(lambda: self.get(identifier, deadline=deadline), deadline=deadline, clock=self._clock)

    def _looks(self, identifier: str, goal: str, deadline: Deadline) -> Iterator[None]:
        for delay in deadlines.backoff(first=outages.FIRST_DELAY_SECONDS, last=outages.LAST_DELAY_SECONDS):
            yield
            left = deadline.remaining()
            if left is not None and delay >= left:
                raise errors.WaitTimeoutError(
                    f"network connector {identifier} is not {goal} after {deadline.seconds:g} s",
                    hint="It takes some four minutes, and goes on without us; wait longer (--timeout).",
                )
            self._clock.sleep(delay)


def _configuration(subnet_ids: Sequence[str], security_group_ids: Sequence[str], protocol: str) -> dict[str, object]:
    return {
        "VpcEgressConfiguration": {
            "SubnetIds": list(subnet_ids),
            "SecurityGroupIds": list(security_group_ids),
            "NetworkProtocol": protocol,
            "AssociatedComputeResourceTypes": [_COMPUTE],
        }
    }


def _failed(connector: Connector, reason: str | None) -> errors.ConnectorError:
    return errors.ConnectorError(
        f"network connector {connector.name} is {connector.state}: {reason or 'the service gives no reason'}",
        details={"arn": connector.arn, "state": connector.state, "state_reason": reason},
    )
