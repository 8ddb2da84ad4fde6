"""The whole way: a forwarder, the local cloud's proxy, an agent's relay, and servers in a sandbox that misbehave."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from tests.support.cloud import LocalCloud
from tests.support.forward import Answer, Client
from vmnest import Sandbox, errors
from vmnest.sandbox.forwarding import Forwarding

PORT, OTHER_PORT = 3000, 3001
READY_SECONDS = 20.0
IDLE_SOCKETS = 200
UPGRADE = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")

# Refuses names that are not its own as Vite does, and crashes, breaks off and waits when it is asked to.
SERVER = """
import json, os, socket, sys, threading

address, port = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
listener = socket.create_server((address, port), family=family, backlog=1024)
asked = []
print("ready", flush=True)

def serve(connection):
    with connection, connection.makefile("rb") as stream:
        while line := stream.readline():
            method, target, _ = line.decode().split(" ", 2)
            fields = [each.decode().strip().partition(": ")[::2] for each in iter(stream.readline, b"\\r\\n")]
            named = {name.lower(): value for name, value in fields}
            body = stream.read(int(named.get("content-length", 0)))
            asked.append(f"{method} {target}")
            if not answer(connection, method, target, fields, named, body):
                return

def answer(connection, method, target, fields, named, body):
    if named.get("host") != f"localhost:{port}":
        return say(connection, 403, b"Blocked request. This host is not allowed.")
    if target == "/crash":
        return False
    if target == "/half":
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 100\\r\\n\\r\\nhalf")
        return False
    if target == "/asked":
        return say(connection, 200, json.dumps(asked).encode())
    if "upgrade" in named:
        connection.sendall(b"HTTP/1.1 101 Go\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n\\r\\n")
        while data := connection.recv(65536):
            connection.sendall(data)
        return False
    return say(connection, 200, body or json.dumps(fields).encode())

def say(connection, status, body):
    connection.sendall(b"HTTP/1.1 %d Said\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (status, len(body), body))
    return True

while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@pytest.fixture(scope="module")
def sandbox(shared_cloud: LocalCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT_SANDBOX_LOCAL_DIR", shared_cloud.folder)
        patch.setenv("AGENT_SANDBOX_STATE", str(tmp_path_factory.mktemp("forward") / "state.json"))
        with Sandbox.create("odd", local=True) as created:
            created.files.write("/work/server.py", SERVER.encode())
            yield created


@pytest.fixture(scope="module")
def servers(sandbox: Sandbox) -> Iterator[None]:
    """One that listens on the old loopback alone, and one on the new alone."""
    with ExitStack() as stack:
        for address, port in (("127.0.0.1", PORT), ("::1", OTHER_PORT)):
            words = ["-u", "/work/server.py", address, str(port)]
            server = stack.enter_context(sandbox.spawn("python3", words, retain="drop"))
            assert next(iter(server.lines(timeout=READY_SECONDS))).text.strip() == "ready"
        yield


@pytest.fixture(scope="module")
def relayed(sandbox: Sandbox, servers: None) -> Iterator[Forwarding]:
    with sandbox.forward(f"{PORT}:0", f"{OTHER_PORT}:0") as opened:
        yield opened


def ask(forwarding: Forwarding, target: str, *lines: str, method: str = "GET", body: bytes = b"") -> Answer:
    with closing(Client(forwarding.local_port)) as client:
        return client.get(target, *lines, method=method, body=body)


def test_a_server_is_asked_by_its_own_name(relayed: Forwarding) -> None:
    host = f"localhost:{relayed.local_port}"
    answer = ask(relayed, "/", f"Origin: http://{host}", "X-Mine: 1", "X-Mine: 2")
    fields = [tuple(field) for field in json.loads(answer.body)]
    assert ("Host", f"localhost:{PORT}") in fields
    assert ("Origin", f"http://localhost:{PORT}") in fields
    assert [value for name, value in fields if name == "X-Mine"] == ["1", "2"]
    assert [value for name, value in fields if name.lower() == "x-forwarded-host"] == [host]
    assert not [name for name, _ in fields if name.lower().startswith(("x-aws-proxy-", "vmnest-"))]


def test_a_foreign_origin_stays_foreign(relayed: Forwarding) -> None:
    fields = json.loads(ask(relayed, "/", "Origin: https://elsewhere.example").body)
    assert ["Origin", "https://elsewhere.example"] in fields


def test_a_server_on_the_new_loopback_alone_is_reached(relayed: Forwarding) -> None:
    with closing(Client(relayed.ports[OTHER_PORT])) as client:
        assert client.get("/", method="POST", body=b"six").body == b"six"


def test_directly_a_check_of_hosts_is_told_with_its_remedy(sandbox: Sandbox, servers: None) -> None:
    remarks: list[str] = []
    with sandbox.forward(PORT, local_port=0, direct=True, on_remark=remarks.append) as direct:
        assert ask(direct, "/").status == 403
    (remark,) = remarks
    assert "allowedHosts" in remark


@pytest.mark.parametrize("target", ["/half", "/crash"])
def test_what_a_server_breaks_off_is_never_whole(relayed: Forwarding, target: str) -> None:
    answer = ask(relayed, target)
    assert (answer.status, answer.is_whole) in {(200, False), (502, True)}
    assert answer.is_whole is (target == "/crash")


def test_a_server_that_dies_of_a_request_gets_it_once(relayed: Forwarding) -> None:
    with closing(Client(relayed.local_port)) as client:
        # On a connection that has carried others before: it might just have been idle for too long.
        assert client.get("/", method="POST", body=b"first").body == b"first"
        assert client.get("/crash", method="POST", body=b"pay").status == 502
    assert json.loads(ask(relayed, "/asked").body).count("POST /crash") == 1


def test_many_at_once_all_get_their_own_answer(relayed: Forwarding) -> None:
    with ThreadPoolExecutor(32) as pool:
        bodies = list(pool.map(lambda n: ask(relayed, "/", method="POST", body=b"%d" % n).body, range(200)))
    assert bodies == [b"%d" % number for number in range(200)]


def test_commands_run_while_many_sockets_idle(relayed: Forwarding, sandbox: Sandbox) -> None:
    with ExitStack() as stack:
        clients = []
        for _ in range(IDLE_SOCKETS):
            client = Client(relayed.local_port)
            stack.callback(client.close)
            assert client.get("/", *UPGRADE).status == 101
            clients.append(client)
        assert sandbox.exec("echo", ["still here"]).stdout == b"still here\n"
        for client in clients:
            client.send(b"\x81\x80abcd")
            assert client.receive_exactly(6) == b"\x81\x80abcd"


def test_the_agents_own_port_answers_its_own_pages_alone(sandbox: Sandbox) -> None:
    with sandbox.forward("8080:0") as agent:
        assert ask(agent, "/healthz").status == 200
        assert ask(agent, "/healthz", "Origin: https://elsewhere.example").status == 403


def test_nothing_listens_yet(sandbox: Sandbox, servers: None) -> None:
    remarks: list[str] = []
    with sandbox.forward("3999:0", on_remark=remarks.append) as opened:
        page = ask(opened, "/", "Accept: text/html")
        assert (page.status, page.get("retry-after")) == (502, "1")
        assert len(remarks) == 1
        with sandbox.spawn("python3", ["-u", "/work/server.py", "127.0.0.1", "3999"], retain="drop") as server:
            assert next(iter(server.lines(timeout=READY_SECONDS))).text.strip() == "ready"
            assert ask(opened, "/").status == 200


def test_a_sandbox_that_slept_is_woken_by_a_request(
    relayed: Forwarding, sandbox: Sandbox, shared_cloud: LocalCloud
) -> None:
    shared_cloud.client().suspend_microvm(microvmIdentifier=sandbox.record.microvm_id)
    wait_until(lambda: sandbox.refresh() == "SUSPENDED")
    assert ask(relayed, "/", method="POST", body=b"hello").body == b"hello"
    assert relayed.is_open


def test_a_removed_sandbox_ends_its_forwarding(shared_cloud: LocalCloud, sandbox: Sandbox) -> None:
    with Sandbox.create("short", local=True) as short, short.forward("3000:0", poll_interval=0.1) as opened:
        shared_cloud.client().terminate_microvm(microvmIdentifier=short.record.microvm_id)
        with pytest.raises(errors.MicroVMEndedError):
            opened.wait(READY_SECONDS)
        wait_until(lambda: not is_open(opened.local_port))


def is_open(port: int) -> bool:
    try:
        Client(port).close()
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:
        return True  # it is being closed just now
    return True


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + READY_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
