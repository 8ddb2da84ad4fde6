"""The agent's API, asked over HTTP: exec and whole files."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guest.agentd import handlers, wire
from guest.agentd.errors import RequestError
from tests.support.agent import Agent, Reply

ALL_BYTES = bytes(range(256))


def write(agent: Agent, path: str | Path, data: bytes) -> Reply:
    content = base64.b64encode(data).decode()
    return agent.post("/v1/fs/write", {"path": str(path), "content": content, "encoding": "base64"})


def read(agent: Agent, path: str | Path) -> bytes:
    reply = agent.post("/v1/fs/read", {"path": str(path)})
    assert reply.status == 200, reply.body
    document = reply.json()
    assert document["encoding"] == "base64"
    return base64.b64decode(document["content"], validate=True)


def assert_refused(reply: Reply, status: int, code: str) -> str:
    """The reply is a refusal of the agreed form; its detail."""
    document = reply.json()
    assert (reply.status, document["code"]) == (status, code), document
    assert sorted(document) == ["code", "detail"]
    assert reply.headers["content-type"] == "application/json"
    detail: str = document["detail"]
    return detail


# -- health and routes


def test_health_tells_version_and_features(shared_agent: Agent) -> None:
    reply = shared_agent.request("GET", "/healthz")
    document = reply.json()
    assert reply.status == 200
    assert list(document) == ["status", "version", "features", "uptime"]
    assert 0 <= document["uptime"] < 600
    assert document["status"] == "ok"
    assert document["features"] == list(wire.FEATURES)


def test_a_query_does_not_change_the_route(shared_agent: Agent) -> None:
    assert shared_agent.request("GET", "/healthz?x=/v1/exec").status == 200


@pytest.mark.parametrize("path", ["/", "/v1/exec/", "/v1//exec", "//healthz", "/%68ealthz", "/v1/nothing"])
def test_an_unknown_route_is_a_404(shared_agent: Agent, path: str) -> None:
    with shared_agent.dial() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
        assert connection.recv(20).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("POST", "/healthz", "GET, HEAD"), ("GET", "/v1/exec", "POST"), ("PUT", "/v1/exec", "POST")],
)
def test_another_method_is_a_405_that_names_the_right_one(
    shared_agent: Agent, method: str, path: str, allow: str
) -> None:
    reply = shared_agent.request(method, path)
    assert_refused(reply, 405, "method_not_allowed")
    assert reply.headers["allow"] == allow


# -- exec


def test_the_answer_has_the_agreed_members_in_the_agreed_order(shared_agent: Agent) -> None:
    reply = shared_agent.post("/v1/exec", {"command": "echo", "args": ["hi"]})
    assert list(reply.json()) == ["exit_code", "signal", "encoding", "stdout", "stderr"]
    assert reply.headers["content-length"] == str(len(reply.body))


@pytest.mark.parametrize(
    "document", [{"command": "pwd"}, {"command": "pwd", "args": None, "cwd": None, "env": None, "timeout": None}]
)
def test_only_the_command_is_required(shared_agent: Agent, document: dict[str, object]) -> None:
    assert shared_agent.post("/v1/exec", document).status == 200


def test_a_timeout_is_a_504_with_what_was_there(shared_agent: Agent) -> None:
    begin = time.monotonic()
    reply = shared_agent.shell("echo a; echo b >&2; sleep 5", timeout=1)
    assert 1 <= time.monotonic() - begin < 2
    assert reply.status == 504
    assert (reply.stdout, reply.stderr) == (b"a\n", b"b\n")
    assert list(reply.document) == ["detail", "code", "timed_out", "exit_code", "signal", "encoding"]
    assert (reply.code, reply.document["timed_out"]) == ("timed_out", True)
    assert (reply.exit_code, reply.signal) == (143, "SIGTERM")


def test_death_by_signal_is_137_with_its_name(shared_agent: Agent) -> None:
    reply = shared_agent.shell("kill -9 $$")
    assert (reply.status, reply.exit_code, reply.signal) == (200, 137, "SIGKILL")


def test_a_command_that_reads_stdin_gets_its_end(shared_agent: Agent) -> None:
    reply = shared_agent.exec("cat", timeout=20)
    assert (reply.exit_code, reply.stdout) == (0, b"")


def test_bytes_that_are_no_text_arrive_as_they_are(shared_agent: Agent) -> None:
    assert shared_agent.exec("printf", r"\377\376").stdout == b"\xff\xfe"
    assert len(shared_agent.exec("head", "-c", "300", "/dev/urandom").stdout) == 300


def test_a_character_that_is_written_in_two_halves_arrives_whole(shared_agent: Agent) -> None:
    assert shared_agent.shell(r"printf '\346'; sleep 0.05; printf '\227\245'").stdout == "日".encode()


def test_alternate_writes_stay_apart_and_in_order(shared_agent: Agent) -> None:
    reply = shared_agent.shell("for i in $(seq 50); do echo o$i; echo e$i >&2; done")
    assert reply.stdout.decode().split() == [f"o{i}" for i in range(1, 51)]
    assert reply.stderr.decode().split() == [f"e{i}" for i in range(1, 51)]


def test_many_commands_at_once_do_not_mix_their_output(shared_agent: Agent) -> None:
    with ThreadPoolExecutor(50) as pool:
        replies = list(pool.map(lambda number: shared_agent.exec("echo", str(number)), range(50)))
    assert [reply.stdout for reply in replies] == [f"{number}\n".encode() for number in range(50)]


def test_two_hundred_fast_commands_all_succeed(shared_agent: Agent) -> None:
    assert [shared_agent.exec("echo", "x").stdout for _ in range(200)] == [b"x\n"] * 200


def test_a_heredoc_is_only_text(shared_agent: Agent) -> None:
    assert shared_agent.shell("cat <<EOF\nline 'one\n\"two\nEOF\necho after").stdout == b"line 'one\n\"two\nafter\n"


@pytest.mark.parametrize("value", ['a"b\nc=d $HOME', "", "=", "日本\t\\", "'; exit 1; '"])
def test_a_variable_arrives_byte_for_byte(shared_agent: Agent, value: str) -> None:
    assert shared_agent.exec("printenv", "X", env={"X": value}).stdout == value.encode() + b"\n"


@settings(max_examples=30, deadline=None)
@given(value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
def test_any_text_passes_as_an_argument_and_as_a_variable(shared_agent: Agent, value: str) -> None:
    reply = shared_agent.exec("sh", "-c", 'printf %s "$1"; printf %s "$X" >&2', "sh", value, env={"X": value})
    assert (reply.stdout, reply.stderr) == (value.encode(), value.encode())


def test_variables_are_added_to_the_agents_and_not_its_own_settings(shared_agent: Agent) -> None:
    reply = shared_agent.exec("env", env={"X": "1"})
    names = {line.split(b"=")[0] for line in reply.stdout.split(b"\n")}
    assert {b"PATH", b"X"} <= names
    assert b"AGENTD_READY_FD" not in names
    assert b"PYTHONPATH" not in names


def test_the_program_is_looked_up_on_the_path_that_the_request_gives(shared_agent: Agent, tmp_path: Path) -> None:
    tool = tmp_path / "mytool"
    tool.write_text("#!/bin/sh\necho mine\n")
    tool.chmod(0o755)
    assert shared_agent.exec("mytool").code == "command_not_found"
    assert shared_agent.exec("mytool", env={"PATH": f"{tmp_path}:/bin:/usr/bin"}).stdout == b"mine\n"


def test_the_default_working_directory_is_made_at_its_first_use(agent: Agent) -> None:
    assert not agent.workdir.exists()
    assert agent.exec("pwd").stdout.decode().strip() == str(agent.workdir)


def test_a_named_cwd_is_never_made(agent: Agent) -> None:
    reply = agent.exec("pwd", cwd=str(agent.workdir))
    assert reply.code == "cwd_not_found"
    assert not agent.workdir.exists()


def test_a_relative_cwd_begins_at_the_working_directory(agent: Agent) -> None:
    assert agent.exec("pwd", cwd="sub").code == "cwd_not_found"
    agent.exec("mkdir", "sub")
    assert agent.exec("pwd", cwd="sub").stdout.decode().strip() == f"{agent.workdir}/sub"


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"command": "true", "cwd": "/no/such"}, "cwd_not_found"),
        ({"command": "true", "cwd": "/etc/passwd"}, "cwd_not_found"),
        ({"command": "no-such-program"}, "command_not_found"),
        ({"command": "no-such-program", "cwd": "/no/such"}, "cwd_not_found"),
        ({"command": ""}, "command_not_found"),
        ({"command": "/etc/passwd"}, "not_executable"),
        ({"command": "/etc"}, "not_executable"),
        ({"command": "echo", "args": ["x" * 200_000]}, "argument_too_long"),
        ({"command": "echo", "args": ["x" * 100_000] * 30}, "argument_too_long"),
        ({"command": "echo", "env": {"X": "x" * 200_000}}, "argument_too_long"),
    ],
    ids=range(10),
)
def test_what_cannot_be_started_says_why(shared_agent: Agent, members: dict[str, object], code: str) -> None:
    assert_refused(shared_agent.post("/v1/exec", members), 400, code)


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({}, "command"),
        ({"command": 5}, "command"),
        ({"command": "a\0b"}, "command"),
        ({"command": "echo", "args": "x"}, "args"),
        ({"command": "echo", "args": ["a", "a\0b"]}, "args[1]"),
        ({"command": "echo", "args": ["\ud800"]}, "args[0]"),
        ({"command": "echo", "cwd": "/\0"}, "cwd"),
        ({"command": "echo", "cwd": ""}, "cwd"),
        ({"command": "echo", "cwd": 1}, "cwd"),
        ({"command": "echo", "env": {"A=B": "x"}}, "env['A=B']"),
        ({"command": "echo", "env": {"": "x"}}, "env['']"),
        ({"command": "echo", "env": {"A": "x\0"}}, "env['A']"),
        ({"command": "echo", "env": {"A\0": "x"}}, "env['A\\x00']"),
        ({"command": "echo", "env": {"A": "\udc80"}}, "env['A']"),
        ({"command": "echo", "env": ["A=1"]}, "env"),
        ({"command": "echo", "timeout": 0}, "timeout"),
        ({"command": "echo", "timeout": -1}, "timeout"),
        ({"command": "echo", "timeout": "5"}, "timeout"),
    ],
    ids=range(18),
)
def test_a_bad_argument_is_a_400_that_names_the_field(
    shared_agent: Agent, members: dict[str, object], field: str
) -> None:
    assert assert_refused(shared_agent.post("/v1/exec", members), 400, "bad_argument").startswith(f"{field}: ")


def exec_as(agent: Agent, exec_id: str, command: str, *args: str) -> Reply:
    body = json.dumps({"command": command, "args": args}).encode()
    return agent.request("POST", "/v1/exec", body, headers={"vmnest-exec-id": exec_id})


def test_a_command_whose_id_was_seen_is_not_run_again(agent: Agent) -> None:
    assert exec_as(agent, "id-1", "sh", "-c", "echo >> ran").status == 200
    assert_refused(exec_as(agent, "id-1", "sh", "-c", "echo >> ran"), 409, "already_started")
    assert exec_as(agent, "id-2", "wc", "-l", "ran").json()["stdout"] == base64.b64encode(b"1 ran\n").decode()


def test_an_id_of_what_was_not_started_can_be_used_again(agent: Agent) -> None:
    for _ in range(2):
        assert_refused(exec_as(agent, "id-1", "no-such-program"), 400, "command_not_found")
    agent.hook("suspend")
    assert_refused(exec_as(agent, "id-1", "true"), 503, "suspending")
    agent.hook("resume")
    assert exec_as(agent, "id-1", "true").status == 200


def test_before_a_suspend_too_it_is_told_what_was_started(agent: Agent) -> None:
    exec_as(agent, "id-1", "true")
    agent.hook("suspend")
    assert_refused(exec_as(agent, "id-1", "true"), 409, "already_started")


@pytest.mark.parametrize("exec_id", ["a b", "x" * 65, "é", "a;b"])
def test_an_id_of_other_characters_is_refused(shared_agent: Agent, exec_id: str) -> None:
    assert_refused(exec_as(shared_agent, exec_id, "true"), 400, "bad_argument")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"command": "echo", "timeout": NaN}'])
def test_a_body_that_is_no_document_is_a_400(shared_agent: Agent, body: bytes) -> None:
    assert_refused(shared_agent.request("POST", "/v1/exec", body), 400, "bad_request")


def test_a_client_that_goes_away_takes_its_command_with_it(agent: Agent, tmp_path: Path) -> None:
    script = f"sleep 30 & echo $! > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; wait"
    body = json.dumps({"command": "sh", "args": ["-c", script]}).encode()
    with agent.dial() as connection:
        connection.sendall(b"POST /v1/exec HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        wait_until(lambda: (tmp_path / "pid").exists())
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: is_gone(pid))
    assert agent.exec("echo", "on").stdout == b"on\n"


def wait_until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_background_child_does_not_hold_up_the_answer(shared_agent: Agent) -> None:
    begin = time.monotonic()
    assert shared_agent.shell("sleep 6 & echo hi").stdout == b"hi\n"
    assert time.monotonic() - begin < 2


def test_two_hundred_megabytes_of_output_pass_in_flat_memory(agent: Agent) -> None:
    size = 200_000_000
    before = peak_mib(agent)
    body = json.dumps({"command": "head", "args": ["-c", str(size), "/dev/zero"]}).encode()
    with agent.dial() as connection:
        connection.sendall(build_request("/v1/exec", body))
        received = 0
        head = b""
        while data := connection.recv(1 << 20):
            head = head if received else data
            received += len(data)
    assert received > size / 3 * 4
    assert b"Content-Length: " in head
    assert peak_mib(agent) - before < 16


def test_an_answer_that_was_sent_holds_no_file(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(3_000_000))

    def use() -> int:
        agent.shell("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2")
        read(agent, tmp_path / "f")
        return len(os.listdir(f"/proc/{agent.process.pid}/fd"))

    before = use()
    for _ in range(5):
        after = use()
    # The last connection may still be closing.
    assert after <= before + 1


def build_request(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def peak_mib(agent: Agent) -> float:
    """The largest resident memory of the agent so far."""
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


# Asks from a process of its own: this one is busy with 80 clients.
PROBE = """
import http.client, sys, time
slowest = 0
for _ in range(30):
    begin = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()
    slowest = max(slowest, time.monotonic() - begin)
    time.sleep(0.05)
print(slowest)
"""


def test_health_answers_within_a_second_under_load(agent: Agent) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(80) as pool:
        loops = [pool.submit(agent.shell, "while :; do :; done", timeout=4) for _ in range(16)]
        execs = [pool.submit(run_until, agent, stop) for _ in range(64)]
        probe = subprocess.run([sys.executable, "-c", PROBE, str(agent.port)], check=True, stdout=subprocess.PIPE)
        stop.set()
        assert sum(future.result() for future in execs) > 0
        assert {future.result().code for future in loops} == {"timed_out"}
    assert float(probe.stdout) < 1


def run_until(agent: Agent, stop: threading.Event) -> int:
    count = 0
    while not stop.is_set():
        assert agent.exec("true").exit_code == 0
        count += 1
    return count


def test_without_descriptors_an_exec_is_a_503_and_the_agent_lives_on(agent: Agent) -> None:
    import resource

    with ThreadPoolExecutor(1) as pool:
        agent.exec("true")
        used = len(os.listdir(f"/proc/{agent.process.pid}/fd"))
        sleeper = pool.submit(agent.exec, "sleep", "1")
        wait_until(lambda: len(os.listdir(f"/proc/{agent.process.pid}/fd")) >= used + 3)
        limit = len(os.listdir(f"/proc/{agent.process.pid}/fd")) + 2
        soft, hard = resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (limit, hard))
        assert_refused(agent.post("/v1/exec", {"command": "true"}), 503, "overloaded")
        resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        assert sleeper.result().exit_code == 0
    assert agent.exec("true").exit_code == 0


# -- files


def test_all_byte_values_survive_a_round_trip(shared_agent: Agent, tmp_path: Path) -> None:
    reply = write(shared_agent, tmp_path / "f", ALL_BYTES)
    assert (reply.status, reply.json()) == (200, {"bytes_written": 256})
    assert (tmp_path / "f").read_bytes() == ALL_BYTES
    assert read(shared_agent, tmp_path / "f") == ALL_BYTES


@pytest.mark.parametrize("size", [0, 1, 2, 3, 2**20 + 1, 10_000_000])
def test_files_of_all_sizes_survive_a_round_trip(shared_agent: Agent, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    assert write(shared_agent, tmp_path / "f", data).json() == {"bytes_written": size}
    assert read(shared_agent, tmp_path / "f") == data


@pytest.mark.parametrize("encoding", ["utf-8", "utf8", "text"])
def test_text_is_written_as_utf_8(shared_agent: Agent, tmp_path: Path, encoding: str) -> None:
    document = {"path": str(tmp_path / "f"), "content": "日本\n", "encoding": encoding}
    assert shared_agent.post("/v1/fs/write", document).json() == {"bytes_written": 7}
    assert (tmp_path / "f").read_text() == "日本\n"


def test_without_an_encoding_content_is_base64(shared_agent: Agent, tmp_path: Path) -> None:
    assert shared_agent.post("/v1/fs/write", {"path": str(tmp_path / "f"), "content": "aGk="}).status == 200
    assert (tmp_path / "f").read_text() == "hi"


def test_relative_paths_begin_at_the_working_directory(agent: Agent) -> None:
    write(agent, "a/b.txt", b"x")
    assert (agent.workdir / "a" / "b.txt").read_bytes() == b"x"
    assert read(agent, "a/b.txt") == b"x"


@pytest.mark.parametrize("name", ["with space", "+%41", "-rf", "日本", "new\nline", "a'b\"c"])
def test_odd_names_are_names(shared_agent: Agent, tmp_path: Path, name: str) -> None:
    write(shared_agent, tmp_path / name, b"x")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert read(shared_agent, tmp_path / name) == b"x"


@pytest.mark.parametrize(
    "content", ["!!!!***", "!!!!", "aGk", "aGk=aGk=", "aG k", "aGk=\n", "ä===", "====", "a===", "aGk_"]
)
def test_invalid_base64_writes_nothing(shared_agent: Agent, tmp_path: Path, content: str) -> None:
    reply = shared_agent.post("/v1/fs/write", {"path": str(tmp_path / "f"), "content": content})
    assert assert_refused(reply, 400, "bad_argument").startswith("content: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"content": ""}, "path"),
        ({"path": "", "content": ""}, "path"),
        ({"path": "/tmp/a\0b", "content": ""}, "path"),
        ({"path": "/tmp/\ud800", "content": ""}, "path"),
        ({"path": "/tmp/x"}, "content"),
        ({"path": "/tmp/x", "content": 5}, "content"),
        ({"path": "/tmp/x", "content": "\ud800", "encoding": "utf-8"}, "content"),
        ({"path": "/tmp/x", "content": "", "encoding": "latin-1"}, "encoding"),
    ],
    ids=range(8),
)
def test_a_bad_argument_of_a_write_is_named(shared_agent: Agent, members: dict[str, object], field: str) -> None:
    assert assert_refused(shared_agent.post("/v1/fs/write", members), 400, "bad_argument").startswith(f"{field}: ")


def test_a_missing_file_is_a_404(shared_agent: Agent) -> None:
    assert "/no/such" in assert_refused(shared_agent.post("/v1/fs/read", {"path": "/no/such"}), 404, "file_not_found")


@pytest.mark.parametrize("kind", ["directory", "fifo", "device"])
def test_reading_and_writing_what_is_no_file_is_refused_and_never_hangs(
    shared_agent: Agent, tmp_path: Path, kind: str
) -> None:
    path = {"directory": tmp_path, "fifo": tmp_path / "p", "device": Path("/dev/zero")}[kind]
    if kind == "fifo":
        os.mkfifo(path)
    assert_refused(shared_agent.post("/v1/fs/read", {"path": str(path)}), 400, "not_a_file")
    assert_refused(write(shared_agent, path, b"x"), 400, "not_a_file")
    assert shared_agent.request("GET", "/healthz").status == 200


def test_a_client_that_is_killed_in_the_middle_of_a_write_leaves_the_old_file(
    shared_agent: Agent, tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("old")
    content = base64.b64encode(bytes(1_000_000)).decode()
    body = json.dumps({"path": str(tmp_path / "f"), "content": content}).encode()
    with shared_agent.dial() as connection:
        connection.sendall(b"POST /v1/fs/write HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body))
        connection.sendall(body[: len(body) // 2])
    assert shared_agent.request("GET", "/healthz").status == 200
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_text() == "old"


def test_a_large_file_is_read_in_flat_memory(agent: Agent, tmp_path: Path) -> None:
    with open(tmp_path / "f", "wb") as stream:
        stream.truncate(100_000_000)
    before = peak_mib(agent)
    with agent.dial() as connection:
        body = json.dumps({"path": str(tmp_path / "f")}).encode()
        connection.sendall(build_request("/v1/fs/read", body))
        received = 0
        while data := connection.recv(1 << 20):
            received += len(data)
    assert received > 100_000_000 / 3 * 4
    assert peak_mib(agent) - before < 16


# -- base64, without a server


@given(st.binary(max_size=200))
def test_valid_base64_is_decoded(data: bytes) -> None:
    text = base64.b64encode(data).decode()
    handlers.check_base64(text)
    assert b"".join(handlers.decode_base64(text)) == data


@given(st.text("ABab01+/= \n-_", max_size=12))
def test_base64_is_taken_exactly_when_the_standard_decoder_takes_it_strictly(text: str) -> None:
    try:
        expected: bytes | None = base64.b64decode(text, validate=True)
    except ValueError:
        expected = None
    # The standard decoder lets surplus padding pass.
    if expected is not None and base64.b64encode(expected).decode().rstrip("=")[:-1] != text.rstrip("=")[:-1]:
        expected = None
    try:
        handlers.check_base64(text)
    except RequestError:
        assert expected is None or text != base64.b64encode(expected).decode()
    else:
        assert expected is not None
        assert b"".join(handlers.decode_base64(text)) == expected


def test_base64_beyond_one_piece_is_checked_to_its_end() -> None:
    text = base64.b64encode(bytes(1_000_000)).decode()
    handlers.check_base64(text)
    assert b"".join(handlers.decode_base64(text)) == bytes(1_000_000)
    for place in (0, 500_000, len(text) - 4):
        with pytest.raises(RequestError):
            handlers.check_base64(text[:place] + "!" + text[place + 1 :])
