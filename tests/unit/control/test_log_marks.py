"""Events that come late, twice or without an id are told once each, in a memory that does not grow."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.control import log_marks
from vmnest.control.log_marks import LogEvent, Mark

NOW = 1_800_000_000_000


def event(number: int, *, time_ms: int | None = None, came_ms: int = 0) -> LogEvent:
    return LogEvent(NOW + number if time_ms is None else time_ms, "s", f"line {number}", str(number), came_ms)


def taken(mark: Mark, events: list[LogEvent]) -> list[str]:
    return [each.event_id for each in events if mark.take(each)]


def test_an_event_is_taken_once() -> None:
    mark = Mark()
    assert taken(mark, [event(1), event(2), event(1)]) == ["1", "2"]
    mark.rise()
    assert taken(mark, [event(1), event(2), event(3)]) == ["3"]
    assert mark.count == 3


def test_what_comes_late_is_taken() -> None:
    mark = Mark()
    taken(mark, [event(600_000)])
    mark.rise()
    assert taken(mark, [event(1), event(600_000)]) == ["1"]


def test_what_is_older_than_the_floor_counts_as_told() -> None:
    assert taken(Mark(NOW + 2), [event(1), event(2)]) == ["2"]


def test_events_without_an_id_are_told_apart_by_what_they_say() -> None:
    mark = Mark()
    lines = [LogEvent(NOW, "s", text) for text in ("a", "b", "a")]
    assert [mark.take(line) for line in lines] == [True, True, False]


def test_the_floor_follows_the_latest_event() -> None:
    mark = Mark()
    taken(mark, [event(0), event(log_marks.OVERLAP_MS + 5)])
    mark.rise()
    assert mark.floor_ms == NOW + 5


def test_a_clock_that_is_ahead_does_not_hide_what_is_right() -> None:
    mark = Mark()
    taken(mark, [event(1, time_ms=NOW + 7_200_000, came_ms=NOW)])
    mark.rise()
    assert taken(mark, [event(2)]) == ["2"]


def test_so_many_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_marks, "MOST_REMEMBERED", 10)
    mark = Mark()
    taken(mark, [event(number) for number in range(100)])
    mark.rise()
    assert mark.floor_ms == NOW + 90
    assert taken(mark, [event(number) for number in range(90, 101)]) == ["100"]


def test_long_messages_are_not_read_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_marks, "MOST_REMEMBERED_BYTES", 1000)
    mark = Mark()
    for number in range(10):
        mark.take(LogEvent(NOW + number, "s", "x" * 400, str(number)))
    mark.rise()
    assert mark.floor_ms == NOW + 8


def test_of_the_latest_moment_all_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_marks, "MOST_REMEMBERED", 10)
    mark = Mark()
    burst = [event(number, time_ms=NOW) for number in range(100)]
    assert len(taken(mark, burst[:60])) == 60
    mark.rise()
    assert taken(mark, burst) == [each.event_id for each in burst[60:]]


@given(
    steps=st.lists(st.integers(0, 3), max_size=300),
    cut=st.integers(0, 300),
    earlier=st.integers(0, 300),
)
def test_in_a_long_log_memory_stays_and_nothing_is_told_twice(steps: list[int], cut: int, earlier: int) -> None:
    """Read in the order of time, and once more from the floor on when reading broke off."""
    events = [event(number, time_ms=NOW + time) for number, time in enumerate(itertools.accumulate(steps))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_marks, "MOST_REMEMBERED", 10)
        patch.setattr(log_marks, "MOST_HELD", 30)
        first = Mark()
        told = taken(first, events[:earlier])
        mark = Mark.from_cursor(first.to_cursor())
        told += taken(mark, [each for each in events[:cut] if each.time_ms >= mark.floor_ms])
        told += taken(mark, [each for each in events if each.time_ms >= mark.floor_ms])
        mark.rise()
        assert taken(mark, events) == []
    assert told == [each.event_id for each in events]


def test_of_a_long_log_not_all_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_marks, "MOST_REMEMBERED", 100)
    monkeypatch.setattr(log_marks, "MOST_HELD", 1000)
    mark = Mark()
    for number in range(3 * log_marks.MOST_HELD):
        mark.take(event(number))
        assert len(mark._told) <= log_marks.MOST_HELD + 1
    assert mark.count == 3 * log_marks.MOST_HELD


def test_what_is_given_back_is_told_later() -> None:
    mark = Mark()
    taken(mark, [event(1), event(2)])
    mark.give_back(event(2))
    assert mark.count == 1
    assert taken(Mark.from_cursor(mark.to_cursor()), [event(1), event(2)]) == ["2"]


# -- cursors -----------------------------------------------------------------------------------------------------------


@given(
    times=st.lists(st.integers(0, 50), max_size=120),
    cuts=st.lists(st.integers(1, 40), max_size=12),
    order=st.randoms(use_true_random=False),
)
def test_by_cursors_no_event_is_told_twice(times: list[int], cuts: list[int], order) -> None:
    """Whatever comes in whichever order, and whenever a cursor stands for the mark."""
    events = [event(number, time_ms=NOW + time) for number, time in enumerate(times)]
    order.shuffle(events)
    told: list[str] = []
    cursor = Mark().to_cursor()
    ends = [*itertools.accumulate(cuts), len(events)]
    for end in ends:
        mark = Mark.from_cursor(cursor)
        there = sorted(events[:end])
        told += taken(mark, there)
        if end % 2:
            mark.rise()
        cursor = mark.to_cursor()
        assert len(cursor) < 300
    assert len(told) == len(set(told))


@given(times=st.lists(st.integers(0, 10**6), max_size=log_marks.MOST_IN_CURSOR, unique=True))
def test_what_comes_in_the_order_of_time_is_told_in_full(times: list[int]) -> None:
    events = [event(number, time_ms=NOW + time) for number, time in enumerate(sorted(times))]
    told: list[str] = []
    cursor = Mark().to_cursor()
    for end in range(len(events) + 1):
        mark = Mark.from_cursor(cursor)
        told += taken(mark, events[:end])
        mark.rise()
        cursor = mark.to_cursor()
    assert told == [each.event_id for each in events]


@given(
    times=st.lists(st.integers(0, 3), max_size=200),
    limits=st.lists(st.integers(1, 60), min_size=1),
)
def test_a_burst_is_told_in_parts_and_in_full(times: list[int], limits: list[int]) -> None:
    """However many events have one time: those that are there from the beginning are all told, in their order."""
    events = [event(number, time_ms=NOW + time) for number, time in enumerate(sorted(times))]
    told: list[str] = []
    cursor = Mark().to_cursor()
    for limit in itertools.cycle(limits):
        mark = Mark.from_cursor(cursor)
        before = len(told)
        for each in events:
            if mark.take(each):
                if len(told) - before == limit:
                    mark.give_back(each)
                    break
                told.append(each.event_id)
        else:
            mark.rise()
        cursor = mark.to_cursor()
        assert len(cursor) < 300
        if len(told) == before:
            break
    assert told == [each.event_id for each in events]


def burst_of(count: int) -> list[LogEvent]:
    return [event(number, time_ms=NOW) for number in range(count)]


def test_after_a_burst_what_comes_next_is_told() -> None:
    mark = Mark()
    taken(mark, burst_of(100))
    mark.rise()
    again = Mark.from_cursor(mark.to_cursor())
    assert taken(again, [*burst_of(100), event(200, time_ms=NOW), event(300)]) == ["200", "300"]
    assert taken(again, burst_of(100)) == []


def test_of_a_burst_that_is_deleted_meanwhile_nothing_is_told_again() -> None:
    mark = Mark()
    taken(mark, burst_of(100))
    again = Mark.from_cursor(mark.to_cursor())
    assert taken(again, burst_of(50)) == []
    again.rise()
    last = Mark.from_cursor(again.to_cursor())
    assert taken(last, [*burst_of(100), event(1)]) == ["1"]


def test_what_was_told_beyond_a_late_burst_is_kept_in_mind() -> None:
    mark = Mark()
    taken(mark, [event(900)])
    again = Mark.from_cursor(mark.to_cursor())
    burst = burst_of(60)
    assert len(taken(again, burst[:50])) == 50  # and no further
    last = Mark.from_cursor(again.to_cursor())
    assert taken(last, [*burst, event(900)]) == [each.event_id for each in burst[50:]]


def test_a_mark_that_begins_later_has_a_cursor_too() -> None:
    mark = Mark()
    mark.floor_ms = NOW
    assert Mark.from_cursor(mark.to_cursor()).floor_ms == NOW


def test_a_late_event_is_told_after_a_cursor() -> None:
    mark = Mark()
    taken(mark, [event(5_000), event(9_000)])
    mark.rise()
    again = Mark.from_cursor(mark.to_cursor())
    assert taken(again, [event(5_000), event(7_000), event(9_000)]) == ["7000"]


def remembered(mark: Mark) -> str:
    return mark.to_cursor().rpartition(".")[2]


def test_a_cursor_forgets_what_is_not_there_any_more() -> None:
    mark = Mark()
    taken(mark, [event(1), event(2)])
    again = Mark.from_cursor(mark.to_cursor())
    assert again.to_cursor() == mark.to_cursor()
    taken(again, [event(1)])
    assert len(remembered(again)) == len(remembered(mark))
    again.rise()
    assert len(remembered(again)) < len(remembered(mark))


def test_a_cursor_that_was_not_read_up_to_its_end_stays_short() -> None:
    mark = Mark()
    taken(mark, [event(number) for number in range(50)])
    again = Mark.from_cursor(mark.to_cursor())
    floor_ms = again.floor_ms
    assert taken(again, [event(number, time_ms=floor_ms) for number in range(100, 130)]) != []
    assert len(again.to_cursor()) < 300
    assert taken(Mark.from_cursor(again.to_cursor()), [event(number) for number in range(20, 50)]) == []


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "1",
        "1.0",
        "2.0.",
        "1.zz.",
        "1.0.abc",
        "1.fffffffffffffff.",
        "1.0." + "a" * 264,
        "1.0.a b c d e",
        "1.0~.",
        "1.0~abcdefgh",
        7,
    ],
)
def test_what_is_no_cursor_is_refused(cursor: object) -> None:
    with pytest.raises(errors.UsageError, match="no cursor"):
        Mark.from_cursor(cursor)  # type: ignore[arg-type]


@given(st.text(max_size=60))
def test_no_text_breaks_it(text: str) -> None:
    try:
        mark = Mark.from_cursor(text)
    except errors.UsageError:
        return
    assert Mark.from_cursor(mark.to_cursor()).floor_ms >= mark.floor_ms
