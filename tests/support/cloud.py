"""A local cloud of its own for each test: a real daemon, in a folder that goes with it."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from vmnest import rendezvous

READY_SECONDS = 60.0
END_SECONDS = 30.0


class LocalCloud:
    """A running daemon. ``environ`` is what ``vmnest local env`` prints, and the folder, over a bare environment."""

    def __init__(self, folder: str, *, daemon: rendezvous.Daemon, process: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.daemon = daemon
        self.process = process
        self.keys = rendezvous.keys(folder)

    @property
    def url(self) -> str:
        """The control plane's address."""
        return self.daemon.url

    @property
    def environ(self) -> dict[str, str]:
        """For child processes."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        lines = rendezvous.environment(self.daemon, self.keys, environ={})
        return {
            **kept,
            "HOME": self.folder,
            "AGENT_SANDBOX_LOCAL_DIR": self.folder,
            "AWS_EC2_METADATA_DISABLED": "true",
            **{name: value for name, value in lines if value is not None},
        }

    def client(self, service: str = "lambda-microvms", **changes: Any) -> Any:
        """A boto3 client of this cloud."""
        import boto3
        from botocore.config import Config

        options: dict[str, Any] = {
            "endpoint_url": self.url,
            "region_name": "us-east-1",
            "aws_access_key_id": self.keys.access_key,
            "aws_secret_access_key": self.keys.secret_key,
            "config": Config(retries={"total_max_attempts": 1}, proxies={}),
        }
        return boto3.session.Session().client(service, **{**options, **changes})

    @property
    def log(self) -> str:
        """The daemon's log."""
        return Path(self.folder, rendezvous.LOG_FILE).read_text(encoding="utf-8")


@contextlib.contextmanager
def open_cloud(*, folder: str | None = None, arguments: Sequence[str] = (), **environ: str) -> Iterator[LocalCloud]:
    """A daemon in ``folder``, or in a new one that is removed at the end. Nothing of it outlives the block."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            # Not below pytest's folders: root's sandbox runs as a uid that may not pass through those.
            folder = tempfile.mkdtemp(prefix="vmnest-test-", dir=fast_folder())
            stack.callback(_remove_folder, folder)
        process, line = start_daemon(folder, arguments=arguments, environ=environ)
        stack.callback(end_daemon, process, folder)
        yield LocalCloud(folder, daemon=rendezvous.parse_ready(line), process=process)


def start_daemon(
    folder: str, *, arguments: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], bytes]:
    """Start the daemon's program; the process and its ready line."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as pipe:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "vmnest.local", "--folder", folder, "--ready-fd", str(writer), *arguments],
                cwd=ROOT,
                env={**os.environ, **(environ or {})},
                stdin=subprocess.DEVNULL,
                pass_fds=(writer,),
                start_new_session=True,
            )
        finally:
            os.close(writer)
        ready, _, _ = select.select([pipe], [], [], READY_SECONDS)
        return process, pipe.readline() if ready else b""


def end_daemon(process: subprocess.Popen[bytes], folder: str) -> None:
    """End it as a user would, and see that it went and took everything with it."""
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
    left = await_processes(folder)
    assert not left, f"processes outlived the daemon: {left}"


def await_processes(folder: str) -> list[str]:
    """What is left of the processes that name the folder, after a while in which they may end."""
    left = living_processes(folder)
    end = time.monotonic() + END_SECONDS  # what it had begun to remove is removed to the end, on a busy disk slowly
    while left and time.monotonic() < end:
        time.sleep(0.05)
        left = living_processes(folder)
    return left


def living_processes(folder: str) -> list[str]:
    """Command lines of processes that name the folder; zombies do not count: nobody may have waited for them yet."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            command = Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[0]
            if folder in command and state != "Z" and int(name) != os.getpid():
                found.append(f"{name} {command}")
    return found


def fast_folder() -> str | None:
    """Memory, where there is some: a cloud's skeleton layer is many thousand folders, and most tests make their own."""
    shared = "/dev/shm"
    return shared if os.access(shared, os.W_OK | os.X_OK) else None


def work_in(cloud: LocalCloud, patch: pytest.MonkeyPatch) -> None:
    """This process works with that local cloud, and with names that stand in its folder."""
    patch.setenv("AGENT_SANDBOX_LOCAL_DIR", cloud.folder)
    patch.setenv("AGENT_SANDBOX_STATE", f"{cloud.folder}/state.json")
    patch.setenv("AGENT_SANDBOX_TARGET", "local")


def _remove_folder(folder: str) -> None:
    shutil.rmtree(folder)


@pytest.fixture
def local_cloud() -> Iterator[LocalCloud]:
    """A local cloud of the test's own."""
    with open_cloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloud]:
    """A local cloud that the tests of a module share; they leave no VM running."""
    with open_cloud() as cloud:
        yield cloud
