"""What one step has made is there for the next."""

from __future__ import annotations

import io

from vmnest.infra.facts import Artifact, Facts, Inputs
from vmnest.infra.spec import Stack
from vmnest.infra.state import Resource, StackState
from vmnest.infra.work import Work


def test_a_step_finds_what_an_earlier_one_has_made() -> None:
    role = Resource("iam-role", "exec", True)
    inputs = Inputs(Stack(), Facts(account_id="1", region="us-east-1"), StackState("demo", "dev"), Artifact("ab"))
    told: list[tuple[str, str]] = []
    work = Work(
        inputs,
        account=None,  # type: ignore[arg-type] # not asked
        artifact=io.BytesIO(),
        state=inputs.state.with_resource("role", role),
        tell=lambda phase, text: told.append((phase, text)),
    )
    work.tell("note", "hello")
    assert work.made("role") is role
    assert work.fresh == set()
    assert told == [("note", "hello")]
