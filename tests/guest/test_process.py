"""One-shot commands: their output, their ends, and what they leave behind."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from guest.agentd import drain, process, programs, state, stopwatch
from guest.agentd.errors import PeerGoneError, RequestError


class Bench:
    """A runner and its parts."""

    def __init__(self) -> None:
        self.groups = state.Groups()
        self.drain = drain.Drain()
        self.suspended = 0.0  # seconds by which its clock has jumped
        self.readings = 0
        self.runner = process.Runner(
            groups=self.groups,
            drain=self.drain,
            start_watch=lambda: stopwatch.Stopwatch(self.monotonic),
        )

    def monotonic(self) -> float:
        self.readings += 1
        return time.monotonic() + self.suspended

    def suspend(self, seconds: float) -> None:
        """As a suspension and a resume: the clock is that much later, and the command's watch sees it."""
        self.suspended += seconds
        seen = self.readings
        deadline = time.monotonic() + 10
        while self.readings < seen + 2:
            assert time.monotonic() < deadline, "the watch is not read"
            time.sleep(0.01)

    def run(self, *argv: str, timeout: float | None = None, hangup: int | None = None) -> process.Outcome:
        command = programs.Command(
            [os.fsencode(word) for word in argv],
            cwd=b"/",
            environment=dict(os.environb),
            timeout=timeout,
        )
        return self.runner.run(command, hangup=hangup)

    def shell(self, script: str, *, timeout: float | None = None, hangup: int | None = None) -> process.Outcome:
        return self.run("sh", "-c", script, timeout=timeout, hangup=hangup)


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A runner that leaves neither descriptors nor children."""
    made = Bench()
    yield made
    begin = time.monotonic()
    made.groups.end_all(grace=5)
    assert time.monotonic() - begin < 2, "a group that has ended is still registered"
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def out(outcome: process.Outcome) -> bytes:
    return b"".join(outcome.stdout.pieces())


def err(outcome: process.Outcome) -> bytes:
    return b"".join(outcome.stderr.pieces())


def is_running(pid: int) -> bool:
    """Whether the process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline, f"{pid} still runs"
        time.sleep(0.01)


def wait_text(path: Path) -> str:
    """The content of a file once it ends with a newline."""
    deadline = time.monotonic() + 10
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.01)
    return path.read_text()


def test_output_streams_are_kept_apart(bench: Bench) -> None:
    with bench.shell("for i in 1 2 3; do echo out $i; echo err $i >&2; done; exit 3") as outcome:
        assert out(outcome) == b"out 1\nout 2\nout 3\n"
        assert err(outcome) == b"err 1\nerr 2\nerr 3\n"
        assert (outcome.exit_code, outcome.signal, outcome.timed_out) == (3, None, False)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGHUP])
def test_death_by_signal_is_128_and_its_name(bench: Bench, number: signal.Signals) -> None:
    with bench.shell(f"kill -{number.value} $$") as outcome:
        assert (outcome.exit_code, outcome.signal) == (128 + number, number.name)


def test_real_time_signals_have_names_too() -> None:
    assert process.name_signal(signal.SIGRTMIN) == "SIGRTMIN"
    assert process.name_signal(signal.SIGRTMIN + 3) == "SIGRTMIN+3"


def test_stdin_is_empty(bench: Bench) -> None:
    with bench.run("cat", timeout=20) as outcome:
        assert (outcome.exit_code, out(outcome)) == (0, b"")


def test_stdin_is_empty_even_if_the_agents_is_not(bench: Bench) -> None:
    reader, writer = os.pipe()
    saved = os.dup(0)
    os.dup2(reader, 0)
    try:
        with bench.run("cat", timeout=20) as outcome:
            assert (outcome.exit_code, out(outcome)) == (0, b"")
    finally:
        os.dup2(saved, 0)
        for descriptor in (reader, writer, saved):
            os.close(descriptor)


def test_a_command_leads_its_own_session(bench: Bench) -> None:
    with bench.run("cat", "/proc/self/stat") as outcome:
        pid, _, rest = out(outcome).decode().partition(" (")
        _, _, fields = rest.rpartition(") ")
        assert fields.split()[2:4] == [pid, pid]


def test_a_command_inherits_no_descriptor_and_no_blocked_signal(bench: Bench) -> None:
    with bench.shell("ls /proc/self/fd; grep -E 'Sig(Blk|Ign)' /proc/self/status") as outcome:
        lines = out(outcome).decode().split("\n")
        # 3 is the directory that ls itself reads.
        assert lines[:4] == ["0", "1", "2", "3"]
        # A C library may keep its own two signals (32, 33) ignored in what it spawns, this test's process among it.
        of_the_library = 0b11 << 31
        assert [int(line.split()[1], 16) & ~of_the_library for line in lines[4:6]] == [0, 0]


def test_more_output_than_a_pipe_and_memory_hold_arrives_whole(bench: Bench) -> None:
    with bench.shell("head -c 3000000 /dev/zero & head -c 2000001 /dev/zero >&2; wait") as outcome:
        assert out(outcome) == bytes(3_000_000)
        assert err(outcome) == bytes(2_000_001)


def test_a_command_that_writes_for_ever_is_cut_and_not_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guest.agentd.wire.MAX_OUTPUT_BYTES", 2_000_000)
    with bench.shell("yes | head -c 9000000; echo done >&2") as outcome:
        assert (outcome.exit_code, outcome.stdout.size, outcome.stdout.truncated) == (0, 2_000_000, True)
        assert (err(outcome), outcome.stderr.truncated) == (b"done\n", False)


def test_at_the_timeout_the_whole_group_ends_and_the_output_so_far_is_kept(bench: Bench, tmp_path: Path) -> None:
    begin = time.monotonic()
    with bench.shell(f"echo a; sleep 7.313 & echo $! > {tmp_path}/pid; wait", timeout=1) as outcome:
        assert 1 <= time.monotonic() - begin < 2
        assert outcome.timed_out
        assert out(outcome) == b"a\n"
        assert (outcome.exit_code, outcome.signal) == (143, "SIGTERM")
    wait_gone(int(wait_text(tmp_path / "pid")))


def test_at_the_timeout_every_member_of_the_group_gets_a_term(bench: Bench) -> None:
    with bench.shell("sh -c 'trap \"echo child; exit\" TERM; sleep 20 & wait' & wait", timeout=0.3) as outcome:
        assert out(outcome) == b"child\n"


def test_what_ignores_term_is_killed_after_a_short_grace(bench: Bench, tmp_path: Path) -> None:
    begin = time.monotonic()
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; sleep 7.314; sleep 7.315"
    with bench.shell(script, timeout=0.2) as outcome:
        assert time.monotonic() - begin < 1.2
        assert (outcome.exit_code, outcome.signal, outcome.timed_out) == (137, "SIGKILL", True)
    wait_gone(int(wait_text(tmp_path / "pid")))


def test_a_command_may_use_the_grace_to_say_goodbye(bench: Bench) -> None:
    with bench.shell("trap 'echo bye; exit 5' TERM; sleep 20 & wait", timeout=0.3) as outcome:
        assert (outcome.exit_code, outcome.signal, outcome.timed_out) == (5, None, True)
        assert out(outcome) == b"bye\n"


def test_a_member_that_ignores_term_with_its_output_closed_is_killed_too(bench: Bench, tmp_path: Path) -> None:
    script = f"(trap '' TERM; echo $$; exec sleep 20 >&- 2>&-) & echo $! > {tmp_path}/pid; wait"
    with bench.shell(script, timeout=0.3) as outcome:
        assert outcome.timed_out
    wait_gone(int(wait_text(tmp_path / "pid")))


def test_a_process_that_left_the_session_cannot_hold_up_the_timeout(bench: Bench, tmp_path: Path) -> None:
    begin = time.monotonic()
    script = f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 5'; sleep 20"
    with bench.shell(script, timeout=0.3) as outcome:
        assert outcome.timed_out
        assert time.monotonic() - begin < 1.3
    os.kill(int(wait_text(tmp_path / "pid")), signal.SIGKILL)


def test_a_background_child_does_not_hold_up_the_answer_and_can_go_on_writing(bench: Bench, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # More than a pipe holds, written by the shell itself: SIGPIPE or a full pipe would stop it.
    write = "i=0; while [ $i -lt 3000 ]; do printf %0100d $i; i=$((i + 1)); done"
    script = f"(read x < {gate}; {write}; echo still here > {tmp_path}/alive) & echo hi"
    begin = time.monotonic()
    with bench.shell(script) as outcome:
        assert time.monotonic() - begin < 2
        assert (outcome.exit_code, out(outcome)) == (0, b"hi\n")
    gate.write_text("go\n")
    assert wait_text(tmp_path / "alive") == "still here\n"


def test_what_is_written_within_the_short_drain_belongs_to_the_answer(bench: Bench) -> None:
    with bench.shell("(sleep 0.05; echo late) & echo early") as outcome:
        assert out(outcome) == b"early\nlate\n"


def test_a_command_that_closes_its_output_runs_on_to_its_end(bench: Bench) -> None:
    with bench.shell("exec >&- 2>&-; sleep 0.2; exit 4") as outcome:
        assert outcome.exit_code == 4


def test_a_timeout_beyond_all_clocks_is_none(bench: Bench) -> None:
    with bench.run("true", timeout=1e300) as outcome:
        assert not outcome.timed_out


def test_time_for_which_the_vm_was_suspended_does_not_count(bench: Bench, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")

    def suspend() -> None:
        wait_text(tmp_path / "begun")
        bench.suspend(3600)
        bench.suspend(3600)
        (tmp_path / "gate").write_text("go\n")

    platform = threading.Thread(target=suspend)
    platform.start()
    with bench.shell(f"echo > {tmp_path}/begun; read x < {tmp_path}/gate; echo $x", timeout=600) as outcome:
        assert (out(outcome), outcome.timed_out) == (b"go\n", False)
    platform.join()


def test_a_timeout_that_is_due_after_a_suspension_still_comes(bench: Bench, tmp_path: Path) -> None:
    def suspend() -> None:
        wait_text(tmp_path / "begun")
        bench.suspend(3600)

    platform = threading.Thread(target=suspend)
    platform.start()
    with bench.shell(f"echo > {tmp_path}/begun; sleep 60", timeout=1.5) as outcome:
        assert outcome.timed_out
    platform.join()


def test_when_the_client_goes_away_its_command_is_ended(bench: Bench, tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()

    def leave() -> None:
        wait_text(tmp_path / "pid")
        theirs.close()

    client = threading.Thread(target=leave)
    client.start()
    with ours, pytest.raises(PeerGoneError):
        bench.shell(f"sleep 20 & echo $! > {tmp_path}/pid; wait", hangup=ours.fileno())
    client.join()
    wait_gone(int((tmp_path / "pid").read_text()))


def test_data_from_the_client_is_no_hangup(bench: Bench) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"GET /next HTTP/1.1\r\n\r\n")
        with bench.shell("sleep 0.1; echo done", hangup=ours.fileno()) as outcome:
            assert out(outcome) == b"done\n"


def test_without_pidfds_a_command_ends_as_well(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Linux before 5.3, and sandboxes that do not know the call.
    def refuse(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    with bench.shell("echo hi; exec >&- 2>&-; sleep 0.1; exit 3") as outcome:
        assert (outcome.exit_code, out(outcome)) == (3, b"hi\n")
    with bench.shell(f"sleep 20 & echo $! > {tmp_path}/pid; wait", timeout=0.3) as outcome:
        assert outcome.timed_out
    wait_gone(int(wait_text(tmp_path / "pid")))


def write_program(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x00\x01\x02\x03 no program", "exec format error"),
        (b"", "exec format error"),
        (b"#!/no/such/interpreter\n", "interpreter does not exist"),
    ],
    ids=["garbage", "empty", "interpreter"],
)
def test_a_file_that_the_kernel_cannot_run_is_not_executable(
    bench: Bench, tmp_path: Path, content: bytes, reason: str
) -> None:
    path = write_program(tmp_path / "tool", content)
    with pytest.raises(RequestError, match=reason) as caught:
        bench.run(str(path))
    assert caught.value.code == "not_executable"


def test_a_program_that_is_open_for_writing_is_not_executable(bench: Bench, tmp_path: Path) -> None:
    path = write_program(tmp_path / "tool", Path("/bin/true").read_bytes())
    with open(path, "ab"), pytest.raises(RequestError, match="text file busy"):
        bench.run(str(path))


@pytest.mark.parametrize("arguments", [["x" * 200_000], ["x" * 100_000] * 30], ids=["one", "all"])
def test_too_long_arguments_are_a_typed_error(bench: Bench, arguments: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        bench.run("true", *arguments)
    assert (caught.value.status, caught.value.code) == (400, "argument_too_long")


def test_refused_and_finished_commands_leave_no_descriptor(bench: Bench) -> None:
    with bench.run("true"):
        pass
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(RequestError):
            bench.run("no-such-program")
        with pytest.raises(RequestError):
            bench.run("true", "x" * 200_000)
        with bench.run("true"):
            pass
        with bench.shell("sleep 5", timeout=0.01):
            pass
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_the_end_of_the_agent_ends_running_commands(bench: Bench, tmp_path: Path) -> None:
    def end() -> None:
        wait_text(tmp_path / "pid")
        while not bench.groups._groups:  # it may run before it is known
            time.sleep(0.001)
        bench.groups.end_all(grace=5)

    ender = threading.Thread(target=end)
    ender.start()
    with bench.shell(f"sleep 20 & echo $! > {tmp_path}/pid; wait") as outcome:
        assert outcome.signal == "SIGTERM"
    ender.join()
    wait_gone(int((tmp_path / "pid").read_text()))
