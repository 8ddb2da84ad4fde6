"""Sandboxes by their names, with a service that answers from a script."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.control import IMAGE_ARN, vm
from tests.support.peers import Answer, Peer, Request, Serve, Step, json_answer
from vmnest import errors, registry
from vmnest.ops import creation, sandboxes, views
from vmnest.registry import Record

Start = Callable[..., Peer]

REGION = "us-east-1"
NOT_FOUND = json_answer(
    404, {"message": "MicroVM not found"}, headers={"x-amzn-errortype": "ResourceNotFoundException"}
)


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


def listed() -> list[dict[str, object]]:
    found = sandboxes.list_sandboxes()["sandboxes"]
    assert isinstance(found, list)
    return found


# -- list --------------------------------------------------------------------------------------------------------------


def test_without_records_nobody_is_asked(known: registry.Registry) -> None:
    assert sandboxes.list_sandboxes() == {"sandboxes": []}


def test_each_sandbox_is_listed_with_its_state_in_the_order_of_the_records(
    start: Start, known: registry.Registry
) -> None:
    names = [f"n{number}" for number in range(30)]

    def answer(request: Request) -> Answer:
        return json_answer(200, vm(microvmId=request.target.rpartition("/")[2], stateReason="why"))

    peer = start(*[answer] * 30)
    for name in names:
        known.put(record(name, created_at=0.0))
    found = listed()
    assert [each["name"] for each in found] == names
    assert {each["state"] for each in found} == {"RUNNING"}
    assert found[0]["state_reason"] == "why"
    assert found[0]["created_at"] == "1970-01-01T00:00:00+00:00"
    assert found[0]["endpoint"] == "https://0000.lambda-microvm.us-east-1.on.aws"
    assert {request.target for request in peer.requests} == {f"/2025-09-09/microvms/microvm-{name}" for name in names}


def test_several_are_asked_at_a_time(start: Start, known: registry.Registry) -> None:
    together = threading.Barrier(4, timeout=20)

    def answer(request: Request) -> Answer:
        together.wait()
        return json_answer(200, vm())

    start(*[answer] * 4)
    for name in "abcd":
        known.put(record(name))
    assert len(listed()) == 4


def test_a_service_that_cannot_be_asked_makes_a_state_unknown_and_no_error(known: registry.Registry) -> None:
    known.put(record("web"))
    (found,) = listed()
    assert (found["name"], found["state"]) == ("web", "UNKNOWN")
    assert isinstance(found["error"], dict)
    assert found["error"]["code"] == "connect_failed"


def test_a_microvm_that_the_service_does_not_know_is_gone(start: Start, known: registry.Registry) -> None:
    start(NOT_FOUND)
    known.put(record("web"))
    assert listed()[0]["state"] == "GONE"


def test_a_launch_that_was_cut_off_is_shown_without_asking(known: registry.Registry) -> None:
    known.put(record("web", microvm_id=None, client_token="token"))
    assert listed()[0]["state"] == "LAUNCHING"
    assert sandboxes.show_sandbox(name="web")["state"] == "LAUNCHING"


def test_the_list_can_be_limited_to_a_target(known: registry.Registry) -> None:
    known.put(record("here", microvm_id=None, target="local"))
    known.put(record("there", microvm_id=None))
    for local, names in ((True, ["here"]), (False, ["there"]), (None, ["here", "there"])):
        found = sandboxes.list_sandboxes(local=local)["sandboxes"]
        assert isinstance(found, list)
        assert [each["name"] for each in found] == names


def test_a_fault_in_one_of_the_threads_is_not_lost(
    start: Start, known: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(json_answer(200, vm()), json_answer(200, vm()))
    known.put(record("a"))
    known.put(record("b"))
    monkeypatch.setattr(views, "describe", lambda record, microvm: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        listed()


def test_a_date_that_is_none_is_left_out(known: registry.Registry) -> None:
    known.put(record("web", microvm_id=None, created_at=1e300))
    assert listed()[0]["created_at"] is None


# -- show --------------------------------------------------------------------------------------------------------------


def test_one_is_shown_with_what_the_service_says(start: Start, known: registry.Registry) -> None:
    start(json_answer(200, vm(localDetails={"isolation": "namespace"})))
    known.put(record("web"))
    shown = sandboxes.show_sandbox(name="web")
    assert (shown["state"], shown["image_version"], shown["max_duration_seconds"]) == ("RUNNING", "1.0", 28800)
    assert shown["local_details"] == {"isolation": "namespace"}


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


# -- remove ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "was_there"), [(json_answer(200, {}), True), (NOT_FOUND, False)])
def test_a_removed_sandbox_is_ended_by_id_and_forgotten(
    start: Start, known: registry.Registry, answer: Answer, was_there: bool
) -> None:
    peer = start(answer)
    known.put(record("web"))
    removed = sandboxes.remove_sandbox(name="web")
    assert removed == {"name": "web", "microvm_id": "microvm-web", "removed": True, "was_there": was_there}
    assert [(request.method, request.target) for request in peer.requests] == [
        ("DELETE", "/2025-09-09/microvms/microvm-web")
    ]
    assert known.all() == []


def test_a_sandbox_that_may_run_on_keeps_its_name(known: registry.Registry) -> None:
    known.put(record("web"))
    with pytest.raises(errors.ConnectError):
        sandboxes.remove_sandbox(name="web", timeout=1)
    assert [each.name for each in known.all()] == ["web"]


def test_what_another_region_does_not_know_keeps_its_name(start: Start, known: registry.Registry) -> None:
    start(NOT_FOUND, NOT_FOUND)
    known.put(record("web"))
    with pytest.raises(errors.MicroVMNotFoundError, match="recorded in us-east-1"):
        sandboxes.remove_sandbox(name="web", region="eu-west-1")
    assert known.get("web") is not None
    assert sandboxes.remove_sandbox(name="web", region=REGION)["was_there"] is False


def test_a_record_of_an_older_version_under_an_odd_name_is_removed(start: Start, known: registry.Registry) -> None:
    start(json_answer(200, {}))
    known.put(Record("[red]x y", microvm_id="m-1", endpoint="host", region=REGION))
    assert sandboxes.remove_sandbox(name="[red]x y")["removed"] is True
    assert known.all() == []


def test_a_launch_that_was_cut_off_is_forgotten_if_it_cannot_be_repeated(known: registry.Registry) -> None:
    known.put(record("web", microvm_id=None, created_at=time.time() - 10**6))
    assert sandboxes.remove_sandbox(name="web")["was_there"] is False
    assert known.all() == []


def test_what_a_launch_that_was_cut_off_may_have_left_is_named(start: Start, known: registry.Registry) -> None:
    suspect = {
        "microvmId": "microvm-left",
        "state": "RUNNING",
        "imageArn": "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo",
        "imageVersion": "1.0",
        "startedAt": time.time(),
    }
    start(json_answer(200, {"items": [suspect, {**suspect, "microvmId": "m-ended", "state": "TERMINATED"}]}))
    known.put(record("web", microvm_id=None, launch=None, created_at=time.time()))
    assert sandboxes.remove_sandbox(name="web")["may_still_run"] == ["microvm-left"]
    assert known.all() == []


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
