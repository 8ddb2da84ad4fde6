"""The command line against a local cloud: every verb, every exit status, what the user reads."""

from __future__ import annotations

import base64
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import descriptors
from tests.support.cli import PROGRAM, Cli, bare_environ
from tests.support.cloud import LocalCloud, living_processes, open_cloud
from tests.support.paths import ROOT
from vmnest.cli import verbs

WAIT_SECONDS = 20.0


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with open_cloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def cli(cloud: LocalCloud) -> Cli:
    return Cli({**bare_environ(cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": cloud.folder})


@pytest.fixture(scope="module")
def box(cli: Cli) -> Iterator[str]:
    """A sandbox for the tests of this module."""
    done = cli("create", "box", "--local")
    assert (done.status, done.text, done.remarks) == (0, "box\n", "")
    yield "box"
    assert cli("rm", "box").status == 0


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def runs(seconds: str) -> bool:
    """A ``sleep`` of that many seconds runs somewhere on this machine."""
    return subprocess.run(["pgrep", "-fx", f"sleep {seconds}"], capture_output=True, check=False).returncode == 0


# -- the life of a sandbox ---------------------------------------------------------------------------------------------


def test_from_create_to_rm_in_json(cli: Cli) -> None:
    made = cli("--json", "create", "life", "--local").data
    assert (made["name"], made["target"], made["state"]) == ("life", "local", "RUNNING")
    assert made["microvm_id"].startswith("microvm-")
    listed = cli("ls", "--json").data["sandboxes"]
    assert [each["microvm_id"] for each in listed if each["name"] == "life"] == [made["microvm_id"]]
    shown = cli("ps", "life", "--json").data
    assert shown == made
    assert shown["local_details"]["isolation"] == "namespace"
    assert cli("exec", "life", "--json", "--", "echo", "hi").data["stdout"] == "hi\n"
    removed = cli("rm", "life", "--json").data
    expected = {"name": "life", "microvm_id": made["microvm_id"], "removed": True, "was_there": True}
    assert removed == {"removed": [expected]}
    assert cli("ps", "life", "--json").error["code"] == "sandbox_not_found"


def test_a_name_in_use_is_refused_and_the_sandbox_untouched(cli: Cli, box: str) -> None:
    before = cli("ps", box, "--json").data
    done = cli("create", box, "--local")
    assert (done.status, done.text) == (1, "")
    assert "exists already (on this machine)" in done.remarks
    assert cli("create", box, "--local", "--json").error["code"] == "name_in_use"
    assert cli("ps", box, "--json").data == before


# A line of each verb, with what there is and what there is not.
IN_JSON = {
    "create": ["a/b"],
    "run": ["--", "true"],
    "exec": ["box", "--", "true"],
    "shell": ["box"],
    "jobs": ["box"],
    "attach": ["box", "nothing"],
    "kill": ["box", "nothing"],
    "forward": ["box"],
    "logs": ["box"],
    "cp": ["box:/etc/hostname", "copied"],
    "ls": ["--all"],
    "ps": ["box"],
    "inspect": ["box"],
    "metrics": ["box"],
    "stop": ["nobody"],
    "start": ["box"],
    "wait": ["box", "--state", "RUNNING"],
    "rm": ["nobody"],
    "prune": ["--dry-run"],
    "adopt": ["microvm-nothing", "name"],
    "cost": [],
    "fs ls": ["box", "/etc"],
    "fs cat": ["box", "/etc/hostname"],
    "fs stat": ["box", "/nothing", "/etc"],
    "fs write": ["box", "/tmp/written"],
    "fs mkdir": ["box", "/tmp/made"],
    "fs cp": ["box", "/etc/hostname", "/tmp/copied"],
    "fs mv": ["box", "/nothing", "/tmp"],
    "fs rm": ["box", "/nothing"],
    "fs chmod": ["box", "700", "/tmp"],
    "image init": ["begun"],
    "image build": ["nowhere"],
    "image ls": [],
    "image inspect": ["local"],
    "image versions": ["local"],
    "image logs": ["local"],
    "image rm": ["nothing"],
    "image prune": ["--dry-run"],
    "infra init": [],
    "infra preview": ["--file", "nowhere.yaml"],
    "infra up": ["--file", "nowhere.yaml"],
    "infra refresh": ["--file", "nowhere.yaml"],
    "infra destroy": ["--file", "nowhere.yaml"],
    "infra output": ["--file", "nowhere.yaml"],
    "local up": [],
    "local down": [],  # refused: a sandbox runs
    "local status": [],
    "local env": [],
    "mcp": ["config", "claude"],
    "completion": ["bash"],
    "doctor": [],
    "version": [],
}


def test_every_verb_prints_one_json_object_or_one_error(cli: Cli, box: str, tmp_path: Path) -> None:
    assert set(IN_JSON) == {verb.title for verb in verbs.VERBS}
    here = Cli(cli.environ, cwd=tmp_path)

    def run(title: str) -> None:
        done = here("--json", "--local", *title.split(), *IN_JSON[title])
        printed, told = done.out.decode().splitlines(), done.err.decode().splitlines()
        if done.status == 0 or printed:
            assert isinstance(json.loads("\n".join(printed)), dict), title
        else:
            assert set(json.loads(told[-1])) == {"error"}, (title, told)
        assert "Traceback" not in done.remarks, title

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, IN_JSON))


def test_the_text_of_ls_and_ps(cli: Cli, box: str) -> None:
    heads, *rows = cli("ls").text.splitlines()
    assert heads.split() == ["NAME", "STATE", "AGE", "IMAGE", "IDLE/EXPIRES", "ID", "ENDPOINT"]
    (row,) = [row.split() for row in rows]
    assert (row[0], row[1], row[3]) == (box, "RUNNING", "local")
    assert row[4].startswith("15m/7h5")
    text = cli("ps", box).text
    shown = [tuple(line.split(maxsplit=1)) for line in text.splitlines()]
    assert ("state", "RUNNING") in shown
    assert ("isolation", "namespace") in shown


def test_a_name_finds_its_own_target_but_local_limits_the_search(cli: Cli, box: str) -> None:
    assert cli("ps", box, "--local").status == 0
    assert [each["name"] for each in cli("ls", "--local", "--json").data["sandboxes"]] == [box]


def test_rm_goes_on_after_a_failure_and_tells_both(cli: Cli) -> None:
    for name in ("one", "two"):
        assert cli("create", name, "--local").status == 0
    done = cli("rm", "one", "nobody", "two")
    assert done.status == 3
    results = {line.split()[0]: line.split(maxsplit=2)[2] for line in done.text.splitlines()}
    assert results == {"NAME": "RESULT", "one": "ended", "nobody": "not found", "two": "ended"}
    assert "no sandbox named 'nobody'" in done.remarks
    assert cli("create", "three", "--local").status == 0
    error = cli("rm", "three", "nobody", "--json").error
    assert (error["code"], error["details"]["removed"]) == ("sandbox_not_found", ["three"])


def test_a_microvm_that_is_gone_is_shown_and_can_be_removed(cli: Cli, cloud: LocalCloud) -> None:
    made = cli("create", "gone", "--local", "--json").data
    cloud.client().terminate_microvm(microvmIdentifier=made["microvm_id"])
    wait_for(lambda: cli("ps", "gone", "--json").data["state"] == "TERMINATED")
    done = cli("exec", "gone", "true")
    assert done.status == 125
    assert f"MicroVM {made['microvm_id']} is TERMINATED: it was ended by a request" in done.remarks
    assert cli("rm", "gone").status == 0


def test_what_others_started_is_seen_gets_a_name_and_is_pruned(cli: Cli, cloud: LocalCloud) -> None:
    service = cloud.client()
    image = "arn:aws:lambda:us-east-1:000000000000:microvm-image:local"
    microvm_id = service.run_microvm(imageIdentifier=image)["microvmId"]

    def listed(*line: str) -> dict[str, object]:
        found = cli("ls", "--local", "--json", *line).data["sandboxes"]
        return {each["microvm_id"]: each["name"] for each in found}

    assert microvm_id not in listed()
    assert listed("--all")[microvm_id] is None
    assert cli("adopt", "--local", microvm_id, "found", "--label", "from=boto3").text == "found\n"
    assert cli("adopt", "--local", microvm_id, "other", "--json").error["code"] == "name_in_use"
    assert listed("--label", "from=boto3", "--image", "local") == {microvm_id: "found"}
    assert cli("exec", "found", "--", "echo", "hi").text == "hi\n"
    planned = cli("prune", "--local", "--older-than", "0.01", "--dry-run", "--json").data["sandboxes"]
    assert {each["microvm_id"]: each["action"] for each in planned}[microvm_id] == "end"
    assert service.get_microvm(microvmIdentifier=microvm_id)["state"] == "RUNNING"
    service.terminate_microvm(microvmIdentifier=microvm_id)
    wait_for(lambda: listed("--state", "TERMINATED") == {microvm_id: "found"})
    (pruned,) = cli("prune", "--local", "--json").data["sandboxes"]
    assert (pruned["microvm_id"], pruned["action"]) == (microvm_id, "forget")
    assert microvm_id not in listed("--all")
    assert listed("--all", "--state", "TERMINATED")[microvm_id] is None
    assert cli("adopt", "--local", microvm_id, "late").status == 1
    assert cli("rm", "found").status == 3
    assert cli("rm", "found", "--force").status == 0


def test_sizes_are_checked(cli: Cli) -> None:
    assert cli("create", "huge", "--local", "--cpus", "-1").status == 2
    assert cli("create", "huge", "--local", "-m", "lots").status == 2
    assert cli("ps", "huge").status == 3


def test_an_isolation_that_is_not_there_is_told_with_the_one_that_is(cli: Cli, box: str) -> None:
    done = cli("create", "strong", "--local", AGENT_SANDBOX_LOCAL_ISOLATION="vm")
    assert (done.status, done.text) == (1, "")
    assert "by namespace, and AGENT_SANDBOX_LOCAL_ISOLATION demands vm\n  Set it to namespace" in done.remarks


def test_an_image_that_does_not_exist_is_not_found_and_leaves_nothing(cli: Cli) -> None:
    done = cli("create", "none", "--local", "-i", "no-such-image")
    assert done.status == 3
    assert "no-such-image" in done.remarks
    assert cli("ps", "none").status == 3


# -- stop and start ----------------------------------------------------------------------------------------------------


def test_from_stop_to_start_in_json(cli: Cli) -> None:
    options = ("--idle", "2m", "--suspended-for", "1h", "--max-duration", "3h", "--label", "team=a")
    made = cli("create", "nap", "--local", "--json", *options).data
    assert made["idle_policy"] == {
        "max_idle_duration_seconds": 120,
        "suspended_duration_seconds": 3600,
        "auto_resume_enabled": True,
    }
    assert made["max_duration_seconds"] == 10800
    assert made["labels"] == {"team": "a"}
    assert cli("exec", "nap", "--shell", "--", "echo kept > file; sleep 74.313 & echo $! > pid").status == 0
    (stopped,) = cli("stop", "nap", "--json").data["stopped"]
    assert (stopped["state"], stopped["microvm_id"]) == ("SUSPENDED", made["microvm_id"])
    assert stopped["stopped_at"]
    done = cli("exec", "nap", "--no-resume", "--", "true")
    assert (done.status, done.text) == (125, "")
    assert "vmnest start nap" in done.remarks
    assert cli("exec", "nap", "--no-resume", "--json", "--", "true").error["code"] == "suspended"
    assert cli("ps", "nap", "--json").data["state"] == "SUSPENDED"
    assert cli("wait", "nap", "--state", "suspended", "--json").data["state"] == "SUSPENDED"
    (started,) = cli("start", "nap", "--json").data["started"]
    assert (started["state"], started["stopped_at"]) == ("RUNNING", None)
    assert cli("exec", "nap", "--no-resume", "--shell", "--", "kill $(cat pid); cat file").text == "kept\n"
    assert cli("stop", "nap").text == "nap\n"
    assert cli("exec", "nap", "echo", "hi").text == "hi\n"
    assert cli("rm", "nap").status == 0


def test_stop_and_start_go_through_all_names(cli: Cli) -> None:
    for name in ("one", "two"):
        assert cli("create", name, "--local").status == 0
    done = cli("stop", "one", "nobody", "two")
    assert (done.status, done.text) == (3, "one\ntwo\n")
    assert cli("stop", "two", "one").text == "two\none\n"
    states = [each["state"] for each in cli("ls", "--json").data["sandboxes"] if each["name"] in {"one", "two"}]
    assert states == ["SUSPENDED", "SUSPENDED"]
    assert cli("start", "one", "nobody", "--json").error["details"]["started"] == ["one"]
    assert cli("rm", "one", "two").status == 0  # one runs, one is suspended


def test_wait_is_told_of_the_end_that_another_brings(cli: Cli) -> None:
    assert cli("create", "late", "--local").status == 0
    assert cli("wait", "late", "--timeout", "0.2").status == 1
    with cli.start("wait", "late") as waiting:
        await_socket(waiting.pid)
        assert cli("rm", "late").status == 0
        out, err = waiting.communicate(timeout=WAIT_SECONDS)
    assert (waiting.returncode, out, err) == (0, b"TERMINATED\n", b"")


def await_socket(pid: int) -> None:
    """Wait until the process talks to the cloud: by then it has read whom it waits for."""
    end = time.monotonic() + WAIT_SECONDS
    while not any(target.startswith("socket:") for target in descriptors.targets(pid)):
        assert time.monotonic() < end
        time.sleep(0.005)


def test_wait_can_be_interrupted(cli: Cli, box: str) -> None:
    with cli.start("wait", box) as waiting:
        time.sleep(0.5)
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=WAIT_SECONDS)
    assert (waiting.returncode, out, err) == (130, b"", b"vmnest: interrupted\n")


# -- what create is told -----------------------------------------------------------------------------------------------


def test_replace_ends_the_one_that_has_the_name(cli: Cli, cloud: LocalCloud) -> None:
    first = cli("create", "again", "--local", "--replace", "--json").data
    assert cli("create", "again", "--local").status == 1
    second = cli("create", "again", "--local", "--replace", "--json").data
    assert second["microvm_id"] != first["microvm_id"]
    states = {item["microvmId"]: item["state"] for item in cloud.client().list_microvms()["items"]}
    assert states[first["microvm_id"]] in {"TERMINATING", "TERMINATED"}
    assert cli("exec", "again", "echo", "hi").text == "hi\n"
    assert cli("rm", "again").status == 0


def test_labels_are_found_again(cli: Cli) -> None:
    assert cli("create", "red", "--local", "--label", "colour=red", "--label", "x=1").status == 0
    assert cli("create", "blue", "--local", "--label", "colour=blue", "--label", "x=1").status == 0
    found = {
        line: [each["name"] for each in cli("ls", "--json", *line).data["sandboxes"]]
        for line in [("--label", "colour=red"), ("--label=x=1",), ("--label=x=1", "--label=colour=blue")]
    }
    assert list(found.values()) == [["red"], ["red", "blue"], ["blue"]]
    assert cli("rm", "red", "blue").status == 0


def test_a_payload_is_for_the_sandbox_and_kept_nowhere_else(cli: Cli, cloud: LocalCloud, tmp_path: Path) -> None:
    payload = tmp_path / "payload"
    payload.write_text('{"key": "hunter2"}')
    made = cli("create", "fed", "--local", "--json", "--run-payload", f"@{payload}")
    assert made.data["state"] == "RUNNING"
    assert "hunter2" not in made.text + cli("inspect", "fed").text + cloud.log
    kept = [Path(cloud.folder, ".agent_sandbox", "state.json"), *Path(cloud.folder, "records").iterdir()]
    assert len(kept) > 1
    assert not [path for path in kept if b"hunter2" in path.read_bytes()]
    assert cli("exec", "fed", "--", "cat", "/run/agentd/payload").out == b'{"key": "hunter2"}'
    assert cli("rm", "fed").status == 0


def test_inspect_tells_what_is_recorded_and_what_the_service_says(cli: Cli, box: str) -> None:
    data = cli("inspect", box, "--json").data
    assert data["record"]["microvm_id"] == data["microvm"]["microvmId"] == data["microvm_id"]
    assert data["microvm"]["localDetails"]["enforced"] in {"cgroup", "watch"}
    assert "token" not in cli("inspect", box).text.lower()


# -- exec --------------------------------------------------------------------------------------------------------------


STATUSES = {
    "success": (["true"], 0),
    "its own": (["sh", "-c", "exit 7"], 7),
    "255": (["sh", "-c", "exit 255"], 255),
    "killed": (["sh", "-c", "kill -9 $$"], 137),
    "terminated": (["sh", "-c", "kill -15 $$"], 143),
    "not executable": (["/etc/passwd"], 126),
    "a folder": (["/work"], 126),
    "not found": (["no-such-program"], 127),
    "not found by path": (["/no/such/program"], 127),
}


@pytest.mark.parametrize(("words", "status"), STATUSES.values(), ids=STATUSES.keys())
def test_the_exit_status_is_the_commands(cli: Cli, box: str, words: list[str], status: int) -> None:
    done = cli("exec", box, "--", *words)
    assert done.status == status
    assert done.text == ""
    assert bool(done.remarks) == (status in (126, 127))


def test_a_missing_working_directory_is_our_failure(cli: Cli, box: str) -> None:
    done = cli("exec", box, "-w", "/no/such", "--", "true")
    assert done.status == 125
    assert "/no/such" in done.remarks
    assert cli("exec", box, "-w", "/no/such", "--json", "--", "true").error["code"] == "cwd_not_found"


def test_streams_are_kept_apart_and_byte_for_byte(cli: Cli, box: str) -> None:
    done = cli("exec", box, "--", "sh", "-c", r"printf '\377\376\0a\r\n'; printf '\033[31m' >&2")
    assert (done.status, done.out, done.err) == (0, b"\xff\xfe\0a\r\n", b"\x1b[31m")
    whole = bytes(range(256)) * 3
    done = cli("exec", box, "--", "python3", "-c", "import sys; sys.stdout.buffer.write(bytes(range(256)) * 3)")
    assert done.out == whole


def test_json_has_text_as_text_and_bytes_as_base64(cli: Cli, box: str) -> None:
    data = cli("exec", box, "--json", "--", "sh", "-c", r"printf '\377'; printf 'na\303\257ve' >&2; exit 3")
    assert data.status == 3
    assert data.data == {
        "exit_code": 3,
        "signal": None,
        "timed_out": False,
        "truncated": False,
        "encoding": {"stdout": "base64", "stderr": "utf-8"},
        "missing": {"stdout": None, "stderr": None, "either": 0},
        "stdout": base64.b64encode(b"\xff").decode(),
        "stderr": "naïve",
    }
    assert cli("exec", box, "--json", "--", "sh", "-c", "kill -9 $$").data["signal"] == "SIGKILL"


def test_a_timeout_ends_the_command_with_its_children_and_keeps_its_output(cli: Cli, box: str) -> None:
    started = time.monotonic()
    done = cli("exec", box, "--timeout", "1", "--", "sh", "-c", "echo a; sleep 71.313 & wait")
    assert time.monotonic() - started < 5
    assert (done.status, done.text) == (124, "a\n")
    assert done.remarks == "vmnest: the command was ended after 1 s\n"
    assert not runs("71.313")
    done = cli("exec", box, "--timeout", "0.5", "--json", "--", "sh", "-c", "echo a; sleep 5")
    assert done.status == 124
    assert (done.data["timed_out"], done.data["stdout"]) == (True, "a\n")


def test_standard_input_is_empty(cli: Cli, box: str) -> None:
    assert cli("exec", box, "cat").out == b""
    done = cli.shell(f"echo data | $vmnest exec {box} -- wc -c")
    assert done.text.strip() == "0"


def test_the_words_arrive_as_they_are(cli: Cli, box: str) -> None:
    words = ["", " a  b ", "-x", "--json", "naïve 日", "a\nb", "$HOME", "'\"\\", "*"]
    code = "import sys; print(ascii(sys.argv[1:]))"
    assert cli("exec", box, "--", "python3", "-c", code, *words).text == f"{words!a}\n"
    assert cli("exec", box, "python3", "-c", code, "--", "--help", "-q").text == "['--', '--help', '-q']\n"


def test_variables_arrive_as_they_are(cli: Cli, box: str) -> None:
    value = "a\"b\nc=d $HOME 'x'"
    done = cli(
        "exec", box, "-e", f"X={value}", "--env", "HERE", "-eY=", "--", "printenv", "X", "HERE", "Y", HERE="here"
    )
    assert done.text == f"{value}\nhere\n\n"


def test_variables_come_from_files_secrets_and_options(cli: Cli, box: str, tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_bytes(b"A=file\nB=file\r\nHERE\n# C=comment\nD= 'raw' \n")
    line = ("--env-file", str(path), "--secret", "B", "--env", "A=env")
    done = cli("exec", box, *line, "--", "sh", "-c", 'echo "$A,$B,$HERE,${C-none},$D"', B="secret", HERE="here")
    assert done.text == "env,secret,here,none, 'raw' \n"
    done = cli("--local", "run", *line, "--", "sh", "-c", 'echo "$A,$B"', B="secret")
    assert done.text == "env,secret\n"


def test_a_secret_is_shown_nowhere(cli: Cli, cloud: LocalCloud, box: str) -> None:
    secret = "hunter2-" + "x" * 8
    with cli.start("exec", box, "--secret", "TOKEN", "--", "sleep", "75.313", environ={"TOKEN": secret}) as process:
        wait_for(lambda: runs("75.313"))
        shown = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_SECONDS)
    assert secret not in shown
    assert secret.encode() not in err
    done = cli("exec", box, "--debug", "--secret", "TOKEN", "-w", "/no/such", "--", "true", TOKEN=secret)
    assert done.status == 125
    assert secret not in done.remarks
    assert secret not in cloud.log
    done = cli("exec", box, "--secret", "TOKEN", "--", "true")
    assert (done.status, done.text) == (2, "")


def test_the_working_directory(cli: Cli, box: str) -> None:
    assert cli("exec", box, "pwd").text == "/work\n"
    assert cli("exec", box, "-w", "/tmp", "pwd").text == "/tmp\n"
    assert cli("exec", box, "pwd", AGENT_SANDBOX_WORKDIR="/usr").text == "/usr\n"


def test_shell_joins_the_words_and_runs_a_login_shell(cli: Cli, box: str) -> None:
    done = cli("exec", box, "--shell", "--", "echo a | tr a b;", "shopt -q login_shell && echo login; exit 4")
    assert (done.status, done.text) == (4, "b\nlogin\n")


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        (signal.SIGINT, 130, b""),  # the command's own end
        (signal.SIGTERM, 143, b"vmnest: interrupted\n"),
        (signal.SIGHUP, 129, b"vmnest: interrupted\n"),
    ],
    ids=str,
)
def test_a_signal_ends_the_command_too(cli: Cli, box: str, number: signal.Signals, status: int, said: bytes) -> None:
    seconds = f"72.{number:03d}"
    with cli.start("exec", box, "--", "sh", "-c", f"echo ready; exec sleep {seconds}") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"  # from here on the command is attended to
        wait_for(lambda: runs(seconds))
        process.send_signal(number)
        out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out, err) == (status, b"", said)
    wait_for(lambda: not runs(seconds))


def test_a_reader_that_goes_ends_it_without_a_traceback(cli: Cli, box: str) -> None:
    done = cli.shell(f"$vmnest exec {box} -- seq 1000000 | head -1; echo ${{PIPESTATUS[0]}}")
    assert done.text == "1\n141\n"
    assert done.err == b""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_keep_a_command_from_running(cli: Cli, box: str, closed: str) -> None:
    done = cli.shell(f"$vmnest exec {box} -- sh -c 'echo out; echo err >&2; exit 5' {closed}")
    assert done.status == 5
    assert done.text == ("" if ">&-" in closed.replace("2>&-", "") else "out\n")
    assert done.remarks == ("" if "2>&-" in closed else "err\n")


def test_a_full_disk_is_our_failure(cli: Cli, box: str) -> None:
    done = cli.shell(f"$vmnest exec {box} -- echo x > /dev/full")
    assert done.status == 125
    assert "No space left" in done.remarks


def test_memory_stays_flat_while_much_is_printed(cli: Cli, box: str) -> None:
    code = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
        "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)\n"
    )
    words = ["exec", box, "--", "head", "-c", "100000000", "/dev/zero"]
    done = cli(*words, program=(sys.executable, "-c", code, *PROGRAM))
    status, mib = done.text.split()
    assert status == "0"
    assert int(mib) < 60


# -- run ---------------------------------------------------------------------------------------------------------------


def microvms(cloud: LocalCloud) -> set[str]:
    items = cloud.client().list_microvms()["items"]
    return {item["microvmId"] for item in items if item["state"] not in ("TERMINATING", "TERMINATED")}


def test_run_leaves_nothing(cli: Cli, cloud: LocalCloud, box: str) -> None:
    before = microvms(cloud)
    done = cli("--local", "run", "--", "sh", "-c", "echo hi; exit 3")
    assert (done.status, done.text, done.remarks) == (3, "hi\n", "")
    data = cli("run", "local", "--local", "--json", "--", "echo", "hi").data
    assert (data["exit_code"], data["stdout"]) == (0, "hi\n")
    assert cli("run", "--local", "--", "no-such-program").status == 127
    assert cli("run", "--local", "--timeout", "0.5", "--", "sleep", "9").status == 124
    assert microvms(cloud) == before
    assert [each["name"] for each in cli("ls", "--json").data["sandboxes"]] == [box]


def test_run_that_is_killed_leaves_a_name_by_which_it_can_be_removed(cli: Cli, cloud: LocalCloud, box: str) -> None:
    before = microvms(cloud)
    with cli.start("run", "--local", "--", "sleep", "73.999") as process:
        wait_for(lambda: runs("73.999"))
        process.kill()
    (left,) = [each for each in cli("ls", "--json").data["sandboxes"] if each["name"] != box]
    assert left["name"].startswith("run-")
    assert left["state"] == "RUNNING"
    assert cli("rm", left["name"]).status == 0
    assert microvms(cloud) == before
    wait_for(lambda: not runs("73.999"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_run_is_removed_when_it_is_interrupted_however_often(
    cli: Cli, cloud: LocalCloud, box: str, number: signal.Signals
) -> None:
    before = microvms(cloud)
    seconds = f"73.{number:03d}"
    with cli.start("run", "--local", "--", "sleep", seconds) as process:
        wait_for(lambda: runs(seconds))
        assert len(microvms(cloud)) == len(before) + 1
        process.send_signal(number)
        time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 128 + number
    assert microvms(cloud) == before
    assert [each["name"] for each in cli("ls", "--json").data["sandboxes"]] == [box]
    assert not runs(seconds)


def test_run_is_removed_when_its_reader_goes(cli: Cli, cloud: LocalCloud, box: str) -> None:
    before = microvms(cloud)
    done = cli.shell("$vmnest --local run -- seq 1000000 | head -1; echo ${PIPESTATUS[0]}")
    assert (done.text, done.err) == ("1\n141\n", b"")
    assert microvms(cloud) == before


# -- on a terminal -----------------------------------------------------------------------------------------------------


def on_terminal(cli: Cli, *words: str, **environ: str) -> tuple[int, bytes]:
    """Exit status, and what a user sees."""
    master, slave = pty.openpty()
    with cli.start(*words, stdin=slave, stdout=slave, stderr=slave, environ=environ) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:
                break
            seen += data
        status = process.wait(WAIT_SECONDS)
    os.close(master)
    return status, seen


def test_a_terminal_gets_colour_unless_it_is_not_wanted(cli: Cli) -> None:
    status, seen = on_terminal(cli, "ps", "nobody", TERM="xterm")
    assert status == 3
    assert seen.startswith(b"\x1b[1;31mvmnest:\x1b[0m no sandbox named 'nobody'")
    status, seen = on_terminal(cli, "ps", "nobody", TERM="xterm", NO_COLOR="1")
    assert seen.startswith(b"vmnest: no sandbox named")


def test_a_commands_output_is_its_own_on_a_terminal_too(cli: Cli, box: str) -> None:
    status, seen = on_terminal(cli, "exec", box, "--", "sh", "-c", "sleep 1.5; echo done", TERM="xterm")
    assert (status, seen) == (0, b"done\r\n")


# -- local -------------------------------------------------------------------------------------------------------------


def test_status_and_env_of_a_cloud_that_runs(cli: Cli, cloud: LocalCloud, box: str) -> None:
    data = cli("local", "status", "--json").data
    assert (data["running"], data["pid"], data["url"]) == (True, cloud.daemon.pid, cloud.url)
    assert data["isolation"] == "namespace"
    assert [each["name"] for each in data["microvms"]] == [box]
    text = cli("local", "status").text
    assert text.startswith("local cloud  running\n")
    assert box in text
    assert cli("local", "up", "--json").data["started"] is False
    environment = cli("local", "env", "--json").data["environment"]
    assert environment["AWS_ENDPOINT_URL_LAMBDA_MICROVMS"] == cloud.url
    assert environment["AWS_PROFILE"] is None


def test_the_lines_of_env_lead_others_here(cli: Cli, cloud: LocalCloud) -> None:
    code = (
        "import os, boto3; client = boto3.client('lambda-microvms');"
        "print([image['name'] for image in client.list_microvm_images()['items']], 'AWS_PROFILE' in os.environ)"
    )
    line = f'export AWS_PROFILE=bogus; eval "$($vmnest local env)"; {sys.executable} -c "{code}"'
    assert cli.shell(line).text == "['local'] False\n"


def test_down_is_refused_while_sandboxes_run(cli: Cli, box: str) -> None:
    done = cli("local", "down")
    assert (done.status, done.text) == (1, "")
    assert f"has 1 sandbox: {box}" in done.remarks
    assert "--force" in done.remarks
    assert cli("local", "down", "--json").error["code"] == "local_busy"
    assert cli("exec", box, "true").status == 0


def test_from_up_to_down(tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="vmnest-test-") as folder:
        cli = Cli({**bare_environ(folder), "AGENT_SANDBOX_LOCAL_DIR": f"{folder}/local"})
        status = cli("local", "status", "--json").data
        assert (status["running"], status["folder"], status["microvms"]) == (False, f"{folder}/local", [])
        assert cli("local", "status").text.startswith("local cloud  not running\n")
        done = cli("local", "down")
        assert (done.status, done.remarks) == (0, "vmnest: the local cloud does not run\n")
        assert not Path(folder, "local").exists()
        assert cli("local", "up", "--json").data["started"] is True
        # Output that is caught ends with the command: the daemon holds none of it open.
        assert cli.shell('x=$($vmnest --local create a); echo "got $x"').text == "got a\n"
        forced = cli("local", "down", "--force", "--json").data
        assert forced["stopped"] is True
        assert [each["name"] for each in forced["ended"]] == ["a"]
        assert cli("local", "down", "--json").data == {"stopped": False, "ended": []}
        wait_for(lambda: not living_processes(folder))
        assert cli("ls", "--json").data["sandboxes"][0]["state"] in {"GONE", "TERMINATED"}
        assert cli("rm", "a").status == 0
        assert cli("local", "down").status == 0
        wait_for(lambda: not living_processes(folder))


def test_env_starts_a_cloud_that_does_not_run(cli: Cli) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="vmnest-test-") as folder:
        cli = Cli({**bare_environ(folder), "AGENT_SANDBOX_LOCAL_DIR": f"{folder}/local"}, cwd=ROOT)
        lines = cli("local", "env").text.splitlines()
        assert "unset AWS_SESSION_TOKEN" in lines
        assert any(line.startswith("export AWS_SECRET_ACCESS_KEY=") for line in lines)
        assert cli("local", "down").status == 0
        wait_for(lambda: not living_processes(folder))
