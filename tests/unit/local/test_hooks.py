"""Lifecycle hooks: what is posted, and what counts as a failure."""

import contextlib
import json
import time

import pytest

from tests.support.machines import FakeMachine, Hooks, scripted_server
from vmnest.local import hooks
from vmnest.wire import http1


@contextlib.contextmanager
def machine(script):
    with scripted_server(script) as port:
        yield FakeMachine({9000: port}, on_end=lambda ended: None)


def test_run_is_posted_exactly_as_the_platform_does():
    server = Hooks()
    with machine(server) as one:
        hooks.post_run(one, microvm_id="microvm-1", payload='{"a": 1}')
    request, body = server.seen[0]
    assert (request.method, request.target) == ("POST", "/aws/lambda-microvms/runtime/v1/run")
    assert http1.first(request.fields, "host") == "localhost:9000"
    assert http1.first(request.fields, "content-type") == "application/json"
    assert http1.first(request.fields, "user-agent") is None
    assert json.loads(body) == {"microvmId": "microvm-1", "runHookPayload": '{"a": 1}'}


def test_without_a_payload_it_is_empty():
    server = Hooks()
    with machine(server) as one:
        hooks.post_run(one, microvm_id="m", payload=None)
    assert json.loads(server.seen[0][1])["runHookPayload"] == ""


def test_terminate_has_no_body():
    server = Hooks()
    with machine(server) as one:
        hooks.post_terminate(one)
    request, body = server.seen[0]
    assert request.target == "/aws/lambda-microvms/runtime/v1/terminate"
    assert body == b""
    assert http1.first(request.fields, "content-type") is None


@pytest.mark.parametrize("status", [500, 404, 503, 204])
def test_any_other_status_fails_with_the_services_text(status):
    server = Hooks()
    server.statuses["run"] = status
    with machine(server) as one, pytest.raises(hooks.HookError) as caught:
        hooks.post_run(one, microvm_id="m", payload=None)
    assert caught.value.message == (
        f"Run lifecycle hook returned HTTP status {status}. "
        "Please check your hook endpoint and application logs for more details."
    )


def test_silence_fails_at_the_timeout():
    told = r"Run lifecycle hook timed out after 0\.1 seconds"
    with (
        machine(lambda stream: stream.receive() and stream.receive()) as one,
        pytest.raises(hooks.HookError, match=told),
    ):
        hooks.post_run(one, microvm_id="m", payload=None, config=hooks.Config(run=0.1))


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n"], ids=["head", "body"])
def test_an_answer_that_drips_fails_at_the_timeout(head):
    def script(stream):
        stream.read_head()
        stream.send(head)
        for _ in range(100):
            stream.send(b"H")
            time.sleep(0.05)

    began = time.monotonic()
    with machine(script) as one, pytest.raises(hooks.HookError, match="timed out"):
        hooks.post_run(one, microvm_id="m", payload=None, config=hooks.Config(run=0.2))
    assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"], ids=repr
)
def test_no_whole_answer_fails(answer):
    def script(stream):
        stream.read_head()
        stream.send(answer)

    with machine(script) as one, pytest.raises(hooks.HookError, match="could not be reached"):
        hooks.post_run(one, microvm_id="m", payload=None)


def test_nobody_there_fails():
    one = FakeMachine({}, on_end=lambda ended: None)
    with pytest.raises(hooks.HookError, match="could not be reached"):
        hooks.post_terminate(one)


def test_an_endless_answer_is_not_read():
    def script(stream):
        stream.read_head()
        stream.send(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000)

    with machine(script) as one, pytest.raises(hooks.HookError, match="could not be reached"):
        hooks.post_run(one, microvm_id="m", payload=None)
