"""Where a driver throws what is large and of no use any more: gone at once, removed by a process that nobody waits for.

A skeleton has ten thousand directories and more, and a VM's layer as many as its programs liked: removing them takes
seconds on a disk, which neither the start nor the end of a daemon has. The remover outlives the daemon if it must.
"""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import time

from .runtime import Runtime

_LOG = logging.getLogger(__name__)

FOLDER = "rubbish"
_SERIAL = itertools.count(1)


class Rubbish:
    """The heap in a state folder. Thread-safe."""

    def __init__(self, folder: str, *, runtime: Runtime) -> None:
        self._folder = os.path.join(folder, FOLDER)
        self._runtime = runtime
        os.makedirs(self._folder, mode=0o700, exist_ok=True)

    def throw(self, *paths: str) -> None:
        """Take directories of the state folder out of the way; those that are not there are fine."""
        for path in paths:
            try:
                os.rename(path, os.path.join(self._folder, f"{time.time_ns():x}-{os.getpid()}-{next(_SERIAL)}"))
            except FileNotFoundError:
                continue
        if paths:
            self.collect()

    def collect(self) -> None:
        """Begin to remove what is on the heap."""
        if not os.path.isdir(self._folder) or not os.listdir(self._folder):
            return
        try:
            # It only forks: its child, which nobody has to reap, does the work.
            subprocess.run(
                self._runtime.command("drivers.removal"), cwd=self._folder, env={}, check=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.CalledProcessError):
            _LOG.exception("the remover did not start; %s is left for the next start", self._folder)
