"""The service's shell of the local cloud: its own words on the wire, a real agent behind it, independent clients."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.support.agent import Agent
from tests.support.endpoints import Endpoint, open_endpoint
from tests.support.lifecycle import eventually
from vmnest.local import connectors, shell
from vmnest.wire import names

SECONDS = 20.0
INGRESS = (connectors.managed(names.HTTP_INGRESS), connectors.managed(names.SHELL_INGRESS))


@pytest.fixture
def endpoint(agent: Agent) -> Iterator[Endpoint]:
    with open_endpoint({8080: agent.port}, ingress=INGRESS) as made:
        yield made


class Client:
    """A client of a shell."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        first = connection.recv(SECONDS)
        assert isinstance(first, str)
        self.greeting = json.loads(first)
        self.seen = b""

    def type(self, keys: bytes) -> None:
        self.connection.send(keys)

    def read_until(self, text: bytes) -> bytes:
        while text not in self.seen:
            data = self.connection.recv(SECONDS)
            assert isinstance(data, bytes)
            self.seen += data
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def read_rest(self) -> None:
        while True:
            self.connection.recv(SECONDS)

    def wait_closed(self) -> tuple[int, str]:
        with pytest.raises(ConnectionClosed) as caught:
            self.read_rest()
        assert caught.value.rcvd is not None
        return caught.value.rcvd.code, caught.value.rcvd.reason


@contextlib.contextmanager
def opened(endpoint: Endpoint, *protocols: str, path: str = "/shell", **headers: str) -> Iterator[Client]:
    url = f"ws://{endpoint.host}:{endpoint.port}{path}"
    with connect(
        url,
        subprotocols=list(protocols) or None,  # type: ignore[arg-type]
        additional_headers=headers,
        compression=None,
        proxy=None,
    ) as connection:
        yield Client(connection)


def toolkit(endpoint: Endpoint) -> tuple[str, ...]:
    """The subprotocols as the AWS toolkit offers them."""
    token = endpoint.token(for_shell=True)
    return (
        names.SUBPROTOCOL_AUTH_PREFIX + token,
        names.SUBPROTOCOL_MARKER,
        f"{names.SUBPROTOCOL_PORT_PREFIX}{names.SHELL_PORT}",
    )


def processes(agent: Agent) -> list[dict[str, object]]:
    found: list[dict[str, object]] = agent.request("GET", "/v1/processes").json()["processes"]
    return found


def test_it_greets_and_gives_a_terminal(endpoint: Endpoint) -> None:
    with opened(endpoint, *toolkit(endpoint)) as client:
        assert client.connection.subprotocol == names.SUBPROTOCOL_MARKER
        assert client.greeting["type"] == "session_init"
        assert uuid.UUID(client.greeting["session_id"])
        client.type(b"tty; echo TERM=$TERM; shopt -q login_shell 2>/dev/null; echo login=$?; stty size\r")
        client.read_until(b"/dev/pts/")
        client.read_until(b"TERM=xterm\r\n")
        client.read_until(b"login=0")
        client.read_until(b"24 80\r\n")
        client.type(b"exit 3\r")
        assert client.wait_closed() == (1000, "shell exited")


@pytest.mark.parametrize("path", ["/", "/shell", "/any?x=1"])
def test_a_header_opens_it_too_on_any_path(endpoint: Endpoint, path: str) -> None:
    headers = {names.PROXY_AUTH_HEADER: endpoint.token(for_shell=True)}
    with opened(endpoint, path=path, **headers) as client:
        assert client.connection.subprotocol is None
        client.type(b"exit\r")
        assert client.wait_closed() == (1000, "shell exited")


def test_the_size_is_what_the_client_says_and_other_texts_are_typed(endpoint: Endpoint) -> None:
    with opened(endpoint, *toolkit(endpoint)) as client:
        client.connection.send(json.dumps({"type": "resize", "cols": 120, "rows": 40}))
        client.connection.send("stty size\r")
        client.read_until(b"40 120\r\n")


def test_a_paste_arrives_whole_and_so_does_what_is_shown(endpoint: Endpoint) -> None:
    data = os.urandom(100_000).hex().encode()
    with opened(endpoint, *toolkit(endpoint)) as client:
        client.type(f"stty raw -echo; echo ready; head -c {len(data)} | sha256sum; stty sane; seq 100000\r".encode())
        client.read_until(b"ready\r\n" if b"ready\r\n" in client.seen else b"ready\n")
        client.type(data)
        client.read_until(hashlib.sha256(data).hexdigest().encode())
        client.read_until(b"99999\r\n100000\r\n")


def test_ctrl_c_reaches_what_runs(endpoint: Endpoint) -> None:
    with opened(endpoint, *toolkit(endpoint)) as client:
        client.type(b"sh -c 'echo be\"\"gin; exec sleep 600'\r")
        client.read_until(b"begin\r\n")
        client.type(b"\x03")
        client.type(b"echo next=$?\r")
        client.read_until(b"next=130")


def test_a_client_that_leaves_leaves_no_shell_behind(agent: Agent, endpoint: Endpoint) -> None:
    with opened(endpoint, *toolkit(endpoint)) as client:
        client.type(b"echo be''gin; sleep 600\r")
        client.read_until(b"begin\r\n")
        assert [each["state"] for each in processes(agent)] == ["running"]
    eventually(lambda: not processes(agent))


def test_a_client_that_is_cut_off_leaves_no_shell_behind_either(agent: Agent, endpoint: Endpoint) -> None:
    with opened(endpoint, *toolkit(endpoint)) as client:
        assert len(processes(agent)) == 1
        client.connection.socket.close()
        eventually(lambda: not processes(agent))


def test_a_shell_that_has_ended_is_forgotten(agent: Agent, endpoint: Endpoint) -> None:
    with opened(endpoint, *toolkit(endpoint)) as client:
        client.type(b"exit\r")
        client.wait_closed()
    eventually(lambda: not processes(agent))


def test_input_that_a_shell_does_not_read_keeps_nobody(agent: Agent, endpoint: Endpoint) -> None:
    with opened(endpoint, *toolkit(endpoint)) as client:
        client.type(b"stty raw -echo; echo be''gin; exec sleep 600\r")
        client.read_until(b"begin")
        for _ in range(5):
            client.type(b"x" * 100_000)
    eventually(lambda: not processes(agent))


def test_its_bytes_keep_the_vm_awake(endpoint: Endpoint) -> None:
    with opened(endpoint, *toolkit(endpoint)) as client:
        assert endpoint.record.touched_at > 0
        endpoint.record.touched_at = 0.0
        client.type(b"echo x''y\r")
        client.read_until(b"xy")
        assert endpoint.record.touched_at > 0


def test_what_is_no_websocket_finds_nothing(endpoint: Endpoint) -> None:
    status, headers, body = endpoint.get(headers={names.PROXY_AUTH_HEADER: endpoint.token(for_shell=True)})
    assert (status, headers["x-aws-proxy-error"], body) == (502, names.APP_CONNECT_FAILED, b"")


def test_an_upgrade_without_a_key_is_refused(endpoint: Endpoint) -> None:
    headers = {
        names.PROXY_AUTH_HEADER: endpoint.token(for_shell=True),
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
    }
    assert endpoint.get(headers=headers)[0] == 400


def refusal(endpoint: Endpoint, *protocols: str, **headers: str) -> int:
    with pytest.raises(InvalidStatus) as caught, opened(endpoint, *protocols, **headers):
        pass
    return caught.value.response.status_code


def test_another_port_is_refused(endpoint: Endpoint) -> None:
    assert refusal(endpoint, *toolkit(endpoint)[:2], f"{names.SUBPROTOCOL_PORT_PREFIX}8080") == 403


def test_a_token_without_the_marker_is_refused(endpoint: Endpoint) -> None:
    assert refusal(endpoint, toolkit(endpoint)[0]) == 403


def test_a_token_for_ports_opens_no_shell(endpoint: Endpoint) -> None:
    headers = {names.PROXY_AUTH_HEADER: endpoint.token((1, 7999)), names.PROXY_PORT_HEADER: str(names.SHELL_PORT)}
    assert refusal(endpoint, **headers) == 403


def test_without_its_connector_there_is_no_shell(agent: Agent) -> None:
    with open_endpoint({8080: agent.port}) as endpoint:
        assert refusal(endpoint, *toolkit(endpoint)) == 403


def test_without_an_agent_there_is_no_shell() -> None:
    with open_endpoint({}, ingress=INGRESS) as endpoint:
        assert refusal(endpoint, *toolkit(endpoint)) == 502


def test_a_client_that_does_not_mask_is_closed(agent: Agent, endpoint: Endpoint) -> None:
    with opened(endpoint, *toolkit(endpoint)) as client:
        client.connection.socket.sendall(b"\x82\x01x")
        assert client.wait_closed()[0] == 1002
    eventually(lambda: not processes(agent))


def test_an_agent_that_dies_closes_it(start_agent: Callable[..., Agent]) -> None:
    agent = start_agent()
    with open_endpoint({8080: agent.port}, ingress=INGRESS) as endpoint, opened(endpoint, *toolkit(endpoint)) as client:
        agent.process.kill()
        assert client.wait_closed()[0] == 1011


def test_a_suspension_cuts_it(endpoint: Endpoint) -> None:
    with opened(endpoint, *toolkit(endpoint)) as client:
        with endpoint.record.changed:
            endpoint.record.cut_passages()
        with pytest.raises(ConnectionClosed) as caught:
            client.read_rest()
        assert caught.value.rcvd is None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (b'{"type":"resize","cols":120,"rows":40}', (120, 40)),
        (b'{"type":"resize","cols":120}', None),
        (b'{"type":"resize","cols":0,"rows":40}', None),
        (b'{"type":"resize","cols":true,"rows":40}', None),
        (b'{"type":"resize","cols":"120","rows":40}', None),
        (b'{"type":"resize","cols":65536,"rows":40}', None),
        (b'{"type":"other","cols":120,"rows":40}', None),
        (b"[1]", None),
        (b"ls\r", None),
    ],
)
def test_a_size_is_told_from_what_is_typed(text: bytes, size: tuple[int, int] | None) -> None:
    assert shell.parse_size(text) == size


@given(st.binary())
def test_any_text_can_be_looked_at(text: bytes) -> None:
    shell.parse_size(text)
