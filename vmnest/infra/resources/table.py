"""The kinds of resources, each once, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from .. import naming
from ..account import Account
from ..facts import Inputs
from ..ownership import UNFINISHED
from ..state import Resource
from ..steps import Step
from ..work import Work
from . import artifact, bucket, connector, image, operator_role, role, security_group


class Remove(Protocol):
    """Removes a resource, which may be gone already; False if it is not ours (any more), and was left alone."""

    def __call__(
        self, resource: Resource, account: Account, *, is_ours: Callable[[Mapping[str, str]], bool]
    ) -> bool: ...


class Slot(NamedTuple):
    """One resource of a stack.

    Attributes:
        name: Its name in the state.
        plan: What is to happen to it.
        apply: Performs that, whatever the action, and returns what is to be recorded.
        is_wanted: Whether a stack has one.
        unfinished: What is recorded before it is made, if that is more than its id.
    """

    name: str
    plan: Callable[[Inputs], Step]
    apply: Callable[[Step, Work], Resource]
    is_wanted: Callable[[Inputs], bool]
    unfinished: Callable[[Inputs], Resource] | None = None


class Kind(NamedTuple):
    """One kind of resource.

    Attributes:
        name: As in the state.
        remove: Removes one.
        look: Looks at one again.
        holds: Names in the state of what must stay while one of this kind is left.
    """

    name: str
    remove: Remove
    look: Callable[[Resource, Account], Resource | None]
    holds: tuple[str, ...] = ()


def _always(inputs: Inputs) -> bool:
    del inputs
    return True


def _has_egress(inputs: Inputs) -> bool:
    return inputs.stack.egress is not None


def _makes_egress(inputs: Inputs) -> bool:
    return inputs.stack.egress is not None and not inputs.stack.egress.connector_arn


SLOTS = (
    Slot(naming.ROLE, role.plan, role.apply, _always),
    Slot(naming.OPERATOR_ROLE, operator_role.plan, operator_role.apply, _makes_egress),
    Slot(naming.BUCKET, bucket.plan, bucket.apply, _always),
    Slot(naming.ARTIFACT, artifact.plan, artifact.apply, _always, artifact.unfinished),
    Slot(naming.IMAGE, image.plan, image.apply, _always),
    Slot(naming.GROUP, security_group.plan, security_group.apply, _makes_egress, security_group.unfinished),
    Slot(naming.CONNECTOR, connector.plan, connector.apply, _has_egress, connector.unfinished),
)

# In the order in which they are removed: what holds something goes first.
KINDS = (
    Kind(naming.CONNECTOR_KIND, connector.remove, connector.look, holds=(naming.GROUP, naming.OPERATOR_ROLE)),
    Kind(naming.GROUP_KIND, security_group.remove, security_group.look),
    Kind(naming.IMAGE_KIND, image.remove, image.look, holds=(naming.ROLE,)),
    Kind(naming.ARTIFACT_KIND, artifact.remove, artifact.look),
    Kind(naming.BUCKET_KIND, bucket.remove, bucket.look),
    Kind(naming.ROLE_KIND, role.remove, role.look),
)


def slot(name: str) -> Slot:
    """The slot of that name."""
    return next(slot for slot in SLOTS if slot.name == name)


def kind(name: str) -> Kind | None:
    """The kind of that name; None for one that a newer version has recorded."""
    return next((kind for kind in KINDS if kind.name == name), None)


def unfinished(step: Step, inputs: Inputs) -> Resource:
    """What is recorded before the step makes its resource."""
    special = slot(step.resource).unfinished
    if special is not None:
        return special(inputs)
    return Resource(step.kind, step.id or "", managed=True, attrs={UNFINISHED: True})
