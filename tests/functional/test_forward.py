"""What the forwarder carries: HTTP/1.1 in full, to applications that behave in every way, over HTTP and over TLS."""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.authority import Authority
from tests.support.forward import Client, Forward, Forwarded, forwarding
from tests.support.forward_endpoint import App, Call, platform_answer
from tests.support.odd_servers import (
    BLOCK,
    Blocks,
    Reads,
    Steps,
    closes_behind,
    echo,
    hangs_up,
    raw,
    refuses_early,
    says,
)
from vmnest import errors, transport
from vmnest.deadline import Deadline

MEBIBYTE = 1 << 20
WAIT_SECONDS = 20.0
MOST_IN_FLIGHT = 32 * MEBIBYTE  # the buffers of four sockets of the loopback
MOST_GROWTH_MIB = 16

# -- requests and answers ----------------------------------------------------------------------------------------------


def test_a_request_and_its_answer_pass(forward: Forward) -> None:
    forwarded = forward(echo)
    answer = forwarded.get("/x?y=%20", method="POST", body=b"hello")
    assert (answer.status, answer.body, answer.is_whole) == (200, b"hello", True)
    (call,) = forwarded.endpoint.calls
    assert (call.method, call.target) == ("POST", "/x?y=%20")


def test_both_connections_serve_many_requests(forward: Forward) -> None:
    forwarded = forward(echo)
    client = forwarded.client()
    bodies = [client.get("/", method="POST", body=b"%d" % n).body for n in range(20)]
    assert bodies == [b"%d" % n for n in range(20)]
    assert len(forwarded.endpoint.connections) == 1


def test_a_new_client_gets_a_connection_that_is_there(forward: Forward) -> None:
    forwarded = forward(echo)
    assert [forwarded.get().status for _ in range(5)] == [200] * 5
    assert len(forwarded.endpoint.connections) == 1


def test_requests_that_come_at_once_are_answered_in_order(forward: Forward) -> None:
    forwarded = forward(lambda call: call.answer(200, call.read() or call.target.encode()))
    client = forwarded.client()
    for n in range(10):
        client.ask("GET", f"/{n}")
    client.ask("POST", "/", body=b"last")
    assert [client.read().body for _ in range(11)] == [*(b"/%d" % n for n in range(10)), b"last"]


def test_sixty_four_clients_at_once_all_get_their_answer(forward: Forward) -> None:
    forwarded = forward(echo)

    def one(number: int) -> bytes:
        return forwarded.get("/", method="POST", body=b"%d" % number).body

    with ThreadPoolExecutor(64) as pool:
        assert list(pool.map(one, range(256))) == [b"%d" % number for number in range(256)]
    assert forwarded.gate.mints == [3000]


def test_an_answer_to_head_has_its_length_and_no_body(forward: Forward) -> None:
    forwarded = forward(lambda call: call.answer(200, b"x" * 5000))
    client = forwarded.client()
    head = client.get("/", method="HEAD")
    assert (head.get("content-length"), head.body) == ("5000", b"")
    assert len(client.get("/").body) == 5000


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_ends_with_its_head(forward: Forward, status: int) -> None:
    lines = ["Content-Length: 7"] if status == 304 else []
    head = "".join(f"{line}\r\n" for line in ("x-app: yes", *lines))
    forwarded = forward(raw(f"HTTP/1.1 {status} Nothing\r\n{head}\r\n".encode(), closes=False))
    client = forwarded.client()
    assert [client.get().status for _ in range(3)] == [status] * 3
    assert client.get().get_all("content-length") == [line.partition(" ")[2] for line in lines]


def test_no_content_says_so_if_the_server_did_and_nothing_else(forward_plain: Forward) -> None:
    for length, said in (("0", ["0"]), ("7", [])):
        head = f"HTTP/1.1 204 No Content\r\nContent-Length: {length}\r\n\r\n"
        client = forward_plain(raw(head.encode(), closes=False)).client()
        assert [client.get().get_all("content-length") for _ in range(2)] == [said] * 2


def test_fields_of_an_answer_keep_their_order_case_and_repetitions(forward: Forward) -> None:
    lines = ["X-B: 1", "Set-Cookie: a=1; Path=/", "x-a: 2", "SET-COOKIE: b=2", "X-B: 3", "Cache-Control: no-store"]
    answer = forward(says(b"", *lines)).get()
    assert [line for line in (f"{name}: {value}" for name, value in answer.fields) if line in lines] == lines


def test_a_compressed_body_passes_as_it_is(forward: Forward) -> None:
    forwarded = forward(says(b"\x1f\x8b not really", "Content-Encoding: gzip"))
    answer = forwarded.get("/", "Accept-Encoding: gzip")
    assert (answer.get("content-encoding"), answer.body) == ("gzip", b"\x1f\x8b not really")
    (call,) = forwarded.endpoint.calls
    assert call.get_all("accept-encoding") == ["gzip"]
    assert call.get("user-agent") is None


def test_chunks_and_trailers_pass_both_ways(forward: Forward) -> None:
    seen: list[tuple[bytes, list[tuple[str, str]]]] = []

    def app(call: Call) -> None:
        seen.append((call.read(), call.trailers))
        call.send(b"HTTP/1.1 200 OK\r\nx-app: yes\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
        call.send(b"3\r\nabc\r\n0\r\nX-Sum: 9\r\n\r\n")

    forwarded = forward(app)
    client = forwarded.client()
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n\r\n")
    client.send(b"5\r\nhello\r\n0\r\nX-Check: 7\r\nX-aws-proxy-port: 22\r\n\r\n")
    answer = client.read()
    assert (answer.body, answer.trailers) == (b"abc", [("x-sum", "9")])
    assert seen == [(b"hello", [("X-Check", "7")])]


def test_an_answer_that_ends_with_its_connection_is_whole(forward: Forward) -> None:
    forwarded = forward(raw(b"HTTP/1.1 200 OK\r\nx-app: yes\r\n\r\nuntil ", b"the end"))
    answer = forwarded.get()
    assert (answer.body, answer.is_whole) == (b"until the end", True)


def test_a_client_of_http_1_0_gets_chunks_as_plain_bytes(forward: Forward) -> None:
    forwarded = forward(
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", closes=False)
    )
    client = forwarded.client()
    client.send(b"GET / HTTP/1.0\r\n\r\n")
    head, _, body = client.receive_all().partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    assert body == b"abc"


def test_early_hints_pass_to_clients_that_know_them(forward: Forward) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
    forwarded = forward(raw(hints, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", closes=False))
    assert forwarded.get().interim == [103]
    old = forwarded.client()
    old.send(b"GET / HTTP/1.0\r\n\r\n")
    assert b"103" not in old.receive_all()


def test_a_client_that_waits_for_it_gets_the_servers_continue(forward: Forward) -> None:
    def app(call: Call) -> None:
        call.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        call.answer(200, call.read())

    client = forward(app).client()
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    assert client.receive_exactly(len(b"HTTP/1.1 100 ")) == b"HTTP/1.1 100 "
    client.send(b"hello")
    client.receive_exactly(len(b"Continue\r\n\r\n"))
    assert client.read().body == b"hello"


def test_a_client_that_waits_may_be_refused_instead(forward: Forward) -> None:
    client = forward(refuses_early).client()
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5000000\r\n\r\n")
    answer = client.read()
    assert (answer.status, answer.body, answer.interim) == (413, b"too much", [])


def test_an_answer_before_the_end_of_the_upload_arrives(forward: Forward) -> None:
    client = forward(refuses_early).client()
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000000\r\n\r\n" + b"x" * 100_000)
    answer = client.read()
    assert (answer.status, answer.body) == (413, b"too much")


def test_fields_about_the_connection_stay_on_it(forward: Forward) -> None:
    forwarded = forward(says(b"", "Connection: X-Mine, keep-alive", "X-Mine: 1", "Keep-Alive: timeout=5", "X-Yours: 2"))
    answer = forwarded.get("/", "Connection: X-Theirs", "X-Theirs: 1", "Keep-Alive: 3", "X-Ours: 2")
    assert (answer.get("x-mine"), answer.get("keep-alive"), answer.get("x-yours")) == (None, None, "2")
    (call,) = forwarded.endpoint.calls
    assert (call.get("x-theirs"), call.get("keep-alive"), call.get("x-ours")) == (None, None, "2")


# -- streams -----------------------------------------------------------------------------------------------------------


def test_each_event_arrives_before_the_next_is_made(forward: Forward) -> None:
    app = Steps([b"data: %d\n\n" % n for n in range(5)])
    client = forward(app).client()
    client.ask("GET", "/events")
    stream = client.stream()
    for n in range(5):
        app.go.release()
        assert next(stream) == b"data: %d\n\n" % n


def test_each_piece_of_an_upload_arrives_before_the_next_is_sent(forward: Forward) -> None:
    app = Reads()
    app.holds.set()
    client = forward(app).client()
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    for n in range(1, 5):
        client.send(b"5\r\nhello\r\n")
        assert app.wait_for(b"hello" * n)
    client.send(b"0\r\n\r\n")
    assert client.read().body == b"20"


def test_a_body_and_its_answer_move_at_the_same_time(forward: Forward) -> None:
    def app(call: Call) -> None:
        call.is_body_read = True
        call.send(b"HTTP/1.1 200 OK\r\nx-app: yes\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in call.body():
            call.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        call.send(b"0\r\n\r\n")

    client = forward(app).client()
    size = 32 * MEBIBYTE
    sender = threading.Thread(target=lambda: client.ask("POST", "/", body=b"y" * size))
    sender.start()
    assert sum(map(len, client.stream())) == size
    sender.join()


def test_a_client_that_does_not_read_holds_the_server_up(forward: Forward) -> None:
    app = Blocks(128)
    client = forward(app).client(receive_buffer=65536)
    client.ask("GET", "/")
    assert stall(lambda: app.sent) < MOST_IN_FLIGHT
    digest = hashlib.sha256()
    for piece in client.stream():
        digest.update(piece)
    assert digest.digest() == hashlib.sha256(BLOCK * 128).digest()
    assert app.is_done.wait(WAIT_SECONDS)


def test_a_server_that_does_not_read_holds_the_client_up(forward: Forward) -> None:
    app = Reads()
    client = forward(app).client()
    sent = [0]

    def send() -> None:
        client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (128 * MEBIBYTE))
        for _ in range(128):
            client.send(BLOCK)
            sent[0] += MEBIBYTE

    sender = threading.Thread(target=send)
    sender.start()
    assert stall(lambda: sent[0]) < MOST_IN_FLIGHT
    app.holds.set()
    assert client.read().body == b"%d" % (128 * MEBIBYTE)
    sender.join()


def stall(count: Callable[[], int]) -> int:
    """Wait until a count does not grow any more; where it has stopped."""
    end = time.monotonic() + WAIT_SECONDS
    last, since = count(), time.monotonic()
    while time.monotonic() < end and (last == 0 or time.monotonic() - since < 0.5):
        time.sleep(0.02)
        if count() != last:
            last, since = count(), time.monotonic()
    return last


def test_a_large_answer_costs_no_memory(forward: Forward) -> None:
    forwarded = forward(Blocks(100))
    take(forwarded)
    before = reset_peak_mib()
    take(forwarded)
    assert peak_mib() - before < MOST_GROWTH_MIB


def take(forwarded: Forwarded) -> None:
    client = forwarded.client()
    client.ask("GET", "/")
    assert sum(map(len, client.stream())) == 100 * MEBIBYTE


def test_a_large_upload_costs_no_memory(forward: Forward) -> None:
    app = Reads()
    app.holds.set()
    client = forward(app).client()
    before = reset_peak_mib()
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (100 * MEBIBYTE))
    for _ in range(100):
        client.send(BLOCK)
    assert client.read().body == b"%d" % (100 * MEBIBYTE)
    assert peak_mib() - before < MOST_GROWTH_MIB


def reset_peak_mib() -> float:
    Path("/proc/self/clear_refs").write_text("5")
    return peak_mib()


def peak_mib() -> float:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


# -- what breaks off ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [b"Content-Length: 100\r\n\r\nhalf", b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"],
    ids=["length", "chunked"],
)
def test_an_answer_that_breaks_off_never_looks_whole(forward: Forward, head: bytes) -> None:
    answer = forward(raw(b"HTTP/1.1 200 OK\r\nx-app: yes\r\n" + head)).get()
    assert (answer.body, answer.is_whole) == (b"half", False)


def test_a_server_that_is_killed_in_the_middle_ends_the_answer(forward: Forward) -> None:
    app = Blocks(1000)
    forwarded = forward(app)
    client = forwarded.client()
    client.ask("GET", "/")
    got = next(client.stream())
    forwarded.endpoint.cut()
    assert got
    assert len(client.receive_all()) < 1000 * MEBIBYTE


def test_a_client_that_leaves_ends_the_servers_work(forward: Forward) -> None:
    app = Blocks(1000)
    forwarded = forward(app)
    client = forwarded.client()
    client.ask("GET", "/")
    assert next(client.stream())
    client.close()
    assert forwarded.endpoint.connections[0].has_ended.wait(WAIT_SECONDS)


def test_a_client_that_leaves_while_the_server_thinks_ends_its_connection(forward: Forward) -> None:
    left = threading.Event()

    def app(call: Call) -> bool:
        call.read()
        assert call.receive() == b""
        left.set()
        return False

    forwarded = forward(app)
    client = forwarded.client()
    client.ask("GET", "/")
    wait_for_call(forwarded)
    client.sock.setsockopt(1, 13, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # SO_LINGER: the end is a reset
    client.close()
    assert left.wait(WAIT_SECONDS)


def wait_for_call(forwarded: Forwarded) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not forwarded.endpoint.calls:
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_connection_that_was_closed_meanwhile_is_not_noticed_by_a_client(forward: Forward) -> None:
    forwarded = forward(closes_behind)
    client = forwarded.client()
    for n in range(10):
        assert client.get("/", method="GET").status == 200
        assert client.get("/", method="POST", body=b"%d" % n).body == b"%d" % n


def test_what_may_have_been_done_is_not_asked_for_again(forward: Forward) -> None:
    forwarded = forward(hangs_up)
    answer = forwarded.get("/", method="POST", body=b"pay")
    assert answer.status == 502
    assert len(forwarded.endpoint.calls) == 1


@pytest.mark.parametrize("said", [b"HTTP/1.1 200 O", b"HTTP/1.1 103 Early Hints\r\n\r\n"])
def test_what_has_begun_to_be_answered_is_not_asked_for_again(forward: Forward, said: bytes) -> None:
    def answers_in_part(call: Call) -> bool | None:
        if call.read() != b"pay":
            return call.answer()
        call.send(said)
        return False

    forwarded = forward(answers_in_part)
    client = forwarded.client()
    assert client.get().status == 200  # the connection to the endpoint was used before
    assert client.get("/", method="POST", body=b"pay").status == 502
    assert [call.method for call in forwarded.endpoint.calls] == ["GET", "POST"]


def test_an_answer_that_is_none_is_a_bad_gateway(forward: Forward) -> None:
    answer = forward(raw(b"220 mail ready\r\n\r\n")).get()
    assert answer.status == 502
    assert not answer.is_applications


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    ],
    ids=["two lengths", "length beside chunked", "gzip", "folded", "bare LF", "negative", "unasked 101"],
)
def test_an_answer_that_can_be_read_in_two_ways_is_not_passed_on(forward_plain: Forward, said: bytes) -> None:
    answer = forward_plain(raw(said)).get()
    assert (answer.status, answer.is_whole) == (502, True)


def test_bytes_behind_an_answer_never_become_the_next_one(forward_plain: Forward) -> None:
    first = b"HTTP/1.1 200 OK\r\nx-app: yes\r\nContent-Length: 5\r\n\r\nhello"
    forwarded = forward_plain(raw(first + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", closes=False))
    client = forwarded.client()
    assert [client.get().body for _ in range(3)] == [b"hello"] * 3


# -- what the platform says --------------------------------------------------------------------------------------------


def test_a_refused_token_is_replaced_once_and_the_request_sent_again(forward: Forward) -> None:
    forwarded = forward(echo)
    forwarded.endpoint.tokens = {"token-2"}
    assert forwarded.get("/", method="POST", body=b"hello").body == b"hello"
    assert forwarded.gate.mints == [3000, 3000]


def test_twenty_requests_with_an_expired_token_get_one_new_one(forward: Forward) -> None:
    forwarded = forward(echo)
    assert forwarded.get().status == 200
    forwarded.endpoint.tokens = {"token-2"}
    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(lambda _: forwarded.get().status, range(20))) == [200] * 20
    assert len(forwarded.gate.mints) == 2


def test_a_new_token_that_is_refused_too_is_told(forward: Forward) -> None:
    forwarded = forward(echo)
    forwarded.endpoint.tokens = set()
    answer = forwarded.get()
    assert answer.status in {403, 502}
    assert len(forwarded.gate.mints) == 2
    assert len(forwarded.remarks) == 1


def test_a_server_that_is_not_there_yet_is_a_page_that_reloads(forward_plain: Forward) -> None:
    forwarded = forward_plain()
    page = forwarded.get("/", "Accept: text/html,*/*")
    assert (page.status, page.get("retry-after")) == (502, "1")
    assert (page.get("content-type") or "").startswith("text/html")
    assert b"refresh" in page.body.lower() or b"reload" in page.body.lower()
    text = forwarded.get("/", "Accept: */*")
    assert (text.status, (text.get("content-type") or "").partition(";")[0]) == (502, "text/plain")
    assert b"3000" in text.body
    forwarded.endpoint.apps[3000] = echo
    assert forwarded.get().status == 200


@pytest.mark.parametrize("status", [403, 404, 429, 500, 502, 503])
def test_what_the_application_refuses_itself_passes_as_it_is(forward_plain: Forward, status: int) -> None:
    forwarded = forward_plain(says(b"mine", "Retry-After: 7", status=status))
    answer = forwarded.get()
    assert (answer.status, answer.body, answer.get("retry-after"), answer.is_applications) == (
        status,
        b"mine",
        "7",
        True,
    )
    assert len(forwarded.endpoint.calls) == 1


def test_a_microvm_that_was_not_reached_is_looked_after_and_asked_again(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo)
    forwarded.endpoint.upcoming.append(platform_answer(502, error="MICROVM_CONNECT_FAILED"))
    assert forwarded.get("/", method="POST", body=b"hello").body == b"hello"
    assert forwarded.gate.recoveries == 1


def test_a_suspended_one_answers_without_a_name_and_is_looked_after(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo)
    forwarded.endpoint.upcoming.append(platform_answer(502))
    assert forwarded.get().status == 200
    assert forwarded.gate.recoveries == 1


def test_a_sandbox_that_was_stopped_on_purpose_ends_the_forwarder(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo)
    forwarded.gate.stopped = errors.SandboxSuspendedError("the sandbox demo was stopped")
    answer = forwarded.get()
    assert answer.status == 503
    assert b"stopped" in answer.body
    assert forwarded.has_ended.wait(WAIT_SECONDS)
    assert forwarded.ends == [forwarded.gate.stopped]
    assert forwarded.endpoint.calls == []


def test_what_the_server_may_have_done_is_not_asked_for_again_when_the_sandbox_runs(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo)
    forwarded.endpoint.upcoming.append(platform_answer(502))
    answer = forwarded.get("/", method="POST", body=b"pay")
    assert (answer.status, len(forwarded.endpoint.calls)) == (502, 0)
    assert forwarded.gate.recoveries == 1


def test_what_a_suspended_sandbox_cannot_have_done_is_asked_for_again(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo)
    forwarded.gate.is_suspended = True
    forwarded.endpoint.upcoming.append(platform_answer(502))
    assert forwarded.get("/", method="POST", body=b"pay").body == b"pay"
    assert forwarded.gate.recoveries == 1


def test_an_endpoint_that_is_away_is_told_once(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo)
    forwarded.gate.open = lambda deadline: fail(errors.ConnectError("no connection"))  # type: ignore[method-assign]
    assert [forwarded.get().status for _ in range(3)] == [502] * 3
    assert len(forwarded.remarks) == 1


def fail(error: Exception) -> None:
    raise error


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_redirect_to_the_server_leads_to_the_forwarder(forward_plain: Forward) -> None:
    targets = {
        "/a": "http://localhost:3000/x?y#z",
        "/b": "http://127.0.0.1:3000/",
        "/c": "http://0.0.0.0:3000/x",
        "/d": "/relative",
        "/e": "https://elsewhere.example/",
        "/f": "http://localhost:9999/",
    }
    forwarded = forward_plain(lambda call: call.answer(302, b"", f"Location: {targets[call.target]}"))
    client = forwarded.client()
    here = f"http://localhost:{forwarded.port}"
    wanted = [f"{here}/x?y#z", f"{here}/", f"{here}/x", "/relative", "https://elsewhere.example/", targets["/f"]]
    assert [client.get(target).get("location") for target in targets] == wanted


def test_a_redirect_to_the_endpoint_leads_to_the_forwarder(forward: Forward) -> None:
    forwarded = forward(lambda call: call.answer(302, b"", f"Location: {forwarded.endpoint.url}/x"))
    assert forwarded.get().get("location") == f"http://localhost:{forwarded.port}/x"


def test_a_redirect_to_another_forwarded_port_leads_there(forward_plain: Forward) -> None:
    apps: dict[int, App] = {3000: says(b"", "Location: http://localhost:4000/api", status=302), 4000: echo}
    forwarded = forward_plain(apps=apps, routes=((3000, 0), (4000, 0)))
    there = forwarded.forwarder.routes[1].local
    assert forwarded.get().get("location") == f"http://localhost:{there}/api"
    assert forwarded.client(route=1).get("/", method="POST", body=b"x").body == b"x"


def test_cookies_of_the_servers_own_host_lose_their_domain(forward_plain: Forward) -> None:
    lines = ["a=1; Domain=localhost; Path=/", "b=2; path=/; domain=.localhost", "c=3; Domain=elsewhere.example", "d=4"]
    answer = forward_plain(says(b"", *(f"Set-Cookie: {line}" for line in lines))).get()
    assert answer.get_all("set-cookie") == ["a=1; Path=/", "b=2; path=/", "c=3; Domain=elsewhere.example", "d=4"]


def test_a_foreign_name_for_this_machine_is_refused_unless_it_is_allowed(forward_plain: Forward) -> None:
    request = b"GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n"
    forwarded = forward_plain(echo)
    client = forwarded.client()
    client.send(request)
    answer = client.read()
    assert (answer.status, forwarded.endpoint.calls) == (403, [])
    assert b"--allow-host" in answer.body
    allowed = forward_plain(echo, allow_hosts=["rebound.example"]).client()
    allowed.send(request)
    assert allowed.read().status == 200


def test_the_relay_is_told_the_port_and_who_was_asked(forward_plain: Forward) -> None:
    seen: list[Call] = []

    def relay(call: Call) -> None:
        seen.append(call)
        call.answer(200, call.read(), "vmnest-relay: relayed")

    forwarded = forward_plain(apps={8080: relay}, relays=True)
    answer = forwarded.get("/", "X-Forwarded-For: 10.1.1.1", "X-Forwarded-Host: evil", "vmnest-relay-port: 22")
    assert answer.get("vmnest-relay") is None
    (call,) = seen
    assert call.get_all("vmnest-relay-port") == ["3000"]
    assert call.get_all("x-forwarded-host") == [f"localhost:{forwarded.port}"]
    assert call.get_all("x-forwarded-proto") == ["http"]
    assert call.get_all("x-forwarded-for") == ["10.1.1.1, 127.0.0.1"]
    assert forwarded.gate.mints == [8080]


def test_straight_to_the_server_nobody_is_told_who_was_asked(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo, relays=True, is_direct=True)
    forwarded.get("/", "X-Forwarded-For: 10.1.1.1", "vmnest-relay-port: 22")
    (call,) = forwarded.endpoint.calls
    assert call.get_all("x-forwarded-for") == ["10.1.1.1"]
    assert (call.get("x-forwarded-host"), call.get("vmnest-relay-port")) == (None, None)
    assert forwarded.gate.mints == [3000]


# -- what is no HTTP ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "word"),
    [(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), b"https"), (b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP")],
    ids=["TLS", "SSH"],
)
def test_what_is_no_http_is_told_to_both(forward_plain: Forward, sent: bytes, word: bytes) -> None:
    forwarded = forward_plain(echo)
    client = forwarded.client()
    client.send(sent)
    assert word in client.receive_all()
    assert len(forwarded.remarks) == 1
    assert forwarded.endpoint.connections == []


# -- connections and life ----------------------------------------------------------------------------------------------


def test_a_new_tls_connection_resumes_the_last_one(authority: Authority) -> None:
    sender = transport.Transport(verify=str(authority.bundle), environ={})

    def dial(deadline: Deadline) -> socket.socket:
        return sender.dial("GET", forwarded.endpoint.url, headers=(), deadline=deadline)[0].detach()

    with forwarding(closes_behind, tls=authority.context("localhost")) as forwarded:
        forwarded.gate.open = dial  # type: ignore[method-assign]
        assert [forwarded.get().status for _ in range(4)] == [200] * 4
        assert [each.is_resumed for each in forwarded.endpoint.connections] == [False, True, True, True]


def test_closing_ends_the_clients_and_every_thread(forward: Forward) -> None:
    threads = set(threading.enumerate())
    forwarded = forward(Blocks(1000))
    clients = [forwarded.client() for _ in range(5)]
    clients[0].ask("GET", "/")
    assert next(clients[0].stream())
    clients[1].send(b"GET / HTTP/1.1\r\nHo")
    forwarded.forwarder.close()
    forwarded.forwarder.close()
    for client in clients:
        client.receive_all()
    own = [thread.name for thread in set(threading.enumerate()) - threads if "endpoint" not in thread.name]
    assert own == []
    with pytest.raises(OSError, match="refused"):
        Client(forwarded.port)


def test_a_port_in_use_is_told_with_what_to_do(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo)
    with pytest.raises(errors.ListenError, match=str(forwarded.port)):
        forward_plain(echo, routes=((4000, 0), (3000, forwarded.port)))


def test_localhost_is_reached_over_both_protocols(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo)
    client = Client(forwarded.port, host="::1")
    assert client.get().status == 200
    client.close()


def test_curl_uploads_and_downloads(forward: Forward, tmp_path: Path) -> None:
    program = shutil.which("curl")
    if program is None:
        pytest.skip("needs curl (apt-get install curl)")
    forwarded = forward(echo)
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(BLOCK * 8)
    for options in (["--data-binary", f"@{source}"], ["-T", str(source)], ["-T", "-", "-X", "POST"]):
        with source.open("rb") as file:
            done = subprocess.run(
                [program, "-sS", "--fail", "-o", copy, *options, forwarded.url],
                stdin=file,
                capture_output=True,
                check=False,
            )
        assert (done.returncode, done.stderr) == (0, b"")
        assert copy.read_bytes() == source.read_bytes()
