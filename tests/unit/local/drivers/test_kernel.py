"""What the kernel is told, by its files and its system calls. What changes a process is done in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vmnest.local.drivers import kernel

SETUP = "import os, sys\nfrom vmnest.local.drivers import kernel\n"


def run(program: str, *prefix: str) -> str:
    command = [*prefix, sys.executable, "-c", SETUP + program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_failed_mount_tells_its_errno_and_its_place() -> None:
    with pytest.raises(OSError, match="nowhere") as caught:
        kernel.mount("none", "/nowhere", "tmpfs")
    assert caught.value.filename == "/nowhere"


def test_a_failed_call_by_number_is_an_os_error_too() -> None:
    with pytest.raises(OSError, match="nowhere"):
        kernel.set_mount_attributes("/nowhere", kernel.MOUNT_ATTR_RDONLY)


def test_a_file_is_written_to_where_the_kernel_has_it_and_never_made(tmp_path: Path) -> None:
    (tmp_path / "limit").touch()
    kernel.write(str(tmp_path / "limit"), "max")
    assert (tmp_path / "limit").read_text() == "max"
    with pytest.raises(FileNotFoundError):
        kernel.write(str(tmp_path / "other"), "max")
    assert not (tmp_path / "other").exists()


def test_a_part_of_a_file_is_given_back_where_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 300_000)
    with path.open("rb+", buffering=0) as file:
        kernel.punch(file.fileno(), start=65536, length=131072)
        assert os.lseek(file.fileno(), 65536, os.SEEK_DATA) == 196_608
    assert path.read_bytes() == b"x" * 65536 + bytes(131_072) + b"x" * (300_000 - 196_608)
    with path.open("rb") as file, pytest.raises(OSError, match="Bad file descriptor"):
        kernel.punch(file.fileno(), start=0, length=4096)


def test_an_attribute_reaches_the_mounts_below() -> None:
    program = """
uid, gid = os.geteuid(), os.getegid()
kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
    with open(f"/proc/self/{name}", "w") as writer:
        writer.write(text)
kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
kernel.mount("a", "/mnt", "tmpfs", options="mode=0755")
os.mkdir("/mnt/b")
kernel.mount("b", "/mnt/b", "tmpfs")
kernel.set_mount_attributes("/mnt", kernel.MOUNT_ATTR_RDONLY)
for path in ("/mnt/x", "/mnt/b/x"):
    try:
        open(path, "w")
    except OSError as error:
        print(error.errno)
"""
    assert run(program).split() == ["30", "30"]


def test_no_capability_is_left() -> None:
    program = """
kernel.unshare(kernel.CLONE_NEWUSER)
kernel.drop_capabilities()
print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith("Cap")])
"""
    assert set(run(program).split()) == {"0000000000000000"}


def test_one_thread_can_be_signalled_and_one_that_ended_is_fine() -> None:
    program = """
import signal, threading
seen = []
signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
kernel.signal_thread(os.getpid(), threading.get_native_id(), signal.SIGUSR1)
kernel.signal_thread(os.getpid(), 2**30, signal.SIGUSR1)
print(len(seen))
"""
    assert run(program).split() == ["1"]


def test_the_command_line_becomes_the_title() -> None:
    program = """
kernel.set_title("short")
print(open("/proc/self/cmdline", "rb").read().rstrip(b"\\0").decode())
"""
    assert run(program).strip() == "short"


def test_a_title_longer_than_the_command_line_is_cut() -> None:
    program = """
kernel.set_title("x" * 100_000)
text = open("/proc/self/cmdline", "rb").read()
print(len(text) < 10_000 and text.rstrip(b"\\0") == b"x" * len(text.rstrip(b"\\0")))
"""
    assert run(program).strip() == "True"


def test_a_child_dies_with_its_parent() -> None:
    program = """
reader, writer = os.pipe()
if os.fork() == 0:
    told, tell = os.pipe()
    if os.fork() == 0:
        kernel.die_with_parent()
        os.write(tell, b"x")
        import time
        time.sleep(60)
    os.read(told, 1)
    os._exit(0)
os.close(writer)
print(len(os.read(reader, 1)))  # the end, when the last process that holds the other side is dead
"""
    assert run(program).strip() == "0"


def test_an_undumpable_process_keeps_its_files_from_its_own_user() -> None:
    program = """
kernel.set_dumpable(False)
print(os.stat("/proc/self/mem").st_uid)
"""
    assert run(program).strip() == "0"


def test_all_descriptors_but_the_kept_ones_are_closed() -> None:
    program = """
for _ in range(50):
    os.open("/dev/null", os.O_RDONLY)
kept = os.dup2(1, 700)
kernel.close_all_but((0, 1, 2, kept))
print(sorted(int(name) for name in os.listdir("/proc/self/fd")))
"""
    assert run(program).strip() in {"[0, 1, 2, 3, 700]"}


def test_a_filter_is_installed() -> None:
    program = """
import errno, socket
from vmnest.local.drivers import seccomp
kernel.forbid_new_privileges()
kernel.install_filter(seccomp.build_filter(os.uname().machine))
try:
    socket.socket(40, socket.SOCK_STREAM)
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    assert run(program).strip() == "EAFNOSUPPORT"
