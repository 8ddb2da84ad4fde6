"""One process: its output, its input, its ends, and what it leaves behind."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from pathlib import Path

import pytest

from guest.agentd import frames, process, retained, running, wire
from guest.agentd.errors import RequestError
from tests.support.processes import Yard, read_output, read_stdout, wait_end, wait_size, wait_until

MIB = 1024 * 1024


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in {b"Z", b"X"}
    except (FileNotFoundError, ProcessLookupError):
        return False


# -- output and exit


def test_both_streams_and_the_exit_code_are_kept(yard: Yard) -> None:
    one = yard.shell("echo out; echo err >&2; exit 7")
    assert wait_end(one) == {"exit_code": 7, "signal": None, "timed_out": False, "offset": 8}
    assert read_output(one) == {frames.STDOUT: b"out\n", frames.STDERR: b"err\n"}


def test_death_by_signal_is_128_and_its_number(yard: Yard) -> None:
    end = wait_end(yard.shell("kill -SEGV $$"))
    assert (end["exit_code"], end["signal"]) == (139, "SIGSEGV")


def test_the_document_tells_what_is_known(yard: Yard) -> None:
    one = yard.start("sh", "-c", "echo x; read line", stdin=True, process_id="an-id")
    wait_size(one, 2)
    document = one.document()
    assert document.pop("started_at") == one._started_at
    assert document == {
        "id": "an-id",
        "command": ["sh", "-c", "echo x; read line"],
        "pid": one.pid,
        "state": "running",
        "exit_code": None,
        "signal": None,
        "timed_out": False,
        "ended_at": None,
        "pty": False,
        "stdin": "open",
        "retain": "block",
        "offset": 2,
        "oldest": 0,
    }
    one.send_signal(signal.SIGTERM)
    wait_end(one)
    document = one.document()
    assert (document["state"], document["exit_code"], document["signal"]) == ("ended", 143, "SIGTERM")
    assert document["stdin"] == "closed"
    ended_at = document["ended_at"]
    assert isinstance(ended_at, float)
    assert ended_at >= one._started_at


def test_a_long_command_line_is_told_in_part(yard: Yard) -> None:
    one = yard.start("sh", "-c", "true", *["word"] * 3000, "x" * 100_000)
    words = one.document()["command"]
    assert isinstance(words, list)
    assert words[:4] == ["sh", "-c", "true", "word"]
    assert words[-1].endswith("…")
    assert sum(map(len, words)) <= 4097
    wait_end(one)


def test_output_is_there_while_the_process_runs(yard: Yard) -> None:
    one = yard.shell("echo early; read line; echo late", stdin=True)
    wait_size(one, 6)
    assert read_stdout(one) == b"early\n"
    assert not one.has_ended
    assert one.input is not None
    one.input.end()
    wait_end(one)
    assert read_stdout(one) == b"early\nlate\n"


def test_a_process_that_closes_its_output_lives_on(yard: Yard, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    one = yard.shell(f"exec >&- 2>&-; read line < {tmp_path}/go; exit 5")
    wait_until(lambda: not one._pipes)
    assert not one.has_ended
    (tmp_path / "go").write_text("go\n")
    assert wait_end(one)["exit_code"] == 5


def test_a_child_that_holds_the_output_open_does_not_hold_up_the_end(yard: Yard) -> None:
    one = yard.shell("sleep 77.77 & echo $!; exit 3")
    assert wait_end(one)["exit_code"] == 3
    child = int(read_stdout(one))
    assert is_alive(child)  # its pipe is drained, not closed
    os.kill(child, signal.SIGKILL)


def test_a_flood_of_a_child_ends_with_the_process(yard: Yard) -> None:
    one = yard.shell("yes & echo $! >&2; exit 0")
    end = wait_end(one)
    offset = end["offset"]
    assert isinstance(offset, int)
    assert offset < 8 * MIB
    os.kill(int(read_output(one)[frames.STDERR]), signal.SIGKILL)


@pytest.mark.parametrize("_", range(3))
def test_the_last_byte_before_the_exit_is_kept(yard: Yard, _: int) -> None:
    one = yard.shell("head -c 1000003 /dev/zero; echo last >&2")
    wait_end(one)
    assert read_output(one) == {frames.STDOUT: bytes(1000003), frames.STDERR: b"last\n"}


def test_without_a_pidfd_the_end_is_noticed_too(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "open_exit_watch", lambda pid: None)
    one = yard.shell("echo hi; sleep 0.1; exit 4")
    assert wait_end(one)["exit_code"] == 4
    assert read_stdout(one) == b"hi\n"


def test_what_cannot_be_watched_is_killed_and_refused(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(yard.loop, "watch", fail)
        with pytest.raises(RequestError) as caught:
            yard.start("sleep", "77", stdin=True, process_id="x")
    assert (caught.value.status, caught.value.code) == (503, "overloaded")
    assert yard.known.list() == []
    assert wait_end(yard.shell("true", process_id="x"))["exit_code"] == 0  # the id was not used up


# -- readers that are slow, or gone


def test_a_writer_waits_for_a_slow_reader_and_loses_nothing(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained, "MAX_UNCONFIRMED_BYTES", MIB)
    one = yard.shell("seq 1000000 | head -c 5000000")
    cursor = one.attach(0)
    wait_until(lambda: one._is_paused)
    assert one.output.size < MIB + 2 * 65536
    data = b""
    decoder = frames.Decoder()
    while not one.has_ended or cursor.offset < one.output.size:
        data += b"".join(payload for _, payload in decoder.feed(one.read(cursor, 300_000)))
        one.attach(cursor.offset)
        one.detach()
    one.detach()
    expected = b"".join(b"%d\n" % number for number in range(1, 1000001))[:5000000]
    assert hashlib.sha256(data).digest() == hashlib.sha256(expected).digest()
    assert one.document()["retain"] == "block"


def test_without_a_reader_a_writer_goes_on_after_the_grace(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained, "MAX_UNCONFIRMED_BYTES", MIB)
    monkeypatch.setattr(wire, "READER_GRACE_SECONDS", 0.3)
    one = yard.shell("head -c 8000000 /dev/zero", output_limit=MIB)
    wait_until(lambda: one._is_paused)
    assert wait_end(one)["offset"] == 8_000_000
    assert (one.document()["retain"], one.output._kept) == ("drop", MIB)


def test_a_reader_that_comes_within_the_grace_is_waited_for(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained, "MAX_UNCONFIRMED_BYTES", MIB)
    monkeypatch.setattr(wire, "READER_GRACE_SECONDS", 0.2)
    one = yard.shell("head -c 3000000 /dev/zero")
    wait_until(lambda: one._is_paused)
    one.attach(0)
    done = threading.Event()
    yard.loop.post(lambda: yard.loop.call_later(0.3, done.set))
    assert done.wait(20)
    assert one._is_paused
    assert one.document()["retain"] == "block"
    one.detach()  # and when that one goes, the grace begins anew
    assert wait_end(one)["offset"] == 3_000_000


def test_a_reader_that_takes_over_from_another_is_waited_for(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained, "MAX_UNCONFIRMED_BYTES", MIB)
    monkeypatch.setattr(wire, "READER_GRACE_SECONDS", 0.1)
    one = yard.shell("head -c 3000000 /dev/zero")
    one.attach(0)
    wait_until(lambda: one._is_paused)
    hold, done = threading.Event(), threading.Event()
    yard.loop.post(lambda: hold.wait(20))
    one.detach()
    one.attach(0)  # before the loop has heard of the other one
    hold.set()
    yard.loop.post(lambda: yard.loop.call_later(0.3, done.set))
    assert done.wait(20)
    assert one.document()["retain"] == "block"
    one.detach()
    wait_end(one)


def test_output_that_cannot_be_kept_does_not_keep_the_end_from_being_told(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no memory left")

    monkeypatch.setattr(retained.Output, "append", fail)
    assert wait_end(yard.shell("echo hi; exit 6"))["exit_code"] == 6
    assert "no memory left" in capsys.readouterr().err


def test_a_paused_process_that_is_killed_ends_with_all_that_was_in_its_pipe(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained, "MAX_UNCONFIRMED_BYTES", MIB)
    one = yard.start("yes")
    wait_until(lambda: one._is_paused)
    size = one.output.size
    one.send_signal(signal.SIGKILL)
    assert wait_end(one)["signal"] == "SIGKILL"
    assert one.output.size > size


def test_a_reader_beyond_the_end_is_refused(yard: Yard) -> None:
    one = yard.shell("printf abc")
    wait_end(one)
    one.attach(3)
    one.detach()
    with pytest.raises(RequestError, match="offset"):
        one.attach(4)
    assert one.readers == 0


# -- the timeout


def test_the_timeout_ends_the_whole_group(yard: Yard) -> None:
    one = yard.shell("sleep 77.78 & echo $!; wait", timeout=0.2)
    assert wait_end(one) == {"exit_code": 143, "signal": "SIGTERM", "timed_out": True, "offset": one.output.size}
    child = int(read_stdout(one))
    wait_until(lambda: not is_alive(child))


def test_what_ignores_term_is_killed(yard: Yard) -> None:
    one = yard.shell("trap '' TERM; echo ready; while :; do sleep 0.05; done", timeout=0.3)
    end = wait_end(one)
    assert (end["exit_code"], end["signal"], end["timed_out"]) == (137, "SIGKILL", True)


def test_a_child_that_ignores_term_with_its_output_closed_is_killed_too(yard: Yard, tmp_path: Path) -> None:
    one = yard.shell(f"(trap '' TERM; echo $$ > {tmp_path}/up; exec sleep 77.79 >&- 2>&-) & wait", timeout=0.4)
    wait_end(one)
    wait_until(lambda: not any(b"77.79" in _command_line(pid) for pid in _pids()))


def _pids() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _command_line(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_the_time_of_a_suspension_does_not_count(yard: Yard) -> None:
    one = yard.shell("sleep 0.3; echo whole", timeout=30)
    yard.suspend(3600)
    assert wait_end(one)["exit_code"] == 0
    assert read_stdout(one) == b"whole\n"


def test_a_command_that_ends_in_time_leaves_no_timer(yard: Yard) -> None:
    for _ in range(100):
        wait_end(yard.shell("true", timeout=3600))
    done = threading.Event()
    yard.loop.post(done.set)
    assert done.wait(20)
    assert len(yard.loop._timers) < 100


# -- signals


def test_a_signal_reaches_the_whole_group(yard: Yard) -> None:
    loop = "while :; do sleep 0.02; done"
    one = yard.shell(f"trap 'echo got' INT; sh -c 'trap \"echo child; exit\" INT; echo up; {loop}'; echo after")
    wait_size(one, 3)
    assert one.send_signal(signal.SIGINT)
    assert wait_end(one)["exit_code"] == 0
    assert read_stdout(one).split() == [b"up", b"child", b"got", b"after"]
    assert not one.send_signal(signal.SIGINT)


def test_a_stopped_process_goes_on_when_it_is_told_to(yard: Yard) -> None:
    one = yard.shell("echo up; read line; echo done", stdin=True)
    wait_size(one, 3)
    one.send_signal(signal.SIGSTOP)
    wait_until(lambda: Path(f"/proc/{one.pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T")
    one.send_signal(signal.SIGCONT)
    assert one.input is not None
    one.input.end()
    assert wait_end(one)["exit_code"] == 0


# -- terminals


def test_a_terminal_is_all_three_streams(yard: Yard) -> None:
    one = yard.shell("tty; stty size; echo err >&2", pty=(100, 30))
    assert wait_end(one)["exit_code"] == 0
    lines = read_stdout(one).split(b"\r\n")
    assert lines[0].startswith(b"/dev/pts/")
    assert lines[1:] == [b"30 100", b"err", b""]
    assert one.document()["pty"] is True


def test_a_terminal_is_read_to_its_last_byte(yard: Yard) -> None:
    one = yard.start("seq", "100000", pty=(80, 24), retain=wire.RETAIN_DROP)
    wait_end(one)
    assert read_stdout(one) == b"".join(b"%d\r\n" % number for number in range(1, 100001))


def test_a_flood_on_a_terminal_is_not_far_ahead_of_whoever_sees_it(yard: Yard) -> None:
    one = yard.start("yes", pty=(80, 24))
    cursor = one.attach(0)
    wait_until(lambda: one._is_paused)
    assert one.output.size < retained.TERMINAL_BYTES + 65536
    one.send_signal(signal.SIGINT)
    assert wait_end(one)["signal"] == "SIGINT"
    while one.read(cursor, MIB):
        pass
    one.detach()


def test_a_size_that_changes_is_told_to_the_program(yard: Yard) -> None:
    one = yard.shell("trap 'stty size' WINCH; echo up; while :; do sleep 0.02; done", pty=(80, 24))
    wait_size(one, 4)
    one.resize((101, 31))
    wait_size(one, 4 + 8)
    assert read_stdout(one).endswith(b"31 101\r\n")
    one.send_signal(signal.SIGKILL)
    wait_end(one)
    one.resize((80, 24))  # too late to matter, and no error


def test_without_a_terminal_there_is_no_size(yard: Yard) -> None:
    one = yard.shell("true")
    with pytest.raises(RequestError) as caught:
        one.resize((80, 24))
    assert (caught.value.status, caught.value.code) == (409, "no_pty")


def test_a_signal_reaches_the_group_in_the_foreground_of_a_terminal(yard: Yard) -> None:
    one = yard.shell("set -m; sh -c 'trap \"echo fore; exit 9\" INT; echo up; sleep 77 & wait'; echo $?", pty=(80, 24))
    wait_size(one, 4)
    one.send_signal(signal.SIGINT)
    wait_until(lambda: b"fore" in read_stdout(one))
    one.send_signal(signal.SIGKILL)
    wait_end(one)


def test_a_program_may_let_go_of_its_terminal_and_take_it_again(yard: Yard, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    script = f"T=$(tty); echo one; exec <&- >&- 2>&-; read line < {tmp_path}/go; exec > $T; echo two"
    one = yard.shell(script, pty=(80, 24))
    wait_size(one, 5)
    wait_until(lambda: not any("/pts/" in _target(one.pid, name) for name in os.listdir(f"/proc/{one.pid}/fd")))
    (tmp_path / "go").write_text("go\n")
    wait_end(one)
    assert read_stdout(one) == b"one\r\ntwo\r\n"


def _target(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{name}")
    except FileNotFoundError:
        return ""


# -- many


def test_many_processes_at_once_all_end_with_their_own_output(yard: Yard) -> None:
    started = [yard.shell(f"echo {number}") for number in range(200)]
    for number, one in enumerate(started):
        wait_end(one)
        assert read_stdout(one) == b"%d\n" % number


def test_the_end_is_told_once_and_outside_of_the_lock(yard: Yard) -> None:
    told: list[bool] = []

    def on_end(ended: running.Process) -> None:
        told.append(ended.changed.acquire(blocking=False))
        ended.changed.release()

    one = yard.shell("read line", stdin=True)
    one._on_end = on_end
    assert one.input is not None
    one.input.end()
    wait_end(one)
    wait_until(lambda: told == [True])
