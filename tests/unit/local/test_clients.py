"""A client's connection, and the one into the VM that goes with it."""

import contextlib
import socket
import threading

import pytest

from tests.support.clock import FakeClock
from tests.support.lifecycle import build_spec, policy
from tests.support.machines import FakeMachine, scripted_server
from vmnest import errors
from vmnest.local import clients, records
from vmnest.wire import names, streams


class Stage:
    """A client of a VM, the other end of its connection, and what the VM sees."""

    def __init__(self, port, *, state, idle_policy):
        ours, theirs = socket.socketpair()
        self.peer = streams.Stream(theirs)
        theirs.settimeout(10)
        self.clock = FakeClock()
        spec = build_spec(idle_policy=idle_policy)
        self.record = records.Record("m", spec, number=1, started_at=0, endpoint="http://h")
        self.record.state = state
        self.machine = self.record.machine = FakeMachine({8080: port}, on_end=lambda ended: None)
        self.client = clients.Client(streams.Stream(ours), self.record, clock=self.clock)

    def close(self):
        self.client.drop_guest()
        self.client.stream.close()
        self.peer.close()


@contextlib.contextmanager
def staged(*, state=names.RUNNING, idle_policy=None, script=lambda stream: stream.receive()):
    with scripted_server(script) as port, contextlib.closing(Stage(port, state=state, idle_policy=idle_policy)) as one:
        yield one


class TestEntering:
    def test_a_request_that_enters_is_a_sign_of_life(self):
        with staged() as one:
            one.clock.advance(5)
            one.client.enter()
            assert one.record.touched_at == 5

    @pytest.mark.parametrize(
        ("state", "kind"),
        [
            (names.PENDING, names.APP_CONNECT_FAILED),
            (names.SUSPENDING, names.MICROVM_CONNECT_FAILED),
            (names.SUSPENDED, names.MICROVM_CONNECT_FAILED),
            (names.TERMINATING, names.MICROVM_CONNECT_FAILED),
            (names.TERMINATED, names.MICROVM_CONNECT_FAILED),
        ],
    )
    def test_a_vm_that_does_not_run_cannot_be_entered(self, monkeypatch, state, kind):
        monkeypatch.setattr(clients, "PENDING_SECONDS", 0.01)
        with staged(state=state) as one:
            with pytest.raises(clients.Unreachable) as caught:
                one.client.enter()
            assert caught.value.kind == kind
            assert one.record.touched_at == 0

    def test_a_held_request_whose_client_went_is_not_delivered(self):
        with staged(state=names.SUSPENDED, idle_policy=policy()) as one:

            def wake():
                one.peer.close()
                one.record.advance(records.RESUMED)

            one.record.wake = wake
            with pytest.raises(clients.ClientGoneError):
                one.client.enter()
            one.client.leave()
            assert one.machine.dialled == []

    def test_leaving_without_entering_is_harmless(self):
        with staged() as one:
            one.client.leave()


class TestConnections:
    def test_a_connection_is_used_again_if_that_comes_soon(self):
        with staged() as one:
            guest, was_used = one.client.open_guest(8080)
            assert not was_used
            one.client.keep_guest()
            one.clock.advance(clients.REUSE_SECONDS / 2)
            assert one.client.open_guest(8080) == (guest, True)
            one.client.keep_guest()
            one.clock.advance(clients.REUSE_SECONDS)
            again, was_used = one.client.open_guest(8080)
            assert (again is guest, was_used) == (False, False)

    @pytest.mark.parametrize(
        ("failure", "kind"),
        [
            (errors.LocalCloudError("gone"), names.MICROVM_CONNECT_FAILED),
            (ConnectionRefusedError(), names.APP_CONNECT_FAILED),
            (TimeoutError(), names.APP_CONNECT_FAILED),
        ],
        ids=["vm", "port", "time"],
    )
    def test_no_connection_is_unreachable(self, failure, kind):
        with staged() as one:

            def dial(port, *, timeout):
                raise failure

            one.machine.dial = dial
            with pytest.raises(clients.Unreachable) as caught:
                one.client.open_guest(8080)
            assert caught.value.kind == kind

    def test_waiting_ends_with_what_the_vm_says(self):
        with staged(script=lambda stream: stream.send(b"x")) as one:
            guest, _ = one.client.open_guest(8080)
            one.client.wait_for(guest)
            assert guest.receive() == b"x"

    def test_waiting_ends_when_the_client_goes(self):
        with staged() as one:
            guest, _ = one.client.open_guest(8080)
            one.peer.close()
            with pytest.raises(clients.ClientGoneError):
                one.client.wait_for(guest)


class TestCutting:
    def test_a_cut_ends_both_connections_and_wakes_who_waits(self):
        ended = threading.Event()

        def script(stream):
            assert not stream.receive()
            ended.set()

        with staged(script=script) as one:
            one.client.enter()
            guest, _ = one.client.open_guest(8080)
            outcome = []

            def wait():
                with pytest.raises(clients.ClientGoneError):
                    one.client.wait_for(guest)
                outcome.append("woken")

            thread = threading.Thread(target=wait)
            thread.start()
            with one.record.changed:
                one.record.cut_passages()
            thread.join(10)
            assert outcome == ["woken"]
            assert one.peer.receive() == b""
            assert ended.wait(10)

    def test_a_cut_during_the_dial_is_not_forgotten(self):
        with staged() as one:
            dial = one.machine.dial

            def slow_dial(port, *, timeout):
                sock = dial(port, timeout=timeout)
                one.client.cut()
                return sock

            one.machine.dial = slow_dial
            with pytest.raises(clients.ClientGoneError):
                one.client.open_guest(8080)
