"""How the record of a stack changes. Pure: a state in, a state out.

There is one place for each resource of a stack. What is replaced there and is ours is kept under another name until it
is removed, so that nothing that we made is ever forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from . import naming, ownership
from .state import Output, Resource, StackState


def put(state: StackState, name: str, resource: Resource) -> StackState:
    """Record a resource in its place."""
    state = retire(state, name, resource)
    for other, held in state.resources.items():
        if other != name and naming.slot(other) == name and identity(held) == identity(resource):
            state = state.without_resource(other)  # it has come back: a guest as it was before, say
    return with_outputs(state.with_resource(name, resource))


def retire(state: StackState, name: str, resource: Resource) -> StackState:
    """Keep what this resource replaces under another name, if it is ours and another one."""
    old = state.resources.get(name)
    if old is None or not old.managed or identity(old) == identity(resource):
        return state
    if ownership.is_unfinished(old) and not ownership.is_unfinished(resource):
        return state  # the one that was begun is done
    place = "/".join(filter(None, (str(old.attrs.get("bucket", "")), told(old))))
    return state.with_resource(naming.retired(name, place), old)


def drop(state: StackState, names: Iterable[str]) -> StackState:
    """Forget resources."""
    for name in names:
        state = state.without_resource(name)
    return with_outputs(state)


def with_outputs(state: StackState) -> StackState:
    """The state with the outputs that follow from its resources."""
    return state.with_outputs(dict(_outputs(state)))


def identity(resource: Resource) -> tuple[str, str, object, object]:
    """What tells a resource from others of its kind."""
    return (
        resource.kind,
        resource.id,
        resource.attrs.get("bucket"),
        resource.attrs.get("name") if not resource.id else "",
    )


def told(resource: Resource) -> str:
    """What a user may know the resource by: its name, ARN or id."""
    return resource.id or str(resource.attrs.get("name", ""))


def _outputs(state: StackState) -> Mapping[str, Output]:
    outputs: dict[str, Output] = {}
    if state.region and any(True for _ in _finished(state)):
        outputs["region"] = state.region
    for name, resource in _finished(state):
        if name == naming.IMAGE:
            outputs["image_arn"] = resource.id
            if resource.attrs.get("version"):
                outputs["image_version"] = str(resource.attrs["version"])
        elif name == naming.ROLE and resource.attrs.get("arn"):
            outputs["execution_role_arn"] = str(resource.attrs["arn"])
        elif name == naming.BUCKET:
            outputs["build_bucket"] = resource.id
        elif name == naming.CONNECTOR:
            outputs["egress_network_connector_arn"] = resource.id
            outputs.update(_network_outputs(resource.attrs))
    return outputs


def _network_outputs(attrs: Mapping[str, object]) -> Mapping[str, Output]:
    outputs: dict[str, Output] = {name: str(attrs[name]) for name in ("security_group_id", "vpc_id") if attrs.get(name)}
    subnets = attrs.get("subnet_ids")
    if isinstance(subnets, (list, tuple)) and subnets:
        outputs["subnet_ids"] = [str(subnet) for subnet in subnets]
    return outputs


def _finished(state: StackState) -> Iterable[tuple[str, Resource]]:
    return ((name, it) for name, it in state.resources.items() if not ownership.is_unfinished(it))
