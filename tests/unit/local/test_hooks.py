"""Lifecycle hooks: what is posted, and what counts as a failure."""

import contextlib
import json
import threading
import time

import pytest

from tests.support.clock import FakeClock
from tests.support.machines import FakeMachine, Hooks, scripted_server
from vmnest import errors
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


def test_a_hook_that_is_not_enabled_is_not_called():
    server = Hooks()
    with machine(server) as one:
        hooks.post_run(one, microvm_id="m", payload=None, config=hooks.NO_HOOKS)
        hooks.post_terminate(one, config=hooks.Config(run=60))
        hooks.await_image_hook(one, "ready", config=hooks.AGENT)
    assert server.seen == []


def test_hooks_are_called_on_the_images_port():
    server = Hooks()
    with scripted_server(server) as port:
        one = FakeMachine({9005: port}, on_end=lambda ended: None)
        hooks.post_terminate(one, config=hooks.Config(port=9005, terminate=5))
    assert http1.first(server.seen[0][0].fields, "host") == "localhost:9005"


class TestConfig:
    def test_a_hook_has_the_time_that_it_was_given(self):
        member = {
            "port": 9001,
            "microvmImageHooks": {"ready": "ENABLED", "readyTimeoutInSeconds": 300, "validate": "DISABLED"},
            "microvmHooks": {"run": "ENABLED", "runTimeoutInSeconds": 7, "suspendTimeoutInSeconds": 9},
        }
        assert hooks.parse_config(member) == hooks.Config(port=9001, ready=300, run=7)

    def test_without_a_time_it_has_the_services_own(self):
        member = {"microvmImageHooks": {"validate": "ENABLED"}, "microvmHooks": {"resume": "ENABLED"}}
        assert hooks.parse_config(member) == hooks.Config(port=9000, validate=30, resume=1)

    @pytest.mark.parametrize("member", [None, {}, {"microvmHooks": None, "port": None}])
    def test_without_hooks_none_is_called(self, member):
        assert hooks.parse_config(member) == hooks.NO_HOOKS


def answering(*statuses):
    """A script that answers each connection with the next of these statuses, and then with the last one."""
    left = list(statuses)
    seen = []

    def script(stream):
        stream.read_head()
        status = left.pop(0) if len(left) > 1 else left[0]
        seen.append(status)
        stream.send(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())

    return script, seen


class TestImageHooks:
    def test_it_is_posted_until_it_answers(self):
        script, seen = answering(503, 503, 200)
        with machine(script) as one:
            hooks.await_image_hook(one, "ready", config=hooks.Config(ready=20))
        assert seen == [503, 503, 200]

    def test_nobody_there_is_waited_for(self):
        server = Hooks()
        with scripted_server(server) as port:
            one = FakeMachine({}, on_end=lambda ended: None)
            begin = threading.Timer(0.05, lambda: one.ports.update({9000: port}))
            begin.start()
            hooks.await_image_hook(one, "validate", config=hooks.Config(validate=20))
            begin.join()
        assert server.names() == ["validate"]
        assert len(one.dialled) > 1

    @pytest.mark.parametrize(("status", "kind"), [(400, "client error (HTTP 4xx)"), (500, "server error (HTTP 5xx)")])
    def test_any_error_fails_at_once_with_the_services_text(self, status, kind):
        script, seen = answering(status)
        with machine(script) as one, pytest.raises(hooks.HookError) as caught:
            hooks.await_image_hook(one, "ready", config=hooks.Config(ready=20))
        assert caught.value.message == f"Ready hook check failed: the application returned a {kind} response"
        assert len(seen) == 1

    def test_its_time_is_told_as_the_service_tells_it(self):
        script, _ = answering(503)
        clock = FakeClock()
        with machine(script) as one, pytest.raises(hooks.HookError) as caught:
            hooks.await_image_hook(one, "validate", config=hooks.Config(validate=600), clock=clock)
        assert caught.value.message == "Validate hook invocation timed out after PT10M"

    def test_one_that_holds_its_answer_is_given_up(self):
        server = Hooks()
        server.hold = threading.Event()
        with machine(server) as one:
            with pytest.raises(hooks.HookError, match="timed out after PT0S"):
                hooks.await_image_hook(one, "ready", config=hooks.Config(ready=0.2))
            server.hold.set()

    def test_a_vm_that_has_ended_is_told_as_such(self):
        one = FakeMachine({}, on_end=lambda ended: None)
        one.stop()
        with pytest.raises(errors.LocalCloudError):
            hooks.await_image_hook(one, "ready", config=hooks.Config(ready=20))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "PT1S"), (60, "PT1M"), (90, "PT1M30S"), (300, "PT5M"), (3600, "PT1H"), (3661, "PT1H1M1S"), (0.5, "PT0S")],
)
def test_durations_are_written_as_in_iso_8601(seconds, text):
    assert hooks.to_duration(seconds) == text
