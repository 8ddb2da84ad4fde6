"""Sandbox: the control plane in memory, the agent real."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent import Agent
from tests.support.fake_control import FakeControl, FakePlace, cut_off, make_sandbox
from tests.support.scripted import ScriptedServer, answer, json_answer
from vmnest import errors, registry
from vmnest._guest.agentd import frames
from vmnest.agent.results import ExecResult
from vmnest.sandbox import Sandbox
from vmnest.sandbox.link import Link

HEALTHY = json_answer(200, {"status": "ok", "version": "1", "features": []})


@pytest.fixture
def records(tmp_path: Path) -> registry.Registry:
    return registry.Registry(str(tmp_path / "state.json"))


@pytest.fixture
def control(shared_agent: Agent) -> FakeControl:
    return FakeControl(shared_agent.url)


@pytest.fixture
def sandbox(control: FakeControl, records: registry.Registry) -> Sandbox:
    return make_sandbox(control, records)


def attach(control: FakeControl, records: registry.Registry, *, auto_resume: bool = True) -> Sandbox:
    """The same sandbox as another process would see it."""
    place: Any = FakePlace(control)
    return Sandbox(Link(records.require("demo"), place=place, records=records, auto_resume=auto_resume))


# -- commands ----------------------------------------------------------------------------------------------------------


def test_a_status_other_than_0_is_a_result_unless_it_is_checked(sandbox: Sandbox) -> None:
    assert sandbox.exec("sh", ["-c", "echo out; echo err >&2; exit 3"]) == ExecResult(3, b"out\n", b"err\n")
    with pytest.raises(errors.CommandFailedError, match="status 3") as caught:
        sandbox.exec("sh", ["-c", "echo out; echo so >&2; printf 'no\\033[1m file\\n' >&2; exit 3"], check=True)
    assert caught.value.result == ExecResult(3, b"out\n", b"so\nno\x1b[1m file\n")
    assert caught.value.message == "sh ended with status 3: no [1m file"
    assert sandbox.exec("true", check=True).success


def test_death_by_a_signal_is_128_and_its_number(sandbox: Sandbox) -> None:
    result = sandbox.exec("sh", ["-c", "kill -9 $$"])
    assert (result.exit_code, result.signal) == (137, "SIGKILL")
    with pytest.raises(errors.CommandFailedError, match="SIGKILL"):
        sandbox.exec("sh", ["-c", "kill -9 $$"], check=True)


def test_a_timeout_carries_what_the_command_left(sandbox: Sandbox) -> None:
    with pytest.raises(errors.CommandTimedOutError) as caught:
        sandbox.exec("sh", ["-c", "echo a; sleep 5"], timeout=0.5)
    assert (caught.value.result.stdout, caught.value.result.timed_out) == (b"a\n", True)


def test_variables_arrive_byte_for_byte(sandbox: Sandbox) -> None:
    value = "a\"b\nc=d $HOME 'é'"
    assert sandbox.exec("printenv", ["X"], env={"X": value}).stdout == value.encode() + b"\n"


def test_standard_input_is_empty(sandbox: Sandbox) -> None:
    assert sandbox.exec("cat", timeout=10) == ExecResult(0, b"", b"")


def test_a_shell_line_is_run_by_bash_or_sh(sandbox: Sandbox) -> None:
    assert sandbox.shell("x=1; echo $((x + 1)) | cat").stdout == b"2\n"
    assert sandbox.shell("cat <<'E'\na $b\nE\n").stdout == b"a $b\n"
    with pytest.raises(errors.CommandFailedError):
        sandbox.shell("exit 4", check=True)


def test_a_shell_line_is_text(sandbox: Sandbox) -> None:
    with pytest.raises(errors.BadArgumentError, match="command"):
        sandbox.shell("a\0b")


# -- processes ---------------------------------------------------------------------------------------------------------


def test_a_process_is_started_listed_and_attached_to_from_another_process(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry
) -> None:
    with sandbox.spawn("sh", ["-c", "echo one; read line; echo two; exit 5"], stdin=True, id="job-1") as process:
        assert process.id == "job-1"
        process.detach()
    stranger = attach(control, records)
    assert [info.id for info in stranger.processes() if info.is_running] == ["job-1"]
    attached = stranger.attach_process("job-1")
    attached.write(b"go\n")
    assert b"".join(chunk.data for chunk in attached) == b"one\ntwo\n"
    assert attached.exit_code == 5
    assert [chunk.data for chunk in stranger.attach_process("job-1", offset=4)] == [b"two\n"]
    assert stranger.attach_process("job-1").wait() == 5


def test_an_id_that_is_in_use_attaches_and_runs_nothing(sandbox: Sandbox) -> None:
    first = sandbox.spawn("sh", ["-c", "echo first"], id="twice")
    assert first.wait() == 0
    assert [chunk.data for chunk in sandbox.spawn("sh", ["-c", "echo second"], id="twice")] == [b"first\n"]


def test_a_line_of_shell_can_be_spawned(sandbox: Sandbox) -> None:
    assert [line.text for line in sandbox.spawn("echo $((1 + 1)) | cat", shell=True).lines()] == ["2"]
    with pytest.raises(errors.UsageError, match="arguments"):
        sandbox.spawn("echo", ["x"], shell=True)


def test_commands_can_have_input_limits_and_functions_for_their_output(sandbox: Sandbox) -> None:
    seen: list[bytes] = []
    result = sandbox.shell(
        "wc -c; ulimit -n; echo err >&2", stdin=b"12345", rlimits={"nofile": 77}, on_stderr=seen.append
    )
    assert result.stdout.split() == [b"5", b"77"]
    assert seen == [b"err\n"]


def test_a_process_that_nobody_knows_is_not_found(sandbox: Sandbox) -> None:
    with pytest.raises(errors.ProcessNotFoundError) as caught:
        sandbox.attach_process("nobody")
    assert caught.value.exit_status == 3


@pytest.mark.parametrize("offset", [-1, True, 1.0, "1"])
def test_an_offset_is_a_number_of_bytes(sandbox: Sandbox, offset: Any) -> None:
    with pytest.raises(errors.UsageError, match="offset"):
        sandbox.attach_process("x", offset=offset)


@pytest.mark.parametrize("retain", ["keep", "", None])
def test_what_is_to_become_of_output_has_two_names(sandbox: Sandbox, retain: Any) -> None:
    with pytest.raises(errors.UsageError, match="retain"):
        sandbox.spawn("true", retain=retain)


def test_an_agent_without_processes_names_the_feature(records: registry.Registry) -> None:
    with ScriptedServer(HEALTHY) as server:  # which says what it has
        other = make_sandbox(FakeControl(server.url), records)
        for use in (lambda: other.spawn("x"), other.processes, lambda: other.attach_process("x")):
            with pytest.raises(errors.UnsupportedError, match="processes") as caught:
                use()
            assert caught.value.details["feature"] == "processes"


def test_fifty_commands_at_once_keep_their_outputs_apart(sandbox: Sandbox, control: FakeControl) -> None:
    with ThreadPoolExecutor(25) as pool:
        results = list(pool.map(lambda number: sandbox.exec("echo", [str(number)]).stdout, range(50)))
    assert results == [b"%d\n" % number for number in range(50)]
    assert len(control.mints) == 1


def test_the_working_directory_is_the_agents_unless_it_is_set(
    control: FakeControl, records: registry.Registry, shared_agent: Agent, tmp_path: Path
) -> None:
    assert make_sandbox(control, records).exec("pwd").stdout_text.strip() == str(shared_agent.workdir)
    records.remove("demo")
    workdir = tmp_path / "made" / "for it"
    sandbox = make_sandbox(control, records, environ={"AGENT_SANDBOX_WORKDIR": str(workdir)})
    assert sandbox.exec("pwd").stdout_text.strip() == str(workdir)
    assert sandbox.exec("pwd", cwd="/").stdout_text.strip() == "/"
    sandbox.files.write("sub/file", b"x")
    assert (workdir / "sub" / "file").read_bytes() == b"x"
    assert sandbox.exec("pwd", cwd="sub").stdout_text.strip() == str(workdir / "sub")
    with sandbox.spawn("cat", ["sub/file"]) as process:
        assert process.communicate().stdout == b"x"


def test_a_process_that_is_watched_from_its_start_costs_one_request(records: registry.Registry) -> None:
    document = {
        "id": "job-1", "command": ["echo", "hi"], "pid": 7, "state": "running", "pty": False, "stdin": "none",
        "retain": "block", "offset": 0, "oldest": 0,
    }  # fmt: skip
    end = {"exit_code": 5, "signal": None, "timed_out": False, "offset": 3}
    told = (
        frames.encode(frames.PROCESS, json.dumps(document).encode())
        + frames.encode(frames.STDOUT, b"hi\n")
        + frames.encode(frames.EXIT, json.dumps(end).encode())
    )
    healthy = json_answer(200, {"status": "ok", "version": "1", "features": ["processes"]})
    with ScriptedServer(healthy, answer(200, told)) as server:
        sandbox = make_sandbox(FakeControl(server.url), records)
        process = sandbox.spawn("echo", ["hi"], watch=True, id="job-1")
        assert (process.id, process.pid, process.exit_code) == ("job-1", 7, None)
        assert [(chunk.stream, chunk.data) for chunk in process] == [("stdout", b"hi\n")]
        assert process.wait() == 5
    assert [request.target.partition("?")[0] for request in server.requests] == ["/healthz", "/v1/processes"]


def test_files_have_their_upstream_names_too(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.write_file(str(tmp_path / "f"), b"\xff")
    assert sandbox.read_file(str(tmp_path / "f")) == sandbox.files.read(str(tmp_path / "f")) == b"\xff"


def in_child(action: Callable[[], bool]) -> int:
    """Fork, and return the child's id; it exits with 0 if the action comes out true."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if action() else 2
        finally:
            os._exit(status)
    return child


def status_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_children_forked_while_threads_use_it_use_it_too(sandbox: Sandbox) -> None:
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            assert sandbox.exec("true").success

    with ThreadPoolExecutor(4) as pool:
        busy = [pool.submit(work) for _ in range(4)]
        try:
            children = [
                in_child(lambda: sandbox.exec("echo", ["child"], timeout=20).stdout == b"child\n") for _ in range(8)
            ]
            assert [status_of(child) for child in children] == [0] * 8
        finally:
            stop.set()
        for each in busy:
            each.result()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_another_thread_makes_it_ready_does_not_wait_for_that_thread(
    sandbox: Sandbox, control: FakeControl
) -> None:
    sandbox.suspend()
    with sandbox._link.waking.held(), sandbox._link._changing.held():
        child = in_child(lambda: sandbox.exec("echo", ["child"], timeout=20).stdout == b"child\n")
        assert status_of(child) == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # a child of a threaded process is the case here
def test_it_can_be_used_in_a_forked_child_and_in_its_parent(sandbox: Sandbox) -> None:
    sandbox.exec("true")
    child = in_child(lambda: sandbox.exec("echo", ["child"]).stdout == b"child\n")
    assert sandbox.exec("echo", ["parent"]).stdout == b"parent\n"
    assert status_of(child) == 0
    assert sandbox.exec("echo", ["parent"]).stdout == b"parent\n"


# -- life --------------------------------------------------------------------------------------------------------------


def test_leaving_the_block_ends_it_and_forgets_its_name(control: FakeControl, records: registry.Registry) -> None:
    with make_sandbox(control, records) as sandbox:
        assert control.microvms.alive == ["microvm-1"]
    assert control.microvms.alive == []
    assert records.all() == []
    assert sandbox.state == "TERMINATING"  # as the service says then; a state never goes back


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_leaves_its_parents_block_ends_nothing(control: FakeControl, records: registry.Registry) -> None:
    with contextlib.ExitStack() as block:
        block.enter_context(make_sandbox(control, records))

        def leave() -> bool:
            block.close()
            return control.microvms.alive == ["microvm-1"]

        assert status_of(in_child(leave)) == 0
        assert len(records.all()) == 1
    assert records.all() == []


def test_an_error_in_the_block_is_the_one_that_is_raised(control: FakeControl, records: registry.Registry) -> None:
    with pytest.raises(ZeroDivisionError), make_sandbox(control, records):
        _ = 1 / 0
    assert control.microvms.alive == []


def test_an_error_in_the_block_outlasts_a_failing_end_and_tells_of_it(
    control: FakeControl, records: registry.Registry, caplog: pytest.LogCaptureFixture
) -> None:
    control.microvms.failures["terminate"] = [errors.ConnectError("no network"), errors.ConnectError("no network")]
    with pytest.raises(errors.CommandFailedError) as caught, make_sandbox(control, records) as sandbox:
        sandbox.exec("false", check=True)
    assert "no network" in (caught.value.hint or "")
    assert "vmnest rm demo" in (caught.value.hint or "")
    with pytest.raises(ZeroDivisionError), attach(control, records):
        _ = 1 / 0
    assert "vmnest rm demo" in caplog.text
    control.microvms.failures["terminate"] = [errors.ConnectError("no network")]
    with pytest.raises(errors.ConnectError), attach(control, records):
        pass


@pytest.mark.parametrize("verb", ["stop", "terminate", "kill"])
def test_ending_it_again_is_fine_and_so_is_ending_what_is_gone(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry, verb: str
) -> None:
    control.microvms.known.clear()
    getattr(sandbox, verb)()
    getattr(sandbox, verb)()
    assert records.all() == []


def test_if_the_end_cannot_be_reached_the_record_stays(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry
) -> None:
    control.microvms.failures["terminate"] = [errors.ConnectError("no network")]
    with pytest.raises(errors.ConnectError):
        sandbox.terminate()
    assert records.get("demo") is not None
    sandbox.terminate()
    assert records.get("demo") is None


def test_ending_one_does_not_forget_another_that_has_its_name_by_now(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry
) -> None:
    other = registry.Record("demo", microvm_id="microvm-9", client_token="u")
    records.put(other, replace=True)
    sandbox.terminate()
    assert records.require("demo") == other


def test_ending_a_launch_that_was_cut_off_ends_its_microvm(control: FakeControl, records: registry.Registry) -> None:
    sandbox = make_sandbox(control, records)
    cut_off(sandbox, control, records)
    attach(control, records).terminate()
    assert control.microvms.alive == []
    assert records.all() == []


def test_after_its_end_nothing_is_sent(sandbox: Sandbox) -> None:
    sandbox.terminate()
    with pytest.raises(errors.MicroVMEndedError, match="demo"):
        sandbox.exec("true")
    with pytest.raises(errors.MicroVMEndedError):
        sandbox.files.read("/etc/hostname")


def test_suspended_and_resumed_it_goes_on(sandbox: Sandbox, control: FakeControl, records: registry.Registry) -> None:
    sandbox.suspend()
    assert sandbox.state == "SUSPENDED"
    assert records.require("demo").state_hint == "SUSPENDED"
    sandbox.start()
    assert sandbox.state == "RUNNING"
    assert records.require("demo").state_hint == "RUNNING"
    assert control.microvms.calls == ["run", "suspend", "get", "resume"]


@pytest.mark.parametrize("verb", ["suspend", "resume"])
def test_a_state_that_cannot_be_had_since_it_has_ended_says_so(
    sandbox: Sandbox, control: FakeControl, verb: str
) -> None:
    control.microvms.change(sandbox.microvm_id, state="TERMINATED")
    control.microvms.failures[verb] = [errors.ValidationError("its state", operation="X", status=400)]
    with pytest.raises(errors.MicroVMEndedError):
        getattr(sandbox, verb)()


def test_what_it_uses_is_told_and_asking_never_wakes_it(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry
) -> None:
    found = sandbox.stats()
    assert found.cpus is not None
    assert found.memory.percent is not None
    control.microvms.change("microvm-1", state="SUSPENDED")
    control.microvms.calls.clear()
    for one in (sandbox, attach(control, records)):
        with pytest.raises(errors.SandboxSuspendedError):
            one.stats()
    assert control.microvms.calls == ["get", "get"]
    control.microvms.change("microvm-1", state="TERMINATED")
    with pytest.raises(errors.MicroVMEndedError):
        sandbox.stats()


def test_what_is_known_to_be_suspended_is_resumed_on_use_by_any_process(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry
) -> None:
    sandbox.suspend()
    other = attach(control, records)
    assert other.exec("echo", ["hi"]).stdout == b"hi\n"
    assert control.microvms.calls[-1] == "resume"
    assert other.files.write("x", b"") == 0
    assert control.microvms.calls.count("resume") == 1


def test_a_sandbox_of_which_no_use_may_resume_it_refuses_until_it_is_resumed(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry
) -> None:
    other = attach(control, records, auto_resume=False)
    assert other.exec("true").success
    control.microvms.change(sandbox.microvm_id, state="SUSPENDED")
    mints, calls = len(control.mints), len(control.microvms.calls)
    for use in (lambda: other.exec("true"), lambda: other.files.read("x"), lambda: other.files.write("x", b"")):
        with pytest.raises(errors.SandboxSuspendedError):
            use()
    assert len(control.mints) == mints
    assert set(control.microvms.calls[calls:]) == {"get"}
    other.resume()
    assert other.exec("true").success


def test_a_wait_is_for_its_end_unless_something_else_is_named(sandbox: Sandbox, control: FakeControl) -> None:
    control.microvms.upcoming = ["RUNNING"]
    assert sandbox.wait("RUNNING", "SUSPENDED", timeout=5) == "RUNNING"
    control.microvms.upcoming = ["TERMINATING", "TERMINATED"]
    assert sandbox.wait(timeout=5) == sandbox.state == "TERMINATED"
    with pytest.raises(errors.UsageError):
        sandbox.wait("DONE")


def test_suspending_what_ends_is_an_error_with_the_reason(sandbox: Sandbox, control: FakeControl) -> None:
    original = control.microvms.suspend

    def suspend(microvm_id: str, **options: Any) -> None:
        original(microvm_id, **options)
        control.microvms.change(microvm_id, state="TERMINATED", state_reason="the hook said 500")

    control.microvms.suspend = suspend  # type: ignore[method-assign]
    with pytest.raises(errors.MicroVMEndedError, match="the hook said 500"):
        sandbox.suspend()


@pytest.mark.parametrize("after_the_end", [False, True])
def test_a_block_whose_end_is_interrupted_is_ended_all_the_same(
    sandbox: Sandbox, control: FakeControl, records: registry.Registry, after_the_end: bool
) -> None:
    original = control.microvms.terminate

    def terminate(microvm_id: str, **options: Any) -> bool:
        control.microvms.terminate = original  # type: ignore[method-assign]
        if after_the_end:
            original(microvm_id, **options)
        raise KeyboardInterrupt

    control.microvms.terminate = terminate  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt), sandbox:
        pass
    assert control.microvms.calls == ["run", *["terminate"] * (1 + after_the_end)]
    assert records.all() == []


# -- launches that were cut off ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [lambda it: it.exec("true"), lambda it: it.files.write("x", b""), lambda it: it.inspect(), lambda it: it.refresh(),
     lambda it: it.suspend(), lambda it: it.resume(), lambda it: it.wait("PENDING", timeout=5),
     lambda it: it.microvm_id, lambda it: it.endpoint],
    ids=["exec", "files", "inspect", "refresh", "suspend", "resume", "wait", "microvm_id", "endpoint"],
)  # fmt: skip
def test_a_launch_that_was_cut_off_is_completed_by_any_use(
    control: FakeControl, records: registry.Registry, use: Any
) -> None:
    sandbox = make_sandbox(control, records)
    cut_off(sandbox, control, records)
    if use.__code__.co_names[-1] == "suspend":
        control.microvms.change("microvm-1", state="RUNNING")
    adopted = attach(control, records)
    use(adopted)
    assert control.microvms.calls[0] == "run"
    assert control.microvms.alive == ["microvm-1"]
    record = records.require("demo")
    assert (record.microvm_id, record.endpoint, record.launch) == ("microvm-1", control.microvms.endpoint, None)
    assert adopted.microvm_id == "microvm-1"


def test_twenty_threads_complete_it_once(sandbox: Sandbox, control: FakeControl, records: registry.Registry) -> None:
    cut_off(sandbox, control, records)
    adopted = attach(control, records)
    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(lambda number: adopted.exec("echo", [str(number)]).stdout, range(20)))
    assert results == [b"%d\n" % number for number in range(20)]
    assert control.microvms.calls == ["run"]
    assert len(control.mints) == 2  # the creator's, and one for all of these


def test_a_sandbox_found_while_it_is_launched_is_one_and_the_same(
    control: FakeControl, records: registry.Registry
) -> None:
    """Another process uses the name after RunMicrovm was sent, and before its answer is recorded."""
    original = control.microvms.run
    found: list[str] = []

    def run(spec: Any, **options: Any) -> Any:
        microvm = original(spec, **options)
        if not found:
            found.append("")
            found.append(attach(control, records).exec("echo", ["early"]).stdout_text)
        return microvm

    control.microvms.run = run  # type: ignore[method-assign]
    sandbox = make_sandbox(control, records)
    assert found[1] == "early\n"
    assert sandbox.exec("true").success
    assert control.microvms.alive == ["microvm-1"]
    assert records.all() == [sandbox.record]


# -- looking -----------------------------------------------------------------------------------------------------------


def test_state_is_what_was_seen_last_and_refresh_asks(sandbox: Sandbox, control: FakeControl) -> None:
    control.microvms.change("microvm-1", state="SUSPENDED")
    assert sandbox.state == "RUNNING"
    assert sandbox.refresh() == sandbox.state == "SUSPENDED"


def test_inspect_shows_what_the_service_says(sandbox: Sandbox) -> None:
    assert sandbox.inspect()["microvmId"] == "microvm-1"


def test_no_representation_shows_a_token(sandbox: Sandbox) -> None:
    sandbox.exec("true")
    assert repr(sandbox) == "Sandbox('demo', microvm_id='microvm-1', state='RUNNING')"
    assert "token-1" not in repr(vars(sandbox)) + repr(vars(sandbox._link))


# -- finding -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> registry.Registry:
    """A registry that the environment names, with a sandbox on AWS in it; nothing to connect to."""
    path = tmp_path / "elsewhere.json"
    for name in [name for name in os.environ if name.startswith(("AWS_", "AGENT_SANDBOX_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(path))
    records = registry.Registry(str(path))
    records.put(registry.Record("old", microvm_id="microvm-1", endpoint="vm.example", region="eu-west-1"))
    return records


def test_a_recorded_sandbox_is_found_by_its_name_without_asking_anybody(elsewhere: registry.Registry) -> None:
    for sandbox in (Sandbox.get("old"), Sandbox.attach("old")):
        assert (sandbox.microvm_id, sandbox.endpoint) == ("microvm-1", "https://vm.example")
        assert not sandbox.is_local
    assert Sandbox.get("old", region="us-east-2").record == elsewhere.require("old")


def test_an_unknown_name_is_not_found(elsewhere: registry.Registry) -> None:
    with pytest.raises(errors.SandboxNotFoundError, match="nobody"):
        Sandbox.get("nobody")
    assert [record.name for record in elsewhere.all()] == ["old"]


def test_a_microvm_that_nobody_recorded_can_be_attached(elsewhere: registry.Registry) -> None:
    sandbox = Sandbox.attach("mine", "microvm-7", endpoint="vm7.example", region="us-east-1", agent_port=9999)
    assert (sandbox.name, sandbox.microvm_id, sandbox.endpoint) == ("mine", "microvm-7", "https://vm7.example")
    assert sandbox.record.agent_port == 9999
    assert [record.name for record in elsewhere.all()] == ["old"]


def test_use_may_be_kept_from_resuming_it_however_it_is_found(elsewhere: registry.Registry) -> None:
    found = (Sandbox.get("old", auto_resume=False), Sandbox.attach("old", auto_resume=False),
             Sandbox.from_record(elsewhere.require("old"), auto_resume=False))  # fmt: skip
    assert [sandbox._link.auto_resume for sandbox in found] == [False] * 3


@pytest.mark.parametrize("target", ["gcp", "", "AWS"])
def test_a_target_of_a_newer_version_is_refused_and_not_taken_for_aws(
    elsewhere: registry.Registry, target: str
) -> None:
    elsewhere.put(registry.Record("far", microvm_id="microvm-2", target=target, region="us-east-1"))
    for find in (Sandbox.get, Sandbox.attach):
        with pytest.raises(errors.UnsupportedError, match="does not know") as caught:
            find("far")
        assert "version that made it" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["", "../x", "a\n", "x" * 64, "-a"])
def test_a_name_that_no_sandbox_may_have_is_refused(elsewhere: registry.Registry, name: str) -> None:
    with pytest.raises(errors.UsageError, match="name"):
        Sandbox.create(name, image_arn="demo", region="us-east-1")


def test_without_an_image_there_is_nothing_to_start(elsewhere: registry.Registry) -> None:
    with pytest.raises(errors.UsageError, match="image"):
        Sandbox.create("new", region="us-east-1")
    assert [record.name for record in elsewhere.all()] == ["old"]
