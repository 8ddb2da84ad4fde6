"""The skeletons in a state folder: made in the background, shared, replaced when the host's packages change.

A skeleton in use is never removed: each supervisor holds a shared lock on it, and only what can be locked goes.
"""

from __future__ import annotations

import fcntl
import hashlib
import marshal
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ... import errors
from . import removal
from .interpreter import Interpreter
from .runtime import Runtime
from .skeleton import AGENT_FOLDER

# What is visible always, as far as it exists. The first group is walked; the stores never change in place.
_ROOTS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt")
_STORES = ("/nix/store", "/gnu/store")
_PACKAGE_RECORDS = (
    "/var/lib/dpkg/status",
    "/var/lib/rpm",
    "/usr/lib/sysimage/rpm",
    "/lib/apk/db/installed",
    "/var/lib/pacman/local",
    "/nix/var/nix/db",
)
_BUILD_SECONDS = 120


@dataclass(frozen=True)
class View:
    """What of the host can be seen inside.

    Attributes:
        visible: Directories, parents first.
        links: Links at the top, with their targets.
        plain: Those of ``visible`` that are shown read-only.
        staged: Those of ``visible`` that the sandbox's uid may be unable to reach.
    """

    visible: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    plain: tuple[str, ...]
    staged: tuple[str, ...]


def view_host(extra: Sequence[str], *, folder: str) -> View:
    """The allow-list, as far as this host has it, and ``extra`` directories (absolute, existing).

    Raises:
        errors.SettingError: one of ``extra`` cannot be shown: it is none, or holds the state folder.
    """
    for path in extra:
        if not os.path.isabs(path) or not os.path.isdir(path) or _is_forbidden(path, folder):
            raise errors.SettingError(
                f"AGENT_SANDBOX_LOCAL_VISIBLE names no directory that can be shown in a sandbox: {path!r}",
                hint="It takes absolute paths of directories; not the root, and none that holds vmnest's own state.",
            )
    roots = [path for path in _ROOTS if os.path.isdir(path) and not _is_top_link(path)]
    stores = [path for path in _STORES if os.path.isdir(path)]
    more = _outermost({os.path.normpath(path) for path in extra}, known=(*roots, *stores))
    return View(
        visible=(*roots, *stores, *more),
        links=tuple((path, os.readlink(path)) for path in _ROOTS if _is_top_link(path)),
        plain=tuple(stores),
        staged=tuple(more),
    )


def _is_forbidden(path: str, folder: str) -> bool:
    real, state = os.path.realpath(path), os.path.realpath(folder)
    kernel_made = any(contains(top, real) for top in ("/proc", "/sys", "/dev"))
    return real == "/" or kernel_made or contains(real, state) or contains(state, real)


def contains(folder: str, path: str) -> bool:
    """Whether ``path`` is ``folder`` or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _outermost(paths: set[str], *, known: Sequence[str]) -> list[str]:
    """Those that lie in no other one, sorted."""
    kept: list[str] = []
    for path in sorted(paths):
        if not any(contains(folder, path) for folder in (*known, *kept)):
            kept.append(path)
    return kept


def _is_top_link(path: str) -> bool:
    """``/bin`` and the like where they are links into what is visible anyway."""
    return os.path.islink(path) and os.path.realpath(path).startswith("/usr/")


class Skeletons:
    """The current skeleton of a driver. Thread-safe."""

    def __init__(self, folder: str, *, runtime: Runtime, view: View, uid: int | None, interpreter: Interpreter) -> None:
        self._home = os.path.join(folder, "skeleton")
        self._runtime = runtime
        self._view = view
        self._uid = uid
        self._interpreter = interpreter
        self._lock = threading.Lock()
        self._current: str | None = None
        self._building: tuple[str, subprocess.Popen[bytes]] | None = None
        os.makedirs(self._home, mode=0o700, exist_ok=True)

    def begin(self) -> None:
        """Start making the skeleton, unless it is there."""
        with self._lock:
            key = self._key()
            self._sweep(keep=key)
            if os.path.isdir(os.path.join(self._home, key)):
                self._current = os.path.join(self._home, key)
            else:
                self._spawn(key)

    def ensure(self) -> str:
        """The folder of a finished skeleton. One that has become outdated still serves while the next is made."""
        with self._lock:
            if self._building is not None and (self._current is None or self._building[1].poll() is not None):
                self._adopt()
            key = self._key()
            if self._building is None and (self._current is None or os.path.basename(self._current) != key):
                self._spawn(key)
                if self._current is None:
                    self._adopt()
            assert self._current is not None
            return self._current

    def close(self) -> None:
        """Give up a build that is under way."""
        with self._lock:
            if self._building is not None:
                self._building[1].kill()
                self._building[1].wait()
                removal.remove_tree(_fresh(self._home, self._building[0]))
                self._building = None

    def _key(self) -> str:
        parts = [self._runtime.digest, repr(self._view), repr(self._uid), repr(self._interpreter)]
        for path in (*_PACKAGE_RECORDS, *self._view.visible):
            try:
                parts.append(f"{path} {os.stat(path).st_mtime_ns}")
            except OSError:  # this host has no such thing
                parts.append(f"{path} -")
        return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def _spawn(self, key: str) -> None:
        fresh = _fresh(self._home, key)
        worker = prepare(
            fresh, runtime=self._runtime, view=self._view, uid=self._uid, interpreter=self._interpreter, walk=True
        )
        self._building = (key, worker)

    def _adopt(self) -> None:
        """Wait for the build under way and make its result the current one."""
        assert self._building is not None
        key, worker = self._building
        self._building = None
        finish(worker)
        path = os.path.join(self._home, key)
        removal.remove_tree(path)
        os.rename(_fresh(self._home, key), path)
        self._current = path

    def _sweep(self, *, keep: str) -> None:
        for name in os.listdir(self._home):
            path = os.path.join(self._home, name)
            if name != keep and is_unused(path):
                removal.remove_tree(path)


def _fresh(home: str, key: str) -> str:
    return os.path.join(home, f"{key}.new")


def is_unused(skeleton: str) -> bool:
    """Whether no supervisor holds the skeleton."""
    descriptor = os.open(skeleton, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def prepare(
    target: str,
    *,
    runtime: Runtime,
    view: View,
    uid: int | None,
    interpreter: Interpreter,
    walk: bool,
    extra: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start the worker that makes a skeleton at ``target``; ``finish`` waits for it."""
    removal.remove_tree(target)
    os.makedirs(target, mode=0o700)
    os.chmod(target, 0o755)  # noqa: S103 - it is the state folder above that is closed
    root = os.path.join(target, "root")
    os.mkdir(root)
    os.chmod(root, 0o755)  # noqa: S103 - "/" of the sandboxes
    agent = root + AGENT_FOLDER
    os.mkdir(agent)
    if walk:
        runtime.install_agent(agent, interpreter=interpreter.path)
    if uid is not None:
        for path in (target, root, agent):
            os.chown(path, uid, uid)
    config = {
        "target": target,
        "uid": uid,
        "visible": view.visible,
        "links": view.links,
        "walked": tuple(path for path in view.visible if path not in view.plain) if walk else (),
        "interpreter": interpreter.path,
        "prefix": interpreter.prefix,
        "extra": tuple(extra),
    }
    worker = subprocess.Popen(
        runtime.command("drivers.skeleton"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env={}, cwd="/",
    )  # fmt: skip
    assert worker.stdin is not None
    with worker.stdin:
        worker.stdin.write(marshal.dumps(config))
    worker.stdin = None  # or communicate() would flush what is closed
    return worker


def finish(worker: subprocess.Popen[bytes]) -> None:
    """Wait for a skeleton's worker.

    Raises:
        errors.LocalCloudError: it failed, or took too long.
    """
    try:
        _, complaint = worker.communicate(timeout=_BUILD_SECONDS)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
        raise errors.LocalCloudError(
            f"The skeleton layer of the sandboxes was not made within {_BUILD_SECONDS} s",
            hint="Is a very large or slow directory among those of AGENT_SANDBOX_LOCAL_VISIBLE?",
        ) from None
    if worker.returncode != 0:
        last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise errors.LocalCloudError(f"The skeleton layer of the sandboxes could not be made: {last}")
