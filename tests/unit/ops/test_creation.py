"""What ``create`` and ``run`` make of their arguments, with a service that refuses."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.peers import Serve, json_answer
from vmnest import errors, registry
from vmnest.ops import adoption, commands, creation, inventory, lifecycle, pruning, removal, sandboxes

ARN = "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo"


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of the test's own, with keys for AWS, which is nowhere."""
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("AGENT_SANDBOX_EGRESS_CONNECTOR", raising=False)


def test_what_is_not_given_is_as_by_default(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = serve(json_answer(400, {"message": "no"}, headers={"x-amzn-errortype": "ValidationException"}))
    monkeypatch.setenv("AWS_ENDPOINT_URL", peer.url)
    with pytest.raises(errors.ValidationError):
        sandboxes.create_sandbox(name="web", demand=creation.Demand(image=ARN, suspended_for=60))
    body = json.loads(peer.requests[0].body)
    assert body["idlePolicy"] == {
        "maxIdleDurationSeconds": 900,
        "suspendedDurationSeconds": 60,
        "autoResumeEnabled": True,
    }
    assert body["maximumDurationInSeconds"] == 28800
    assert "egressNetworkConnectors" not in body


def test_a_zero_is_not_taken_for_nothing(serve: Serve) -> None:
    with pytest.raises(errors.UsageError, match="maximum_duration"):
        sandboxes.create_sandbox(name="web", demand=creation.Demand(image=ARN, max_duration=0))
    with pytest.raises(errors.UsageError, match="max_idle_duration_seconds"):
        sandboxes.create_sandbox(name="web", demand=creation.Demand(image=ARN, idle=0))
    assert registry.open_default().all() == []


def test_egress_without_a_connector_is_refused_before_anything_starts() -> None:
    with pytest.raises(errors.UsageError, match="no egress connector is configured"):
        sandboxes.create_sandbox(name="web", demand=creation.Demand(image=ARN, egress=True))
    assert registry.open_default().all() == []


def test_every_member_of_a_demand_is_described() -> None:
    described = inspect.getdoc(creation.Demand) or ""
    members = set(inspect.signature(creation.Demand).parameters)
    assert members == set(creation.Demand.__slots__)
    for name in members:
        assert f"\n    {name}: " in described


def test_a_demand_does_not_show_its_payload() -> None:
    assert "hunter2" not in repr(creation.Demand(image=ARN, run_payload="hunter2"))


VERBS = [
    *(sandboxes.create_sandbox, inventory.list_sandboxes, sandboxes.show_sandbox, sandboxes.inspect_sandbox),
    *(adoption.adopt_sandbox, removal.remove_sandbox, removal.remove_sandboxes, removal.recorded_names),
    *(pruning.plan_prune, pruning.prune_sandboxes, commands.exec_command, commands.run_command),
    *(lifecycle.stop_sandbox, lifecycle.start_sandbox, lifecycle.wait_for_sandbox),
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_every_argument_of_a_verb_is_described(verb: Callable[..., object]) -> None:
    described = inspect.getdoc(verb) or ""
    for parameter in inspect.signature(verb).parameters.values():
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert f"\n    {parameter.name}: " in described
