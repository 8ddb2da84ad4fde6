"""The probe: that it finds what works, and that each failure is told with its own remedy."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vmnest import errors
from vmnest.local.drivers import mounts, namespace, probe
from vmnest.local.drivers.interpreter import Interpreter
from vmnest.local.drivers.namespace import StartFailedError

SELECT = """
import sys
from vmnest import errors
from vmnest.local.drivers import kernel, selection
{setup}
try:
    cell = selection.prepare(folder=sys.argv[1], visible=(), environ={{}})
    print("works", cell.writable, cell.interpreter.path)
except errors.IsolationUnavailableError as error:
    print(error.details["step"])
    print(error.message)
    print(error.hint)
"""
# A seccomp filter that answers one call with EPERM, as container engines do.
DENY = """
import struct
number = {number}
rows = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
kernel.forbid_new_privileges()
kernel.install_filter(b"".join(struct.pack("<HBBI", *row) for row in rows))
"""
NUMBERS = {"unshare": (272, 97), "pivot_root": (155, 41), "mount": (165, 40), "keyctl": (250, 219)}


def select(folder: Path, setup: str = "", prefix: tuple[str, ...] = ()) -> str:
    """What a process with that set-up finds."""
    command = [*prefix, sys.executable, "-c", SELECT.format(setup=setup), str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def deny(call: str) -> str:
    return DENY.format(number=NUMBERS[call][0 if os.uname().machine == "x86_64" else 1])


def is_clean(folder: Path) -> bool:
    return not [name for name in os.listdir(folder) if name.startswith("probe-")]


# -- what works --------------------------------------------------------------------------------------------------------


def test_this_machine_works(cell: namespace.Cell) -> None:
    assert cell.writable in {mounts.DISK, mounts.MEMORY, mounts.BIND}


@pytest.mark.parametrize("writable", [mounts.DISK, mounts.MEMORY, mounts.BIND])
def test_every_way_of_keeping_writes_can_be_probed(cell: namespace.Cell, writable: str, tmp_path: Path) -> None:
    trial = replace(cell, folder=str(tmp_path))
    found = probe.run(trial, candidates=[cell.interpreter], writables=[writable, mounts.BIND])
    assert found.writable in {writable, mounts.BIND}
    assert is_clean(tmp_path)


@pytest.mark.parametrize("bad", ["/bin/false", "/no/such/python", "/bin/cat"])
def test_an_interpreter_that_does_not_work_is_passed_over(cell: namespace.Cell, bad: str, tmp_path: Path) -> None:
    trial = replace(cell, folder=str(tmp_path))
    found = probe.run(trial, candidates=[Interpreter(bad), cell.interpreter], writables=[cell.writable])
    assert found.interpreter == cell.interpreter
    assert is_clean(tmp_path)


def test_no_interpreter_at_all_is_told(cell: namespace.Cell, tmp_path: Path) -> None:
    trial = replace(cell, folder=str(tmp_path))
    with pytest.raises(errors.IsolationUnavailableError) as caught:
        probe.run(trial, candidates=[Interpreter("/no/such/python")], writables=[cell.writable])
    assert "/usr/bin/python3" in (caught.value.hint or "")
    assert is_clean(tmp_path)


@pytest.mark.skipif(not os.path.isdir("/root/.pyenv"), reason="needs a Python under a closed home")
def test_a_python_under_a_closed_home_is_shown_inside(tmp_path: Path) -> None:
    if not sys.base_prefix.startswith("/root/") or os.geteuid() != 0:
        pytest.skip("this Python stands in no closed home")
    setup = "selection.interpreter.SYSTEM_CANDIDATES = ()"
    program = SELECT.format(setup=setup).replace("environ={}", "environ={}, system_interpreters=()")
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.split()[0] == "works", done.stdout + done.stderr
    assert done.stdout.split()[2].startswith("/root/")


# -- what fails, really ------------------------------------------------------------------------------------------------


def processes_with(word: str) -> list[str]:
    """Pids of the processes whose command line has it."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def test_a_refused_unshare_is_told(tmp_path: Path) -> None:
    step, message, hint = select(tmp_path, deny("unshare")).split("\n", 2)
    assert step in {"mount-namespace", "user-namespace"}
    assert "Operation not permitted" in message
    assert "seccomp=unconfined" in hint
    assert is_clean(tmp_path)
    deadline = time.monotonic() + 10
    while processes_with(str(tmp_path)):  # a helper's end follows that of its parent
        assert time.monotonic() < deadline


def test_a_refused_mount_is_told(tmp_path: Path) -> None:
    step, _, hint = select(tmp_path, deny("mount")).split("\n", 2)
    assert step in {"mount-namespace", "stage"}
    assert "--privileged" in hint


def test_a_refused_pivot_is_told(tmp_path: Path) -> None:
    step, _, hint = select(tmp_path, deny("pivot_root")).split("\n", 2)
    assert step == "pivot"
    assert "initramfs" in hint


def test_a_refused_keyring_is_told(tmp_path: Path) -> None:
    step, _, hint = select(tmp_path, deny("keyctl")).split("\n", 2)
    assert step == "keyring"
    assert "keyring" in hint


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_masked_proc_is_told_as_dockers(tmp_path: Path) -> None:
    mask = 'kernel.unshare(kernel.CLONE_NEWNS)\nkernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)\n'
    mask += 'kernel.mount("tmpfs", "/proc/scsi", "tmpfs", flags=kernel.MS_RDONLY)'
    if not os.path.isdir("/proc/scsi"):
        mask = mask.replace("/proc/scsi", "/proc/acpi" if os.path.isdir("/proc/acpi") else "/proc/fs")
    step, _, hint = select(tmp_path, mask).split("\n", 2)
    assert step == "proc"
    assert "systempaths=unconfined" in hint


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_user_namespaces_that_are_used_up_are_told(tmp_path: Path) -> None:
    """In a user namespace of its own the limit can be set without touching the machine's."""
    setup = """
import os
uid_map = "0 0 4294967295"
wake, waker = os.pipe()
done, told = os.pipe()
parent = os.getpid()
if os.fork() == 0:
    os.read(wake, 1)
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{parent}/{name}", "w") as writer:
            writer.write(uid_map)
    os.write(told, b"x")
    os._exit(0)
kernel.unshare(kernel.CLONE_NEWUSER)
os.write(waker, b"x")
os.read(done, 1)
os.wait()
with open("/proc/sys/user/max_user_namespaces", "w") as writer:
    writer.write("0")
"""
    step, _, hint = select(tmp_path, setup).split("\n", 2)
    assert step == "user-namespace"
    assert "user.max_user_namespaces" in hint


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_without_the_right_to_mount_works(tmp_path: Path) -> None:
    """As in a Docker container that was started with the two options."""
    prefix = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
    assert select(tmp_path, prefix=prefix).split()[0] == "works"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_of_a_user_namespace_with_one_uid_works(tmp_path: Path) -> None:
    assert select(tmp_path, prefix=("unshare", "--user", "--map-root-user")).split()[0] == "works"


# -- remedies, on paper ------------------------------------------------------------------------------------------------


def steps_in_the_code() -> set[str]:
    """Every name that the supervisor and process 1 give a step."""
    folder = ROOT / "vmnest" / "local"
    files = ("supervisor.py", "drivers/enclosure.py", "drivers/init.py")
    text = "".join((folder / name).read_text() for name in files)
    taken = set(re.findall(r'take\("([a-z-]+)"', text))
    return taken | {name for name, _ in mounts.STEPS} | {"exec", "internal", "agent", "supervisor"}


def test_every_step_has_a_remedy_and_every_remedy_a_step() -> None:
    assert steps_in_the_code() | {"overlay", "interpreter", "dial"} == set(probe.REMEDIES)


@pytest.mark.parametrize("step", sorted(probe.REMEDIES))
def test_a_failure_names_its_step_and_its_remedy(step: str) -> None:
    failure = StartFailedError(f"the step {step}: refused", step=step, number=errno.EPERM, hint="what was printed")
    error = probe.explain(failure)
    assert isinstance(error, errors.IsolationUnavailableError)
    assert step in error.message
    assert error.hint is not None
    assert len(error.hint.split("\n")[0]) > 20
    assert error.hint.endswith("what was printed")
    assert error.details["step"] == step


def settings(**values: str) -> Callable[[str], str]:
    return lambda path: values.get(path.rpartition("/")[2], "")


@pytest.mark.parametrize(
    ("step", "number", "values", "expected"),
    [
        ("user-namespace", errno.ENOSPC, {"max_user_namespaces": "0"}, "user.max_user_namespaces"),
        ("user-namespace", errno.ENOSPC, {"max_user_namespaces": "100"}, None),
        ("user-namespace", errno.ENOSPC, {"max_net_namespaces": "0"}, None),
        ("namespaces", errno.ENOSPC, {"max_net_namespaces": "0"}, "sudo sysctl -w user.max_net_namespaces=10000"),
        ("mount-namespace", errno.ENOSPC, {"max_mnt_namespaces": "0"}, "user.max_mnt_namespaces"),
        ("user-namespace", errno.EPERM, {"unprivileged_userns_clone": "0"}, "kernel.unprivileged_userns_clone=1"),
        ("namespaces", errno.EPERM, {"apparmor_restrict_unprivileged_userns": "1"}, "apparmor_restrict"),
        ("mount-namespace", errno.EACCES, {"apparmor_restrict_unprivileged_userns": "1"}, "run with sudo"),
        ("proc", errno.EPERM, {"apparmor_restrict_unprivileged_userns": "1"}, None),
        ("namespaces", errno.EPERM, {"apparmor_restrict_unprivileged_userns": "0"}, None),
        ("namespaces", errno.EPERM, {}, None),
    ],
)
def test_a_switch_of_the_kernel_is_named_where_it_is_the_cause(
    step: str, number: int, values: dict[str, str], expected: str | None
) -> None:
    remedy = probe._find_switch(step, number, read=settings(**values))
    assert remedy is None if expected is None else expected in (remedy or "")
