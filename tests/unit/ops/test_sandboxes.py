"""Sandboxes by their names, with a service that answers from a script."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.control import IMAGE_ARN, vm
from tests.support.peers import Answer, Peer, Request, Serve, Step, json_answer
from vmnest import errors, registry
from vmnest.ops import creation, sandboxes
from vmnest.registry import Record

Start = Callable[..., Peer]

REGION = "us-east-1"


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> registry.Registry:
    """An empty registry that is the process's own, with keys for AWS and nowhere to go."""
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", str(tmp_path / "local"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    return registry.open_default()


@pytest.fixture
def start(serve: Serve, known: registry.Registry, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts the service, with its script."""

    def begin(*script: Step) -> Peer:
        peer = serve(*script)
        monkeypatch.setenv("AWS_ENDPOINT_URL", peer.url)
        return peer

    return begin


def record(name: str, **members: object) -> Record:
    return Record(name, microvm_id=f"microvm-{name}", region=REGION).replace(**members)


# -- show --------------------------------------------------------------------------------------------------------------


def test_one_is_shown_with_what_the_service_says(start: Start, known: registry.Registry) -> None:
    start(json_answer(200, vm(localDetails={"isolation": "namespace"})))
    known.put(record("web"))
    shown = sandboxes.show_sandbox(name="web")
    assert (shown["state"], shown["image_version"], shown["max_duration_seconds"]) == ("RUNNING", "1.0", 28800)
    assert shown["local_details"] == {"isolation": "namespace"}


def test_a_launch_that_was_cut_off_is_shown_without_asking(known: registry.Registry) -> None:
    known.put(record("web", microvm_id=None, client_token="token"))
    assert sandboxes.show_sandbox(name="web")["state"] == "LAUNCHING"


def test_to_show_one_that_cannot_be_asked_for_is_an_error(known: registry.Registry) -> None:
    known.put(record("web"))
    with pytest.raises(errors.ConnectError):
        sandboxes.show_sandbox(name="web", timeout=1)


def test_a_name_of_the_other_target_is_not_found_if_the_search_is_limited(known: registry.Registry) -> None:
    known.put(record("web"))
    with pytest.raises(errors.SandboxNotFoundError, match="on this machine; that one is on AWS"):
        sandboxes.show_sandbox(name="web", local=True)
    with pytest.raises(errors.SandboxNotFoundError, match="no sandbox named 'nobody'"):
        sandboxes.show_sandbox(name="nobody")


def test_another_region_can_be_asked(start: Start, known: registry.Registry) -> None:
    peer = start(json_answer(200, vm()))
    known.put(record("web"))
    sandboxes.show_sandbox(name="web", region="eu-west-1")
    assert "/eu-west-1/lambda/" in (peer.requests[0].get("Authorization") or "")


# -- create ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "../x", "a\n", "ä", "x" * 64])
def test_a_bad_name_is_refused_before_anything_else(known: registry.Registry, name: str) -> None:
    with pytest.raises(errors.UsageError, match="not a name"):
        sandboxes.create_sandbox(name=name)


def test_a_name_in_use_is_refused_and_nothing_is_started(start: Start, known: registry.Registry) -> None:
    peer = start()
    known.put(record("web"))
    image = "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo"
    with pytest.raises(errors.NameInUseError):
        sandboxes.create_sandbox(name="web", demand=creation.Demand(image=image))
    assert [request.method for request in peer.requests if request.method == "POST"] == []


def test_whoever_is_interrupted_while_a_new_one_is_looked_at_leaves_none(
    start: Start, known: registry.Registry
) -> None:
    def answer(request: Request) -> Answer:
        if request.target.endswith("/auth-token"):
            return json_answer(200, {"authToken": {"X-aws-proxy-auth": "jwe"}})
        if (request.method, request.target) == ("GET", "/2025-09-09/microvms/microvm-1"):
            _thread.interrupt_main()
        return json_answer(200, vm(endpoint=peer.url, status="ok"))  # and that of its agent

    peer = start(*[answer] * 9)
    with pytest.raises(KeyboardInterrupt):
        sandboxes.create_sandbox(name="web", demand=creation.Demand(image=IMAGE_ARN))
    assert known.all() == []
    assert [request.method for request in peer.requests][-2:] == ["GET", "DELETE"]


# -- handles -----------------------------------------------------------------------------------------------------------


def test_a_process_that_keeps_handles_opens_a_sandbox_once(
    known: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxes, "_handles", None)
    known.put(record("web"))
    assert sandboxes.open_sandbox("web") is not sandboxes.open_sandbox("web")
    sandboxes.keep_handles()
    first = sandboxes.open_sandbox("web")
    assert sandboxes.open_sandbox("web") is first
    assert sandboxes.open_sandbox("web", resume=False) is not first
    known.put(record("web", microvm_id="microvm-other"), replace=True)
    other = sandboxes.open_sandbox("web")
    assert (other.microvm_id, other is first) == ("microvm-other", False)
    known.remove("web")
    with pytest.raises(errors.SandboxNotFoundError):
        sandboxes.open_sandbox("web")


def test_not_more_handles_are_kept_than_there_is_room_for(
    known: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxes, "MOST_HANDLES", 2)
    monkeypatch.setattr(sandboxes, "_handles", None)
    for name in ("a", "b", "c"):
        known.put(record(name))
    sandboxes.keep_handles()
    a, b = sandboxes.open_sandbox("a"), sandboxes.open_sandbox("b")
    assert sandboxes.open_sandbox("a") is a
    sandboxes.open_sandbox("c")
    assert sandboxes.open_sandbox("a") is a
    assert sandboxes.open_sandbox("b") is not b
