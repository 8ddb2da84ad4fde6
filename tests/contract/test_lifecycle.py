"""The lifecycle's contract: suspend, resume, the clocks that do it by themselves, and what is kept.

An idle time below a minute does not exist, so what waits for a clock is started before the first test and looked at
after the last: the module takes little longer than one such minute.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pytest
from botocore.exceptions import ClientError

IDLE_SECONDS = 60
LIFE_SECONDS = 60
# From the last byte to the suspend AWS was seen to take up to twice the idle time.
IDLE_WAIT_SECONDS = 150

# Writes the time of day to a file 20 times a second: what a suspend stops, and a resume lets go on.
TICKER = """
import os, sys, time
with open(sys.argv[1], "w", buffering=1) as file:
    while True:
        print(os.getpid(), time.time(), file=file)
        time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def cloud(any_cloud):
    return any_cloud


def policy(*, idle=IDLE_SECONDS, suspended=3600, resumes=True):
    return {
        "maxIdleDurationSeconds": idle,
        "suspendedDurationSeconds": suspended,
        "autoResumeEnabled": resumes,
    }


class Waiting(NamedTuple):
    """A VM that waits for a clock, and when it was last asked anything."""

    vm: dict
    asked_at: float
    work: Future | None

    def idle_seconds(self):
        return time.monotonic() - self.asked_at


class Clocks:
    """The VMs that wait for a clock, and what goes on with them meanwhile."""

    def __init__(self, cloud, stack):
        self.cloud = cloud
        self._stack = stack
        self._over = threading.Event()
        self._pool = stack.enter_context(ThreadPoolExecutor())
        stack.callback(self._over.set)
        self.left_alone = self._start(policy())
        self.kept_suspended = self._start(policy(resumes=False))
        self.to_be_ended = self._start(policy(suspended=0))
        self.busy_inside = self._start(policy(), start_ticker)
        self.with_open_silence = self._start(policy(), self._open_silence)
        self.asked = self._start(policy(), lambda cloud, vm: self._go_on_asking(vm, cloud.mint(vm, 8080), 200))
        self.refused = self._start(policy(), lambda cloud, vm: self._go_on_asking(vm, {}, 403))
        self.streaming = self._start(policy(), self._go_on_reading)
        self.running_to_the_end = self._start(None, maximumDurationInSeconds=LIFE_SECONDS)
        self.suspended_to_the_end = self._start(None, maximumDurationInSeconds=LIFE_SECONDS)
        cloud.suspend(self.suspended_to_the_end.vm)

    def _start(self, idle_policy, busy=None, **params):
        if idle_policy:
            params["idlePolicy"] = idle_policy
        vm = self.cloud.run_ready(**params)
        work = None if busy is None else busy(self.cloud, vm)
        return Waiting(vm, time.monotonic(), work)

    def _open_silence(self, cloud, vm):
        headers = cloud.start_mirror(vm)
        connection = self._stack.enter_context(contextlib.closing(cloud.connect(vm, seconds=IDLE_WAIT_SECONDS)))
        connection.request("GET", "/silent", headers=headers)
        assert connection.getresponse().status == 200

    def _go_on_asking(self, vm, headers, status):
        def ask():
            while not self._over.wait(IDLE_SECONDS / 4):
                assert self.cloud.ask(vm, "GET", "/healthz", headers=headers).status == status

        return self._pool.submit(ask)

    def _go_on_reading(self, cloud, vm):
        headers = cloud.start_mirror(vm)

        def read():
            with contextlib.closing(cloud.connect(vm)) as connection:
                connection.request("GET", "/stream?1000&1", headers=headers)
                response = connection.getresponse()
                while not self._over.is_set():
                    assert response.readline()

        return self._pool.submit(read)


@pytest.fixture(scope="module", autouse=True)
def clocks(cloud):
    with contextlib.ExitStack() as stack:
        yield Clocks(cloud, stack)


@pytest.fixture
def vm(cloud):
    """One of the test's own, which never suspends by itself."""
    vm = cloud.run_ready()
    yield vm
    cloud.api.terminate_microvm(microvmIdentifier=vm["microvmId"])


def start_ticker(cloud, vm):
    cloud.write(vm, "ticker.py", TICKER)
    line = "setsid python3 ticker.py /dev/shm/ticks </dev/null >/dev/null 2>&1 &"
    assert cloud.execute(vm, "sh", "-c", line) == (0, "")


def ticks(cloud, vm):
    """The ticker's process ids, and its times; none while it is only starting."""
    _, text = cloud.execute(vm, "cat", "/dev/shm/ticks")
    rows = [line.split() for line in text.splitlines()]
    return {row[0] for row in rows}, [float(row[1]) for row in rows if len(row) == 2]


def longest_pause(times):
    return max(after - before for before, after in itertools.pairwise(times))


def wait_until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


class TestSuspend:
    def test_it_is_suspended_and_says_so_and_no_reason(self, cloud, vm):
        cloud.api.suspend_microvm(microvmIdentifier=vm["microvmId"])
        found = cloud.wait_for(vm, "SUSPENDED")
        assert {"stateReason", "terminatedAt"}.isdisjoint(found)
        assert (found["endpoint"], found["startedAt"]) == (vm["endpoint"], vm["startedAt"])

    def test_suspending_it_again_is_fine(self, cloud, vm):
        cloud.suspend(vm)
        cloud.api.suspend_microvm(microvmIdentifier=vm["microvmId"])
        assert cloud.get(vm)["state"] == "SUSPENDED"

    def test_resuming_what_runs_is_fine(self, cloud, vm):
        cloud.api.resume_microvm(microvmIdentifier=vm["microvmId"])
        assert cloud.get(vm)["state"] == "RUNNING"

    def test_memory_processes_and_files_are_kept_and_nothing_runs_meanwhile(self, cloud, vm):
        start_ticker(cloud, vm)
        cloud.write(vm, "/tmp/note", "kept")
        wait_until(lambda: len(ticks(cloud, vm)[1]) > 10)
        cloud.suspend(vm)
        time.sleep(2)
        cloud.resume(vm)
        cloud.wait_ready(vm)
        count = len(ticks(cloud, vm)[1])
        wait_until(lambda: len(ticks(cloud, vm)[1]) > count)
        pids, times = ticks(cloud, vm)
        assert len(pids) == 1
        assert longest_pause(times) > 1.9
        assert cloud.execute(vm, "cat", "/tmp/note") == (0, "kept")

    def test_what_had_stopped_itself_is_not_woken_by_a_resume(self, cloud, vm):
        line = "sh -c 'echo $$ >stopped; kill -STOP $$; echo woken >>stopped' >/dev/null 2>&1 &"
        assert cloud.execute(vm, "sh", "-c", line) == (0, "")
        state = ("sh", "-c", "sed 's/.*) //; s/ .*//' /proc/$(head -1 stopped)/stat")
        wait_until(lambda: cloud.execute(vm, *state) == (0, "T\n"))
        cloud.suspend(vm)
        cloud.resume(vm)
        cloud.wait_ready(vm)
        assert cloud.execute(vm, *state) == (0, "T\n")
        assert cloud.execute(vm, "sh", "-c", "kill -CONT $(head -1 stopped)") == (0, "")
        wait_until(lambda: cloud.execute(vm, "tail", "-1", "stopped") == (0, "woken\n"))

    def test_it_can_be_suspended_time_and_again(self, cloud, vm):
        for turn in range(3):
            cloud.suspend(vm)
            cloud.resume(vm)
            cloud.wait_ready(vm)
            assert cloud.execute(vm, "echo", str(turn)) == (0, f"{turn}\n")

    def test_connections_do_not_survive_it(self, cloud, vm):
        headers = cloud.start_mirror(vm)
        with contextlib.closing(cloud.connect(vm, seconds=120)) as connection:
            connection.request("GET", "/silent", headers=headers)
            response = connection.getresponse()
            cloud.suspend(vm)
            with contextlib.suppress(http.client.HTTPException, ConnectionError):
                assert response.read() == b""
        assert cloud.get(vm)["state"] == "SUSPENDED"

    def test_a_token_can_be_minted_for_it_and_one_of_before_stays_good(self, cloud, vm):
        before = cloud.mint(vm, 8080)
        cloud.suspend(vm)
        meanwhile = cloud.mint(vm, 8080)
        cloud.resume(vm)
        cloud.wait_ready(vm)
        for token in (before, meanwhile):
            assert cloud.ask(vm, "GET", "/healthz", headers=token).status == 200

    def test_without_an_idle_policy_no_request_wakes_it(self, cloud, vm):
        token = cloud.mint(vm, 8080)
        cloud.suspend(vm)
        answer = cloud.ask(vm, "GET", "/healthz", headers=token)
        assert (answer.status, answer.body) == (502, b"")
        assert cloud.get(vm)["state"] == "SUSPENDED"

    def test_it_can_be_terminated_from_there(self, cloud, vm):
        cloud.suspend(vm)
        assert cloud.terminate(vm)["stateReason"] == "Success."

    def test_one_whose_suspend_hook_gets_no_answer_is_terminated(self, cloud, vm):
        """AWS was seen to do so for a status of 500; what a timeout says is not recorded."""
        line = "agent=$PPID; (sleep 0.5; kill -STOP $agent) >/dev/null 2>&1 &"  # once it has answered
        token = cloud.mint(vm, 8080)
        assert cloud.execute(vm, "sh", "-c", line) == (0, "")

        def is_silent():
            try:
                cloud.ask(vm, "GET", "/healthz", headers=token, seconds=2)
            except TimeoutError:
                return True
            return False

        wait_until(is_silent)
        with contextlib.suppress(ClientError):
            cloud.api.suspend_microvm(microvmIdentifier=vm["microvmId"])
        assert "Suspend lifecycle hook" in cloud.wait_for(vm, "TERMINATED")["stateReason"]


class TestHooks:
    """By what the agent's answers to them leave in the VM."""

    IDENTITY = ("cat", "/run/agentd/identity")

    def test_run_comes_before_the_first_request_and_makes_each_vm_somebody_else(self, cloud, vm):
        status, one = cloud.execute(vm, *self.IDENTITY)
        assert status == 0
        assert len(one) == 32
        assert cloud.execute(cloud.run_ready(runHookPayload='{"tenant": "a"}'), *self.IDENTITY)[1] != one

    def test_run_comes_once_and_nobody_inside_can_forge_it(self, cloud, vm):
        _, before = cloud.execute(vm, *self.IDENTITY)
        cloud.suspend(vm)
        cloud.resume(vm)
        cloud.wait_ready(vm)
        forge = (
            "import urllib.request\n"
            "url = 'http://127.0.0.1:9000/aws/lambda-microvms/runtime/v1/run'\n"
            "print(urllib.request.urlopen(url, b'{}').status)\n"
        )
        assert cloud.execute(vm, "python3", "-c", forge) == (0, "200\n")
        assert cloud.execute(vm, *self.IDENTITY) == (0, before)


class TestTraffic:
    def test_it_wakes_what_resumes_by_itself_and_is_answered(self, cloud):
        vm = cloud.run_ready(idlePolicy=policy())
        token = cloud.mint(vm, 8080)
        cloud.suspend(vm)
        answer = held(cloud, vm, token)
        assert answer.status == 200
        assert cloud.wait_for(vm, "RUNNING")["endpoint"] == vm["endpoint"]

    def test_many_requests_at_once_wake_it_once_and_are_all_answered(self, cloud):
        vm = cloud.run_ready(idlePolicy=policy())
        token = cloud.mint(vm, 8080)
        cloud.suspend(vm)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: held(cloud, vm, token).status, range(8)))
        assert answers == [200] * 8

    def test_neither_looking_at_it_nor_a_request_without_a_good_token_wakes_it(self, cloud):
        vm = cloud.run_ready(idlePolicy=policy())
        elsewhere = cloud.mint(vm, 9)
        cloud.suspend(vm)
        for token in ({}, {"X-aws-proxy-auth": "a.b.c.d.e"}, elsewhere):
            assert cloud.ask(vm, "GET", "/healthz", headers=token).status == 403
        assert cloud.get(vm)["state"] == "SUSPENDED"


def held(cloud, vm, token):
    """The answer to a request that is held until the VM runs. AWS gives up after some seconds: then it is repeated."""
    end = time.monotonic() + 30
    while (answer := cloud.ask(vm, "GET", "/healthz", headers=token)).status == 502 and cloud.is_live:
        assert time.monotonic() < end
    return answer


def test_a_suspended_vm_is_ended_when_its_time_is_over(cloud):
    vm = cloud.run_ready(idlePolicy=policy(suspended=5, resumes=False))
    cloud.suspend(vm)
    begin = time.monotonic()
    found = cloud.wait_for(vm, "TERMINATED")
    assert time.monotonic() - begin > 3
    assert found["terminatedAt"]


# -- what took its time ------------------------------------------------------------------------------------------------


def wait_until_idle(cloud, waiting):
    """The state at last, and that it did not come before its time."""
    found = cloud.wait_for(waiting.vm, "SUSPENDED", "TERMINATED", seconds=IDLE_WAIT_SECONDS)
    assert waiting.idle_seconds() > IDLE_SECONDS - 2
    return found


def test_a_vm_that_is_left_alone_is_suspended_and_wakes_on_traffic(cloud, clocks):
    found = wait_until_idle(cloud, clocks.left_alone)
    assert found["state"] == "SUSPENDED"
    assert "stateReason" not in found
    assert held(cloud, clocks.left_alone.vm, cloud.mint(clocks.left_alone.vm, 8080)).status == 200
    cloud.wait_for(clocks.left_alone.vm, "RUNNING")


def test_one_that_does_not_resume_by_itself_stays_suspended(cloud, clocks):
    vm = clocks.kept_suspended.vm
    assert wait_until_idle(cloud, clocks.kept_suspended)["state"] == "SUSPENDED"
    assert cloud.ask(vm, "GET", "/healthz", headers=cloud.mint(vm, 8080)).status == 502
    cloud.resume(vm)
    cloud.wait_ready(vm)


def test_one_that_may_not_stay_suspended_is_terminated_instead(cloud, clocks):
    assert wait_until_idle(cloud, clocks.to_be_ended)["state"] == "TERMINATED"


def test_what_runs_inside_does_not_keep_it_awake(cloud, clocks):
    assert wait_until_idle(cloud, clocks.busy_inside)["state"] == "SUSPENDED"


def test_an_open_stream_without_a_byte_does_not_keep_it_awake(cloud, clocks):
    assert wait_until_idle(cloud, clocks.with_open_silence)["state"] == "SUSPENDED"


def test_requests_that_are_refused_do_not_keep_it_awake(cloud, clocks):
    if cloud.is_live:
        pytest.skip("nobody has said yet what AWS does")
    assert wait_until_idle(cloud, clocks.refused)["state"] == "SUSPENDED"
    assert clocks.refused.work.running()


@pytest.mark.parametrize("what", ["asked", "streaming"])
def test_bytes_keep_it_awake(cloud, clocks, what):
    waiting = getattr(clocks, what)
    wait_until(lambda: waiting.idle_seconds() > IDLE_SECONDS + 15, seconds=IDLE_WAIT_SECONDS)
    assert cloud.get(waiting.vm)["state"] == "RUNNING"
    assert waiting.work.running()


@pytest.mark.parametrize("what", ["running_to_the_end", "suspended_to_the_end"])
def test_a_life_has_its_maximum_whether_it_is_spent_running_or_suspended(cloud, clocks, what):
    vm = getattr(clocks, what).vm
    found = cloud.wait_for(vm, "TERMINATED", seconds=LIFE_SECONDS + 60)
    assert found["stateReason"] == "MicroVM exceeded maximum lifetime."
    lived = (found["terminatedAt"] - found["startedAt"]).total_seconds()
    assert LIFE_SECONDS - 1 < lived < LIFE_SECONDS + 30
