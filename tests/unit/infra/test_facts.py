"""A record says nothing of another resource that happens to be in the same slot."""

from __future__ import annotations

from vmnest.infra.facts import Artifact, Facts, Inputs
from vmnest.infra.spec import Stack
from vmnest.infra.state import Resource, StackState


def test_a_record_counts_for_the_very_resource_only() -> None:
    role = Resource("iam-role", "exec", True)
    state = StackState("demo", "dev", resources={"role": role})
    inputs = Inputs(Stack(), Facts(account_id="1", region="us-east-1"), state, Artifact("ab"))
    assert inputs.recorded("role", "exec") is role
    assert inputs.recorded("role", "another") is None
    assert inputs.recorded("bucket", "exec") is None
