"""The skeletons in a state folder: made in the background, shared, replaced when the host's packages change.

A skeleton in use is never removed: each supervisor holds a shared lock on it, and only what can be locked goes.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import marshal
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ... import errors
from . import removal
from .interpreter import Interpreter
from .rubbish import Rubbish
from .runtime import Runtime, compile_agent
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
_UNFINISHED = ".new"
_SERIAL = itertools.count(1)


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
        obstacle = _obstacle(path, folder)
        if obstacle:
            raise errors.SettingError(
                f"AGENT_SANDBOX_LOCAL_VISIBLE: {path!r} cannot be shown in a sandbox: {obstacle}",
                hint="It takes absolute paths of directories, separated by colons.",
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


def _obstacle(path: str, folder: str) -> str:
    """Why a directory cannot be shown, or nothing."""
    if not os.path.isabs(path):
        return "it is no absolute path"
    if not os.path.isdir(path):
        return "there is no such directory"
    real, state = os.path.realpath(path), os.path.realpath(folder)
    if real == "/":
        return "it is the root"
    for top in ("/proc", "/sys", "/dev"):
        if contains(top, real):
            return f"a sandbox has a {top} of its own"
    if contains(real, state):
        return f"vmnest's own state is in it ({state})"
    return f"it is a part of vmnest's own state ({state})" if contains(state, real) else ""


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

    def __init__(
        self,
        folder: str,
        *,
        runtime: Runtime,
        rubbish: Rubbish,
        view: View,
        uid: int | None,
        interpreter: Interpreter,
    ) -> None:
        self._rubbish = rubbish
        self._home = os.path.join(folder, "skeleton")
        self._runtime = runtime
        self._view = view
        self._uid = uid
        self._interpreter = interpreter
        self._lock = threading.Lock()
        self._current: str | None = None
        self._building: Build | None = None
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
            if self._building is not None and (self._current is None or self._building.is_over):
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
            build, self._building = self._building, None
            if build is not None:
                build.abandon()
                self._rubbish.throw(build.target)

    def _key(self) -> str:
        parts = [self._runtime.digest, repr(self._view), repr(self._uid), repr(self._interpreter)]
        for path in (*_PACKAGE_RECORDS, *self._view.visible):
            try:
                parts.append(f"{path} {os.stat(path).st_mtime_ns}")
            except OSError:  # this host has no such thing
                parts.append(f"{path} -")
        return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def _spawn(self, key: str) -> None:
        self._building = Build(
            os.path.join(self._home, f"{key}.{os.getpid()}-{next(_SERIAL)}{_UNFINISHED}"),
            runtime=self._runtime,
            view=self._view,
            uid=self._uid,
            interpreter=self._interpreter,
        )

    def _adopt(self) -> None:
        """Wait for the build under way and make its result the current one."""
        assert self._building is not None
        build, self._building = self._building, None
        try:
            build.finish()
        except errors.LocalCloudError:
            self._rubbish.throw(build.target)
            raise
        path = os.path.join(self._home, os.path.basename(build.target).partition(".")[0])
        if os.path.isdir(path):  # another driver of this folder was faster
            self._rubbish.throw(build.target)
        else:
            os.rename(build.target, path)
        self._current = path

    def _sweep(self, *, keep: str) -> None:
        paths = [os.path.join(self._home, name) for name in os.listdir(self._home) if name != keep]
        self._rubbish.throw(*(path for path in paths if is_unused(path)))


def _lock(folder: str) -> int:
    """A descriptor that holds the folder as in use, until it is closed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def is_unused(skeleton: str) -> bool:
    """Whether no supervisor, and no worker that makes it, holds the skeleton."""
    descriptor = os.open(skeleton, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


class Build:
    """A skeleton in the making.

    Attributes:
        target: Where it is made.
    """

    def __init__(
        self,
        target: str,
        *,
        runtime: Runtime,
        view: View,
        uid: int | None,
        interpreter: Interpreter,
        walk: bool = True,
        extra: Sequence[str] = (),
    ) -> None:
        """Start the worker.

        Args:
            target: What is there already is removed.
            runtime: The worker's and the agent's files.
            view: What of the host is to be covered.
            uid: Whose the skeleton will be, or None for ours.
            interpreter: The Python inside.
            walk: False for the empty skeleton of a probe, without the agent too.
            extra: More directories to make, relative to the target.
        """
        self.target = target
        agent = _lay_ground(target, uid)
        # Another driver of this folder may be sweeping. The worker holds it too: it may outlive a killed daemon.
        self._lock = _lock(target)
        self._compiler: subprocess.Popen[bytes] | None = None
        if walk:
            runtime.install_agent(agent)
            self._compiler = compile_agent(agent, interpreter=interpreter.path)
        config = {
            "target": target,
            "uid": uid,
            "visible": view.visible,
            "links": view.links,
            "walked": tuple(path for path in view.visible if path not in view.plain) if walk else (),
            "interpreter": interpreter.path,
            "prefix": interpreter.prefix,
            "extra": tuple(extra),
            "parent": os.getpid(),
        }
        self._worker = subprocess.Popen(
            runtime.command("drivers.skeleton"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, cwd="/", env={}, pass_fds=(self._lock,),
        )  # fmt: skip
        assert self._worker.stdin is not None
        with self._worker.stdin as stdin:
            stdin.write(marshal.dumps(config))
        self._worker.stdin = None  # or communicate() would flush what is closed

    @property
    def is_over(self) -> bool:
        """Whether ``finish`` would not wait."""
        return self._worker.poll() is not None and (self._compiler is None or self._compiler.poll() is not None)

    def finish(self) -> None:
        """Wait for the result. What a failure leaves is the caller's to remove.

        Raises:
            errors.LocalCloudError: it failed, or took too long.
        """
        try:
            _, complaint = self._worker.communicate(timeout=_BUILD_SECONDS)
        except subprocess.TimeoutExpired:
            self.abandon()
            raise errors.LocalCloudError(
                f"The skeleton layer of the sandboxes was not made within {_BUILD_SECONDS} s",
                hint="Is a very large or slow directory among those of AGENT_SANDBOX_LOCAL_VISIBLE?",
            ) from None
        if self._compiler is not None:
            self._compiler.wait(_BUILD_SECONDS)  # how it ended does not matter: byte code is not needed
        os.close(self._lock)
        if self._worker.returncode != 0:
            last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise errors.LocalCloudError(f"The skeleton layer of the sandboxes could not be made: {last}")

    def abandon(self) -> None:
        """Give up; what is there is the caller's to remove."""
        for process in (self._worker, self._compiler):
            if process is not None:
                process.kill()
                process.wait()
        if self._worker.stderr is not None:
            self._worker.stderr.close()
        os.close(self._lock)


def _lay_ground(target: str, uid: int | None) -> str:
    """Make what the worker, as another uid, could not; returns the agent's place."""
    removal.remove_tree(target)
    root = os.path.join(target, "root")
    agent = root + AGENT_FOLDER
    for path in (target, root, agent):
        os.mkdir(path)
        os.chmod(path, 0o755)  # noqa: S103 - "/" of the sandboxes; the state folder above it is closed
        if uid is not None:
            os.chown(path, uid, uid)
    return agent
