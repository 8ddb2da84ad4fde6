"""Sandboxes of the namespace driver, without a daemon: in this process, or in one of another user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from vmnest.local.drivers import Ended, Launch, cgroups, machine, namespace, places, selection

PLAIN_UID = 54321
SYSTEM_PYTHON = "/usr/bin/python3"
HOST_PROGRAM = Path(__file__).with_name("cell_host.py")
# The main process of most tests: what it prints is in the console, and it says when it is there.
LISTENER = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 8080))
os.write(3, b"{}")
os.close(3)
while True:
    call, _ = listener.accept()
    with call:
        call.sendall(b"here")
"""


class Room:
    """A folder for VMs of one driver, and the ends that it told."""

    def __init__(self, driver: namespace.NamespaceDriver, cell: namespace.Cell, folder: Path) -> None:
        self.driver = driver
        self.cell = cell
        self.folder = folder
        self.ends: list[Ended] = []
        self.over = threading.Event()
        self._count = 0

    def launch(self, *command: str, **changes: Any) -> Launch:
        """A launch in a fresh folder."""
        self._count += 1
        folder = self.folder / f"vm{self._count}"
        folder.mkdir(mode=0o700)
        values: dict[str, Any] = {
            "microvm_id": folder.name,
            "folder": str(folder),
            "environment": {},
            "memory_mib": 64,
            "disk_bytes": 2**26,
            "max_seconds": 60.0,
            "command": command or None,
        }
        return Launch(**{**values, **changes})

    def end(self, ended: Ended) -> None:
        """What ``on_end`` is."""
        self.ends.append(ended)
        self.over.set()

    def start(self, *command: str, **changes: Any) -> namespace.NamespaceMachine:
        """A VM that was started."""
        return self.driver.start(self.launch(*command, **changes), on_end=self.end)

    def start_python(self, program: str, **changes: Any) -> namespace.NamespaceMachine:
        """A VM whose main process is a Python program."""
        return self.start(self.cell.interpreter.path, "-I", "-S", "-c", program, **changes)

    def start_listener(self, **changes: Any) -> namespace.NamespaceMachine:
        """A VM whose main process listens on the agent's port (and nothing else)."""
        launch = self.launch(self.cell.interpreter.path, "-I", "-S", "-c", LISTENER, **changes)
        skeleton = self.driver.skeleton()
        machine = namespace.spawn(self.cell, launch, skeleton=skeleton, on_end=self.end, ready=True)
        namespace.await_words(machine, "ready", folder=launch.folder)
        self.driver.watch(machine)
        return machine

    def console(self, machine: namespace.NamespaceMachine) -> str:
        """What a VM's main process printed."""
        return Path(machine.folder, "console.log").read_text()


@pytest.fixture(scope="session")
def cell(tmp_path_factory: pytest.TempPathFactory) -> namespace.Cell:
    """What the probe found to work here."""
    return selection.prepare(folder=str(tmp_path_factory.mktemp("cell")), visible=(), environ={})


@pytest.fixture(scope="session")
def cell_driver(cell: namespace.Cell) -> Iterator[namespace.NamespaceDriver]:
    """A driver whose skeleton is made once for all tests."""
    driver = namespace.NamespaceDriver(cell)
    yield driver
    driver.close()


# How a VM can be held to its limits, and frozen.
GROUPS = "groups"
GROUPS_OF_VERSION_1 = "groups of version 1"
SIGNALS = "watch and signals"


def find_groups() -> dict[str, tuple[int, str]]:
    """The groups that we are in ourselves, by role: those below which we may make some."""
    own = places.find_own(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    return {role: (version, group) for role, (version, group) in own.items() if os.access(group, os.W_OK)}


def list_ways() -> list[str]:
    """The ways that this machine has, for us."""
    ways = [SIGNALS]
    if find_groups().keys() >= {cgroups.MEMORY, cgroups.CPU, cgroups.FREEZER}:
        ways.insert(0, GROUPS)
        if os.access("/sys/fs/cgroup/freezer", os.W_OK):
            ways.insert(1, GROUPS_OF_VERSION_1)
    return ways


def vary(cell: namespace.Cell, way: str) -> namespace.Cell:
    """A cell whose VMs are held that way."""
    own = find_groups()
    if way == GROUPS_OF_VERSION_1:
        own[cgroups.FREEZER] = (1, "/sys/fs/cgroup/freezer")
    name = f"vmnest-test-{os.getpid()}-{way.split()[-1]}"
    return replace(cell, places=places.Places({} if way == SIGNALS else own, name=name, uid=cell.uid))


@pytest.fixture(scope="session", params=list_ways())
def held_driver(cell: namespace.Cell, request: pytest.FixtureRequest) -> Iterator[namespace.NamespaceDriver]:
    """A driver of each way."""
    driver = namespace.NamespaceDriver(vary(cell, request.param))
    yield driver
    driver.close()


@pytest.fixture
def held_room(held_driver: namespace.NamespaceDriver, tmp_path: Path) -> Iterator[Room]:
    """A place for VMs that are held each way."""
    yield from make_room(held_driver, tmp_path)


@pytest.fixture(scope="session")
def watched_driver(cell: namespace.Cell) -> Iterator[namespace.NamespaceDriver]:
    """A driver that has no control groups."""
    driver = namespace.NamespaceDriver(vary(cell, SIGNALS))
    yield driver
    driver.close()


@pytest.fixture
def watched_room(watched_driver: namespace.NamespaceDriver, tmp_path: Path) -> Iterator[Room]:
    """A place for VMs without control groups."""
    yield from make_room(watched_driver, tmp_path)


def make_room(driver: namespace.NamespaceDriver, folder: Path) -> Iterator[Room]:
    """A place for VMs of a driver; those that are left at the end are ended, and nothing of them may be left."""
    room = Room(driver, driver.cell, folder)
    yield room
    for path in folder.glob("vm*"):
        groups = machine.load_groups(str(path))
        driver.discard(str(path))
        assert not [group for group in groups if os.path.exists(group)]


@pytest.fixture
def room(cell_driver: namespace.NamespaceDriver, tmp_path: Path) -> Iterator[Room]:
    """A place for VMs."""
    yield from make_room(cell_driver, tmp_path)


@dataclass(frozen=True)
class Host:
    """A user on whose behalf a driver runs, with a state folder and a copy of the package that it can read."""

    name: str
    python: str
    package: Path
    folder: Path
    uid: int | None

    def run(
        self,
        *command: str,
        visible: Sequence[str] = (),
        writables: Sequence[str] = (),
        system_interpreters: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        freeze: bool = False,
    ) -> dict[str, Any]:
        """Run one sandbox; the report of ``cell_host``. ``prefix`` is a command that runs the host program."""
        request = {
            "folder": tempfile.mkdtemp(prefix="state-", dir=self.folder),
            "command": command,
            "visible": list(visible),
            "writables": list(writables),
            "system_interpreters": system_interpreters,
            "freeze": freeze,
        }
        if self.uid is not None:
            os.chown(request["folder"], self.uid, self.uid)
        done = subprocess.run(
            [*prefix, self.python, str(self.package / "cell_host.py")],
            input=json.dumps(request),
            env={"PYTHONPATH": str(self.package), "PATH": "/usr/bin:/bin", **(environ or {})},
            cwd="/",
            user=self.uid,
            group=self.uid,
            extra_groups=None if self.uid is None else [],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report


def make_host(name: str) -> Iterator[Host]:
    """A host of that name: ``this user`` (root, mostly), or a ``plain user``."""
    uid = None
    python = sys.executable
    if name == "plain user" and os.geteuid() == 0:
        uid = PLAIN_UID
        python = SYSTEM_PYTHON
        if not is_new_enough(python):
            pytest.skip(f"{python} cannot run vmnest for another user")
    base = Path(tempfile.mkdtemp(prefix="vmnest-host-"))
    try:
        package, folder = base / "package", base / "state"
        shutil.copytree(ROOT / "vmnest", package / "vmnest", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(HOST_PROGRAM, package)
        folder.mkdir()
        for path in (base, *package.rglob("*"), package, folder):
            path.chmod(0o755)
        if uid is not None:
            os.chown(folder, uid, uid)
        yield Host(name, python, package, folder, uid)
    finally:
        shutil.rmtree(base)


def is_new_enough(python: str) -> bool:
    """Whether it is one that vmnest runs on."""
    check = "import sys; sys.exit(sys.version_info < (3, 10))"
    return os.access(python, os.X_OK) and subprocess.run([python, "-c", check], check=False).returncode == 0
