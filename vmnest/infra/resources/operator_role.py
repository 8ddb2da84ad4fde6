"""The role with which the service makes a connector's network interfaces."""

from __future__ import annotations

from .. import documents, naming
from ..facts import Inputs
from ..state import Resource
from ..steps import REUSE, Step
from ..work import Work
from . import role

POLICY = "vmnest-network-connector"


def arn(inputs: Inputs) -> str:
    """The ARN that the role has, or will have."""
    egress, facts = inputs.stack.egress, inputs.facts
    assert egress is not None
    if egress.operator_role_arn:
        return egress.operator_role_arn
    if facts.operator_role is not None:
        return facts.operator_role.arn
    name = naming.operator_role(egress.name)
    return naming.role_arn(name, partition=facts.partition, account_id=facts.account_id)


def plan(inputs: Inputs) -> Step:
    """What is to happen to the operator role."""
    egress = inputs.stack.egress
    assert egress is not None
    if egress.operator_role_arn:
        key = "network.egress.operator_role_arn"
        return role.plan_reuse(
            naming.OPERATOR_ROLE, egress.operator_role_arn, found=inputs.facts.operator_role, key=key
        )
    return role.plan_own(wish(inputs), inputs=inputs, found=inputs.facts.operator_role)


def apply(step: Step, work: Work) -> Resource:
    """Perform the step."""
    egress = work.inputs.stack.egress
    assert egress is not None
    if step.action == REUSE:
        return role.reused(egress.operator_role_arn or "")
    return role.apply_own(wish(work.inputs), work, found=work.inputs.facts.operator_role)


def wish(inputs: Inputs) -> role.Wish:
    """What the operator role is to be."""
    egress, facts = inputs.stack.egress, inputs.facts
    assert egress is not None
    policy = documents.operator_policy(partition=facts.partition, region=facts.region, account_id=facts.account_id)
    return role.Wish(
        slot=naming.OPERATOR_ROLE,
        name=naming.operator_role(egress.name),
        reuse=("network.egress.operator_role_arn", "network.egress.name"),
        description=f"Makes the network interfaces of connector {egress.name} (vmnest)",
        trust=documents.operator_trust(),
        policy=(POLICY, policy),
    )
