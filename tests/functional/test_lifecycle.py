"""The life of a sandbox from the outside: the command line as real processes, the SDK, and a real local cloud."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import descriptors
from tests.support.cli import Cli, bare_environ
from tests.support.cloud import LocalCloud, living_processes, open_cloud
from tests.support.paths import ROOT
from vmnest import IdlePolicy, Sandbox, errors, registry

WAIT_SECONDS = 30.0
IDLE_SECONDS = 60  # the shortest that the service takes: who waits for it begins first, and is looked at last
DAY = "2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9:]+[+]00:00"


@pytest.fixture(scope="module")
def cli(shared_cloud: LocalCloud) -> Cli:
    return Cli({**bare_environ(shared_cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": shared_cloud.folder})


@pytest.fixture(scope="module", autouse=True)
def quiet_command(cli: Cli) -> Iterator[subprocess.Popen[bytes]]:
    """A command that says nothing for longer than its sandbox may be idle; beside it, a sandbox that is left alone."""
    for name in ("left-alone", "quiet"):
        assert cli("create", name, "--local", "--idle", str(IDLE_SECONDS)).status == 0
    with cli.start("exec", "quiet", "--", "sh", "-c", f"sleep {IDLE_SECONDS + 12}; echo done") as command:
        yield command
        command.kill()
    assert cli("rm", "left-alone", "quiet").status == 0


@pytest.fixture
def box(cli: Cli, request: pytest.FixtureRequest) -> Iterator[str]:
    """A sandbox of the test's own."""
    name = re.sub("[^a-z]+", "-", request.node.name.removeprefix("test_"))[:60].strip("-")
    assert cli("create", name, "--local").status == 0
    yield name
    cli("rm", name)


@pytest.fixture
def records(shared_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> registry.Registry:
    """The cloud in this process's environment, and a registry of the test's own."""
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", shared_cloud.folder)
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    return registry.Registry(str(tmp_path / "state.json"))


@pytest.fixture
def sandbox(records: registry.Registry) -> Iterator[Sandbox]:
    with Sandbox.create("box", local=True) as sandbox:
        yield sandbox


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def wait_until_it_asks(process: subprocess.Popen[bytes]) -> None:
    """It has got as far as a connection to the cloud."""

    def has_socket() -> bool:
        return any(target.startswith("socket:") for target in descriptors.targets(process.pid))

    wait_for(has_socket)


def state(cli: Cli, name: str) -> str:
    found = cli("ps", name, "--json").data["state"]
    assert isinstance(found, str)
    return found


def suspend_behind_our_back(cloud: LocalCloud, microvm_id: str) -> None:
    """As the service does by itself when a sandbox is idle: nothing of it is recorded here."""
    service = cloud.client()
    service.suspend_microvm(microvmIdentifier=microvm_id)
    wait_for(lambda: service.get_microvm(microvmIdentifier=microvm_id)["state"] == "SUSPENDED")


def start_counting(run: Callable[[str], object]) -> None:
    """A process that lives on in the sandbox and writes a number every 50 ms."""
    run("setsid sh -c 'n=0; while :; do n=$((n+1)); echo $n; sleep 0.05; done' </dev/null >counted 2>&1 & echo $! >pid")


# -- stop and start ----------------------------------------------------------------------------------------------------


def test_stop_and_start_keep_files_and_processes_and_nothing_runs_meanwhile(cli: Cli, box: str) -> None:
    def run(line: str) -> str:
        done = cli("exec", box, "--", "sh", "-c", line)
        assert (done.status, done.remarks) == (0, "")
        return done.text

    start_counting(run)
    wait_for(lambda: run("wc -l <counted").strip() != "0")
    stopped = cli("stop", box, "--json")
    assert stopped.status == 0
    assert state(cli, box) == "SUSPENDED"
    [row] = [line for line in cli("ls").text.splitlines() if line.startswith(f"{box} ")]
    assert "SUSPENDED" in row
    time.sleep(2)
    assert cli("start", box).status == 0
    assert state(cli, box) == "RUNNING"
    # A loop that had gone on for those two seconds would have counted forty more.
    count = int(run("cat counted | wc -l"))
    wait_for(lambda: int(run("cat counted | wc -l")) > count)
    numbers = [int(line) for line in run("cat counted").split()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert run("kill -0 $(cat pid) && echo lives") == "lives\n"


def test_what_is_stopped_on_purpose_can_be_told_from_what_is_idle(cli: Cli, box: str, shared_cloud: LocalCloud) -> None:
    microvm_id = cli("ps", box, "--json").data["microvm_id"]
    suspend_behind_our_back(shared_cloud, microvm_id)
    shown = cli("ps", box, "--json").data
    assert (shown["state"], shown["stopped_at"]) == ("SUSPENDED", None)
    assert cli("stop", box).status == 0
    shown = cli("ps", box, "--json").data
    assert shown["state"] == "SUSPENDED"
    assert re.fullmatch(DAY, shown["stopped_at"])
    assert cli("start", box).status == 0
    assert cli("ps", box, "--json").data["stopped_at"] is None


def test_stop_and_start_are_fine_when_it_is_so_already(cli: Cli, box: str) -> None:
    assert cli("start", box).status == 0
    assert cli("stop", box).status == 0
    assert cli("stop", box).status == 0
    assert state(cli, box) == "SUSPENDED"
    assert cli("start", box).status == 0
    assert cli("start", box).status == 0


@pytest.mark.parametrize("verb", ["stop", "start", "wait", "inspect"])
def test_who_is_not_there_is_not_found(cli: Cli, verb: str) -> None:
    done = cli(verb, "nobody")
    assert (done.status, done.text) == (3, "")
    assert len(done.remarks.splitlines()) <= 2
    assert cli(verb, "nobody", "--json").error["code"] == "sandbox_not_found"


@pytest.mark.parametrize("verb", ["stop", "start"])
def test_what_has_ended_is_told_with_its_reason(cli: Cli, box: str, shared_cloud: LocalCloud, verb: str) -> None:
    microvm_id = cli("ps", box, "--json").data["microvm_id"]
    shared_cloud.client().terminate_microvm(microvmIdentifier=microvm_id)
    assert cli("wait", box, "--timeout", "20").status == 0
    done = cli(verb, box)
    assert (done.status, done.text) == (1, "")
    assert "it was ended by a request" in done.remarks
    assert "Traceback" not in done.remarks


def test_a_stopped_sandbox_is_removed_as_it_is(cli: Cli, box: str, shared_cloud: LocalCloud) -> None:
    microvm_id = cli("ps", box, "--json").data["microvm_id"]
    assert cli("stop", box).status == 0
    assert cli("rm", box).status == 0
    service = shared_cloud.client()
    wait_for(lambda: service.get_microvm(microvmIdentifier=microvm_id)["state"] == "TERMINATED")
    assert service.get_microvm(microvmIdentifier=microvm_id)["stateReason"] == "Success."
    wait_for(lambda: not leftovers(microvm_id))


# -- use of what is suspended ------------------------------------------------------------------------------------------


def test_use_resumes_it(cli: Cli, box: str) -> None:
    assert cli("exec", box, "--", "sh", "-c", "echo kept >note").status == 0
    assert cli("stop", box).status == 0
    done = cli("exec", box, "--", "cat", "note")
    assert (done.status, done.text, done.remarks) == (0, "kept\n", "")
    shown = cli("ps", box, "--json").data
    assert (shown["state"], shown["stopped_at"]) == ("RUNNING", None)


@pytest.mark.parametrize("options", [[], ["--no-auto-resume"]], ids=["by itself", "not by itself"])
def test_use_resumes_what_the_service_suspended(cli: Cli, shared_cloud: LocalCloud, options: list[str]) -> None:
    name = "idle-" + str(len(options))
    made = cli("create", name, "--local", "--json", *options).data
    try:
        assert made["idle_policy"]["auto_resume_enabled"] is not bool(options)
        suspend_behind_our_back(shared_cloud, made["microvm_id"])
        done = cli("exec", name, "--", "echo", "hi")
        assert (done.status, done.text, done.remarks) == (0, "hi\n", "")
        assert state(cli, name) == "RUNNING"
    finally:
        assert cli("rm", name).status == 0


@pytest.mark.parametrize("how", ["on purpose", "idle"])
def test_no_resume_refuses_and_leaves_it_asleep(cli: Cli, box: str, shared_cloud: LocalCloud, how: str) -> None:
    if how == "idle":
        suspend_behind_our_back(shared_cloud, cli("ps", box, "--json").data["microvm_id"])
    else:
        assert cli("stop", box).status == 0
    done = cli("exec", box, "--no-resume", "--", "true")
    assert (done.status, done.text) == (125, "")
    assert f"vmnest start {box}" in done.remarks
    assert cli("exec", box, "--no-resume", "--json", "--", "true").error["code"] == "suspended"
    assert state(cli, box) == "SUSPENDED"
    assert cli("start", box).status == 0
    assert cli("exec", box, "--no-resume", "--", "true").status == 0


def test_reading_verbs_wake_nothing(cli: Cli, box: str) -> None:
    assert cli("stop", box).status == 0
    for words in (["ls"], ["ps", box], ["inspect", box], ["wait", box, "--state", "SUSPENDED"], ["local", "status"]):
        assert cli(*words).status == 0
    assert cli("wait", box, "--timeout", "0.3").status == 1
    assert state(cli, box) == "SUSPENDED"


def test_a_command_that_is_watched_sleeps_with_its_sandbox_and_goes_on_with_it(cli: Cli, box: str) -> None:
    with cli.start("exec", box, "--", "sh", "-c", "touch begun; sleep 3; echo done; exit 7") as command:
        assert command.stderr is not None
        wait_for(lambda: cli("exec", box, "--", "test", "-e", "begun").status == 0)
        assert cli("stop", box).status == 0
        assert b"suspended" in command.stderr.readline()
        # Whoever waits for it does not wake it.
        assert state(cli, box) == "SUSPENDED"
        assert command.poll() is None
        assert cli("start", box).status == 0
        out, _ = command.communicate(timeout=WAIT_SECONDS)
    assert (command.returncode, out) == (7, b"done\n")


# -- wait and inspect --------------------------------------------------------------------------------------------------


def test_wait_returns_when_another_process_ends_it(cli: Cli, box: str) -> None:
    with cli.start("wait", box) as waiting:
        wait_until_it_asks(waiting)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.5)
        assert cli("rm", box).status == 0
        _, err = waiting.communicate(timeout=WAIT_SECONDS)
    assert (waiting.returncode, err) == (0, b"")


def test_wait_returns_at_the_state_that_was_asked_for(cli: Cli, box: str) -> None:
    with cli.start("wait", box, "--state", "SUSPENDED", "--state", "TERMINATED", "--json") as waiting:
        assert cli("stop", box).status == 0
        out, err = waiting.communicate(timeout=WAIT_SECONDS)
    assert (waiting.returncode, err) == (0, b"")
    assert json.loads(out)["state"] == "SUSPENDED"


def test_wait_fails_when_what_was_asked_for_cannot_come_any_more(cli: Cli, box: str) -> None:
    with cli.start("wait", box, "--state", "SUSPENDED") as waiting:
        wait_until_it_asks(waiting)
        assert cli("rm", box).status == 0
        out, err = waiting.communicate(timeout=WAIT_SECONDS)
    assert (waiting.returncode, out) == (1, b"")
    assert b"TERMINAT" in err


def test_wait_has_its_limits(cli: Cli, box: str) -> None:
    assert cli("wait", box, "--timeout", "0.2").status == 1
    assert cli("wait", box, "--timeout", "0.2", "--json").error["code"] == "timed_out"
    assert cli("wait", box, "--state", "ASLEEP").status == 2
    with cli.start("wait", box) as waiting:
        wait_until_it_asks(waiting)
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=WAIT_SECONDS)
    assert (waiting.returncode, out) == (130, b"")
    assert b"Traceback" not in err


def test_inspect_tells_all_and_no_secret(cli: Cli, box: str, shared_cloud: LocalCloud) -> None:
    done = cli("inspect", box)
    data = json.loads(done.text)
    assert cli("inspect", box, "--json").data == data
    said = json.dumps(data)
    assert data["name"] == box
    assert data["microvm_id"] in said
    for word in ("isolation", "enforced", "idle_policy", "expires_at"):
        assert f'"{word}"' in said
    assert "client_token" not in said
    assert shared_cloud.keys.secret_key not in said


def test_limits_are_enforced_and_inspect_says_by_what(cli: Cli) -> None:
    details = cli("create", "small", "--local", "--memory", "256", "--cpus", "1", "--json").data["local_details"]
    assert details["enforced"] in {"cgroup", "watch"}
    try:
        hog = "x = bytearray(2 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('all of it')"
        done = cli("exec", "small", "--", "python3", "-c", hog)
        assert done.status != 0
        assert "all of it" not in done.text
        assert cli("wait", "small", "--timeout", "20").status == 0
        assert "memory" in cli("ps", "small", "--json").data["state_reason"].lower()
    finally:
        assert cli("rm", "small").status == 0


def test_a_life_ends_at_its_maximum_even_if_it_is_spent_asleep(cli: Cli) -> None:
    made = cli("create", "short", "--local", "--max-duration", "4s", "--json").data
    try:
        assert made["max_duration_seconds"] == 4
        assert cli("stop", "short").status == 0
        assert cli("wait", "short", "--timeout", "20").status == 0
        assert cli("ps", "short", "--json").data["state_reason"] == "MicroVM exceeded maximum lifetime."
        done = cli("exec", "short", "--", "true")
        assert done.status == 125
        assert "MicroVM exceeded maximum lifetime." in done.remarks
    finally:
        assert cli("rm", "short").status == 0


# -- making ------------------------------------------------------------------------------------------------------------


def test_what_create_is_told_is_what_the_service_says(cli: Cli, shared_cloud: LocalCloud) -> None:
    words = ["--idle", "2m", "--suspended-for", "1h", "--max-duration", "2h", "--no-auto-resume"]
    made = cli("create", "told", "--local", "--label", "team=a", "--label", "n=1", *words, "--json").data
    try:
        said = shared_cloud.client().get_microvm(microvmIdentifier=made["microvm_id"])
        assert said["maximumDurationInSeconds"] == 7200
        assert said["idlePolicy"] == {
            "maxIdleDurationSeconds": 120,
            "suspendedDurationSeconds": 3600,
            "autoResumeEnabled": False,
        }
        assert made["labels"] == {"team": "a", "n": "1"}
        assert [each["name"] for each in cli("ls", "--label", "team=a", "--json").data["sandboxes"]] == ["told"]
        assert cli("ls", "--label", "team=b", "--json").data["sandboxes"] == []
    finally:
        assert cli("rm", "told").status == 0


def test_every_sandbox_has_an_end_though_nobody_asked_for_one(cli: Cli, box: str, shared_cloud: LocalCloud) -> None:
    said = shared_cloud.client().get_microvm(microvmIdentifier=cli("ps", box, "--json").data["microvm_id"])
    assert said["maximumDurationInSeconds"] == 28800
    assert said["idlePolicy"] == {
        "maxIdleDurationSeconds": 900,
        "suspendedDurationSeconds": 28800,
        "autoResumeEnabled": True,
    }


@pytest.mark.parametrize(
    "words",
    [
        ["--idle", "59"],
        ["--idle", "9h"],
        ["--idle", "60", "--suspend-after", "61"],
        ["--suspended-for", "-1"],
        ["--max-duration", "0"],
        ["--max-duration", "28801"],
        ["--run-payload", "é" * 2049],
        ["--run-payload", "@/no/such/file"],
        ["--label", "no-equals"],
        ["--ingress", "NO_INGRESS"],
        ["--egress"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_refused_before_anything_is_made(
    cli: Cli, shared_cloud: LocalCloud, words: list[str]
) -> None:
    before = set(microvms(shared_cloud))
    done = cli("create", "wrong", "--local", *words)
    assert (done.status, done.text) == (2, "")
    assert "Traceback" not in done.remarks
    assert set(microvms(shared_cloud)) == before
    assert cli("ps", "wrong").status == 3


def test_replace_ends_the_old_one(cli: Cli, box: str, shared_cloud: LocalCloud) -> None:
    before = cli("ps", box, "--json").data
    after = cli("create", box, "--local", "--replace", "--json").data
    assert after["microvm_id"] != before["microvm_id"]
    wait_for(lambda: microvms(shared_cloud)[before["microvm_id"]] == "TERMINATED")
    assert cli("exec", box, "--", "true").status == 0
    assert [each["name"] for each in cli("ls", "--json").data["sandboxes"]].count(box) == 1


def test_replace_is_fine_where_nothing_is_to_be_replaced_or_it_is_gone(cli: Cli, shared_cloud: LocalCloud) -> None:
    made = cli("create", "new", "--local", "--replace", "--json").data
    shared_cloud.client().terminate_microvm(microvmIdentifier=made["microvm_id"])
    assert cli("create", "new", "--local", "--replace").status == 0
    assert cli("rm", "new").status == 0


# -- secrets -----------------------------------------------------------------------------------------------------------


def test_a_secret_arrives_and_shows_nowhere(cli: Cli, box: str, shared_cloud: LocalCloud, tmp_path: Path) -> None:
    secret = "s3cr3t-5f1e"
    with cli.start(
        "exec", box, "--secret", "TOKEN", "--", "sh", "-c", "printenv TOKEN; sleep 2", environ={"TOKEN": secret}
    ) as command:
        wait_until_it_asks(command)
        host = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        out, err = command.communicate(timeout=WAIT_SECONDS)
    assert (command.returncode, out, err) == (0, f"{secret}\n".encode(), b"")
    assert secret not in host
    found = subprocess.run(["grep", "-rlF", secret, shared_cloud.folder], capture_output=True, text=True, check=False)
    assert found.stdout == ""
    done = cli("exec", box, "--secret", "NOT_SET", "--", "true")
    assert (done.status, done.text) == (2, "")
    assert "NOT_SET" in done.remarks


def test_an_environment_file_is_read_as_docker_reads_it(cli: Cli, box: str, tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text('# comment\nA=from file\nB="raw quotes" # kept\nHERE\n\nC=1\nC=2\n')
    words = ["--env-file", str(file), "--secret", "C", "--env", "A=stronger"]
    code = "import os, json; print(json.dumps([os.environ[name] for name in ('A', 'B', 'HERE', 'C')]))"
    done = cli("exec", box, *words, "--", "python3", "-c", code, HERE="here", C="secret")
    assert (done.status, done.remarks) == (0, "")
    assert json.loads(done.text) == ["stronger", '"raw quotes" # kept', "here", "secret"]


# -- the SDK -----------------------------------------------------------------------------------------------------------


def test_the_sdk_suspends_resumes_and_tells(sandbox: Sandbox, records: registry.Registry) -> None:
    sandbox.files.write("note", b"kept")
    sandbox.suspend()
    assert (sandbox.state, sandbox.refresh(), Sandbox.get("box").refresh()) == ("SUSPENDED",) * 3
    assert records.require("box").stopped_at is not None
    assert sandbox.inspect()["state"] == "SUSPENDED"
    sandbox.resume()
    assert (sandbox.state, sandbox.refresh()) == ("RUNNING", "RUNNING")
    assert records.require("box").stopped_at is None
    assert sandbox.files.read("note") == b"kept"


def test_use_resumes_it_whoever_suspended_it(sandbox: Sandbox, shared_cloud: LocalCloud) -> None:
    sandbox.suspend()
    assert sandbox.exec("echo", ["1"]).stdout == b"1\n"
    suspend_behind_our_back(shared_cloud, sandbox.microvm_id)
    assert sandbox.exec("echo", ["2"]).stdout == b"2\n"
    suspend_behind_our_back(shared_cloud, sandbox.microvm_id)
    sandbox.files.write("note", b"3")
    assert sandbox.refresh() == "RUNNING"


def test_use_resumes_what_does_not_resume_by_itself(records: registry.Registry, shared_cloud: LocalCloud) -> None:
    policy = IdlePolicy(max_idle_duration_seconds=60, suspended_duration_seconds=600, auto_resume_enabled=False)
    with Sandbox.create("box", local=True, idle_policy=policy) as sandbox:
        suspend_behind_our_back(shared_cloud, sandbox.microvm_id)
        assert sandbox.exec("echo", ["1"]).stdout == b"1\n"
        suspend_behind_our_back(shared_cloud, sandbox.microvm_id)
        assert Sandbox.get("box").exec("echo", ["2"]).stdout == b"2\n"


def test_who_does_not_want_to_wake_it_does_not(sandbox: Sandbox, shared_cloud: LocalCloud) -> None:
    careful = Sandbox.attach("box", auto_resume=False)
    assert careful.exec("true").success
    suspend_behind_our_back(shared_cloud, sandbox.microvm_id)
    with pytest.raises(errors.SandboxSuspendedError) as caught:
        careful.exec("true")
    assert "vmnest start box" in str(caught.value.hint)
    with pytest.raises(errors.SandboxSuspendedError):
        careful.files.read("note")
    assert careful.refresh() == "SUSPENDED"
    careful.resume()
    assert careful.exec("true").success


def test_many_threads_that_use_a_suspended_sandbox_all_get_their_answer(sandbox: Sandbox) -> None:
    sandbox.suspend()
    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(lambda number: sandbox.exec("echo", [str(number)]).stdout, range(20)))
    assert results == [b"%d\n" % number for number in range(20)]


def test_suspending_and_using_at_once_ends_in_a_sandbox_that_works(sandbox: Sandbox) -> None:
    """Nobody gets an answer that is not theirs, and whoever gets none is told why."""

    def use(number: int) -> object:
        if number % 5 == 4:
            with contextlib.suppress(errors.NotSuspendedError):  # it was woken before anybody saw it asleep
                Sandbox.get("box").suspend()
            return None
        try:
            return Sandbox.get("box").exec("echo", [str(number)], timeout=20).stdout
        except errors.SandboxSuspendedError:  # stopped on purpose since this use began
            return None
        except errors.AgentUnreachableError as error:  # cut off by a suspend: said, not hidden
            return error.details.get("outcome")

    with ThreadPoolExecutor(4) as pool:
        uses = [pool.submit(use, number) for number in range(20)]
        # A command that was there before a stop sleeps with its sandbox: after the last one somebody has to wake them.
        while futures.wait(uses, timeout=1).not_done:
            Sandbox.get("box").resume()
        results = [each.result() for each in uses]
    assert all(result in {None, "unknown", b"%d\n" % number} for number, result in enumerate(results))
    assert sandbox.exec("echo", ["end"]).stdout == b"end\n"


def test_a_fork_and_its_parent_both_use_it(sandbox: Sandbox) -> None:
    program = (
        "import os, sys\n"
        "from vmnest import Sandbox\n"
        "box = Sandbox.get('box')\n"
        "assert box.exec('echo', ['before']).stdout == b'before\\n'\n"
        "child = os.fork()\n"
        "who = 'child' if child == 0 else 'parent'\n"
        "for number in range(20):\n"
        "    word = f'{who}{number}'\n"
        "    assert box.exec('echo', [word]).stdout_text == word + '\\n'\n"
        "if child == 0: os._exit(0)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_wait_tells_the_state_or_why_it_cannot_come(sandbox: Sandbox) -> None:
    with pytest.raises(errors.WaitTimeoutError):
        sandbox.wait(timeout=0.2)
    with pytest.raises(errors.UsageError):
        sandbox.wait("ASLEEP")
    sandbox.suspend()
    assert sandbox.wait("SUSPENDED", "RUNNING", timeout=5) == "SUSPENDED"
    sandbox.resume()
    with ThreadPoolExecutor() as pool:
        ended = pool.submit(Sandbox.get("box").wait, timeout=WAIT_SECONDS)
        cannot = pool.submit(Sandbox.get("box").wait, "SUSPENDED", timeout=WAIT_SECONDS)
        time.sleep(0.3)
        sandbox.terminate()
        assert ended.result() == "TERMINATED"
        with pytest.raises(errors.MicroVMEndedError):
            cannot.result()


def test_a_sandbox_whose_life_is_wished_wrongly_is_not_made(
    records: registry.Registry, shared_cloud: LocalCloud
) -> None:
    before = set(microvms(shared_cloud))
    for wish in (
        {"idle_policy": IdlePolicy(max_idle_duration_seconds=59)},
        {"maximum_duration": 0},
        {"maximum_duration": 28801},
        {"run_payload": "é" * 2049},
        {"ingress_network_connectors": ["NO_INGRESS"]},
        {"egress_network_connectors": ["INTERNET_EGRESS", "INTERNET_EGRESS"]},
    ):
        with pytest.raises(errors.UsageError):
            Sandbox.create("wrong", local=True, **wish)
    assert records.all() == []
    assert set(microvms(shared_cloud)) == before


# -- while the daemon dies ---------------------------------------------------------------------------------------------


def test_two_panes_and_a_daemon_that_is_killed() -> None:
    """One uses a sandbox, another stops and starts it; then the daemon is killed, and both go on."""
    with open_cloud() as cloud:
        cli = Cli({**bare_environ(cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": cloud.folder})
        made = cli("create", "web", "--local", "--json").data
        start_counting(lambda line: cli("exec", "web", "--", "sh", "-c", line))
        with cli.start("exec", "web", "--", "sh", "-c", "touch begun; sleep 2; echo first") as pane:
            wait_for(lambda: cli("exec", "web", "--", "test", "-e", "begun").status == 0)
            assert cli("stop", "web").status == 0
            assert cli("start", "web").status == 0
            out, _ = pane.communicate(timeout=WAIT_SECONDS)
        assert out == b"first\n"
        os.kill(cloud.daemon.pid, signal.SIGKILL)
        cloud.process.wait()
        done = cli("exec", "web", "--", "sh", "-c", "kill -0 $(cat pid) && echo second")
        assert (done.status, done.text) == (0, "second\n")
        shown = cli("ps", "web", "--json").data
        assert (shown["microvm_id"], shown["state"]) == (made["microvm_id"], "RUNNING")
        assert cli("stop", "web").status == 0
        status = cli("local", "status", "--json").data
        os.kill(status["pid"], signal.SIGKILL)
        wait_for(lambda: not Path(f"/proc/{status['pid']}").exists())
        shown = cli("ps", "web", "--json").data
        assert (shown["state"], bool(shown["stopped_at"])) == ("SUSPENDED", True)
        done = cli("exec", "web", "--", "sh", "-c", "kill -0 $(cat pid) && echo third")
        assert (done.status, done.text) == (0, "third\n")
        assert cli("rm", "web").status == 0
        assert cli("local", "down").status == 0
        wait_for(lambda: not living_processes(cloud.folder))
        assert leftovers(made["microvm_id"]) == []


# -- what took its time ------------------------------------------------------------------------------------------------


def test_a_sandbox_stays_awake_while_a_command_is_waited_for(cli: Cli, quiet_command: subprocess.Popen[bytes]) -> None:
    out, err = quiet_command.communicate(timeout=2 * IDLE_SECONDS)
    assert (quiet_command.returncode, out, err) == (0, b"done\n", b"")


def test_one_that_is_left_alone_is_suspended_and_resumes_on_use(cli: Cli) -> None:
    assert cli("wait", "left-alone", "--state", "SUSPENDED", "--timeout", str(2 * IDLE_SECONDS)).status == 0
    assert cli("ps", "left-alone", "--json").data["stopped_at"] is None
    done = cli("exec", "left-alone", "--", "echo", "hi")
    assert (done.status, done.text, done.remarks) == (0, "hi\n", "")


def microvms(cloud: LocalCloud) -> dict[str, str]:
    pages = cloud.client().get_paginator("list_microvms").paginate()
    return {item["microvmId"]: item["state"] for page in pages for item in page["items"]}


def leftovers(microvm_id: str) -> list[str]:
    """Control groups and mounts that name the MicroVM."""
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if microvm_id in line]
    groups = [
        str(Path(folder, name))
        for folder, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if microvm_id in name or microvm_id.removeprefix("microvm-") in name
    ]
    return mounts + groups
