"""Process: against the real agent what it does, against scripted ones what it lets alone."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from guest.agentd import wire
from tests.support import descriptors
from tests.support.agent import Agent
from tests.support.agent_client import States
from tests.support.clock import FakeClock
from tests.support.process_peer import HEAD, ProcessPeer
from tests.support.scripted import CUT, Received, ScriptedServer, json_answer
from vmnest import errors
from vmnest.agent import arguments, outputs, processes, starting
from vmnest.agent.client import AgentClient
from vmnest.agent.outputs import Chunk
from vmnest.agent.results import ExecResult, Missing
from vmnest.sandbox import spawning
from vmnest.sandbox.process import Line, Process
from vmnest.transport import Transport

DONE = {"exit_code": 3, "signal": None, "timed_out": False}


@pytest.fixture
def client(shared_agent: Agent, agent_transport: Transport) -> AgentClient:
    return AgentClient(shared_agent.url, headers=lambda refused: [], transport=agent_transport, port=8080)


@pytest.fixture
def spawn(client: AgentClient) -> Iterator[Any]:
    """Starts processes at the real agent, and kills what is left of them."""
    made: list[Process] = []

    def spawn(command: str, args: list[str] | None = None, **options: Any) -> Process:
        wish = arguments.Command(command, args, **options)
        info = starting.start(client, wish, process_id=os.urandom(8).hex())
        made.append(Process(info, agent=client, awake=lambda deadline: client))
        return made[-1]

    yield spawn
    for process in made:
        processes.remove(client, process.id)


def script(text: str) -> list[str]:
    return ["-c", text]


def sockets() -> set[str]:
    """What this process has open of them."""
    return {target for target in descriptors.targets(os.getpid()) if target.startswith("socket:")}


def scripted(peer: ProcessPeer, client: AgentClient, *, offset: int = 0) -> Process:
    """The one process of a scripted agent."""
    peer.known.add("p")
    info = outputs.parse_info({**peer.document(), "id": "p"})
    return Process(info, agent=client, awake=lambda deadline: client, offset=offset)


# -- output ------------------------------------------------------------------------------------------------------------


def test_output_comes_while_it_runs(spawn: Any) -> None:
    process = spawn("sh", script("echo first; read line; echo second >&2; exit 7"), has_stdin=True)
    chunks = iter(process)
    assert next(chunks) == Chunk("stdout", b"first\n", 0)
    assert process.exit_code is None
    process.write("go\n")
    assert list(chunks) == [Chunk("stderr", b"second\n", 6)]
    assert (process.exit_code, process.signal_name, process.timed_out, process.offset) == (7, None, False, 13)
    assert process.wait() == 7


def test_lines_are_whole_whatever_they_come_in(connect_agent: Any) -> None:
    pieces = [b"a\r\n", b"b", b"c", b"\n", b"\n", b"\xc3"]
    rest = [("stderr", b"err\n"), ("stdout", b"\xa9\xff")]
    peer = ProcessPeer(*[("stdout", piece) for piece in pieces], *rest, end=DONE)
    with ScriptedServer(peer, repeat_last=True) as server:
        lines = list(scripted(peer, connect_agent(server)).lines())
    assert lines == [
        Line("stdout", "a"), Line("stdout", "bc"), Line("stdout", ""), Line("stderr", "err"), Line("stdout", "é�"),
    ]  # fmt: skip


def test_a_gap_is_a_line_between_what_was_before_and_what_is_after(connect_agent: Any) -> None:
    peer = ProcessPeer(("stdout", b"half"), 1000, ("stdout", b"rest\n"), end=DONE)
    with ScriptedServer(peer, repeat_last=True) as server:
        lines = list(scripted(peer, connect_agent(server)).lines())
    assert [line.stream for line in lines] == ["stdout", "gap", "stdout"]
    assert [lines[0].text, lines[2].text] == ["half", "rest"]
    assert "1000" in lines[1].text


def test_a_line_without_end_comes_in_pieces(connect_agent: Any) -> None:
    peer = ProcessPeer(*[("stdout", b"x" * 600_000)] * 4, end=DONE)
    with ScriptedServer(peer, repeat_last=True) as server:
        texts = [line.text for line in scripted(peer, connect_agent(server)).lines()]
    assert "".join(texts) == "x" * 2_400_000
    assert 1 < len(texts) < 4


def test_lines_go_on_where_the_last_call_stopped(spawn: Any) -> None:
    process = spawn("printf", ["a\\nb\\nc\\nd"])
    assert next(process.lines()).text == "a"
    assert process.offset == 2
    assert next(process.lines(timeout=20)).text == "b"
    assert process.communicate().stdout == b"c\nd"
    assert (process.offset, list(process.lines())) == (7, [])


def test_questions_and_answers_take_turns(spawn: Any) -> None:
    script_text = "while read line; do echo \"got $line\"; echo 'ready>'; done"
    process = spawn("sh", script(script_text), has_stdin=True)
    for question in ("one", "two", "three"):
        process.write(question + "\n")
        answers = []
        for line in process.lines(timeout=20):
            if line.text == "ready>":
                break
            answers.append(line.text)
        assert answers == [f"got {question}"]
    process.close_stdin()
    assert process.wait() == 0


def test_reading_that_takes_too_long_loses_nothing(spawn: Any) -> None:
    process = spawn("sh", script("printf half; read line; echo ' whole'; exit 3"), has_stdin=True)
    with pytest.raises(errors.WaitTimeoutError, match=r"sh has written nothing more within 0\.2 s"):
        next(process.lines(timeout=0.2))
    process.write("go\n")
    assert list(process.lines(timeout=20)) == [Line("stdout", "half whole")]
    with pytest.raises(errors.WaitTimeoutError):
        list(spawn("sleep", ["60"]).chunks(timeout=0.1))
    assert process.exit_code == 3


def test_the_answer_that_comes_with_the_start_is_waited_for_no_longer(client: AgentClient) -> None:
    wish = arguments.Command("sh", script("printf begun; exec sleep 60"))
    began = time.monotonic()
    with spawning.spawn(client, wish, process_id="watched", watch=True, awake=lambda deadline: client) as process:
        assert next(process.chunks()).data == b"begun"
        with pytest.raises(errors.WaitTimeoutError):
            next(process.chunks(timeout=0.2))
        process.kill()
        assert process.wait(20) == 137
    assert time.monotonic() - began < wire.MAX_WAIT_SECONDS / 2  # so long the agent keeps a quiet answer open


def test_what_a_wait_dropped_is_told_to_who_reads_afterwards(spawn: Any) -> None:
    def begin() -> Process:
        process: Process = spawn("sh", script("echo first; read line; seq 1000"), has_stdin=True)
        assert next(process.lines()).text == "first"
        process.write("go\n")
        process.wait()
        return process

    count = len("".join(f"{number}\n" for number in range(1, 1001)))
    assert begin().communicate() == ExecResult(0, b"", b"", truncated=True, either_missing=count)
    assert list(begin()) == [Chunk("gap", b"", 6, count)]
    assert [line.stream for line in begin().lines()] == ["gap"]


def test_a_wait_reads_on_and_drops_what_nobody_reads(spawn: Any) -> None:
    process = spawn("sh", script("head -c 30000000 /dev/zero; exit 5"))
    assert process.wait() == 5
    assert process.offset == 30_000_000


def test_a_wait_of_no_time_sees_an_end_that_is_there(spawn: Any) -> None:
    process = spawn("sh", script("echo out; exit 3"))
    end = time.monotonic() + 20
    while process.poll() is None:
        assert time.monotonic() < end
    again = spawn("sleep", ["60"])
    with pytest.raises(errors.WaitTimeoutError):
        again.wait(0)
    assert process.wait(0) == 3
    assert b"".join(chunk.data for chunk in process) == b"out\n"


def test_a_wait_that_is_over_loses_nothing(spawn: Any) -> None:
    process = spawn("sh", script("echo a; read line; echo b"), has_stdin=True)
    chunks = process.chunks()
    assert next(chunks).data == b"a\n"
    with pytest.raises(errors.WaitTimeoutError):
        process.wait(0.1)
    process.write("go\n")
    assert [chunk.data for chunk in chunks] == [b"b\n"]


def test_a_wait_in_another_thread_leaves_the_output_to_who_iterates(spawn: Any) -> None:
    process = spawn("sh", script("echo 0; read line; seq 1000; exit 4"), has_stdin=True)
    waited: list[int] = []
    began = threading.Event()
    chunks: list[Chunk] = []

    is_read = threading.Event()

    def read() -> None:
        for chunk in process:
            is_read.set()
            chunks.append(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    assert is_read.wait(10)

    def wait() -> None:
        began.set()
        waited.append(process.wait())

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert began.wait(10)
    process.write("go\n")
    for thread in (reader, waiter):
        thread.join(20)
        assert not thread.is_alive()
    assert waited == [4]
    assert b"".join(chunk.data for chunk in chunks).split() == [b"%d" % number for number in range(1001)]


def test_memory_stays_flat_while_output_without_end_is_read(spawn: Any) -> None:
    process = spawn("yes")
    before = resident_kib()
    for chunk in process:
        if chunk.offset > 60_000_000:
            break
    assert resident_kib() - before < 20_000
    assert process.kill()
    assert process.wait() == 137
    assert process.signal_name == "SIGKILL"


def resident_kib() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


def test_a_poll_asks_whether_it_has_ended(spawn: Any) -> None:
    process = spawn("sh", script("read line; exit 9"), has_stdin=True)
    assert process.poll() is None
    process.write("go\n")
    for _ in range(1000):
        if process.poll() is not None:
            break
        time.sleep(0.01)
    assert process.poll() == 9
    assert process.wait() == 9


def test_communicate_feeds_reads_and_tells_the_end(spawn: Any) -> None:
    data = os.urandom(3_000_000)
    result = spawn("cat", has_stdin=True).communicate(data)
    assert result == ExecResult(0, data, b"")
    assert spawn("cat", has_stdin=True).communicate() == ExecResult(0, b"", b"")
    limited = spawn("sh", script("head -c 1000 /dev/zero; exit 1")).communicate(output_limit=100)
    assert (limited.exit_code, len(limited.stdout), limited.stdout_missing) == (1, 100, Missing(50, 900))


def test_communicate_with_a_source_that_fails_leaves_it_running(spawn: Any) -> None:
    def broken() -> Iterator[bytes]:
        yield b"some"
        raise ValueError("boom")

    process = spawn("cat", has_stdin=True)
    with pytest.raises(ValueError, match="boom"):
        process.communicate(broken())
    assert process.poll() is None
    assert process.communicate(b" more").stdout.endswith(b" more")


def test_communicate_has_nobody_to_give_data_to_without_an_input(spawn: Any) -> None:
    with pytest.raises(errors.NoInputError):
        spawn("cat").communicate(b"data")


def test_communicate_that_takes_too_long_leaves_it_running(spawn: Any) -> None:
    process = spawn("sleep", ["60"])
    with pytest.raises(errors.WaitTimeoutError):
        process.communicate(timeout=0.1)
    assert process.poll() is None


# -- input, signals, terminal ------------------------------------------------------------------------------------------


def test_input_has_an_end(spawn: Any) -> None:
    process = spawn("cat", has_stdin=True)
    assert process.write(b"abc") == 3
    process.close_stdin()
    assert [chunk.data for chunk in process] == [b"abc"]
    assert process.write(b"more") == 0


def test_without_input_a_write_says_so(spawn: Any) -> None:
    with pytest.raises(errors.NoInputError):
        spawn("sleep", ["5"]).write(b"x")


def test_signals_reach_it_by_any_of_their_names(spawn: Any) -> None:
    process = spawn("sh", script("trap 'echo caught; exit 8' INT; echo ready; while :; do sleep 0.05; done"))
    chunks = iter(process)
    next(chunks)
    assert process.signal(2)
    assert [chunk.data for chunk in chunks] == [b"caught\n"]
    assert process.wait() == 8
    assert not process.terminate()


def test_a_terminal_has_a_size_that_changes(spawn: Any) -> None:
    process = spawn("sh", script("stty size; read line; stty size"), pty=(80, 24))
    assert process.is_pty
    lines = process.lines()
    assert next(lines).text == "24 80"
    process.resize(132, 43)
    process.write("\n")
    assert [line.text for line in lines][-1] == "43 132"
    with pytest.raises(errors.NoTerminalError):
        spawn("sleep", ["5"]).resize(80, 24)
    with pytest.raises(errors.UsageError):
        process.resize(0, 24)


# -- blocks ------------------------------------------------------------------------------------------------------------


def test_a_block_kills_what_still_runs_when_it_ends(spawn: Any, client: AgentClient) -> None:
    with spawn("sleep", ["60"]) as process:
        pass
    with pytest.raises(errors.ProcessNotFoundError):
        processes.fetch(client, process.id)


def test_how_it_ended_is_known_after_the_block(spawn: Any) -> None:
    with spawn("sh", script("echo a; sleep 60")) as process:
        assert next(process.lines()).text == "a"
    assert (process.exit_code, process.signal_name, process.poll(), process.wait()) == (137, "SIGKILL", 137, 137)
    assert "exit code 137" in repr(process)
    assert list(process) == []
    with spawn("sh", script("echo last words; exit 3")) as process:
        while spawn("sh", script(f"kill -0 {process.pid} 2>/dev/null")).wait() == 0:
            time.sleep(0.01)
    assert (process.exit_code, process.wait()) == (3, 3)
    assert list(process) == [Chunk("gap", b"", 0, 11)]


def test_a_block_leaves_what_was_detached_or_has_ended(spawn: Any, client: AgentClient) -> None:
    with spawn("sleep", ["60"]) as detached:
        detached.detach()
    assert processes.fetch(client, detached.id).is_running
    with spawn("true") as ended:
        ended.wait()
    assert processes.fetch(client, ended.id).exit_code == 0


def test_a_block_that_leaves_it_running_reads_no_more(spawn: Any) -> None:
    with spawn("sh", script("echo a; sleep 60")) as detached:
        detached.detach()
        assert next(detached.chunks()).data == b"a\n"
        reading = sockets()
    assert sockets() < reading


def test_what_nobody_refers_to_any_more_reads_no_more(spawn: Any, client: AgentClient) -> None:
    info = spawn("sh", script("echo a; sleep 60"))
    process = Process(processes.fetch(client, info.id), agent=client, awake=lambda deadline: client)
    gc.disable()  # it may take its time
    try:
        chunks = process.chunks()
        assert next(chunks).data == b"a\n"
        reading = sockets()
        with pytest.warns(ResourceWarning, match="unclosed"):  # as of a file that nobody closed
            del process, chunks
        assert sockets() < reading
    finally:
        gc.enable()


def test_an_error_in_a_block_is_not_replaced_by_that_of_the_kill(connect_agent: Any) -> None:
    peer = ProcessPeer()
    refusal = json_answer(500, {"detail": "no", "code": "internal"})
    with ScriptedServer(refusal) as server, pytest.raises(ZeroDivisionError), scripted(peer, connect_agent(server)):
        raise ZeroDivisionError
    with ScriptedServer(refusal) as server, pytest.raises(errors.AgentError), scripted(peer, connect_agent(server)):
        pass


def test_a_forked_child_that_leaves_the_block_kills_nothing(spawn: Any) -> None:
    with spawn("sleep", ["60"]) as process:
        pid = os.fork()
        if pid == 0:
            try:
                process.__exit__(None, None, None)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        assert process.poll() is None


def test_a_forked_child_and_its_parent_both_read_all(spawn: Any) -> None:
    process = spawn("sh", script("echo begin; while [ ! -e go ]; do sleep 0.02; done; rm go; seq 20000"))
    reading = iter(process)
    assert next(reading).data == b"begin\n"
    expected = b"".join(b"%d\n" % number for number in range(1, 20001))
    pid = os.fork()
    if pid == 0:
        try:
            is_whole = b"".join(chunk.data for chunk in process) == expected
        finally:
            os._exit(0 if is_whole else 1)
    spawn("touch", ["go"]).wait()
    assert b"".join(chunk.data for chunk in reading) == expected
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# -- suspension --------------------------------------------------------------------------------------------------------


def test_a_watch_is_told_of_sleep_and_a_size_that_was_wanted_meanwhile_arrives_after_it(
    connect_agent: Any, fake_clock: FakeClock
) -> None:
    peer = ProcessPeer(("stdout", b"abc"), end=DONE)
    peer.answers = [len(HEAD) + 20]
    states = States("SUSPENDED", "SUSPENDED", "SUSPENDED", "RUNNING")
    with ScriptedServer(peer, repeat_last=True) as server:
        process = scripted(peer, connect_agent(server, states=states))
        told: list[str | None] = []

        def watch(state: str | None) -> None:
            told.append(state)
            if state is not None:
                fake_clock.advance(60)
                process.resize(100, 30)

        process.state_watch = watch
        assert [chunk.data for chunk in process] == [b"abc"]
    assert told == ["SUSPENDED", None]
    assert peer.sizes == [{"cols": 100, "rows": 30}]
    assert [request.target for request in server.requests] == [
        "/v1/processes/p/output?offset=0&wait=25",
        "/v1/processes/p/resize",
        "/v1/processes/p/output?offset=0&wait=25",
    ]


def test_a_poll_a_size_and_a_hold_let_a_sandbox_sleep(connect_agent: Any) -> None:
    with ScriptedServer() as server:
        process = scripted(ProcessPeer(), connect_agent(server, states=States("SUSPENDED")))
        assert process.poll() is None
        process.resize(80, 24)
        process.hold()
    assert server.requests == []


def test_a_hold_tells_of_a_reader_who_does_not_ask_just_now(connect_agent: Any) -> None:
    peer = ProcessPeer(("stdout", b"abc"), ("stderr", b"d"), end=DONE)
    with ScriptedServer(peer, repeat_last=True) as server:
        process = scripted(peer, connect_agent(server))
        assert next(iter(process)).data == b"abc"
        process.hold()
        with process._reading:
            process.hold()  # somebody asks
        assert process.wait() == 3
        process.hold()
    held = [request.target for request in server.requests if "limit=0" in request.target]
    assert held == ["/v1/processes/p/output?offset=3&limit=0"]


def test_polls_in_a_row_ask_now_and_then_and_look_each_time(connect_agent: Any, fake_clock: FakeClock) -> None:
    peer, states = ProcessPeer(), States("RUNNING")
    looks: list[int] = []
    peer.before = lambda received: looks.append(states.looks)
    with ScriptedServer(peer, repeat_last=True) as server:
        process = scripted(peer, connect_agent(server, states=states))
        for _ in range(2000):
            assert process.poll() is None
            fake_clock.advance(0.01)
    assert 20 <= len(looks) <= 45
    assert looks == list(range(1, len(looks) + 1))


def test_a_poll_after_a_signal_asks_at_once(connect_agent: Any) -> None:
    peer = ProcessPeer()
    with ScriptedServer(peer, repeat_last=True) as server:
        process = scripted(peer, connect_agent(server, states=States("RUNNING")))
        for _ in range(50):
            assert process.poll() is None
        process.kill()
        peer.end = {"exit_code": 137, "signal": "SIGKILL", "timed_out": False}
        assert process.poll() == 137
    assert len(server.requests) == 3


def test_a_poll_that_is_cut_by_a_suspension_is_none(connect_agent: Any) -> None:
    with ScriptedServer(CUT) as server:
        assert scripted(ProcessPeer(), connect_agent(server, states=States("RUNNING", "SUSPENDED"))).poll() is None
    with ScriptedServer(CUT) as server, pytest.raises(errors.ConnectionLostError):
        scripted(ProcessPeer(), connect_agent(server, states=States("RUNNING"))).poll()


def test_a_process_ends_with_its_microvm(connect_agent: Any, fake_clock: FakeClock) -> None:
    peer = ProcessPeer(("stdout", b"abc"), end=DONE)
    peer.answers = [len(HEAD) + 20]
    with ScriptedServer(peer, repeat_last=True) as server:
        process = scripted(peer, connect_agent(server, states=States("TERMINATED")))
        with pytest.raises(errors.MicroVMEndedError):
            process.wait()
        fake_clock.advance(60)
        with pytest.raises(errors.MicroVMEndedError):
            process.poll()
    assert process.exit_code is None


def test_a_write_wakes_whoever_waits_for_the_sandbox(connect_agent: Any) -> None:
    peer = ProcessPeer()
    with ScriptedServer(peer, repeat_last=True) as server:
        process = scripted(peer, connect_agent(server))
        process.write(b"x")
    assert process._follower.recovery._stirred.is_set()


def test_all_who_are_attached_to_a_process_may_write_to_it(connect_agent: Any) -> None:
    peer = ProcessPeer()
    with ScriptedServer(peer, repeat_last=True) as server:
        one, other = (scripted(peer, connect_agent(server)) for _ in range(2))
        assert [one.write(b"first "), other.write(b"second "), one.write(b"third")] == [6, 7, 5]
    assert peer.input == b"first second third"


def test_an_offset_goes_on_from_there(connect_agent: Any) -> None:
    peer = ProcessPeer(("stdout", b"abcdef"), end=DONE)
    with ScriptedServer(peer, repeat_last=True) as server:
        assert list(scripted(peer, connect_agent(server), offset=4)) == [Chunk("stdout", b"ef", 4)]


def test_what_it_shows_of_itself_holds_no_output_and_no_secret(connect_agent: Any) -> None:
    peer = ProcessPeer(end=DONE)
    with ScriptedServer(peer, repeat_last=True) as server:
        process = scripted(peer, connect_agent(server))
        assert repr(process) == "Process('p', 'x', running)"
        process.wait()
        assert repr(process) == "Process('p', 'x', exit code 3)"
    assert all(isinstance(request, Received) for request in server.requests)
