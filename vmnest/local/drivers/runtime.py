"""The driver's own copy of what runs outside the daemon: the supervisor's modules and the agent.

They are read through the package's loader (checkout, install, vendored copy or zip) once, when the daemon starts, and
laid down in the state folder with their byte code, since the place that the daemon came from may vanish while VMs
run, a supervisor starts faster from byte code, and a sandbox must see no path of ours.

Stand-alone modules import the standard library and each other, relatively; here they form a package of the same shape
with empty door plates.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import os
import py_compile
import subprocess
import sys
from collections.abc import Iterator, Mapping

from . import removal

STANDALONE = (
    "supervisor.py",
    "drivers/cgroups.py",
    "drivers/channel.py",
    "drivers/console.py",
    "drivers/disk.py",
    "drivers/enclosure.py",
    "drivers/init.py",
    "drivers/kernel.py",
    "drivers/limits.py",
    "drivers/memory.py",
    "drivers/mounts.py",
    "drivers/removal.py",
    "drivers/seccomp.py",
    "drivers/skeleton.py",
    "drivers/stopping.py",
)
_PACKAGE = "cell"
_ROOM = __package__.rpartition(".")[0]
_GUEST = f"{_ROOM.rpartition('.')[0]}._guest.agentd"


class Runtime:
    """The copy in a state folder."""

    def __init__(self, path: str, *, agent: Mapping[str, bytes], digest: str) -> None:
        self.path = path
        self._agent = agent
        self.digest = digest

    def command(self, module: str) -> list[str]:
        """The argv that runs ``main()`` of a stand-alone module, free of the environment and of site-packages."""
        boot = f"import sys; sys.path.insert(0, {self.path!r}); from {_PACKAGE} import {module} as m; m.main()"
        if "." in module:
            room, _, name = module.rpartition(".")
            boot = f"import sys; sys.path.insert(0, {self.path!r}); from {_PACKAGE}.{room} import {name} as m; m.main()"
        return [own_interpreter(), "-I", "-S", "-c", boot]

    def install_agent(self, folder: str) -> None:
        """Write the agent's package into ``folder``, readable by all."""
        package = os.path.join(folder, "agentd")
        _write_files(package, self._agent)
        for here, _, names in os.walk(package):
            os.chmod(here, 0o755)  # noqa: S103 - a program; the state folder above it is closed
            for name in names:
                os.chmod(os.path.join(here, name), 0o644)


def compile_agent(folder: str, *, interpreter: str) -> subprocess.Popen[bytes]:
    """Begin to add byte code for ``interpreter`` to the agent's package: it starts in two thirds of the time."""
    package = os.path.join(folder, "agentd")
    command = [interpreter, "-I", "-S", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", package]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        cwd="/", env={}, umask=0o022,
    )  # fmt: skip


def own_interpreter() -> str:
    """The interpreter that runs the daemon; the one behind a virtual environment, which may vanish."""
    if sys.prefix == sys.base_prefix:
        return sys.executable
    # Before 3.11 the first of these is the environment's own.
    usual = os.path.join(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    for path in (getattr(sys, "_base_executable", None), usual):
        if path and path != sys.executable and os.access(path, os.X_OK):
            return str(path)
    return sys.executable


def install(folder: str) -> Runtime:
    """Lay the copy down in ``folder`` (0700, ours), unless it is there, and remove those of other versions."""
    standalone = _read_standalone()
    agent = _read_agent()
    digest = _digest(standalone, agent)
    home = os.path.join(folder, "runtime")
    path = os.path.join(home, digest)
    os.makedirs(home, mode=0o700, exist_ok=True)
    if not _is_whole(os.path.join(path, _PACKAGE), standalone):
        fresh = f"{path}.{os.getpid()}.new"
        removal.remove_tree(fresh)
        _write_files(os.path.join(fresh, _PACKAGE), standalone)
        for name in standalone:
            py_compile.compile(
                source := os.path.join(fresh, _PACKAGE, name),
                cfile=_byte_code(source),
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
        removal.remove_tree(path)
        os.rename(fresh, path)
    for name in os.listdir(home):
        if name != digest:  # its supervisors have loaded all that they need
            removal.remove_tree(os.path.join(home, name))
    return Runtime(path, agent=agent, digest=digest)


def _is_whole(folder: str, files: Mapping[str, bytes]) -> bool:
    """Whether all is there: who cleans temporary folders takes files away, and a machine's crash leaves empty ones."""
    paths = {os.path.join(folder, name): data for name, data in files.items()}
    return all(_read(path) == data and _read(_byte_code(path)) for path, data in paths.items())


def _byte_code(path: str) -> str:
    """Beside the source, where a supervisor looks, whatever options this process has."""
    folder, name = os.path.split(path)
    return os.path.join(folder, "__pycache__", f"{name.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc")


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as reader:
            return reader.read()
    except FileNotFoundError:
        return None


def _read_standalone() -> dict[str, bytes]:
    room = importlib.resources.files(_ROOM)
    sources = {name: room.joinpath(*name.split("/")).read_bytes() for name in STANDALONE}
    return {"__init__.py": b"", "drivers/__init__.py": b"", **sources}


def _read_agent() -> dict[str, bytes]:
    def walk() -> Iterator[tuple[str, bytes]]:
        for entry in importlib.resources.files(_GUEST).iterdir():
            if entry.name.endswith(".py"):
                yield entry.name, entry.read_bytes()

    return dict(sorted(walk()))


def _digest(*parts: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(importlib.util.MAGIC_NUMBER + own_interpreter().encode())
    for part in parts:
        for name, data in sorted(part.items()):
            digest.update(f"\0{name}\0{len(data)}\0".encode())
            digest.update(data)
    return digest.hexdigest()[:16]


def _write_files(folder: str, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with open(path, "wb") as writer:
            writer.write(data)
