"""Connections through proxies: absolute targets, tunnels, logins, refusals."""

import base64
import contextlib
import socket
import ssl
import threading

import pytest

from tests.support.authority import Authority
from tests.support.peers import Answer, Peer, Raw, Request, Serve
from vmnest import errors, transport
from vmnest.deadline import Deadline
from vmnest.transport import upgrade

SECONDS = 10.0


class Tunnel:
    """A proxy for CONNECT; ``to`` is where it dials, whatever is asked for. ``asked`` keeps the heads."""

    def __init__(self, to: int, *, status: str = "200 OK", tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[str] = []
        self._to = to
        self._status = status
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                raw, _ = self._listener.accept()
                self._sockets.append(raw)
                client = raw if self._tls is None else self._tls.wrap_socket(raw, server_side=True)
                self._sockets.append(client)
                head = b""
                while b"\r\n\r\n" not in head:
                    head += client.recv(1)
                self.asked.append(head.decode())
                client.sendall(f"HTTP/1.1 {self._status}\r\n\r\n".encode())
                if not self._status.startswith("200"):
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._to))
                self._sockets.append(server)
                for source, target in ((client, server), (server, client)):
                    thread = threading.Thread(target=self._pump, args=(source, target))
                    self._threads.append(thread)
                    thread.start()

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive()


@pytest.fixture
def tunnel():
    made: list[Tunnel] = []

    def build(to: int, **options) -> Tunnel:
        made.append(Tunnel(to, **options))
        return made[-1]

    yield build
    for one in made:
        one.close()


@pytest.fixture
def fetch():
    made: list[transport.Transport] = []

    def send(url: str, *, verify: bool | str = True, **environ: str) -> transport.Response:
        made.append(transport.Transport(verify=verify, environ=environ))
        return made[-1].send("GET", url, headers=[("X-aws-proxy-auth", "hunter2")], deadline=Deadline(SECONDS))

    yield send
    for one in made:
        one.close()


def echo_target(request: Request) -> Answer:
    return Answer(200, request.target.encode())


def test_plain_http_goes_through_a_proxy_with_the_whole_url(serve: Serve, fetch):
    proxy = serve(echo_target)
    response = fetch("http://host.example:81/a%2f//b?c", HTTP_PROXY=f"http://user:pw@127.0.0.1:{proxy.port}")
    assert response.read(1000) == b"http://host.example:81/a%2f//b?c"
    (request,) = proxy.requests
    assert request.get("host") == "host.example:81"
    assert request.get("proxy-authorization") == "Basic " + base64.b64encode(b"user:pw").decode()


def test_loopback_does_not(serve: Serve, fetch, refused_port):
    peer = serve(echo_target)
    assert fetch(f"{peer.url}/x", HTTP_PROXY=f"http://127.0.0.1:{refused_port}").read(1000) == b"/x"


def test_https_goes_through_a_tunnel_and_the_host_is_verified(serve: Serve, fetch, tunnel, authority: Authority):
    peer = serve(echo_target, tls=authority.context("host.example"))
    proxy = tunnel(peer.port)
    response = fetch(
        "https://host.example/a%2fb",
        verify=str(authority.bundle),
        HTTPS_PROXY=f"http://user:pw@127.0.0.1:{proxy.port}",
    )
    assert response.read(1000) == b"/a%2fb"
    (head,) = proxy.asked
    assert head.startswith("CONNECT host.example:443 HTTP/1")
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'user:pw').decode()}" in head
    assert "hunter2" not in head
    assert peer.requests[0].get("proxy-authorization") is None


def test_a_tunnel_to_an_impostor_is_refused(serve: Serve, fetch, tunnel, authority: Authority):
    peer = serve(tls=authority.context("other.example"))
    proxy = tunnel(peer.port)
    with pytest.raises(errors.TlsError):
        fetch("https://host.example/", verify=str(authority.bundle), HTTPS_PROXY=f"http://127.0.0.1:{proxy.port}")
    assert peer.requests == []


def test_a_proxy_may_speak_tls_itself(serve: Serve, fetch, tunnel, authority: Authority):
    peer = serve(echo_target, tls=authority.context("host.example"))
    proxy = tunnel(peer.port, tls=authority.context("127.0.0.1"))
    response = fetch(
        "https://host.example/x", verify=str(authority.bundle), HTTPS_PROXY=f"https://127.0.0.1:{proxy.port}"
    )
    assert response.read(1000) == b"/x"


def test_plain_http_may_go_through_a_proxy_that_speaks_tls(serve: Serve, fetch, authority: Authority):
    proxy = serve(echo_target, tls=authority.context("127.0.0.1"))
    response = fetch(
        "http://host.example/x", verify=str(authority.bundle), HTTP_PROXY=f"https://127.0.0.1:{proxy.port}"
    )
    assert response.read(1000) == b"http://host.example/x"


def test_a_proxy_that_nobody_runs_is_a_proxy_error(fetch, refused_port):
    with pytest.raises(errors.ProxyError, match=f"proxy http://127.0.0.1:{refused_port}: Connection refused") as caught:
        fetch("https://host.example/", HTTPS_PROXY=f"http://user:hunter3@127.0.0.1:{refused_port}")
    assert caught.value.sent is False
    assert "hunter" not in f"{caught.value.to_wire()}"
    assert "NO_PROXY" in caught.value.hint


@pytest.mark.parametrize("status", ["407 Proxy Authentication Required", "403 Forbidden", "502 Bad Gateway"])
def test_a_tunnel_that_is_refused_is_a_proxy_error(fetch, tunnel, status):
    proxy = tunnel(1, status=status)
    with pytest.raises(errors.ProxyError, match=status[:3]):
        fetch("https://host.example/", HTTPS_PROXY=f"http://127.0.0.1:{proxy.port}")


@pytest.mark.parametrize("words", ["HTTP/1.1 403 \x1b[31m" + "no " * 5000 + "\r\n\r\n", "\0SSH-2.0\n" * 5000])
def test_a_proxy_s_own_words_are_kept_to_a_short_line(serve: Serve, fetch, words):
    proxy = serve(Raw([words.encode()]))
    with pytest.raises(errors.ProxyError) as caught:
        fetch("https://host.example/", HTTPS_PROXY=f"http://127.0.0.1:{proxy.port}")
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 400


def test_a_proxy_that_says_nothing_is_left_in_time():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = transport.Transport(environ={"HTTPS_PROXY": f"http://127.0.0.1:{listener.getsockname()[1]}"})
        with pytest.raises(errors.ProxyError, match="time allowed"):
            sender.send("GET", "https://host.example/", deadline=Deadline(0.3))


def test_a_proxy_that_wants_a_login_for_plain_http_is_a_proxy_error(serve: Serve, fetch):
    proxy: Peer = serve(Answer(407, b"login"))
    with pytest.raises(errors.ProxyError, match="407"):
        fetch("http://host.example/", HTTP_PROXY=f"http://127.0.0.1:{proxy.port}")


def test_407_without_a_proxy_is_an_answer_like_others(serve: Serve, fetch):
    assert fetch(serve(Answer(407)).url).status == 407


@pytest.mark.parametrize("answer", [b"garbage\r\n\r\n", b""])
def test_a_proxy_that_speaks_something_else_is_a_proxy_error(fetch, answer):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(1000)
                sock.sendall(answer)

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises(errors.ProxyError):
            fetch("https://host.example/", HTTPS_PROXY=f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


def test_small_requests_leave_at_once_and_dead_peers_are_noticed(serve: Serve, monkeypatch):
    seen: list[socket.socket] = []
    peer = serve(Answer(200, b"x"))
    sender = transport.Transport(environ={})
    with sender.send("GET", peer.url, deadline=Deadline(SECONDS)) as response:
        response.read(10)
    (connection,) = sender._pool.idle.popitem()[1]
    seen.append(connection._raw.sock)
    assert seen[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert seen[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    connection.close()


def open_upgrade(verify: str, **environ: str) -> upgrade.Upgraded:
    made = transport.Transport(verify=verify, environ=environ)
    return upgrade.upgrade(made, "https://host.example/", headers=[], deadline=Deadline(SECONDS))


def test_a_tunnel_carries_what_comes_after_an_upgrade(serve: Serve, tunnel, authority: Authority):
    peer = serve(Raw([b"HTTP/1.1 101 Now\r\n\r\nhello"]), tls=authority.context("host.example"))
    answer = open_upgrade(str(authority.bundle), HTTPS_PROXY=f"http://127.0.0.1:{tunnel(peer.port).port}")
    assert answer.channel is not None
    assert answer.channel.receive(timeout=SECONDS) == b"hello"
    answer.channel.close()


def test_a_tunnel_within_tls_does_not(serve: Serve, tunnel, authority: Authority):
    peer = serve(tls=authority.context("host.example"))
    proxy = tunnel(peer.port, tls=authority.context("127.0.0.1"))
    with pytest.raises(errors.ProxyError, match="no connection but for requests"):
        open_upgrade(str(authority.bundle), HTTPS_PROXY=f"https://127.0.0.1:{proxy.port}")
