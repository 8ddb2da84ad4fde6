"""The lifecycle of VMs, above a driver that isolates nothing."""

import contextlib
import dataclasses
import os
import random
import socket
import threading

import pytest

from tests.support.lifecycle import build_spec, eventually, movable_time, policy, wait_for_state
from tests.support.machines import FakeDriver, FakeMachine, Hooks, scripted_server
from vmnest import errors
from vmnest.local import acceptor, built, console_logs, faults, logs, records, vms
from vmnest.local.drivers import interface
from vmnest.wire import names


class Ledger:
    """Remembers what it was told, and checks that it was told under the lock."""

    def __init__(self):
        self.saved = []
        self.forgotten = []
        self.on_end = lambda record: None

    def save(self, record):
        # Only the owner of the condition's lock may do this.
        record.changed.notify(0)
        self.saved.append((record.microvm_id, record.state))
        if record.is_ended:
            self.on_end(record)

    def forget(self, microvm_id):
        self.forgotten.append(microvm_id)

    def states(self, record):
        return [state for microvm_id, state in self.saved if microvm_id == record.microvm_id]


class Stage:
    """VMs, their driver, and what they told the rest of the daemon."""

    def __init__(self, folder, hooks_port, time):
        self.driver = FakeDriver({9000: hooks_port})
        self.time = time
        self.published, self.retired = [], []
        self.ledger = Ledger()
        self.logs = logs.Logs(str(folder))
        self.vms = vms.VMs(
            self.driver,
            vms.Settings(folder=str(folder), disk_bytes=1 << 30, visible=("/data",)),
            timers=time.timers,
            publish=self.published.append,
            retire=self.retired.append,
            ledger=self.ledger,
            outputs=console_logs.ConsoleLogs(self.logs, clock=time.clock),  # nothing is told before the end
            clock=time.clock,
        )

    def print(self, record, data):
        """The VM prints that."""
        with open(f"{self.vms._settings.folder}/vms/{record.microvm_id}/console.log", "ab") as file:
            file.write(data)

    def printed(self, record, *, suffix=""):
        group, stream = console_logs.find_target(record)
        return [event.message for event in self.logs.events(group, stream + suffix)]

    def run(self, *, client_token=None, **changes):
        return self.vms.run(build_spec(**changes), client_token=client_token)

    def suspended(self, **changes):
        record = self.wait(self.run(**changes), names.RUNNING)
        self.vms.suspend(record)
        return self.wait(record, names.SUSPENDED)

    def wait(self, record, state):
        wait_for_state(record, state)
        return record

    def restored(self, state, *, with_machine=True, started=0, **changes):
        """A VM of an earlier daemon, that was in that state; ``started`` is how long ago."""
        listener = acceptor.bind()
        record = records.Record(
            "microvm-old",
            build_spec(**changes),
            number=7,
            started_at=self.time.clock.time() - started,
            endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}",
            listener=listener,
            client_token="old",
        )
        record.state = state
        if state == names.SUSPENDED:
            record.suspended_at = self.time.clock.time()
        machine = None
        if with_machine:
            machine = FakeMachine(self.driver.ports, on_end=lambda ended: self.vms.on_end(record, ended))
            machine.is_frozen = state == names.SUSPENDED
        self.vms.insert(record, machine=machine, client_token="old")
        return record


@pytest.fixture
def hooks():
    return Hooks()


@pytest.fixture
def stage(tmp_path, hooks):
    with scripted_server(hooks) as port, movable_time() as time:
        one = Stage(tmp_path, port, time)
        yield one
        if one.driver.gate is not None:
            one.driver.gate.set()
        if hooks.hold is not None:
            hooks.hold.set()
        one.vms.close()
        for record in one.published:
            record.listener.close()


def test_a_vm_is_pending_with_its_endpoint_at_once(stage):
    stage.driver.gate = threading.Event()
    record = stage.run()
    assert record.state == names.PENDING
    assert stage.published == [record]
    assert record.endpoint == f"http://127.0.0.1:{record.listener.getsockname()[1]}"


def test_it_runs_once_the_run_hook_answered(stage, hooks):
    record = stage.wait(stage.run(), names.RUNNING)
    assert hooks.names() == ["run"]
    assert record.machine is stage.driver.machines[0]


def test_the_driver_is_told_what_was_asked_for(stage, tmp_path):
    record = stage.wait(stage.run(), names.RUNNING)
    launch = stage.driver.launches[0]
    assert (launch.cpus, launch.memory_mib, launch.visible, launch.disk_bytes) == (2, 512, ("/data",), 1 << 30)
    assert launch.max_seconds > 28800
    assert launch.folder == str(tmp_path / "vms" / record.microvm_id)
    assert os.stat(launch.folder).st_mode & 0o777 == 0o700
    assert launch.environment["AWS_LAMBDA_MICROVM_IMAGE_NAME"] == "local"


def test_a_failed_run_hook_ends_the_vm_with_its_text(stage, hooks):
    hooks.statuses["run"] = 500
    record = stage.wait(stage.run(), names.TERMINATED)
    assert record.state_reason.startswith("Run lifecycle hook returned HTTP status 500.")
    assert hooks.names() == ["run"]
    assert stage.driver.machines[0].ended is not None


def test_a_fault_of_the_driver_leaves_no_vm_pending(stage, caplog):
    stage.driver.failure = RuntimeError("can't start new thread")
    record = stage.wait(stage.run(), names.TERMINATED)
    assert record.state_reason.startswith("MicroVM did not start")
    stage.vms.close()
    assert "can't start new thread" in caplog.text


def test_a_vm_that_does_not_start_is_terminated_with_the_drivers_words(stage):
    stage.driver.failure = errors.LocalCloudError("no room")
    record = stage.wait(stage.run(), names.TERMINATED)
    assert record.state_reason == "MicroVM did not start: no room"


def test_terminating_tells_the_vm_and_ends_it(stage, hooks):
    record = stage.wait(stage.run(), names.RUNNING)
    stage.vms.terminate(record)
    stage.wait(record, names.TERMINATED)
    assert hooks.names() == ["run", "terminate"]
    assert record.state_reason == "Success."
    assert record.terminated_at >= record.started_at


def test_a_failed_terminate_hook_keeps_nothing_alive(stage, hooks):
    hooks.statuses["terminate"] = 500
    record = stage.wait(stage.run(), names.RUNNING)
    stage.vms.terminate(record)
    assert stage.wait(record, names.TERMINATED).state_reason == "Success."


def test_terminating_twice_is_terminating_once(stage, hooks):
    record = stage.wait(stage.run(), names.RUNNING)
    for _ in range(3):
        stage.vms.terminate(record)
    stage.wait(record, names.TERMINATED)
    stage.vms.terminate(record)
    assert hooks.names() == ["run", "terminate"]


def test_a_vm_can_be_terminated_while_it_starts(stage, hooks):
    stage.driver.gate = threading.Event()
    record = stage.run()
    stage.vms.terminate(record)
    assert record.state == names.TERMINATING
    stage.driver.gate.set()
    assert stage.wait(record, names.TERMINATED).state_reason == "Success."
    assert hooks.names() == []


def test_a_vm_can_be_terminated_during_its_run_hook(stage, hooks):
    hooks.hold = threading.Event()
    record = stage.run()
    while not hooks.seen:
        threading.Event().wait(0.005)
    stage.vms.terminate(record)
    stage.wait(record, names.TERMINATED)
    hooks.hold.set()
    assert record.state_reason == "Success."


def test_a_vm_that_ends_by_itself_says_how(stage, hooks):
    record = stage.wait(stage.run(), names.RUNNING)
    stage.driver.machines[0].end(interface.Ended(3, None, interface.EXITED))
    assert stage.wait(record, names.TERMINATED).state_reason == "Container Stopped with Exit Code: 3"
    assert hooks.names() == ["run"]


def test_the_lifetime_ends_a_vm(stage, hooks):
    record = stage.wait(stage.run(max_seconds=0), names.TERMINATED)
    assert record.state_reason == "MicroVM exceeded maximum lifetime."


def test_nothing_of_an_ended_vm_stays_in_the_folder(stage, tmp_path):
    record = stage.wait(stage.run(), names.RUNNING)
    stage.vms.terminate(record)
    stage.vms.close()
    assert os.listdir(tmp_path / "vms") == []
    assert record.state == names.TERMINATED


def test_ended_vms_stay_listed(stage):
    record = stage.wait(stage.run(), names.RUNNING)
    stage.vms.terminate(record)
    stage.wait(record, names.TERMINATED)
    assert stage.vms.all() == [record]
    assert stage.vms.get(record.microvm_id) is record


def test_only_the_latest_endpoints_and_records_are_kept(stage, monkeypatch):
    monkeypatch.setattr(vms, "MAX_ENDED_ENDPOINTS", 1)
    monkeypatch.setattr(vms, "MAX_ENDED_RECORDS", 2)
    ended = []
    for number in range(3):
        record = stage.wait(stage.run(client_token=str(number)), names.RUNNING)
        stage.vms.terminate(record)
        ended.append(stage.wait(record, names.TERMINATED))
        stage.vms._work.join()
    assert stage.retired == [record.listener for record in ended[:2]]
    assert stage.vms.all() == ended[1:]
    with pytest.raises(faults.Fault, match="MicroVM not found"):
        stage.vms.get(ended[0].microvm_id)


def test_the_same_client_token_is_the_same_vm(stage):
    one = stage.run(client_token="t")
    assert stage.run(client_token="t") is one
    assert stage.run(client_token="u") is not one
    assert stage.run() is not stage.run()


def test_a_vm_is_known_again_by_what_was_asked_for(stage):
    one = stage.vms.run(build_spec(), client_token="t", fingerprint="asked")
    assert stage.vms.started_by("t", fingerprint="asked") is one
    # What that came to may have changed.
    assert stage.vms.run(build_spec(max_seconds=61), client_token="t", fingerprint="asked") is one
    assert stage.vms.started_by("u", fingerprint="asked") is None
    assert stage.vms.started_by(None, fingerprint="asked") is None
    with pytest.raises(faults.Fault, match="other parameters"):
        stage.vms.started_by("t", fingerprint="other")


def test_a_client_token_with_other_parameters_is_a_conflict(stage):
    stage.run(client_token="t")
    with pytest.raises(faults.Fault) as caught:
        stage.run(client_token="t", payload="other")
    assert caught.value.status == 409


def test_an_unknown_vm_is_not_found(stage):
    with pytest.raises(faults.Fault) as caught:
        stage.vms.get("microvm-x")
    assert (caught.value.status, caught.value.message) == (404, "MicroVM not found: microvm-x")


def test_idle_time_runs_while_no_vm_does(stage):
    record = stage.wait(stage.run(), names.RUNNING)
    assert stage.vms.idle_seconds() == pytest.approx(0, abs=0.01)
    stage.vms.terminate(record)
    stage.wait(record, names.TERMINATED)
    before = stage.vms.idle_seconds()
    assert stage.vms.idle_seconds() >= before


def test_closing_ends_all_vms_and_refuses_new_ones(stage):
    running = [stage.run() for _ in range(3)]
    stage.vms.close()
    assert {record.state for record in running} == {names.TERMINATED}
    with pytest.raises(faults.Fault) as caught:
        stage.run()
    assert caught.value.status == 500


def test_retiring_waits_for_no_vm_and_ends_none(stage):
    record = stage.wait(stage.run(), names.RUNNING)
    assert not stage.vms.retire()
    stage.vms.terminate(record)
    stage.wait(record, names.TERMINATED)
    assert stage.vms.retire()
    with pytest.raises(faults.Fault, match="ending"):
        stage.run()


def test_twenty_vms_start_at_the_same_time(stage):
    running = [stage.run() for _ in range(20)]
    for record in running:
        stage.wait(record, names.RUNNING)
    assert len({record.endpoint for record in running}) == 20


def test_a_stop_that_fails_is_logged_and_the_vm_counts_as_ended(stage, caplog):
    record = stage.wait(stage.run(), names.RUNNING)

    def stop(*, grace=0):
        raise errors.LocalCloudError("stuck")

    stage.driver.machines[0].stop = stop
    stage.vms.terminate(record)
    stage.wait(record, names.TERMINATED)
    with contextlib.suppress(errors.LocalCloudError):
        stage.vms.close()
    assert "stuck" in caplog.text


def test_without_a_thread_to_be_had_an_end_can_be_asked_for_again(stage, monkeypatch):
    record = stage.wait(stage.run(), names.RUNNING)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            stage.vms.terminate(record)
    assert record.state == names.RUNNING
    stage.vms.terminate(record)
    assert stage.wait(record, names.TERMINATED).state_reason == "Success."


class TestImages:
    def run(self, stage, **config):
        """Start a VM of an image with two layers."""
        values = {"command": ("serve", "it"), "environment": {"A": "1", "AWS_REGION": "mine"}, "workdir": "/srv"}
        image = built.Built(layers=("top", "bottom"), config=built.RunConfig(**{**values, **config}))
        return stage.vms.run(dataclasses.replace(build_spec(), built=image), client_token=None)

    def test_a_vm_is_started_as_its_image_says(self, stage, tmp_path):
        stage.wait(self.run(stage), names.RUNNING)
        launch = stage.driver.launches[0]
        assert (launch.command, launch.workdir) == (("serve", "it"), "/srv")
        assert launch.image_layers == (str(tmp_path / "layers" / "top"), str(tmp_path / "layers" / "bottom"))
        assert launch.environment["A"] == "1"
        assert launch.environment["AWS_REGION"] == "mine"
        assert launch.environment["AWS_LAMBDA_MICROVM_IMAGE_VERSION"] == "1.0"

    def test_without_hooks_it_runs_as_soon_as_it_has_started(self, stage, hooks):
        record = stage.wait(self.run(stage), names.RUNNING)
        stage.vms.suspend(record)
        wait_for_state(record, names.SUSPENDED)
        stage.vms.resume(record)
        wait_for_state(record, names.RUNNING)
        stage.vms.terminate(record)
        wait_for_state(record, names.TERMINATED)
        assert hooks.names() == []

    def test_it_is_ready_before_it_is_told_to_run(self, stage, hooks):
        stage.wait(self.run(stage, hooks=built.hooks.Config(ready=20, run=20)), names.RUNNING)
        assert hooks.names() == ["ready", "run"]

    def test_one_that_fails_to_be_ready_is_ended(self, stage, hooks):
        hooks.statuses["ready"] = 500
        record = stage.wait(self.run(stage, hooks=built.hooks.Config(ready=20, run=20)), names.TERMINATED)
        assert record.state_reason.startswith("Ready hook check failed: ")

    def test_one_that_ends_before_it_is_ready_says_how(self, stage):
        stage.driver.ports = {}
        record = self.run(stage, hooks=built.hooks.Config(ready=20))
        eventually(lambda: record.machine is not None)
        record.machine.end(interface.Ended(3, None, interface.EXITED))
        wait_for_state(record, names.TERMINATED)
        assert record.state_reason == "Container Stopped with Exit Code: 3"


class TestSleep:
    def test_a_suspended_vm_is_ended_without_being_told(self, stage, hooks):
        record = stage.suspended()
        stage.vms.terminate(record)
        stage.wait(record, names.TERMINATED)
        assert record.state_reason == "Success."
        assert hooks.names() == ["run", "suspend"]

    def test_the_lifetime_goes_on_while_a_vm_is_suspended(self, stage, hooks):
        record = stage.suspended(max_seconds=100)
        stage.time.advance(99)
        assert record.state == names.SUSPENDED
        stage.time.advance(1)
        stage.wait(record, names.TERMINATED)
        assert record.state_reason == "MicroVM exceeded maximum lifetime."
        assert hooks.names() == ["run", "suspend"]

    def test_the_lifetime_counts_from_the_start_however_often_it_slept(self, stage):
        record = stage.wait(stage.run(max_seconds=100), names.RUNNING)
        for _ in range(3):
            stage.vms.suspend(record)
            stage.wait(record, names.SUSPENDED)
            stage.time.advance(30)
            stage.vms.resume(record)
            stage.wait(record, names.RUNNING)
        stage.time.advance(10)
        assert stage.wait(record, names.TERMINATED).state_reason == "MicroVM exceeded maximum lifetime."

    def test_idle_time_begins_with_the_run(self, stage):
        record = stage.wait(stage.run(idle_policy=policy(idle=60)), names.RUNNING)
        stage.time.advance(60)
        stage.wait(record, names.SUSPENDED)

    def test_a_suspend_that_fails_ends_the_vm_with_its_text(self, stage, hooks):
        hooks.statuses["suspend"] = 500
        record = stage.wait(stage.run(), names.RUNNING)
        stage.vms.suspend(record)
        stage.wait(record, names.TERMINATED)
        assert record.state_reason.startswith("Suspend lifecycle hook returned HTTP status 500.")
        assert hooks.names() == ["run", "suspend"]

    def test_a_vm_can_be_terminated_during_its_suspend_hook(self, stage, hooks):
        record = stage.wait(stage.run(), names.RUNNING)
        hooks.hold = threading.Event()
        stage.vms.suspend(record)
        stage.vms.terminate(record)
        stage.wait(record, names.TERMINATED)
        assert record.state_reason == "Success."

    def test_a_vm_can_be_terminated_during_its_resume_hook(self, stage, hooks):
        record = stage.suspended()
        hooks.hold = threading.Event()
        stage.vms.resume(record)
        stage.vms.terminate(record)
        stage.wait(record, names.TERMINATED)
        assert record.state_reason == "Success."

    def test_a_suspended_vm_whose_machine_is_lost_has_ended(self, stage):
        record = stage.suspended()
        stage.driver.machines[0].end(interface.Ended(None, None, interface.LOST))
        assert stage.wait(record, names.TERMINATED).state_reason.startswith("MicroVM was lost")

    def test_a_suspended_vm_is_one_that_the_daemon_stays_for(self, stage):
        stage.suspended()
        assert stage.vms.idle_seconds() == pytest.approx(0, abs=0.01)
        assert not stage.vms.retire()

    def test_closing_ends_suspended_vms_too(self, stage):
        record = stage.suspended()
        stage.vms.close()
        assert record.state == names.TERMINATED

    def test_whatever_is_asked_at_once_the_state_tells_the_truth(self, stage):
        record = stage.wait(stage.run(idle_policy=policy()), names.RUNNING)
        stage.wait(record, names.RUNNING)
        refused = []

        def ask(number):
            chance = random.Random(number)
            for _ in range(100):
                verb = chance.choice([stage.vms.suspend, stage.vms.resume, self.request])
                try:
                    verb(record)
                except faults.Fault as fault:
                    refused.append(fault.status)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stage.vms._work.join()
        assert (record.state, record.is_waking) in {(names.RUNNING, False), (names.SUSPENDED, False)}
        assert stage.driver.machines[0].is_frozen == (record.state == names.SUSPENDED)
        assert set(refused) <= {409}
        stage.vms.terminate(record)
        stage.wait(record, names.TERMINATED)

    @staticmethod
    def request(record):
        class Passage:
            def cut(self):
                """A suspend comes while the request is in the VM."""

        passage = Passage()
        if record.enter(passage, start_seconds=10, resume_seconds=10) == names.RUNNING:
            record.leave(passage)

    def test_no_timed_call_outlives_a_vm(self, stage):
        record = stage.suspended(idle_policy=policy())
        stage.vms.terminate(record)
        stage.wait(record, names.TERMINATED)
        assert [timer.action for timer in (record.lifetime, record.idle, record.expiry)] == [None] * 3


class TestLedger:
    def test_every_state_of_a_vm_is_noted(self, stage):
        record = stage.suspended()
        stage.vms.resume(record)
        stage.wait(record, names.RUNNING)
        stage.vms.terminate(record)
        stage.wait(record, names.TERMINATED)
        assert stage.ledger.states(record) == [
            names.PENDING,
            names.RUNNING,
            names.SUSPENDING,
            names.SUSPENDED,
            names.RUNNING,
            names.TERMINATING,
            names.TERMINATED,
        ]

    def test_a_vm_is_noted_before_anybody_hears_of_it(self, stage):
        stage.driver.gate = threading.Event()
        record = stage.run()
        assert stage.ledger.states(record) == [names.PENDING]

    def test_forgotten_vms_are_forgotten_there_too(self, stage, monkeypatch):
        monkeypatch.setattr(vms, "MAX_ENDED_RECORDS", 0)
        record = stage.wait(stage.run(), names.RUNNING)
        stage.vms.terminate(record)
        stage.wait(record, names.TERMINATED)
        stage.vms.close()
        assert stage.ledger.forgotten == [record.microvm_id]


class TestInsert:
    def test_a_restored_vm_is_there_under_its_names(self, stage):
        record = stage.restored(names.RUNNING)
        assert stage.vms.get("microvm-old") is record
        assert stage.published == [record]
        assert stage.run(client_token="old") is record
        with pytest.raises(faults.Fault, match="other parameters"):
            stage.run(client_token="old", payload="other")
        assert stage.run().number == 8

    def test_one_that_ran_runs_on_for_what_is_left(self, stage, hooks):
        record = stage.restored(names.RUNNING, started=70, max_seconds=100)
        assert record.state == names.RUNNING
        stage.time.advance(29)
        assert record.state == names.RUNNING
        stage.time.advance(1)
        assert stage.wait(record, names.TERMINATED).state_reason == "MicroVM exceeded maximum lifetime."
        assert hooks.names() == ["terminate"]

    def test_one_that_outlived_its_time_is_ended(self, stage):
        record = stage.restored(names.RUNNING, started=200, max_seconds=100)
        stage.wait(record, names.TERMINATED)

    def test_one_that_ran_is_watched_for_idleness(self, stage):
        record = stage.restored(names.RUNNING, idle_policy=policy(idle=60))
        stage.time.advance(60)
        stage.wait(record, names.SUSPENDED)

    def test_one_that_slept_sleeps_on_and_can_be_woken(self, stage, hooks):
        record = stage.restored(names.SUSPENDED)
        assert record.machine.is_frozen
        stage.vms.resume(record)
        stage.wait(record, names.RUNNING)
        assert not record.machine.is_frozen
        assert hooks.names() == ["resume"]

    def test_one_that_slept_is_woken_by_requests(self, stage):
        record = stage.restored(names.SUSPENDED, idle_policy=policy())
        passage = Ledger()  # anything that can be told apart
        assert record.enter(passage, start_seconds=1, resume_seconds=10) == names.RUNNING
        record.leave(passage)

    def test_one_that_slept_has_its_suspended_time(self, stage):
        record = stage.restored(names.SUSPENDED, idle_policy=policy(suspended=50))
        stage.time.advance(50)
        assert stage.wait(record, names.TERMINATED).state_reason == "MicroVM exceeded maximum suspended duration."

    def test_one_that_was_being_ended_is_ended(self, stage, hooks):
        record = stage.restored(names.TERMINATING)
        stage.wait(record, names.TERMINATED)
        assert record.machine.ended is not None
        assert hooks.names() == []

    @pytest.mark.parametrize("state", [names.RUNNING, names.SUSPENDING, names.SUSPENDED, names.TERMINATING])
    def test_one_without_a_machine_is_lost(self, stage, state):
        record = stage.restored(state, with_machine=False)
        assert stage.wait(record, names.TERMINATED).state_reason.startswith("MicroVM was lost")

    def test_one_that_had_not_started_is_started(self, stage, hooks):
        record = stage.restored(names.PENDING, with_machine=False)
        stage.wait(record, names.RUNNING)
        assert hooks.names() == ["run"]

    def test_one_that_had_ended_is_listed(self, stage, monkeypatch):
        monkeypatch.setattr(vms, "MAX_ENDED_RECORDS", 1)
        record = stage.restored(names.TERMINATED, with_machine=False)
        assert stage.vms.all() == [record]
        newer = stage.wait(stage.run(), names.RUNNING)
        stage.vms.terminate(newer)
        stage.wait(newer, names.TERMINATED)
        stage.vms._work.join()
        assert stage.vms.all() == [newer]

    def test_one_whose_machine_ends_has_ended(self, stage):
        record = stage.restored(names.RUNNING)
        record.machine.end(interface.Ended(3, None, interface.EXITED))
        assert stage.wait(record, names.TERMINATED).state_reason == "Container Stopped with Exit Code: 3"


def ask_for_a_way_out(machine):
    """A connection to the proxy of a VM, and what it answered to a request that no rule allows."""
    call = socket.create_connection(("127.0.0.1", machine.ways_out[-1]), timeout=20)
    call.sendall(b"HEAD http://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n")
    return call, call.recv(12)


class TestOutput:
    def test_the_last_words_are_in_the_log_when_the_end_is_heard_of(self, stage):
        record = stage.wait(stage.run(), names.RUNNING)
        stage.print(record, b"one\nlast words")
        stage.ledger.on_end = lambda record: seen.append(stage.printed(record))
        seen = []
        stage.driver.machines[0].end(interface.Ended(1, None, interface.EXITED))
        stage.wait(record, names.TERMINATED)
        assert seen == [["one", "last words"]]

    def test_so_are_those_of_one_that_ended_while_it_was_started(self, stage):
        stage.driver.gate = threading.Event()
        record = stage.run()
        eventually(lambda: stage.driver.launches)
        stage.print(record, b"bad luck\n")
        stage.driver.failure = errors.LocalCloudError("no")
        stage.driver.gate.set()
        stage.wait(record, names.TERMINATED)
        assert stage.printed(record) == ["bad luck"]

    def test_where_the_log_was_disabled_nothing_is_told(self, stage):
        record = stage.wait(stage.run(logging={"disabled": {}}), names.RUNNING)
        stage.print(record, b"one\n")
        stage.vms.terminate(record)
        stage.wait(record, names.TERMINATED)
        assert stage.logs.groups() == []


class TestEgress:
    def test_without_rules_there_is_no_way_out(self, stage):
        record = stage.wait(stage.run(), names.RUNNING)
        assert not stage.driver.launches[0].egress
        assert record.gate is None
        assert record.machine.ways_out == []

    def test_with_rules_there_is_one_for_as_long_as_the_vm_lives(self, stage, caplog):
        caplog.set_level("INFO")
        record = stage.wait(stage.run(egress_allow=("a.example",)), names.RUNNING)
        assert stage.driver.launches[0].egress
        call, answer = ask_for_a_way_out(record.machine)
        assert answer == b"HTTP/1.1 403"
        assert f"{record.microvm_id}: egress to b.example:80: refused, no rule allows it" in caplog.text
        assert stage.printed(record, suffix="/egress") == ["egress to b.example:80: refused, no rule allows it"]
        assert record.gate.refusals == ("b.example:80",)
        stage.vms.terminate(record)
        assert call.recv(1000).endswith(b"\r\n\r\n")
        assert call.recv(1000) == b""
        call.close()
        stage.vms.close()
        assert record.gate is None
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", record.machine.ways_out[0]))

    def test_a_suspend_cuts_what_goes_through_it_and_leaves_it_open(self, stage):
        record = stage.wait(stage.run(egress_allow=("a.example",)), names.RUNNING)
        call, _ = ask_for_a_way_out(record.machine)
        stage.vms.suspend(record)
        stage.wait(record, names.SUSPENDED)
        while call.recv(1000):
            pass
        call.close()
        stage.vms.resume(record)
        stage.wait(record, names.RUNNING)
        call, answer = ask_for_a_way_out(record.machine)
        assert answer == b"HTTP/1.1 403"
        call.close()

    @pytest.mark.parametrize("state", [names.RUNNING, names.SUSPENDED])
    def test_one_of_an_earlier_daemon_has_it_again(self, stage, state):
        record = stage.restored(state, egress_allow=("a.example",))
        eventually(lambda: record.gate is not None)
        call, answer = ask_for_a_way_out(record.machine)
        assert answer == b"HTTP/1.1 403"
        call.close()

    def test_one_of_an_earlier_daemon_goes_on_without_if_it_has_to(self, stage, caplog):
        listener = acceptor.bind()
        record = records.Record(
            "microvm-old", build_spec(egress_allow=("a.example",)), number=1, started_at=stage.time.clock.time(),
            endpoint="http://127.0.0.1:1", listener=listener,
        )  # fmt: skip
        record.state = names.RUNNING
        machine = FakeMachine({}, on_end=lambda ended: None)
        machine.way_out_failure = errors.LocalCloudError("it has none")
        stage.vms.insert(record, machine=machine, client_token=None)
        eventually(lambda: "has no egress any more: it has none" in caplog.text)
        assert record.state == names.RUNNING
        stage.vms.on_end(record, interface.Ended(0, None, interface.EXITED))

    def test_a_vm_that_cannot_have_it_does_not_start(self, stage):
        machine = FakeMachine({}, on_end=lambda ended: None)
        machine.way_out_failure = errors.LocalCloudError("it has none")
        stage.driver.start = lambda launch, *, on_end: machine
        record = stage.wait(stage.run(egress_allow=("a.example",)), names.TERMINATED)
        assert record.state_reason == "MicroVM did not start: it has none"
        assert machine.ended is not None
