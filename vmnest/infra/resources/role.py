"""The role of builds and MicroVMs, and what any role of ours needs (``operator_role`` is another one)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ... import errors
from .. import documents, naming, ownership
from ..account import Account, Role
from ..facts import Inputs
from ..state import Resource
from ..steps import CREATE, NOTHING, PROGRESS, REUSE, UPDATE, Change, Step
from ..work import Work
from . import bucket

POLICY = "vmnest-sandbox"
_ATTACHED = "attached"  # the managed policies that we have attached, among those that the role has


@dataclass(frozen=True)
class Wish:
    """What a role of ours is to be.

    Attributes:
        slot: Its name in the state.
        name: Its name in IAM.
        reuse: The key of ``sandbox.yaml`` that names one to reuse, and the one that names ours; for messages.
        description: For people.
        trust: Who may assume it.
        policy: The name of its inline policy, and the document.
        attached: ARNs of managed policies.
    """

    slot: str
    name: str
    reuse: tuple[str, str]
    description: str
    trust: documents.Document
    policy: tuple[str, documents.Document]
    attached: tuple[str, ...] = ()


def arn(inputs: Inputs) -> str:
    """The ARN that the role has, or will have."""
    if inputs.stack.role.arn:
        return inputs.stack.role.arn
    facts = inputs.facts
    if facts.role is not None:
        return facts.role.arn
    return naming.role_arn(inputs.stack.role.name, partition=facts.partition, account_id=facts.account_id)


def wish(inputs: Inputs) -> Wish:
    """What the role of builds and MicroVMs is to be."""
    stack, facts = inputs.stack, inputs.facts
    policy = documents.sandbox_policy(
        partition=facts.partition,
        region=facts.region,
        account_id=facts.account_id,
        bucket=bucket.name(inputs),
        prefix=naming.artifact_folder(stack.image.name),
        log_group=stack.image.log_group,
    )
    return Wish(
        slot=naming.ROLE,
        name=stack.role.name,
        reuse=("role.arn", "role.name"),
        description=f"Builds and runs the MicroVMs of {stack.label} (vmnest)",
        trust=documents.service_trust(account_id=facts.account_id),
        policy=(POLICY, policy),
        attached=stack.role.extra_policy_arns,
    )


def plan(inputs: Inputs) -> Step:
    """What is to happen to the role of builds and MicroVMs."""
    stack = inputs.stack
    if stack.role.arn:
        return plan_reuse(naming.ROLE, stack.role.arn, found=inputs.facts.role, key="role.arn")
    return plan_own(wish(inputs), inputs=inputs, found=inputs.facts.role)


def plan_reuse(slot: str, role_arn: str, *, found: Role | None, key: str) -> Step:
    """A role that the user names is taken as it is."""
    if found is None:
        raise errors.InfrastructureError(
            f"{key} names a role that does not exist: {role_arn}", hint=f"Correct {key}, or leave it empty to make one."
        )
    return Step(slot, naming.ROLE_KIND, REUSE, naming.role_of_arn(role_arn), ownership.reused(key, found.tags))


def plan_own(wish: Wish, *, inputs: Inputs, found: Role | None) -> Step:
    """A role of ours is made, or made what it is to be."""
    if found is None:
        return Step(wish.slot, naming.ROLE_KIND, CREATE, wish.name, "there is none of that name")
    check_owner(wish, found, inputs=inputs)
    changes = tuple(_changes(wish, found, inputs=inputs))
    if not changes:
        return Step(wish.slot, naming.ROLE_KIND, NOTHING, wish.name, "is as it should be")
    fields = ", ".join(change.field for change in changes)
    return Step(wish.slot, naming.ROLE_KIND, UPDATE, wish.name, f"differs in {fields}", changes)


def check_owner(wish: Wish, found: Role, *, inputs: Inputs) -> None:
    """Raise InfrastructureError if the role of the wanted name is not ours."""
    recorded = inputs.recorded(wish.slot, found.name)
    if not ownership.is_ours(found.tags, stack=inputs.stack, recorded=recorded):
        reuse, name = wish.reuse
        raise ownership.foreign(
            f"the role {found.name}",
            found.tags,
            hint=f"To use it as it is, set {reuse}: {found.arn} in {inputs.stack.source}; for one of its own, {name}.",
        )


def apply(step: Step, work: Work) -> Resource:
    """Perform the step of the role of builds and MicroVMs."""
    if step.action == REUSE:
        return reused(work.inputs.stack.role.arn or "")
    return apply_own(wish(work.inputs), work, found=work.inputs.facts.role)


def reused(role_arn: str) -> Resource:
    """The record of a role that is not ours."""
    return Resource(naming.ROLE_KIND, naming.role_of_arn(role_arn), managed=False, attrs={"arn": role_arn})


def apply_own(wish: Wish, work: Work, *, found: Role | None) -> Resource:
    """Make a role of ours, or make it what it is to be."""
    roles, inputs = work.account.roles, work.inputs
    if found is None:
        tags = ownership.tags_of(inputs.stack)
        found = roles.create(wish.name, trust=wish.trust, description=wish.description, tags=tags)
        check_owner(wish, found, inputs=inputs)
    if missing := ownership.missing_tags(found.tags, stack=inputs.stack):
        roles.tag(wish.name, missing)
    if not documents.are_equal(found.trust, wish.trust):
        roles.set_trust(wish.name, wish.trust)
    name, document = wish.policy
    if not documents.are_equal(found.policies.get(name, {}), document):
        work.tell(PROGRESS, f"setting its policy {name}")
        roles.set_policy(wish.name, name, document)
    for policy_arn in wish.attached:
        if policy_arn not in found.attached:
            work.tell(PROGRESS, f"attaching {policy_arn}")
            roles.attach(wish.name, policy_arn)
    for policy_arn in sorted(_superfluous(wish, found, inputs=inputs)):
        work.tell(PROGRESS, f"detaching {policy_arn}")
        roles.detach(wish.name, policy_arn)
    attrs = {"arn": found.arn, **({_ATTACHED: list(wish.attached)} if wish.attached else {})}
    return Resource(naming.ROLE_KIND, wish.name, managed=True, attrs=attrs)


def remove(resource: Resource, account: Account, *, is_ours: Callable[[Mapping[str, str]], bool]) -> bool:
    """Delete a role with its policies, if it is ours."""
    found = account.roles.find(resource.id)
    if found is None:
        return True
    if not is_ours(found.tags):
        return False
    account.roles.delete(found)
    return True


def look(resource: Resource, account: Account) -> Resource | None:
    """The role as it is now, or None."""
    try:
        found = account.roles.find(resource.id)
    except errors.AccessDeniedError:
        if resource.managed:
            raise
        return resource  # somebody else's need not be visible to us
    if found is None:
        return None
    return Resource(resource.kind, resource.id, resource.managed, {**resource.attrs, "arn": found.arn})


def _changes(wish: Wish, found: Role, *, inputs: Inputs) -> list[Change]:
    changes: list[Change] = []
    name, document = wish.policy
    if not documents.are_equal(found.trust, wish.trust):
        changes.append(Change("trust", "another", "the service alone"))
    if not documents.are_equal(found.policies.get(name, {}), document):
        changes.append(Change("policy", "another" if name in found.policies else None, name))
    changes += [Change("attached policy", None, each) for each in wish.attached if each not in found.attached]
    changes += [Change("attached policy", each, None) for each in sorted(_superfluous(wish, found, inputs=inputs))]
    changes += [
        Change(f"tag {key}", found.tags.get(key), value)
        for key, value in ownership.missing_tags(found.tags, stack=inputs.stack).items()
    ]
    return changes


def _superfluous(wish: Wish, found: Role, *, inputs: Inputs) -> set[str]:
    """The managed policies that we have attached once and that are not wanted any more; the user's own stay."""
    recorded = inputs.recorded(wish.slot, wish.name)
    attached = recorded.attrs.get(_ATTACHED, ()) if recorded is not None else ()
    return {str(each) for each in attached if each in found.attached and each not in wish.attached}
