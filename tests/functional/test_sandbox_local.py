"""The SDK end to end on this machine: real daemon, real isolation, real agent."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.support.cloud import LocalCloud
from tests.support.paths import ROOT
from vmnest import ExecResult, IdlePolicy, Sandbox, errors, registry
from vmnest.deadline import Deadline
from vmnest.wire import names


@pytest.fixture
def records(shared_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> registry.Registry:
    """The cloud in this process's environment, and a registry of the test's own."""
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", shared_cloud.folder)
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    monkeypatch.delenv("AGENT_SANDBOX_WORKDIR", raising=False)
    return registry.Registry(str(tmp_path / "state.json"))


@pytest.fixture
def sandbox(records: registry.Registry) -> Iterator[Sandbox]:
    with Sandbox.create("box", local=True) as sandbox:
        yield sandbox


def is_running_on_host(command: str) -> bool:
    return subprocess.run(["pgrep", "-fx", command], capture_output=True, check=False).returncode == 0


def states(cloud: LocalCloud) -> dict[str, str]:
    items = cloud.client().list_microvms()["items"]
    return {item["microvmId"]: item["state"] for item in items}


def alive(cloud: LocalCloud) -> list[str]:
    """The MicroVMs that have not ended; one that is ending has, as far as its client is concerned."""
    return [microvm_id for microvm_id, state in states(cloud).items() if state not in names.ENDED_STATES]


# -- commands ----------------------------------------------------------------------------------------------------------


def test_a_program_runs_in_a_sandbox_of_its_own(sandbox: Sandbox) -> None:
    assert sandbox.exec("python3", ["-c", "print('hi')"]) == ExecResult(0, b"hi\n", b"")
    assert sandbox.exec("hostname").stdout != subprocess.check_output(["hostname"])
    assert not sandbox.exec("cat", ["/etc/shadow"]).success


def test_a_timeout_ends_grandchildren_and_returns_in_time(sandbox: Sandbox) -> None:
    begin = time.monotonic()
    with pytest.raises(errors.CommandTimedOutError):
        sandbox.exec("sh", ["-c", "sleep 7.313 & wait"], timeout=1)
    assert time.monotonic() - begin < 2.5
    assert not is_running_on_host("sleep 7.313")


def test_a_timeout_keeps_the_output_so_far(sandbox: Sandbox) -> None:
    with pytest.raises(errors.CommandTimedOutError) as caught:
        sandbox.exec("sh", ["-c", "echo a; sleep 5"], timeout=1)
    assert caught.value.result.stdout == b"a\n"
    assert caught.value.exit_status == 124


def test_a_command_may_take_longer_than_any_default_of_a_client(sandbox: Sandbox) -> None:
    assert sandbox.exec("sh", ["-c", "sleep 2; echo done"], timeout=60).stdout == b"done\n"
    assert sandbox.exec("sh", ["-c", "sleep 2; echo done"]).stdout == b"done\n"


def test_death_by_a_signal_is_128_and_its_number(sandbox: Sandbox) -> None:
    result = sandbox.exec("sh", ["-c", "kill -9 $$"])
    assert (result.exit_code, result.signal) == (137, "SIGKILL")


@pytest.mark.parametrize(
    ("args", "env", "field"),
    [(["a\0b"], None, "args[0]"), ([], {"A=B": "x"}, "env['A=B']"), ([], {"A": "\0"}, "env['A']")],
)
def test_what_no_program_can_get_is_refused_by_name(
    sandbox: Sandbox, args: list[str], env: dict[str, str] | None, field: str
) -> None:
    with pytest.raises(errors.BadArgumentError) as caught:
        sandbox.exec("echo", args, env=env)
    assert caught.value.details["field"] == field
    wrong: Any = PurePosixPath("/work")
    with pytest.raises(errors.BadArgumentError, match="cwd must be text, not PurePosixPath"):
        sandbox.exec("pwd", cwd=wrong)
    with pytest.raises(errors.BadArgumentError, match="path must be text, not PurePosixPath"):
        sandbox.files.list(wrong)


def test_an_argument_beyond_the_kernels_limit_is_a_typed_error(sandbox: Sandbox) -> None:
    with pytest.raises(errors.ArgumentTooLongError, match="E2BIG"):
        sandbox.exec("echo", ["x" * 200_000])
    with pytest.raises(errors.ArgumentTooLongError, match="E2BIG"):
        sandbox.exec("echo", ["x" * 100_000] * 30)


def test_output_is_bytes_from_end_to_end(sandbox: Sandbox) -> None:
    assert sandbox.exec("printf", ["\\377\\376"]).stdout == b"\xff\xfe"
    result = sandbox.exec("sh", ["-c", "head -c 300000 /dev/urandom | tee random | sha256sum; cat random >&2"])
    assert result.stderr == sandbox.files.read("random")
    assert len(result.stderr) == 300_000


def test_a_command_that_reads_its_input_ends_at_once(sandbox: Sandbox) -> None:
    assert sandbox.exec("cat", timeout=10) == ExecResult(0, b"", b"")


def test_variables_arrive_byte_for_byte(sandbox: Sandbox) -> None:
    value = 'a"b\nc=d $HOME'
    assert sandbox.exec("printenv", ["X"], env={"X": value}).stdout == value.encode() + b"\n"


def test_commands_at_once_and_in_a_row_lose_no_output(sandbox: Sandbox) -> None:
    with ThreadPoolExecutor(25) as pool:
        results = list(pool.map(lambda number: sandbox.exec("echo", [str(number)]).stdout, range(50)))
    assert results == [b"%d\n" % number for number in range(50)]
    assert all(sandbox.exec("echo", ["x"]).stdout == b"x\n" for _ in range(100))
    assert sandbox.shell("cat <<'END'\nline $one\nEND\n").stdout == b"line $one\n"


def test_a_missing_program_folder_or_right_has_its_own_error(sandbox: Sandbox) -> None:
    with pytest.raises(errors.CommandNotFoundError):
        sandbox.exec("no-such-program")
    with pytest.raises(errors.NotExecutableError):
        sandbox.exec("/etc")
    with pytest.raises(errors.CwdNotFoundError):
        sandbox.exec("true", cwd="/nowhere")


# -- processes ---------------------------------------------------------------------------------------------------------


def test_output_is_seen_while_it_is_written(sandbox: Sandbox) -> None:
    with sandbox.spawn("sh", ["-c", "while read line; do date +%s.%N; done"], stdin=True) as process:
        chunks = iter(process)
        late = []
        for _ in range(20):
            process.write(b"\n")
            late.append(time.time() - float(next(chunks).data))
    assert sorted(late)[10] < 0.5  # a stream that somebody holds back comes after seconds


def test_output_of_any_size_costs_no_memory(sandbox: Sandbox) -> None:
    got = 0

    def take(data: bytes) -> None:
        nonlocal got
        got += len(data)

    before = resident_kib()
    result = sandbox.exec("head", ["-c", "300000000", "/dev/zero"], on_stdout=take)
    assert (result.exit_code, got) == (0, 300_000_000)
    assert resident_kib() - before < 30_000


def resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def test_five_megabytes_of_anything_go_through_a_program(sandbox: Sandbox) -> None:
    data = os.urandom(5_000_000)
    result = sandbox.exec("sha256sum", stdin=(data[at : at + 70_000] for at in range(0, len(data), 70_000)))
    assert result.stdout_text.split()[0] == hashlib.sha256(data).hexdigest()
    assert sandbox.exec("cat", stdin=data).stdout == data
    assert sandbox.exec("head", ["-c", "3"], stdin=iter(lambda: b"y\n" * 10_000, None)).stdout == b"y\ny"


def test_a_process_whose_client_was_killed_is_read_whole_by_another(
    sandbox: Sandbox, records: registry.Registry
) -> None:
    program = (
        "from vmnest import Sandbox\n"
        "process = Sandbox.get('box').spawn('sh', ['-c', 'seq 50000; read line; seq 50001 60000; exit 9'],"
        " id='lost', stdin=True)\n"
        "for chunk in process: print('reading', flush=True)\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert client.stdout is not None
    with client.stdout:
        assert client.stdout.readline() == b"reading\n"
        client.kill()
        client.wait()
    process = sandbox.attach_process("lost")
    process.write(b"go\n")
    numbers = b"".join(chunk.data for chunk in process).split()
    assert numbers == [b"%d" % number for number in range(1, 60_001)]
    assert process.wait() == 9


def test_a_terminal_is_drained_to_its_last_byte(sandbox: Sandbox) -> None:
    process = sandbox.spawn("seq", ["100000"], pty=(80, 24))
    lines = [line.text for line in process.lines()]
    assert (len(lines), lines[-1]) == (100_000, "100000")
    assert process.exit_code == 0


def test_a_suspended_sandbox_sleeps_until_something_is_typed(sandbox: Sandbox) -> None:
    process = sandbox.spawn("sh", ["-c", "echo ready; read line; echo got $line"], stdin=True)
    chunks = iter(process)
    assert next(chunks).data == b"ready\n"  # the answer that brings it is still open
    told: list[str | None] = []
    asleep = threading.Event()

    def watch(state: str | None) -> None:
        told.append(state)
        if state == "SUSPENDED":
            asleep.set()

    process.state_watch = watch
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: b"".join(chunk.data for chunk in chunks))
        sandbox.suspend()
        assert asleep.wait(60)
        assert process.poll() is None
        assert sandbox.refresh() == "SUSPENDED"
        process.write(b"a key\n")
        assert reading.result(60) == b"got a key\n"
    assert sandbox.refresh() == "RUNNING"
    assert told[-2:] == ["SUSPENDED", None]
    assert process.exit_code == 0


def test_many_short_processes_lose_nothing_and_leave_nothing(sandbox: Sandbox) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda n: sandbox.exec("echo", [str(n)]).stdout, range(100)))
        before = descriptors()
        results += pool.map(lambda n: sandbox.exec("echo", [str(n)]).stdout, range(100, 500))
        assert descriptors() <= before + 16
    assert results == [b"%d\n" % number for number in range(500)]


# -- life --------------------------------------------------------------------------------------------------------------


def test_sizes_are_given_to_the_local_cloud(records: registry.Registry) -> None:
    with Sandbox.create(local=True, cpus=1, memory=512) as sandbox:
        details = sandbox.inspect()["localDetails"]
        assert isinstance(details, dict)
        assert (details["cpus"], details["memory"]) == (1, 512)
        assert [record.name for record in records.all()] == [sandbox.name]


def test_another_process_uses_it_by_its_name(sandbox: Sandbox) -> None:
    program = "from vmnest import Sandbox; print(Sandbox.get('box').exec('cat', ['note']).stdout_text)"
    sandbox.files.write("note", "from the first")
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout == "from the first\n"


def test_its_end_is_the_end_of_the_microvm_and_of_the_name(
    shared_cloud: LocalCloud, records: registry.Registry
) -> None:
    with Sandbox.create("box", local=True) as sandbox:
        assert states(shared_cloud)[sandbox.microvm_id] == "RUNNING"
        with pytest.raises(errors.NameInUseError):
            Sandbox.create("box", local=True)
    assert states(shared_cloud)[sandbox.microvm_id] in ("TERMINATING", "TERMINATED")
    assert records.all() == []
    sandbox.kill()


def test_a_microvm_that_ended_behind_our_back_is_told_with_its_reason(
    shared_cloud: LocalCloud, records: registry.Registry
) -> None:
    sandbox = Sandbox.create("box", local=True)
    shared_cloud.client().terminate_microvm(microvmIdentifier=sandbox.microvm_id)
    deadline = Deadline(10)
    while states(shared_cloud)[sandbox.microvm_id] != "TERMINATED":
        deadline.check("the end of the MicroVM")
    with pytest.raises(errors.MicroVMEndedError, match="ended by a request"):
        sandbox.exec("true")
    sandbox.stop()
    assert records.all() == []


def test_a_replaced_sandbox_is_gone_and_its_name_is_the_successors(
    shared_cloud: LocalCloud, records: registry.Registry
) -> None:
    first = Sandbox.create("box", local=True, replace=True)
    first.files.write("note", "of the first")
    with Sandbox.create("box", local=True, replace=True) as second:
        assert states(shared_cloud)[first.microvm_id] in ("TERMINATING", "TERMINATED")
        assert [record.microvm_id for record in records.all()] == [second.microvm_id]
        with pytest.raises(errors.RemoteFileNotFoundError):
            second.files.read("note")


CREATOR = """
import sys
from vmnest import Sandbox, errors
try:
    print(Sandbox.create("box", local=True).microvm_id)
except errors.NameInUseError:
    sys.exit(9)
"""


def test_of_many_processes_that_create_one_name_one_wins(shared_cloud: LocalCloud, records: registry.Registry) -> None:
    creators = [
        subprocess.Popen([sys.executable, "-c", CREATOR], cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(5)
    ]
    told = [creator.communicate(timeout=120)[0].strip() for creator in creators]
    assert sorted(creator.returncode for creator in creators) == [0, 9, 9, 9, 9]
    with Sandbox.get("box") as sandbox:
        assert [text for text in told if text] == [sandbox.microvm_id]
        assert alive(shared_cloud) == [sandbox.microvm_id]


# -- suspending and resuming -------------------------------------------------------------------------------------------


def test_files_and_processes_survive_a_suspend_and_stand_still_meanwhile(
    sandbox: Sandbox, records: registry.Registry
) -> None:
    sandbox.files.write("note", "kept")
    sandbox.shell("(while :; do echo tick >> ticks; sleep 0.02; done) >/dev/null 2>&1 &")
    before = len(sandbox.files.read("ticks"))
    sandbox.suspend()
    assert sandbox.refresh() == sandbox.inspect()["state"] == "SUSPENDED"
    assert records.require("box").stopped_at == pytest.approx(time.time(), abs=60)
    time.sleep(1)  # what ran would write some 40 lines meanwhile
    sandbox.start()
    assert (sandbox.state, records.require("box").stopped_at) == ("RUNNING", None)
    assert sandbox.files.read_text("note") == "kept"
    assert len(sandbox.files.read("ticks")) - before < 20 * len("tick\n")
    before = len(sandbox.files.read("ticks"))
    deadline = Deadline(10)
    while len(sandbox.files.read("ticks")) == before:
        deadline.check("the program in the sandbox to go on")


def test_use_resumes_it_and_takes_the_mark_away(sandbox: Sandbox, records: registry.Registry) -> None:
    sandbox.suspend()
    assert Sandbox.get("box").exec("echo", ["awake"]).stdout == b"awake\n"
    assert records.require("box").stopped_at is None
    sandbox.suspend()
    with ThreadPoolExecutor(20) as pool:
        assert {result.stdout for result in pool.map(lambda _n: sandbox.exec("echo", ["x"]), range(20))} == {b"x\n"}


def test_use_that_must_not_resume_it_leaves_it_suspended(sandbox: Sandbox, shared_cloud: LocalCloud) -> None:
    sandbox.suspend()
    careful = Sandbox.get("box", auto_resume=False)
    for use in (lambda: careful.exec("true"), lambda: careful.shell("true"), lambda: careful.files.read("note")):
        with pytest.raises(errors.SandboxSuspendedError, match="box"):
            use()
    assert careful.wait("SUSPENDED", timeout=5) == states(shared_cloud)[sandbox.microvm_id] == "SUSPENDED"
    careful.resume()
    assert careful.exec("true").success


def test_what_does_not_resume_by_itself_is_resumed_by_use_all_the_same(
    shared_cloud: LocalCloud, records: registry.Registry
) -> None:
    policy = IdlePolicy(max_idle_duration_seconds=60, suspended_duration_seconds=600, auto_resume_enabled=False)
    with Sandbox.create("box", local=True, idle_policy=policy) as sandbox:
        shared_cloud.client().suspend_microvm(microvmIdentifier=sandbox.microvm_id)  # as if for idleness
        sandbox.wait("SUSPENDED", timeout=10)
        for user in (sandbox, Sandbox.get("box")):
            assert user.exec("echo", ["awake"]).stdout == b"awake\n"


def test_suspends_and_resumes_of_several_at_once_end_well(sandbox: Sandbox) -> None:
    for verb in (sandbox.suspend, sandbox.resume):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _number, verb=verb: verb(), range(4)))
    assert sandbox.exec("true").success


def test_a_wait_sees_the_end_that_another_process_brings(sandbox: Sandbox, shared_cloud: LocalCloud) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sandbox.wait, timeout=60)
        shared_cloud.client().terminate_microvm(microvmIdentifier=sandbox.microvm_id)
        assert waiting.result() == "TERMINATED"
    with pytest.raises(errors.MicroVMEndedError):
        sandbox.wait("RUNNING", timeout=5)


# -- creators that are killed ------------------------------------------------------------------------------------------

# Creates a sandbox and kills itself at the given step, which leaves the registry as a kill from outside would.
KILLED = """
import os, signal, sys
from tests.support.fake_control import WISH
from vmnest import registry, target
from vmnest.deadline import Deadline
from vmnest.sandbox import making

class Registry(registry.Registry):
    def put(self, record, **options):
        super().put(record, **options)
        if sys.argv[1] == "before the run":
            os.kill(os.getpid(), signal.SIGKILL)

    def update(self, name, **options):
        os.kill(os.getpid(), signal.SIGKILL)

wish = WISH._replace(name="orphan", image="local", egress=(), cpus=1, run_payload=sys.argv[2] or None)
place = target.resolve(local=True)
making.make(wish, place=place, records=Registry(sys.argv[3]), deadline=Deadline(60))
"""


def kill_creator(records: registry.Registry, step: str, *, payload: str = "") -> None:
    command = [sys.executable, "-c", KILLED, step, payload, records.path]
    assert subprocess.run(command, cwd=ROOT, check=False, timeout=60).returncode == -9
    assert records.require("orphan").microvm_id is None


@pytest.mark.parametrize("step", ["before the run", "after the run"])
def test_the_sandbox_of_a_killed_creator_is_completed_by_its_use(
    shared_cloud: LocalCloud, records: registry.Registry, step: str
) -> None:
    kill_creator(records, step)
    begun = alive(shared_cloud)
    assert len(begun) == (step == "after the run")
    with Sandbox.get("orphan") as sandbox:
        assert sandbox.exec("echo", ["alive"]).stdout == b"alive\n"
        assert alive(shared_cloud) == [sandbox.microvm_id] == [records.require("orphan").microvm_id]
        assert begun in ([], [sandbox.microvm_id])
    assert alive(shared_cloud) == []


@pytest.mark.parametrize("step", ["before the run", "after the run"])
def test_the_sandbox_of_a_killed_creator_is_ended_by_its_name(
    shared_cloud: LocalCloud, records: registry.Registry, step: str
) -> None:
    kill_creator(records, step)
    Sandbox.get("orphan").terminate()
    assert alive(shared_cloud) == []
    assert records.all() == []


def test_the_sandbox_of_a_killed_creator_with_a_payload_cannot_be_completed(
    shared_cloud: LocalCloud, records: registry.Registry
) -> None:
    kill_creator(records, "before the run", payload="hush")
    sandbox = Sandbox.get("orphan")
    with pytest.raises(errors.MicroVMNotFoundError, match="payload") as caught:
        sandbox.exec("true")
    assert "vmnest rm orphan" in (caught.value.hint or "")
    sandbox.terminate()
    assert records.all() == []


# -- children ----------------------------------------------------------------------------------------------------------

FORKING = """
import os
from concurrent.futures import ThreadPoolExecutor
from vmnest import Sandbox

sandbox = Sandbox.create("box", local=True)
with ThreadPoolExecutor(4) as pool:
    running = [pool.submit(sandbox.exec, "sh", ["-c", f"sleep 0.2; echo {n}"]) for n in range(8)]
    children = []
    for n in range(6):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if sandbox.exec("echo", [str(n)]).stdout_text == f"{n}\\n" else 2
            finally:
                os._exit(status)
        children.append(child)
    print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
    print([each.result().stdout_text.strip() for each in running] == [str(n) for n in range(8)])
print(sandbox.exec("echo", ["parent"]).stdout_text.strip())
sandbox.terminate()
"""


def test_children_and_their_parent_share_a_sandbox(shared_cloud: LocalCloud, records: registry.Registry) -> None:
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (told.stdout.splitlines(), told.stderr) == (["[0, 0, 0, 0, 0, 0]", "True", "parent"], "")
    assert alive(shared_cloud) == []
