"""The agent as a black box, a real process, against everything that commands and clients can do to it.

Whatever happens: /healthz answers, no exit code is lost or made up, and what was used is given back.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import process_client, skips
from tests.support.agent import Agent
from tests.support.paths import ROOT, find_python
from tests.support.process_client import RemoteProcess, run, start

SIZE = {"cols": 80, "rows": 24}
MIB = 1024 * 1024
SECONDS = 30.0


def wait_for(condition: Callable[[], bool], text: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, text
        time.sleep(0.02)


def count_files(agent: Agent) -> int:
    return len(os.listdir(f"/proc/{agent.process.pid}/fd"))


def resident_bytes(agent: Agent) -> int:
    pages = Path(f"/proc/{agent.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def children(agent: Agent) -> list[str]:
    """The states of the agent's children: Z for one that nobody reaped."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(") ")[2].split()
                if fields[1] == str(agent.process.pid):
                    found.append(fields[0])
    return found


def check_health(agent: Agent) -> float:
    """How long /healthz takes."""
    begin = time.perf_counter()
    assert agent.request("GET", "/healthz").status == 200
    return time.perf_counter() - begin


@pytest.fixture(scope="module")
def warm_agent(shared_agent: Agent) -> Agent:
    """The shared agent, after all that is opened once and kept has been opened."""
    assert run(shared_agent, "sh", "-c", "sleep 2 & seq 100000").exit_code == 0
    assert shared_agent.shell("sleep 2 & seq 300000").exit_code == 0
    return shared_agent


@pytest.fixture
def agent(warm_agent: Agent) -> Iterator[Agent]:
    """An agent that, after the test, serves, has given back what it used, and has nothing to complain of."""
    wait_for(lambda: children(warm_agent) == [], "children from before")
    files = count_files(warm_agent)
    yield warm_agent
    check_health(warm_agent)
    wait_for(lambda: children(warm_agent) == [], "children stay")
    wait_for(lambda: count_files(warm_agent) <= files, "files stay open")
    assert "Traceback" not in warm_agent.log()


# -- ends


def test_every_kind_of_end_is_told_as_it_was(agent: Agent) -> None:
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
            heard = run(agent, "sh", "-c", script, **members)
            assert heard.exit is not None
            assert (script, heard.exit["exit_code"], heard.exit["signal"]) == (script, exit_code, signal)


def test_a_child_that_holds_the_output_open_does_not_hold_up_the_end(agent: Agent, tmp_path: Path) -> None:
    begin = time.monotonic()
    script = (
        f"(trap '' HUP; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; seq 30000; echo > {tmp_path}/done) & echo hi"
    )
    heard = run(agent, "sh", "-c", script)
    assert (heard.stdout, heard.exit_code) == (b"hi\n", 0)
    assert time.monotonic() - begin < 5
    (tmp_path / "go").touch()
    # It lives, and what it writes goes nowhere: more than a pipe holds.
    wait_for((tmp_path / "done").exists, "the child was stopped")


def test_a_program_that_goes_into_the_background_is_left_alone(agent: Agent, tmp_path: Path) -> None:
    script = f"setsid sh -c 'exec >/dev/null 2>&1; sleep 0.3; echo > {tmp_path}/alive' & echo started"
    heard = run(agent, "sh", "-c", script)
    assert (heard.stdout, heard.exit_code) == (b"started\n", 0)
    wait_for((tmp_path / "alive").exists, "it was ended")


def test_no_process_stays_a_zombie_whatever_it_leaves(agent: Agent) -> None:
    scripts = [
        "true",
        "kill -9 $$",
        "(sleep 0.1 &) ; exit 3",
        "sh -c 'sh -c true & sh -c true &'; true",
        "exec sleep 0.05",
    ]
    processes = [start(agent, "sh", "-c", script) for script in scripts * 10]
    for process in processes:
        process.follow()
    wait_for(lambda: children(agent) == [], "zombies")


def test_the_end_of_the_agent_ends_all_that_it_started(start_agent: Callable[..., Agent]) -> None:
    agent = start_agent()
    ways: list[dict[str, object]] = [{}, {"pty": SIZE}, {"rlimits": {"core": 0}}, {"stdin": "pipe"}]
    started = [start(agent, "sh", "-c", "trap '' HUP TERM; sleep 60 & wait; wait", **members) for members in ways]
    pids = [process.tell()["pid"] for process in started]
    agent.process.terminate()
    assert agent.process.wait(SECONDS) == 0
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "processes outlive their agent")


def test_a_timeout_ends_a_whole_terminal_session(agent: Agent) -> None:
    script = "set -m; sleep 61.5 & sleep 61.6 & trap '' TERM HUP; echo ready; while :; do sleep 1; done"
    begin = time.monotonic()
    heard = run(agent, "bash", "-c", script, pty=SIZE, timeout=0.5)
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


def test_terminals_are_given_back(agent: Agent) -> None:
    before = len(os.listdir("/dev/pts"))
    processes = [start(agent, "sh", "-c", "echo $0; tty", str(number), pty=SIZE) for number in range(40)]
    heard = [process.follow() for process in processes]
    assert [bytes(one.stdout.split(b"\r\n")[0]) for one in heard] == [str(number).encode() for number in range(40)]
    assert {one.exit_code for one in heard} == {0}
    wait_for(lambda: len(os.listdir("/dev/pts")) <= before, "terminals stay")


# -- who and how


def test_a_process_runs_as_its_user_within_its_limits(agent: Agent) -> None:
    limits = {"nofile": [50, 60], "core": 0}
    script = "id -u; echo $HOME; ulimit -Sn; ulimit -Hn; ulimit -c"
    for members in ({}, {"pty": SIZE}):
        heard = run(agent, shell=script, user=str(os.geteuid()), rlimits=limits, env={"HOME": "/own"}, **members)
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
    assert "Traceback" not in agent.log()


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


def test_a_client_that_is_killed_in_the_midst_of_a_stream_loses_nothing(agent: Agent, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    script = f"seq 50000; read x < {tmp_path}/gate; seq 50001 100000; exit 9"
    process = start(agent, "sh", "-c", script)
    client = f"""
import sys
from tests.support.agent import Agent
from tests.support.process_client import RemoteProcess
agent = Agent(None, {agent.port}, 0, None, None, None)
with RemoteProcess(agent, {process.id!r}).open(wait=25) as stream:
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


def test_streams_that_are_opened_and_abandoned_leave_nothing(agent: Agent) -> None:
    process = start(agent, "sleep", "60")
    before = count_files(agent)
    for _ in range(300):
        with process.open(wait=25) as stream:
            assert next(stream)[0] == process_client.PROCESS
    wait_for(lambda: count_files(agent) <= before + 2, "streams stay open")
    process.delete()


def test_several_readers_hear_the_same(agent: Agent) -> None:
    process = start(agent, "sh", "-c", "for i in $(seq 200); do echo out $i; echo err $i >&2; done; exit 4")
    with ThreadPoolExecutor(6) as pool:
        heard = list(pool.map(process.follow, [0] * 6))
    assert all(one == heard[0] for one in heard)
    assert heard[0].stdout == b"".join(b"out %d\n" % number for number in range(1, 201))


def test_output_can_be_read_again_from_every_offset(agent: Agent) -> None:
    whole = run(agent, "sh", "-c", "printf abc; sleep 0.05; printf DE >&2; sleep 0.05; printf fg", id="offsets")
    assert (whole.stdout, whole.stderr, whole.offset) == (b"abcfg", b"DE", 7)
    process = RemoteProcess(agent, "offsets")
    for offset in range(8):
        part = process.read(offset)
        assert (
            part.stdout + part.stderr == (b"abc"[offset:] + b"fg"[max(0, offset - 5) :]) + b"DE"[max(0, offset - 3) :]
        )
        assert part.exit_code == 0
    reply = agent.request("GET", f"{process.path}/output?offset=8")
    assert (reply.status, reply.json()["code"]) == (400, "bad_argument")


def test_what_is_dropped_is_said_and_counted(agent: Agent) -> None:
    heard = run(agent, "seq", "1000000", retain="drop", output_limit=100_000)
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


def test_a_paste_of_64_kb_into_a_terminal_arrives_whole(agent: Agent, tmp_path: Path) -> None:
    data = random.Random(7).randbytes(64 * 1024)
    script = f"stty raw; printf ready; head -c {len(data)} > {tmp_path}/pasted"
    process = start(agent, "sh", "-c", script, pty=SIZE)
    process.read_until(b"ready")
    assert process.type(data)["offset"] == len(data)
    assert process.follow().exit_code == 0
    assert (tmp_path / "pasted").read_bytes() == data


def test_a_paste_of_lines_is_taken_although_the_program_begins_to_read_late(agent: Agent, tmp_path: Path) -> None:
    data = b"".join(b"%06d %s\n" % (number, b"x" * 60) for number in range(1000))
    process = start(agent, "sh", "-c", f"printf ready; sleep 0.5; cat > {tmp_path}/pasted", pty=SIZE)
    process.read_until(b"ready")
    process.type(data, eof=True)
    assert process.follow().exit_code == 0
    assert (tmp_path / "pasted").read_bytes() == data


def test_the_last_byte_of_a_terminal_arrives(agent: Agent) -> None:
    heard = run(agent, "seq", "100000", pty=SIZE)
    assert heard.stdout.replace(b"\r\n", b"\n") == b"".join(b"%d\n" % number for number in range(1, 100_001))


def test_input_that_is_sent_twice_is_taken_once_and_a_gap_is_refused(agent: Agent) -> None:
    process = start(agent, "cat", stdin="pipe")
    assert process.post("stdin?offset=0", b"abc").json() == {"offset": 3, "closed": False}
    assert process.post("stdin?offset=0", b"abcd").json() == {"offset": 4, "closed": False}
    assert process.post("stdin?offset=2", b"cd").json() == {"offset": 4, "closed": False}
    reply = process.post("stdin?offset=5", b"x")
    assert (reply.status, reply.json()["code"]) == (409, "stdin_gap")
    process.typed = 4
    process.type(b"e", eof=True)
    assert process.follow().stdout == b"abcde"


def test_a_body_that_is_cut_off_at_any_byte_feeds_nothing_twice(agent: Agent) -> None:
    process = start(agent, "cat", stdin="pipe")
    body = b"0123456789"
    head = f"POST {process.path}/stdin?offset=0 HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for cut in [1, len(head) // 2, *range(len(head), len(head) + len(body))]:
        with agent.dial() as connection:
            connection.sendall((head + body)[:cut])
    assert process.post("stdin?offset=0&eof=1", body).json()["offset"] == len(body)
    assert process.follow().stdout == body


def test_much_input_to_a_program_that_reads_a_part_of_it_ends(agent: Agent) -> None:
    process = start(agent, "head", "-c", "1000", stdin="pipe")
    with contextlib.suppress(AssertionError):
        for _ in range(40):
            if process.type(b"y\n" * (MIB // 2))["closed"]:
                break
    assert process.follow().stdout == b"y\n" * 500


def test_binary_input_arrives_byte_by_byte(agent: Agent) -> None:
    data = random.Random(3).randbytes(5 * MIB + 123)
    process = start(agent, "sha256sum", stdin="pipe")
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


# -- nonsense


METHODS = [b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"PATCH", b"OPTIONS", b"get", b"", b"\xff", b"X" * 100]
PATHS = [
    *[
        b"/healthz",
        b"/v1/exec",
        b"/v1/stats",
        b"/v1/files",
        b"/v1/tree",
        b"/v1/fs/list",
        b"/v1/fs/stat",
        b"/v1/fs/remove",
    ],
    *[b"/v1/processes", b"/v1/processes/", b"/v1/processes/a", b"/v1/processes/a/output", b"/v1/processes/%00/stdin"],
    *[b"/v1/processes/a/signal", b"/v1/processes//output", b"*", b"//", b"/" * 5000, b"/\xff", b"http://x/healthz"],
]
QUERIES = [
    *[b"", b"?", b"?offset=-1", b"?offset=99999999999999999999", b"?offset=1&offset=2", b"?wait=nan", b"?wait=1e9"],
    *[b"?wait=-1", b"?path=%ff%fe", b"?path=%00", b"?path=", b"?%%%", b"?eof=2", b"?path=/nonexistent&mode=99999"],
    b"?" + b"a=b&" * 2000,
]
HEADERS = [
    *[
        b"Host: x",
        b"Content-Length: 5",
        b"Content-Length: 999999999999",
        b"Content-Length: -1",
        b"Content-Length: 5, 6",
    ],
    *[b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Expect: 100-continue", b"Connection: close"],
    *[b"Range: bytes=9-1", b"If-Range: x", b"vmnest-exec-id: \xff", b"vmnest-sha256: zz", b": no name", b" folded"],
    *[b"a" * 70000, b"Upgrade: websocket"],
]
ORDER = b'{"id": "fuzz", "command": "true", %b}'
BODIES = [
    *[b"", b"{}", b"[]", b"null", b"{", b"\xff\xfe", b'{"id": 1}', b'{"id": "a", "command": "\\u0000"}', b"[" * 100000],
    *[ORDER % member for member in (b'"pty": 1', b'"rlimits": {"nofile": "x"}', b'"user": []', b'"timeout": -1')],
    *[b'{"id": "../x", "command": "true"}', b'{"path": "\\ud800"}', b'{"signal": 1e400}', b"\0" * 3000],
    *[b"5\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n", b"-5\r\n"],
]


def build_nonsense(chance: random.Random) -> bytes:
    """A request that is nearly one, or nothing like one."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(2000))
    lines = [b"%b %b%b HTTP/1.1" % (chance.choice(METHODS), chance.choice(PATHS), chance.choice(QUERIES))]
    lines += [chance.choice(HEADERS) for _ in range(chance.randrange(4))]
    if chance.random() < 0.7:
        lines.append(b"Content-Length: %d" % chance.randrange(40))
    data = b"\r\n".join(lines) + b"\r\n\r\n" + chance.choice(BODIES)
    if chance.random() < 0.3:  # a byte that fell over on its way
        position = chance.randrange(len(data))
        data = data[:position] + chance.randbytes(1) + data[position + 1 :]
    return data


def test_nonsense_never_ends_or_wedges_the_agent(agent: Agent) -> None:
    chance = random.Random(20_261_130)

    def send(data: bytes) -> bytes:
        with agent.dial(agent.hook_port if b"/v1/stats" in data else None) as connection:
            connection.settimeout(SECONDS)
            with contextlib.suppress(OSError):
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                while piece := connection.recv(65536):
                    answer += piece
            return answer

    requests = [build_nonsense(chance) for _ in range(1200)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, requests))
    statuses = [answer[9:12] for answer in answers if answer]
    assert len(statuses) > 600
    assert all(answer.startswith(b"HTTP/1.1 ") for answer in answers if answer)
    assert {status for status in statuses if status.startswith(b"5")} <= {b"501"}
    assert agent.exec("echo", "alive").stdout == b"alive\n"


# Of each member what it may be and what it may not; nothing outside of the working directory is named.
VALUES = [
    None,
    True,
    -1,
    0,
    7,
    2**70,
    1.5,
    "",
    "a",
    "a/b",
    ".",
    "\0",
    "\udc80",
    "\ud800",
    "x" * 300,
    [],
    ["a"],
    [1, 2],
    {},
    {"a": 1},
]
MEMBERS: dict[str, list[object]] = {
    "id": [f"m{number}" for number in range(300)],
    "command": ["true", "sh", "./a", "no-such-program", "/etc/passwd"],
    "args": [["-c", "exit 3"], ["x" * 140_000]],
    "shell": ["true", "exit 4", "kill -9 $$"],
    "cwd": [".", "a", "/no/such"],
    "env": [{"A": "b"}, {"": "b"}, {"A=": "b"}, {"PATH": ""}],
    "user": [os.geteuid(), str(os.geteuid()), "no-such-user"],
    "stdin": ["none", "pipe"],
    "pty": [SIZE, {"cols": 65536, "rows": 1}, {"rows": 1}],
    "timeout": [0.01, 1e-9],
    "output_limit": [0, 1, 1000],
    "rlimits": [{"nofile": 3}, {"nofile": [9, 3]}, {"cpu": 1}, {"as": 1_000_000}, {"nproc": 0}, {"nofile": 2**63 - 1}],
    "retain": ["block", "drop"],
    "signal": ["TERM", "SIGRTMIN+1", "RTMIN+99", 0, 9, 65],
    "cols": [1, 65535],
    "rows": [1, 65535],
    **{name: ["a", "b", "a/b", "a/c"] for name in ("path", "source", "destination")},
    "content": ["YQ==", "YQ="],
    "mode": [0o644, 0o7777, 0o10000],
    "depth": [1, 5],
}  # fmt: skip
FLAGS = ["parents", "exist_ok", "recursive", "missing_ok", "overwrite", "follow", "sha256"]
POSTS = [
    *[
        "/v1/processes",
        "/v1/processes?wait=0",
        "/v1/exec",
        "/v1/fs/read",
        "/v1/fs/write",
        "/v1/fs/stat",
        "/v1/fs/exists",
    ],
    *["/v1/fs/list", "/v1/fs/mkdir", "/v1/fs/remove", "/v1/fs/copy", "/v1/fs/rename", "/v1/fs/chmod"],
    *["/v1/processes/m1/signal", "/v1/processes/m2/resize", "/v1/processes/m3/stdin"],
]


def build_document(chance: random.Random) -> dict[str, object]:
    """A document with the right names, and any values."""
    document: dict[str, object] = {}
    for name, usual in MEMBERS.items():
        if chance.random() < (0.9 if name in ("id", "command", "path", "source", "destination") else 0.15):
            document[name] = chance.choice(usual if chance.random() < 0.9 else VALUES)
    if "shell" in document:
        document.pop("command", None)
        document.pop("args", None)
        document["env"] = {"HOME": "/"}  # what runs the tests has a profile that may take long
    for name in FLAGS:
        if chance.random() < 0.3:
            document[name] = chance.choice([True, False, 1, "yes"])
    return document


def test_documents_of_any_types_are_answered(agent: Agent) -> None:
    chance = random.Random(1130)
    requests = [(chance.choice(POSTS), build_document(chance)) for _ in range(1500)]
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda request: agent.post(*request), requests))
    statuses = {reply.status for reply in replies}
    assert statuses <= {200, 201, 400, 404, 409, 504}
    assert {200, 201, 400, 404, 409} <= statuses
    for document in agent.request("GET", "/v1/processes").json()["processes"]:
        assert RemoteProcess(agent, document["id"]).delete().status == 200


BAD_ORDERS: dict[str, tuple[dict[str, object], str]] = {
    "no id": ({"id": None, "command": "true"}, "bad_argument"),
    "an id with a slash": ({"id": "a/b", "command": "true"}, "bad_argument"),
    "too long an id": ({"id": "x" * 65, "command": "true"}, "bad_argument"),
    "no command": ({}, "bad_argument"),
    "two commands": ({"command": "true", "shell": "true"}, "bad_argument"),
    "not found": ({"command": "no-such-program"}, "command_not_found"),
    "no program": ({"command": "/etc/passwd"}, "not_executable"),
    "no cwd": ({"command": "true", "cwd": "/no/such"}, "cwd_not_found"),
    "too long": ({"command": "true", "args": ["x" * 200_000]}, "argument_too_long"),
    "too long for a terminal": (
        {"command": "true", "args": ["x" * 200_000], "pty": SIZE},
        "argument_too_long",
    ),
    "no size": ({"command": "true", "pty": {"cols": 0, "rows": 1}}, "bad_argument"),
    "no user": ({"command": "true", "user": "no-such-user"}, "no_such_user"),
    "no limit": ({"command": "true", "rlimits": {"nofile": 2**40}}, "bad_argument"),
    "no mode": ({"command": "true", "retain": "maybe"}, "bad_argument"),
    "NUL": ({"command": "true", "env": {"A": "\0"}}, "bad_argument"),
}


@pytest.mark.parametrize(("document", "code"), BAD_ORDERS.values(), ids=list(BAD_ORDERS))
def test_an_order_that_cannot_be_carried_out_starts_nothing_and_leaves_its_id_free(
    agent: Agent, document: dict[str, object], code: str
) -> None:
    name = f"bad-{uuid.uuid4().hex}"
    reply = agent.post("/v1/processes", {"id": name, **document})
    assert (reply.status, reply.json()["code"]) == (400, code)
    assert agent.request("GET", f"/v1/processes/{name}").status == 404
    assert run(agent, "echo", "then", id=name).stdout == b"then\n"
