"""The layers of all images: folders named after what they were made from, shared by whoever comes to the same.

A layer is made under a temporary name and renamed when it is whole. What a killed daemon left goes with the first
sweep, not with the start: there may be millions of files in it, and whoever starts us waits. One that a VM runs on is
held by the VM's supervisor (see ``supervisor.Files``), and never removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import threading
import time
from collections.abc import Collection, Iterator, Sequence

from .drivers import removal

FOLDER = "layers"
KEPT_SECONDS = 3600.0  # what was used that short a time ago is likely to be of use again
_UNFINISHED = ".new"
_SERIAL = itertools.count(1)


class Layers:
    """The layers in a state folder. Thread-safe; of one daemon."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(folder, FOLDER)
        self._lock = threading.Lock()  # guards the table
        self._making: dict[str, threading.Lock] = {}
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._rubbish = [name for name in os.listdir(self._folder) if name.endswith(_UNFINISHED)]

    def path(self, name: str) -> str:
        """Where the layer of that name is, or would be."""
        return os.path.join(self._folder, name)

    def paths(self, names: Sequence[str]) -> tuple[str, ...]:
        """Where layers are, in the same order: for ``interface.Launch``."""
        return tuple(self.path(name) for name in names)

    def find(self, name: str) -> bool:
        """Whether the layer is there; if so, it counts as used now."""
        try:
            os.utime(self.path(name))
        except FileNotFoundError:
            return False
        return True

    def is_empty(self, name: str) -> bool:
        """Whether it changes nothing."""
        return not os.listdir(self.path(name))

    @contextlib.contextmanager
    def making(self, name: str) -> Iterator[str]:
        """Be the only one who makes that layer; a path where it can be made. ``publish`` it then."""
        with self._lock:
            lock = self._making.setdefault(name, threading.Lock())
        with lock:
            yield self.path(f"{name}.{os.getpid()}-{next(_SERIAL)}{_UNFINISHED}")

    def publish(self, made: str, name: str) -> None:
        """Give a layer that was made its name. ``making`` is held."""
        os.rename(made, self.path(name))

    def throw(self, path: str) -> None:
        """Take a directory of the state folder out of the way, if it is there; the next sweep removes it."""
        name = f"rubbish.{os.getpid()}-{next(_SERIAL)}{_UNFINISHED}"
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:  # there is something in it
            os.rename(path, self.path(name))
            self._rubbish.append(name)

    def size(self, names: Sequence[str]) -> int:
        """What layers take on the disk, in bytes."""
        return sum(measure(self.path(name)) for name in names)

    def sweep(self, in_use: Collection[str], *, kept_seconds: float = KEPT_SECONDS) -> None:
        """Remove the layers that are not in use, by records or VMs, and were not used for so many seconds."""
        oldest = time.time() - kept_seconds
        rubbish, self._rubbish = self._rubbish, []
        self._remove(rubbish)
        self._remove(
            [
                name
                for name in os.listdir(self._folder)
                if name not in in_use and not name.endswith(_UNFINISHED) and self._is_unused(name, oldest)
            ]
        )

    def _is_unused(self, name: str, oldest: float) -> bool:
        try:
            descriptor = os.open(self.path(name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.fstat(descriptor).st_mtime <= oldest
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            going = self.path(f"{name}.going-{next(_SERIAL)}{_UNFINISHED}")
            os.rename(self.path(name), going)  # at once, for whoever looks
            removal.remove_tree(going)


def measure(top: str) -> int:
    """What a tree takes on the disk, in bytes. It may be of any depth, and change meanwhile."""
    total, pending = 0, [top]
    while pending:  # os.walk calls itself for each directory in a directory
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # gone, or its name is too long: it does not matter so much
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
    return total
