"""The command line as real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

RUN_SECONDS = 120.0
PROGRAM = (sys.executable, "-m", "vmnest")


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Standard output."""
        return self.out.decode()

    @property
    def remarks(self) -> str:
        """Standard error."""
        return self.err.decode()

    @property
    def data(self) -> Any:
        """The one JSON object on standard output, as somebody else's parser reads it."""
        assert self.err == b""
        return read_json(self.out)

    @property
    def error(self) -> Any:
        """The one JSON error on standard error."""
        assert self.out == b""
        return read_json(self.err)["error"]


def read_json(data: bytes) -> Any:
    """One JSON object, checked by ``python -m json.tool`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "json.tool", "--compact"], input=data, capture_output=True, check=False
    )
    assert done.returncode == 0, (data, done.stderr)
    value = json.loads(done.stdout)
    assert isinstance(value, dict)
    return value


@dataclass(frozen=True)
class Cli:
    """Runs ``vmnest`` in an environment of the test's own."""

    environ: Mapping[str, str]
    cwd: Path = field(default=ROOT)

    def __call__(self, *words: str | bytes, program: Sequence[str] = PROGRAM, **environ: str) -> Done:
        """Run to the end."""
        done = subprocess.run(
            [*program, *words],
            cwd=self.cwd,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=RUN_SECONDS,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start, and leave the rest to the test."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [*PROGRAM, *words], cwd=self.cwd, env={**self.environ, **options.pop("environ", {})}, **{**pipes, **options}
        )

    def shell(self, line: str) -> Done:
        """Run a line of shell in which ``$vmnest`` is the program."""
        environ = {**self.environ, "vmnest": " ".join(PROGRAM)}
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.cwd, env=environ, capture_output=True, timeout=RUN_SECONDS, check=False
        )
        return Done(done.returncode, done.stdout, done.stderr)


def bare_environ(home: Path | str) -> dict[str, str]:
    """Nothing but what a process needs, with a home of its own and no way to any cloud."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONWARNINGS": "error",
    }


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The command line with an empty home folder."""
    home = tmp_path / "home"
    home.mkdir()
    return Cli(bare_environ(home))
