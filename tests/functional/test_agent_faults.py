"""The agent as a black box, a real process, against everything that commands and clients can do to it.

Whatever happens: /healthz answers, no exit code is lost or made up, and what was used is given back.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import process_client, skips
from tests.support.agent import Agent
from tests.support.paths import ROOT, find_python
from tests.support.process_client import RemoteProcess, run, start
from tests.support.sound_agent import SECONDS, check_health, children, count_files, resident_bytes, wait_for

SIZE = {"cols": 80, "rows": 24}
MIB = 1024 * 1024


# -- ends


def test_every_kind_of_end_is_told_as_it_was(sound_agent: Agent) -> None:
    ends = {
        "exit 0": (0, None),
        "exit 255": (255, None),
        "kill -9 $$": (137, "SIGKILL"),
        "kill -TERM $$": (143, "SIGTERM"),
        "kill -SEGV $$": (139, "SIGSEGV"),
        "exec >&- 2>&-; sleep 0.1; exit 5": (5, None),
        "exec </dev/null >/dev/null 2>&1; sleep 0.1; exit 6": (6, None),
    }
    for members in ({}, {"pty": SIZE}):
        for script, (exit_code, signal) in ends.items():
            heard = run(sound_agent, "sh", "-c", script, **members)
            assert heard.exit is not None
            assert (script, heard.exit["exit_code"], heard.exit["signal"]) == (script, exit_code, signal)


def test_a_child_that_holds_the_output_open_does_not_hold_up_the_end(sound_agent: Agent, tmp_path: Path) -> None:
    begin = time.monotonic()
    script = (
        f"(trap '' HUP; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; seq 30000; echo > {tmp_path}/done) & echo hi"
    )
    heard = run(sound_agent, "sh", "-c", script)
    assert (heard.stdout, heard.exit_code) == (b"hi\n", 0)
    assert time.monotonic() - begin < 5
    (tmp_path / "go").touch()
    # It lives, and what it writes goes nowhere: more than a pipe holds.
    wait_for((tmp_path / "done").exists, "the child was stopped")


def test_a_program_that_goes_into_the_background_is_left_alone(sound_agent: Agent, tmp_path: Path) -> None:
    script = f"setsid sh -c 'exec >/dev/null 2>&1; sleep 0.3; echo > {tmp_path}/alive' & echo started"
    heard = run(sound_agent, "sh", "-c", script)
    assert (heard.stdout, heard.exit_code) == (b"started\n", 0)
    wait_for((tmp_path / "alive").exists, "it was ended")


def test_no_process_stays_a_zombie_whatever_it_leaves(sound_agent: Agent) -> None:
    scripts = [
        "true",
        "kill -9 $$",
        "(sleep 0.1 &) ; exit 3",
        "sh -c 'sh -c true & sh -c true &'; true",
        "exec sleep 0.05",
    ]
    processes = [start(sound_agent, "sh", "-c", script) for script in scripts * 10]
    for process in processes:
        process.follow()
    wait_for(lambda: children(sound_agent) == [], "zombies")


def test_the_end_of_the_agent_ends_all_that_it_started(start_agent: Callable[..., Agent]) -> None:
    agent = start_agent()
    ways: list[dict[str, object]] = [{}, {"pty": SIZE}, {"rlimits": {"core": 0}}, {"stdin": "pipe"}]
    started = [start(agent, "sh", "-c", "trap '' HUP TERM; sleep 60 & wait; wait", **members) for members in ways]
    pids = [process.tell()["pid"] for process in started]
    agent.process.terminate()
    assert agent.process.wait(SECONDS) == 0
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "processes outlive their agent")


def test_a_timeout_ends_a_whole_terminal_session(sound_agent: Agent) -> None:
    script = "set -m; sleep 61.5 & sleep 61.6 & trap '' TERM HUP; echo ready; while :; do sleep 1; done"
    begin = time.monotonic()
    heard = run(sound_agent, "bash", "-c", script, pty=SIZE, timeout=0.5)
    assert time.monotonic() - begin < 5
    assert heard.exit is not None
    assert (heard.exit["signal"], heard.exit["timed_out"]) == ("SIGKILL", True)
    assert b"ready" in heard.stdout


# -- many


def test_a_thousand_processes_at_once_each_have_their_own_output_and_end(start_agent: Callable[..., Agent]) -> None:
    # The agent needs more files than it was started with; what it starts gets no more than that.
    agent = start_agent(wrapper=["prlimit", "--nofile=1000:20000"])
    assert run(agent, "sh", "-c", "ulimit -Sn").stdout == b"1000\n"
    files = count_files(agent)

    def begin(number: int) -> RemoteProcess:
        script = "read x; echo out $0 $(ulimit -Sn); echo err $0 >&2; exit $(($0 % 200))"
        return start(agent, "sh", "-c", script, str(number), id=f"n{number}", stdin="pipe")

    def end(process: RemoteProcess) -> bool:
        process.type(b"go\n", eof=True)
        number = process.id[1:]
        heard = process.follow()
        expected = (f"out {number} 1000\n".encode(), f"err {number}\n".encode(), int(number) % 200)
        return (heard.stdout, heard.stderr, heard.exit_code) == expected

    with ThreadPoolExecutor(16) as pool:
        processes = list(pool.map(begin, range(1000)))
        assert len(children(agent)) == 1000
        assert check_health(agent) < 1
        assert all(pool.map(end, processes))
    wait_for(lambda: children(agent) == [], "zombies")
    wait_for(lambda: count_files(agent) <= files, "files stay open")
    assert resident_bytes(agent) < 100 * MIB
    listed = agent.request("GET", "/v1/processes").json()["processes"]
    assert 256 <= len(listed) <= 1001


def test_thousands_of_processes_in_a_row_leave_no_files_and_no_memory(start_agent: Callable[..., Agent]) -> None:
    agent = start_agent()

    def work(first: int) -> None:
        for number in range(first, first + 125):
            assert run(agent, "sh", "-c", "echo $0", str(number), id=f"r{number}").stdout == f"{number}\n".encode()

    def round_of(first: int) -> tuple[int, int]:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(first, first + 1000, 125)))
        wait_for(lambda: children(agent) == [], "zombies")
        return count_files(agent), resident_bytes(agent)

    files, memory = round_of(0)
    later_files, later_memory = round_of(1000)
    assert later_files <= files + 8  # threads of connections that linger for a moment
    assert later_memory < memory + 4 * MIB


def test_terminals_are_given_back(sound_agent: Agent) -> None:
    before = len(os.listdir("/dev/pts"))
    processes = [start(sound_agent, "sh", "-c", "echo $0; tty", str(number), pty=SIZE) for number in range(40)]
    heard = [process.follow() for process in processes]
    assert [bytes(one.stdout.split(b"\r\n")[0]) for one in heard] == [str(number).encode() for number in range(40)]
    assert {one.exit_code for one in heard} == {0}
    wait_for(lambda: len(os.listdir("/dev/pts")) <= before, "terminals stay")


# -- who and how


def test_a_process_runs_as_its_user_within_its_limits(sound_agent: Agent) -> None:
    limits = {"nofile": [50, 60], "core": 0}
    script = "id -u; echo $HOME; ulimit -Sn; ulimit -Hn; ulimit -c"
    for members in ({}, {"pty": SIZE}):
        heard = run(sound_agent, shell=script, user=str(os.geteuid()), rlimits=limits, env={"HOME": "/own"}, **members)
        assert heard.stdout.split() == [str(os.geteuid()).encode(), b"/own", b"50", b"60", b"0"]


@pytest.mark.parametrize("version", ["3.9", "3.13"])
def test_every_python_that_an_image_may_have_serves_processes(start_agent: Callable[..., Agent], version: str) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"{skips.OTHER_PYTHON}: {version}")
    agent = start_agent(python=python)
    process = start(agent, "sh", "-c", "stty size; read line; echo $line; exit 3", pty=SIZE, rlimits={"core": 0})
    process.read_until(b"24 80\r\n")
    process.type(b"typed\n")
    heard = process.follow()
    assert (heard.stdout, heard.exit_code) == (b"24 80\r\ntyped\r\ntyped\r\n", 3)
    plain = start(agent, "sh", "-c", "cat; echo err >&2", stdin="pipe")
    plain.type(b"in\n", eof=True)
    assert (plain.follow().stdout, plain.follow().stderr) == (b"in\n", b"err\n")
    assert agent.request("GET", "/v1/stats").json()["cpus"] > 0
    assert ".py" not in agent.log()


# -- readers


def test_a_slow_reader_of_an_endless_output_costs_nothing(start_agent: Callable[..., Agent]) -> None:
    agent = start_agent()
    processes = [start(agent, "yes", f"line {number}") for number in range(4)]
    memory = resident_bytes(agent)
    heard = processes[0].read(wait=1)
    assert heard.offset >= 8 * MIB
    times = sorted(check_health(agent) for _ in range(50))
    assert times[-1] < 1
    assert statistics.median(times) < 0.1
    # They wait for their readers: nobody is ahead by more than a little, and what is ahead is not in memory.
    wait_for(lambda: processes[1].tell()["offset"] == processes[1].tell()["offset"], "it goes on")
    assert processes[1].tell()["offset"] < 40 * MIB
    assert resident_bytes(agent) < memory + 24 * MIB
    # What is read is what was written, and goes on where it was left.
    line = b"line 0\n"
    rest = processes[0].read(heard.offset, wait=1)
    data = (heard.stdout + rest.stdout)[: (heard.offset + rest.offset) // len(line)]
    assert rest.gaps == []
    assert (heard.stdout + rest.stdout).startswith(line * (len(data) // len(line)))
    for process in processes:
        assert process.delete().status == 200
    wait_for(lambda: children(agent) == [], "they run on")


def test_health_is_answered_at_once_while_endless_output_is_read_by_many(start_agent: Callable[..., Agent]) -> None:
    agent = start_agent()
    stop = threading.Event()
    offsets: list[int] = []

    def read(number: int) -> None:
        process = start(agent, "yes", id=f"y{number}")
        offset = 0
        while not stop.is_set():
            offset = process.read(offset, wait=1).offset
        offsets.append(offset)
        process.delete()

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        times = sorted(check_health(agent) for _ in range(200))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert min(offsets) > 0
    # This process, its readers and the writers share two processors with the agent.
    assert times[len(times) * 9 // 10] < 0.5


def test_a_client_that_is_killed_in_the_midst_of_a_stream_loses_nothing(sound_agent: Agent, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    script = f"seq 50000; read x < {tmp_path}/gate; seq 50001 100000; exit 9"
    process = start(sound_agent, "sh", "-c", script)
    client = f"""
import sys
from tests.support.agent import Agent
from tests.support.process_client import RemoteProcess
sound_agent = Agent(None, {sound_agent.port}, 0, None, None, None)
with RemoteProcess(sound_agent, {process.id!r}).open(wait=25) as stream:
    for kind, payload in stream:
        print(len(payload), flush=True)
"""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", client], env=environ, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline()
        child.kill()
    (tmp_path / "gate").write_text("go\n")
    heard = process.follow()
    assert heard.stdout == b"".join(b"%d\n" % number for number in range(1, 100_001))
    assert (heard.exit_code, heard.gaps) == (9, [])


def test_streams_that_are_opened_and_abandoned_leave_nothing(sound_agent: Agent) -> None:
    process = start(sound_agent, "sleep", "60")
    before = count_files(sound_agent)
    for _ in range(300):
        with process.open(wait=25) as stream:
            assert next(stream)[0] == process_client.PROCESS
    wait_for(lambda: count_files(sound_agent) <= before + 2, "streams stay open")
    process.delete()


def test_several_readers_hear_the_same(sound_agent: Agent) -> None:
    process = start(sound_agent, "sh", "-c", "for i in $(seq 200); do echo out $i; echo err $i >&2; done; exit 4")
    with ThreadPoolExecutor(6) as pool:
        heard = list(pool.map(process.follow, [0] * 6))
    assert all(one == heard[0] for one in heard)
    assert heard[0].stdout == b"".join(b"out %d\n" % number for number in range(1, 201))


def test_output_can_be_read_again_from_every_offset(sound_agent: Agent) -> None:
    whole = run(sound_agent, "sh", "-c", "printf abc; sleep 0.05; printf DE >&2; sleep 0.05; printf fg", id="offsets")
    assert (whole.stdout, whole.stderr, whole.offset) == (b"abcfg", b"DE", 7)
    process = RemoteProcess(sound_agent, "offsets")
    for offset in range(8):
        part = process.read(offset)
        assert (
            part.stdout + part.stderr == (b"abc"[offset:] + b"fg"[max(0, offset - 5) :]) + b"DE"[max(0, offset - 3) :]
        )
        assert part.exit_code == 0
    reply = sound_agent.request("GET", f"{process.path}/output?offset=8")
    assert (reply.status, reply.json()["code"]) == (400, "bad_argument")


def test_what_is_dropped_is_said_and_counted(sound_agent: Agent) -> None:
    heard = run(sound_agent, "seq", "1000000", retain="drop", output_limit=100_000)
    whole = b"".join(b"%d\n" % number for number in range(1, 1_000_001))
    # It may be read from the start before anything is dropped: what there is, is right, and the rest is accounted for.
    assert heard.offset == len(whole)
    assert len(heard.stdout) + sum(count for _, count in heard.gaps) == len(whole)
    position, rest = 0, heard.stdout
    for offset, count in heard.gaps:
        assert rest.startswith(whole[position:offset])
        rest = rest[offset - position :]
        position = offset + count
    assert rest == whole[position:]


# -- input


def test_a_paste_of_64_kb_into_a_terminal_arrives_whole(sound_agent: Agent, tmp_path: Path) -> None:
    data = random.Random(7).randbytes(64 * 1024)
    script = f"stty raw; printf ready; head -c {len(data)} > {tmp_path}/pasted"
    process = start(sound_agent, "sh", "-c", script, pty=SIZE)
    process.read_until(b"ready")
    assert process.type(data)["offset"] == len(data)
    assert process.follow().exit_code == 0
    assert (tmp_path / "pasted").read_bytes() == data


def test_a_paste_of_lines_is_taken_although_the_program_begins_to_read_late(sound_agent: Agent, tmp_path: Path) -> None:
    data = b"".join(b"%06d %s\n" % (number, b"x" * 60) for number in range(1000))
    process = start(sound_agent, "sh", "-c", f"printf ready; sleep 0.5; cat > {tmp_path}/pasted", pty=SIZE)
    process.read_until(b"ready")
    process.type(data, eof=True)
    assert process.follow().exit_code == 0
    assert (tmp_path / "pasted").read_bytes() == data


def test_the_last_byte_of_a_terminal_arrives(sound_agent: Agent) -> None:
    heard = run(sound_agent, "seq", "100000", pty=SIZE)
    assert heard.stdout.replace(b"\r\n", b"\n") == b"".join(b"%d\n" % number for number in range(1, 100_001))


def test_input_that_is_sent_twice_is_taken_once_and_a_gap_is_refused(sound_agent: Agent) -> None:
    process = start(sound_agent, "cat", stdin="pipe")
    assert process.post("stdin?offset=0", b"abc").json() == {"offset": 3, "closed": False}
    assert process.post("stdin?offset=0", b"abcd").json() == {"offset": 4, "closed": False}
    assert process.post("stdin?offset=2", b"cd").json() == {"offset": 4, "closed": False}
    reply = process.post("stdin?offset=5", b"x")
    assert (reply.status, reply.json()["code"]) == (409, "stdin_gap")
    process.typed = 4
    process.type(b"e", eof=True)
    assert process.follow().stdout == b"abcde"


def test_a_body_that_is_cut_off_at_any_byte_feeds_nothing_twice(sound_agent: Agent) -> None:
    process = start(sound_agent, "cat", stdin="pipe")
    body = b"0123456789"
    head = f"POST {process.path}/stdin?offset=0 HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for cut in [1, len(head) // 2, *range(len(head), len(head) + len(body))]:
        with sound_agent.dial() as connection:
            connection.sendall((head + body)[:cut])
    assert process.post("stdin?offset=0&eof=1", body).json()["offset"] == len(body)
    assert process.follow().stdout == body


def test_much_input_to_a_program_that_reads_a_part_of_it_ends(sound_agent: Agent) -> None:
    process = start(sound_agent, "head", "-c", "1000", stdin="pipe")
    with contextlib.suppress(AssertionError):
        for _ in range(40):
            if process.type(b"y\n" * (MIB // 2))["closed"]:
                break
    assert process.follow().stdout == b"y\n" * 500


def test_binary_input_arrives_byte_by_byte(sound_agent: Agent) -> None:
    data = random.Random(3).randbytes(5 * MIB + 123)
    process = start(sound_agent, "sha256sum", stdin="pipe")
    process.type(data, eof=True)
    assert process.follow().stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


# -- the disk


FULL_DISK = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]


def can_mount() -> bool:
    return subprocess.run([*FULL_DISK, "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def cramped_agent(start_agent: Callable[..., Agent], tmp_path: Path) -> Agent:
    """An agent whose folder for temporary files holds two MiB."""
    if not can_mount():
        pytest.skip("mounts in user namespaces are refused here")
    folder = tmp_path / "small"
    folder.mkdir()
    script = f'mount -t tmpfs -o size=2m none {folder} && exec "$@"'
    return start_agent(environ={"TMPDIR": str(folder)}, wrapper=[*FULL_DISK, script, "sh"])


@pytest.mark.parametrize("retain", ["block", "drop"])
def test_on_a_full_disk_less_is_kept_and_the_end_is_told(cramped_agent: Agent, retain: str) -> None:
    process = start(cramped_agent, "sh", "-c", "head -c 30000000 /dev/zero | tr '\\0' x; exit 7", retain=retain)
    heard = process.follow()
    assert heard.exit_code == 7
    assert heard.offset == 30_000_000
    assert len(heard.stdout) + sum(count for _, count in heard.gaps) == 30_000_000
    assert heard.stdout.strip(b"x") == b""
    if retain == "block":
        assert heard.gaps == []


def test_on_a_full_disk_a_process_that_nobody_reads_is_told_of_later(cramped_agent: Agent) -> None:
    process = start(cramped_agent, "sh", "-c", "head -c 30000000 /dev/zero; exit 8", retain="drop")
    wait_for(lambda: bool(process.tell()["state"] == "ended"), "it hangs")
    heard = process.follow()
    assert (heard.exit_code, heard.offset) == (8, 30_000_000)
    assert heard.gaps
    assert run(cramped_agent, "echo", "goes on").stdout == b"goes on\n"
