"""A build's log has all that is the build's, and nothing that sandboxes of the image have printed."""

import json
from collections.abc import Callable, Collection
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.control import IMAGE_ARN, Controls, vm
from tests.support.memory_account import MemoryAccount
from tests.support.peers import Answer, json_answer
from vmnest import errors
from vmnest.aws import credentials, service
from vmnest.control import logs
from vmnest.control.images import ImageVersion
from vmnest.control.microvms import MicroVMs
from vmnest.deadline import Deadline

AT = datetime(2026, 11, 30, 12, 0, 0, tzinfo=timezone.utc)
VERSION = ImageVersion(IMAGE_ARN, "2.0", "SUCCESSFUL", "ACTIVE", created_at=AT, updated_at=AT.replace(minute=5))


@pytest.fixture
def ask(controls: Controls):
    def ask(version: ImageVersion, *script: Answer, others: Callable[[], Collection[str]] = tuple):
        made = controls(*script)
        caller = service.Service(
            "logs",
            endpoint=made.peer.url,
            region="us-east-1",
            credentials=credentials.StaticSource(credentials.build("AKIDEXAMPLE", "secret")),
            transport=made.service._transport,
            clock=made.clock,
        )
        found = list(logs.build_log(caller, version, others=others, deadline=made.deadline()))
        return found, [json.loads(request.body) for request in made.peer.requests]

    return ask


def page(*messages: str, token: str | None = None) -> Answer:
    events = [{"timestamp": 1800000000000, "logStreamName": "s", "message": text} for text in messages]
    return json_answer(200, {"events": events, **({"nextToken": token} if token else {})})


def test_all_pages_of_the_time_of_the_build_are_read(ask):
    found, (first, second) = ask(VERSION, page("a", token="t"), page("b"))
    assert [line.message for line in found] == ["a", "b"]
    assert (found[0].time, found[0].stream) == (1_800_000_000.0, "s")
    assert first == {
        "logGroupName": "/aws/lambda-microvms/demo",
        "startTime": int((AT.timestamp() - 60) * 1000),
        "endTime": int((AT.timestamp() + 360) * 1000),
    }
    assert second["nextToken"] == "t"


def test_streams_of_other_versions_are_left_out(ask):
    streams = ["2026/09/15[1.0]microvm-1", "2026/09/15[2.0]microvm-2", "2026/09/15[0.0]microvm-3", "2.0/uuid"]
    events = [{"timestamp": 1800000000000, "logStreamName": name, "message": name} for name in streams]
    found, _ = ask(VERSION, json_answer(200, {"events": events}))
    assert [line.message for line in found] == streams[1:]


def events(*streams: str) -> Answer:
    return json_answer(
        200, {"events": [{"timestamp": 1800000000000, "logStreamName": each, "message": each} for each in streams]}
    )


def test_what_sandboxes_print_is_no_part_of_a_build(ask):
    own, sandbox, other = "2026/11/30[2.0]microvm-0b1c", "2026/11/30[2.0]microvm-0a1b", "mvm-0c1d"
    found, _ = ask(
        VERSION,
        events(own, sandbox, f"{own}/egress", f"{sandbox}/egress", other),
        others=lambda: {"microvm-0a1b", "mvm-0c1d"},
    )
    assert [line.message for line in found] == [own]


def test_whose_else_streams_are_is_asked_only_if_one_is_named_by_a_microvm(ask):
    asked: list[bool] = []

    def others() -> Collection[str]:
        asked.append(True)
        return ()

    ask(VERSION, events("2.0/uuid", "steps", "2026/11/30[1.0]microvm-0a1b"), others=others)
    assert not asked
    ask(VERSION, events("microvm-0a1b", "microvm-0a1b", "mvm-0a1b"), others=others)
    assert asked == [True]


def test_microvms_of_other_versions_or_after_the_build_are_sandboxes(controls: Controls):
    begun = {"in-time": AT.replace(minute=2), "at-its-end": AT.replace(minute=5), "later": AT + timedelta(days=1)}
    items = [vm(microvmId=name, imageVersion="2.0", startedAt=at.timestamp()) for name, at in begun.items()]
    items.append(vm(microvmId="of-another", imageVersion="1.0", startedAt=AT.replace(minute=2).timestamp()))

    def find(version: ImageVersion) -> Collection[str]:
        made = controls(json_answer(200, {"items": items}))
        return logs.sandboxes_of(MicroVMs(made.service), version, deadline=made.deadline())

    assert find(VERSION) == {"at-its-end", "later", "of-another"}
    assert find(VERSION._replace(state="IN_PROGRESS", updated_at=None)) == {"of-another"}


def test_that_microvms_may_not_be_listed_hides_no_log(controls: Controls):
    made = controls(json_answer(403, {"__type": "AccessDeniedException", "message": "User is not authorized"}))
    assert logs.sandboxes_of(MicroVMs(made.service), VERSION, deadline=made.deadline()) == set()


def test_a_build_that_goes_on_has_no_end(ask):
    _, (sent,) = ask(VERSION._replace(state="IN_PROGRESS", log_group="/mine"), page())
    assert "endTime" not in sent
    assert sent["logGroupName"] == "/mine"


def test_without_a_group_there_are_no_lines(ask):
    missing = json_answer(400, {"__type": "ResourceNotFoundException", "message": "no such group"})
    found, _ = ask(VERSION, missing)
    assert found == []


def test_no_right_to_read_is_told(ask):
    refused = json_answer(400, {"__type": "AccessDeniedException", "message": "User is not authorized"})
    with pytest.raises(errors.AccessDeniedError):
        ask(VERSION, refused)


# -- the tail ---------------------------------------------------------------------------------------------------------


def tail(memory: MemoryAccount, clock: FakeClock) -> tuple[str, ...]:
    service: Any = memory.service("logs")
    return logs.tail(service, "/g", image_version="2.0", since=10.5, deadline=Deadline(60, clock=clock), clock=clock)


def test_the_last_lines_are_read(fake_clock: FakeClock) -> None:
    memory = MemoryAccount()
    memory.log = [f"line {number}" for number in range(100)]
    assert tail(memory, fake_clock) == tuple(f"line {number}" for number in range(100 - logs.TAIL_LINES, 100))


def test_an_event_may_be_several_lines_and_none_steers_a_terminal(fake_clock: FakeClock) -> None:
    memory = MemoryAccount()
    memory.log = ["one\n\n two\x1b[31m\n", "x" * 5000]
    first, second, third = tail(memory, fake_clock)
    assert (first, second) == ("one", "two [31m")
    assert len(third) <= 300


def test_a_log_that_cannot_be_read_is_none(fake_clock: FakeClock) -> None:
    memory = MemoryAccount()
    assert tail(memory, fake_clock) == ()

    def deny(service: str, operation: str, is_done: bool) -> None:
        raise errors.AccessDeniedError("no", operation=operation, status=403)

    memory.on_call = deny
    assert tail(memory, fake_clock) == ()
