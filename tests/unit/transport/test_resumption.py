"""TLS sessions, against real servers that tell whether one was taken up again."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.authority import Authority, build_authority
from tests.support.pairs import VERSIONS
from vmnest import errors, transport
from vmnest.deadline import Deadline
from vmnest.transport import resumption, tls

SECONDS = 10.0
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers one request on each connection, and writes down whether its handshake was spared."""

    def __init__(self, context: ssl.SSLContext, *, port: int = 0) -> None:
        self.context = context
        self.reused: list[bool] = []
        self.is_deaf = False
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return  # it was shut down
            with sock, contextlib.suppress(OSError):
                sock.settimeout(SECONDS)
                if self.is_deaf:
                    continue
                with self.context.wrap_socket(sock, server_side=True) as secured:
                    if not secured.recv(65536):
                        continue
                    assert secured.session_reused is not None
                    self.reused.append(secured.session_reused)
                    secured.sendall(ANSWER)
                    secured.recv(1)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(SECONDS)
        self._listener.close()


@contextlib.contextmanager
def serving(context: ssl.SSLContext, *, port: int = 0) -> Iterator[Server]:
    server = Server(context, port=port)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(params=VERSIONS.values(), ids=VERSIONS)
def server(request: pytest.FixtureRequest, authority: Authority) -> Iterator[Server]:
    context = authority.context("localhost", "127.0.0.1")
    context.maximum_version = request.param
    with serving(context) as one:
        yield one


def build(authority: Authority | None) -> ssl.SSLContext:
    return tls.build_context(False if authority is None else str(authority.bundle), environ={})


def visit(server: Server, context: ssl.SSLContext, *, name: str | None = "localhost") -> ssl.SSLSession:
    raw = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
    try:
        with context.wrap_socket(raw, server_hostname=name) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert sock.recv(65536) == ANSWER
            assert sock.session is not None
            return sock.session
    finally:
        raw.close()


def test_the_second_connection_takes_the_session_up(server: Server, authority: Authority) -> None:
    context = build(authority)
    for _ in range(4):
        visit(server, context)
    assert server.reused == [False, True, True, True]


def test_an_address_is_a_peer_as_well(server: Server, authority: Authority) -> None:
    context = build(authority)
    for _ in range(2):
        visit(server, context, name="127.0.0.1")
    context.check_hostname = False  # as urllib3 1.26 has it, which gives no name with an address
    for _ in range(2):
        visit(server, context, name=None)
    assert server.reused == [False, True, False, True]


def test_the_certificate_is_known_of_a_session_that_was_taken_up(server: Server, authority: Authority) -> None:
    # urllib3 1.26 compares its names itself.
    context = build(authority)
    names = []
    for _ in range(2):
        raw = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
        with context.wrap_socket(raw, server_hostname="localhost") as sock:
            names.append((sock.getpeercert() or {}).get("subjectAltName"))
            sock.sendall(b"?")
            sock.recv(65536)
    assert server.reused == [False, True]
    assert names == [(("DNS", "localhost"), ("IP Address", "127.0.0.1"))] * 2


def test_the_session_of_one_name_is_not_offered_to_another(server: Server, authority: Authority) -> None:
    context = build(authority)
    visit(server, context)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        visit(server, context, name="other.example")
    visit(server, context, name="127.0.0.1")
    assert server.reused == [False, False]


def test_a_session_without_verification_is_none_for_those_who_verify(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    visit(server, build(None))
    with pytest.raises(ssl.SSLCertVerificationError):
        visit(server, build(build_authority(tmp_path / "other")))
    visit(server, build(authority))
    assert server.reused == [False, False]


def test_another_peer_at_the_same_place_is_verified(authority: Authority, tmp_path: Path) -> None:
    context = build(authority)
    with serving(authority.context("localhost")) as first:
        visit(first, context)
        port = first.port
    impostor = build_authority(tmp_path / "other").context("localhost")
    with serving(impostor, port=port) as second, pytest.raises(ssl.SSLCertVerificationError):
        visit(second, context)
    with serving(authority.context("localhost"), port=port) as third:
        visit(third, context)
        visit(third, context)
        assert third.reused == [False, True]


def test_a_session_is_not_offered_again_after_a_handshake_that_failed(server: Server, authority: Authority) -> None:
    context = build(authority)
    visit(server, context)
    server.is_deaf = True
    with pytest.raises(OSError):
        visit(server, context)
    server.is_deaf = False
    visit(server, context)
    assert server.reused == [False, False]


def test_a_handshake_that_does_not_block_takes_it_up_too(server: Server, authority: Authority) -> None:
    context = build(authority)
    visit(server, context)
    raw = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
    with context.wrap_socket(raw, server_hostname="localhost", do_handshake_on_connect=False) as sock:
        sock.setblocking(False)
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                sock.do_handshake()
                break
        sock.settimeout(SECONDS)
        sock.sendall(b"?")
        assert sock.recv(65536) == ANSWER
        assert sock.session_reused


def test_connections_of_the_transport_take_it_up_whoever_opens_them(server: Server, authority: Authority) -> None:
    sender = transport.Transport(verify=str(authority.bundle), environ={})
    url = f"https://localhost:{server.port}/"
    for _ in range(2):
        assert sender.send("GET", url, deadline=Deadline(SECONDS)).read(100) == b"ok"
        sender.close()
    connection, _ = sender.dial("GET", url, headers=(), deadline=Deadline(SECONDS))
    with connection.detach() as sock:
        sock.sendall(b"?")
        assert sock.recv(65536) == ANSWER
    assert server.reused == [False, True, True]


def test_the_transport_refuses_a_peer_that_is_not_trusted_time_and_again(server: Server, tmp_path: Path) -> None:
    sender = transport.Transport(verify=str(build_authority(tmp_path / "other").bundle), environ={})
    for _ in range(3):
        with pytest.raises(errors.TlsError):
            sender.send("GET", f"https://localhost:{server.port}/", deadline=Deadline(SECONDS))
    assert server.reused == []


def test_many_threads_share_it(server: Server, authority: Authority) -> None:
    context = build(authority)
    visit(server, context)
    failures: list[BaseException] = []

    def go() -> None:
        try:
            for _ in range(5):
                visit(server, context)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert failures == []
    assert server.reused == [False] + [True] * 40


def test_the_names_of_which_one_is_remembered_are_not_without_end(server: Server, authority: Authority) -> None:
    context = build(authority)
    session = visit(server, context)
    sessions = resumption._Sessions()
    for number in range(2 * resumption.MAX_NAMES):
        sessions.remember(number, session)
    assert sessions.get(0) is None
    assert sessions.get(2 * resumption.MAX_NAMES - 1) is session
