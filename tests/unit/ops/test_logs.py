"""Logs by name: all at once, answer by answer, and as they come."""

from __future__ import annotations

import threading
import time

import pytest

from tests.support.control import IMAGE_ARN
from tests.support.log_plane import GROUP, MICROVM, STARTED_MS, STREAM, THROTTLED, LogPlane
from vmnest import errors, registry
from vmnest.control import microvm_logs
from vmnest.control.microvm_logs import Pace
from vmnest.ops import logs


def messages(data: dict[str, object]) -> list[object]:
    events = data["events"]
    assert isinstance(events, list)
    return [event["message"] for event in events]


def read(**how: object) -> list[object]:
    return messages(logs.sandbox_logs(name="web", **how))  # type: ignore[arg-type]


# -- all at once -------------------------------------------------------------------------------------------------------


def test_the_answer_says_whose_log_it_is_and_where(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a\x1b", at=STARTED_MS)
    data = logs.sandbox_logs(name="web")
    cursor = data.pop("cursor")
    assert isinstance(cursor, str)
    assert data == {
        "name": "web",
        "microvm_id": MICROVM,
        "state": "RUNNING",
        "log_group": GROUP,
        "streams": [STREAM],
        "note": None,
        "events": [{"time": "2026-09-15T09:19:02.026+00:00", "stream": STREAM, "message": "a\x1b"}],
        "more": False,
    }


def test_nothing_is_woken_or_asked_of_the_sandbox(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a")
    log_plane.launch(state="SUSPENDED")
    before = logged.require("web")
    assert read() == ["a"]
    assert log_plane.looks == 1
    assert logged.require("web") == before


def test_what_is_older_than_wanted_is_left_out(log_plane: LogPlane, logged: registry.Registry) -> None:
    now = int(time.time() * 1000)
    log_plane.put("old", at=now - 3_600_000)
    log_plane.put("new", at=now)
    assert read(since=600) == ["new"]
    assert read(since=7200) == ["old", "new"]


def test_tail_and_pattern_go_together(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a1", "b", "a2", "a3", "c", step=1)
    assert read(grep="^a", tail=2) == ["a2", "a3"]
    assert read(grep="[bc]") == ["b", "c"]
    assert read(tail=0) == []


def test_a_group_that_somebody_names_has_to_be_there(log_plane: LogPlane, logged: registry.Registry) -> None:
    with pytest.raises(errors.ResourceNotFoundError, match="there is no log group /nope") as caught:
        logs.sandbox_logs(name="web", log_group="/nope")
    assert caught.value.exit_status == 3


def test_what_an_answer_does_not_hold_comes_with_the_next(
    log_plane: LogPlane, logged: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_EVENTS", 10)
    lines = [f"{number}" for number in range(35)]
    log_plane.put(*lines, step=1)
    log_plane.most = 4
    seen: list[object] = []
    cursor: object = None
    sizes = []
    while True:
        data = logs.sandbox_logs(name="web", cursor=cursor)  # type: ignore[arg-type]
        seen += messages(data)
        sizes.append(len(messages(data)))
        cursor = data["cursor"]
        if not data["more"]:
            break
    assert seen == lines
    assert sizes == [10, 10, 10, 5]


def test_large_messages_fill_an_answer_sooner(
    log_plane: LogPlane, logged: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 1000)
    log_plane.put(*("x" * 600 for _ in range(5)), step=1)
    first = logs.sandbox_logs(name="web")
    assert (len(messages(first)), first["more"]) == (1, True)


def test_what_has_one_time_may_come_in_several_answers(log_plane: LogPlane, logged: registry.Registry) -> None:
    lines = [f"{number:050}" for number in range(200)]
    log_plane.put(*lines)
    log_plane.most = 70
    seen: list[object] = []
    data: dict[str, object] = {"cursor": None, "more": True}
    while data["more"]:
        data = logs.await_logs(name="web", cursor=data["cursor"], most_bytes=5000)  # type: ignore[arg-type]
        assert 0 < len(messages(data)) < 50
        seen += messages(data)
    assert seen == lines
    log_plane.put("next")
    assert messages(logs.await_logs(name="web", cursor=data["cursor"])) == ["next"]  # type: ignore[arg-type]


def test_an_answer_holds_one_event_however_large(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("x" * 5000, "y")
    data = logs.await_logs(name="web", most_bytes=100)
    assert (messages(data), data["more"]) == (["x" * 5000], True)


def test_a_tail_is_one_answer(log_plane: LogPlane, logged: registry.Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_EVENTS", 3)
    log_plane.put(*map(str, range(9)), step=1)
    data = logs.sandbox_logs(name="web", tail=5)
    assert (messages(data), data["more"]) == (["4", "5", "6", "7", "8"], False)


def test_behind_a_cursor_not_all_is_read_again(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a", "b", step=7_200_000)
    assert read(cursor=logs.sandbox_logs(name="web")["cursor"]) == []
    assert log_plane.calls[-1][1]["startTime"] == STARTED_MS + 7_200_000 - 15 * 60_000


def test_by_its_cursor_an_answer_is_never_told_again(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a", "b")
    first = logs.sandbox_logs(name="web", tail=1)
    assert messages(first) == ["b"]
    assert read(cursor=first["cursor"]) == []
    log_plane.put("late", at=STARTED_MS)
    log_plane.put("c", at=STARTED_MS + 1000)
    second = logs.sandbox_logs(name="web", cursor=first["cursor"])  # type: ignore[arg-type]
    assert messages(second) == ["late", "c"]
    log_plane.put("later", at=STARTED_MS + 500)
    assert read(cursor=second["cursor"]) == ["later"]


def test_a_cursor_counts_what_did_not_match(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a", "b")
    first = logs.sandbox_logs(name="web", grep="a")
    assert read(cursor=first["cursor"], grep="b") == []


# -- answer by answer --------------------------------------------------------------------------------------------------


def test_what_is_there_is_not_waited_for(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a")
    data = logs.await_logs(name="web", wait=600)
    assert (messages(data), data["more"], data["complete"]) == (["a"], False, False)


def test_what_is_not_there_yet_is_waited_for(
    log_plane: LogPlane, logged: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microvm_logs, "AWS_PACE", Pace(0.05, 0.1, 0.1))
    log_plane.put("a")
    cursor = logs.await_logs(name="web")["cursor"]

    def log_more(name: str, number: int) -> None:
        if name == "FilterLogEvents" and number == 3:
            log_plane.put("b")

    log_plane.on_call = log_more
    data = logs.await_logs(name="web", cursor=cursor, wait=600)  # type: ignore[arg-type]
    assert messages(data) == ["b"]


def test_a_wait_is_over_in_time(log_plane: LogPlane, logged: registry.Registry) -> None:
    data = logs.await_logs(name="web", wait=0)
    assert (data["events"], data["complete"], data["more"]) == ([], False, False)
    assert f"there is no log group {GROUP}" in str(data["note"])
    log_plane.put("a")
    assert messages(logs.await_logs(name="web", cursor=data["cursor"])) == ["a"]  # type: ignore[arg-type]


def test_one_that_has_ended_is_complete_when_all_is_told(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a")
    log_plane.end()
    first = logs.await_logs(name="web", wait=600)
    assert (messages(first), first["complete"]) == (["a"], False)
    second = logs.await_logs(name="web", wait=600, cursor=first["cursor"])  # type: ignore[arg-type]
    assert (messages(second), second["complete"], second["state"]) == ([], True, "TERMINATED")


def test_the_last_words_of_one_that_ends_meanwhile_are_waited_for(
    log_plane: LogPlane, logged: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microvm_logs, "AWS_PACE", Pace(0.05, 0.1, 0.1))
    log_plane.put("a")
    cursor = logs.await_logs(name="web")["cursor"]

    def end(number: int) -> None:
        if number == 7:  # by then, a wait from the beginning on would be over
            log_plane.end(at=time.time())
            late = log_plane.names().count("FilterLogEvents") + 1
            log_plane.on_call = lambda name, number: (
                log_plane.put("last words") if (name, number) == ("FilterLogEvents", late) else None
            )

    log_plane.on_look = end
    data = logs.await_logs(name="web", cursor=cursor, wait=600)  # type: ignore[arg-type]
    assert messages(data) == ["last words"]


def test_all_that_comes_while_one_waits_is_told_whatever_the_tail(
    log_plane: LogPlane, logged: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microvm_logs, "AWS_PACE", Pace(0.05, 0.1, 0.1))

    def log_more(name: str, number: int) -> None:
        if name == "DescribeLogStreams" and number == 6:
            log_plane.put("a", "b", "c")

    log_plane.on_call = log_more
    assert messages(logs.await_logs(name="web", tail=1, wait=600)) == ["a", "b", "c"]


def test_of_one_that_has_ended_an_odd_stream_is_found(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a", stream=f"odd/{MICROVM}")
    log_plane.end()
    assert messages(logs.await_logs(name="web", wait=0)) == ["a"]


# -- as they come ------------------------------------------------------------------------------------------------------


def follow(remarks: list[str], **how: object) -> list[object]:
    events = logs.follow_logs(name="web", on_remark=remarks.append, **how)  # type: ignore[arg-type]
    return [event["message"] for event in events]


def test_a_log_is_followed_to_its_end(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a", "b", "c")
    log_plane.end()
    remarks: list[str] = []
    assert follow(remarks) == ["a", "b", "c"]
    assert remarks == ["web has ended"]  # and not that the service calls it a success


def test_why_a_sandbox_has_ended_is_told_if_nobody_asked_for_it(
    log_plane: LogPlane, logged: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microvm_logs, "AWS_PACE", Pace(0.05, 0.1, 0.1))
    log_plane.launch(state="TERMINATED", stateReason="MicroVM exited with code 3.")
    remarks: list[str] = []
    follow(remarks)
    assert remarks[1:] == ["web has ended: MicroVM exited with code 3."]


def test_a_log_is_followed_for_as_long_as_one_wants(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a")
    remarks: list[str] = []
    assert follow(remarks, timeout=0) == ["a"]
    assert follow(remarks, timeout=0.1) == ["a"]
    assert remarks == [f"the log of web goes on: {seconds} s are over" for seconds in ("0", "0.1")]


def test_a_log_is_followed_from_its_tail_or_cursor_on(
    log_plane: LogPlane, logged: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microvm_logs, "AWS_PACE", Pace(0.05, 0.1, 0.1))
    log_plane.put("a", "b", "c", step=1)
    cursor = logs.sandbox_logs(name="web")["cursor"]

    def end(number: int) -> None:
        log_plane.put("d", at=STARTED_MS + 10)
        log_plane.end()
        log_plane.on_look = lambda number: None

    for how in ({"tail": 1}, {"cursor": cursor}, {"grep": "[cd]"}):
        log_plane.launch()
        log_plane.groups[GROUP][STREAM][3:] = []
        log_plane.on_look = lambda number: setattr(log_plane, "on_look", end)
        expected = ["d"] if "cursor" in how else ["c", "d"]
        assert follow([], **how) == expected


def test_that_nothing_is_logged_yet_is_said(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.microvms.clear()
    remarks: list[str] = []
    assert follow(remarks) == []
    assert "nothing is logged of web yet: there is no log group" in remarks[0]
    assert remarks[1:] == ["web has ended"]


def test_a_service_that_throttles_is_remarked_upon(
    log_plane: LogPlane, logged: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmnest.aws.retries.MAX_ATTEMPTS_THROTTLED", 1)
    monkeypatch.setattr(microvm_logs, "AWS_PACE", Pace(0.05, 0.1, 0.1))
    log_plane.put("a")
    log_plane.end()
    log_plane.failures = [None, THROTTLED, THROTTLED]
    remarks: list[str] = []
    assert follow(remarks) == ["a"]
    assert "the log cannot be read at the moment: FilterLogEvents: Rate exceeded" in remarks[0]
    assert len(remarks) == 2


def test_two_follow_the_same_log(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put(*(f"{number}" for number in range(200)))
    log_plane.most = 7
    log_plane.end()
    seen: list[list[object]] = [[], []]
    threads = [threading.Thread(target=lambda mine=mine: mine.extend(follow([]))) for mine in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == [[f"{number}" for number in range(200)]] * 2


# -- of the build ------------------------------------------------------------------------------------------------------


@pytest.fixture
def version(log_plane: LogPlane) -> None:
    log_plane.version = {
        "baseImageArn": "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1",
        "buildRoleArn": "arn:aws:iam::111122223333:role/build",
        "codeArtifact": {"uri": "s3://bucket/key"},
        "imageArn": "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo",
        "imageVersion": "1.0",
        "state": "SUCCESSFUL",
        "status": "ACTIVE",
        "createdAt": STARTED_MS / 1000 - 300,
        "updatedAt": STARTED_MS / 1000,
    }


def test_the_log_of_the_build_is_that_of_the_sandboxs_version(
    log_plane: LogPlane, logged: registry.Registry, version: None
) -> None:
    log_plane.put("built", "well built", at=STARTED_MS - 9000, stream="2026/09/15[1.0]microvm-build")
    log_plane.put("another", at=STARTED_MS - 9000, stream="2026/09/15[2.0]microvm-build")
    log_plane.put("its own")
    data = logs.sandbox_logs(name="web", build=True)
    assert messages(data) == ["built", "well built"]
    assert (data["image_version"], data["state"], data["cursor"]) == ("1.0", "SUCCESSFUL", None)
    assert data["streams"] == ["2026/09/15[1.0]microvm-build"]
    assert read(build=True, tail=1, grep="built") == ["well built"]
    assert read(build=True, since=1) == []
    assert log_plane.calls[0][1]["logGroupName"] == GROUP


def test_what_other_sandboxes_print_is_no_part_of_the_build(
    log_plane: LogPlane, logged: registry.Registry, version: None
) -> None:
    log_plane.put("built", at=STARTED_MS - 9000, stream="2026/09/15[1.0]microvm-build")
    log_plane.launch("microvm-listed")
    log_plane.put("of one that is listed", stream="2026/09/15[1.0]microvm-listed")
    logged.put(registry.Record("other", microvm_id="microvm-recorded", image_arn=IMAGE_ARN, region="us-east-1"))
    log_plane.put("of one that is recorded", stream="2026/09/15[1.0]microvm-recorded")
    log_plane.put("reached", stream="2026/09/15[1.0]microvm-recorded/egress")
    assert read(build=True) == ["built"]


def test_a_build_that_left_no_log_says_so(log_plane: LogPlane, logged: registry.Registry, version: None) -> None:
    log_plane.put("its own")
    assert logs.sandbox_logs(name="web", build=True)["note"] == f"{GROUP} has nothing of version 1.0"


@pytest.mark.parametrize("how", [{"cursor": "1.0."}, {"log_group": "/mine"}])
def test_of_a_build_there_is_no_part_of_the_log(logged: registry.Registry, how: dict[str, object]) -> None:
    with pytest.raises(errors.UsageError):
        read(build=True, **how)


def test_the_image_of_one_that_nobody_knows_cannot_be_told(logged: registry.Registry) -> None:
    with pytest.raises(errors.MicroVMNotFoundError, match="its image cannot be told"):
        logs.sandbox_logs(name="microvm-0a0b0c0d", build=True)
