"""The lifecycle of VMs, above a driver that isolates nothing."""

import contextlib
import os
import threading

import pytest

from tests.support.machines import FakeDriver, Hooks, scripted_server
from vmnest import errors
from vmnest.local import faults, options, records, timers, vms
from vmnest.local.drivers import interface
from vmnest.wire import names

WAIT_SECONDS = 10


def spec(**changes):
    fields = {
        "image_arn": "arn:aws:lambda:us-east-1:000000000000:microvm-image:local",
        "image_version": "1.0",
        "execution_role_arn": None,
        "idle_policy": None,
        "max_seconds": 60,
        "ingress": (),
        "egress": (),
        "kms_key": None,
        "payload": "hello",
        "options": options.Options(cpus=2, memory_mib=512),
    }
    return records.Spec(**{**fields, **changes})


class Stage:
    """VMs, their driver, and what they told the rest of the daemon."""

    def __init__(self, folder, hooks_port):
        self.driver = FakeDriver({9000: hooks_port})
        self.timers = timers.Timers()
        self.published, self.retired = [], []
        self.vms = vms.VMs(
            self.driver,
            vms.Settings(folder=str(folder), disk_bytes=1 << 30, visible=("/data",)),
            timers=self.timers,
            publish=self.published.append,
            retire=self.retired.append,
        )

    def run(self, *, client_token=None, **changes):
        return self.vms.run(spec(**changes), client_token=client_token)

    def wait(self, record, state):
        with record.changed:
            assert record.changed.wait_for(lambda: record.state == state, WAIT_SECONDS), record.state
        return record


@pytest.fixture
def hooks():
    return Hooks()


@pytest.fixture
def stage(tmp_path, hooks):
    with scripted_server(hooks) as port:
        one = Stage(tmp_path, port)
        one.timers.start()
        yield one
        if one.driver.gate is not None:
            one.driver.gate.set()
        one.vms.close()
        one.timers.close()
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
    assert launch.max_seconds > 60
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
