"""Many sandboxes and many clients at once: nothing is lost, and nothing is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.cli import PROGRAM, Cli, bare_environ
from tests.support.cloud import LocalCloud, living_processes, open_cloud
from tests.support.paths import ROOT
from vmnest import Sandbox, registry

SANDBOXES = 30
THREADS = 8
PROCESSES = 16
WAIT_SECONDS = 60.0


def left_in(cloud: LocalCloud, microvm_ids: set[str]) -> dict[str, list[str]]:
    """What outlived the MicroVMs: folders, mounts, control groups, and processes other than the daemon's."""
    wanted = tuple(each.removeprefix("microvm-") for each in microvm_ids)

    def named(lines: list[str]) -> list[str]:
        return [line for line in lines if any(each in line for each in wanted)]

    groups = [os.path.join(folder, name) for folder, names, _ in os.walk("/sys/fs/cgroup") for name in names]
    found = {
        "folders": os.listdir(os.path.join(cloud.folder, "vms")),
        "mounts": named(Path("/proc/self/mountinfo").read_text().splitlines()),
        "groups": named(groups),
        "processes": named(living_processes(cloud.folder)),
    }
    return {kind: things for kind, things in found.items() if things}


def assert_nothing_is_left(cloud: LocalCloud, microvm_ids: set[str]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while left := left_in(cloud, microvm_ids):
        assert time.monotonic() < end, left
        time.sleep(0.1)


def states(cloud: LocalCloud) -> dict[str, str]:
    pages = cloud.client().get_paginator("list_microvms").paginate()
    return {item["microvmId"]: item["state"] for page in pages for item in page["items"]}


def test_threads_of_one_process_make_use_suspend_and_end_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with open_cloud() as cloud:
        monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", cloud.folder)
        monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
        records = registry.Registry(str(tmp_path / "state.json"))
        with ThreadPoolExecutor(THREADS) as pool:
            boxes = list(pool.map(lambda number: Sandbox.create(f"box-{number}", local=True), range(SANDBOXES)))
            assert {record.name for record in records.all()} == {f"box-{number}" for number in range(SANDBOXES)}
            ids = {box.microvm_id for box in boxes}
            assert len(ids) == SANDBOXES
            assert Counter(states(cloud).values()) == {"RUNNING": SANDBOXES}

            def use(box: Sandbox) -> bytes:
                box.files.write("name", box.name.encode())
                box.suspend()
                return box.exec("cat", ["name"]).stdout

            assert list(pool.map(use, boxes)) == [box.name.encode() for box in boxes]
            list(pool.map(Sandbox.terminate, boxes))
        assert records.all() == []
        assert_nothing_is_left(cloud, ids)
        assert Counter(states(cloud).values()) == {"TERMINATED": SANDBOXES}


def test_many_command_lines_at_once_lose_no_record_and_no_sandbox() -> None:
    """Each process makes, lists, uses and removes its own, all at the same time."""
    with open_cloud() as cloud:
        cli = Cli({**bare_environ(cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": cloud.folder})
        names = [f"box-{number}" for number in range(PROCESSES)]
        run_at_once(cli, [["create", name, "--local"] for name in names], out=lambda words: f"{words[1]}\n")
        listed = {each["name"]: each for each in cli("ls", "--json").data["sandboxes"]}
        assert sorted(listed) == sorted(names)
        assert {each["state"] for each in listed.values()} == {"RUNNING"}
        run_at_once(cli, [["exec", name, "--", "echo", name] for name in names], out=lambda words: f"{words[1]}\n")
        ids = {name: each["microvm_id"] for name, each in listed.items()}
        run_at_once(cli, [["rm", name] for name in names], out=lambda words: render_report(words[1], ids[words[1]]))
        assert cli("ls", "--json").data["sandboxes"] == []
        assert_nothing_is_left(cloud, {each["microvm_id"] for each in listed.values()})
        assert Counter(states(cloud).values()) == {"TERMINATED": PROCESSES}


def render_report(name: str, microvm_id: str) -> str:
    """What is said of one that was removed."""
    return f"{'NAME'.ljust(len(name))}  {'MICROVM'.ljust(len(microvm_id))}  RESULT\n{name}  {microvm_id}  ended\n"


def run_at_once(cli: Cli, commands, *, out) -> None:
    """Start all, then see that each did its work and said nothing else."""
    running = [(words, cli.start(*words)) for words in commands]
    done = [(words, process.communicate(timeout=120), process.wait()) for words, process in running]
    assert [entry for entry in done if entry[1:] != ((out(entry[0]).encode(), b""), 0)] == []


def test_the_first_commands_of_many_processes_start_one_daemon() -> None:
    with tempfile.TemporaryDirectory(prefix="vmnest-test-") as folder:
        cli = Cli({**bare_environ(folder), "AGENT_SANDBOX_LOCAL_DIR": f"{folder}/local"})
        running = [cli.start("run", "--local", "--", "sh", "-c", f"echo {number}") for number in range(12)]
        results = [(process.communicate(timeout=120), process.wait()) for process in running]
        assert results == [((b"%d\n" % number, b""), 0) for number in range(12)]
        daemons = [line for line in living_processes(folder) if "vmnest.local" in line and "--ready-fd" in line]
        assert len(daemons) == 1
        assert cli("ls", "--json").data["sandboxes"] == []
        assert cli("local", "down").status == 0
        end = time.monotonic() + WAIT_SECONDS
        while living_processes(folder):
            assert time.monotonic() < end
            time.sleep(0.05)


def test_of_many_that_want_the_same_name_one_gets_it(shared_cloud: LocalCloud) -> None:
    cli = Cli({**bare_environ(shared_cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": shared_cloud.folder})
    before = set(states(shared_cloud))
    running = [cli.start("create", "wanted", "--local", "--json") for _ in range(8)]
    results = [(*process.communicate(timeout=120), process.wait()) for process in running]
    assert sorted(status for *_, status in results) == [0] + [1] * 7
    assert {json.loads(err)["error"]["code"] for _, err, status in results if status} == {"name_in_use"}
    [made] = [json.loads(out) for out, _, status in results if not status]
    assert cli("ps", "wanted", "--json").data["microvm_id"] == made["microvm_id"]
    alive = {each for each, state in states(shared_cloud).items() if state not in ("TERMINATING", "TERMINATED")}
    assert alive - before == {made["microvm_id"]}
    assert cli("rm", "wanted").status == 0


def test_of_many_that_replace_a_sandbox_one_stays_and_the_others_leave_nothing(shared_cloud: LocalCloud) -> None:
    cli = Cli({**bare_environ(shared_cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": shared_cloud.folder})
    before = set(states(shared_cloud))
    assert cli("create", "worn", "--local").status == 0
    running = [cli.start("create", "worn", "--local", "--replace", "--json") for _ in range(6)]
    results = [(*process.communicate(timeout=120), process.wait()) for process in running]
    # Who is replaced while still starting is told that its MicroVM was ended, or its name taken.
    codes = [json.loads(err)["error"]["code"] for _, err, status in results if status]
    assert set(codes) <= {"name_in_use", "microvm_ended"}
    assert len(codes) < len(results)
    final = cli("ps", "worn", "--json").data
    assert final["state"] == "RUNNING"
    end = time.monotonic() + WAIT_SECONDS
    while True:
        alive = {each for each, state in states(shared_cloud).items() if state != "TERMINATED"} - before
        if alive == {final["microvm_id"]}:
            break
        assert time.monotonic() < end, alive
        time.sleep(0.1)
    assert cli("rm", "worn").status == 0


def test_many_processes_share_one_sandbox(shared_cloud: LocalCloud) -> None:
    environ = {**bare_environ(shared_cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": shared_cloud.folder}
    cli = Cli(environ)
    assert cli("create", "shared", "--local").status == 0
    line = f"for n in 1 2 3; do {' '.join(PROGRAM)} exec shared -- echo $0-$n || exit; done"
    running = [
        subprocess.Popen(
            ["sh", "-c", line, str(number)],
            cwd=ROOT,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(8)
    ]
    results = [(process.communicate(timeout=120), process.wait()) for process in running]
    wanted = ["".join(f"{number}-{turn}\n" for turn in (1, 2, 3)).encode() for number in range(8)]
    assert results == [((text, b""), 0) for text in wanted]
    assert cli("rm", "shared").status == 0


def test_a_sandbox_used_by_a_pool_of_forked_workers(monkeypatch: pytest.MonkeyPatch, shared_cloud: LocalCloud) -> None:
    program = (
        "import multiprocessing\n"
        "from vmnest import Sandbox\n"
        "box = Sandbox.create(local=True)\n"
        "def use(number): return box.exec('echo', [str(number)]).stdout_text\n"
        "with box, multiprocessing.get_context('fork').Pool(4) as pool:\n"
        "    assert pool.map(use, range(40)) == [f'{number}\\n' for number in range(40)]\n"
    )
    # From 3.12 on Python warns of every fork of a process that has threads.
    environ = {
        **bare_environ(shared_cloud.folder),
        "AGENT_SANDBOX_LOCAL_DIR": shared_cloud.folder,
        "PYTHONWARNINGS": "",
    }
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
