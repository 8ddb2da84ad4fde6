"""Work that goes on between calls."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.support.mcp_tools import Tools
from vmnest import errors
from vmnest.mcp.calls import CancelledError
from vmnest.mcp.tools import attendance, longer
from vmnest.mcp.tools.longer import Work, Works

Do = Callable[[Work], dict[str, object]]


@pytest.fixture
def works() -> Works:
    return Works("build", again="Ask again.", lost="Look elsewhere.")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """What a work waits for; calls wait hardly at all."""
    monkeypatch.setattr(attendance, "MOST_SECONDS", 0.05)
    monkeypatch.setattr(longer, "LOOK_SECONDS", 0.01)
    return threading.Event()


def waiting_for(gate: threading.Event, began: threading.Event | None = None) -> Do:
    def do(work: Work) -> dict[str, object]:
        work.tell("half")
        work.notes.append("look")
        if began is not None:
            began.set()
        assert gate.wait(30)
        work.tell("whole")
        return {"image": "i"}

    return do


def attend(works: Works, identity: object, tools: Tools) -> dict[str, object]:
    while (data := works.attend(str(identity), call=tools.open()))["running"]:
        pass
    return data


def test_what_is_quick_is_answered_at_once(works: Works, tools: Tools) -> None:
    assert works.start(lambda work: {"a": 1}, call=tools.open()) == {"a": 1, "running": False, "notes": []}


def test_what_is_not_is_asked_for_again(works: Works, tools: Tools, gate: threading.Event) -> None:
    began = threading.Event()
    first = works.start(waiting_for(gate, began), call=tools.open())
    assert (first["running"], first["hint"]) == (True, "Ask again.")
    assert len(str(first["id"])) == 32
    assert began.wait(30)
    second = works.attend(str(first["id"]), call=tools.open(progress=True))
    assert (second["running"], second["progress"], second["notes"]) == (True, "half", ["look"])
    assert tools.notes[0]["params"]["message"] == "half"  # type: ignore[index]
    gate.set()
    assert attend(works, first["id"], tools) == {"image": "i", "running": False, "notes": ["look"]}
    assert attend(works, first["id"], tools)["image"] == "i"


def test_a_failure_is_that_of_every_call_that_asks(works: Works, tools: Tools, gate: threading.Event) -> None:
    def fail(work: Work) -> dict[str, object]:
        assert gate.wait(30)
        raise errors.ImageNotFoundError("no such base", hint="Look.")

    first = works.start(fail, call=tools.open())
    gate.set()
    for _ in range(2):
        with pytest.raises(errors.ImageNotFoundError, match="no such base"):
            attend(works, first["id"], tools)


def test_an_id_that_is_none_is_told_so(works: Works, tools: Tools) -> None:
    with pytest.raises(errors.NotFoundError, match="no build x") as caught:
        works.attend("x", call=tools.open())
    assert caught.value.hint == "Look elsewhere."


def test_what_nobody_knows_the_id_of_stops(
    works: Works, tools: Tools, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, began = tools.open(), threading.Event()
    seen: list[BaseException] = []
    stopped = threading.Event()

    def do(work: Work) -> dict[str, object]:
        began.set()
        assert gate.wait(30)
        try:
            work.tell("more")
        except errors.VmnestError as error:
            seen.append(error)
            raise
        finally:
            stopped.set()
        return {}

    def cancel() -> None:
        assert began.wait(30)
        thread = call.cancel()
        assert thread is not None
        thread.join(30)
        gate.set()

    monkeypatch.setattr(attendance, "MOST_SECONDS", 30)
    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(CancelledError):
        works.start(do, call=call)
    canceller.join(30)
    assert stopped.wait(30)
    assert len(seen) == 1


def test_whoever_only_asks_ends_nothing(works: Works, tools: Tools, gate: threading.Event) -> None:
    first = works.start(waiting_for(gate), call=tools.open())
    call = tools.open()
    call.cancel()
    with pytest.raises(CancelledError):
        works.attend(str(first["id"]), call=call)
    gate.set()
    assert attend(works, first["id"], tools)["image"] == "i"


def test_there_are_not_too_many(
    works: Works, tools: Tools, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(longer, "MOST_RUNNING", 2)
    monkeypatch.setattr(longer, "MOST_KEPT", 3)
    started = [works.start(waiting_for(gate), call=tools.open())["id"] for _ in range(2)]
    with pytest.raises(errors.UsageError, match="2 builds are running") as caught:
        works.start(waiting_for(gate), call=tools.open())
    assert str(started[0]) in str(caught.value.hint)
    gate.set()
    for each in started:
        attend(works, each, tools)
    for _ in range(2):
        works.start(lambda work: {}, call=tools.open())
    with pytest.raises(errors.NotFoundError):
        works.attend(str(started[0]), call=tools.open())
    assert attend(works, started[1], tools)["image"] == "i"
