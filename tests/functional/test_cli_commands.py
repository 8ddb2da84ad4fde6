"""Commands that the command line attends to, and leaves: output, input, signals, jobs. Against a local cloud."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

import pytest

from tests.support.cli import PROGRAM, Cli, bare_environ
from tests.support.cloud import LocalCloud, open_cloud
from tests.support.terminals import Terminal

WAIT_SECONDS = 20.0

# In the sandbox: wait for a file that another command makes.
UNTIL_GO = "while [ ! -e go ]; do sleep 0.02; done; rm go"


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with open_cloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def cli(cloud: LocalCloud) -> Cli:
    return Cli({**bare_environ(cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": cloud.folder})


@pytest.fixture(scope="module")
def box(cli: Cli) -> Iterator[str]:
    """A sandbox for the tests of this module."""
    assert cli("create", "box", "--local").status == 0
    yield "box"
    assert cli("rm", "box").status == 0


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def runs(seconds: str) -> bool:
    """A ``sleep`` of that many seconds runs somewhere on this machine."""
    return subprocess.run(["pgrep", "-fx", f"sleep {seconds}"], capture_output=True, check=False).returncode == 0


def read_until(stream: IO[bytes] | None, text: bytes) -> bytes:
    """What comes from a pipe up to and with ``text``."""
    assert stream is not None
    seen = b""
    while text not in seen:
        data = os.read(stream.fileno(), 65536)
        assert data, seen
        seen += data
    return seen


def go(cli: Cli, box: str) -> None:
    assert cli("exec", box, "--", "touch", "/work/go").status == 0


def start_job(cli: Cli, box: str, line: str, *options: str) -> str:
    done = cli("exec", box, "--background", *options, "--", "sh", "-c", line)
    assert done.status == 0
    return done.text.strip()


def job_of(cli: Cli, box: str, job: str, *options: str) -> dict[str, Any]:
    (found,) = [each for each in cli("jobs", box, "--json", *options).data["jobs"] if each["job"] == job]
    return dict(found)


def running_job(cli: Cli, box: str, line: str) -> str:
    """The id of the command that runs this line of shell."""
    listed = cli("jobs", box, "--json").data["jobs"]
    (found,) = [each["job"] for each in listed if each["command"][-1] == line and each["state"] == "running"]
    return str(found)


# -- output ------------------------------------------------------------------------------------------------------------


def test_output_arrives_while_the_command_runs(cli: Cli, box: str) -> None:
    with cli.start("exec", box, "--", "sh", "-c", f"echo a; echo e >&2; {UNTIL_GO}; echo b; exit 3") as process:
        read_until(process.stdout, b"a\n")
        read_until(process.stderr, b"e\n")
        go(cli, box)
        out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out, err) == (3, b"b\n", b"")


def test_as_lines_of_json_output_arrives_while_the_command_runs(cli: Cli, box: str) -> None:
    line = f"printf 'na\\303'; {UNTIL_GO}; printf '\\257ve'; printf '\\377' >&2; kill -9 $$"
    with cli.start("exec", box, "--json", "--stream", "--", "sh", "-c", line) as process:
        first = read_until(process.stdout, b"\n")
        go(cli, box)
        out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, err) == (137, b"")
    assert [json.loads(line) for line in (first + out).splitlines()] == [
        {"stream": "stdout", "data": "na", "encoding": "utf-8", "offset": 0},
        {"stream": "stdout", "data": "ïve", "encoding": "utf-8", "offset": 2},
        {"stream": "stderr", "data": "/w==", "encoding": "base64", "offset": 6},
        {"exit_code": 137, "signal": "SIGKILL", "timed_out": False, "offset": 7},
    ]


def test_a_large_output_is_whole(cli: Cli, box: str) -> None:
    with cli.start("exec", box, "--", "sh", "-c", "yes | head -c 50000000") as process:
        digest, count = hashlib.sha256(), 0
        assert process.stdout is not None
        while data := process.stdout.read(1 << 20):
            digest.update(data)
            count += len(data)
        assert process.wait(WAIT_SECONDS) == 0
    assert (count, digest.hexdigest()) == (50_000_000, hashlib.sha256(b"y\n" * 25_000_000).hexdigest())


def test_what_json_keeps_of_output_can_be_limited(cli: Cli, box: str) -> None:
    data = cli("exec", box, "--json", "--output-limit", "100", "--", "seq", "100000").data
    assert data["truncated"] is True
    assert len(data["stdout"]) == 100
    assert (data["stdout"][:4], data["stdout"][-7:]) == ("1\n2\n", "100000\n")


@pytest.mark.parametrize("words", [("exec", "{box}"), ("--local", "run")], ids=["exec", "run"])
def test_a_reader_that_goes_ends_a_command_that_would_never_end(cli: Cli, box: str, words: tuple[str, ...]) -> None:
    words = tuple(word.format(box=box) for word in words)
    done = cli.shell(f"$vmnest {' '.join(words)} -- sh -c 'sleep 76.313 & exec yes' | head -1; echo ${{PIPESTATUS[0]}}")
    assert (done.text, done.err) == ("y\n141\n", b"")
    wait_for(lambda: not runs("76.313"))


def test_an_ulimit_and_a_user_are_the_commands(cli: Cli, box: str) -> None:
    done = cli("exec", box, "--ulimit", "nofile=77:99", "--ulimit", "core=0", "--shell", "--", "ulimit -n; ulimit -Hn")
    assert done.text == "77\n99\n"
    own = cli("exec", box, "--", "id", "-u").text.strip()
    assert cli("exec", box, "--user", own, "--", "id", "-u").text.strip() == own
    done = cli("exec", box, "--user", "no-such-user", "--", "true")
    assert done.status == 125
    assert "no-such-user" in done.remarks


# -- input -------------------------------------------------------------------------------------------------------------


def test_input_is_handed_on_to_its_end(cli: Cli, box: str) -> None:
    assert cli.shell(f"printf x | $vmnest exec -i {box} -- wc -c").text.strip() == "1"
    assert cli.shell(f"printf x | $vmnest exec -i {box} -- sh -c 'cat; echo end'").text == "xend\n"
    assert cli.shell(f"$vmnest exec -i {box} -- cat < /dev/null").out == b""
    assert cli.shell(f"$vmnest exec -i {box} -- cat <&-").out == b""
    assert cli.shell("printf x | $vmnest --local run --interactive -- wc -c").text.strip() == "1"
    data = cli.shell(f"printf x | $vmnest exec -i {box} --json -- cat").data
    assert (data["stdout"], data["exit_code"]) == ("x", 0)


def test_bytes_go_in_and_come_back_as_they_are(cli: Cli, box: str) -> None:
    there_and_back = f"$vmnest exec -i {box} -- sh -c 'cat | cat'"
    done = cli.shell(f"head -c 5000000 /dev/urandom | tee >(sha256sum >&2) | {there_and_back} | sha256sum")
    assert done.status == 0
    assert done.out == done.err
    assert len(done.out) > 64


def test_a_command_that_takes_no_more_input_ends_all(cli: Cli, box: str) -> None:
    done = cli.shell(f"yes | $vmnest exec -i {box} -- head -c 30M | sha256sum; echo ${{PIPESTATUS[@]}}")
    expected = hashlib.sha256(b"y\n" * (15 * 2**20)).hexdigest()
    assert done.text == f"{expected}  -\n141 0 0\n"
    assert done.err == b""


def test_a_command_ends_although_input_goes_on(cli: Cli, box: str) -> None:
    with cli.start("exec", "-i", box, "--", "sh", "-c", "read x; echo got $x", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"word\n")
        process.stdin.flush()  # and stays open
        assert process.wait(WAIT_SECONDS) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b"got word\n"


def test_input_that_cannot_be_read_is_our_failure(cli: Cli, box: str) -> None:
    done = cli.shell(f"$vmnest exec -i {box} -- sh -c 'cat; echo end' 0>> $HOME/written")
    assert (done.status, done.out) == (125, b"")
    assert "cannot read standard input: Bad file descriptor" in done.remarks


def test_without_dash_i_input_is_left_to_others(cli: Cli, box: str) -> None:
    assert cli.shell(f"(printf 'a\\nb\\n') | (read x; $vmnest exec {box} -- cat; cat)").text == "b\n"


# -- on a terminal -----------------------------------------------------------------------------------------------------


def on_terminal(cli: Cli, *words: str) -> Terminal:
    return Terminal([*PROGRAM, *words], env={**cli.environ, "TERM": "xterm"})


def test_input_from_a_terminal_comes_in_lines(cli: Cli, box: str) -> None:
    with on_terminal(cli, "exec", "-i", box, "--", "sh", "-c", "echo ready; cat; test -t 0 || echo end") as terminal:
        terminal.read_until(b"ready")
        assert terminal.modes() == terminal.modes_before
        terminal.type(b"typed\n")
        terminal.read_until(b"typed\r\n")  # the echo
        terminal.read_until(b"typed\r\n")
        terminal.type(b"\x04")
        terminal.read_until(b"end")
        assert terminal.wait() == 0


def test_with_a_terminal_every_key_is_the_commands(cli: Cli, box: str) -> None:
    line = "test -t 0 && stty size; trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.02; done"
    with on_terminal(cli, "exec", "-it", box, "--", "sh", "-c", line) as terminal:
        terminal.read_until(b"24 80")
        terminal.read_until(b"ready")
        assert terminal.is_raw
        terminal.type(b"\x03")
        terminal.read_until(b"caught")
        assert terminal.wait() == 5
        assert terminal.modes() == terminal.modes_before


def test_a_command_in_a_terminal_can_be_left_and_returned_to(cli: Cli, box: str) -> None:
    line = "echo ready; read x; echo got $x; exit 6"
    with on_terminal(cli, "exec", "-it", box, "--", "sh", "-c", line) as terminal:
        terminal.read_until(b"ready")
        terminal.type(b"~.")
        shown = terminal.read_rest()
        assert terminal.wait() == 0
        assert terminal.modes() == terminal.modes_before
    job = running_job(cli, box, line)
    assert f"vmnest attach -i {box} {job}".encode() in shown
    with on_terminal(cli, "attach", "-i", box, job) as terminal:
        terminal.read_until(b"ready")
        terminal.type(b"word\r")
        terminal.read_until(b"got word")
        assert terminal.wait() == 6


def test_a_window_that_is_closed_ends_what_runs_in_it(cli: Cli, box: str) -> None:
    with on_terminal(cli, "exec", "-it", box, "--", "bash", "--norc", "-i") as terminal:
        terminal.type(b"sleep 76.414 &\r")
        wait_for(lambda: runs("76.414"))
        terminal.signal(signal.SIGHUP)
        assert terminal.wait() == 129
    wait_for(lambda: not runs("76.414"))


def test_a_terminal_does_not_need_one_here(cli: Cli, box: str) -> None:
    done = cli("exec", box, "-t", "--", "sh", "-c", "test -t 0 && test -t 1 && stty size; seq 100000")
    assert (done.status, done.err) == (0, b"")
    assert done.text.splitlines()[0] == "24 80"
    assert done.out.endswith(b"\r\n100000\r\n")
    assert cli("exec", box, "-t", "--no-tty", "--", "tty").text == "not a tty\n"
    assert cli("--local", "run", "-t", "--", "sh", "-c", "test -t 1 && exit 9").status == 9


def test_ctrl_c_on_a_terminal_without_dash_t_reaches_the_command(cli: Cli, box: str) -> None:
    line = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.02; done"
    with on_terminal(cli, "exec", box, "--", "sh", "-c", line) as terminal:
        terminal.read_until(b"ready")
        terminal.type(b"\x03")
        terminal.read_until(b"caught")
        assert terminal.wait() == 7


def test_ctrl_c_that_a_command_ignores_is_followed_by_the_advice_to_repeat_it(cli: Cli, box: str) -> None:
    with on_terminal(cli, "exec", box, "--", "sh", "-c", "trap '' INT; echo ready; exec sleep 77.415") as terminal:
        terminal.read_until(b"ready")
        terminal.type(b"\x03")
        terminal.read_until(b"a second Ctrl+C kills it")
        terminal.type(b"\x03")
        assert terminal.wait() == 130


# -- signals -----------------------------------------------------------------------------------------------------------


def test_ctrl_c_is_for_the_command_which_may_end_as_it_likes(cli: Cli, box: str) -> None:
    line = "trap 'echo caught; exit 42' INT; echo ready; while :; do sleep 0.02; done"
    with cli.start("exec", box, "--", "sh", "-c", line) as process:
        read_until(process.stdout, b"ready\n")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out, err) == (42, b"caught\n", b"")


def test_what_was_printed_before_ctrl_c_is_in_the_json_object(cli: Cli, box: str) -> None:
    with cli.start("exec", box, "--json", "--", "sh", "-c", "echo before; exec sleep 77.313") as process:
        wait_for(lambda: runs("77.313"))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_SECONDS)
    data = json.loads(out)
    assert (process.returncode, err) == (130, b"")
    assert (data["stdout"], data["exit_code"], data["signal"]) == ("before\n", 130, "SIGINT")


def test_a_second_ctrl_c_kills_a_command_that_ignores_the_first(cli: Cli, box: str) -> None:
    with cli.start("exec", box, "--", "sh", "-c", "trap '' INT; echo ready; sleep 77.414; sleep 77.414") as process:
        read_until(process.stdout, b"ready\n")
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)  # two at once would be one
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out, err) == (130, b"", b"")
    wait_for(lambda: not runs("77.414"))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str)
def test_what_ends_us_ends_the_command_which_may_tidy_up(
    cli: Cli, box: str, number: signal.Signals, status: int
) -> None:
    line = "trap 'echo tidy > /work/tidied; exit' TERM; echo ready; while :; do sleep 0.02; done"
    with cli.start("exec", box, "--", "sh", "-c", line) as process:
        read_until(process.stdout, b"ready\n")
        process.send_signal(number)
        _, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, err) == (status, b"vmnest: interrupted\n")
    assert cli("exec", box, "--", "sh", "-c", "cat /work/tidied && rm /work/tidied").text == "tidy\n"


def test_a_command_that_ignores_sigterm_is_killed(cli: Cli, box: str) -> None:
    with cli.start("exec", box, "--", "sh", "-c", "trap '' TERM; echo ready; sleep 77.515; sleep 77.515") as process:
        read_until(process.stdout, b"ready\n")
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 143
    wait_for(lambda: not runs("77.515"))


def test_a_command_outlives_a_client_that_is_killed_and_loses_nothing(cli: Cli, box: str) -> None:
    line = f"echo begin; {UNTIL_GO}; seq 100000; exit 7"
    with cli.start("exec", box, "--", "sh", "-c", line) as process:
        read_until(process.stdout, b"begin\n")
        process.kill()
    job = running_job(cli, box, line)
    go(cli, box)
    done = cli("attach", box, job)
    expected = "".join(f"{number}\n" for number in range(1, 100001))
    assert (done.status, done.text, done.remarks) == (7, f"begin\n{expected}", "")


# -- suspended meanwhile -----------------------------------------------------------------------------------------------


def test_a_command_is_waited_for_while_its_sandbox_sleeps(cli: Cli, box: str) -> None:
    with cli.start("exec", box, "--", "sh", "-c", f"echo a; {UNTIL_GO}; echo b; exit 4") as process:
        read_until(process.stdout, b"a\n")
        assert cli("stop", box).status == 0
        read_until(process.stderr, b"vmnest: the sandbox is suspended; waiting until it is resumed\n")
        assert cli("ps", box, "--json").data["state"] == "SUSPENDED"
        go(cli, box)  # which resumes it
        out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out, err) == (4, b"b\n", b"vmnest: the sandbox goes on\n")


def say(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def test_input_resumes_a_sandbox_that_sleeps(cli: Cli, box: str) -> None:
    with cli.start("exec", "-i", box, "--", "cat", stdin=subprocess.PIPE) as process:
        say(process, b"a\n")
        read_until(process.stdout, b"a\n")
        assert cli("stop", box).status == 0
        read_until(process.stderr, b"suspended")
        say(process, b"b\n")
        read_until(process.stdout, b"b\n")
        out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out) == (0, b"")
    assert b"the sandbox goes on" in err


def test_input_waits_for_a_sandbox_that_must_not_be_resumed(cli: Cli, box: str) -> None:
    with cli.start("exec", "-i", "--no-resume", box, "--", "cat", stdin=subprocess.PIPE) as process:
        say(process, b"a\n")
        read_until(process.stdout, b"a\n")
        assert cli("stop", box).status == 0
        read_until(process.stderr, b"waiting until it is resumed\n")
        say(process, b"b\n")
        read_until(process.stderr, b"\n")  # that it waits
        assert cli("ps", box, "--json").data["state"] == "SUSPENDED"
        assert cli("start", box).status == 0
        read_until(process.stdout, b"b\n")
        process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0


def test_ctrl_c_leaves_a_command_in_a_sandbox_that_sleeps(cli: Cli, box: str) -> None:
    line = "echo a; exec sleep 77.616"
    with cli.start("exec", box, "--", "sh", "-c", line) as process:
        read_until(process.stdout, b"a\n")
        assert cli("stop", box).status == 0
        read_until(process.stderr, b"suspended")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130
    assert cli("ps", box, "--json").data["state"] == "SUSPENDED"
    found = re.search(rb"vmnest attach box (\S+)\n", err)
    assert found is not None
    job = found[1].decode()
    assert cli("jobs", box, "--no-resume").status == 1
    assert cli("kill", box, job, "-s", "KILL").status == 0
    assert cli("attach", box, job).status == 137


# -- jobs --------------------------------------------------------------------------------------------------------------


def test_a_job_from_its_start_to_its_end(cli: Cli, box: str) -> None:
    done = cli("exec", box, "--background", "--", "sh", "-c", f"echo a; {UNTIL_GO}; echo b >&2; exit 9")
    job = done.text.strip()
    assert re.fullmatch(r"job-[0-9a-f]{10}", job)
    assert f"vmnest attach {box} {job}" in done.remarks
    assert (job_of(cli, box, job)["state"], job_of(cli, box, job)["background"]) == ("running", True)
    with cli.start("attach", box, job) as attached:
        read_until(attached.stdout, b"a\n")
        go(cli, box)
        out, err = attached.communicate(timeout=WAIT_SECONDS)
    assert (attached.returncode, out, err) == (9, b"", b"b\n")
    text = cli("jobs", box).text
    assert text.splitlines()[0].split() == ["JOB", "STATE", "AGE", "OUTPUT", "COMMAND"]
    (row,) = [line for line in text.splitlines() if line.startswith(job)]
    assert row.split()[1:3] == ["status", "9"]
    done = cli("kill", box, job)
    assert (done.status, done.text, done.remarks) == (0, f"{job}\n", f"vmnest: {job} has ended already\n")


def test_jobs_in_json(cli: Cli, box: str) -> None:
    started = cli("exec", box, "--background", "--json", "--", "sh", "-c", "echo abc; exec sleep 77.717").data
    job = started["job"]
    assert started["pid"] > 0
    found = job_of(cli, box, job)
    assert (found["pid"], found["command"][:2]) == (started["pid"], ["sh", "-c"])
    assert cli("kill", box, job, "--json").data == {"job": job, "signal": "TERM", "delivered": True}
    ended = cli("attach", box, job, "--json")
    assert (ended.status, ended.data["signal"], ended.data["stdout"]) == (143, "SIGTERM", "abc\n")
    lines = cli("attach", box, job, "--json", "--stream", "--from-offset", "1").out.splitlines()
    assert json.loads(lines[0])["data"] == "bc\n"
    assert json.loads(lines[-1])["exit_code"] == 143
    assert cli("jobs", "nobody", "--json").error["code"] == "sandbox_not_found"
    assert cli("kill", box, "nobody", "--json").error["code"] == "process_not_found"
    assert cli("attach", box, "nobody").status == 125


def test_a_command_that_was_waited_for_is_among_all_jobs_and_can_be_seen_again(cli: Cli, box: str) -> None:
    line = "echo waited for; exit 5"
    assert cli("exec", box, "--", "sh", "-c", line).status == 5

    def listed(*options: str) -> list[dict[str, Any]]:
        return [each for each in cli("jobs", box, "--json", *options).data["jobs"] if each["command"][-1] == line]

    assert listed() == []
    (job,) = listed("--all")
    assert (job["state"], job["exit_code"], job["background"]) == ("ended", 5, False)
    done = cli("attach", box, job["job"])
    assert (done.status, done.text) == (5, "waited for\n")


def test_a_job_that_nobody_read_is_whole_up_to_its_limit(cli: Cli, box: str) -> None:
    job = start_job(cli, box, "seq 100000")
    done = cli("attach", box, job)
    assert (done.status, len(done.text.splitlines()), done.remarks) == (0, 100000, "")
    job = start_job(cli, box, "seq 100000", "--output-limit", "10k")
    done = cli("attach", box, job)
    assert done.status == 0
    assert done.text.startswith("1\n2\n")
    assert done.text.endswith("99999\n100000\n")
    assert "bytes of output are not kept any more" in done.remarks


def test_the_end_of_looking_on_is_not_the_end_of_the_job(cli: Cli, box: str) -> None:
    job = start_job(cli, box, "echo a; exec sleep 77.818")
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with cli.start("attach", box, job) as attached:
            read_until(attached.stdout, b"a\n")
            attached.send_signal(number)
            _, err = attached.communicate(timeout=WAIT_SECONDS)
        assert attached.returncode == status
        assert f"vmnest attach {box} {job}".encode() in err
    assert cli.shell(f"$vmnest attach {box} {job} | head -0").status == 0
    assert job_of(cli, box, job)["state"] == "running"
    assert cli("kill", box, job, "-s", "INT").status == 0
    assert cli("attach", box, job).status == 130


def test_a_job_with_an_input_takes_it_from_whom_attaches(cli: Cli, box: str) -> None:
    job = start_job(cli, box, "read x; echo got $x; exit 8", "-i")
    done = cli.shell(f"echo word | $vmnest attach -i {box} {job}")
    assert (done.status, done.text) == (8, "got word\n")
    job = start_job(cli, box, "exec sleep 77.919")
    done = cli.shell(f"echo word | $vmnest attach -i {box} {job}")
    assert done.status == 125
    assert "-i" in done.remarks
    assert cli("kill", box, job).status == 0


# -- an agent that knows no processes ----------------------------------------------------------------------------------


OLD_AGENT = """
import base64, http.server, json, subprocess
class Agent(http.server.BaseHTTPRequestHandler):
    def answer(self, status, data):
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(200 if self.path == "/healthz" else 404, {"status": "ok"})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/exec":
            return self.answer(404, {"detail": "Not Found"})
        done = subprocess.run([asked["command"], *asked["args"]], capture_output=True)
        out, err = (base64.b64encode(data).decode() for data in (done.stdout, done.stderr))
        self.answer(200, {"exit_code": done.returncode, "stdout": out, "stderr": err, "encoding": "base64"})
    def log_message(self, *arguments):
        pass
print("serving", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", 8181), Agent).serve_forever()
"""


@pytest.fixture(scope="module")
def old(cli: Cli) -> Iterator[Cli]:
    """The command line with a sandbox named old, whose agent knows the base contract only."""
    assert cli("create", "old", "--local").status == 0
    job = cli("exec", "old", "--background", "--", "python3", "-c", OLD_AGENT).text.strip()
    with cli.start("attach", "old", job) as attached:
        read_until(attached.stdout, b"serving")
        attached.kill()
    path = os.path.join(cli.environ["HOME"], ".agent_sandbox", "state.json")
    with open(path, encoding="utf-8") as file:
        state = json.load(file)
    state["sandboxes"]["old"]["agent_port"] = 8181
    with open(path, "w", encoding="utf-8") as file:
        json.dump(state, file)
    yield cli
    assert cli("rm", "old").status == 0


def test_an_old_agent_runs_plain_commands(old: Cli) -> None:
    words = ("exec", "old", "--", "sh", "-c", "echo a; echo b >&2; exit 3")
    done = old(*words)
    assert (done.status, done.out, done.err) == (3, b"a\n", b"b\n")
    data = old(*words[:2], "--json", *words[2:])
    assert (data.status, data.data["stdout"], data.data["stderr"]) == (3, "a\n", "b\n")
    lines = [json.loads(line) for line in old(*words[:2], "--json", "--stream", *words[2:]).out.splitlines()]
    assert [line.get("data") for line in lines] == ["a\n", "b\n", None]
    assert lines[-1] == {"exit_code": 3, "signal": None, "timed_out": False, "offset": 4}


@pytest.mark.parametrize(
    "words",
    [
        ("exec", "old", "-i", "--", "cat"),
        ("exec", "old", "-t", "--", "true"),
        ("exec", "old", "--user", "root", "--", "true"),
        ("exec", "old", "--ulimit", "core=0", "--", "true"),
        ("exec", "old", "--background", "--", "true"),
        ("jobs", "old"),
        ("attach", "old", "x"),
        ("kill", "old", "x"),
    ],
    ids=" ".join,
)
def test_what_an_old_agent_cannot_do_is_told_with_the_name_of_what_it_lacks(old: Cli, words: tuple[str, ...]) -> None:
    done = old(*words)
    assert (done.status, done.out) == (125 if words[0] in {"exec", "attach"} else 1, b"")
    assert "'processes'" in done.remarks
    if "-t" not in words:
        assert old(words[0], "--json", *words[1:]).error["code"] == "unsupported"
