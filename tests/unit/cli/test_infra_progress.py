"""What is told while stacks are worked on."""

from __future__ import annotations

import re
import threading

import pytest

from tests.support.clock import FakeClock
from tests.support.screens import on_terminal, read_until
from vmnest.cli import infra_progress, terminal
from vmnest.cli.infra_progress import Board
from vmnest.infra.plan import Plan
from vmnest.infra.steps import Event, Step

A = "a/dev"
STEPS = (
    Step("role", "iam-role", "create", "exec", "there is none"),
    Step("bucket", "s3-bucket", "reuse", "theirs", "it is named"),
    Step("image", "microvm-image", "update", "arn:i", "the guest has changed"),
)
PLAN = Plan(A, STEPS, ("a note",))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """A clock that stands still, and a board that does not draw by itself meanwhile."""
    monkeypatch.setattr(infra_progress, "PERIOD_SECONDS", 3600.0)
    return FakeClock()


def event(phase: str, text: str = "", *, resource: str = "image", label: str = A) -> Event:
    return Event(label, resource, phase, text)


def make(clock: FakeClock, *, is_terminal: bool = False, shown: bool = True) -> Board:
    return Board(shown=shown, is_terminal=is_terminal, clock=clock.monotonic)


def test_each_thing_that_is_done_has_a_line_with_its_time(clock: FakeClock, capfd: pytest.CaptureFixture[str]) -> None:
    with make(clock) as board:
        board.on_begin(A)
        board.on_plan(A, PLAN)
        board.on_event(A, event("start", "there is none", resource="role"))
        board.on_event(A, event("done", resource="role"))
        board.on_event(A, event("start", "the guest has changed"))
        clock.advance(65)
        board.on_event(A, event("note", "careful"))
        board.on_event(A, event("done"))
        board.on_end(A, None)
    assert capfd.readouterr().err.splitlines() == [
        "a note",
        "1 to create, 1 to update, 1 reused",
        "role: made exec",
        "image: careful",
        "image: changed arn:i (1 min 5 s)",
    ]


def test_what_is_made_is_told_from_what_it_replaces(clock: FakeClock, capfd: pytest.CaptureFixture[str]) -> None:
    new = Step("role", "iam-role", "create", "new", "there is none")
    old = Step("role", "iam-role", "delete", "old", "has been replaced")
    with make(clock) as board:
        board.on_begin(A)
        board.on_plan(A, Plan(A, (new, old)))
        for step in (new, old):
            board.on_event(A, Event(A, "role", "start", step.reason, step))
            board.on_event(A, Event(A, "role", "done", "", step))
        board.on_end(A, None)
    assert capfd.readouterr().err.splitlines() == [
        "1 to create, 1 to remove",
        "role: made new",
        "role: removed old",
    ]


def test_what_goes_on_is_told_when_it_begins_to_and_then_now_and_again(
    clock: FakeClock, capfd: pytest.CaptureFixture[str]
) -> None:
    with make(clock) as board:
        board.on_begin(A)
        board.on_event(A, event("start", "begins"))
        for second in range(12):
            board.on_event(A, event("progress", f"state {second}"))
            clock.advance(1)
        board.on_event(A, event("done", "is ready"))
    assert capfd.readouterr().err.splitlines() == [
        "image: state 0",
        "image: state 5 ... 5 s",
        "image: state 10 ... 10 s",
        "image: is ready (12 s)",
    ]


def test_where_lines_stay_there_is_one_for_what_takes_its_time_and_one_a_minute(
    clock: FakeClock, capfd: pytest.CaptureFixture[str]
) -> None:
    with make(clock) as board:
        board.on_begin(A)
        board.on_plan(A, PLAN)
        board.on_event(A, event("start", "the guest has changed"))
        for _ in range(125):
            clock.advance(1)
            board._remind()
        board.on_event(A, event("done"))
    assert capfd.readouterr().err.splitlines()[2:] == [
        "image: changing arn:i: the guest has changed ... 2 s",
        "image: changing arn:i: the guest has changed ... 1 min 2 s",
        "image: changing arn:i: the guest has changed ... 2 min 2 s",
        "image: changed arn:i (2 min 5 s)",
    ]


def test_nobody_need_call_for_the_lines_that_stay(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(infra_progress, "PERIOD_SECONDS", 0.01)
    told = threading.Event()
    monkeypatch.setattr(terminal, "tell", lambda text: told.set())
    with make(clock) as board:
        board.on_event(A, event("start", "begins"))
        clock.advance(3)
        assert told.wait(30)


def test_a_failure_is_named_and_left_to_the_error(clock: FakeClock, capfd: pytest.CaptureFixture[str]) -> None:
    with make(clock) as board:
        board.on_begin(A)
        board.on_event(A, event("start", "begins"))
        board.on_event(A, event("failed", "because"))
        board.on_end(A, ValueError("because"))
    assert capfd.readouterr().err.splitlines() == ["image: failed"]


def test_several_stacks_are_told_apart(clock: FakeClock, capfd: pytest.CaptureFixture[str]) -> None:
    with make(clock) as board:
        for label in (A, "b/dev"):
            board.on_begin(label)
        board.on_event(A, event("done", "ready", resource="security_group"))
        board.on_end("b/dev", ValueError("because"))
        board.on_end(A, KeyboardInterrupt())
    assert capfd.readouterr().err.splitlines() == [
        "[a/dev] security group: ready",
        "[b/dev] failed: because",
        "[a/dev] stopped",
    ]


def test_nothing_is_told_to_nobody(clock: FakeClock, capfd: pytest.CaptureFixture[str]) -> None:
    with make(clock, shown=False) as board:
        board.on_begin(A)
        board.on_plan(A, PLAN)
        board.on_event(A, event("start", "begins"))
        board.on_event(A, event("done"))
    assert capfd.readouterr() == ("", "")


def test_nothing_that_is_told_steers_a_terminal(clock: FakeClock, capfd: pytest.CaptureFixture[str]) -> None:
    with make(clock) as board:
        board.on_event(A, event("note", "a\x1b[31mb\nc"))
    assert capfd.readouterr().err == "image: a\\x1b[31mb\\nc\n"


def test_on_a_terminal_what_is_under_way_is_drawn_and_wiped(clock: FakeClock) -> None:
    with on_terminal(terminal.STDERR) as master, make(clock, is_terminal=True) as board:
        board.on_begin(A)
        board.on_event(A, event("start", "begins"))
        assert read_until(master, b"\x1b[K").startswith(b"\rimage: begins ... 0 s\x1b[K")
        clock.advance(3)
        board.on_event(A, event("progress", "IN_PROGRESS"))
        read_until(master, b"\rimage: IN_PROGRESS ... 3 s\x1b[K")
        board.on_event(A, event("done", "ready"))
        read_until(master, b"\r\x1b[Kimage: ready (3 s)\n")


def test_the_line_is_drawn_anew_by_itself_and_is_gone_at_the_end(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infra_progress, "PERIOD_SECONDS", 0.01)
    with on_terminal(terminal.STDERR) as master:
        with make(clock, is_terminal=True) as board:
            board.on_event(A, event("start", "begins"))
            read_until(master, re.compile(rb"(\rimage: begins.*){3}"))
        read_until(master, re.compile(rb"\r\x1b\[K\Z"))
    assert not [thread for thread in threading.enumerate() if thread.name == "vmnest-board"]


def test_a_line_never_wraps(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "size", lambda: (30, 24))
    with on_terminal(terminal.STDERR) as master, make(clock, is_terminal=True) as board:
        board.on_event(A, event("start", "x" * 100))
        drawn = read_until(master, b"\x1b[K")
    assert drawn.startswith(b"\rimage: " + b"x" * 22 + b"\x1b[K")
    for text in ("\u4e16" * 40, "a\u0301" * 40):
        assert len(infra_progress._cut(text, 20)) in range(5, 41)


@pytest.mark.parametrize(("seconds", "text"), [(0.9, "0 s"), (59, "59 s"), (60, "1 min 0 s"), (3725, "62 min 5 s")])
def test_times(seconds: float, text: str) -> None:
    assert infra_progress.render_seconds(seconds) == text


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        ([], "nothing to do"),
        (["nothing"], "1 as it is"),
        (["nothing", "nothing", "create"], "1 to create, 2 as they are"),
        (["delete", "reuse", "update"], "1 to update, 1 to remove, 1 reused"),
    ],
)
def test_counts(actions: list[str], text: str) -> None:
    assert infra_progress.render_counts(actions) == text
