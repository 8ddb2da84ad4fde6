"""How the record of a stack changes. Pure: a state in, a state out.

There is one place for each resource of a stack. What is replaced there and is ours is kept under another name until it
is removed, so that nothing that we made is ever forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from . import naming, outputs, ownership
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
    found: dict[str, Output] = {}
    if state.region and any(True for _ in _finished(state)):
        found[outputs.REGION] = state.region
    for name, resource in _finished(state):
        if name == naming.IMAGE:
            found[outputs.IMAGE] = resource.id
            if resource.attrs.get("version"):
                found[outputs.IMAGE_VERSION] = str(resource.attrs["version"])
        elif name == naming.ROLE and resource.attrs.get("arn"):
            found[outputs.EXECUTION_ROLE] = str(resource.attrs["arn"])
        elif name == naming.BUCKET:
            found[outputs.BUILD_BUCKET] = resource.id
        elif name == naming.CONNECTOR:
            found[outputs.EGRESS_CONNECTOR] = resource.id
            found.update(_network_outputs(resource.attrs))
    return found


def _network_outputs(attrs: Mapping[str, object]) -> Mapping[str, Output]:
    outputs: dict[str, Output] = {name: str(attrs[name]) for name in ("security_group_id", "vpc_id") if attrs.get(name)}
    subnets = attrs.get("subnet_ids")
    if isinstance(subnets, (list, tuple)) and subnets:
        outputs["subnet_ids"] = [str(subnet) for subnet in subnets]
    return outputs


def _finished(state: StackState) -> Iterable[tuple[str, Resource]]:
    return ((name, it) for name, it in state.resources.items() if not ownership.is_unfinished(it))
