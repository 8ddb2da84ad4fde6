"""The operations on network connectors: parameters in, result out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from . import account, faults, network_connectors, paging
from .network_connectors import NetworkConnectors, Wire

Item = TypeVar("Item")
Operation = Callable[[NetworkConnectors, account.Tags, Wire], Wire]


def create(known: NetworkConnectors, tags: account.Tags, params: Wire) -> Wire:
    """CreateNetworkConnector."""
    connector, is_new = known.create(params)
    told = params.get("Tags")
    if is_new and isinstance(told, Mapping):
        tags.replace(connector.arn, {str(key): str(value) for key, value in told.items()})
    return network_connectors.describe(connector, now=known.now())


def get(known: NetworkConnectors, tags: account.Tags, params: Wire) -> Wire:
    """GetNetworkConnector."""
    connector, version = known.get(str(params["Identifier"]))
    return network_connectors.describe_fully(connector, version, now=known.now())


def list_all(known: NetworkConnectors, tags: account.Tags, params: Wire) -> Wire:
    """ListNetworkConnectors."""
    now, state = known.now(), params.get("State")
    found = [each for each in known.all() if state in {None, each.state(now)}]
    chosen, marker = _page(found, params, key=lambda each: each.number)
    return {"NetworkConnectors": [network_connectors.summarize(each, now=now) for each in chosen], **marker}


def list_versions(known: NetworkConnectors, tags: account.Tags, params: Wire) -> Wire:
    """ListNetworkConnectorVersions."""
    connector, _ = known.get(str(params["Identifier"]))
    now, state = known.now(), params.get("State")
    found = connector.versions if state in {None, connector.state(now)} else ()
    chosen, marker = _page(found, params, key=lambda version: version.number)
    told = [network_connectors.summarize_version(connector, version, now=now) for version in chosen]
    return {"NetworkConnectorVersions": told, **marker}


def update(known: NetworkConnectors, tags: account.Tags, params: Wire) -> Wire:
    """UpdateNetworkConnector."""
    connector, now = known.update(params), known.now()
    return {
        **network_connectors.describe(connector, now=now),
        **network_connectors.describe_update(connector, now=now),
        "LastModified": connector.latest.made_at,
    }


def delete(known: NetworkConnectors, tags: account.Tags, params: Wire) -> Wire:
    """DeleteNetworkConnector. The tags go with the connector, whose ARN nothing else ever has."""
    connector, version = known.delete(str(params["Identifier"]))
    if connector.gone_at is not None:
        tags.replace(connector.arn, {})
    return network_connectors.describe(connector, version, now=known.now())


def _page(items: Sequence[Item], params: Wire, *, key: Callable[[Item], int]) -> tuple[list[Item], dict[str, str]]:
    asked = {"maxResults": params.get("MaxItems"), "nextToken": params.get("Marker")}
    try:
        chosen, token = paging.page(items, asked, key=key)
    except faults.Fault as fault:
        raise network_connectors.invalid("Invalid Marker.") from fault
    # The member is left out where there is no more, as the service does.
    return chosen, {} if token is None else {"NextMarker": token}


OPERATIONS: Mapping[str, Operation] = {
    "CreateNetworkConnector": create,
    "GetNetworkConnector": get,
    "ListNetworkConnectors": list_all,
    "ListNetworkConnectorVersions": list_versions,
    "UpdateNetworkConnector": update,
    "DeleteNetworkConnector": delete,
}
