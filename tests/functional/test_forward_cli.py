"""``vmnest forward`` as a process: how it begins and ends, and what it says meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.cli import PROGRAM, Cli, bare_environ, read_json
from tests.support.cloud import LocalCloud, open_cloud
from tests.support.terminals import Terminal

WAIT_SECONDS = 30.0
PORT = 8000
SERVER = ("python3", "-m", "http.server", str(PORT), "--bind", "127.0.0.1", "--directory", "/etc")


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with open_cloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def cli(cloud: LocalCloud) -> Cli:
    return Cli({**bare_environ(cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": cloud.folder})


def serve(cli: Cli, name: str) -> None:
    """A sandbox of that name with a server in it."""
    assert cli("create", name, "--local").status == 0
    assert cli("exec", name, "-q", "--background", "--", *SERVER).status == 0


@pytest.fixture(scope="module")
def box(cli: Cli) -> Iterator[str]:
    """A sandbox for the tests that leave it as it is."""
    serve(cli, "box")
    yield "box"
    assert cli("rm", "box").status == 0


@pytest.fixture
def brief(cli: Cli) -> Iterator[str]:
    """A sandbox that its test may end."""
    serve(cli, "brief")
    yield "brief"
    assert cli("rm", "brief").status in {0, 3}


class Forward(NamedTuple):
    """A forwarding that has said where it listens."""

    process: subprocess.Popen[bytes]
    line: str

    @property
    def url(self) -> str:
        return self.line.partition(" ")[0]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def end(self, number: int = signal.SIGINT) -> tuple[int, str, str]:
        """Signal it; its status, and what it has said since."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str, str]:
        """Its status, and what it has said since."""
        out, err = self.process.communicate(timeout=WAIT_SECONDS)
        return self.process.returncode, out.decode(), err.decode()


@contextlib.contextmanager
def forwarding(cli: Cli, name: str, *options: str) -> Iterator[Forward]:
    process = cli.start("forward", name, "-r", f"{PORT}:0", *options)
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], WAIT_SECONDS)
        line = process.stdout.readline().decode() if ready else ""
        if not line:
            process.kill()
            pytest.fail(f"it does not listen: {process.communicate()}")
        yield Forward(process, line)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def ask(url: str) -> int:
    """The status of a GET."""
    try:
        with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def wait_until_served(url: str) -> None:
    """The server in the sandbox answers."""
    wait_for(lambda: ask(url) == 200)


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False


def state(cli: Cli, name: str) -> Any:
    return cli("ps", name, "--json").data["state"]


# -- beginning and ending ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_it_well(cli: Cli, box: str, number: signal.Signals) -> None:
    with forwarding(cli, box) as forward:
        assert forward.line == f"http://localhost:{forward.port} -> box:{PORT}\n"
        wait_until_served(forward.url)
        assert forward.end(number) == (0, "", "vmnest: no longer forwarding\n")
        assert is_refused(forward.port)


def test_ctrl_c_at_a_terminal_ends_it_with_its_connections(cli: Cli, box: str) -> None:
    words = ["forward", box, "-r", str(PORT), "-l", "0"]
    with Terminal([*PROGRAM, *words], env={**cli.environ, "TERM": "xterm"}) as terminal:
        url = terminal.read_until(b"-> box").partition(b" ")[0].decode()
        wait_until_served(url)
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=WAIT_SECONDS) as idle:
            terminal.type(b"\x03")
            assert terminal.wait() == 0
            assert idle.recv(1) == b""
        assert b"Traceback" not in terminal.seen


def test_it_ends_while_the_service_says_nothing(cli: Cli, box: str, cloud: LocalCloud) -> None:
    with forwarding(cli, box, "--poll-interval", "0.1") as forward:
        wait_until_served(forward.url)
        os.kill(cloud.process.pid, signal.SIGSTOP)
        try:
            with socket.create_connection(("127.0.0.1", forward.port)) as client:
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                begin = time.monotonic()
                assert forward.end()[0] == 0
                assert time.monotonic() - begin < 5
        finally:
            os.kill(cloud.process.pid, signal.SIGCONT)


def test_json_is_one_object_once_it_listens(cli: Cli, box: str) -> None:
    with forwarding(cli, box, "-r", "9100:0", "--json") as forward:
        data = read_json(forward.line.encode())
        assert data["name"] == box
        assert [one["remote"] for one in data["forwards"]] == [PORT, 9100]
        assert all(one["url"] == f"http://localhost:{one['local']}" for one in data["forwards"])
        wait_until_served(data["forwards"][0]["url"])
        assert ask(data["forwards"][1]["url"]) == 502
        assert forward.end() == (0, "", "")


def test_it_may_open_as_many_files_as_the_system_allows(cli: Cli, box: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        with forwarding(cli, box) as one:
            assert resource.prlimit(one.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
            assert one.end()[0] == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_each_problem_is_a_line(cli: Cli, box: str) -> None:
    with forwarding(cli, box, "-r", "9100:9107") as forward:
        for _ in range(3):
            assert ask("http://localhost:9107") == 502
        status, _, remarks = forward.end()
    assert status == 0
    assert remarks.splitlines()[1:] == ["vmnest: no longer forwarding"]
    assert "9100" in remarks.splitlines()[0]


def test_a_port_that_is_taken_is_an_error(cli: Cli, box: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        done = cli("forward", box, "-r", str(PORT), "-l", str(number))
        assert (done.status, done.text) == (1, "")
        assert done.remarks.startswith(f"vmnest: cannot listen on 127.0.0.1 port {number}: another program listens")
        assert "-l 0" in done.remarks
        assert cli("forward", box, "-r", f"{PORT}:{number}", "--json").error["code"] == "listen_failed"


@pytest.mark.parametrize("ports", [["9000"], ["8990-9010"], ["70000"], ["8000", "8000"]], ids=" ".join)
def test_what_cannot_be_forwarded_is_refused(cli: Cli, box: str, ports: list[str]) -> None:
    done = cli("forward", box, *(word for port in ports for word in ("-r", port)))
    assert (done.status, done.text) == (2, "")


def test_what_gets_no_token_is_not_said_to_listen(cli: Cli, tmp_path: Path) -> None:
    far = {"microvm_id": "microvm-1", "region": "us-east-1", "endpoint": "https://far.invalid"}
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"sandboxes": {"far": far}}))
    for options in ([], ["--background"]):
        done = cli("forward", "far", "-r", f"{PORT}:0", *options, AGENT_SANDBOX_STATE=str(state))
        assert (done.status, done.text) == (1, "")
        assert done.remarks.startswith("vmnest: no AWS credentials")
    assert [*tmp_path.glob("*.log")] == []


# -- the sandbox's life ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def asking_all_the_time(url: str) -> Iterator[None]:
    """A page that does not give up."""
    is_over = threading.Event()

    def ask_on() -> None:
        while not is_over.wait(0.01):
            with contextlib.suppress(OSError):
                ask(url)

    thread = threading.Thread(target=ask_on)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_stop_elsewhere_ends_it_and_no_page_wakes_the_sandbox(cli: Cli, brief: str) -> None:
    with forwarding(cli, brief, "--poll-interval", "600") as forward:
        wait_until_served(forward.url)
        with asking_all_the_time(forward.url):
            assert cli("stop", brief).status == 0
            status, out, err = forward.wait()
    assert (status, out) == (1, "")
    assert err.endswith(
        "vmnest: sandbox brief was stopped: its ports are not forwarded any more\n"
        "  Resume it, and forward them again: vmnest start brief\n"
    )
    assert state(cli, brief) == "SUSPENDED"


def test_one_that_is_stopped_is_resumed_at_the_beginning(cli: Cli, brief: str) -> None:
    assert cli("stop", brief).status == 0
    with forwarding(cli, brief) as forward:
        assert state(cli, brief) == "RUNNING"
        wait_until_served(forward.url)
        assert forward.end()[0] == 0


def test_one_that_sleeps_is_woken_by_the_next_request(cli: Cli, brief: str, cloud: LocalCloud) -> None:
    microvm_id = cli("ps", brief, "--json").data["microvm_id"]
    with forwarding(cli, brief, "--poll-interval", "0.1") as forward:
        wait_until_served(forward.url)
        cloud.client().suspend_microvm(microvmIdentifier=microvm_id)  # as its idle policy would
        wait_for(lambda: state(cli, brief) == "SUSPENDED")
        assert ask(forward.url) == 200
        assert forward.end() == (0, "", "vmnest: no longer forwarding\n")


def test_the_sandboxs_end_is_its_end(cli: Cli, brief: str) -> None:
    with forwarding(cli, brief, "--poll-interval", "600") as forward:
        wait_until_served(forward.url)
        assert cli("rm", brief).status == 0
        status, out, err = forward.wait()
    assert (status, out) == (1, "")
    assert "ended" in err
    assert "Traceback" not in err


def test_one_of_the_same_name_is_another_sandbox(cli: Cli, brief: str) -> None:
    with forwarding(cli, brief, "--poll-interval", "600") as forward:
        wait_until_served(forward.url)
        assert cli("create", brief, "--local", "--replace").status == 0
        assert forward.wait()[0] == 1
    assert state(cli, brief) == "RUNNING"


def test_a_local_cloud_that_was_killed_is_started_and_it_goes_on() -> None:
    with contextlib.ExitStack() as stack:
        cloud = stack.enter_context(open_cloud())
        cli = Cli({**bare_environ(cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": cloud.folder})
        serve(cli, "box")
        forward = stack.enter_context(forwarding(cli, "box", "--poll-interval", "0.2"))
        wait_until_served(forward.url)
        cloud.process.kill()
        cloud.process.wait()
        stack.callback(cli, "local", "down", "--force")
        wait_until_served(forward.url)
        assert forward.process.poll() is None
        assert forward.end()[0] == 0


# -- in the background -------------------------------------------------------------------------------------------------


def test_it_goes_on_in_the_background_until_it_is_killed(cli: Cli, box: str) -> None:
    data = cli("forward", box, "-r", f"{PORT}:0", "--background", "--json").data
    pid, log, (only,) = data["pid"], Path(data["log"]), data["forwards"]
    try:
        wait_until_served(only["url"])
    finally:
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: is_refused(only["local"]))
    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    assert not log.exists()  # nothing was to be told


def test_in_the_background_it_ends_with_its_sandbox_and_tells_why(cli: Cli, brief: str) -> None:
    done = cli("forward", brief, "-r", f"{PORT}:0", "--background")
    assert done.status == 0
    url = done.text.partition(" ")[0]
    pid, log = done.remarks.split("kill ")[1].split()[0], Path(done.remarks.split()[-1])
    wait_until_served(url)
    assert cli("stop", brief).status == 0
    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    assert log.read_text() == "ended: sandbox brief was stopped: its ports are not forwarded any more\n"
    log.unlink()


def test_what_does_not_begin_well_is_not_left_in_the_background(cli: Cli, box: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = cli("forward", box, "-r", f"{PORT}:{taken.getsockname()[1]}", "--background", "--json")
    assert (done.status, done.error["code"]) == (1, "listen_failed")
