"""What a real local sandbox reaches: nothing, or what it was allowed, by the programs that people use."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import os
import signal
import socket
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Cli
from tests.support.cloud import LocalCloud, living_processes
from tests.support.lifecycle import eventually
from vmnest import Sandbox, errors, rendezvous

# Not 127.0.0.1: for that one, programs ask no proxy.
HOST = "127.0.0.2"
SIZE = 100_000_000


class Site(http.server.BaseHTTPRequestHandler):
    """Some pages. ``redirects`` says where /away leads to."""

    protocol_version = "HTTP/1.1"
    redirects = ""

    def do_GET(self) -> None:
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", self.redirects)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        size = SIZE if self.path == "/large" else 5
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        for _ in range(size // 1_000_000):
            self.wfile.write(bytes(1_000_000))
        if size == 5:
            self.wfile.write(b"hello")

    def do_PUT(self) -> None:
        digest, left = hashlib.sha256(), int(self.headers["Content-Length"])
        while left:
            data = self.rfile.read(min(left, 1_000_000))
            digest.update(data)
            left -= len(data)
        answer = digest.hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> Iterator[int]:
    """A server on this machine; its port."""
    with http.server.ThreadingHTTPServer((HOST, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def site() -> Iterator[int]:
    """The port of a server that a sandbox may be let reach."""
    with serving(Site) as port:
        yield port


@pytest.fixture(autouse=True)
def here(shared_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LocalCloud:
    """The cloud in this process's environment."""
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", shared_cloud.folder)
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    return shared_cloud


@contextlib.contextmanager
def sandbox(*allowed: str, **options: Any) -> Iterator[Sandbox]:
    with Sandbox.create(local=True, egress_allow=allowed, **options) as one:
        yield one


def shell(one: Sandbox, command: str) -> tuple[int, str]:
    """Status, and what the command prints on both."""
    done = one.exec("sh", ["-c", f"({command}) 2>&1"], timeout=100)
    return done.exit_code, done.stdout_text


def details(one: Sandbox) -> dict[str, Any]:
    found = one.inspect()["localDetails"]
    assert isinstance(found, dict)
    return found


CURL = "curl -sS -m 20"


def test_without_a_word_nothing_is_reached_and_nothing_is_there(site: int) -> None:
    with sandbox() as one:
        assert shell(one, "env | grep -i proxy")[0] == 1
        status, said = shell(one, f"{CURL} http://{HOST}:{site}/ || {CURL} http://127.0.0.1:3128/")
        assert status == 7, said
        assert details(one)["egress"] == []
        assert "egress_refused" not in details(one)


def test_what_is_allowed_is_reached_by_the_proxy_and_by_nothing_else(site: int) -> None:
    with sandbox(f"{HOST}:{site}") as one:
        assert shell(one, f"{CURL} http://{HOST}:{site}/") == (0, "hello")
        assert shell(one, f"{CURL} -p http://{HOST}:{site}/") == (0, "hello")  # through a tunnel
        assert shell(one, f"{CURL} --noproxy '*' http://{HOST}:{site}/")[0] == 7
        program = f"import socket; socket.create_connection(('{HOST}', {site}), 5)"
        assert "refused" in shell(one, f'python3 -c "{program}"')[1]
        program = f"import urllib.request as r; print(r.urlopen('http://{HOST}:{site}/').read())"
        assert shell(one, f'python3 -c "{program}"') == (0, "b'hello'\n")
        assert details(one)["egress"] == [f"{HOST}:{site}"]


def test_what_is_not_allowed_is_refused_and_told(site: int, here: LocalCloud) -> None:
    refused = [f"http://{HOST}:{site + 1}/", f"http://127.0.0.3:{site}/", "http://169.254.169.254/latest/secret"]
    with sandbox(f"{HOST}:{site}") as one:
        for url in refused:
            assert shell(one, f"{CURL} -o /dev/null -w '%{{http_code}}' {url}") == (0, "403"), url
        status, said = shell(one, f"{CURL} https://a.example/")
        assert (status, "403" in said) == (56, True)
        expected = [f"{HOST}:{site + 1}", f"127.0.0.3:{site}", "169.254.169.254:80", "a.example:443"]
        assert details(one)["egress_refused"] == expected
        assert f"{one.microvm_id}: egress to 169.254.169.254:80: refused, no rule allows it" in here.log
        assert "secret" not in here.log


def test_internet_is_what_is_public(site: int) -> None:
    with sandbox("internet") as one:
        for host in (f"{HOST}:{site}", "127.0.0.3", "10.0.0.1", "[::1]", "[::ffff:127.0.0.2]", "[64:ff9b::7f00:2]"):
            said = shell(one, f"{CURL} -g --noproxy '' -o /dev/null -w '%{{http_code}}' http://{host}/")
            assert said == (0, "403"), host
        for host in ("2130706434", "0x7f.2", "0177.0.0.2"):
            line = f"GET http://{host}/ HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n"
            assert "400 Bad Request" in speak(one, line)


def speak(one: Sandbox, line: str) -> str:
    """What the proxy answers to these bytes."""
    program = (
        "import socket; s = socket.create_connection(('127.0.0.1', 3128)); "
        f"s.sendall(b'{line}'); s.settimeout(20); print(s.recv(1000).decode())"
    )
    return one.exec("python3", ["-c", program]).stdout_text


def test_a_redirect_to_what_is_not_allowed_is_refused(site: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Site, "redirects", f"http://127.0.0.3:{site}/")
    with sandbox(f"{HOST}:{site}") as one:
        assert shell(one, f"{CURL} -L -o /dev/null -w '%{{http_code}}' http://{HOST}:{site}/away") == (0, "403")
        monkeypatch.setattr(Site, "redirects", f"http://{HOST}:{site}/")
        assert shell(one, f"{CURL} -L http://{HOST}:{site}/away") == (0, "hello")


def test_tunnels_to_odd_ports_and_other_servers_are_refused(site: int) -> None:
    with sandbox(f"{HOST}:{site}") as one:
        for place in (f"{HOST}:22", f"{HOST}:{site + 1}", f"localhost:{site}", f"[::1]:{site}"):
            assert speak(one, f"CONNECT {place} HTTP/1.1\\r\\nHost: {place}\\r\\n\\r\\n").startswith("HTTP/1.1 403")
        line = f"GET http://{HOST}:{site}/ HTTP/1.1\\r\\nHost: a.example\\r\\n\\r\\n"
        assert speak(one, line).startswith("HTTP/1.1 400")


def test_large_bodies_go_both_ways_while_the_daemon_stays_small(site: int, here: LocalCloud) -> None:
    with sandbox(f"{HOST}:{site}") as one:
        assert shell(one, f"{CURL} -o /dev/null http://{HOST}:{site}/") == (0, "")
        before = resident(here)
        command = f"{CURL} -m 90 http://{HOST}:{site}/large | wc -c"
        assert shell(one, command) == (0, f"{SIZE}\n")
        command = f"head -c {SIZE} /dev/zero > large && {CURL} -m 90 -T large http://{HOST}:{site}/"
        assert shell(one, command) == (0, hashlib.sha256(bytes(SIZE)).hexdigest())
        assert resident(here) - before < 40_000_000


def resident(cloud: LocalCloud) -> int:
    """Bytes of memory that the daemon has."""
    pages = Path(f"/proc/{cloud.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_what_is_under_way_is_cut_by_a_suspend_and_works_again_afterwards(site: int) -> None:
    silent = socket.create_server((HOST, 0))
    port = silent.getsockname()[1]
    with silent, sandbox(f"{HOST}:{site}", f"{HOST}:{port}") as one:
        waiting = one.spawn("sh", ["-c", f"curl -sS -p http://{HOST}:{port}/ 2>&1"])
        call, _ = silent.accept()
        with call:
            assert call.recv(1000)
            one.suspend()
            call.settimeout(20)
            assert call.recv(1000) == b""
        one.resume()
        assert waiting.wait(timeout=30) in {52, 56}
        assert shell(one, f"{CURL} http://{HOST}:{site}/") == (0, "hello")


def test_another_daemon_goes_on_where_one_was_killed(
    site: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(prefix="vmnest-test-", dir=shared) as folder:
        monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", folder)
        with sandbox(f"{HOST}:{site}") as one:
            found = rendezvous.read(folder)
            assert found is not None
            os.kill(found.pid, signal.SIGKILL)
            eventually(lambda: not rendezvous.is_alive(folder))
            assert shell(one, f"{CURL} http://{HOST}:{site}/") == (0, "hello")
            assert shell(one, f"{CURL} -o /dev/null -w '%{{http_code}}' http://127.0.0.3:{site}/") == (0, "403")
            assert details(one)["egress"] == [f"{HOST}:{site}"]
            found = rendezvous.read(folder)
            assert found is not None
        os.kill(found.pid, signal.SIGTERM)
        eventually(lambda: not living_processes(folder))


def test_packages_are_installed_from_an_index_that_is_allowed(tmp_path: Path) -> None:
    write_package(tmp_path)
    with serving(functools.partial(QuietFiles, directory=str(tmp_path))) as port, sandbox(f"{HOST}:{port}") as one:
        status, said = shell(
            one,
            "python3 -m venv v && v/bin/pip install -q --disable-pip-version-check --trusted-host "
            f"{HOST} -i http://{HOST}:{port}/simple tiny && v/bin/python -c 'import tiny; print(tiny.NAME)'",
        )
        assert (status, said) == (0, "tiny package\n")


class QuietFiles(http.server.SimpleHTTPRequestHandler):
    """Files of a folder."""

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def write_package(folder: Path) -> None:
    """An index of one package."""
    place = folder / "simple" / "tiny"
    place.mkdir(parents=True)
    name = "tiny-1.0-py3-none-any.whl"
    meta = "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
    wheel = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {
        "tiny.py": "NAME = 'tiny package'\n",
        "tiny-1.0.dist-info/METADATA": meta,
        "tiny-1.0.dist-info/WHEEL": wheel,
    }
    with zipfile.ZipFile(place / name, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        record = "".join(f"{path},,\n" for path in (*files, "tiny-1.0.dist-info/RECORD"))
        archive.writestr("tiny-1.0.dist-info/RECORD", record)
    (place / "index.html").write_text(f'<a href="{name}">{name}</a>')


def test_many_connections_at_once_are_served(site: int) -> None:
    program = (
        "import socket, threading\n"
        "def ask():\n"
        "    with socket.create_connection(('127.0.0.1', 3128), 60) as call:\n"
        f"        call.sendall(b'GET http://{HOST}:{site}/ HTTP/1.1\\r\\nHost: {HOST}:{site}\\r\\n')\n"
        "        call.sendall(b'Connection: close\\r\\n\\r\\n')\n"
        "        answers.append(b''.join(iter(lambda: call.recv(9999), b'')))\n"
        "answers = []\n"
        "threads = [threading.Thread(target=ask) for _ in range(200)]\n"
        "for each in threads: each.start()\n"
        "for each in threads: each.join()\n"
        "print(sum(each.endswith(b'hello') for each in answers))\n"
    )
    with sandbox(f"{HOST}:{site}") as one:
        assert one.exec("python3", ["-c", program], timeout=100).stdout_text == "200\n"


def test_the_command_line_takes_hosts_and_shows_them(site: int, here: LocalCloud) -> None:
    cli = Cli({**here.environ, "AGENT_SANDBOX_STATE": os.environ["AGENT_SANDBOX_STATE"]})
    allowed = f"--egress-allow={HOST}:{site}"
    done = cli("--local", "run", allowed, "--", "curl", "-sS", f"http://{HOST}:{site}/")
    assert (done.status, done.text, done.remarks) == (0, "hello", "")
    made = cli("--local", "create", "web", allowed, "--egress-allow", "*.example", "--json")
    assert made.data["local_details"]["egress"] == [f"{HOST}:{site}", "*.example"]
    shown = cli("ps", "web").text
    assert f"{HOST}:{site}, *.example" in shown
    assert cli("rm", "web").status == 0
    wrong = cli("--local", "create", "web", "--egress-allow", "http://a.example/", "--json")
    assert (wrong.status, wrong.error["code"]) == (2, "usage")


def test_the_connector_to_the_internet_is_the_same_by_another_name() -> None:
    with Sandbox.create(local=True, egress_network_connectors=["INTERNET_EGRESS"]) as one:
        assert details(one)["egress"] == ["internet"]
        assert str(one.inspect()["egressNetworkConnectors"]).endswith(":INTERNET_EGRESS']")


def test_what_the_service_calls_the_default_opens_nothing(site: int, here: LocalCloud) -> None:
    client = here.client()
    made = client.run_microvm(
        imageIdentifier="arn:aws:lambda:us-east-1:000000000000:microvm-image:local",
        egressNetworkConnectors=[
            "arn:aws:lambda:us-east-1:aws:network-connector:aws-network-connector:INTERNET_EGRESS"
        ],
    )
    try:
        with Sandbox.attach("theirs", made["microvmId"], endpoint=made["endpoint"], local=True) as one:
            assert shell(one, "env | grep -i proxy")[0] == 1
            assert shell(one, f"{CURL} http://127.0.0.1:3128/")[0] == 7
    finally:
        client.terminate_microvm(microvmIdentifier=made["microvmId"])


def test_what_is_no_host_starts_nothing() -> None:
    with pytest.raises(errors.UsageError, match="not allowed to a sandbox as egress"):
        Sandbox.create("web", local=True, egress_allow=["*"])
    with pytest.raises(errors.SandboxNotFoundError):
        Sandbox.attach("web")
