"""The data plane: what travels between a client and a port in the VM."""

import contextlib
import hashlib
import http.client
import os
import shutil
import socket
import subprocess
import threading
import uuid

import pytest
from websockets.sync.client import connect as open_websocket
from websockets.sync.server import serve as serve_websocket

from tests.support.endpoints import open_endpoint
from tests.support.lifecycle import eventually, policy
from tests.support.machines import read_request, scripted_server
from vmnest.local import clients, proxy
from vmnest.wire import bodies, http1, names

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class App:
    """An application in the VM: answers each request by ``answer`` and writes down what it got."""

    def __init__(self, answer=HELLO):
        self.answer = answer
        self.seen = []
        self.connections = 0

    def __call__(self, stream):
        self.connections += 1
        while (got := read_request(stream)) is not None:
            self.seen.append(got)
            stream.send(self.answer if isinstance(self.answer, bytes) else self.answer(*got))

    @property
    def request(self):
        return self.seen[-1][0]

    def field(self, name):
        return http1.values(self.request.fields, name)


@contextlib.contextmanager
def serving(app, *, port=8080, **options):
    with scripted_server(app) as real, open_endpoint({port: real}, **options) as endpoint:
        yield endpoint


class TestRequests:
    def test_a_request_reaches_the_port_and_its_answer_the_client(self):
        app = App()
        with serving(app) as endpoint:
            status, headers, body = endpoint.get("/x", method="POST", body=b"data")
        assert (status, body) == (200, b"hello")
        assert uuid.UUID(headers["x-amzn-requestid"])
        assert app.seen[0][1] == b"data"

    def test_the_raw_target_arrives(self):
        app = App()
        with serving(app) as endpoint, endpoint.raw() as stream:
            token = endpoint.token().encode()
            stream.send(b"GET //a//b%2F/../?q=%20&&x=+ HTTP/1.1\r\nHost: h\r\nX-aws-proxy-auth: " + token + b"\r\n\r\n")
            assert stream.read_head()
        assert app.request.target == "//a//b%2F/../?q=%20&&x=+"

    def test_fields_arrive_as_they_were_but_for_the_platforms(self):
        app = App()
        with serving(app) as endpoint:
            headers = {"X-One": "1", "traceparent": "t", "X-aws-proxy-future": "1", "Host": "the.host:1"}
            endpoint.get(headers={**endpoint.auth(), **headers})
        assert app.field("host") == ["the.host:1"]
        assert app.field("x-one") == ["1"]
        assert app.field("traceparent") == ["t"]
        assert not [name for name, _ in app.request.fields if name.lower().startswith("x-aws-proxy-")]

    def test_the_request_id_is_the_platforms_both_ways(self):
        app = App(b"HTTP/1.1 200 OK\r\nx-amzn-RequestId: forged\r\nContent-Length: 0\r\n\r\n")
        with serving(app) as endpoint:
            _, headers, _ = endpoint.get(headers={**endpoint.auth(), "x-amzn-requestid": "forged"})
        assert app.field("x-amzn-requestid") == [headers["x-amzn-requestid"]]
        assert headers["x-amzn-requestid"] != "forged"

    def test_fields_about_the_connection_stay_on_it(self):
        app = App(
            b"HTTP/1.1 200 OK\r\nConnection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n"
        )
        with serving(app) as endpoint:
            headers = {**endpoint.auth(), "Connection": "X-Mine", "X-Mine": "1", "TE": "trailers"}
            _, answered, _ = endpoint.get(headers=headers)
        assert not {"x-mine", "te", "connection"} & {name.lower() for name, _ in app.request.fields}
        assert not {"x-hop", "keep-alive"} & set(answered)

    def test_16_kib_of_cookies_pass(self):
        app = App()
        with serving(app) as endpoint:
            endpoint.get(headers={**endpoint.auth(), "Cookie": "c" * 16384})
        assert app.field("cookie") == ["c" * 16384]

    def test_too_large_a_head_is_431(self):
        with serving(App()) as endpoint, endpoint.raw() as stream:
            stream.send(b"GET / HTTP/1.1\r\nA: " + b"x" * http1.MAX_HEAD_BYTES)
            head = stream.read_head()
        assert head is not None
        assert http1.parse_response(head).status == 431

    @pytest.mark.parametrize(
        "garbage", [b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET / HTTP/1.1\n\n", b"nonsense\r\n\r\n"], ids=repr
    )
    def test_garbage_is_400(self, garbage):
        with serving(App()) as endpoint, endpoint.raw() as stream:
            stream.send(garbage)
            head = stream.read_head()
        assert head is not None
        assert http1.parse_response(head).status == 400

    def test_a_smuggled_request_is_400_and_reaches_nobody(self):
        app = App()
        with serving(app) as endpoint, endpoint.raw() as stream:
            auth = b"X-aws-proxy-auth: " + endpoint.token().encode()
            fields = b"\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x"
            stream.send(b"POST / HTTP/1.1\r\n" + auth + fields)
            head = stream.read_head()
        assert head is not None
        assert http1.parse_response(head).status == 400
        assert not app.seen

    def test_an_http_1_0_client_gets_a_plain_body_and_the_connections_end(self):
        app = App(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
        with serving(app) as endpoint, endpoint.raw() as stream:
            stream.send(b"GET / HTTP/1.0\r\nX-aws-proxy-auth: " + endpoint.token().encode() + b"\r\n\r\n")
            head = stream.read_head()
            assert head is not None
            assert http1.first(http1.parse_response(head).fields, "transfer-encoding") is None
            body = b"".join(stream.body(bodies.BodyDecoder(http1.Framing(http1.UNTIL_CLOSE))))
        assert body == b"hello"
        assert app.field("host") == [f"127.0.0.1:{endpoint.port}"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("headers", "body"),
        [
            (lambda endpoint: {}, b"Request missing authentication"),
            (lambda endpoint: {"X-aws-proxy-auth": "x"}, b"Request missing authentication"),
            (lambda endpoint: {"X-aws-proxy-auth": endpoint.token(microvm_id="o")}, b"Token authentication failed"),
            (lambda endpoint: {"X-aws-proxy-auth": endpoint.token(9000)}, b"Access to port denied"),
        ],
        ids=["no token", "no token of ours", "another VM's", "another port's"],
    )
    def test_403_has_the_services_text(self, headers, body):
        app = App()
        with serving(app) as endpoint:
            status, answered, text = endpoint.get(headers=headers(endpoint))
        assert (status, text) == (403, body)
        assert answered["content-type"] == "text/plain"
        assert answered["cache-control"] == "private, no-store"
        assert answered["x-aws-proxy-error"] == "UNAUTHORIZED"
        assert not app.seen

    def test_nothing_listens(self):
        with open_endpoint({}) as endpoint:
            status, headers, body = endpoint.get()
        assert (status, body, headers["x-aws-proxy-error"]) == (502, b"", "APP_CONNECT_FAILED")

    @pytest.mark.parametrize("state", [names.TERMINATING, names.TERMINATED])
    def test_the_vm_is_gone(self, state):
        with open_endpoint({}, state=state) as endpoint:
            status, headers, body = endpoint.get()
        assert (status, body, headers["x-aws-proxy-error"]) == (502, b"", "MICROVM_CONNECT_FAILED")

    def test_no_word_says_that_a_request_was_not_delivered_if_the_application_ends_the_connection_unanswered(self):
        with serving(lambda stream: stream.read_head()) as endpoint:
            status, headers, body = endpoint.get()
        assert (status, body) == (502, b"")
        assert "x-aws-proxy-error" not in headers

    def test_the_application_does_not_speak_http(self):
        with serving(lambda stream: stream.send(b"SSH-2.0-x\r\n\r\n")) as endpoint:
            assert endpoint.get()[0] == 502

    def test_the_connection_goes_on_after_a_refusal(self):
        with serving(App()) as endpoint, contextlib.closing(endpoint.connect()) as connection:
            connection.request("GET", "/")
            response = connection.getresponse()
            assert (response.status, response.read()) == (403, b"Request missing authentication")
            connection.request("GET", "/", headers=endpoint.auth())
            assert connection.getresponse().read() == b"hello"

    def test_a_refused_upload_is_not_read_and_its_answer_arrives(self):
        with open_endpoint({}) as endpoint, contextlib.closing(endpoint.connect()) as connection:
            connection.putrequest("POST", "/")
            connection.putheader("Content-Length", str(1 << 40))
            connection.endheaders()
            with contextlib.suppress(ConnectionError):
                connection.send(b"x" * (1 << 20))
            response = connection.getresponse()
            assert (response.status, response.getheader("connection")) == (403, "close")

    def test_a_pending_vm_holds_the_request_until_it_runs(self):
        with serving(App(), state=names.PENDING) as endpoint, contextlib.closing(endpoint.connect()) as connection:
            connection.request("GET", "/", headers=endpoint.auth())
            with endpoint.record.changed:
                endpoint.record.advance("ran")
            assert connection.getresponse().read() == b"hello"

    def test_a_vm_that_is_pending_for_too_long_is_502(self, monkeypatch):
        monkeypatch.setattr(clients, "PENDING_SECONDS", 0.01)
        with serving(App(), state=names.PENDING) as endpoint:
            status, headers, _ = endpoint.get()
        assert (status, headers["x-aws-proxy-error"]) == (502, "APP_CONNECT_FAILED")


class TestResponses:
    def test_repeated_fields_stay_apart(self):
        app = App(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 0\r\n\r\n")
        with serving(app) as endpoint, contextlib.closing(endpoint.connect()) as connection:
            connection.request("GET", "/", headers=endpoint.auth())
            assert connection.getresponse().msg.get_all("set-cookie") == ["a=1", "b=2"]

    def test_a_guest_cannot_speak_in_the_proxys_name(self):
        app = App(b"HTTP/1.1 200 OK\r\nx-aws-proxy-error: MICROVM_CONNECT_FAILED\r\nContent-Length: 0\r\n\r\n")
        with serving(app) as endpoint:
            assert "x-aws-proxy-error" not in endpoint.get()[1]

    def test_the_answer_to_head_tells_a_length_and_has_no_body(self):
        app = App(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        with serving(app) as endpoint, contextlib.closing(endpoint.connect()) as connection:
            for _ in range(2):
                connection.request("HEAD", "/", headers=endpoint.auth())
                response = connection.getresponse()
                assert (response.getheader("content-length"), response.read()) == ("5", b"")

    @pytest.mark.parametrize("status", [204, 304])
    def test_answers_without_a_body_end_at_their_head(self, status):
        app = App(f"HTTP/1.1 {status} X\r\n\r\n".encode())
        with serving(app) as endpoint, contextlib.closing(endpoint.connect()) as connection:
            for _ in range(2):
                connection.request("GET", "/", headers=endpoint.auth())
                response = connection.getresponse()
                assert (response.status, response.read()) == (status, b"")

    def test_an_answer_that_has_no_body_tells_no_length(self):
        with serving(App(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n")) as endpoint:
            status, headers, _ = endpoint.get()
        assert (status, "content-length" in headers) == (204, False)

    def test_a_body_without_length_comes_as_chunks(self):
        with serving(lambda stream: (stream.read_head(), stream.send(b"HTTP/1.0 200 OK\r\n\r\nall of it"))) as endpoint:
            _, headers, body = endpoint.get()
        assert (headers["transfer-encoding"], body) == ("chunked", b"all of it")

    def test_trailers_come_through(self):
        app = App(
            b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n"
        )
        with serving(app) as endpoint, endpoint.raw() as stream:
            fields = b"\r\nHost: h\r\nConnection: close\r\n\r\n"
            stream.send(b"GET / HTTP/1.1\r\nX-aws-proxy-auth: " + endpoint.token().encode() + fields)
            data = b""
            while got := stream.receive():
                data += got
        assert data.endswith(b"1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n")

    def test_an_answer_that_breaks_off_breaks_off_for_the_client(self):
        def script(stream):
            stream.read_head()
            stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

        with serving(script) as endpoint, pytest.raises(http.client.IncompleteRead):
            endpoint.get()

    def test_interim_answers_come_through(self):
        app = App(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HELLO)
        with serving(app) as endpoint, endpoint.raw() as stream:
            stream.send(b"GET / HTTP/1.1\r\nHost: h\r\nX-aws-proxy-auth: " + endpoint.token().encode() + b"\r\n\r\n")
            heads = [stream.read_head(), stream.read_head()]
        assert [http1.parse_response(head).status for head in heads if head] == [103, 200]

    def test_interim_answers_do_not_speak_in_the_proxys_name_nor_have_a_body(self):
        """Some clients take them for the answer."""
        lie = b"X-aws-proxy-error: MICROVM_CONNECT_FAILED\r\nContent-Length: 9\r\nConnection: close\r\nLink: x\r\n"
        app = App(b"HTTP/1.1 103 Early Hints\r\n" + lie + b"\r\n" + HELLO)
        with serving(app) as endpoint, endpoint.raw() as stream:
            stream.send(b"GET / HTTP/1.1\r\nHost: h\r\nX-aws-proxy-auth: " + endpoint.token().encode() + b"\r\n\r\n")
            assert stream.read_head() == b"HTTP/1.1 103 Early Hints\r\nLink: x"

    def test_endless_interim_answers_are_no_answer(self):
        with serving(App(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)) as endpoint:
            assert endpoint.get()[0] == 502

    def test_an_answers_head_that_stops_in_the_middle_is_no_answer(self, monkeypatch):
        monkeypatch.setattr(proxy, "HEAD_SECONDS", 0.1)
        with serving(App(b"HTTP/1.1 200")) as endpoint:
            assert endpoint.get()[0] == 502

    def test_events_arrive_one_by_one(self):
        go_on = threading.Event()

        def script(stream):
            stream.read_head()
            stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
            assert go_on.wait(20)
            stream.send(b"data: 2\n\n")

        with serving(script) as endpoint, contextlib.closing(endpoint.connect()) as connection:
            connection.request("GET", "/", headers=endpoint.auth())
            response = connection.getresponse()
            assert response.read1() == b"data: 1\n\n"
            go_on.set()
            assert response.read() == b"data: 2\n\n"

    def test_a_client_that_leaves_ends_the_silent_answer_in_the_vm(self):
        ended = threading.Event()

        def script(stream):
            stream.read_head()
            stream.send(b"HTTP/1.1 200 OK\r\n\r\nfirst")
            if not stream.receive():
                ended.set()

        with serving(script) as endpoint:
            with contextlib.closing(endpoint.connect()) as connection:
                connection.request("GET", "/", headers=endpoint.auth())
                assert connection.getresponse().read1() == b"first"
            assert ended.wait(10)

    def test_20_mb_come_down_whole(self):
        data = os.urandom(1 << 20) * 20
        app = App(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data))
        with serving(app) as endpoint:
            assert hashlib.sha256(endpoint.get()[2]).digest() == hashlib.sha256(data).digest()


class TestUploads:
    @staticmethod
    def digest(request, body):
        text = hashlib.sha256(body).hexdigest().encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)

    @pytest.mark.parametrize("size", [0, 10, 65536, 65537, 20 << 20])
    @pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
    def test_a_body_goes_up_whole(self, size, chunked):
        data = (os.urandom(1 << 20) * 20)[:size]
        app = App(self.digest)
        with serving(app) as endpoint, contextlib.closing(endpoint.connect()) as connection:
            for _ in range(2):
                body = iter([data[: size // 2], data[size // 2 :]]) if chunked else data
                connection.request("POST", "/", body, endpoint.auth(), encode_chunked=chunked)
                assert connection.getresponse().read() == hashlib.sha256(data).hexdigest().encode()
        told = app.field("transfer-encoding") + app.field("content-length")
        assert told == (["chunked"] if chunked else [str(size)])

    def test_pieces_arrive_as_they_are_sent(self):
        first, answered = threading.Event(), []

        def script(stream):
            head = stream.read_head()
            assert head is not None
            decoder = bodies.BodyDecoder(http1.request_framing(http1.parse_request(head)))
            for payload in stream.body(decoder):
                answered.append(payload)
                first.set()
            stream.send(HELLO)

        with serving(script) as endpoint, contextlib.closing(endpoint.connect()) as connection:
            connection.putrequest("POST", "/")
            for name, value in {**endpoint.auth(), "Transfer-Encoding": "chunked"}.items():
                connection.putheader(name, value)
            connection.endheaders()
            connection.send(bodies.encode_chunk(b"one"))
            assert first.wait(10)
            connection.send(bodies.encode_chunk(b"two") + bodies.encode_last_chunk())
            assert connection.getresponse().read() == b"hello"
        assert b"".join(answered) == b"onetwo"

    def test_an_early_answer_arrives_though_the_upload_goes_on(self):
        def script(stream):
            stream.read_head()
            stream.send(b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nno!")

        with serving(script) as endpoint, contextlib.closing(endpoint.connect()) as connection:
            connection.putrequest("POST", "/")
            for name, value in {**endpoint.auth(), "Content-Length": str(1 << 40)}.items():
                connection.putheader(name, value)
            connection.endheaders()
            with contextlib.suppress(ConnectionError):
                connection.send(b"x" * (1 << 20))
            response = connection.getresponse()
            assert (response.status, response.read()) == (413, b"no!")

    def test_an_upload_that_breaks_off_does_not_reach_the_application_as_a_whole_one(self):
        outcome, done = [], threading.Event()

        def script(stream):
            try:
                outcome.append(read_request(stream))
            except (http1.TruncatedError, ConnectionError) as error:
                outcome.append(type(error))
            done.set()

        with serving(script) as endpoint:
            with contextlib.closing(endpoint.connect()) as connection:
                connection.putrequest("POST", "/")
                for name, value in {**endpoint.auth(), "Content-Length": "1000000"}.items():
                    connection.putheader(name, value)
                connection.endheaders()
                connection.send(b"half")
            assert done.wait(10)
        assert outcome[0] in {http1.TruncatedError, ConnectionResetError}

    @pytest.mark.parametrize("chunk", [b"-2\r\n{}\r\n", b"0x2\r\n{}\r\n", b"2\n{}\r\n", b"f" * 20 + b"\r\n"], ids=repr)
    def test_malformed_chunks_are_the_clients_fault(self, chunk):
        def script(stream):
            with contextlib.suppress(http1.TruncatedError):
                read_request(stream)

        with serving(script) as endpoint, endpoint.raw() as stream:
            token = endpoint.token().encode()
            stream.send(b"POST / HTTP/1.1\r\nHost: h\r\nX-aws-proxy-auth: " + token)
            stream.send(b"\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n" + chunk)
            head = stream.read_head()
        assert head is not None
        assert http1.parse_response(head).status == 400

    def test_expect_100_continue_is_answered_once(self):
        app = App()
        with serving(app) as endpoint, endpoint.raw() as stream:
            fields = b"\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
            stream.send(b"POST / HTTP/1.1\r\nX-aws-proxy-auth: " + endpoint.token().encode() + fields)
            assert stream.read_head() == b"HTTP/1.1 100 Continue"
            stream.send(b"data")
            head = stream.read_head()
        assert head is not None
        assert http1.parse_response(head).status == 200
        assert app.seen[0][1] == b"data"
        assert app.field("expect") == []

    def test_a_refused_upload_that_expects_is_not_sent_at_all(self):
        with open_endpoint({}) as endpoint, endpoint.raw() as stream:
            stream.send(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
            head = stream.read_head()
        assert head is not None
        assert http1.parse_response(head).status == 403

    @pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
    def test_curl_uploads_in_chunks(self, tmp_path):
        (tmp_path / "data").write_bytes(b"y" * 3_000_000)
        with serving(App(self.digest)) as endpoint:
            command = ["curl", "-sS", "-T", "-", "-H", "Transfer-Encoding: chunked", "--noproxy", "*"]
            command += ["-H", f"X-aws-proxy-auth: {endpoint.token()}", endpoint.url]
            with (tmp_path / "data").open("rb") as file:
                done = subprocess.run(command, stdin=file, capture_output=True, check=True, timeout=30)
        assert done.stdout.decode() == hashlib.sha256(b"y" * 3_000_000).hexdigest()


class TestConnections:
    def test_requests_of_one_client_connection_share_one_into_the_vm(self):
        app = App()
        with serving(app) as endpoint, contextlib.closing(endpoint.connect()) as connection:
            for _ in range(5):
                connection.request("POST", "/", b"x", endpoint.auth())
                assert connection.getresponse().read() == b"hello"
        assert app.connections == 1

    def test_another_port_gets_another_connection(self):
        one, two = App(), App(HELLO.replace(b"hello", b"there"))
        with (
            scripted_server(one) as first,
            scripted_server(two) as second,
            open_endpoint({8080: first, 3000: second}) as endpoint,
            contextlib.closing(endpoint.connect()) as connection,
        ):
            answers = []
            for port in (8080, 3000, 8080):
                connection.request("GET", "/", headers=endpoint.auth(port))
                answers.append(connection.getresponse().read())
        assert answers == [b"hello", b"there", b"hello"]

    def test_a_connection_that_the_vm_closed_is_not_used_again(self):
        def script(stream):
            read_request(stream)
            stream.send(HELLO)

        with serving(script) as endpoint, contextlib.closing(endpoint.connect()) as connection:
            for _ in range(10):
                connection.request("GET", "/", headers=endpoint.auth())
                assert connection.getresponse().read() == b"hello"

    def test_many_clients_are_served_at_the_same_time(self):
        app, statuses = App(), []
        with serving(app) as endpoint:
            threads = [threading.Thread(target=lambda: statuses.append(endpoint.get()[0])) for _ in range(64)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert statuses == [200] * 64

    def test_pipelined_requests_are_answered_in_order(self):
        app = App(lambda request, body: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + request.target.encode())
        with serving(app) as endpoint, endpoint.raw() as stream:
            fields = b"Host: h\r\nX-aws-proxy-auth: " + endpoint.token().encode()
            stream.send(b"".join(b"GET /%d HTTP/1.1\r\n%b\r\n\r\n" % (number, fields) for number in range(3)))
            answers = []
            for _ in range(3):
                assert stream.read_head()
                answers.append(b"".join(stream.body(bodies.BodyDecoder(http1.Framing(http1.LENGTH, 2)))))
        assert answers == [b"/0", b"/1", b"/2"]


class TestSleepingVMs:
    """What requests do to a VM that is suspended, and what a suspend does to requests."""

    @staticmethod
    def wake(endpoint):
        """Let the record's keeper do its work at once; the list of its calls."""
        woken = []

        def wake():
            woken.append(endpoint.record)
            endpoint.record.advance("resumed")

        endpoint.record.wake = wake
        return woken

    @staticmethod
    def suspend(endpoint):
        with endpoint.record.changed:
            endpoint.record.advance("suspend")
            endpoint.record.advance("frozen")
            endpoint.record.cut_passages()

    def test_an_admitted_request_wakes_the_vm_and_is_answered(self):
        app = App()
        with serving(app, state=names.SUSPENDED, idle_policy=policy()) as endpoint:
            woken = self.wake(endpoint)
            assert endpoint.get("/x", method="POST", body=b"data")[2] == b"hello"
        assert len(woken) == 1
        assert app.seen[0][1] == b"data"

    @pytest.mark.parametrize("idle", [None, policy(auto_resume=False)], ids=["no policy", "not allowed"])
    def test_a_vm_that_requests_may_not_wake_sleeps_on(self, idle):
        app = App()
        with serving(app, state=names.SUSPENDED, idle_policy=idle) as endpoint:
            woken = self.wake(endpoint)
            status, headers, body = endpoint.get()
        assert (status, body, headers["x-aws-proxy-error"]) == (502, b"", "MICROVM_CONNECT_FAILED")
        assert (woken, app.seen, endpoint.machine.dialled) == ([], [], [])

    @pytest.mark.parametrize(
        "headers",
        [
            lambda endpoint: {},
            lambda endpoint: {"X-aws-proxy-auth": "nonsense"},
            lambda endpoint: {"X-aws-proxy-auth": endpoint.token(microvm_id="microvm-other")},
            lambda endpoint: {"X-aws-proxy-auth": endpoint.token(expires_in=-1)},
            lambda endpoint: {"X-aws-proxy-auth": endpoint.token(3000)},
            lambda endpoint: {"X-aws-proxy-auth": endpoint.token(), "X-aws-proxy-port": "70000"},
            lambda endpoint: {"X-aws-proxy-auth": endpoint.token(for_shell=True)},
        ],
        ids=["none", "forged", "another's", "expired", "port", "no port", "shell"],
    )
    def test_a_refused_request_wakes_nobody_and_keeps_nobody_awake(self, headers):
        with serving(App(), state=names.SUSPENDED, idle_policy=policy()) as endpoint:
            woken = self.wake(endpoint)
            assert endpoint.get(headers=headers(endpoint))[0] in {400, 403, 502}
            assert (woken, endpoint.record.state, endpoint.record.touched_at) == ([], names.SUSPENDED, 0)

    def test_a_vm_that_is_asleep_for_too_long_is_502(self, monkeypatch):
        monkeypatch.setattr(clients, "RESUME_SECONDS", 0.01)
        with serving(App(), state=names.SUSPENDED, idle_policy=policy()) as endpoint:
            status, headers, _ = endpoint.get()
        assert (status, headers["x-aws-proxy-error"]) == (502, "MICROVM_CONNECT_FAILED")

    def test_a_suspend_cuts_a_request_that_waits_for_its_answer_without_one(self):
        arrived, ended = threading.Event(), threading.Event()

        def script(stream):
            read_request(stream)
            arrived.set()
            assert not stream.receive()
            ended.set()

        with serving(script, idle_policy=policy()) as endpoint, contextlib.closing(endpoint.connect()) as connection:
            connection.request("POST", "/", b"data", endpoint.auth())
            assert arrived.wait(10)
            self.suspend(endpoint)
            # An answer of any kind would be about what was or was not done.
            with pytest.raises(http.client.RemoteDisconnected):
                connection.getresponse()
            assert ended.wait(10)

    def test_a_suspend_cuts_an_answer_in_the_middle(self):
        def script(stream):
            read_request(stream)
            stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
            stream.receive()

        with serving(script) as endpoint, contextlib.closing(endpoint.connect()) as connection:
            connection.request("GET", "/", headers=endpoint.auth())
            response = connection.getresponse()
            assert response.read(5) == b"hello"
            self.suspend(endpoint)
            with pytest.raises(http.client.IncompleteRead):
                response.read()

    def test_a_suspend_cuts_an_upload_that_the_vm_does_not_read(self):
        def script(stream):
            stream.read_head()
            released.wait(10)

        released = threading.Event()
        with serving(script) as endpoint, endpoint.raw() as stream:
            auth = b"X-aws-proxy-auth: " + endpoint.token().encode()
            stream.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n" + auth + b"\r\n\r\n")
            eventually(lambda: bool(endpoint.record._passages))
            self.suspend(endpoint)
            with pytest.raises(ConnectionError):
                stream.send(b"x" * (1 << 25))
            released.set()

    def test_a_suspend_cuts_what_was_upgraded(self):
        def script(stream):
            stream.read_head()
            stream.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello")
            stream.receive()

        with serving(script) as endpoint, endpoint.raw() as stream:
            auth = b"X-aws-proxy-auth: " + endpoint.token().encode()
            stream.send(
                b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + auth + b"\r\n\r\n"
            )
            assert stream.read_head()
            assert stream.receive() == b"hello"
            self.suspend(endpoint)
            assert stream.receive() == b""

    def test_a_connection_without_a_request_outlives_a_suspend(self):
        with (
            serving(App(), idle_policy=policy()) as endpoint,
            contextlib.closing(endpoint.connect()) as connection,
        ):
            self.wake(endpoint)
            for _ in range(2):
                connection.request("GET", "/", headers=endpoint.auth())
                assert connection.getresponse().read() == b"hello"
                eventually(lambda: not endpoint.record._passages)
                self.suspend(endpoint)

    def test_bytes_of_every_kind_keep_the_vm_from_being_idle(self):
        """Requests, bodies both ways, and what passes after an upgrade: each moves the time of the last bytes."""
        steps = threading.Semaphore(0)

        def script(stream):
            stream.read_head()
            for part in (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n", b"0\r\n\r\n"):
                assert steps.acquire(timeout=10)
                stream.send(part)

        with serving(script) as endpoint, endpoint.raw() as stream:
            auth = b"X-aws-proxy-auth: " + endpoint.token().encode()
            stream.send(b"GET / HTTP/1.1\r\nHost: h\r\n" + auth + b"\r\n\r\n")
            touched = self.wait_for_touch(endpoint, after=0.0)
            for wanted in (b"200 OK", b"a\r\n", b"0\r\n"):
                steps.release()
                assert wanted in stream.receive()
                if wanted != b"200 OK":
                    touched = self.wait_for_touch(endpoint, after=touched)

    def test_upgraded_bytes_keep_the_vm_from_being_idle(self):
        def script(stream):
            stream.read_head()
            stream.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            while data := stream.receive():
                stream.send(data)

        with serving(script) as endpoint, endpoint.raw() as stream:
            auth = b"X-aws-proxy-auth: " + endpoint.token().encode()
            stream.send(
                b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + auth + b"\r\n\r\n"
            )
            assert stream.read_head()
            touched = endpoint.record.touched_at
            for _ in range(3):
                stream.send(b"x")
                assert stream.receive() == b"x"
                assert endpoint.record.touched_at > touched
                touched = endpoint.record.touched_at

    def test_an_upload_keeps_the_vm_from_being_idle(self):
        def script(stream):
            while stream.receive():
                pass

        with serving(script) as endpoint, endpoint.raw() as stream:
            auth = b"X-aws-proxy-auth: " + endpoint.token().encode()
            stream.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n" + auth + b"\r\n\r\n")
            touched = self.wait_for_touch(endpoint, after=0.0)
            for _ in range(3):
                stream.send(b"x")
                touched = self.wait_for_touch(endpoint, after=touched)

    @staticmethod
    def wait_for_touch(endpoint, *, after):
        eventually(lambda: endpoint.record.touched_at > after)
        return endpoint.record.touched_at


class TestWebSockets:
    @pytest.fixture
    def echo(self):
        def handle(connection):
            for message in connection:
                connection.send(message)

        with serve_websocket(handle, "127.0.0.1", 0, subprotocols=["chat"], select_subprotocol=self.select) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            with open_endpoint({3000: server.socket.getsockname()[1]}) as endpoint:
                yield endpoint
            server.shutdown()
            thread.join()

    @staticmethod
    def select(connection, offered):
        assert not [name for name in offered if name.startswith("lambda-microvms")]
        return "chat" if "chat" in offered else None

    @staticmethod
    def offer(endpoint, *further):
        token = endpoint.token(3000)
        return ["lambda-microvms", f"lambda-microvms.authentication.{token}", "lambda-microvms.port.3000", *further]

    def test_messages_pass_both_ways_with_subprotocols(self, echo):
        url = echo.url.replace("http", "ws")
        with open_websocket(url, subprotocols=self.offer(echo), proxy=None) as client:
            assert client.subprotocol == "lambda-microvms"
            for message in ("text", b"\0binary", "x" * 300, b"y" * 1_000_000):
                client.send(message)
                assert client.recv(10) == message

    def test_the_applications_subprotocol_can_be_selected(self, echo):
        url = echo.url.replace("http", "ws")
        with open_websocket(url, subprotocols=self.offer(echo, "chat"), proxy=None) as client:
            assert client.subprotocol == "chat"

    def test_headers_authenticate_as_well(self, echo):
        url = echo.url.replace("http", "ws")
        with open_websocket(url, additional_headers=echo.auth(3000), proxy=None) as client:
            assert client.subprotocol is None
            client.send("hi")
            assert client.recv(10) == "hi"

    def test_the_end_of_one_side_is_the_end_of_the_other(self):
        closed = threading.Event()

        def script(stream):
            stream.read_head()
            stream.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello")
            assert stream.receive() == b"bye"
            if not stream.receive():
                closed.set()

        with serving(script) as endpoint, endpoint.raw() as stream:
            auth = b"X-aws-proxy-auth: " + endpoint.token().encode()
            stream.send(
                b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + auth + b"\r\n\r\n"
            )
            assert stream.read_head()
            assert stream.receive() == b"hello"
            stream.send(b"bye")
            stream.close()
            assert closed.wait(10)

    def test_one_that_has_ended_its_side_hears_the_other_to_its_end(self):
        def script(stream):
            stream.read_head()
            stream.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            said = b""
            while data := stream.receive():
                said += data
            stream.send(b"you said " + said)

        with serving(script) as endpoint, endpoint.raw() as stream:
            auth = b"X-aws-proxy-auth: " + endpoint.token().encode()
            head = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + auth
            stream.send(head + b"\r\n\r\nso")
            assert stream.read_head()
            stream.send(b" much")
            stream.socket.shutdown(socket.SHUT_WR)
            heard = b""
            while data := stream.receive():
                heard += data
            assert heard == b"you said so much"
