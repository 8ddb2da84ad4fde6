"""Fronts of commands. The command is one that the test plays; streams and signals are real ones."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from vmnest import errors
from vmnest.cli import attending, failure, signals, words

WAIT_SECONDS = 10.0


class Chunk(NamedTuple):
    stream: str
    data: bytes
    missing: int = 0


class Process:
    """What a Process looks like to a front."""

    id = "job-1"
    is_pty = False

    def __init__(self, *chunks: Chunk, status: int = 0, timed_out: bool = False, offset: int = 0) -> None:
        self.offset = offset
        self.state_watch: Callable[[str | None], object] | None = None
        self.exit_code: int | None = None
        self.signal_name: str | None = None
        self.timed_out = timed_out
        self.read = bytearray()
        self.is_input_closed = threading.Event()
        self.sent: list[object] = []
        self.came = threading.Event()
        self.is_held = threading.Event()
        self._status = status
        self._chunks = chunks

    def chunks(self) -> Iterator[Any]:
        yield from self._chunks
        self.exit_code = self._status

    def wait(self) -> int:
        assert self.exit_code is not None
        return self.exit_code

    def hold(self) -> None:
        self.is_held.set()

    def write(self, data: bytes, /) -> int:
        self.read += data
        return len(data)

    def close_stdin(self) -> None:
        self.is_input_closed.set()

    def resize(self, columns: int, rows: int, /) -> None:
        raise AssertionError("it has no terminal")

    def signal(self, sig: str | int) -> bool:
        self.sent.append(sig)
        self.came.set()
        return True

    def kill(self) -> bool:
        return self.signal("KILL")


class Interrupted(Process):
    """One during which something happens before it ends."""

    def __init__(self, action: Callable[[], object], **options: Any) -> None:
        super().__init__(**options)
        self._action = action

    def chunks(self) -> Iterator[Any]:
        self._action()
        yield from super().chunks()


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    signals.raise_once()
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def keyboard() -> Iterator[int]:
    """What is written to this descriptor is standard input."""
    reading, writing = os.pipe()
    kept = os.dup(0)
    os.dup2(reading, 0)
    os.close(reading)
    try:
        yield writing
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def options(**given: Any) -> words.Options:
    return words.Options(**{"quiet": False, "json": False, **given})


def front(kind: Any = attending.Front, **given: Any) -> Any:
    asked = given.pop("options", options())
    return kind(asked, **{"name": "box", "reads": False, **given})


def attend(front: Any, process: Process) -> Any:
    return front.attend(process)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


# -- output ------------------------------------------------------------------------------------------------------------


def test_output_goes_to_the_streams_as_it_is(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    process = Process(Chunk("stdout", b"\xff"), Chunk("stderr", b"e\r"), Chunk("stdout", b"\0"), status=3)
    result = attend(front(), process)
    assert capfdbinary.readouterr() == (b"\xff\0", b"e\r")
    assert (result.exit_code, result.stdout, result.stderr, result.truncated) == (3, b"", b"", False)


def test_what_is_not_kept_any_more_is_told_in_its_place(capfd: pytest.CaptureFixture[str]) -> None:
    attend(front(), Process(Chunk("stdout", b"a\n"), Chunk("gap", b"", 17)))
    assert "17 bytes of output are not kept any more" in capfd.readouterr().err


def test_while_nobody_takes_the_output_the_command_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attending, "HOLD_SECONDS", 0.01)
    process = Process(Chunk("stdout", b"a"))
    slow = front()
    slow.show = lambda: lambda piece: slow.waits.append(process.is_held.wait(WAIT_SECONDS))
    slow.waits = []
    attend(slow, process)
    assert slow.waits == [True]


def test_for_one_object_output_is_kept_its_beginning_and_its_end(capfd: pytest.CaptureFixture[str]) -> None:
    process = Process(Chunk("stdout", b"0123456789"), Chunk("stderr", b"e"), status=1, timed_out=True)
    result = attend(front(attending.CollectingFront, limit=4, options=options(json=True)), process)
    assert (result.stdout, result.stderr) == (b"0189", b"e")
    assert (result.exit_code, result.timed_out, result.truncated) == (1, True, True)
    assert capfd.readouterr() == ("", "")


def test_output_with_a_gap_is_not_whole() -> None:
    collecting = front(attending.CollectingFront, options=options(json=True))
    result = attend(collecting, Process(Chunk("gap", b"", 17), Chunk("stdout", b"a")))
    assert (result.truncated, result.either_missing, result.stderr_missing) == (True, 17, None)


def test_as_lines_output_comes_with_its_offsets_and_the_end_last(capfd: pytest.CaptureFixture[str]) -> None:
    lines = front(attending.LinesFront, options=options(json=True, stream=True))
    process = Process(Chunk("stdout", b"a"), Chunk("gap", b"", 5), Chunk("stderr", b"\xe6"), status=4, offset=10)
    result = attend(lines, process)
    lines.end({"exit_code": result.exit_code, "signal": None, "timed_out": False, "truncated": False})
    captured = capfd.readouterr()
    assert [json.loads(line) for line in captured.out.splitlines()] == [
        {"stream": "stdout", "data": "a", "encoding": "utf-8", "offset": 10},
        {"stream": "gap", "missing": 5, "offset": 11},
        {"stream": "stderr", "data": "5g==", "encoding": "base64", "offset": 16},
        {"exit_code": 4, "signal": None, "timed_out": False, "offset": 17},
    ]
    assert captured.err == ""


def test_output_that_comes_at_the_end_only_goes_the_same_ways(capfd: pytest.CaptureFixture[str]) -> None:
    shown = front()
    shown.on_stdout(b"o")
    shown.on_stderr(b"e")
    assert capfd.readouterr() == ("o", "e")
    lines = front(attending.LinesFront, options=options(json=True, stream=True))
    lines.on_stdout(b"ab")
    lines.on_stderr(b"e")
    assert [json.loads(line)["offset"] for line in capfd.readouterr().out.splitlines()] == [0, 2]
    kept = front(attending.CollectingFront, options=options(json=True))
    assert (kept.on_stdout, kept.on_stderr) == (None, None)


# -- input -------------------------------------------------------------------------------------------------------------


def test_input_is_handed_on_to_its_end(keyboard: int) -> None:
    process = Interrupted(lambda: process.is_input_closed.wait(WAIT_SECONDS))
    os.write(keyboard, b"typed\n")
    os.close(keyboard)
    attend(front(reads=True), process)
    assert process.read == b"typed\n"
    assert process.is_input_closed.is_set()


def test_input_is_left_alone_otherwise(keyboard: int) -> None:
    os.write(keyboard, b"typed\n")
    os.close(keyboard)
    process = Process()
    attend(front(), process)
    assert process.read == b""
    assert os.read(0, 100) == b"typed\n"


# -- Ctrl+C ------------------------------------------------------------------------------------------------------------


def test_ctrl_c_is_for_the_command_and_its_status_is_waited_for() -> None:
    def act() -> None:
        interrupt()
        assert process.came.wait(WAIT_SECONDS)

    process = Interrupted(act, status=42)
    attending_front = front()
    assert attend(attending_front, process).exit_code == 42
    assert process.sent == ["INT"]
    assert not attending_front.was_killed


def test_a_second_ctrl_c_kills_it() -> None:
    def act() -> None:
        interrupt()
        assert process.came.wait(WAIT_SECONDS)
        process.came.clear()
        interrupt()
        assert process.came.wait(WAIT_SECONDS)

    process = Interrupted(act, status=137)
    attending_front = front()
    attend(attending_front, process)
    assert process.sent == ["INT", "KILL"]
    assert attending_front.was_killed


def test_ctrl_c_ends_the_looking_on_and_not_a_job_of_others(capfd: pytest.CaptureFixture[str]) -> None:
    process = Interrupted(interrupt)
    with pytest.raises(failure.Ended):
        attend(front(leaves=True), process)
    assert process.sent == []
    assert capfd.readouterr().err == "vmnest: it goes on in the sandbox: vmnest attach box job-1\n"


def test_a_suspended_sandbox_is_left_with_the_command_in_it(capfd: pytest.CaptureFixture[str]) -> None:
    def act() -> None:
        assert process.state_watch is not None
        process.state_watch("SUSPENDED")
        interrupt()

    process = Interrupted(act)
    with pytest.raises(failure.Ended):
        attend(front(), process)
    assert process.sent == []
    said = capfd.readouterr().err.splitlines()
    assert "suspended" in said[0]
    assert said[1] == "vmnest: it goes on in the sandbox: vmnest attach box job-1"


def test_a_sandbox_that_ends_with_its_command_gives_no_advice(capfd: pytest.CaptureFixture[str]) -> None:
    def act() -> None:
        assert process.state_watch is not None
        process.state_watch("SUSPENDED")
        raise failure.Ended(signal.SIGTERM)

    process = Interrupted(act)
    with pytest.raises(failure.Ended):
        attend(front(name=None), process)
    assert "attach" not in capfd.readouterr().err


@pytest.mark.parametrize("leaves", [True, False])
def test_what_the_process_raises_is_raised_without_advice(leaves: bool, capfd: pytest.CaptureFixture[str]) -> None:
    def act() -> None:
        raise errors.MicroVMEndedError("gone")

    with pytest.raises(errors.MicroVMEndedError):
        attend(front(leaves=leaves), Interrupted(act))
    assert capfd.readouterr().err == ""


def test_a_command_of_which_nobody_knows_can_be_asked_for_later() -> None:
    def act() -> None:
        raise errors.AgentUnreachableError("no answer", hint="The command may still be running.")

    with pytest.raises(errors.AgentUnreachableError) as caught:
        attend(front(), Interrupted(act))
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("vmnest attach box job-1")
    with pytest.raises(errors.AgentUnreachableError) as caught:
        attend(front(name=None), Interrupted(act))
    assert caught.value.hint == "The command may still be running."


def test_a_reader_that_goes_is_no_news(capfd: pytest.CaptureFixture[str]) -> None:
    def act() -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        attend(front(leaves=True), Interrupted(act))
    assert capfd.readouterr().err == ""


def test_what_ends_us_leaves_a_job_into_which_we_typed(keyboard: int, capfd: pytest.CaptureFixture[str]) -> None:
    process = Interrupted(lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(failure.Ended):
        attend(front(leaves=True, reads=True), process)
    assert process.sent == []
    assert "vmnest attach -i box job-1" in capfd.readouterr().err
    os.close(keyboard)
