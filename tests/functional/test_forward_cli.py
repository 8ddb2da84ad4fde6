"""``vmnest forward`` as real processes, against a local cloud."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Cli, bare_environ
from tests.support.cloud import LocalCloud, open_cloud
from tests.support.lifecycle import eventually

WAIT_SECONDS = 20.0
# Answers with the Host that it was asked for.
SERVER = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.headers["Host"].encode())
ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with open_cloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def cli(cloud: LocalCloud) -> Cli:
    return Cli({**bare_environ(cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": cloud.folder})


@pytest.fixture
def box(cli: Cli) -> Iterator[str]:
    """A sandbox with a server in it."""
    assert cli("create", "box", "--local").status == 0
    assert cli("exec", "box", "-q", "--background", "--", "python3", "-c", SERVER).status == 0
    yield "box"
    assert cli("rm", "box").status in (0, 3)


def start(cli: Cli, *words: str) -> tuple[subprocess.Popen[bytes], str]:
    """A forwarder and its first line."""
    process = cli.start("forward", *words)
    assert process.stdout is not None
    return process, process.stdout.readline().decode()


def end(process: subprocess.Popen[bytes], number: int | None = signal.SIGINT) -> tuple[int, str]:
    """Its status, and what it has said on standard error."""
    with process:
        if number is not None:
            process.send_signal(number)
        _, said = process.communicate(timeout=WAIT_SECONDS)
        return process.returncode, said.decode()


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def url_in(line: str) -> str:
    found = re.fullmatch(r"(http://localhost:[0-9]+) -> box:8000\n", line)
    assert found, line
    return found[1]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=str)
def test_it_tells_where_it_listens_and_ends_with_a_signal(
    cli: Cli, box: str, number: signal.Signals, status: int
) -> None:
    process, line = start(cli, box, "-r", "8000", "-l", "0")
    url = url_in(line)
    eventually(lambda: get(url) == (200, "localhost:8000"))
    assert end(process, number) == (status, "vmnest: interrupted\n")
    with pytest.raises(OSError, match="refused"):
        get(url)


def test_a_port_on_which_nothing_listens_is_a_page_and_one_remark(cli: Cli, box: str) -> None:
    process, line = start(cli, box, "-r", "8001", "-l", "0")
    url = line.split()[0]
    for _ in range(3):
        code, page = get(url, Accept="text/html")
        assert code == 502
        assert "port 8001" in page
    _, said = end(process)
    assert said == "vmnest: nothing listens on port 8001 in the sandbox\nvmnest: interrupted\n"


@pytest.mark.parametrize("verb", ["stop", "rm"])
def test_it_ends_when_the_sandbox_is_stopped_or_removed(cli: Cli, box: str, verb: str) -> None:
    process, line = start(cli, box, "-r", "8000", "-l", "0", "--poll-interval", "0.2")
    eventually(lambda: get(url_in(line))[0] == 200)
    assert cli(verb, box).status == 0
    status, said = end(process, None)
    assert status in (1, 3)
    assert "vmnest" in said
    assert "Traceback" not in said
    if verb == "stop":
        assert cli("ps", box, "--json").data["state"] == "SUSPENDED"


def test_a_port_that_is_taken_is_told(cli: Cli, box: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = str(taken.getsockname()[1])
        done = cli("forward", box, "-r", "8000", "-l", number)
        assert done.status == 1
        assert f"cannot listen on 127.0.0.1 port {number}: another program listens there" in done.remarks
        error = cli("forward", box, "-r", "8000", "-l", number, "--json").error
        assert error["code"] == "listen_failed"
        assert cli("forward", box, "-r", "8000", "-l", number, "--background", "--json").error == error


def test_the_port_of_the_hooks_is_never_forwarded(cli: Cli, box: str) -> None:
    for ports in ("9000", "8990-9010"):
        done = cli("forward", box, "-r", ports)
        assert done.status == 2
        assert "9000" in done.remarks


def test_several_ports_and_json(cli: Cli, box: str) -> None:
    process, line = start(cli, box, "-r", "8000:0", "-r", "8005-8006:0", "--json")
    try:
        told = json.loads(line)
        assert told["name"] == box
        assert [each["remote"] for each in told["forwards"]] == [8000, 8005, 8006]
        first = told["forwards"][0]
        eventually(lambda: get(first["url"])[0] == 200)
        assert first["url"] == f"http://localhost:{first['local']}"
    finally:
        assert end(process)[0] == 130


def test_it_goes_on_in_the_background_until_the_sandbox_is_stopped(cli: Cli, box: str) -> None:
    told = cli("forward", box, "-r", "8000:0", "--background", "--poll-interval", "0.2", "--json").data
    url = told["forwards"][0]["url"]
    eventually(lambda: get(url) == (200, "localhost:8000"))
    assert cli("stop", box).status == 0
    eventually(lambda: not is_alive(told["pid"]))
    assert "sandbox box was stopped" in Path(told["log"]).read_text()
    Path(told["log"]).unlink()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_stopped_sandbox_is_resumed_by_a_new_forwarding(cli: Cli, box: str) -> None:
    assert cli("stop", box).status == 0
    process, line = start(cli, box, "-r", "8000", "-l", "0")
    try:
        eventually(lambda: get(url_in(line)) == (200, "localhost:8000"))
    finally:
        assert end(process)[0] == 130


def test_a_request_under_a_foreign_name_is_refused_unless_it_is_allowed(cli: Cli, box: str) -> None:
    process, line = start(cli, box, "-r", "8000", "-l", "0", "--allow-host", "mine.example")
    try:
        eventually(lambda: get(url_in(line), Host="mine.example") == (200, "localhost:8000"))
        code, text = get(url_in(line), Host="theirs.example")
        assert code == 403
        assert "--allow-host theirs.example" in text
    finally:
        end(process)
