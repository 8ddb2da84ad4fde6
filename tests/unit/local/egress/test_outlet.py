"""Connections to the outside: looked up once, held to public addresses, and through this machine's own proxy."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.support.egress import OTHER, PUBLIC, World
from tests.support.machines import scripted_server
from vmnest.local.egress import Outlet, outlet
from vmnest.wire import egress, http1, streams

NAME = "a.example"
PROXY = "http://user:secret@proxy.example:3128"


@pytest.fixture
def server() -> Iterator[int]:
    """A server that says where it is."""
    with scripted_server(lambda stream: stream.send(b"here")) as port:
        yield port


@contextlib.contextmanager
def opened(
    way_out: Outlet, host: str = NAME, port: int = 443, *, verdict: str = egress.PUBLIC, is_clear: bool = False
) -> Iterator[outlet.Line]:
    tried: list[socket.socket] = []
    try:
        yield way_out.open(host, port, verdict=verdict, is_clear=is_clear, watch=tried.append)
    finally:
        for sock in tried:
            sock.close()


def refusal(way_out: Outlet, host: str = NAME, **options: str) -> str:
    with pytest.raises(outlet.ForbiddenError) as caught, opened(way_out, host, **options):  # type: ignore[arg-type]
        pass
    return str(caught.value)


# -- names and addresses -----------------------------------------------------------------------------------------------


def test_a_name_is_looked_up_once_and_what_it_led_to_is_connected_to(server: int) -> None:
    world = World({NAME: [[PUBLIC], ["127.0.0.1"]]}, {(PUBLIC, 443): server})
    with opened(world.outlet()) as line:
        assert line.stream.receive() == b"here"
    assert (world.looked_up, world.connected) == ([NAME], [(PUBLIC, 443)])


def test_a_name_that_leads_elsewhere_the_second_time_is_judged_anew(server: int) -> None:
    world = World({NAME: [[PUBLIC], ["127.0.0.1"]]}, {(PUBLIC, 443): server, ("127.0.0.1", 443): server})
    with opened(world.outlet()):
        pass
    assert refusal(world.outlet()) == "its address is not public"
    assert world.connected == [(PUBLIC, 443)]


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00:ec2::254", "::ffff:10.0.0.1", "fe80::1%eth0"]
)
def test_a_name_that_leads_to_no_public_address_is_not_connected_to(address: str) -> None:
    world = World({NAME: [[address]]})
    assert refusal(world.outlet()) == "its address is not public"
    assert world.connected == []


def test_of_several_addresses_only_the_public_ones_are_tried_in_turn(server: int) -> None:
    world = World({NAME: [["10.0.0.1", OTHER, "127.0.0.1", PUBLIC]]}, {(PUBLIC, 443): server})
    with opened(world.outlet()) as line:
        assert line.stream.receive() == b"here"
    assert world.connected == [(OTHER, 443), (PUBLIC, 443)]


def test_a_host_that_a_rule_names_may_have_any_address(server: int) -> None:
    world = World({NAME: [["10.0.0.1"]]}, {("10.0.0.1", 443): server, ("127.0.0.1", 443): server})
    for host in (NAME, "127.0.0.1"):
        with opened(world.outlet(), host, verdict=egress.ANYWHERE) as line:
            assert line.stream.receive() == b"here"


def test_an_address_is_not_looked_up() -> None:
    world = World()
    assert refusal(world.outlet(), "10.0.0.1") == "its address is not public"
    assert refusal(world.outlet(), "::1") == "its address is not public"
    assert world.looked_up == []


def test_an_address_of_ipv6_is_connected_to(server: int) -> None:
    if not socket.has_ipv6:
        pytest.fail("this interpreter has no IPv6")
    world = World({NAME: [["2001:db8::1", PUBLIC]]}, {(PUBLIC, 443): server})
    with opened(world.outlet()):
        assert world.connected == [("2001:db8::1", 443), (PUBLIC, 443)]


def test_this_machines_own_addresses_are_not_public() -> None:
    own = Outlet(resolve=lambda host: [PUBLIC], is_own=lambda address: address == PUBLIC)
    assert refusal(own) == "its address is not public"


def test_this_machines_own_addresses_are_known() -> None:
    assert outlet.is_own("127.0.0.1")
    assert outlet.is_own("127.0.0.77")
    assert not outlet.is_own("203.0.113.200")


def test_names_that_the_system_knows_have_addresses() -> None:
    assert set(outlet.resolve("localhost")) <= {"127.0.0.1", "::1"}
    with pytest.raises(OSError, match=r"."):
        outlet.resolve("nothing.invalid")


@pytest.mark.parametrize(("names", "why"), [({}, "a.example is not known"), ({NAME: [[PUBLIC]]}, "nothing is there")])
def test_what_cannot_be_reached_says_why(names: dict[str, list[list[str]]], why: str) -> None:
    with pytest.raises(outlet.UnreachableError, match=why) as caught, opened(World(names).outlet()):
        pass
    assert caught.value.status == 502


def test_what_does_not_answer_in_time_is_told_as_that() -> None:
    def connect(sock: socket.socket, place: tuple[str, int]) -> None:
        raise TimeoutError("timed out")

    silent = Outlet(resolve=lambda host: [PUBLIC, OTHER], is_own=lambda address: False, connect=connect)
    with pytest.raises(outlet.UnreachableError) as caught, opened(silent):
        pass
    assert caught.value.status == 504


# -- through this machine's proxy --------------------------------------------------------------------------------------


class Proxy:
    """A proxy that writes down what it was asked for, and answers so."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 OK\r\n\r\nfrom the host") -> None:
        self.answer = answer
        self.heads: list[http1.Request] = []

    def __call__(self, stream: streams.Stream) -> None:
        head = stream.read_head()
        if head is None:
            return
        self.heads.append(http1.parse_request(head))
        stream.send(self.answer)


@contextlib.contextmanager
def behind(proxy: Proxy, names: dict[str, list[list[str]]]) -> Iterator[World]:
    """A world in which the proxy is at a private address."""
    with scripted_server(proxy) as port:
        yield World({"proxy.example": [["10.0.0.9"]], **names}, {("10.0.0.9", 3128): port})


def test_tunnels_go_through_the_proxy_of_this_machine() -> None:
    proxy = Proxy()
    with behind(proxy, {NAME: [[PUBLIC]]}) as world, opened(world.outlet(HTTPS_PROXY=PROXY), port=8443) as line:
        assert line.stream.receive() == b"from the host"
        assert line.proxy is None
    (request,) = proxy.heads
    assert (request.method, request.target) == ("CONNECT", "a.example:8443")
    assert http1.first(request.fields, "host") == "a.example:8443"
    assert http1.first(request.fields, "proxy-authorization") == "Basic dXNlcjpzZWNyZXQ="


def test_requests_in_the_clear_are_left_to_it_as_they_are() -> None:
    proxy = Proxy()
    with (
        behind(proxy, {NAME: [[PUBLIC]]}) as world,
        opened(world.outlet(http_proxy=PROXY), port=80, is_clear=True) as line,
    ):
        assert line.proxy is not None
        assert line.proxy.host == "proxy.example"
    assert proxy.heads == []


def test_what_is_excepted_from_it_is_connected_to(server: int) -> None:
    world = World({NAME: [[PUBLIC]]}, {(PUBLIC, 443): server})
    with opened(world.outlet(HTTPS_PROXY=PROXY, NO_PROXY="b.example,.example")) as line:
        assert line.stream.receive() == b"here"


def test_what_leads_to_no_public_address_is_refused_before_it_is_asked() -> None:
    with behind(Proxy(), {NAME: [["10.0.0.1"]]}) as world:
        assert refusal(world.outlet(HTTPS_PROXY=PROXY)) == "its address is not public"
        assert refusal(world.outlet(HTTPS_PROXY=PROXY), "10.0.0.1") == "its address is not public"
        assert world.connected == []


def test_a_name_that_only_it_knows_is_its_to_look_up() -> None:
    proxy = Proxy()
    with behind(proxy, {}) as world, opened(world.outlet(HTTPS_PROXY=PROXY)):
        assert [head.target for head in proxy.heads] == ["a.example:443"]


def test_a_host_that_a_rule_names_is_not_looked_up_here() -> None:
    with behind(Proxy(), {NAME: [["10.0.0.1"]]}) as world:
        with opened(world.outlet(HTTPS_PROXY=PROXY), verdict=egress.ANYWHERE):
            pass
        assert world.looked_up == ["proxy.example"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "the proxy of this machine answered 407"),
        (b"nonsense\r\n\r\n", "the status line is malformed"),
        (b"", "it ended the connection"),
        (b"HTTP/1.1 200", "in the middle of a head"),
    ],
)
def test_a_proxy_that_refuses_is_told(answer: bytes, why: str) -> None:
    with (
        behind(Proxy(answer), {NAME: [[PUBLIC]]}) as world,
        pytest.raises(outlet.UnreachableError, match=why),
        opened(world.outlet(HTTPS_PROXY=PROXY)),
    ):
        pass


@pytest.mark.parametrize("url", ["https://proxy.example:3128", "socks5://u:secret@proxy.example"])
def test_a_proxy_that_cannot_be_used_is_told_without_its_password(url: str) -> None:
    with pytest.raises(outlet.UnreachableError) as caught, opened(World({NAME: [[PUBLIC]]}).outlet(HTTPS_PROXY=url)):
        pass
    assert "secret" not in str(caught.value)
