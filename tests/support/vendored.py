"""Copies of vmnest that ``tools/vendor`` makes, and a folder of their own for all that they do."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.support.cli import Cli, bare_environ
from tests.support.cloud import END_SECONDS, fast_folder, living_processes
from tests.support.paths import ROOT

DEPENDENCIES = Path(yaml.__file__).parents[1]


def vendor(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run ``tools/vendor``."""
    command = [ROOT / "tools" / "vendor", *words]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


@dataclass(frozen=True)
class Place:
    """Where a copy lies, and what runs it: it sees itself and the libraries that it needs, and no other vmnest.

    Attributes:
        folder: All that is written is written below it; its ``home`` is HOME.
        program: The command line's command.
        path: What goes to PYTHONPATH.
    """

    folder: Path
    program: Sequence[str]
    path: str = field(default=str(DEPENDENCIES))

    @property
    def environ(self) -> dict[str, str]:
        """For its processes, all of which are told that they are of the application. What they warn of is an error."""
        return {**bare_environ(self.folder / "home"), "PYTHONPATH": self.path, "APPLICATION": "1"}

    def run(self, *words: str, program: Sequence[str] = (), **environ: str) -> bytes:
        """The standard output of a command that does what it shall."""
        done = Cli({**self.environ, **environ}, cwd=self.folder)(*words, program=[*(program or self.program)])
        assert done.status == 0, done.err.decode()
        return done.out


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder for copies and their local clouds, which end with it."""
    # Not below pytest's folders: root's sandbox runs as a uid that may not pass through those.
    folder = Path(tempfile.mkdtemp(prefix="vmnest-copy-", dir=fast_folder()))
    try:
        (folder / "home").mkdir()
        yield folder
        subprocess.run(
            [sys.executable, "-m", "vmnest", "local", "down", "--force", "-q"],
            cwd=ROOT,
            env=bare_environ(folder / "home"),
            check=True,
            capture_output=True,
        )
        end = time.monotonic() + END_SECONDS  # a process that has answered is not gone at once
        while (left := living_processes(str(folder))) and time.monotonic() < end:
            time.sleep(0.05)
        assert not left
    finally:
        shutil.rmtree(folder)
