"""The SDK end to end on this machine: real daemon, real isolation, real agent."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.cloud import LocalCloud
from tests.support.paths import ROOT
from vmnest import ExecResult, Sandbox, errors, registry, target
from vmnest.deadline import Deadline
from vmnest.sandbox import launch, wishes


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
    with pytest.raises(errors.MicroVMEndedError, match=r"Success\."):
        sandbox.exec("true")
    sandbox.stop()
    assert records.all() == []


def test_a_launch_whose_client_was_killed_is_found_and_ended_by_its_name(
    shared_cloud: LocalCloud, records: registry.Registry
) -> None:
    place = target.resolve(local=True)
    control = place.control(deadline=Deadline(30))
    wish = wishes.Wish(
        name="orphan",
        image="local",
        image_version=None,
        execution_role_arn=None,
        idle_policy=None,
        maximum_duration_seconds=3600,
        ingress=(),
        egress=(),
        run_payload=None,
        cpus=1,
        memory_mib=None,
        agent_port=8080,
        labels={},
    )
    record, spec = launch.plan(wish, place=place, control=control, deadline=Deadline(30))
    records.put(record)
    microvm = control.microvms.run(spec, deadline=Deadline(30))  # and here the client dies
    Sandbox.get("orphan").terminate()
    assert states(shared_cloud)[microvm.microvm_id] in ("TERMINATING", "TERMINATED")
    assert records.all() == []
