"""Whose log is read, and what of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.support.fake_control import FakeControl, FakePlace
from tests.support.log_plane import GROUP, MICROVM, STARTED, LogPlane
from vmnest import errors, registry
from vmnest import target as targets
from vmnest.control import microvm_logs
from vmnest.control.log_streams import Selection
from vmnest.control.microvms import RunSpec
from vmnest.deadline import Deadline
from vmnest.registry import Record
from vmnest.sandbox import logbook
from vmnest.sandbox.logbook import Logbook, Want


def open_book(logged: registry.Registry, record: Record | None = None) -> Logbook:
    deadline, place = Deadline(20), targets.resolve(local=False, region="us-east-1")
    return Logbook(
        MICROVM,
        record=record or logged.require("web"),
        place=place,
        control=place.control(deadline=deadline),
        deadline=deadline,
    )


@pytest.mark.parametrize("created_at", [None, 1e30, -1e30])
def test_a_record_without_a_time_is_found_by_the_id(
    log_plane: LogPlane, logged: registry.Registry, created_at: float | None
) -> None:
    log_plane.microvms.clear()
    log_plane.put("a", stream=MICROVM)
    book = open_book(logged, logged.require("web").replace(created_at=created_at))
    assert book.open().find(deadline=Deadline(20)).streams == (MICROVM,)


def test_one_that_runs_has_not_ended(log_plane: LogPlane, logged: registry.Registry) -> None:
    found = open_book(logged)
    assert not found.has_ended()
    log_plane.launch(state="TERMINATING")
    assert not found.has_ended()
    log_plane.end()
    assert found.has_ended()
    looks = log_plane.looks
    assert found.has_ended()
    assert log_plane.looks == looks  # it does not come back


def test_one_that_is_forgotten_meanwhile_has_ended_and_is_still_known(
    log_plane: LogPlane, logged: registry.Registry
) -> None:
    found = open_book(logged)
    log_plane.microvms.clear()
    assert found.has_ended()
    assert found.microvm is not None
    assert found.settle_seconds == 0


def test_the_last_lines_of_one_that_ended_just_now_are_waited_for(
    log_plane: LogPlane, logged: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_plane.end()
    assert open_book(logged).settle_seconds == 0
    monkeypatch.setattr(logbook.SYSTEM_CLOCK, "time", lambda: STARTED + 61, raising=False)
    assert open_book(logged).settle_seconds == open_book(logged).pace.settle_seconds > 0


def note(book: Logbook) -> str | None:
    log = book.open()
    log.find(deadline=Deadline(20))
    return book.note(log)


def test_why_there_is_nothing_is_told(log_plane: LogPlane, logged: registry.Registry) -> None:
    assert note(open_book(logged)) == f"there is no log group {GROUP}; {logbook._ROLE}"
    log_plane.groups[GROUP] = {}
    log_plane.launch(executionRoleArn="arn:aws:iam::111122223333:role/r")
    assert note(open_book(logged)) == f"{GROUP} has no stream of {MICROVM}"
    log_plane.put("a")
    assert note(open_book(logged)) is None


def test_on_this_machine_no_role_is_needed() -> None:
    control = FakeControl("http://127.0.0.1:1")
    control.microvms.run(RunSpec("arn:image", "token"), deadline=Deadline(20))
    book = Logbook(
        "microvm-1",
        record=None,
        place=FakePlace(control, kind="local"),  # type: ignore[arg-type]
        control=control,  # type: ignore[arg-type]
        deadline=Deadline(20),
    )
    assert book.microvm is not None
    log = SimpleNamespace(selection=Selection("/g", is_there=True))
    assert book.note(log) == "/g has no stream of microvm-1"  # type: ignore[arg-type]
    assert book.pace == microvm_logs.LOCAL_PACE


@pytest.mark.parametrize(
    "wish",
    [
        {"tail": -1},
        {"tail": True},
        {"tail": 50_001},
        {"tail": "5"},
        {"since": -1},
        {"since": "1h"},
        {"grep": "("},
        {"grep": "x{99999999999}"},
        {"cursor": "1"},
    ],
    ids=str,
)
def test_what_cannot_be_wanted_is_refused(wish: dict[str, object]) -> None:
    with pytest.raises(errors.UsageError):
        Want(**wish)  # type: ignore[arg-type]
