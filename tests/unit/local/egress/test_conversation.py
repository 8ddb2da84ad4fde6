"""One connection from inside: what it may ask for, how it is refused, and how long it may take."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator

import pytest

from tests.support.authority import Authority
from tests.support.egress import OTHER, PUBLIC, Way, World, hello, open_way, read_answer
from tests.support.machines import read_request, scripted_server
from vmnest.local.egress import conversation
from vmnest.local.egress.hello import ACCESS_DENIED
from vmnest.wire import streams

NAME = "a.example"


def echo(stream: streams.Stream) -> None:
    """Send back what comes, up to its end."""
    for data in iter(stream.receive, b""):
        stream.send(data)


@contextlib.contextmanager
def way_to(*allowed: str, ports: tuple[int, ...] = (443, 80, 8443, 5432), **options: object) -> Iterator[Way]:
    """A way to an echo at these ports of a.example."""
    with scripted_server(echo) as port:
        world = World({NAME: [[PUBLIC]]}, {(PUBLIC, each): port for each in ports})
        with open_way(*allowed, world=world, **options) as way:  # type: ignore[arg-type]
            yield way


def connect(place: str, *fields: str, version: str = "1.1") -> bytes:
    return "".join(f"{line}\r\n" for line in (f"CONNECT {place} HTTP/{version}", *fields, "")).encode()


# -- tunnels -----------------------------------------------------------------------------------------------------------


def test_a_tunnel_carries_bytes_both_ways_and_ends_with_either_side() -> None:
    with way_to("a.example:5432") as way:
        stream = way.tunnel("a.example:5432")
        with stream.socket:
            stream.send(b"to and fro")
            assert stream.receive() == b"to and fro"
            stream.socket.shutdown(socket.SHUT_WR)
            assert stream.receive() == b""
    assert way.lines == ["egress to a.example:5432: allowed"]


def test_what_is_sent_right_behind_a_connect_is_not_lost() -> None:
    with way_to("a.example:5432") as way:
        stream = way.dial()
        with stream.socket:
            stream.send(connect("a.example:5432", "Host: a.example") + b"at once")
            stream.read_head()
            assert stream.receive() == b"at once"


def test_a_server_may_speak_first() -> None:
    with scripted_server(lambda stream: stream.send(b"220 hello\r\n")) as port:
        world = World({NAME: [[PUBLIC]]}, {(PUBLIC, 5432): port})
        with open_way("a.example:5432", world=world) as way:
            stream = way.tunnel("a.example:5432")
            with stream.socket:
                assert stream.receive() == b"220 hello\r\n"


def test_a_client_of_old_needs_no_host() -> None:
    with way_to("a.example:5432") as way:
        stream = way.dial()
        with stream.socket:
            stream.send(connect("a.example:5432", version="1.0") + b"x")
            assert stream.read_head() is not None
            assert stream.receive() == b"x"


@pytest.mark.parametrize(
    ("allowed", "place"),
    [
        ((), "a.example:443"),
        (("a.example",), "a.example:22"),
        (("a.example",), "a.example:8443"),
        (("a.example",), "b.example:443"),
        (("a.example",), "x.a.example:443"),
        (("*.a.example",), "a.example:443"),
        (("a.example",), "203.0.113.7:443"),
        (("internet",), "a.example:25"),
        (("internet",), "127.0.0.1:443"),
        (("internet",), "10.0.0.1:8080"),
        (("internet",), "169.254.169.254:80"),
        (("internet",), "[::1]:443"),
        (("internet",), "[::ffff:127.0.0.1]:443"),
        (("internet",), "[::ffff:7f00:1]:443"),
        (("internet",), "[fd00:ec2::254]:80"),
        (("internet",), "[64:ff9b::a00:1]:443"),
        (("internet",), "[2002:7f00:1::]:443"),
    ],
)
def test_what_is_not_allowed_is_refused_without_a_look_up_or_a_connection(allowed: tuple[str, ...], place: str) -> None:
    world = World()
    with open_way(*allowed, world=world) as way:
        status, rest = way.ask(connect(place, f"Host: {place}"))
        assert status == 403
        assert b"is refused" in rest
        assert (world.looked_up, world.connected) == ([], [])
        assert "refused" in way.lines[0]
        assert len(way.gate.refusals) == 1


@pytest.mark.parametrize("private", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:192.168.0.1"])
@pytest.mark.parametrize("allowed", ["internet", "*.example"])
def test_a_name_that_leads_to_a_private_address_is_refused(allowed: str, private: str) -> None:
    world = World({NAME: [[private]]})
    with open_way(allowed, world=world) as way:
        assert way.ask(connect("a.example:443", "Host: a.example:443"))[0] == 403
    assert world.connected == []


def test_each_tunnel_is_judged_by_a_look_up_of_its_own() -> None:
    with scripted_server(echo) as port:
        world = World({NAME: [[PUBLIC], ["127.0.0.1"]]}, {(PUBLIC, 8443): port, ("127.0.0.1", 8443): port})
        with open_way("internet", world=world) as way:
            way.tunnel("a.example:8443").close()
            assert way.ask(connect("a.example:8443", "Host: a.example:8443"))[0] == 403
    assert world.connected == [(PUBLIC, 8443)]


@pytest.mark.parametrize(
    "head",
    [
        *(connect(place) for place in ("a.example", "a.example:", "a.example:0", "a.example:99999", ":443")),
        *(connect(place) for place in ("127.1:443", "0x7f000001:443", "0177.0.0.1:443", "2130706433:443", "::1:443")),
        *(connect(place) for place in ("[::1%25lo]:443", "[127.0.0.1]:443", "u@a.example:443", "http://a.example:443")),
        "CONNECT a.exämple:443 HTTP/1.1\r\n\r\n".encode(),
        connect("a.example:443", "Host: b.example:443"),
        connect("a.example:443", "Host: a.example:80"),
        connect("a.example:443", "Host: a.example:443", "Host: a.example:443"),
        connect("a.example:443"),
        connect("a.example:443", "Host: a.example:443", "Content-Length: 5") + b"GET /",
        connect("a.example:443", "Host: a.example:443", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET http://u:p@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET http://a.example#/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET http://a.example\\@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost: a.example:8443\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\nX: y\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost : a.example\r\n\r\n",
        b"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: xchunked\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET http://a.example/ HTTP/2.0\r\n\r\n",
    ],
    ids=lambda head: str(head[:60]),
)
def test_what_could_be_read_in_two_ways_is_refused_before_anything_is_reached(head: bytes) -> None:
    world = World({NAME: [[PUBLIC]], "b.example": [[PUBLIC]]})
    with open_way("internet", "a.example", world=world) as way:
        status, _ = way.ask(head)
        assert status in {400, 501, 505}
    assert (world.looked_up, world.connected) == ([], [])


def test_what_cannot_be_reached_is_told_as_that() -> None:
    with open_way("internet", world=World({NAME: [[PUBLIC]]})) as way:
        assert way.ask(connect("a.example:443", "Host: a.example:443"))[0] == 502
        status, rest = way.ask(connect("b.example:443", "Host: b.example"))
        assert (status, b"not known" in rest) == (502, True)
    assert way.lines == [
        "egress to a.example:443: failed, nothing is there",
        "egress to b.example:443: failed, b.example is not known: [Errno -2] Name or service not known",
    ]


def test_a_refusal_is_told_where_clients_show_it() -> None:
    with open_way() as way:
        stream = way.dial()
        with stream.socket:
            stream.send(connect("a.example:443", "Host: a.example:443"))
            head = stream.read_head()
            assert head is not None
            assert head.startswith(b"HTTP/1.1 403 Not allowed to this sandbox\r\n")


# -- TLS in tunnels ----------------------------------------------------------------------------------------------------


def test_tls_reaches_the_server_that_it_was_asked_for(authority: Authority) -> None:
    context = authority.context(NAME)

    def serve(stream: streams.Stream) -> None:
        with contextlib.suppress(ssl.SSLError), context.wrap_socket(stream.socket, server_side=True) as secured:
            secured.sendall(secured.recv(100).upper())

    with scripted_server(serve) as port:
        world = World({NAME: [[PUBLIC]]}, {(PUBLIC, 443): port})
        with open_way(NAME, world=world) as way:
            stream = way.tunnel("a.example:443")
            trust = ssl.create_default_context(cafile=str(authority.bundle))
            with trust.wrap_socket(stream.socket, server_hostname=NAME) as secured:
                secured.sendall(b"secret")
                assert secured.recv(100) == b"SECRET"


@pytest.mark.parametrize("port", [443, 8443])
@pytest.mark.parametrize(
    "first",
    [hello("b.example"), hello("a.example.b.example"), hello(None), b"\x16\x03\x01\x00\x05\x02\0\0\0\0"],
    ids=len,
)
def test_tls_that_wants_another_server_is_cut(port: int, first: bytes) -> None:
    with way_to("a.example", "a.example:8443") as way:
        stream = way.tunnel(f"a.example:{port}")
        with stream.socket:
            stream.send(first)
            assert b"".join(iter(stream.receive, b"")) == ACCESS_DENIED
        assert way.gate.refusals == (f"a.example:{port}",)


def test_the_name_may_be_written_in_other_ways() -> None:
    with way_to("a.example") as way:
        stream = way.tunnel("A.Example.:443")
        with stream.socket:
            stream.send(first := hello("A.EXAMPLE"))
            assert stream.receive() == first


def test_a_hello_may_come_in_pieces() -> None:
    first = hello(NAME)
    with way_to("a.example") as way:
        stream = way.tunnel("a.example:443")
        with stream.socket:
            for start in range(0, len(first), 100):
                stream.send(first[start : start + 100])
            received = b""
            while len(received) < len(first):
                received += stream.receive()
            assert received == first


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n", b"\0"])
def test_at_the_port_of_tls_it_has_to_be_tls_and_elsewhere_it_need_not_be(first: bytes) -> None:
    with way_to("a.example", "a.example:8443") as way:
        stream = way.tunnel("a.example:443")
        with stream.socket:
            stream.send(first)
            assert b"".join(iter(stream.receive, b"")) == ACCESS_DENIED
        stream = way.tunnel("a.example:8443")
        with stream.socket:
            stream.send(first)
            assert stream.receive() == first


def test_to_an_address_tls_wants_no_server_by_name() -> None:
    with scripted_server(echo) as port, open_way("internet", world=World({}, {(OTHER, 443): port})) as way:
        stream = way.tunnel(f"{OTHER}:443")
        with stream.socket:
            stream.send(first := hello(None))
            assert stream.receive() == first
        stream = way.tunnel(f"{OTHER}:443")
        with stream.socket:
            stream.send(hello("b.example"))
            assert b"".join(iter(stream.receive, b"")) == ACCESS_DENIED


# -- HTTP in tunnels ---------------------------------------------------------------------------------------------------


def test_in_a_tunnel_to_port_80_each_request_has_to_be_for_its_host() -> None:
    def serve(stream: streams.Stream) -> None:
        while (got := read_request(stream)) is not None:
            stream.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(got[0].target)}\r\n\r\n{got[0].target}".encode())

    with scripted_server(serve) as port:
        world = World({NAME: [[PUBLIC]]}, {(PUBLIC, 80): port})
        with open_way(NAME, world=world) as way:
            stream = way.tunnel("a.example:80")
            with stream.socket:
                for path in (b"/one", b"/two?x"):
                    stream.send(b"GET %b HTTP/1.1\r\nHost: a.example\r\n\r\n" % path)
                    assert b"200 OK" in (stream.read_head() or b"")
                    assert stream.receive() == path
                stream.send(b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n")
                assert read_answer(stream)[0] == 400
    assert world.connected == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    "request_head",
    [b"GET http://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n", connect("b.example:443", "Host: b.example:443")],
)
def test_a_tunnel_to_port_80_leads_nowhere_else(request_head: bytes) -> None:
    with way_to("internet") as way:
        stream = way.tunnel("a.example:80")
        with stream.socket:
            stream.send(request_head)
            assert read_answer(stream)[0] == 400


# -- time --------------------------------------------------------------------------------------------------------------

SHORT = conversation.Patience(request=0.3, head=0.3, silence=0.3)


@pytest.mark.parametrize(
    "data",
    [b"", b"CONNECT a.exam", b"\r\n\r\n", b"GET http://a.example/ HTTP/1.1\r\n"],
    ids=["nothing", "half", "empty", "line"],
)
def test_who_does_not_ask_in_time_is_hung_up_on(data: bytes) -> None:
    with way_to("a.example", patience=SHORT) as way:
        assert way.ask(data) == (0, b"")


def test_a_head_that_comes_by_the_byte_has_the_same_time() -> None:
    patience = conversation.Patience(request=20, head=0.5, silence=20)
    with way_to("a.example", patience=patience) as way:
        stream = way.dial()
        stream.socket.settimeout(0.02)
        with stream.socket:
            for _ in range(500):
                try:
                    stream.send(b"X")
                    if stream.receive() == b"":
                        return
                except TimeoutError:
                    continue
                except ConnectionError:
                    return
    pytest.fail("it was listened to for ever")


def test_a_hello_that_does_not_come_is_not_waited_for() -> None:
    with way_to("a.example", patience=SHORT) as way:
        stream = way.tunnel("a.example:443")
        with stream.socket:
            stream.send(hello(NAME)[:20])
            assert stream.receive() == b""


@pytest.mark.parametrize("port", [5432, 443])
def test_a_tunnel_in_which_nobody_speaks_is_ended(port: int) -> None:
    with way_to("a.example", "a.example:5432", patience=SHORT) as way:
        stream = way.tunnel(f"a.example:{port}")
        with stream.socket:
            if port == 443:
                stream.send(first := hello(NAME))
                assert stream.receive() == first
            assert stream.receive() == b""
