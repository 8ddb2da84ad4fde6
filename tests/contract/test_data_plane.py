"""The data plane's contract: who may ask, what reaches the VM, and what the proxy says in the VM's place."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time

import pytest
import websockets.exceptions
import websockets.sync.client

from tests.support import mirror
from tests.support.live import MIRROR_PORT

QUIET_PORT = 3001  # where nobody listens


@pytest.fixture(scope="module")
def cloud(any_cloud):
    return any_cloud


@pytest.fixture(scope="module")
def vm(cloud):
    return cloud.run_ready()


@pytest.fixture(scope="module")
def to_mirror(cloud, vm):
    """The headers of a request to the mirror, which runs in the VM."""
    return cloud.start_mirror(vm)


def seen_by_mirror(answer):
    assert answer.status == 207, answer
    return json.loads(answer.body)


def refused(answer):
    """Status and body of a refusal, which is plain text and not to be stored."""
    assert answer.headers["Content-Type"].partition(";")[0] == "text/plain"
    assert answer.headers["Cache-Control"] == "private, no-store"
    return answer.status, answer.body.decode()


class TestWhoMayAsk:
    def test_nobody_without_a_token(self, cloud, vm):
        answer = cloud.ask(vm, "GET", "/healthz", headers={})
        assert refused(answer) == (403, "Request missing authentication")

    def test_nobody_with_something_that_is_no_token(self, cloud, vm):
        answer = cloud.ask(vm, "GET", "/healthz", headers={"X-aws-proxy-auth": "a.b.c.d.e"})
        assert refused(answer) == (403, "Request missing authentication")
        assert answer.headers["x-aws-proxy-error"] == "UNAUTHORIZED"

    def test_nobody_with_the_token_in_the_query(self, cloud, vm):
        token = cloud.mint(vm, 8080)["X-aws-proxy-auth"]
        assert cloud.ask(vm, "GET", f"/healthz?X-aws-proxy-auth={token}", headers={}).status == 403

    def test_nobody_with_the_token_of_another_vm(self, cloud, vm):
        other = cloud.run()
        answer = cloud.ask(vm, "GET", "/healthz", headers=cloud.mint(other, 8080))
        assert refused(answer) == (403, "Token authentication failed")

    def test_nobody_who_only_claims_to_mean_another_vm(self, cloud, vm):
        other = cloud.run()
        forged = {**cloud.mint(other, 8080), "Host": cloud.host(vm), "X-aws-proxy-microvm": vm["microvmId"]}
        assert cloud.ask(vm, "GET", "/healthz", headers=forged).status == 403

    def test_nobody_at_a_port_outside_the_token(self, cloud, vm):
        answer = cloud.ask(vm, "GET", "/healthz", headers=cloud.mint(vm, 9000))
        assert refused(answer) == (403, "Access to port denied")
        to_other = {**cloud.mint(vm, 8080), "X-aws-proxy-port": str(MIRROR_PORT)}
        assert refused(cloud.ask(vm, "GET", "/", headers=to_other)) == (403, "Access to port denied")

    @pytest.mark.parametrize(
        "allowed",
        [{"range": {"startPort": 2990, "endPort": 3010}}, {"allPorts": {}}, {"port": MIRROR_PORT}],
        ids=["range", "all", "one"],
    )
    def test_whoever_has_a_token_that_covers_the_port(self, cloud, vm, to_mirror, allowed):
        headers = {**cloud.mint_for(vm, [{"port": 1}, allowed]), "X-aws-proxy-port": str(MIRROR_PORT)}
        assert cloud.ask(vm, "GET", "/", headers=headers).status == 207

    def test_8080_is_the_port_where_none_is_named(self, cloud, vm):
        assert cloud.ask(vm, "GET", "/healthz", headers=cloud.mint(vm, 8080, MIRROR_PORT)).status == 200

    @pytest.mark.parametrize("port", ["abc", "0", "65536", "8080/"])
    def test_a_port_that_is_none_is_a_bad_request(self, cloud, vm, port):
        headers = {**cloud.mint_for(vm, [{"allPorts": {}}]), "X-aws-proxy-port": port}
        assert cloud.ask(vm, "GET", "/", headers=headers).status == 400


class TestWhatReachesTheVM:
    def test_the_request_as_the_client_made_it(self, cloud, vm, to_mirror):
        headers = {**to_mirror, "X-Mine": "yes", "traceparent": "00-1-2-03"}
        seen = seen_by_mirror(cloud.ask(vm, "PROPFIND", "/a//b/%2F?x=1&x=2&token=%20", headers=headers))
        assert (seen["method"], seen["target"]) == ("PROPFIND", "/a//b/%2F?x=1&x=2&token=%20")
        assert ["x-mine", "yes"] in seen["headers"]
        assert ["traceparent", "00-1-2-03"] in seen["headers"]
        assert ["host", cloud.host(vm)] in seen["headers"]

    def test_it_comes_from_loopback_and_without_a_trace_of_the_token(self, cloud, vm, to_mirror):
        seen = seen_by_mirror(cloud.ask(vm, "GET", "/", headers={**to_mirror, "X-aws-proxy-of-tomorrow": "1"}))
        names = {name for name, _ in seen["headers"]}
        assert seen["peer"] == "127.0.0.1"
        assert [name for name in names if name.startswith("x-aws-proxy-")] == []
        assert "x-amzn-requestid" in names
        assert "x-forwarded-for" not in names
        assert to_mirror["X-aws-proxy-auth"] not in json.dumps(seen)

    def test_a_body_of_known_and_of_unknown_length(self, cloud, vm, to_mirror):
        data = os.urandom(1_000_000)
        for headers, body in (({}, data), ({"Transfer-Encoding": "chunked"}, iter([data[:77], data[77:]]))):
            with contextlib.closing(cloud.connect(vm)) as connection:
                connection.request(
                    "POST", "/", body, {**to_mirror, **headers}, encode_chunked="Transfer-Encoding" in headers
                )
                assert json.loads(connection.getresponse().read())["body"] == hashlib.sha256(data).hexdigest()

    def test_requests_of_one_connection(self, cloud, vm, to_mirror):
        with contextlib.closing(cloud.connect(vm)) as connection:
            for target in ("/1", "/2", "/3"):
                connection.request("GET", target, headers=to_mirror)
                assert json.loads(connection.getresponse().read())["target"] == target


class TestWhatComesBack:
    def test_the_answer_as_the_vm_made_it(self, cloud, vm, to_mirror):
        answer = cloud.ask(vm, "GET", "/", headers=to_mirror)
        assert answer.status == 207
        assert answer.headers.get_all("Set-Cookie") == ["a=1", "b=2"]
        assert answer.headers["x-amzn-requestid"]

    def test_a_stream_while_it_is_made(self, cloud, vm, to_mirror):
        with contextlib.closing(cloud.connect(vm)) as connection:
            begin = time.monotonic()
            connection.request("GET", "/stream?4&1", headers=to_mirror)
            response = connection.getresponse()
            assert response.readline() == b"data: 0\n"
            assert time.monotonic() - begin < 2.5
            assert response.read().count(b"data: ") == 3

    def test_a_502_without_a_body_where_nobody_listens(self, cloud, vm):
        headers = {**cloud.mint(vm, QUIET_PORT), "X-aws-proxy-port": str(QUIET_PORT)}
        answer = cloud.ask(vm, "GET", "/", headers=headers)
        assert (answer.status, answer.body) == (502, b"")
        assert answer.headers["x-aws-proxy-error"] == "APP_CONNECT_FAILED"


class TestWebSocket:
    def open(self, cloud, vm, *, headers=None, subprotocols=None):
        return websockets.sync.client.connect(
            cloud.websocket_url(vm),
            additional_headers=headers,
            subprotocols=subprotocols,
            compression=None,
            proxy=None,
        )

    def offer(self, headers):
        return [
            "lambda-microvms",
            f"lambda-microvms.authentication.{headers['X-aws-proxy-auth']}",
            f"lambda-microvms.port.{MIRROR_PORT}",
        ]

    def test_frames_pass_as_they_are(self, cloud, vm, to_mirror):
        with self.open(cloud, vm, headers=to_mirror) as socket:
            for message in ("naïve", b"\0\xff" * 150, b"", b"x" * 70_000):
                socket.send(message)
                assert socket.recv(timeout=30) == message

    def test_a_browser_authenticates_by_subprotocols_that_the_vm_does_not_see(self, cloud, vm, to_mirror):
        with self.open(cloud, vm, subprotocols=[*self.offer(to_mirror), mirror.PROTOCOL]) as socket:
            assert socket.subprotocol == mirror.PROTOCOL
            assert json.loads(socket.response.headers["X-Offered"]) == [mirror.PROTOCOL]
            socket.send("hi")
            assert socket.recv(timeout=30) == "hi"

    def test_the_marker_is_chosen_where_the_vm_chooses_nothing(self, cloud, vm, to_mirror):
        with self.open(cloud, vm, subprotocols=self.offer(to_mirror)) as socket:
            assert socket.subprotocol == "lambda-microvms"

    def test_it_fails_without_a_token_and_without_the_marker(self, cloud, vm, to_mirror):
        for subprotocols in (None, self.offer(to_mirror)[1:]):
            with pytest.raises(websockets.exceptions.InvalidStatus), self.open(cloud, vm, subprotocols=subprotocols):
                pass


class TestTheEnd:
    def test_the_endpoint_of_an_ended_vm_answers_502(self, cloud):
        vm = cloud.run_ready()
        token = cloud.mint(vm, 8080)
        cloud.terminate(vm)
        end = time.monotonic() + 60
        answer = None
        while answer is None or answer.status != 502:
            assert time.monotonic() < end, answer
            with contextlib.suppress(TimeoutError):  # what some met on AWS for a while
                answer = cloud.ask(vm, "GET", "/healthz", headers=token, seconds=5)
        assert answer.body == b""
        assert answer.headers["x-aws-proxy-error"] == "MICROVM_CONNECT_FAILED"

    def test_a_vm_whose_main_process_ends_is_terminated(self, cloud):
        vm = cloud.run_ready()
        line = "agent=$PPID; (sleep 1; kill -9 $agent) >/dev/null 2>&1 &"  # once it has answered
        assert cloud.execute(vm, "sh", "-c", line) == (0, "")
        found = cloud.wait_for(vm, "TERMINATED")
        assert found["stateReason"].startswith("Container Stopped with Exit Code: ")
        assert found["terminatedAt"]
