"""The files of a sandbox end to end: real isolation, real agent, and other programs that compare."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.agent import Agent
from tests.support.cloud import LocalCloud
from tests.support.cutting import open_client
from tests.support.lifecycle import eventually
from tests.support.paths import ROOT
from vmnest import Sandbox, errors
from vmnest.agent.entries import Transfer
from vmnest.sandbox.files import Files
from vmnest.sandbox.transfer import Progress
from vmnest.wire import names

MIB = 1024 * 1024
LARGE = 200 * MIB
# What a program that moves large files may need: Python and this library take about 40 MiB.
MOST_MEMORY = 90 * MIB

# Moves a file, and prints the most memory that it needed.
# (What getrusage() tells of a child begins with the memory of its parent.)
MOVE = """
import re, sys
from vmnest import Sandbox
way, sandbox, source, target = sys.argv[1:]
getattr(Sandbox.get(sandbox).files, way)(source, target)
print(int(re.search("VmHWM:[^0-9]*([0-9]+) kB", open("/proc/self/status").read())[1]) * 1024)
"""
# Writes a file that never ends.
WRITE_FOR_EVER = """
import itertools, sys
from vmnest import Sandbox
Sandbox.get(sys.argv[1]).files.write(sys.argv[2], itertools.repeat(bytes(65536)), timeout=None)
"""


@pytest.fixture(scope="module")
def box(shared_cloud: LocalCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One sandbox for all tests of this module that leave it running."""
    state = str(tmp_path_factory.mktemp("state") / "state.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT_SANDBOX_LOCAL_DIR", shared_cloud.folder)
        patch.setenv("AGENT_SANDBOX_STATE", state)
        patch.delenv("AGENT_SANDBOX_WORKDIR", raising=False)
        with Sandbox.create("files", local=True) as sandbox:
            yield sandbox


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while piece := file.read(MIB):
            digest.update(piece)
        return digest.hexdigest()


def move(*words: str) -> int:
    """The most memory that a program needed to move a file."""
    done = subprocess.run([sys.executable, "-c", MOVE, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_large_file_goes_both_ways_with_flat_memory_at_both_ends(box: Sandbox, tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as file:
        for _ in range(LARGE // (4 * MIB)):
            file.write(os.urandom(MIB) * 4)
    assert move("upload", "files", str(tmp_path / "large"), "large") < MOST_MEMORY
    assert box.exec("sha256sum", ["large"]).stdout_text.split()[0] == sha256(tmp_path / "large")
    assert move("download", "files", "large", str(tmp_path / "back")) < MOST_MEMORY
    assert sha256(tmp_path / "back") == sha256(tmp_path / "large")
    peaks = box.shell("grep -h VmHWM $(grep -l agentd /proc/[0-9]*/cmdline | sed 's/cmdline/status/')").stdout_text
    assert max(int(line.split()[1]) for line in peaks.splitlines()) * 1024 < MOST_MEMORY
    box.files.remove("large")


def make_tree(top: Path) -> None:
    for number in range(40):
        folder = top / f"d{number % 7}" / "été 日本" / ("long " * 20)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file {number}").write_bytes(os.urandom(number * 997))
        (folder / f"file {number}").chmod(0o600 + number % 0o177)
        (folder / f"empty {number}").mkdir()
        os.symlink(f"file {number}", folder / f"link {number}")
    Path(os.fsdecode(os.fsencode(top) + b"/not utf-8 \xff\xfe\n")).write_bytes(b"x")
    (top / ".hidden").touch()
    (top / "run.sh").write_bytes(b"#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    os.link(top / "run.sh", top / "same")
    os.symlink("nowhere", top / "dangling")
    os.symlink(".", top / "loop")


# What ``find`` sees of everything: path, type, permissions, times, links, sizes and contents.
LOOK = (
    r"cd \"$1\" && find . -printf '%p\0%y %m %T@ %l\0' | sort -z && "
    r"find . -type f -printf '%p %s %n\0' | sort -z && find . -type f -print0 | sort -z | xargs -0 sha256sum"
).replace('\\"', '"')


def test_a_tree_goes_in_and_comes_back_and_other_programs_see_no_difference(box: Sandbox, tmp_path: Path) -> None:
    make_tree(tmp_path / "tree")
    told = box.files.upload(tmp_path / "tree", "tree")
    assert (told.files, told.links, told.skipped) == (43, 43, ())
    before = subprocess.check_output(["sh", "-c", LOOK, "sh", str(tmp_path / "tree")])
    assert box.exec("sh", ["-c", LOOK, "sh", "tree"]).stdout == before
    assert box.files.download("tree", tmp_path / "back") == told
    assert subprocess.check_output(["sh", "-c", LOOK, "sh", str(tmp_path / "back")]) == before


def test_many_files_are_listed_and_moved(box: Sandbox, tmp_path: Path) -> None:
    box.shell("mkdir -p many/sub && cd many && seq 2000 | xargs touch && cd sub && seq 2000 | xargs touch", check=True)
    assert len(box.files.list("many")) == 2001
    assert sum(1 for _ in box.files.scan("many", depth=2)) == 4001
    assert box.files.download("many", tmp_path / "many") == Transfer(files=4000, directories=2)
    assert len(os.listdir(tmp_path / "many" / "sub")) == 2000


@pytest.mark.parametrize("goes_in", [True, False])
def test_while_a_sandbox_is_suspended_a_transfer_waits_and_does_not_wake_it(
    box: Sandbox, tmp_path: Path, goes_in: bool
) -> None:
    if goes_in:
        (tmp_path / "big").write_bytes(os.urandom(50_000_000))
    else:
        box.shell("head -c 50000000 /dev/urandom > big", check=True)
    suspended = threading.Event()

    def suspend_once(progress: Progress) -> None:
        if progress.bytes > MIB and not suspended.is_set():
            if goes_in:  # megabytes may be on their way of a request that has not arrived; it would wake the sandbox
                eventually(
                    lambda: any(entry.size > 0 for entry in box.files.list() if entry.name.startswith(".agentd-"))
                )
            box.suspend()
            suspended.set()

    def transfer() -> None:
        if goes_in:
            box.files.upload(tmp_path / "big", "big", progress=suspend_once)
        else:
            box.files.download("big", tmp_path / "big", progress=suspend_once)

    thread = threading.Thread(target=transfer)
    thread.start()
    assert suspended.wait(60)
    try:
        # Long enough for several looks at the service. Had anything been sent, it would run by now.
        thread.join(3)
        assert thread.is_alive()
        assert box.refresh() == names.SUSPENDED
    finally:
        box.resume()
        thread.join(60)
    assert not thread.is_alive()
    assert sha256(tmp_path / "big") == box.exec("sha256sum", ["big"]).stdout_text.split()[0]


def test_a_client_that_is_killed_leaves_the_old_file_and_nothing_else(box: Sandbox) -> None:
    box.files.write("killed/file", b"old")
    writer = subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, "files", "killed/file"], cwd=ROOT)
    try:
        eventually(lambda: any(entry.size > MIB for entry in box.files.list("killed")))
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    eventually(lambda: [entry.name for entry in box.files.list("killed")] == ["file"])
    assert box.files.read("killed/file") == b"old"


def test_the_kernels_own_files_are_files(box: Sandbox) -> None:
    assert box.files.read_text("/proc/self/status").startswith("Name:")
    with pytest.raises(errors.NotAFileError):
        box.files.read("/dev/zero")


def test_what_may_not_be_written_is_told_as_that(box: Sandbox) -> None:
    with pytest.raises(errors.RemoteFileError):
        box.files.write("/proc/version", b"x")


# -- an image with nothing in it but the agent -------------------------------------------------------------------------


def test_no_program_of_the_image_is_needed(start_agent: Callable[..., Agent], tmp_path: Path) -> None:
    (tmp_path / "no tools").mkdir()
    agent = start_agent(environ={"PATH": str(tmp_path / "no tools")})
    make_tree(tmp_path / "tree")
    there = str(tmp_path / "there")
    with open_client(agent.url) as client:
        files = Files(lambda _deadline: client)
        with pytest.raises(errors.CommandNotFoundError):
            client.exec("sh")
        told = files.upload(tmp_path / "tree", there)
        assert told.files == 43
        assert files.copy(there, f"{there}2", recursive=True) == ()
        assert len(files.list(f"{there}2", depth=9)) == told.files + told.links + told.directories - 1
        files.chmod(f"{there}2/run.sh", 0o700)
        files.rename(f"{there}2/run.sh", f"{there}2/ran.sh")
        assert files.stat(f"{there}2/ran.sh", sha256=True).mode == 0o700
        files.remove(f"{there}2", recursive=True)
        assert not files.exists(f"{there}2")
        assert files.download(there, tmp_path / "back") == told
    before, after = (
        subprocess.check_output(["sh", "-c", LOOK, "sh", str(tmp_path / name)]) for name in ("tree", "back")
    )
    assert before == after
