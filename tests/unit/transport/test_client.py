"""The one ``send``: what goes out, how connections are used again, what becomes of failures."""

import gc
import os
import socket
import subprocess
import sys
import threading
import time
import warnings

import pytest

from tests.support.clock import FakeClock
from tests.support.peers import Answer, HangUp, Peer, Raw, Serve, Silence
from vmnest import errors, transport
from vmnest.deadline import NEVER, Deadline

SECONDS = 10.0


@pytest.fixture
def sender():
    made = transport.Transport(environ={})
    yield made
    made.close()


def ask(sender: transport.Transport, peer: Peer, method: str = "GET", target: str = "/", **options) -> bytes:
    options.setdefault("deadline", Deadline(SECONDS))
    return sender.send(method, peer.url + target, **options).read(2**20)


# -- what goes out -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "//",
        "/a//b/",
        "/a/./b/../c",
        "/a%2fb%2Fc",
        "/%7e~%41",
        "/?",
        "/?a=b&a=c&&=",
        '/?q=%zz+%20[]{}|\\^`"<>',
        "/a?b?c",
        "/a;b=c@d:80",
        "/arn%3Aaws%3Alambda:us-east-1",
        "/a#b",
        "/%",
    ],
)
def test_the_request_target_goes_out_as_it_was_given(serve: Serve, sender, target):
    peer = serve()
    ask(sender, peer, target=target)
    assert peer.requests[0].target == target


def test_a_query_without_a_path_gets_one(serve: Serve, sender):
    peer = serve()
    ask(sender, peer, target="?a=b")
    assert peer.requests[0].target == "/?a=b"


def test_headers_go_out_in_order_and_may_repeat(serve: Serve, sender):
    peer = serve()
    ask(sender, peer, headers=[("X-B", "1"), ("x-a", "2"), ("X-B", "3"), ("X-Latin", "\xe9")])
    fields = [field for field in peer.requests[0].headers if field[0].lower().startswith("x-")]
    assert fields == [("X-B", "1"), ("x-a", "2"), ("X-B", "3"), ("X-Latin", "\xe9")]


def test_host_agent_and_coding_are_added_only_if_absent(serve: Serve, sender):
    peer = serve()
    ask(sender, peer)
    ask(sender, peer, headers=[("host", "other:1"), ("USER-AGENT", "me"), ("accept-encoding", "gzip")])
    first, second = peer.requests
    assert first.get_all("host") == [f"127.0.0.1:{peer.port}"]
    assert first.get_all("accept-encoding") == ["identity"]
    assert first.get("user-agent").startswith("vmnest/")
    assert second.get_all("host") == ["other:1"]
    assert second.get_all("user-agent") == ["me"]
    assert second.get_all("accept-encoding") == ["gzip"]


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [("GET", None, None), ("DELETE", None, None), ("POST", None, "0"), ("PUT", b"", "0"), ("POST", b"abc", "3")],
)
def test_a_body_of_known_size_goes_with_its_length(serve: Serve, sender, method, body, length):
    peer = serve()
    ask(sender, peer, method, body=body)
    assert peer.requests[0].get("content-length") == length
    assert peer.requests[0].get("transfer-encoding") is None
    assert peer.requests[0].body == (body or b"")


def test_an_iterable_body_goes_in_chunks(serve: Serve, sender):
    peer = serve()
    ask(sender, peer, "POST", body=iter([b"ab", b"", b"c" * 100_000]))
    assert peer.requests[0].get("transfer-encoding") == "chunked"
    assert peer.requests[0].body == b"ab" + b"c" * 100_000


def test_an_iterable_body_goes_whole_if_its_length_is_given(serve: Serve, sender):
    peer = serve()
    ask(sender, peer, "PUT", body=iter([b"ab", b"c"]), headers=[("Content-Length", "3")])
    assert peer.requests[0].get("transfer-encoding") is None
    assert peer.requests[0].body == b"abc"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a", "hunter2\r\nc: d"),
        ("a", "hunter2\nc"),
        ("a", "hunter2\n"),
        ("a\n", "hunter2"),
        ("a b", "hunter2"),
        ("", "hunter2"),
        ("a:", "hunter2"),
        ("a", "hunter2\u20ac"),
        ("a", "hunter2\0"),
    ],
)
def test_a_header_that_would_break_the_request_is_refused_without_its_value(sender, name, value):
    with pytest.raises(errors.UsageError, match="cannot be sent") as caught:
        sender.send("GET", "http://127.0.0.1:1/", headers=[(name, value)], deadline=NEVER)
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/path",
        "ftp://a/",
        "http://",
        "http://a b/",
        "http://a/b c",
        "http://a/\r\nX: y",
        "http://a/\u20ac",
        "http://a:0/",
        "http://a:65536/",
        "http://a:x/",
        "http://user:hunter2@a/",
        "http://a/?x=1\n",
    ],
)
def test_a_url_that_cannot_be_requested_is_refused(sender, url):
    with pytest.raises(errors.UsageError) as caught:
        sender.send("GET", url, deadline=NEVER)
    assert "hunter2" not in caught.value.message


def test_a_method_that_would_break_the_request_is_refused(sender):
    with pytest.raises(errors.UsageError):
        sender.send("GET / HTTP/1.1\r\nX: y\r\n\r\nGET", "http://127.0.0.1:1/", deadline=NEVER)


# -- what comes back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 204, 301, 304, 400, 403, 404, 429, 500, 502, 599])
def test_every_status_is_an_answer(serve: Serve, sender, status):
    peer = serve(Answer(status, b"" if status in (204, 304) else b"body", [("Location", "/elsewhere")]))
    with sender.send("GET", peer.url, deadline=Deadline(SECONDS)) as response:
        assert response.status == status
        assert response.read(10) == (b"" if status in (204, 304) else b"body")
    assert len(peer.requests) == 1


def test_the_answer_to_head_has_a_length_and_no_body(serve: Serve, sender):
    peer = serve(Answer(200, b"x" * 5000), Answer(200, b"next"))
    with sender.send("HEAD", peer.url, deadline=Deadline(SECONDS)) as response:
        assert response.headers.get("content-length") == "5000"
        assert response.read(1) == b""
    assert ask(sender, peer) == b"next"
    assert peer.connections == 1


def test_the_answer_is_handed_on_as_it_comes(serve: Serve, sender):
    peer = serve(Raw((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n",), then_close=False))
    with sender.send("GET", peer.url, deadline=Deadline(SECONDS)) as response:
        assert next(response.chunks()) == b"one"


# -- connections -------------------------------------------------------------------------------------------------------


def test_a_connection_is_used_again_once_its_answer_is_read(serve: Serve, sender):
    peer = serve()
    for _ in range(5):
        ask(sender, peer)
    assert peer.connections == 1


def test_an_answer_that_is_not_read_ends_its_connection(serve: Serve, sender):
    peer = serve(Answer(200, b"x" * 100_000))
    sender.send("GET", peer.url, deadline=Deadline(SECONDS)).close()
    ask(sender, peer)
    assert peer.connections == 2


def test_an_answer_that_says_close_ends_its_connection(serve: Serve, sender):
    peer = serve(Answer(200, b"x", [("Connection", "close")]))
    ask(sender, peer)
    ask(sender, peer)
    assert peer.connections == 2


def test_parallel_requests_have_connections_of_their_own(serve: Serve, sender):
    peer = serve(*[Answer(200, b"x")] * 6)
    for _ in range(2):
        responses = [sender.send("GET", peer.url, deadline=Deadline(SECONDS)) for _ in range(3)]
        for response in responses:
            response.read(1)
    assert peer.connections == 3


def test_a_server_that_closes_after_each_answer_is_not_noticed(serve: Serve, sender):
    peer = serve(*[Answer(200, b"x", then_close=True)] * 20)
    for _ in range(20):
        assert ask(sender, peer, "POST", body=b"data") == b"x"
    assert len(peer.requests) == 20


def test_a_stale_connection_is_replaced_when_nothing_was_answered(serve: Serve, sender):
    peer = serve(Answer(), HangUp(), Answer(200, b"again"))
    ask(sender, peer)
    assert ask(sender, peer, "POST", body=b"data") == b"again"
    assert [request.body for request in peer.requests] == [b"", b"data", b"data"]
    assert peer.connections == 2


def test_a_stale_connection_that_is_reset_is_replaced(serve: Serve, sender):
    peer = serve(Answer(), HangUp(reset=True), Answer(200, b"again"))
    ask(sender, peer)
    assert ask(sender, peer) == b"again"


def test_what_must_not_be_repeated_is_not_repeated_on_a_stale_connection(serve: Serve, sender):
    peer = serve(Answer(), HangUp())
    ask(sender, peer)
    with pytest.raises(errors.ConnectionLostError):
        ask(sender, peer, "POST", body=b"data", retry_stale=False)
    assert len(peer.requests) == 2


def test_an_idempotent_method_is_repeated_even_without_leave(serve: Serve, sender):
    peer = serve(Answer(), HangUp(), Answer(200, b"again"))
    ask(sender, peer)
    assert ask(sender, peer, "DELETE", retry_stale=False) == b"again"


def test_a_body_that_can_be_read_once_is_not_repeated(serve: Serve, sender):
    peer = serve(Answer(), HangUp())
    ask(sender, peer)
    with pytest.raises(errors.ConnectionLostError):
        ask(sender, peer, "PUT", body=iter([b"data"]))


def test_a_body_that_can_be_made_anew_is_repeated(serve: Serve, sender):
    peer = serve(Answer(), HangUp(), Answer(body=b"again"))
    ask(sender, peer)
    assert ask(sender, peer, "PUT", body=lambda: iter([b"da", b"ta"])) == b"again"
    assert peer.requests[-1].body == b"data"


@pytest.mark.parametrize("kind", [OSError, ValueError, BrokenPipeError, KeyError], ids=lambda kind: kind.__name__)
def test_an_error_of_the_body_is_none_of_the_connection(sender, kind):
    def broken():
        yield b"data"
        raise kind("of the body")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        for body in (broken, broken()):
            with pytest.raises(kind, match="of the body"):
                sender.send("PUT", url, body=body, deadline=Deadline(10))


def test_a_new_connection_that_hangs_up_is_an_error_at_once(serve: Serve, sender):
    peer = serve(HangUp(), Answer())
    with pytest.raises(errors.ConnectionLostError, match="without an answer"):
        ask(sender, peer)
    assert len(peer.requests) == 1


def test_a_half_answer_on_a_used_connection_is_not_repeated(serve: Serve, sender):
    peer = serve(Answer(), Raw((b"HTTP/1.1 200 OK\r\nContent-Le",)), Answer())
    ask(sender, peer)
    with pytest.raises(errors.TransportError):
        ask(sender, peer)
    assert len(peer.requests) == 2


@pytest.mark.parametrize(("size", "seconds", "requests"), [(4, 0.9, 3), (4, 1.1, 2), (300_000, 0, 2)])
def test_what_is_cut_later_was_not_sent_over_a_stale_connection(
    serve: Serve, fake_clock: FakeClock, size: int, seconds: float, requests: int
) -> None:
    def pieces():
        fake_clock.advance(seconds)
        yield bytes(size)

    sender = transport.Transport(environ={}, clock=fake_clock)
    peer = serve(Answer(), HangUp(), HangUp())
    ask(sender, peer)
    with pytest.raises(errors.ConnectionLostError):
        ask(sender, peer, "PUT", body=pieces)
    assert len(peer.requests) == requests
    sender.close()


@pytest.mark.parametrize(
    ("idle", "retry_stale", "connections"), [(4, False, 1), (6, False, 2), (6, True, 1), (54, True, 1), (56, True, 2)]
)
def test_a_connection_that_was_idle_for_long_is_not_used(
    serve: Serve, fake_clock: FakeClock, idle, retry_stale, connections
):
    # What cannot be repeated takes fresh connections only.
    sender = transport.Transport(environ={}, clock=fake_clock)
    peer = serve()
    ask(sender, peer)
    fake_clock.advance(idle)
    ask(sender, peer, "POST", body=b"x", retry_stale=retry_stale)
    assert peer.connections == connections
    sender.close()


def test_closing_ends_idle_connections_and_the_transport_works_on(serve: Serve, sender):
    peer = serve()
    ask(sender, peer)
    sender.close()
    sender.close()
    ask(sender, peer)
    assert peer.connections == 2


def test_many_threads_share_a_transport(serve: Serve, sender):
    peer = serve(*[lambda request: Answer(200, request.target.encode())] * 200)
    wrong: list[object] = []

    def work(number: int) -> None:
        for turn in range(20):
            target = f"/{number}/{turn}"
            if ask(sender, peer, target=target) != target.encode():
                wrong.append(target)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(peer.requests) == 200


def test_after_a_fork_parent_and_child_have_connections_of_their_own(serve: Serve, sender):
    peer = serve(*[lambda request: Answer(200, request.target.encode())] * 3)
    assert ask(sender, peer, target="/before") == b"/before"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of forks in threaded programs: it is the test
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with warnings.catch_warnings(record=True) as noted:
                warnings.simplefilter("always")
                status = 0 if ask(sender, peer, target="/child") == b"/child" else 2
                gc.collect()
            status = status or (3 if noted else 0)  # what the child inherited is closed, not dropped
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert ask(sender, peer, target="/parent") == b"/parent"
    by_target = {request.target: request.connection for request in peer.requests}
    assert by_target["/before"] == by_target["/parent"] != by_target["/child"]


# -- failures ----------------------------------------------------------------------------------------------------------


def test_nobody_listening_is_a_connect_error_and_nothing_was_sent(sender, refused_port):
    with pytest.raises(errors.ConnectError, match=f"127.0.0.1:{refused_port}: Connection refused") as caught:
        sender.send("POST", f"http://127.0.0.1:{refused_port}/", body=b"x", deadline=Deadline(SECONDS))
    assert caught.value.sent is False
    assert caught.value.hint


def test_a_name_that_does_not_resolve_is_a_connect_error(sender):
    with pytest.raises(errors.ConnectError, match="does not resolve"):
        sender.send("GET", "http://no-such-host.invalid/", deadline=Deadline(SECONDS))


def test_a_peer_that_never_answers_is_left_at_the_deadline(serve: Serve, sender):
    peer = serve(Silence())
    began = time.monotonic()
    with pytest.raises(errors.ReadTimeoutError, match=r"did not answer within 0\.3 s"):
        ask(sender, peer, deadline=Deadline(0.3))
    assert time.monotonic() - began < 2


def test_a_peer_that_is_silent_too_long_is_left_at_the_read_timeout(serve: Serve, sender):
    peer = serve(Silence())
    with pytest.raises(errors.ReadTimeoutError, match=r"did not answer within 0\.2 s"):
        ask(sender, peer, read_timeout=0.2)


def test_a_peer_that_drips_cannot_stretch_the_deadline(serve: Serve, sender):
    peer = serve(Raw((b"HTTP/1.1 200 OK\r\n", *[b"x"] * 100), pause=0.05))
    began = time.monotonic()
    with pytest.raises(errors.ReadTimeoutError, match="the rest"):
        ask(sender, peer, deadline=Deadline(0.3))
    assert time.monotonic() - began < 2


def test_no_time_left_means_that_no_connection_is_made(serve: Serve, sender, fake_clock: FakeClock):
    peer = serve()
    deadline = Deadline(5, clock=fake_clock)
    fake_clock.advance(5)
    with pytest.raises(errors.ConnectError, match="no time left"):
        ask(sender, peer, deadline=deadline)
    assert peer.connections == 0


def test_a_peer_that_takes_nothing_is_left_at_the_deadline(sender):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        began = time.monotonic()
        with pytest.raises(errors.ReadTimeoutError):
            sender.send("POST", url, body=b"x" * 2**25, deadline=Deadline(0.3))
        assert time.monotonic() - began < 2


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_a_peer_that_takes_the_connection_and_says_nothing_is_left_at_the_deadline(scheme, sender):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/"
        began = time.monotonic()
        with pytest.raises(errors.TransportError) as caught:
            sender.send("GET", url, deadline=Deadline(0.3))
        assert time.monotonic() - began < 2
        assert caught.value.sent is (scheme == "http")


def test_a_large_body_goes_whole(serve: Serve, sender):
    body = bytes(range(256)) * 5000
    peer = serve()
    ask(sender, peer, "PUT", body=body)
    assert peer.requests[0].body == body


def test_an_early_refusal_is_seen_though_the_body_was_not_taken(sender):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(1000)
                sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(2**20):
                    pass

        thread = threading.Thread(target=refuse)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with sender.send("POST", url, body=b"x" * 2**22, deadline=Deadline(SECONDS)) as response:
            assert response.status == 413
            assert response.read(10) == b"big"
        thread.join()


def test_secrets_of_a_request_are_in_no_error(serve: Serve, sender, refused_port):
    secrets = [("Authorization", "AWS4-HMAC-SHA256 hunter2"), ("X-aws-proxy-auth", "hunter2")]
    target = "/?X-Amz-Signature=hunter2"
    hang_up = serve(HangUp())
    garbage = serve(Raw((b"hunter1\r\n\r\n",)))
    for url in (hang_up.url, garbage.url, f"http://127.0.0.1:{refused_port}"):
        with pytest.raises(errors.TransportError) as caught:
            sender.send("GET", url + target, headers=secrets, deadline=Deadline(SECONDS))
        assert "hunter" not in f"{caught.value} {caught.value!r} {caught.value.to_wire()}"


def test_the_shared_transport_is_one_for_each_trust():
    assert transport.shared() is transport.shared(True)
    assert transport.shared(False) is transport.shared(False)
    assert transport.shared("/a.pem") is transport.shared("/a.pem")
    assert len({id(transport.shared(trust)) for trust in (True, False, "/a.pem", "/b.pem")}) == 4


def test_shared_transports_leave_no_connection_to_complain_of(serve: Serve):
    peer = serve()
    program = (
        "import sys; from vmnest import transport; from vmnest.deadline import Deadline\n"
        "for trust in (True, False):\n"
        "    transport.shared(trust).send('GET', sys.argv[1], deadline=Deadline(10)).read(100)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-X", "dev", "-c", program, peer.url], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert peer.connections == 2
