"""Whoever is killed, in whatever moment: nothing is lost, nothing is left, and what follows works or says why not."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import PROGRAM, Cli, Done, bare_environ
from tests.support.cloud import await_processes, living_processes
from tests.support.paths import ROOT
from vmnest import rendezvous

WAIT_SECONDS = 30.0
LOST = "MicroVM was lost: the process that held it ended."


def wait_for(condition: Callable[[], Any], *, what: str = "") -> Any:
    """What the condition gives once that is true."""
    end = time.monotonic() + WAIT_SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.005)
    return found


class Ground:
    """A local cloud that the command line starts when it needs it, and what is known about it from outside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "local"
        self.state = folder / "state.json"
        self.cli = Cli(
            {
                **bare_environ(folder),
                "AGENT_SANDBOX_LOCAL_DIR": str(self.folder),
                "AGENT_SANDBOX_STATE": str(self.state),
                "AGENT_SANDBOX_TARGET": "local",
            }
        )

    def good(self, *words: str) -> Done:
        """A command that must work."""
        done = self.cli(*words)
        assert done.status == 0, (words, done)
        return done

    @property
    def daemon(self) -> rendezvous.Daemon | None:
        """The daemon that runs."""
        return rendezvous.read(str(self.folder)) if rendezvous.is_alive(str(self.folder)) else None

    def signal_daemon(self, number: int) -> int:
        running = self.daemon
        assert running is not None
        os.kill(running.pid, number)
        return running.pid

    def kill_daemon(self) -> int:
        """Kill the daemon; the pid that it had."""
        pid = self.signal_daemon(signal.SIGKILL)
        wait_for(lambda: not rendezvous.is_alive(str(self.folder)))
        return pid

    def supervisors(self) -> list[int]:
        """The processes that hold VMs."""
        found = living_processes(str(self.folder))
        return [int(line.split()[0]) for line in found if "vmnest.local" not in line and "runpy" not in line]

    def records(self) -> dict[str, dict[str, Any]]:
        """What is recorded, by name; not through our own code."""
        try:
            recorded: dict[str, dict[str, Any]] = json.loads(self.state.read_bytes())["sandboxes"]
        except FileNotFoundError:
            return {}
        return recorded

    def states(self) -> dict[str, str]:
        return {each["name"]: each["state"] for each in self.good("ls", "--json").data["sandboxes"]}

    def microvms(self) -> dict[str, int]:
        """How many MicroVMs are in which state, ended ones apart."""
        states: dict[str, int] = self.good("local", "status", "--json").data["states"]
        return {state: count for state, count in states.items() if state != "TERMINATED"}

    def check_nothing_is_left(self) -> None:
        """No MicroVM and no name, and nothing of any on this machine; then none of the daemon either."""
        assert self.records() == {}
        wait_for(lambda: self.microvms() == {}, what="a MicroVM is left")
        wait_for(lambda: os.listdir(self.folder / "vms") == [], what="a folder is left")
        wait_for(lambda: self.supervisors() == [], what="a supervisor is left")
        self.good("local", "down")
        wait_for(lambda: living_processes(str(self.folder)) == [], what="a process is left")
        assert str(self.folder) not in Path("/proc/self/mountinfo").read_text()
        wait_for(lambda: groups_of(self.folder) == [], what="a control group is left")


def groups_of(folder: Path) -> list[str]:
    """Control groups of the cloud, and of all MicroVMs that it ever had."""
    status = folder.stat()
    marks = [path.stem for path in (folder / "records").glob("microvm-*.json")]
    marks.append(f"vmnest-{status.st_dev:x}-{status.st_ino:x}")
    return [
        os.path.join(top, name)
        for top, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if any(mark in name for mark in marks)
    ]


@pytest.fixture
def ground() -> Iterator[Ground]:
    # Not below pytest's folders: root's sandbox runs as a uid that may not pass through those.
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
    folder = tempfile.mkdtemp(prefix="vmnest-test-", dir=shared)
    one = Ground(Path(folder))
    yield one
    if one.daemon is not None:
        one.signal_daemon(signal.SIGCONT)
        one.cli("local", "down", "--force")
    left = await_processes(folder)
    for line in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(line.split()[0]), signal.SIGKILL)
    assert left == []
    shutil.rmtree(folder)


def runs(seconds: str) -> bool:
    """A ``sleep`` of that many seconds runs somewhere on this machine."""
    return subprocess.run(["pgrep", "-fx", f"sleep {seconds}"], capture_output=True, check=False).returncode == 0


# -- the daemon --------------------------------------------------------------------------------------------------------


def test_a_sandbox_outlives_its_daemon_with_files_processes_and_port(ground: Ground) -> None:
    made = ground.good("create", "box", "--json").data
    assert bool(groups_of(ground.folder)) == (made["local_details"]["enforced"] == "cgroup")
    ground.good("exec", "box", "--", "sh", "-c", "echo kept > /work/a; sleep 4711.1 > /dev/null 2>&1 &")
    killed = ground.kill_daemon()
    assert ground.good("exec", "box", "--", "cat", "/work/a").text == "kept\n"
    assert ground.good("exec", "box", "--", "pgrep", "-fx", "sleep 4711.1").text.strip().isdigit()
    shown = ground.good("ps", "box", "--json").data
    for member in ("microvm_id", "state", "endpoint", "started_at"):
        assert shown.get(member) == made.get(member)
    running = ground.daemon
    assert running is not None
    assert running.pid != killed
    ground.good("rm", "box")
    wait_for(lambda: not runs("4711.1"))
    ground.check_nothing_is_left()


def test_every_verb_finds_what_a_killed_daemon_had_again_and_again(ground: Ground) -> None:
    ground.good("create", "box")
    for words in (("ls",), ("ps", "box"), ("exec", "box", "touch", "/work/a"), ("create", "more"), ("stop", "box")):
        ground.kill_daemon()
        assert ground.good(*words).remarks == ""
    ground.kill_daemon()
    ground.good("start", "box")
    assert ground.states() == {"box": "RUNNING", "more": "RUNNING"}
    ground.kill_daemon()
    assert ground.good("exec", "box", "ls", "/work").text == "a\n"
    ground.kill_daemon()
    ground.good("rm", "more", "box")
    ground.check_nothing_is_left()


def test_the_end_of_a_cloud_whose_daemon_was_killed_is_the_end_of_its_sandboxes(ground: Ground) -> None:
    ground.good("create", "box")
    ground.kill_daemon()
    status = ground.good("local", "status")
    assert status.text.startswith("local cloud  not running\n")
    assert "sandboxes go on without it" in status.remarks
    refused = ground.cli("local", "down")
    assert (refused.status, "has 1 sandbox: box" in refused.remarks) == (1, True)
    ground.kill_daemon()
    assert "ended box" in ground.good("local", "down", "--force").remarks
    assert ground.supervisors() == []
    assert ground.good("local", "status").remarks == ""
    ground.good("rm", "box")
    ground.check_nothing_is_left()


def test_many_who_come_after_a_kill_start_one_daemon(ground: Ground) -> None:
    ground.good("create", "box")
    ground.kill_daemon()
    commands = [ground.cli.start("exec", "box", "--", "echo", str(number)) for number in range(8)]
    told = [command.communicate(timeout=WAIT_SECONDS) for command in commands]
    assert told == [(f"{number}\n".encode(), b"") for number in range(8)]
    assert len(daemons(ground)) == 1
    ground.good("rm", "box")
    ground.check_nothing_is_left()


def daemons(ground: Ground) -> list[str]:
    return [line for line in living_processes(str(ground.folder)) if "--ready-fd" in line]


def test_a_command_outlives_the_daemon_through_which_it_is_watched(ground: Ground) -> None:
    ground.good("create", "box")
    script = "echo before; read line; echo $line; exit 7"
    command = ground.cli.start("exec", "box", "-i", "--", "sh", "-c", script, stdin=subprocess.PIPE)
    assert command.stdout is not None
    assert command.stdout.readline() == b"before\n"
    ground.kill_daemon()
    out, err = command.communicate(b"after\n", timeout=WAIT_SECONDS)
    assert (command.returncode, out, err) == (7, b"after\n", b"")
    ground.good("rm", "box")
    ground.check_nothing_is_left()


MOMENTS: dict[str, Callable[[Ground], Any]] = {
    "asked": lambda ground: list((ground.folder / "records").glob("*.json")),
    "begun": lambda ground: list((ground.folder / "vms").glob("*/supervisor.log")),
    "alive": lambda ground: list((ground.folder / "vms").glob("*/ended.json")),
}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS.keys())
def test_a_create_survives_the_daemon_that_it_asked(ground: Ground, moment: Callable[[Ground], Any]) -> None:
    ground.good("local", "up")
    with ground.cli.start("create", "box") as command:
        wait_for(lambda: moment(ground))
        ground.kill_daemon()
        out, err = command.communicate(timeout=WAIT_SECONDS)
    assert (command.returncode, out, err) == (0, b"box\n", b"")
    assert ground.microvms() == {"RUNNING": 1}
    ground.good("exec", "box", "true")
    ground.good("rm", "box")
    ground.check_nothing_is_left()


def test_a_suspended_sandbox_stays_so_and_can_be_used(ground: Ground) -> None:
    ground.good("create", "box")
    ground.good("exec", "box", "--", "sh", "-c", "echo kept > /work/a; sleep 4711.3 > /dev/null 2>&1 &")
    ground.good("stop", "box")
    ground.kill_daemon()
    assert ground.states() == {"box": "SUSPENDED"}
    assert ground.good("exec", "box", "cat", "/work/a").text == "kept\n"
    assert ground.states() == {"box": "RUNNING"}
    ground.good("exec", "box", "pgrep", "-fx", "sleep 4711.3")
    ground.good("stop", "box")
    ground.kill_daemon()
    ground.good("rm", "box")
    wait_for(lambda: not runs("4711.3"))
    ground.check_nothing_is_left()


# -- supervisors -------------------------------------------------------------------------------------------------------


def test_a_killed_supervisor_takes_its_sandbox_along_and_no_other(ground: Ground) -> None:
    ground.good("create", "one")
    (first,) = ground.supervisors()
    ground.good("create", "two")
    ground.good("exec", "one", "--", "sh", "-c", "sleep 4711.4 > /dev/null 2>&1 &")
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: ground.states() == {"one": "TERMINATED", "two": "RUNNING"})
    done = ground.cli("exec", "one", "true")
    assert done.status == 125
    assert LOST in done.remarks
    wait_for(lambda: not runs("4711.4"))
    ground.good("exec", "two", "true")
    ground.good("rm", "one", "two")
    ground.check_nothing_is_left()


def test_a_supervisor_that_was_killed_with_its_daemon_is_found_dead(ground: Ground) -> None:
    ground.good("create", "one")
    (first,) = ground.supervisors()
    ground.good("create", "two")
    ground.kill_daemon()
    os.kill(first, signal.SIGKILL)
    assert ground.states() == {"one": "TERMINATED", "two": "RUNNING"}
    assert LOST in ground.cli("exec", "one", "true").remarks
    ground.good("rm", "one", "two")
    ground.check_nothing_is_left()


def test_a_sandbox_that_ended_while_no_daemon_was_there_says_how(ground: Ground) -> None:
    ground.good("create", "box")
    ground.good("exec", "box", "--", "sh", "-c", "(sleep 1; kill -9 -1) > /dev/null 2>&1 &")
    ground.kill_daemon()
    wait_for(lambda: ground.supervisors() == [])
    assert ground.states() == {"box": "TERMINATED"}
    assert "Container Stopped with Exit Code: 137" in ground.cli("exec", "box", "true").remarks
    ground.good("rm", "box")
    ground.check_nothing_is_left()


def test_a_sandbox_whose_port_is_taken_meanwhile_gets_another(ground: Ground) -> None:
    made = ground.good("create", "box", "--json").data
    port = int(ground.records()["box"]["endpoint"].rpartition(":")[2])
    ground.kill_daemon()
    with socket.create_server(("127.0.0.1", port)) as stranger:
        assert ground.good("exec", "box", "echo", "on").text == "on\n"
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.accept()
    assert ground.good("exec", "box", "echo", "on").text == "on\n"
    assert ground.good("ps", "box", "--json").data["microvm_id"] == made["microvm_id"]
    ground.good("rm", "box")
    ground.check_nothing_is_left()


def test_after_a_restart_of_the_machine_all_are_gone_and_say_so(ground: Ground) -> None:
    ground.good("create", "box")
    supervisors = ground.supervisors()
    ground.kill_daemon()
    for pid in supervisors:
        os.kill(pid, signal.SIGKILL)
    (ground.folder / "boot-id").write_text("of yesterday\n")
    assert ground.states() == {"box": "TERMINATED"}
    done = ground.cli("exec", "box", "true")
    assert (done.status, "the machine was restarted" in done.remarks) == (125, True)
    ground.good("rm", "box")
    ground.check_nothing_is_left()


def test_supervisors_that_hang_do_not_hold_up_the_end_one_after_the_other(ground: Ground) -> None:
    for name in ("one", "two", "three"):
        ground.good("create", name)
    for pid in ground.supervisors():
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    ground.good("local", "down", "--force")
    assert time.monotonic() - began < 28
    for name in ("one", "two", "three"):
        ground.good("rm", name)
    ground.check_nothing_is_left()


# -- clients -----------------------------------------------------------------------------------------------------------


def begin_to_create(ground: Ground) -> None:
    """Let a client record its launch, ask a daemon that does not hear, and die."""
    ground.good("local", "up")
    ground.signal_daemon(signal.SIGSTOP)
    with ground.cli.start("create", "box") as command:
        wait_for(ground.records)
        time.sleep(0.2)  # nobody can see from outside whether the request is on its way: it is either way right
        command.kill()
    assert ground.records()["box"].get("microvm_id") is None


@pytest.mark.parametrize("verb", ["rm", "exec"])
def test_a_client_that_died_after_it_asked_left_a_microvm_that_is_found(ground: Ground, verb: str) -> None:
    begin_to_create(ground)
    ground.signal_daemon(signal.SIGCONT)
    wait_for(lambda: ground.microvms() == {"RUNNING": 1})
    assert ground.states() == {"box": "LAUNCHING"}
    if verb == "exec":
        assert ground.good("exec", "box", "echo", "found").text == "found\n"
        assert ground.microvms() == {"RUNNING": 1}
    ground.good("rm", "box")
    ground.check_nothing_is_left()


@pytest.mark.parametrize("verb", ["rm", "exec"])
def test_a_client_that_died_before_it_was_heard_left_a_name(ground: Ground, verb: str) -> None:
    begin_to_create(ground)
    ground.kill_daemon()
    assert ground.states() == {"box": "LAUNCHING"}
    assert ground.microvms() == {}
    if verb == "exec":
        assert ground.good("exec", "box", "echo", "made").text == "made\n"
    ground.good("rm", "box")
    ground.check_nothing_is_left()


def test_a_run_that_was_killed_is_listed_and_can_be_removed(ground: Ground) -> None:
    with ground.cli.start("run", "--", "sleep", "4711.5") as command:
        wait_for(lambda: runs("4711.5"))
        command.kill()
    ((name, state),) = ground.states().items()
    assert name.startswith("run-")
    assert state == "RUNNING"
    ground.good("rm", name)
    wait_for(lambda: not runs("4711.5"))
    ground.check_nothing_is_left()


# -- the folder --------------------------------------------------------------------------------------------------------


class Disk:
    """A small file system that only the commands run through it see."""

    def __init__(self, holder: int, ground: Ground) -> None:
        self._enter = ["nsenter", "--mount", "--target", str(holder), f"--wd={ROOT}"]
        self._ground = ground

    def cli(self, *words: str) -> Done:
        return self._ground.cli(*words, program=(*self._enter, *PROGRAM))

    def shell(self, line: str) -> None:
        command = [*self._enter, "sh", "-c", line, "sh", str(self._ground.folder)]
        subprocess.run(command, check=True, capture_output=True)


@contextlib.contextmanager
def open_disk(ground: Ground) -> Iterator[Disk]:
    ground.folder.mkdir()
    script = 'mount -t tmpfs -o size=96m,mode=0700 small "$0" && echo ready && exec sleep 600'
    command = ["unshare", "--mount", "sh", "-c", script, str(ground.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        try:
            if holder.stdout.readline() != b"ready\n":
                pytest.skip("only root may mount")
            yield Disk(holder.pid, ground)
        finally:
            holder.kill()


def test_a_full_disk_costs_no_sandbox_and_is_told(ground: Ground) -> None:
    with open_disk(ground) as disk:
        assert disk.cli("create", "box").status == 0
        daemon = json.loads(disk.cli("local", "status", "--json").text)["pid"]
        disk.shell('! cat /dev/zero > "$1/filler" 2> /dev/null')
        assert disk.cli("exec", "box", "true").status == 0
        failed = disk.cli("create", "more")
        assert (failed.status, failed.text) == (1, "")
        assert "No space left on device" in failed.remarks
        assert "Traceback" not in failed.remarks
        os.kill(daemon, signal.SIGKILL)
        wait_for(lambda: not os.path.exists(f"/proc/{daemon}"))
        failed = disk.cli("exec", "box", "true")
        assert failed.status == 125
        assert failed.remarks.startswith("vmnest: ")
        assert "No space left on device" in failed.remarks
        assert "AGENT_SANDBOX_LOCAL_DIR" in failed.remarks
        disk.shell('rm "$1/filler"')
        assert disk.cli("exec", "box", "echo", "on").text == "on\n"
        assert disk.cli("rm", "box").status == 0
        assert disk.cli("local", "down").status == 0
    assert ground.records() == {}


def test_a_folder_that_cannot_be_written_is_told(ground: Ground) -> None:
    with open_disk(ground) as disk:
        disk.shell('mount -o remount,ro "$1"')
        for words in (("create", "box"), ("local", "up"), ("local", "env")):
            failed = disk.cli(*words)
            assert (failed.status, failed.text) == (1, ""), failed
            assert failed.remarks.startswith("vmnest: cannot write ")
            assert "Read-only file system" in failed.remarks
            assert "AGENT_SANDBOX_LOCAL_DIR" in failed.remarks
        assert disk.cli("local", "status").status == 0
        assert disk.cli("ls").status == 0
    assert ground.records() == {}


# -- many --------------------------------------------------------------------------------------------------------------


def test_fifty_programs_at_once_lose_and_leave_nothing(ground: Ground) -> None:
    failures: list[tuple[object, ...]] = []
    gate = threading.Semaphore(50)

    def live(name: str) -> None:
        for words, text in (
            (("create", name), name),
            (("exec", name, "--", "sh", "-c", f"echo {name} > /work/a; cat /work/a"), name),
            (("rm", name), "ended"),
        ):
            with gate:
                done = ground.cli(*words)
            if (done.status, done.text.split()[-1:]) != (0, [text]):
                failures.append((words, done))
                return

    threads = [threading.Thread(target=live, args=(f"box-{number}",)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    ground.check_nothing_is_left()
