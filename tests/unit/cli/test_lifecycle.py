"""``stop``, ``start``, ``wait``: what is made of options and results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.control import vm
from tests.support.peers import Peer, Serve, Step, json_answer
from vmnest import registry
from vmnest.cli.main import main
from vmnest.registry import Record

MICROVM = "/2025-09-09/microvms/microvm-1"


def state(word: str) -> Step:
    return json_answer(200, vm(state=word))


@pytest.fixture(autouse=True)
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> registry.Registry:
    """A registry with one sandbox, and keys for AWS."""
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    known = registry.open_default()
    known.put(Record("web", microvm_id="microvm-1", region="eu-west-1", state_hint="RUNNING"))
    return known


@pytest.fixture
def peer(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Peer:
    """The service; its script is to be filled."""
    peer = serve()
    monkeypatch.setenv("AWS_ENDPOINT_URL", peer.url)
    return peer


def requests(peer: Peer) -> list[tuple[str, str]]:
    return [(request.method, request.target.removeprefix(MICROVM)) for request in peer.requests]


def test_stop_suspends_marks_the_record_and_prints_the_name(
    peer: Peer, known: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    peer.script[:] = [json_answer(200, {}), state("SUSPENDED"), state("SUSPENDED")]
    assert main(["stop", "web"]) == 0
    assert capfd.readouterr() == ("web\n", "")
    assert requests(peer)[:2] == [("POST", "/suspend"), ("GET", "")]
    record = known.require("web")
    assert record.stopped_at is not None
    assert record.state_hint == "SUSPENDED"


def test_what_stop_answers_in_json_is_the_sandbox(peer: Peer, capfd: pytest.CaptureFixture[str]) -> None:
    peer.script[:] = [json_answer(200, {}), state("SUSPENDED"), state("SUSPENDED")]
    assert main(["stop", "web", "--json"]) == 0
    (stopped,) = json.loads(capfd.readouterr().out)["stopped"]
    assert (stopped["name"], stopped["state"]) == ("web", "SUSPENDED")
    assert stopped["stopped_at"].endswith("+00:00")


def test_stop_has_a_time_of_its_own(peer: Peer, capfd: pytest.CaptureFixture[str]) -> None:
    peer.script[:] = [json_answer(200, {}), *[state("SUSPENDING")] * 50]
    assert main(["stop", "web", "--timeout", "0.3", "--json"]) == 1
    assert json.loads(capfd.readouterr().err)["error"]["code"] == "timed_out"


@pytest.mark.parametrize("verb", ["stop", "start"])
def test_one_that_has_ended_is_told(peer: Peer, verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    refusal = json_answer(400, {"message": "no"}, headers={"x-amzn-errortype": "ValidationException"})
    ended = json_answer(200, vm(state="TERMINATED", stateReason="Gone to bed."))
    peer.script[:] = [refusal, ended]
    assert main([verb, "web", "nobody"]) == 1
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "Gone to bed." in captured.err
    assert "no sandbox named 'nobody'" in captured.err


# -- wait --------------------------------------------------------------------------------------------------------------


def test_wait_prints_the_state_that_it_waited_for(peer: Peer, capfd: pytest.CaptureFixture[str]) -> None:
    peer.script[:] = [state("RUNNING"), state("TERMINATED"), state("TERMINATED")]
    assert main(["wait", "web"]) == 0
    assert capfd.readouterr() == ("TERMINATED\n", "")
    assert {method for method, _ in requests(peer)} == {"GET"}


def test_wait_takes_several_states_in_any_case(peer: Peer, capfd: pytest.CaptureFixture[str]) -> None:
    peer.script[:] = [state("SUSPENDED"), state("SUSPENDED")]
    assert main(["wait", "web", "--state", "running", "--state=Suspended", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert (data["name"], data["state"]) == ("web", "SUSPENDED")


def test_one_that_the_service_has_forgotten_has_ended(peer: Peer, capfd: pytest.CaptureFixture[str]) -> None:
    gone = json_answer(404, {"message": "no"}, headers={"x-amzn-errortype": "ResourceNotFoundException"})
    peer.script[:] = [gone] * 3
    assert main(["wait", "web"]) == 0
    assert capfd.readouterr() == ("GONE\n", "")
    assert main(["wait", "web", "--state", "RUNNING"]) == 3


def test_an_end_that_was_not_waited_for_is_a_failure(peer: Peer, capfd: pytest.CaptureFixture[str]) -> None:
    peer.script[:] = [json_answer(200, vm(state="TERMINATED", stateReason="Over."))]
    assert main(["wait", "web", "--state", "RUNNING"]) == 1
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "Over." in captured.err


def test_a_wait_that_is_too_long_is_a_failure(peer: Peer, capfd: pytest.CaptureFixture[str]) -> None:
    peer.script[:] = [state("RUNNING")] * 50
    assert main(["wait", "web", "--timeout", "0.3", "--json"]) == 1
    error = json.loads(capfd.readouterr().err)["error"]
    assert (error["code"], error["retryable"]) == ("timed_out", True)


def test_a_state_that_is_none_is_a_usage_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["wait", "web", "--state", "GONE"]) == 2
    assert "--state: must be one of PENDING, RUNNING" in capfd.readouterr().err
