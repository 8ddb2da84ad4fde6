"""The daemon's life, in this process and above a driver that isolates nothing."""

import contextlib
import json
import os
import shutil
import socket
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import pytest

from tests.support.cloud import LocalCloud
from tests.support.image_works import ARN, Works
from tests.support.machines import FakeDriver, FakeMachine
from vmnest import daemon as host
from vmnest import deadline, errors, rendezvous
from vmnest.local import acceptor, daemon, ledger, options, records
from vmnest.wire import names


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path)


def make(folder, *, driver=None, idle_seconds=600.0, environ=None):
    asked = []

    def select(**options):
        asked.append(options)
        if isinstance(driver, Exception):
            raise driver
        return driver or FakeDriver({})

    config = daemon.Config(folder=folder, environ=environ or {}, idle_seconds=idle_seconds)
    one = daemon.Daemon(config, select_driver=select)
    return one, asked


def wait(one, folder):
    with rendezvous.daemon_lock(folder, deadline.Deadline(5)) as lock:
        one.wait(lock)


@contextlib.contextmanager
def opened(folder, **options):
    one, _ = make(folder, **options)
    address = one.open()
    try:
        yield one, address
    finally:
        one.close()


def port_of(address):
    return urllib.parse.urlsplit(address.url).port


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True


def test_it_serves_from_open_to_close(folder):
    with opened(folder) as (_, address):
        assert answers(port_of(address))
    assert not answers(port_of(address))


def test_it_takes_its_own_address_back_and_no_other_one(folder):
    with opened(folder):
        assert rendezvous.read(folder).pid == os.getpid()
    assert rendezvous.read(folder) is None
    with opened(folder):
        # The folder was removed, and a daemon that found it empty has come since.
        rendezvous.write_daemon(folder, rendezvous.Daemon(url="http://127.0.0.1:1", version="1.0", pid=1))
    assert rendezvous.read(folder).pid == 1


def test_its_port_is_kept_for_the_next_one(folder):
    with opened(folder) as (_, first):
        pass
    with opened(folder) as (_, second):
        assert second.url == first.url


def test_a_port_that_is_taken_is_replaced(folder):
    with contextlib.closing(acceptor.bind()) as taken:
        rendezvous.keep_port(folder, taken.getsockname()[1])
        with opened(folder) as (_, address):
            assert port_of(address) != taken.getsockname()[1]
            assert rendezvous.kept_port(folder) == port_of(address)


def test_the_driver_is_chosen_by_the_settings(folder):
    environ = {"AGENT_SANDBOX_LOCAL_ISOLATION": "kernel", "AGENT_SANDBOX_LOCAL_VISIBLE": "/data:/more"}
    one, asked = make(folder, environ=environ)
    one.open()
    one.close()
    assert asked == [{"folder": folder, "minimum": "kernel", "visible": ("/data", "/more"), "environ": environ}]


def test_a_machine_without_isolation_is_refused_and_nothing_stays_open(folder):
    one, _ = make(folder, driver=errors.IsolationUnavailableError("no user namespaces", hint="sysctl"))
    with pytest.raises(errors.IsolationUnavailableError):
        one.open()
    assert not [thread for thread in threading.enumerate() if thread.name in {"acceptor", "timers"}]


def test_a_setting_that_cannot_be_read_is_refused(folder):
    one, _ = make(folder, environ={"AGENT_SANDBOX_LOCAL_DISK": "much"})
    with pytest.raises(errors.SettingError, match="AGENT_SANDBOX_LOCAL_DISK"):
        one.open()
    assert not [thread for thread in threading.enumerate() if thread.name in {"acceptor", "timers"}]


def test_its_address_and_what_it_was_started_with_are_published(folder):
    environ = {"AGENT_SANDBOX_LOCAL_DISK": "1GiB", "AGENT_SANDBOX_LOCAL_VISIBLE": "", "AGENT_SANDBOX_REGION": "x"}
    with opened(folder, environ=environ) as (_, address):
        published = rendezvous.read(folder)
        assert (published.url, published.pid) == (address.url, os.getpid())
        assert published.started_with == {"AGENT_SANDBOX_LOCAL_DISK": "1GiB"}
    assert rendezvous.read(folder) is None


def leave_running(folder, driver):
    """A VM of an earlier daemon, and its machine."""
    spec = records.Spec("arn", "1.0", None, None, 600, (), (), None, None, options.Options())
    record = records.Record("microvm-1", spec, number=1, started_at=time.time(), endpoint="http://127.0.0.1:0")
    record.state = names.RUNNING
    ledger.Ledger(folder).save(record)
    path = os.path.join(folder, "vms", "microvm-1")
    os.makedirs(path)
    with open("/proc/sys/kernel/random/boot_id") as source, open(os.path.join(folder, "boot-id"), "w") as target:
        target.write(source.read())
    driver.running[path] = FakeMachine({}, on_end=lambda ended: None)
    return driver.running[path]


def test_vms_of_an_earlier_daemon_are_taken_over_and_end_with_this_one(folder):
    driver = FakeDriver({})
    machine = leave_running(folder, driver)
    with opened(folder, driver=driver) as (one, _):
        assert [record.state for record in one._vms.all()] == [names.RUNNING]
    assert machine.ended is not None


def test_a_start_that_fails_ends_no_vm(folder):
    driver = FakeDriver({})
    machine = leave_running(folder, driver)
    os.mkdir(os.path.join(folder, rendezvous.DAEMON_FILE))
    one, _ = make(folder, driver=driver)
    with pytest.raises(errors.LocalCloudError, match=r"daemon\.json"):
        one.open()
    assert driver.adopted
    assert machine.ended is None
    assert ledger.Ledger(folder).load()[0].state == names.RUNNING
    assert not [thread for thread in threading.enumerate() if thread.name in {"acceptor", "timers"}]


def test_leftovers_are_given_to_the_driver_and_removed(folder):
    os.makedirs(os.path.join(folder, "vms", "microvm-old"))
    driver = FakeDriver({})
    with opened(folder, driver=driver):
        assert driver.discarded == [os.path.join(folder, "vms", "microvm-old")]
        assert os.listdir(os.path.join(folder, "vms")) == []


def test_waiting_ends_when_asked_to(folder):
    with opened(folder) as (one, _):
        thread = threading.Thread(target=wait, args=(one, folder))
        thread.start()
        one.stop("asked to")
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("step", range(24))
def test_a_signal_may_ask_for_the_end_at_any_step_of_waiting(folder, step):
    """A handler runs between any two steps of the thread that waits: no lock that this one holds may be taken there."""
    one, _ = make(folder, idle_seconds=0.04)
    steps = iter(range(1000))

    def handle(*_):
        if next(steps) == step:
            one.stop("SIGTERM")

    def run():
        with rendezvous.daemon_lock(folder, deadline.Deadline(5)) as lock:
            sys.setprofile(handle)
            one.wait(lock)

    waiting = threading.Thread(target=run, daemon=True)
    waiting.start()
    waiting.join(20)
    assert not waiting.is_alive()


def test_waiting_ends_when_idle_and_the_address_goes_first(folder):
    with opened(folder, idle_seconds=0.02) as (one, address):
        rendezvous.write_daemon(folder, address)
        wait(one, folder)
        assert rendezvous.read(folder) is None
        assert answers(port_of(address))


def test_waiting_ends_when_the_folder_was_removed(folder):
    with opened(folder, idle_seconds=0.1) as (one, _):
        with rendezvous.daemon_lock(folder, deadline.Deadline(5)) as lock:
            shutil.rmtree(folder)
            os.mkdir(folder)
            one.wait(lock)
        assert one._stop_reason == "its folder was removed"


@pytest.mark.parametrize("content", [None, b"{damaged"], ids=["removed", "damaged"])
def test_an_address_that_was_lost_is_published_again(folder, content):
    with opened(folder, idle_seconds=2.0) as (one, address):
        path = os.path.join(folder, rendezvous.DAEMON_FILE)
        os.unlink(path)
        if content is not None:
            Path(path).write_bytes(content)
        thread = threading.Thread(target=wait, args=(one, folder))
        thread.start()
        while rendezvous.read(folder) is None and thread.is_alive():
            time.sleep(0.01)
        assert rendezvous.read(folder).url == address.url
        one.stop("asked to")
        thread.join(10)


def test_an_address_that_was_taken_back_stays_so(folder):
    with opened(folder) as (one, _):
        one._withdraw()
        one._publish_again()
        assert rendezvous.read(folder) is None


def test_it_stays_while_somebody_is_coming(folder):
    with opened(folder, idle_seconds=0.02) as (one, _):
        thread = threading.Thread(target=wait, args=(one, folder))
        with rendezvous.start_lock(folder, deadline.Deadline(5)):
            thread.start()
            thread.join(0.3)
            assert thread.is_alive()
        thread.join(10)
        assert not thread.is_alive()


class SlowDriver(FakeDriver):
    """Builds of images reach it, and go no further, and fail once ``gate_of_images`` is set."""

    def __init__(self):
        super().__init__({})
        self.gate_of_images = threading.Event()

    @property
    def obstacle_to_images(self):
        assert self.gate_of_images.wait(20)
        return "there is none here"


class TestBuilds:
    @pytest.fixture
    def building(self, folder):
        """A daemon in the middle of a build; its driver; and its image operations."""
        driver = SlowDriver()
        with opened(folder, driver=driver, idle_seconds=0.05) as (one, address):
            works = Works(LocalCloud(folder, daemon=address, process=None))
            works.api.create_microvm_image(name="demo", **works.settings())
            yield one, driver, works
            driver.gate_of_images.set()

    def ask(self, one, folder, method, path):
        environ = {"AGENT_SANDBOX_LOCAL_DIR": folder}
        return host.ask(one, method=method, path=path, environ=environ, deadline=deadline.Deadline(10))

    def test_one_is_told_and_is_no_idleness(self, building, folder):
        one, driver, works = building
        status = self.ask(works.cloud.daemon, folder, "GET", rendezvous.STATUS_PATH)
        assert (status["builds"], status["idle_seconds"]) == (["demo 1.0"], 0)
        thread = threading.Thread(target=wait, args=(one, folder))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        driver.gate_of_images.set()
        thread.join(10)
        assert not thread.is_alive()

    def test_a_daemon_in_the_middle_of_one_does_not_retire(self, building, folder):
        _, driver, works = building
        assert not self.ask(works.cloud.daemon, folder, "POST", rendezvous.RETIRE_PATH)["retired"]
        driver.gate_of_images.set()
        image = works.settle(f"{ARN}demo")
        assert image["state"] == "CREATE_FAILED"
        assert "there is none here" in works.builds(f"{ARN}demo")[0]["stateReason"]
        assert self.ask(works.cloud.daemon, folder, "POST", rendezvous.RETIRE_PATH)["retired"]

    def test_one_that_has_vms_and_so_stays_builds_on(self, folder):
        driver = SlowDriver()
        leave_running(folder, driver)
        with opened(folder, driver=driver) as (_, address):
            works = Works(LocalCloud(folder, daemon=address, process=None))
            assert not self.ask(address, folder, "POST", rendezvous.RETIRE_PATH)["retired"]
            driver.gate_of_images.set()
            works.create(name="demo")


class TestRun:
    def config(self, folder):
        return daemon.Config(folder=folder, environ={})

    def test_the_address_of_one_that_was_killed_is_taken_back_first(self, folder):
        rendezvous.write_daemon(folder, rendezvous.Daemon(url="http://127.0.0.1:1", version="1", pid=1))
        seen = []

        def select(**options):
            seen.append(rendezvous.read(folder))
            raise errors.IsolationUnavailableError("no")

        daemon.run(self.config(folder), ready=lambda line: None, select_driver=select)
        assert seen == [None]

    def test_an_error_of_the_start_is_the_ready_line(self, folder):
        def select(**options):
            raise errors.IsolationUnavailableError("no", hint="do this")

        lines = []
        assert daemon.run(self.config(folder), ready=lines.append, select_driver=select) == 1
        assert json.loads(lines[0])["error"]["code"] == "isolation_unavailable"
        assert json.loads(lines[0])["error"]["hint"] == "do this"

    def test_a_failure_that_nobody_foresaw_is_one_too(self, folder):
        lines = []
        assert daemon.run(self.config(folder), ready=lines.append, select_driver=lambda **options: 1 / 0) == 1
        with pytest.raises(errors.LocalDaemonError, match="division by zero"):
            rendezvous.parse_ready(lines[0])

    def test_a_second_daemon_of_the_folder_does_not_start(self, folder, monkeypatch):
        monkeypatch.setattr(daemon, "_LOCK_SECONDS", 0.05)
        lines = []
        with rendezvous.daemon_lock(folder, deadline.Deadline(1)):
            status = daemon.run(self.config(folder), ready=lines.append, select_driver=lambda **options: 1 / 0)
        assert status == 1
        with pytest.raises(errors.LocalDaemonError, match="previous local daemon"):
            rendezvous.parse_ready(lines[0])
