"""Processes over HTTP, with an agent as a process of its own."""

from __future__ import annotations

import hashlib
import http.client
import itertools
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guest.agentd import frames, process_routes, wire
from guest.agentd.errors import RequestError
from tests.support import skips
from tests.support.agent import Agent, Reply
from tests.support.paths import find_python
from tests.support.processes import wait_until

_NUMBERS = itertools.count()


class Told:
    """An answer of output, decoded."""

    def __init__(self, data: bytes) -> None:
        self.process: dict[str, Any] = {}
        self.end: dict[str, Any] | None = None
        output: dict[int, list[bytes]] = {frames.STDOUT: [], frames.STDERR: []}
        self.gaps: list[int] = []
        self.kinds: list[int] = []
        decoder = frames.Decoder()
        for kind, payload in decoder.feed(data):
            self.kinds.append(kind)
            if kind == frames.PROCESS:
                self.process = json.loads(payload)
            elif kind == frames.EXIT:
                self.end = json.loads(payload)
            elif kind == frames.GAP:
                self.gaps.append(frames.parse_gap(payload))
            else:
                output[kind].append(payload)
        self.stdout, self.stderr = b"".join(output[frames.STDOUT]), b"".join(output[frames.STDERR])
        assert decoder.is_between_frames

    @property
    def exit_code(self) -> int:
        assert self.end is not None, "it has not ended"
        code: int = self.end["exit_code"]
        return code


def new_id() -> str:
    return f"id-{next(_NUMBERS)}"


def start(agent: Agent, *argv: str, wait: float | None = None, **members: Any) -> Reply:
    """Start a process; ``id`` is a new one unless it is given."""
    document = {"id": new_id(), **({"command": argv[0], "args": list(argv[1:])} if argv else {}), **members}
    query = "" if wait is None else f"?wait={wait}"
    return agent.request("POST", wire.PROCESSES_PATH + query, json.dumps(document).encode())


def run(agent: Agent, *argv: str, **members: Any) -> Told:
    """Start a process and follow it."""
    reply = start(agent, *argv, wait=25, **members)
    assert reply.status == 200, reply.body
    return Told(reply.body)


def begin(agent: Agent, *argv: str, **members: Any) -> str:
    """Start a process; its id."""
    reply = start(agent, *argv, **members)
    assert reply.status == 201, reply.body
    name: str = reply.json()["id"]
    return name


def output(agent: Agent, name: str, query: str = "wait=25") -> Told:
    reply = agent.request("GET", f"{wire.PROCESSES_PATH}/{name}/output?{query}")
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"] == wire.FRAMES_TYPE
    return Told(reply.body)


def follow(agent: Agent, name: str, offset: int = 0) -> Told:
    """All output from ``offset`` to the end, over as many answers as it takes."""
    data = b""
    while True:
        reply = agent.request("GET", f"{wire.PROCESSES_PATH}/{name}/output?wait=25&offset={offset}")
        assert reply.status == 200, reply.body
        told = Told(reply.body)
        offset += len(told.stdout) + len(told.stderr) + sum(told.gaps)
        data += reply.body
        if told.end is not None:
            return Told(data)


def feed(agent: Agent, name: str, body: bytes, query: str) -> Reply:
    return agent.request("POST", f"{wire.PROCESSES_PATH}/{name}/stdin?{query}", body)


def tell(agent: Agent, name: str) -> dict[str, Any]:
    reply = agent.request("GET", f"{wire.PROCESSES_PATH}/{name}")
    assert reply.status == 200, reply.body
    document: dict[str, Any] = reply.json()
    return document


def kill(agent: Agent, name: str) -> None:
    assert agent.request("DELETE", f"{wire.PROCESSES_PATH}/{name}").status == 200


def assert_refused(reply: Reply, status: int, code: str) -> str:
    document = reply.json()
    assert (reply.status, document["code"]) == (status, code), document
    detail: str = document["detail"]
    return detail


# -- start


def test_one_request_runs_a_command_from_start_to_exit(shared_agent: Agent) -> None:
    reply = start(shared_agent, "sh", "-c", "echo out; echo err >&2; exit 3", wait=25, id="whole")
    assert (reply.status, reply.headers["content-type"]) == (200, wire.FRAMES_TYPE)
    told = Told(reply.body)
    assert (told.kinds[0], told.kinds[-1]) == (frames.PROCESS, frames.EXIT)
    assert (told.stdout, told.stderr) == (b"out\n", b"err\n")
    assert told.end == {"exit_code": 3, "signal": None, "timed_out": False, "offset": 8}
    assert (told.process["id"], told.process["command"][0]) == ("whole", "sh")


def test_without_a_wait_the_answer_is_the_document(shared_agent: Agent) -> None:
    reply = start(shared_agent, "sleep", "77", id="first")
    document = reply.json()
    assert (reply.status, document["state"]) == (201, "running")
    assert document == tell(shared_agent, "first")
    again = start(shared_agent, "no-such-program", id="first", timeout=-1)
    assert (again.status, again.json()["pid"]) == (200, document["pid"])
    kill(shared_agent, "first")


def test_a_repeated_start_attaches_where_it_says(shared_agent: Agent) -> None:
    name = begin(shared_agent, "sh", "-c", "printf abcdef; read line; printf ghi", stdin="pipe")
    wait_until(lambda: tell(shared_agent, name)["offset"] == 6)
    feed(shared_agent, name, b"", "offset=0&eof=1")
    document = json.dumps({"id": name, "command": "false"}).encode()
    told = Told(shared_agent.request("POST", wire.PROCESSES_PATH + "?wait=25&offset=4", document).body)
    assert (told.stdout, told.exit_code) == (b"efghi", 0)
    assert_refused(
        shared_agent.request("POST", wire.PROCESSES_PATH + "?wait=25&offset=99", document), 400, "bad_argument"
    )


@pytest.mark.parametrize(
    ("members", "status", "code"),
    [
        ({}, 400, "bad_argument"),
        ({"command": "true", "id": None}, 400, "bad_argument"),
        ({"command": "true", "id": "a b"}, 400, "bad_argument"),
        ({"command": "true", "id": "x" * 65}, 400, "bad_argument"),
        ({"command": "true", "retain": "all"}, 400, "bad_argument"),
        ({"command": "true", "output_limit": -1}, 400, "bad_argument"),
        ({"command": "true", "output_limit": wire.MAX_OUTPUT_BYTES + 1}, 400, "bad_argument"),
        ({"command": "no-such-program"}, 400, "command_not_found"),
        ({"command": "/etc/passwd"}, 400, "not_executable"),
        ({"command": "true", "cwd": "/no/such"}, 400, "cwd_not_found"),
        ({"command": "echo", "args": ["x" * 200_000]}, 400, "argument_too_long"),
        ({"command": "true", "user": "nobody-of-that-name"}, 400, "no_such_user"),
        ({"command": "no-such-program", "pty": {"cols": 80, "rows": 24}}, 400, "command_not_found"),
    ],
    ids=range(13),
)
def test_what_cannot_be_started_is_refused_before_anything_runs(
    shared_agent: Agent, members: dict[str, Any], status: int, code: str
) -> None:
    before = len(shared_agent.request("GET", wire.PROCESSES_PATH).json()["processes"])
    assert_refused(start(shared_agent, wait=25, **members), status, code)
    assert len(shared_agent.request("GET", wire.PROCESSES_PATH).json()["processes"]) == before


@pytest.mark.parametrize("query", ["wait=x", "wait=-1", "wait=1&wait=1", "wait=1&offset=x"])
def test_a_query_that_cannot_be_used_starts_nothing(shared_agent: Agent, query: str) -> None:
    name = new_id()
    reply = shared_agent.request(
        "POST", f"{wire.PROCESSES_PATH}?{query}", json.dumps({"id": name, "command": "true"}).encode()
    )
    assert_refused(reply, 400, "bad_argument")
    assert_refused(shared_agent.request("GET", f"{wire.PROCESSES_PATH}/{name}"), 404, "no_such_process")


def test_before_a_suspension_nothing_starts(agent: Agent) -> None:
    name = begin(agent, "sleep", "77")
    begin_time = time.monotonic()
    assert agent.hook("suspend").status == 200
    assert time.monotonic() - begin_time < 4  # it did not wait for the process
    assert_refused(start(agent, "true"), 503, "suspending")
    assert start(agent, "true", id=name).status == 200
    agent.hook("resume")
    assert run(agent, "true").exit_code == 0


def test_a_line_is_run_by_a_login_shell(shared_agent: Agent) -> None:
    told = run(shared_agent, shell="printf '%s' \"$0\"; shopt -q login_shell && echo ' login'")
    assert told.stdout == b"bash login\n"


# -- output


def test_a_quiet_answer_ends_and_the_next_goes_on_where_it_ended(shared_agent: Agent) -> None:
    name = begin(shared_agent, "sh", "-c", "echo one; read line; echo two", stdin="pipe")
    wait_until(lambda: tell(shared_agent, name)["offset"] == 4)
    told = output(shared_agent, name, "wait=0.05")
    assert (told.stdout, told.end) == (b"one\n", None)
    assert output(shared_agent, name, "offset=4").kinds == [frames.PROCESS]
    feed(shared_agent, name, b"\n", "offset=0")
    assert follow(shared_agent, name, 4).stdout == b"two\n"
    assert follow(shared_agent, name).stdout == b"one\ntwo\n"


def test_an_answer_has_no_more_output_than_was_asked_for(shared_agent: Agent) -> None:
    name = begin(shared_agent, "sh", "-c", "printf abcdef; exec sleep 60")
    path = f"/v1/processes/{name}/output?offset=0&wait=20"
    assert shared_agent.request("GET", f"{path}&limit=3").body.endswith(frames.encode(frames.STDOUT, b"abc"))
    assert shared_agent.request("GET", f"{path}&limit=0").body.endswith(b"}")  # of the document
    assert shared_agent.request("GET", f"{path}&limit=-1").status == 400


def test_an_offset_beyond_the_end_is_refused(shared_agent: Agent) -> None:
    name = begin(shared_agent, "true")
    reply = shared_agent.request("GET", f"{wire.PROCESSES_PATH}/{name}/output?offset=1")
    assert_refused(reply, 400, "bad_argument")


def test_60_megabytes_arrive_whole_and_cost_the_agent_little(agent: Agent) -> None:
    name = begin(agent, "sh", "-c", "yes 0123456789 | head -c 60000000")
    digest, offset = hashlib.sha256(), 0
    while True:
        told = output(agent, name, f"wait=25&offset={offset}")
        digest.update(told.stdout)
        offset += len(told.stdout)
        if told.end is not None:
            break
    assert (offset, told.gaps) == (60_000_000, [])
    assert digest.digest() == hashlib.sha256((b"0123456789\n" * (60_000_000 // 11 + 1))[:60_000_000]).digest()
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0])
    assert peak < 48 * 1024


def test_a_background_process_keeps_head_and_tail_and_tells_the_gap(shared_agent: Agent) -> None:
    name = begin(shared_agent, "seq", "200000", retain="drop", output_limit=1000)
    wait_until(lambda: tell(shared_agent, name)["state"] == "ended")
    told = output(shared_agent, name)
    whole = b"".join(b"%d\n" % number for number in range(1, 200001))
    assert told.stdout == whole[:500] + whole[-500:]
    assert told.gaps == [len(whole) - 1000]
    assert told.kinds == [frames.PROCESS, frames.STDOUT, frames.GAP, frames.STDOUT, frames.EXIT]
    assert told.end is not None
    assert told.end["offset"] == len(whole)


def test_the_first_byte_comes_at_once(shared_agent: Agent) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", shared_agent.port, timeout=20)
    document = {"id": new_id(), "command": "sh", "args": ["-c", "echo now; sleep 5"]}
    connection.request("POST", wire.PROCESSES_PATH + "?wait=25", json.dumps(document))
    response = connection.getresponse()
    begin_time = time.monotonic()
    data = b""
    while b"now" not in data:
        data += response.read1(65536)
    assert time.monotonic() - begin_time < 2
    connection.close()
    kill(shared_agent, document["id"])  # type: ignore[arg-type]


def test_a_job_whose_client_is_gone_gives_every_byte_to_the_next(shared_agent: Agent) -> None:
    document = json.dumps(
        {"id": new_id(), "command": "sh", "args": ["-c", "for i in $(seq 500); do echo $i; done; exit 9"]}
    )
    with shared_agent.dial() as connection:
        head = f"POST {wire.PROCESSES_PATH}?wait=25 HTTP/1.1\r\nContent-Length: {len(document)}\r\n\r\n{document}"
        connection.sendall(head.encode())
        assert connection.recv(10)
    told = follow(shared_agent, json.loads(document)["id"])
    assert told.stdout == b"".join(b"%d\n" % number for number in range(1, 501))
    assert told.exit_code == 9


def test_abandoned_streams_leave_no_connection_and_no_thread(agent: Agent) -> None:
    name = begin(agent, "sleep", "77")
    output(agent, name, "wait=0")

    def count() -> tuple[int, int]:
        process = Path(f"/proc/{agent.process.pid}")
        return len(os.listdir(process / "fd")), len(os.listdir(process / "task"))

    before = count()
    for _ in range(50):
        with agent.dial() as connection:
            connection.sendall(f"GET {wire.PROCESSES_PATH}/{name}/output?wait=25 HTTP/1.1\r\n\r\n".encode())
            assert connection.recv(100)
    wait_until(lambda: count()[0] <= before[0])
    assert count()[1] <= before[1] + 8


# -- input


def test_input_is_streamed_and_ends(shared_agent: Agent) -> None:
    data = os.urandom(3_000_000)
    name = begin(shared_agent, "sha256sum", stdin="pipe")
    offset = 0
    while offset < len(data):
        body = data[offset : offset + wire.MAX_STDIN_BYTES]
        is_last = offset + len(body) == len(data)
        reply = feed(shared_agent, name, body, f"offset={offset}&eof={int(is_last)}").json()
        assert reply == {"offset": offset + len(body), "closed": is_last}
        offset = reply["offset"]
    assert follow(shared_agent, name).stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_a_repeated_body_is_written_once_and_a_gap_is_refused(shared_agent: Agent) -> None:
    name = begin(shared_agent, "cat", stdin="pipe")
    for _ in range(3):
        assert feed(shared_agent, name, b"abc", "offset=0").json()["offset"] == 3
    assert_refused(feed(shared_agent, name, b"x", "offset=4"), 409, "stdin_gap")
    feed(shared_agent, name, b"cde", "offset=2&eof=1")
    assert follow(shared_agent, name).stdout == b"abcde"


def test_a_process_that_reads_no_more_is_told(shared_agent: Agent) -> None:
    name = begin(shared_agent, "head", "-c", "3", stdin="pipe")
    feed(shared_agent, name, b"abcdef", "offset=0")
    wait_until(lambda: tell(shared_agent, name)["state"] == "ended")
    reply = feed(shared_agent, name, b"more", "offset=6").json()
    assert reply["closed"] is True
    assert follow(shared_agent, name).stdout == b"abc"


def test_a_process_that_does_not_read_is_waited_for_in_vain(shared_agent: Agent) -> None:
    name = begin(shared_agent, "sleep", "77", stdin="pipe")
    reply = feed(shared_agent, name, bytes(1_000_000), "offset=0&wait=0.05").json()
    assert reply["closed"] is False
    assert 0 < reply["offset"] < 1_000_000
    kill(shared_agent, name)


def test_without_an_input_there_is_nothing_to_write_to(shared_agent: Agent) -> None:
    name = begin(shared_agent, "cat")
    assert_refused(feed(shared_agent, name, b"x", "offset=0"), 409, "no_stdin")
    assert follow(shared_agent, name).stdout == b""


def test_a_body_of_input_is_bounded(shared_agent: Agent) -> None:
    name = begin(shared_agent, "cat", stdin="pipe")
    assert_refused(feed(shared_agent, name, bytes(wire.MAX_STDIN_BYTES + 1), "offset=0"), 413, "too_large")
    kill(shared_agent, name)


# -- signals, terminals, the end


@pytest.mark.parametrize("name", ["INT", "SIGINT", "sigint", 2])
def test_a_signal_is_delivered_by_name_or_number(shared_agent: Agent, name: object) -> None:
    process = begin(shared_agent, "sleep", "77")
    path = f"{wire.PROCESSES_PATH}/{process}/signal"
    assert shared_agent.post(path, {"signal": name}).json() == {"delivered": True}
    told = follow(shared_agent, process)
    assert told.end is not None
    assert (told.exit_code, told.end["signal"]) == (130, "SIGINT")
    assert shared_agent.post(path, {"signal": name}).json() == {"delivered": False}


@pytest.mark.parametrize("value", [None, "", "NOSUCH", "SIG", "SIG_DFL", 0, -1, 65, True, 1.0, [2], "RTMIN+99"])
def test_what_is_no_signal_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match="signal: must be"):
        process_routes.parse_signal(value)


def test_real_time_signals_have_names_too() -> None:
    assert process_routes.parse_signal("SIGRTMIN+1") == signal.SIGRTMIN + 1
    assert process_routes.parse_signal("RTMAX") == signal.SIGRTMAX
    assert process_routes.parse_signal(64) == 64


def test_a_terminal_is_driven_over_http(shared_agent: Agent) -> None:
    name = begin(shared_agent, "sh", "-c", "stty size; read line; stty size; echo $line", pty={"cols": 80, "rows": 24})
    wait_until(lambda: tell(shared_agent, name)["offset"] == 7)
    assert shared_agent.post(f"{wire.PROCESSES_PATH}/{name}/resize", {"cols": 99, "rows": 33}).json() == {}
    assert feed(shared_agent, name, b"hello\n", "offset=0").json()["offset"] == 6  # it may have ended by then
    told = follow(shared_agent, name)
    assert told.stdout == b"24 80\r\nhello\r\n33 99\r\nhello\r\n"
    assert told.process["pty"] is True
    plain = begin(shared_agent, "sleep", "77")
    assert_refused(shared_agent.post(f"{wire.PROCESSES_PATH}/{plain}/resize", {"cols": 1, "rows": 1}), 409, "no_pty")
    kill(shared_agent, plain)


def test_a_size_that_is_none_is_refused(shared_agent: Agent) -> None:
    name = begin(shared_agent, "sleep", "77", pty={"cols": 80, "rows": 24})
    assert_refused(shared_agent.post(f"{wire.PROCESSES_PATH}/{name}/resize", {"cols": 0}), 400, "bad_argument")
    kill(shared_agent, name)


def test_a_process_that_is_deleted_after_its_end_ended_as_it_did(shared_agent: Agent) -> None:
    name = begin(shared_agent, "sh", "-c", "echo last words; exit 3")
    wait_until(lambda: tell(shared_agent, name)["state"] == "ended")
    last = shared_agent.request("DELETE", f"{wire.PROCESSES_PATH}/{name}").json()
    assert (last["exit_code"], last["signal"], last["offset"]) == (3, None, 11)


def test_a_process_that_is_deleted_is_killed_and_unknown(shared_agent: Agent) -> None:
    name = begin(shared_agent, "sleep", "77")
    pid = tell(shared_agent, name)["pid"]
    last = shared_agent.request("DELETE", f"{wire.PROCESSES_PATH}/{name}").json()
    assert (last["id"], last["state"], last["exit_code"], last["signal"]) == (name, "ended", 137, "SIGKILL")
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    for method, suffix in [("GET", ""), ("DELETE", ""), ("GET", "/output"), ("POST", "/stdin"), ("POST", "/signal")]:
        reply = shared_agent.request(method, f"{wire.PROCESSES_PATH}/{name}{suffix}", b"" if method == "POST" else None)
        assert_refused(reply, 404, "no_such_process")
    assert_refused(start(shared_agent, "true", id=name), 409, "already_started")


def test_a_timeout_ends_the_process_and_is_told(shared_agent: Agent) -> None:
    told = run(shared_agent, "sh", "-c", "echo a; sleep 77", timeout=0.3)
    assert told.end == {"exit_code": 143, "signal": "SIGTERM", "timed_out": True, "offset": 2}
    assert told.stdout == b"a\n"


def test_the_list_has_them_oldest_first(agent: Agent) -> None:
    names = [begin(agent, "true"), begin(agent, "sleep", "77")]
    wait_until(lambda: tell(agent, names[0])["state"] == "ended")
    documents = agent.request("GET", wire.PROCESSES_PATH).json()["processes"]
    assert [(one["id"], one["state"]) for one in documents] == list(zip(names, ["ended", "running"], strict=True))


def test_when_the_agent_ends_its_processes_do(agent: Agent) -> None:
    pid = tell(agent, begin(agent, "sleep", "77"))["pid"]
    agent.process.terminate()
    agent.process.wait(10)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


# -- load


def test_a_flood_of_output_does_not_starve_others(agent: Agent) -> None:
    floods = [begin(agent, "yes", retain="drop", output_limit=100_000) for _ in range(2)]
    waits = []
    for _ in range(50):
        begin_time = time.monotonic()
        assert agent.request("GET", "/healthz").status == 200
        waits.append(time.monotonic() - begin_time)
    assert run(agent, "echo", "x").stdout == b"x\n"
    assert sorted(waits)[25] < 1.0
    for name in floods:
        kill(agent, name)


def test_many_at_once_leave_nothing_behind(agent: Agent) -> None:
    def descriptors() -> int:
        return len(os.listdir(f"/proc/{agent.process.pid}/fd"))

    run(agent, "true")
    before = descriptors()
    with ThreadPoolExecutor(64) as pool:
        told = list(pool.map(lambda number: run(agent, "echo", str(number)).stdout, range(300)))
    assert told == [b"%d\n" % number for number in range(300)]
    wait_until(lambda: descriptors() <= before)
    children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text()
    assert children == ""


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.13"])
def test_every_python_that_an_image_may_have_serves_processes(start_agent: Callable[..., Agent], version: str) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"{skips.OTHER_PYTHON}: {version}")
    agent = start_agent(python=python)
    assert run(agent, "sh", "-c", "head -c 3000000 /dev/zero; exit 3", timeout=20).exit_code == 3
    assert run(agent, "tty", pty={"cols": 80, "rows": 24}).stdout.startswith(b"/dev/pts/")
    name = begin(agent, "cat", stdin="pipe", output_limit=10)
    feed(agent, name, bytes(300_000), "offset=0&eof=1")
    assert len(follow(agent, name).stdout) == 300_000
    assert follow(agent, name, 200_000).exit_code == 0
    assert follow(agent, name).gaps == [199_995]
    assert run(agent, "sleep", "77", timeout=0.1).exit_code == 143
    assert agent.log() == ""


# -- whatever comes

MEMBERS = ["command", "args", "shell", "cwd", "env", "user", "stdin", "pty", "output_limit", "rlimits", "retain"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(
    method=st.sampled_from(["GET", "POST", "DELETE", "HEAD"]),
    name=st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="?#/"), max_size=20),
    suffix=st.sampled_from(["", "/", "/output", "/stdin", "/signal", "/resize", "/x", "/output/x"]),
    query=st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"), max_size=20),
    body=st.binary(max_size=50),
)
def test_whatever_is_asked_is_answered(
    shared_agent: Agent, method: str, name: str, suffix: str, query: str, body: bytes
) -> None:
    reply = shared_agent.request(method, f"{wire.PROCESSES_PATH}/{name}{suffix}?{query}", body)
    assert reply.status in {400, 404, 405, 409}


@settings(max_examples=60, deadline=None)
@given(members=st.dictionaries(st.sampled_from(MEMBERS), VALUES))
def test_whatever_document_comes_is_started_or_refused(shared_agent: Agent, members: dict[str, Any]) -> None:
    members = {**members, "timeout": 1}
    reply = start(shared_agent, **members)
    assert reply.status in {201, 400, 503}, reply.body
    if reply.status == 201:
        kill(shared_agent, reply.json()["id"])


@pytest.fixture
def client(shared_agent: Agent) -> Iterator[socket.socket]:
    with shared_agent.dial() as connection:
        yield connection


def test_many_requests_on_one_connection_mix_streams_and_documents(client: socket.socket) -> None:
    document = json.dumps({"id": new_id(), "command": "echo", "args": ["hi"]}).encode()
    head = b"POST /v1/processes?wait=25 HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(document)
    client.sendall((head + document + b"GET /healthz HTTP/1.1\r\n\r\n") * 3)
    data = b""
    while data.count(b'"uptime"') < 3:
        piece = client.recv(65536)
        assert piece
        data += piece
    assert data.count(b"hi\n") == 3
    assert data.count(b"\r\n0\r\n\r\n") == 3


def test_a_reader_and_a_writer_of_one_terminal_do_not_wait_for_each_other(shared_agent: Agent) -> None:
    name = begin(shared_agent, "cat", pty={"cols": 80, "rows": 24})
    found: list[Told] = []
    reader = threading.Thread(target=lambda: found.append(follow(shared_agent, name)))
    reader.start()
    feed(shared_agent, name, b"one\n", "offset=0")
    feed(shared_agent, name, b"two\n", "offset=4&eof=1")
    reader.join(20)
    assert found[0].stdout.replace(b"\r", b"").count(b"one\n") == 2
    assert found[0].exit_code == 0


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("python3", b""),
        ("python3", b"print(1)\n"),
        ("python3", b"import time; time.sleep(0.5)\n"),
        ("bash", b"sleep 0.5\n"),
        ("cat", b"print(1)"),
    ],
    ids=repr,
)
def test_a_program_in_a_terminal_ends_with_its_input_whatever_it_does_to_the_terminal(
    shared_agent: Agent, command: str, text: bytes
) -> None:
    name = begin(shared_agent, command, pty={"cols": 80, "rows": 24})
    feed(shared_agent, name, text, "offset=0&eof=1")
    told = follow(shared_agent, name)
    assert told.exit_code == 0, told.stdout
