"""The stacks that a verb works on: where they are, and several of them at a time."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from tests.support.memory_account import MemoryAccount
from tests.support.processes import wait_until
from tests.support.sandbox_yaml import write, write_stack
from vmnest import errors
from vmnest.deadline import Deadline
from vmnest.infra.state import Resource, StackState, Store
from vmnest.ops import works

IMAGE = "arn:aws:lambda:eu-west-1:111122223333:microvm-image:demo"


@pytest.fixture
def store(memory_account: MemoryAccount, tmp_path: Path) -> Store:
    write_stack(tmp_path / "sandbox.yaml")
    return Store(str(tmp_path / "infra-state.json"))


def load(*, local: bool | None = None, region: str | None = None) -> works.Work:
    (work,) = works.load(None, stack=None, local=local, region=region)
    return work


def test_the_region_is_given_configured_in_the_file_recorded_or_the_usual_one(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load().place.region == "us-east-1"
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert load().place.region == "us-west-2"
    write_stack(tmp_path / "sandbox.yaml", more="region: eu-west-1\n")
    assert load().place.region == "eu-west-1"
    monkeypatch.setenv("AGENT_SANDBOX_REGION", "eu-central-1")
    assert load().place.region == "eu-central-1"
    assert load(region="ap-south-1").place.region == "ap-south-1"


def test_a_stack_is_where_it_was_made(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    stack = StackState("demo", "dev", outputs={"image_arn": IMAGE})
    store.save(stack.with_resource("image", Resource("microvm-image", IMAGE)))
    work = load()
    assert (work.place.region, work.label) == ("eu-west-1", "demo/dev")  # by the ARN: 0.1.2 records no region
    assert work.recorded() == store.load("demo/dev")
    with pytest.raises(
        errors.UsageError, match="demo/dev is recorded in eu-west-1, and us-west-2 is asked for"
    ) as caught:
        load(region="us-west-2")
    assert "vmnest infra destroy --region eu-west-1" in str(caught.value.hint)


def test_the_target_is_given_or_configured(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load().place.kind == "aws"
    assert load(local=True).place.kind == "local"
    monkeypatch.setenv("AGENT_SANDBOX_TARGET", "local")
    assert load().place.kind == "local"
    assert load(local=False).place.kind == "aws"


def several(tmp_path: Path, count: int) -> list[works.Work]:
    write(tmp_path / "sandbox.yaml", "---\n".join(f"project: p{number}\n" for number in range(count)))
    return works.load(None, stack=None, local=False, region=None)


def test_results_stand_in_the_order_of_the_stacks(store: Store, tmp_path: Path) -> None:
    begun = threading.Barrier(3)

    def act(work: works.Work) -> dict[str, object]:
        begun.wait(30)  # all three at a time
        return work.describe()

    results = works.each_of(several(tmp_path, 3), act, deadline=Deadline(30))
    assert [each["project"] for each in results] == ["p0", "p1", "p2"]


def test_no_more_than_asked_for_are_at_it(store: Store, tmp_path: Path) -> None:
    guard = threading.Lock()
    most, now = 0, 0

    def act(work: works.Work) -> dict[str, object]:
        nonlocal most, now
        with guard:
            now += 1
            most = max(most, now)
        with guard:
            now -= 1
        return {}

    works.each_of(several(tmp_path, 6), act, deadline=Deadline(30), parallelism=1)
    assert most == 1


def test_one_that_fails_does_not_keep_the_others_back(store: Store, tmp_path: Path) -> None:
    done = []

    def act(work: works.Work) -> dict[str, object]:
        if work.stack.project == "p1":
            raise errors.UsageError("no", hint="Try.")
        done.append(work.label)
        return {}

    with pytest.raises(errors.InfrastructureError, match="1 of 3 stacks failed: p1/dev: no") as caught:
        works.each_of(several(tmp_path, 3), act, deadline=Deadline(30), parallelism=1)
    assert done == ["p0/dev", "p2/dev"]
    assert caught.value.hint == "Try."
    told = caught.value.details["stacks"]
    assert isinstance(told, list)
    assert [each["error"] and each["error"]["code"] for each in told] == [None, "usage", None]


def test_the_only_one_fails_as_itself(store: Store, tmp_path: Path) -> None:
    def act(work: works.Work) -> dict[str, object]:
        raise errors.UsageError("no")

    with pytest.raises(errors.UsageError, match=r"^no$"):
        works.each_of(several(tmp_path, 1), act, deadline=Deadline(30))


def test_a_fault_of_ours_is_not_taken_for_a_failure_of_a_stack(store: Store, tmp_path: Path) -> None:
    def act(work: works.Work) -> dict[str, object]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        works.each_of(several(tmp_path, 2), act, deadline=Deadline(30))


def test_those_for_which_no_time_is_left_are_told(store: Store, tmp_path: Path) -> None:
    deadline = Deadline(30)

    def act(work: works.Work) -> dict[str, object]:
        deadline.expire()
        return {}

    with pytest.raises(errors.InfrastructureError, match="1 of 2 stacks failed: p1/dev: no time was left to begin"):
        works.each_of(several(tmp_path, 2), act, deadline=deadline, parallelism=1)


def test_who_stops_it_has_the_others_stop_soon(store: Store, tmp_path: Path) -> None:
    deadline = Deadline(60)
    begun = threading.Barrier(3)
    ended = []

    def act(work: works.Work) -> dict[str, object]:
        begun.wait(30)
        while not deadline.expired:
            threading.Event().wait(0.01)
        if work.label == "p0/dev":  # later than all others
            wait_until(lambda: not threads("vmnest-infra-1"))
            threading.Event().wait(0.1)
        ended.append(work.label)
        return {}

    def interrupt() -> None:
        begun.wait(30)
        threading.Event().wait(0.1)  # until their end is waited for
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # wakes who waits there, as a key does

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            works.each_of(several(tmp_path, 2), act, deadline=deadline)
    finally:
        signal.signal(signal.SIGINT, before)
    interrupter.join()
    assert sorted(ended) == ["p0/dev", "p1/dev"]
    assert not threads("vmnest-infra-")


def threads(name: str) -> list[threading.Thread]:
    """Those that run and are called so, or begin with it."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]
