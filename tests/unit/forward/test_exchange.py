"""One request and what becomes of it: when it is sent again, when it is not, and what its client gets in the end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest

from tests.support.forward import Client, Forward
from tests.support.forward_endpoint import Call, platform_answer
from tests.support.odd_servers import BLOCK, Blocks, Steps, echo, hangs_up, raw
from vmnest import errors
from vmnest.forward import crossing, exchange
from vmnest.wire import names

WAIT_SECONDS = 20.0


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def begin(client: Client, *lines: str) -> None:
    """Send the head of a POST."""
    client.send("".join(f"{line}\r\n" for line in ("POST / HTTP/1.1", "Host: localhost", *lines, "")).encode())


def dies_used(call: Call) -> bool:
    """Answers the first request of a connection, and ends it at the second without a word."""
    call.read()
    if call.connection.requests > 1:
        return False
    call.answer(200, b"done")
    return True


def receive_all(client: Client) -> bytes:
    return b"".join(iter(client.receive, b""))


# -- sent again --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_what_changes_nothing_is_sent_again_when_its_connection_ends(forward_plain: Forward, method: str) -> None:
    forwarded = forward_plain(dies_used)
    forwarded.get()
    assert forwarded.get(method=method).status == 200
    assert [connection.requests for connection in forwarded.endpoint.connections] == [2, 1]
    assert forwarded.gate.recoveries == 0


@pytest.mark.parametrize("framing", ["Content-Length: 7", "Transfer-Encoding: chunked"])
def test_a_small_body_goes_again_with_its_head(forward: Forward, framing: str) -> None:
    forwarded = forward(echo_once_used)
    forwarded.get()
    client = forwarded.client()
    begin(client, framing)
    client.send(b"content" if framing.startswith("Content") else b"7\r\ncontent\r\n0\r\nX: y\r\n\r\n")
    assert client.read().body == b"content"
    assert client.get().status == 200


def echo_once_used(call: Call) -> bool:
    body = call.read()
    if call.connection.requests == 2:
        return False
    call.answer(200, body)
    return True


def test_a_body_that_is_too_large_to_be_kept_is_not_sent_again(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo_once_used)
    forwarded.get()
    body = b"x" * (crossing.HELD_BYTES + 1)
    assert forwarded.get(method="POST", body=body).status == 502
    assert len(forwarded.endpoint.calls) == 2


def test_it_is_sent_again_once_and_not_for_ever(forward_plain: Forward) -> None:
    forwarded = forward_plain(hangs_up)
    answer = forwarded.get()
    assert (answer.status, answer.is_whole) == (502, True)
    assert (len(forwarded.endpoint.calls), forwarded.gate.recoveries) == (2, 1)
    assert forwarded.remarks == ["no answer from port 3000 in the sandbox: the connection ended without an answer"]


def test_an_answer_that_is_no_http_is_not_asked_for_again(forward_plain: Forward) -> None:
    forwarded = forward_plain(raw(b"220 mail ready\r\n\r\n"))
    assert forwarded.get().status == 502
    assert len(forwarded.endpoint.calls) == 1


def test_a_connection_that_cannot_be_made_is_made_once_more_after_a_look(forward_plain: Forward) -> None:
    forwarded = forward_plain(echo)
    open_ = forwarded.gate.open
    attempts: list[object] = []

    def fails_first(deadline: object) -> socket.socket:
        attempts.append(deadline)
        if len(attempts) == 1:
            raise errors.ConnectError("no connection")
        return open_(deadline)  # type: ignore[arg-type]

    forwarded.gate.open = fails_first  # type: ignore[method-assign]
    assert forwarded.get(method="POST", body=b"pay").body == b"pay"
    assert (len(attempts), forwarded.gate.recoveries, forwarded.remarks) == (2, 1, [])


def test_a_microvm_that_cannot_be_reached_for_long_is_told(
    forward_plain: Forward, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "PATIENCE_SECONDS", 0.05)
    forwarded = forward_plain(echo)
    forwarded.endpoint.upcoming += [platform_answer(502, error=names.MICROVM_CONNECT_FAILED)] * 5
    answer = forwarded.get()
    assert (answer.status, answer.get("retry-after")) == (502, "1")
    assert forwarded.gate.recoveries >= 1


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_a_token_that_is_refused_in_a_long_upload_is_renewed_for_the_next_request(forward_plain: Forward) -> None:
    def app(call: Call) -> bool | None:
        body = call.read()
        if call.token != "token-1":
            call.answer(200, body)
            return None
        call.send(platform_answer(403, names.BODY_WRONG_TOKEN))
        return False

    forwarded = forward_plain(app)
    body = b"x" * (2 * crossing.HELD_BYTES)
    first = forwarded.get(method="POST", body=body)
    assert (first.status, first.get("retry-after")) == (503, "1")
    assert forwarded.gate.mints == [3000, 3000]
    assert forwarded.get(method="POST", body=body).body == body


# -- early, late and broken answers ------------------------------------------------------------------------------------


def test_an_answer_that_comes_while_the_body_does_is_passed_on_at_once(forward: Forward) -> None:
    def app(call: Call) -> None:
        call.send(b"HTTP/1.1 200 OK\r\nx-app: yes\r\nContent-Length: 5\r\n\r\nearly")
        arrived.append(call.read())

    arrived: list[bytes] = []
    forwarded = forward(app)
    client = forwarded.client()
    begin(client, "Content-Length: 200000")
    client.send(b"x" * 100_000)
    answer = client.read()
    assert (answer.body, answer.get("connection")) == (b"early", "close")
    client.send(b"x" * 100_000)
    wait_until(lambda: arrived)
    assert arrived == [b"x" * 200_000]
    assert client.receive_all() == b""


def test_a_small_body_is_not_waited_for(forward: Forward) -> None:
    def app(call: Call) -> None:
        assert call.receive() == b"a"
        call.send(b"HTTP/1.1 200 OK\r\nx-app: yes\r\nContent-Length: 1\r\n\r\n!")
        call.read_rest = call.receive()  # type: ignore[attr-defined]
        call.is_body_read = True

    client = forward(app).client()
    begin(client, "Content-Length: 2")
    client.send(b"a")
    assert client.read().body == b"!"
    client.send(b"b")
    assert client.receive_all() == b""


def test_a_malformed_upload_is_refused(forward_plain: Forward) -> None:
    forwarded = forward_plain(lambda call: call.read() and None)
    client = forwarded.client()
    begin(client, "Transfer-Encoding: chunked")
    client.send(b"5\r\nhello, world\r\n")
    answer = client.read()
    assert (answer.status, answer.is_whole) == (400, True)
    assert client.receive_all() == b""


def test_a_malformed_upload_never_puts_a_page_into_an_answer(forward_plain: Forward) -> None:
    def app(call: Call) -> bool:
        call.send(b"HTTP/1.1 200 OK\r\nx-app: yes\r\nContent-Length: 1000\r\n\r\nhalf")
        call.read()
        return False

    client = forward_plain(app).client()
    begin(client, "Transfer-Encoding: chunked")
    client.send(b"5\r\nhello\r\n")
    came = b""
    while not came.endswith(b"half"):
        came += client.receive()
    client.send(b"zz\r\n")
    assert client.receive_all() == b""


def test_an_answer_to_http_1_0_that_breaks_off_ends_with_a_reset(forward: Forward) -> None:
    forwarded = forward(raw(b"HTTP/1.1 200 OK\r\nx-app: yes\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"))
    client = forwarded.client()
    client.send(b"GET / HTTP/1.0\r\n\r\n")
    assert client.receive_exactly(len(b"HTTP/1.1 200 OK\r\n")) == b"HTTP/1.1 200 OK\r\n"
    with pytest.raises(ConnectionResetError):
        b"".join(iter(client.receive, b""))


def test_a_refusal_that_comes_slowly_is_the_servers_own(
    forward_plain: Forward, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_PEEK_SECONDS", 0.02)
    goes_on = threading.Event()

    def app(call: Call) -> None:
        call.read()
        call.send(b"HTTP/1.1 403 No\r\nx-app: yes\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nno")
        assert goes_on.wait(WAIT_SECONDS)
        call.send(b"pe")

    forwarded = forward_plain(app)
    client = forwarded.client()
    client.ask("GET", "/")
    assert next(client.stream()) == b"no"
    goes_on.set()
    assert client.receive_exactly(2) == b"pe"
    assert len(forwarded.endpoint.calls) == 1


def test_a_refusal_in_chunks_is_looked_at_and_passed_on(forward_plain: Forward) -> None:
    words = b"Blocked request. This host (x) is not allowed."
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(words), words)
    head = b"HTTP/1.1 403 No\r\nx-app: yes\r\nTransfer-Encoding: chunked\r\n\r\n"
    forwarded = forward_plain(raw(head, body, closes=False))
    client = forwarded.client()
    assert [client.get().body for _ in range(2)] == [words] * 2
    assert ["Vite" in remark for remark in forwarded.remarks] == [True]


def test_a_change_of_protocol_before_the_end_of_the_request_is_none(forward_plain: Forward) -> None:
    def app(call: Call) -> bool:
        call.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        return False

    client = forward_plain(app).client()
    begin(client, "Connection: Upgrade", "Upgrade: x", "Content-Length: 100")
    client.send(b"half")
    assert client.read().status == 502


def test_interim_answers_without_end_are_no_answer(forward_plain: Forward) -> None:
    forwarded = forward_plain(raw(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000))
    answer = forwarded.get()
    assert answer.status == 502
    assert len(answer.interim) < 1000


# -- clients that leave ------------------------------------------------------------------------------------------------


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> float:
    """How long an answer may say nothing to a client that has ended its side."""
    monkeypatch.setattr(crossing, "SILENCE_SECONDS", 0.2)
    return 0.2


def test_a_closed_tab_does_not_hold_a_silent_stream(forward: Forward, short_silence: float) -> None:
    app = Steps([b"one", b"never"])
    forwarded = forward(app)
    client = forwarded.client()
    client.ask("GET", "/")
    app.go.release()
    assert next(client.stream()) == b"one"
    client.close()
    assert forwarded.endpoint.connections[0].has_ended.wait(0) is False
    wait_until(lambda: not client_threads())
    app.go.release()
    assert forwarded.endpoint.connections[0].has_ended.wait(WAIT_SECONDS)


def client_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "vmnest-forward-client"]


def test_a_client_that_has_ended_its_side_gets_all_that_comes(forward: Forward, short_silence: float) -> None:
    pieces = [b"%d" % number for number in range(8)]
    app = Steps(pieces)
    client = forward(app).client()
    client.ask("GET", "/")
    client.end_sending()
    came = []
    for _ in pieces:
        time.sleep(short_silence / 4)  # not silent for long, but longer than that in all
        app.go.release()
        if not came:
            stream = client.stream()
        came.append(next(stream))
    assert (came, list(stream)) == (pieces, [])


def test_a_client_that_reads_slowly_after_its_end_is_not_cut_off(forward: Forward, short_silence: float) -> None:
    app = Blocks(32)
    client = forward(app).client()
    client.ask("GET", "/")
    client.end_sending()
    time.sleep(3 * short_silence)
    assert receive_all(client).endswith(BLOCK * 32)


def test_a_reset_ends_the_servers_work_at_once(forward: Forward) -> None:
    app = Steps([b"one", b"never"])
    forwarded = forward(app)
    client = forwarded.client()
    client.ask("GET", "/")
    app.go.release()
    assert next(client.stream()) == b"one"
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    wait_until(lambda: not client_threads())
    app.go.release()


def test_requests_ahead_are_kept_within_bounds(forward_plain: Forward) -> None:
    goes_on = threading.Event()

    def app(call: Call) -> None:
        assert goes_on.wait(WAIT_SECONDS)
        call.answer(200, b"")

    client = forward_plain(app).client()
    client.sock.settimeout(0.5)
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n" % (b"x" * 8000)
    with pytest.raises(TimeoutError):
        client.send(request * 5000)
    goes_on.set()


# -- connections -------------------------------------------------------------------------------------------------------


def test_a_slow_reader_does_not_keep_others_from_the_connection(forward: Forward) -> None:
    big = b"x" * (32 << 20)
    forwarded = forward(lambda call: call.answer(200, big if call.target == "/big" else b"small"))
    slow = forwarded.client()
    slow.ask("GET", "/big", "Connection: close")
    wait_until(lambda: forwarded.endpoint.calls)
    for _ in range(20):
        assert forwarded.get("/small").body == b"small"
    assert receive_all(slow).endswith(big)


@pytest.mark.parametrize(
    ("head", "connections"),
    [(b"HTTP/1.1 200 OK\r\nConnection: close\r\n", 2), (b"HTTP/1.0 200 OK\r\n", 2), (b"HTTP/1.1 200 OK\r\n", 1)],
    ids=["close", "1.0", "keep"],
)
def test_a_connection_is_used_again_if_its_server_will_have_it(
    forward_plain: Forward, head: bytes, connections: int
) -> None:
    forwarded = forward_plain(raw(head + b"Content-Length: 2\r\n\r\nok", closes=False))
    client = forwarded.client()
    assert [client.get().body for _ in range(2)] == [b"ok"] * 2
    assert len(forwarded.endpoint.connections) == connections


def test_an_agent_that_turns_out_to_have_no_relay_is_asked_again(forward_plain: Forward) -> None:
    asked: list[bool] = []
    forwarded = forward_plain(apps={3000: echo, 8080: echo}, relays=True)

    def has_relay(*, again: bool = False) -> bool:
        asked.append(again)
        return not any(asked)

    forwarded.gate.has_relay = has_relay  # type: ignore[method-assign]
    assert forwarded.get(method="POST", body=b"hello").body == b"hello"
    assert asked == [False, True, False]
    assert [call.port for call in forwarded.endpoint.calls] == [8080, 3000]


def test_a_forwarder_that_ends_tells_nobody_of_broken_connections(forward_plain: Forward) -> None:
    begun = threading.Event()

    def app(call: Call) -> bool:
        begun.set()
        call.receive()
        return False

    forwarded = forward_plain(app)
    client = forwarded.client()
    client.ask("GET", "/")
    assert begun.wait(WAIT_SECONDS)
    forwarded.forwarder.close()
    assert client.receive_all() == b""
    assert forwarded.remarks == []
