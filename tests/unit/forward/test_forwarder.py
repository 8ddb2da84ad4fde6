"""The forwarder: what it listens on, what it reports, and that nothing is left of it."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from typing import Any

import pytest

from tests.support.forward import Client, Forward, Forwarded
from tests.support.forward_endpoint import Call
from tests.support.odd_servers import echo
from vmnest import errors
from vmnest.forward import forwarder
from vmnest.forward.forwarder import Forwarder
from vmnest.forward.ports import Route

WAIT_SECONDS = 20.0


def build(*routes: Route, **options: Any) -> tuple[Forwarder, list[str]]:
    """A forwarder to nowhere, and what it reports."""
    gate: Any = None
    reports: list[str] = []
    return Forwarder(gate, routes, report=reports.append, on_end=lambda error: None, **options), reports


def refuses(port: int, host: str = "127.0.0.1") -> bool:
    try:
        socket.create_connection((host, port), timeout=WAIT_SECONDS).close()
    except ConnectionRefusedError:
        return True
    return False


def test_it_listens_while_it_is_open() -> None:
    made, _ = build(Route(8000, 0), Route(9000, 0))
    with made:
        assert [route.remote for route in made.routes] == [8000, 9000]
        assert all(route.local and not refuses(route.local) for route in made.routes)
    assert all(refuses(route.local) for route in made.routes)


def test_on_loopback_it_listens_for_both_families() -> None:
    made, _ = build(Route(8000, 0))
    with made:
        assert not refuses(made.routes[0].local, "::1")


def test_elsewhere_it_listens_on_that_address_alone() -> None:
    made, _ = build(Route(8000, 0), bind="127.0.0.2")
    with made:
        assert not refuses(made.routes[0].local, "127.0.0.2")
        assert refuses(made.routes[0].local)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_all_ports_or_none(host: str) -> None:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as taken:
        number = taken.getsockname()[1]
        made, _ = build(Route(8000, 0), Route(9000, number))
        with pytest.raises(errors.ListenError, match=f"port {number}: another program listens there"):
            made.open()
        assert refuses(made.routes[0].local)
        made.close()


def test_an_address_that_is_not_this_machines_is_an_error() -> None:
    made, _ = build(Route(8000, 0), bind="192.0.2.1")
    with pytest.raises(errors.ListenError, match="no such address"):
        made.open()


def test_the_same_is_not_reported_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, reports = build(Route(8000, 0))
    for text in ("one", "two", "one", "two"):
        made.report(text)
    assert reports == ["one", "two"]
    monkeypatch.setattr(forwarder, "REPEAT_SECONDS", 0.0)
    made.report("one")
    assert reports == ["one", "two", "one"]


def test_closing_ends_all_that_goes_on_and_leaves_nothing(forward_plain: Forward) -> None:
    reached, leave = threading.Event(), threading.Event()

    def hang(call: Call) -> bool:
        call.read()
        reached.set()
        leave.wait(WAIT_SECONDS)
        return False

    forwarded = forward_plain(hang)
    busy, idle = forwarded.client(), forwarded.client()
    busy.ask("GET", "/")
    assert reached.wait(WAIT_SECONDS)
    begun = time.monotonic()
    forwarded.forwarder.close()
    assert time.monotonic() - begun < WAIT_SECONDS / 2
    assert (busy.receive_all(), idle.receive_all()) == (b"", b"")
    leave.set()
    forwarded.forwarder.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("vmnest-forward")]


def test_many_at_once_are_all_served(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo)
    clients = [Client(forwarded.port) for _ in range(200)]
    for number, client in enumerate(clients):
        client.ask("POST", "/", body=b"%d" % number)
    assert [client.read().body for client in clients] == [b"%d" % number for number in range(200)]
    for client in clients:
        client.close()


def test_beyond_its_limit_clients_wait_until_one_leaves(
    forward_plain: Forward, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "MAX_CLIENTS", 2)
    forwarded = forward_plain(echo)
    first, second = forwarded.client(), forwarded.client()
    assert (first.get().status, second.get().status) == (200, 200)
    third = forwarded.client()
    third.ask("GET", "/")
    wait_for_remark(forwarded, "connections are open")
    first.close()
    assert third.read().status == 200


def wait_for_remark(forwarded: Forwarded, words: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not any(words in text for text in forwarded.remarks):
        assert time.monotonic() < end
        time.sleep(0.002)


def test_without_files_to_open_clients_wait(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo)
    assert forwarded.client().get().status == 200  # and nothing is closed after this, which would leave room
    with socket.socket() as sock:
        sock.settimeout(WAIT_SECONDS)
        lowest_free = os.dup(0)
        os.close(lowest_free)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
        try:
            sock.connect(("127.0.0.1", forwarded.port))
            wait_for_remark(forwarded, "cannot be accepted")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_without_a_thread_to_be_had_a_client_is_turned_away(
    forward_plain: Forward, monkeypatch: pytest.MonkeyPatch
) -> None:
    forwarded = forward_plain(echo)
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name == "vmnest-forward-client":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        assert forwarded.client().receive_all() == b""
        wait_for_remark(forwarded, "cannot be served: can't start new thread")
    assert forwarded.get().status == 200


def test_who_cannot_be_told_does_not_end_connections(forward_plain: Forward) -> None:
    def fail(text: str) -> None:
        raise BrokenPipeError(text)

    forwarded = forward_plain(echo)
    forwarded.forwarder._report_to = fail
    assert [forwarded.client().get("/", "Host: evil.example").status for _ in range(2)] == [400, 400]


def test_remarks_are_bounded_whatever_is_in_them() -> None:
    made, reports = build(Route(8000, 0))
    with made:
        for number in range(2 * forwarder.MAX_REPORTS):
            made.report(f"a remark with the number {number}")
    assert len(reports) == forwarder.MAX_REPORTS


def test_a_port_in_use_leaves_no_file_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        before = os.listdir("/proc/self/fd")
        for _ in range(3):
            made, _ = build(Route(8000, 0), Route(9000, taken.getsockname()[1]))
            with pytest.raises(errors.ListenError):
                made.open()
            made.close()
        assert os.listdir("/proc/self/fd") == before
