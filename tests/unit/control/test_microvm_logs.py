"""Logs of several streams are one, in the order of time, whether all is read, the tail, or what comes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

import pytest

from tests.support.log_plane import (
    DENIED,
    GROUP,
    MICROVM,
    STARTED,
    STARTED_MS,
    STREAM,
    THROTTLED,
    LogPlane,
    refusal,
)
from tests.support.logs import Open, Opened
from vmnest import errors
from vmnest.control import microvm_logs
from vmnest.control.log_marks import Mark
from vmnest.control.log_streams import Subject
from vmnest.control.microvm_logs import Pace

SUBJECT = Subject(
    MICROVM,
    "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo",
    "1.0",
    datetime.fromtimestamp(STARTED, timezone.utc),
)
PACE = Pace(1.0, 4.0, 10.0)


@pytest.fixture
def opened(open_log: Open) -> Opened:
    return open_log(SUBJECT)


def read(
    opened: Opened, mark: Mark | None = None, *, tail: int | None = None, matches: Callable[[str], bool] | None = None
) -> list[str]:
    opened.find()
    events = opened.log.read(mark or Mark(), tail=tail, matches=matches, deadline=opened.deadline())
    return [event.message for event in events]


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [0, 1, 3])
def test_three_pages_are_read_whatever_empty_ones_come_between(log_plane: LogPlane, opened: Opened, empty: int) -> None:
    log_plane.put(*(f"{number}" for number in range(25)), step=1)
    log_plane.most, log_plane.empty = 10, empty
    assert read(opened) == [f"{number}" for number in range(25)]


def test_an_event_has_its_time_its_stream_and_its_message(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a\x1b[31m\x00ü")
    opened.find()
    (event,) = opened.log.read(Mark(), deadline=opened.deadline())
    assert (event.time_ms, event.stream, event.message) == (STARTED_MS, STREAM, "a\x1b[31m\x00ü")
    assert event.time == STARTED_MS / 1000


def test_streams_are_merged_by_time(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a", "c", step=20)
    log_plane.put("b", at=STARTED_MS + 10, stream=f"{STREAM}/egress")
    log_plane.put("other", stream="2026/09/15[1.0]microvm-2")
    assert read(opened) == ["a", "b", "c"]


def test_the_service_is_not_asked_for_times_before_the_launch(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")
    read(opened)
    assert log_plane.calls[-1][1]["startTime"] == STARTED_MS - 3_600_000


def test_lines_of_others_are_passed_over_where_prefixes_are_not_known(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")
    log_plane.put("other", stream=f"{STREAM}9")
    assert read(opened) == ["a"]


def test_only_what_matches_is_read(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a1", "b1", "a2")
    assert read(opened, matches=lambda message: message.startswith("a")) == ["a1", "a2"]


def test_what_was_told_is_not_read_again(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a", "b")
    mark = Mark()
    assert read(opened, mark) == ["a", "b"]
    log_plane.put("late", at=STARTED_MS - 20)
    assert read(opened, mark) == ["late"]


def test_without_a_stream_nothing_is_read(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.groups[GROUP] = {}
    assert read(opened) == []


def test_a_group_that_is_deleted_meanwhile_has_nothing_more(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")
    opened.find()
    log_plane.groups.clear()
    assert list(opened.log.read(Mark(), deadline=opened.deadline())) == []
    assert opened.log.selection.streams == ()


def test_a_refusal_is_told(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")
    log_plane.failures = [None, DENIED]
    with pytest.raises(errors.AccessDeniedError, match="not authorized"):
        read(opened)


def test_throttling_is_waited_out(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")
    log_plane.failures = [THROTTLED, None, THROTTLED, THROTTLED]
    assert read(opened) == ["a"]
    assert len(opened.clock.sleeps) == 3


def test_the_same_token_for_ever_is_an_error(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")
    log_plane.is_round = True
    with pytest.raises(errors.AnswerInvalidError, match="same next page"):
        read(opened)


@pytest.mark.parametrize("body", [{"events": [{"timestamp": 5}]}, {"events": []}, {}])
def test_events_that_lack_something_are_nobodys(log_plane: LogPlane, opened: Opened, body: dict[str, object]) -> None:
    from tests.support.log_plane import _answer

    log_plane.put("a")
    log_plane.failures = [None, _answer(**body)]
    assert read(opened) == []


# -- the tail ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [0, 1, 3, 25, 40])
@pytest.mark.parametrize("most", [2, 10_000])
def test_the_last_events_are_read(log_plane: LogPlane, opened: Opened, tail: int, most: int) -> None:
    lines = [f"{number}" for number in range(25)]
    log_plane.put(*lines, step=1)
    log_plane.most, log_plane.empty = most, 1
    assert read(opened, tail=tail) == lines[max(0, 25 - tail) :]


def test_for_the_tail_not_all_pages_are_read(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put(*("x" for _ in range(1000)), step=1)
    log_plane.most = 10
    assert len(read(opened, tail=5)) == 5
    assert log_plane.names() == ["DescribeLogStreams", "GetLogEvents", "FilterLogEvents"]
    assert log_plane.calls[1][1]["limit"] == 5


def test_the_tail_is_that_of_all_streams_together(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a", "c", "e", step=20)
    log_plane.put("b", "d", at=STARTED_MS + 10, step=20, stream=f"{STREAM}/egress")
    assert read(opened, tail=3) == ["c", "d", "e"]


def test_of_a_burst_at_one_moment_the_tail_is_the_end(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put(*(f"{number}" for number in range(50)))
    assert read(opened, tail=2) == ["48", "49"]


def test_the_tail_of_what_matches_is_looked_for_further_back(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("yes 1", "yes 2", *("no" for _ in range(30)), step=1)
    log_plane.most = 10
    assert read(opened, tail=1, matches=lambda message: message.startswith("yes")) == ["yes 2"]
    assert log_plane.calls[-1][1]["startTime"] == STARTED_MS + 1


def test_behind_the_tail_only_what_is_newer_is_read(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a", "b", "c", step=1)
    mark = Mark()
    assert read(opened, mark, tail=1) == ["c"]
    log_plane.put("d", at=STARTED_MS + 9)
    assert read(opened, mark) == ["d"]


def test_what_comes_late_is_before_a_tail_that_was_all_there_is(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")
    mark = Mark()
    assert read(opened, mark, tail=2) == ["a"]
    log_plane.put("late", at=STARTED_MS - 5)
    assert read(opened, mark) == ["late"]


def test_a_tail_too_large_to_be_held_is_shorter(
    log_plane: LogPlane, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microvm_logs, "MOST_TAIL_BYTES", 100)
    log_plane.put(*("x" * 40 for _ in range(9)), "y" * 400, step=1)
    assert read(opened, tail=5) == ["y" * 400]


def test_a_stream_that_is_deleted_before_its_tail_is_read_has_none(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")
    log_plane.put("b", stream=f"{STREAM}/egress")
    opened.find()
    del log_plane.groups[GROUP][f"{STREAM}/egress"]
    assert [event.message for event in opened.log.read(Mark(), tail=5, deadline=opened.deadline())] == ["a"]


def test_pages_that_go_round_backwards_are_an_error(log_plane: LogPlane, opened: Opened) -> None:
    from tests.support.log_plane import _answer

    log_plane.put("a")
    pages = [_answer(events=[], nextBackwardToken=token) for token in "abab"]
    log_plane.failures = [None, *pages]
    with pytest.raises(errors.AnswerInvalidError, match="circle"):
        read(opened, tail=1)


# -- following ---------------------------------------------------------------------------------------------------------


class Life:
    """The MicroVM ends when it was asked for so often."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    def __call__(self) -> bool:
        self._looks -= 1
        return self._looks < 0


def follow(opened: Opened, *, looks: int, mark: Mark | None = None, **how: object) -> list[str]:
    following = opened.log.follow(mark or Mark(), has_ended=Life(looks), pace=PACE, **how)  # type: ignore[arg-type]
    return [event.message for event in following]


def test_what_is_logged_is_told_as_it_comes_until_the_end(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")

    def log_more(name: str, number: int) -> None:
        if name == "FilterLogEvents" and number < 5:
            log_plane.put(f"{number}", at=STARTED_MS + number)

    log_plane.on_call = log_more
    assert follow(opened, looks=3) == ["a", "0", "1", "2", "3", "4"]


def test_events_that_come_late_are_told_once(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("first", at=STARTED_MS + 60_000)
    late = {1: "late", 2: "later"}

    def log_more(name: str, number: int) -> None:
        if name == "FilterLogEvents" and number in late:
            log_plane.put(late[number], at=STARTED_MS + number)

    log_plane.on_call = log_more
    log_plane.most = 1
    assert follow(opened, looks=9) == ["first", "late", "later"]


def test_a_log_that_is_not_there_yet_is_waited_for(log_plane: LogPlane, opened: Opened) -> None:
    def log_more(name: str, number: int) -> None:
        if name == "DescribeLogStreams" and number == 4:
            log_plane.put("a")

    log_plane.on_call = log_more
    assert follow(opened, looks=9) == ["a"]


def test_the_last_lines_of_one_that_has_ended_are_waited_for(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")

    def log_more(name: str, number: int) -> None:
        if name == "FilterLogEvents" and number == 3:
            log_plane.put("last words")

    log_plane.on_call = log_more
    assert follow(opened, looks=0) == ["a", "last words"]
    assert sum(opened.clock.sleeps) >= PACE.settle_seconds


def test_a_stream_with_an_odd_name_is_found_at_the_end(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a", stream=f"odd/{MICROVM}")
    assert follow(opened, looks=3) == ["a"]
    assert log_plane.names().count("FilterLogEvents") < 8


def test_what_was_told_long_ago_is_not_read_again(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a", "b", step=7_200_000)
    assert follow(opened, looks=3) == ["a", "b"]
    assert log_plane.calls[-1][1]["startTime"] == STARTED_MS + 7_200_000 - 15 * 60_000


def test_without_anything_to_settle_the_end_is_at_once(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")
    following = opened.log.follow(Mark(), has_ended=Life(0), pace=PACE._replace(settle_seconds=0.0))
    assert [event.message for event in following] == ["a"]
    assert opened.clock.sleeps == []


def test_a_quiet_log_is_looked_at_less_often(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")
    follow(opened, looks=12)
    assert opened.clock.sleeps[0] <= PACE.first_seconds
    assert PACE.last_seconds / 2 <= opened.clock.sleeps[8] <= PACE.last_seconds


def test_one_that_speaks_again_is_looked_at_often_again(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")

    def log_more(name: str, number: int) -> None:
        if name == "FilterLogEvents" and number == 9:
            log_plane.put("b")

    log_plane.on_call = log_more
    assert follow(opened, looks=20) == ["a", "b"]
    assert opened.clock.sleeps[9] <= PACE.first_seconds < opened.clock.sleeps[8]


def test_what_does_not_match_is_not_told_and_yet_counts_as_news(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")

    def log_more(name: str, number: int) -> None:
        if name == "FilterLogEvents" and number < 20:
            log_plane.put(f"b{number}", at=STARTED_MS + number)

    log_plane.on_call = log_more
    assert follow(opened, looks=0, matches=lambda message: message == "b19") == ["b19"]


def test_a_service_that_fails_for_a_while_is_borne_with(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")
    fault = refusal("ServiceUnavailableException", status=503)
    log_plane.failures = [None, None, *[THROTTLED] * 20, *[fault] * 10]
    heard: list[errors.VmnestError] = []

    def log_more(name: str, number: int) -> None:
        if number == 30:
            log_plane.put("b")

    log_plane.on_call = log_more
    assert follow(opened, looks=2, on_trouble=heard.append) == ["a", "b"]
    assert [type(error) for error in heard] == [errors.ThrottledError]


def test_each_row_of_failures_is_told_and_borne_with_anew(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")
    in_a_row = [*[THROTTLED] * 40, None]
    log_plane.failures = [None, None, *in_a_row * 8]
    heard: list[errors.VmnestError] = []
    assert follow(opened, looks=60, on_trouble=heard.append) == ["a"]
    assert len(heard) == 8
    assert sum(opened.clock.sleeps) > 2 * microvm_logs.PATIENCE_SECONDS


def test_a_service_that_fails_for_too_long_is_an_error(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")
    log_plane.failures = [None, None, *[THROTTLED] * 1000]
    with pytest.raises(errors.ThrottledError):
        follow(opened, looks=1000)
    assert microvm_logs.PATIENCE_SECONDS < sum(opened.clock.sleeps) < 3 * microvm_logs.PATIENCE_SECONDS


def test_a_refusal_ends_the_following(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")
    log_plane.failures = [None, None, DENIED]
    with pytest.raises(errors.AccessDeniedError):
        follow(opened, looks=1000)


def test_failures_of_looking_at_the_microvm_are_borne_with(log_plane: LogPlane, opened: Opened) -> None:
    log_plane.put("a")
    failures: list[errors.VmnestError] = [errors.ConnectError("no way")]

    def has_ended() -> bool:
        if failures:
            raise failures.pop()
        return True

    following = opened.log.follow(Mark(), has_ended=has_ended, pace=PACE)
    assert [event.message for event in following] == ["a"]
