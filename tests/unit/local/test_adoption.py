"""What becomes of the VMs of an earlier daemon, above a driver that isolates nothing."""

import contextlib
import os
import socket

import pytest

from tests.support.machines import FakeDriver, FakeMachine, Hooks, scripted_server
from vmnest import errors
from vmnest.local import acceptor, adoption, console_logs, ledger, logs, options, records, timers, vms
from vmnest.local.drivers import interface
from vmnest.wire import names

WAIT_SECONDS = 10
STARTED_AT = 1_700_000_000.0


class Stage:
    """A state folder that a daemon left, and the parts of the one that comes next."""

    def __init__(self, folder, hooks_port):
        self.folder = str(folder)
        self.driver = FakeDriver({9000: hooks_port})
        self.ledger = ledger.Ledger(self.folder)
        self.timers = timers.Timers()
        self.logs = logs.Logs(self.folder)
        self.published = []
        self.vms = vms.VMs(
            self.driver,
            vms.Settings(folder=self.folder, disk_bytes=1 << 30),
            timers=self.timers,
            publish=self.published.append,
            retire=lambda listener: None,
            ledger=self.ledger,
            outputs=console_logs.ConsoleLogs(self.logs),
        )
        self.boot(adoption._read(adoption._BOOT_ID_PATH))

    def boot(self, text):
        """The daemon before ran in that start of the machine."""
        with open(os.path.join(self.folder, "boot-id"), "wb") as file:
            file.write(text)

    def path(self, microvm_id):
        return os.path.join(self.folder, "vms", microvm_id)

    def leave(self, state, *, number=1, port=None, alive=True, frozen=False, **changes):
        """Leave a VM of an earlier daemon behind; its machine runs, if it is alive."""
        fields = {"execution_role_arn": None, "idle_policy": None, "max_seconds": 28800, "ingress": (), "egress": ()}
        spec = records.Spec(
            image_arn="arn", image_version="1.0", **fields, kms_key=None, payload="p", options=options.Options()
        )
        record = records.Record(
            f"microvm-{number}",
            spec,
            number=number,
            started_at=self.vms._clock.time() - 10,
            endpoint=f"http://127.0.0.1:{port or free_port()}",
            client_token=f"token-{number}",
        )
        record.state = state
        for name, value in changes.items():
            setattr(record, name, value)
        self.ledger.save(record)
        path = self.path(record.microvm_id)
        os.makedirs(path)
        if alive:
            machine = self.driver.running[path] = FakeMachine(self.driver.ports, on_end=lambda ended: None)
            machine.is_frozen = frozen
        return record

    def adopt(self):
        adoption.Adoption(self.vms, self.ledger, folder=self.folder).run()
        return self.vms.all()

    def wait(self, record, state):
        with record.changed:
            assert record.changed.wait_for(lambda: record.state == state, WAIT_SECONDS), record.state
        return record

    def noted(self):
        return {note.microvm_id: note.state for note in ledger.Ledger(self.folder).load()}


def free_port():
    with contextlib.closing(acceptor.bind()) as listener:
        return listener.getsockname()[1]


@pytest.fixture
def hooks():
    return Hooks()


@pytest.fixture
def stage(tmp_path, hooks):
    with scripted_server(hooks) as port:
        one = Stage(tmp_path, port)
        one.timers.start()
        yield one
        one.vms.close()
        one.timers.close()
        for record in one.published:
            record.listener.close()


def test_a_folder_without_vms_is_made_ready(tmp_path, stage):
    assert stage.adopt() == []
    assert os.listdir(tmp_path / "vms") == []


def test_a_vm_that_ran_runs_on_at_its_endpoint(stage, hooks):
    left = stage.leave(names.RUNNING)
    (record,) = stage.adopt()
    assert (record.microvm_id, record.state, record.endpoint) == (left.microvm_id, names.RUNNING, left.endpoint)
    assert (record.number, record.started_at, record.fingerprint) == (1, left.started_at, left.fingerprint)
    assert record.machine is stage.driver.running[stage.path("microvm-1")]
    assert stage.published == [record]
    assert record.listener.getsockname()[1] == int(left.endpoint.rpartition(":")[2])
    assert os.path.isdir(stage.path("microvm-1"))
    assert hooks.names() == []


def test_its_lifetime_goes_on(stage):
    stage.leave(names.RUNNING, started_at=1000)
    (record,) = stage.adopt()
    assert stage.wait(record, names.TERMINATED).state_reason == records.REASON_LIFETIME


def test_its_end_is_seen(stage):
    stage.leave(names.RUNNING)
    (record,) = stage.adopt()
    record.machine.end(interface.Ended(3, None, interface.EXITED))
    assert stage.wait(record, names.TERMINATED).state_reason == "Container Stopped with Exit Code: 3"


def test_an_end_that_comes_before_all_is_told_is_not_lost(stage, monkeypatch):
    stage.leave(names.RUNNING)
    adopt = stage.driver.adopt

    def adopt_and_end(folder, *, on_end):
        machine = adopt(folder, on_end=on_end)
        machine.end(interface.Ended(0, None, interface.EXITED))
        return machine

    monkeypatch.setattr(stage.driver, "adopt", adopt_and_end)
    (record,) = stage.adopt()
    assert stage.wait(record, names.TERMINATED).state_reason == "Container Stopped with Exit Code: 0"
    stage.vms.close()
    assert list(stage.vms._ended) == [record]


def test_a_port_that_is_taken_is_replaced_and_noted(stage):
    with contextlib.closing(acceptor.bind()) as taken:
        left = stage.leave(names.RUNNING, port=taken.getsockname()[1])
        (record,) = stage.adopt()
    assert record.endpoint != left.endpoint
    assert stage.ledger.load()[0].endpoint == record.endpoint


def test_the_same_client_token_is_still_the_same_vm(stage):
    left = stage.leave(names.RUNNING)
    (record,) = stage.adopt()
    assert stage.vms.run(left.spec, client_token="token-1") is record


def test_a_vm_whose_supervisor_does_not_answer_is_lost(stage):
    stage.leave(names.RUNNING, alive=False)
    (record,) = stage.adopt()
    assert (record.state, record.state_reason) == (names.TERMINATED, records.REASON_LOST)
    assert record.terminated_at == pytest.approx(stage.vms._clock.time(), abs=10)
    assert stage.driver.discarded == [stage.path("microvm-1")]
    assert not os.path.exists(stage.path("microvm-1"))
    assert stage.noted() == {"microvm-1": names.TERMINATED}
    assert stage.published == []


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (interface.Ended(0, None, interface.EXITED), "Container Stopped with Exit Code: 0"),
        (interface.Ended(None, 9, interface.LIFETIME), records.REASON_LIFETIME),
        (interface.Ended(None, None, interface.LOST), records.REASON_LOST),
    ],
    ids=["exited", "lifetime", "lost"],
)
def test_a_vm_that_ended_while_no_daemon_was_there_says_how(stage, ended, reason):
    stage.leave(names.RUNNING, alive=False)
    stage.driver.recorded[stage.path("microvm-1")] = ended
    (record,) = stage.adopt()
    assert (record.state, record.state_reason) == (names.TERMINATED, reason)


@pytest.mark.parametrize("state", [names.RUNNING, names.TERMINATING, names.TERMINATED])
def test_the_last_words_of_a_vm_that_ended_meanwhile_are_in_the_log(stage, state):
    record = stage.leave(state, alive=False)
    with open(os.path.join(stage.path("microvm-1"), "console.log"), "wb") as file:
        file.write(b"told\nlast words")
    with open(os.path.join(stage.path("microvm-1"), "console.told"), "wb") as file:
        file.write(b"5")
    stage.adopt()
    group, stream = console_logs.find_target(record)
    assert [event.message for event in stage.logs.events(group, stream)] == ["last words"]


def test_an_error_of_the_driver_concerns_one_vm(stage, monkeypatch, caplog):
    stage.leave(names.RUNNING)
    stage.leave(names.RUNNING, number=2)
    adopt = stage.driver.adopt

    def fail(folder, *, on_end):
        if folder.endswith("-1"):
            raise errors.LocalCloudError("a strange supervisor")
        return adopt(folder, on_end=on_end)

    monkeypatch.setattr(stage.driver, "adopt", fail)
    one, two = stage.adopt()
    assert (one.state, two.state) == (names.TERMINATED, names.RUNNING)
    assert "a strange supervisor" in caplog.text


def test_a_vm_that_was_being_started_is_started_anew(stage, hooks):
    left = stage.leave(names.PENDING, alive=False)
    (record,) = stage.adopt()
    stage.wait(record, names.RUNNING)
    assert record.endpoint == left.endpoint
    assert stage.driver.discarded == [stage.path("microvm-1")]
    assert [launch.microvm_id for launch in stage.driver.launches] == ["microvm-1"]
    assert b'"runHookPayload": "p"' in hooks.seen[0][1]


def test_what_there_is_of_a_vm_that_was_being_started_is_not_used(stage):
    stage.leave(names.PENDING)
    stage.adopt()
    assert stage.driver.adopted == []
    assert stage.driver.discarded == [stage.path("microvm-1")]


def test_a_vm_that_was_being_ended_is_ended(stage, hooks):
    stage.leave(names.TERMINATING, state_reason=records.REASON_LIFETIME)
    (record,) = stage.adopt()
    assert (record.state, record.state_reason) == (names.TERMINATED, records.REASON_LIFETIME)
    assert stage.driver.discarded == [stage.path("microvm-1")]
    assert hooks.names() == []


def test_a_suspended_vm_stays_suspended(stage, hooks):
    stage.leave(names.SUSPENDED, frozen=True, suspended_at=STARTED_AT)
    (record,) = stage.adopt()
    assert (record.state, record.suspended_at) == (names.SUSPENDED, STARTED_AT)
    assert hooks.names() == []
    stage.vms.resume(record)
    stage.wait(record, names.RUNNING)
    assert hooks.names() == ["resume"]


def test_the_time_that_it_may_stay_so_goes_on(stage):
    policy = {"maxIdleDurationSeconds": 60, "suspendedDurationSeconds": 100, "autoResumeEnabled": True}
    record = stage.leave(names.SUSPENDED, frozen=True, suspended_at=STARTED_AT)
    record.spec = records.Spec(**{**record.spec.__dict__, "idle_policy": policy})
    stage.ledger.save(record)
    (record,) = stage.adopt()
    assert stage.wait(record, names.TERMINATED).state_reason == records.REASON_SUSPENDED


def test_a_vm_that_was_being_resumed_is_resumed(stage, hooks):
    stage.leave(names.SUSPENDED, suspended_at=STARTED_AT)
    (record,) = stage.adopt()
    stage.wait(record, names.RUNNING)
    assert hooks.names() == ["resume"]


@pytest.mark.parametrize("state", [names.SUSPENDING, names.RUNNING])
def test_a_vm_that_was_frozen_already_is_suspended(stage, hooks, state):
    stage.leave(state, frozen=True)
    (record,) = stage.adopt()
    assert record.state == names.SUSPENDED
    assert record.suspended_at == pytest.approx(stage.vms._clock.time(), abs=10)
    assert stage.noted() == {"microvm-1": names.SUSPENDED}
    assert hooks.names() == []


def test_a_vm_that_was_being_suspended_is_suspended(stage, hooks):
    stage.leave(names.SUSPENDING)
    (record,) = stage.adopt()
    stage.wait(record, names.SUSPENDED)
    assert hooks.names() == ["suspend"]
    assert record.machine.is_frozen


def test_an_ended_vm_stays_listed_and_its_remains_go(stage):
    stage.leave(names.TERMINATED, alive=False, state_reason="Success.", terminated_at=STARTED_AT)
    (record,) = stage.adopt()
    assert (record.state, record.state_reason, record.terminated_at) == (names.TERMINATED, "Success.", STARTED_AT)
    assert record.listener is None
    assert not os.path.exists(stage.path("microvm-1"))


def test_what_nobody_noted_is_cleaned_away(stage):
    os.makedirs(stage.path("microvm-old"))
    assert stage.adopt() == []
    assert stage.driver.discarded == [stage.path("microvm-old")]
    assert not os.path.exists(stage.path("microvm-old"))


@pytest.mark.parametrize("state", [state for state in names.STATES if state != names.TERMINATED])
def test_after_another_start_of_the_machine_all_are_gone(stage, state):
    stage.boot(b"of yesterday\n")
    stage.leave(state, suspended_at=STARTED_AT)
    (record,) = stage.adopt()
    assert (record.state, record.state_reason) == (names.TERMINATED, adoption.REASON_RESTARTED)
    assert stage.driver.adopted == []
    assert stage.driver.discarded == [stage.path("microvm-1")]
    assert stage.noted() == {"microvm-1": names.TERMINATED}


def test_the_start_of_the_machine_is_noted_for_the_next_daemon(stage):
    stage.boot(b"of yesterday\n")
    stage.adopt()
    assert adoption._read(os.path.join(stage.folder, "boot-id")) == adoption._read(adoption._BOOT_ID_PATH)


def test_new_vms_are_listed_behind_the_old_ones(stage):
    for number in (7, 3):
        left = stage.leave(names.RUNNING, number=number)
    stage.adopt()
    new = stage.vms.run(left.spec, client_token=None)
    assert [record.number for record in stage.vms.all()] == [3, 7, 8]
    assert new.number == 8


def test_many_are_taken_over(stage):
    ports = set()
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(40)]
        ports.update(listener.getsockname()[1] for listener in listeners)
    for number, port in enumerate(sorted(ports), start=1):
        stage.leave(names.RUNNING, number=number, port=port)
    found = stage.adopt()
    assert [record.number for record in found] == list(range(1, 41))
    assert {int(record.endpoint.rpartition(":")[2]) for record in found} == ports
