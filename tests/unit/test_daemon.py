"""The client's side of the local daemon, with real daemons."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import descriptors
from tests.support.cloud import LocalCloud, living_processes
from tests.support.paths import ROOT
from vmnest import __version__, daemon, errors, rendezvous, systems
from vmnest.deadline import Deadline

START_SECONDS = 60.0


@pytest.fixture
def environ() -> Iterator[dict[str, str]]:
    """An environment with a local folder of its own; what runs there at the end is ended."""
    import tempfile

    folder = tempfile.mkdtemp(prefix="vmnest-test-")
    environ = {"PATH": os.environ["PATH"], "HOME": folder, "AGENT_SANDBOX_LOCAL_DIR": os.path.join(folder, "local")}
    yield environ
    end(environ)
    wait_for_nobody(folder)
    shutil.rmtree(folder)


def wait_for_nobody(folder: str) -> None:
    deadline = Deadline(10)
    while left := living_processes(folder):
        deadline.check(f"the end of {left}")


def end(environ: dict[str, str]) -> None:
    running = daemon.find(environ)
    if running is None:
        return
    deadline = Deadline(START_SECONDS)
    daemon.ask(running, method="POST", path=rendezvous.SHUTDOWN_PATH, environ=environ, deadline=deadline)
    wait_for_nobody(rendezvous.folder(environ))


def ensure(environ: dict[str, str]) -> rendezvous.Daemon:
    return daemon.ensure(environ, deadline=Deadline(START_SECONDS))


def test_the_first_call_starts_one_and_the_next_finds_it(environ: dict[str, str]) -> None:
    assert daemon.find(environ) is None
    assert not Path(environ["AGENT_SANDBOX_LOCAL_DIR"]).exists()
    started = ensure(environ)
    found = ensure(environ)
    assert (found.pid, found.url) == (started.pid, started.url)
    assert daemon.find(environ) is not None


def test_it_is_a_process_of_its_own(environ: dict[str, str]) -> None:
    started = ensure(environ)
    assert os.getsid(started.pid) != os.getsid(0)
    parent = int(Path(f"/proc/{started.pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert parent != os.getpid()
    # Nothing of ours is held open: who waits for our output's end is not kept waiting.
    ours = {os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1, 2)} - {"/dev/null"}
    theirs = descriptors.targets(started.pid)
    assert not ours & theirs


def test_a_bad_setting_is_told_though_the_daemon_runs(local_cloud: LocalCloud) -> None:
    with pytest.raises(errors.SettingError, match="AGENT_SANDBOX_LOCAL_DISK"):
        ensure({**local_cloud.environ, "AGENT_SANDBOX_LOCAL_DISK": "tiny"})


def test_it_has_no_secret_of_its_starter(environ: dict[str, str]) -> None:
    secrets = {"AWS_SECRET_ACCESS_KEY": "wJalr", "AWS_SESSION_TOKEN": "FwoG", "GITHUB_TOKEN": "ghp_x"}
    kept = {"JENKINS_NODE_COOKIE": "crumb", "https_proxy": "http://127.0.0.1:9", "LC_ALL": "C.UTF-8"}
    running = daemon.ensure({**environ, **secrets, **kept}, deadline=Deadline(60))
    entries = Path(f"/proc/{running.pid}/environ").read_bytes().decode().split("\0")
    names = dict(entry.split("=", 1) for entry in entries if entry)
    assert names.items() >= kept.items()
    assert names["AGENT_SANDBOX_LOCAL_DIR"] == environ["AGENT_SANDBOX_LOCAL_DIR"]
    assert not names.keys() & secrets.keys()


def test_many_callers_start_one(environ: dict[str, str]) -> None:
    found: list[int] = []
    crowd = [threading.Thread(target=lambda: found.append(ensure(environ).pid)) for _ in range(6)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    assert len(found) == 6
    assert len(set(found)) == 1


def test_one_that_was_killed_is_replaced(environ: dict[str, str]) -> None:
    first = ensure(environ)
    os.kill(first.pid, 9)
    while rendezvous.is_alive(rendezvous.folder(environ)):
        pass
    assert daemon.find(environ) is None
    assert ensure(environ).pid != first.pid


def test_one_that_dies_slowly_is_waited_for(environ: dict[str, str]) -> None:
    folder = rendezvous.folder(environ, prepare=True)
    lock = rendezvous.daemon_lock(folder, Deadline(1))
    lock.take()
    rendezvous.write_daemon(folder, rendezvous.Daemon(url="http://127.0.0.1:9", version=__version__, pid=1))
    end_of_it = threading.Timer(0.5, lock.release)
    end_of_it.start()
    assert daemon.revive(environ, deadline=Deadline(START_SECONDS)).url != "http://127.0.0.1:9"
    end_of_it.join()


def test_one_that_answers_is_not_replaced(environ: dict[str, str]) -> None:
    first = ensure(environ)
    assert daemon.revive(environ, deadline=Deadline(START_SECONDS)).pid == first.pid


def test_one_that_never_answers_is_an_error_in_time(posing: dict[str, str]) -> None:
    pretend(posing)
    with pytest.raises((errors.TransportError, errors.WaitTimeoutError)):
        daemon.revive(posing, deadline=Deadline(0.3))


def pretend_older(environ: dict[str, str], running: rendezvous.Daemon) -> None:
    older = rendezvous.Daemon(url=running.url, version="0.0.9", pid=running.pid)
    rendezvous.write_daemon(rendezvous.folder(environ), older)


def test_an_older_one_without_work_is_replaced_at_its_address(environ: dict[str, str]) -> None:
    first = ensure(environ)
    pretend_older(environ, first)
    second = ensure(environ)
    assert (second.pid != first.pid, second.url) == (True, first.url)
    assert not daemon.is_older(second)


def test_an_older_one_with_work_is_used(local_cloud: LocalCloud) -> None:
    service = local_cloud.client()
    image = "arn:aws:lambda:us-east-1:000000000000:microvm-image:local"
    started = service.run_microvm(imageIdentifier=image)
    pretend_older(local_cloud.environ, local_cloud.daemon)
    assert ensure(local_cloud.environ).pid == local_cloud.daemon.pid
    assert service.get_microvm(microvmIdentifier=started["microvmId"])["state"] in {"PENDING", "RUNNING"}


@pytest.mark.parametrize(("version", "older"), [("0.0.9", True), ("99.0", False), (__version__, False), ("", True)])
def test_versions_are_compared_as_numbers(version: str, older: bool) -> None:
    assert daemon.is_older(rendezvous.Daemon(url="u", version=version, pid=1)) is older


# -- notes -------------------------------------------------------------------------------------------------------------


def pretend(environ: dict[str, str], *, version: str = __version__, **started_with: str) -> None:
    """Somebody who is alive has published this."""
    with_environ = {f"AGENT_SANDBOX_{name.upper()}": value for name, value in started_with.items()}
    running = rendezvous.Daemon(url="http://127.0.0.1:1", version=version, pid=1, started_with=with_environ)
    rendezvous.write_daemon(rendezvous.folder(environ, prepare=True), running)


@pytest.fixture
def posing(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment whose daemon is a lock that we hold, and what ``pretend`` says of it."""
    environ = {"AGENT_SANDBOX_LOCAL_DIR": str(tmp_path)}
    with rendezvous.daemon_lock(str(tmp_path), Deadline(1)):
        yield environ


def test_there_is_nothing_to_note_of_none_and_of_one_as_we_would_start_it(posing: dict[str, str]) -> None:
    assert daemon.notes(posing) == []
    pretend(posing, local_disk="1GiB")
    assert daemon.notes(posing) == []
    assert daemon.notes({**posing, "AGENT_SANDBOX_LOCAL_DISK": "1024M"}) == []


@pytest.mark.parametrize(("version", "word"), [("0.0.9", "older"), ("99.0", "newer")])
def test_one_of_another_version_is_noted(posing: dict[str, str], version: str, word: str) -> None:
    pretend(posing, version=version)
    (note,) = daemon.notes(posing)
    assert f"runs version {version}, which is {word} than this vmnest, {__version__}" in note


@pytest.mark.parametrize(
    ("variable", "here", "there"),
    [
        ("LOCAL_DISK", "2GiB", {}),
        ("LOCAL_DISK", "2GiB", {"local_disk": "1GiB"}),
        ("LOCAL_VISIBLE", "/data", {"local_visible": "/data:/more"}),
        ("LOCAL_ISOLATION", "vm", {"local_isolation": "kernel"}),
    ],
)
def test_a_setting_that_is_not_in_force_is_noted(
    posing: dict[str, str], variable: str, here: str, there: dict[str, str]
) -> None:
    pretend(posing, **there)
    (note,) = daemon.notes({**posing, f"AGENT_SANDBOX_{variable}": here})
    assert note.startswith(f"AGENT_SANDBOX_{variable} is not in force")
    assert next(iter(there.values()), "the default") in note
    assert "vmnest local down" in note


def test_a_stronger_isolation_than_demanded_is_none_to_note(posing: dict[str, str]) -> None:
    pretend(posing, local_isolation="vm")
    assert daemon.notes({**posing, "AGENT_SANDBOX_LOCAL_ISOLATION": "kernel"}) == []


def test_one_that_was_started_with_a_setting_says_so(environ: dict[str, str]) -> None:
    ensure({**environ, "AGENT_SANDBOX_LOCAL_DISK": "1GiB"})
    assert daemon.notes({**environ, "AGENT_SANDBOX_LOCAL_DISK": "1GiB"}) == []
    assert len(daemon.notes({**environ, "AGENT_SANDBOX_LOCAL_DISK": "2GiB"})) == 1


def test_its_own_error_is_ours(environ: dict[str, str]) -> None:
    with pytest.raises(errors.SettingError, match="AGENT_SANDBOX_LOCAL_DISK"):
        ensure({**environ, "AGENT_SANDBOX_LOCAL_DISK": "much"})
    assert daemon.find(environ) is None


def test_a_deadline_that_is_too_short_ends_what_was_started(environ: dict[str, str]) -> None:
    with pytest.raises(errors.WaitTimeoutError, match="not ready within"):
        daemon.ensure(environ, deadline=Deadline(0.02))
    wait_for_nobody(environ["AGENT_SANDBOX_LOCAL_DIR"])


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(errors.LocalCloudError, match="symbolic link"):
        ensure({"AGENT_SANDBOX_LOCAL_DIR": str(tmp_path / "link")})


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_have_no_local_cloud(platform: str) -> None:
    with pytest.raises(errors.UnsupportedError, match=f"need Linux; this is {platform}"):
        daemon.require_linux(platform)


def test_there_is_none_without_locks_that_end_with_their_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "HAS_FLOCK", False)
    with pytest.raises(errors.UnsupportedError, match="fcntl"):
        daemon.find({})
    assert not daemon.is_at("http://127.0.0.1:1", {})


# -- asking ------------------------------------------------------------------------------------------------------------


def test_it_tells_its_status(local_cloud: LocalCloud) -> None:
    told = daemon.ask(
        local_cloud.daemon,
        method="GET",
        path=rendezvous.STATUS_PATH,
        environ=local_cloud.environ,
        deadline=Deadline(10),
    )
    assert told["driver"] == "namespace"
    assert told["pid"] == local_cloud.daemon.pid


def test_a_refusal_is_an_error(local_cloud: LocalCloud) -> None:
    with pytest.raises(errors.LocalDaemonError):
        daemon.ask(
            local_cloud.daemon, method="GET", path="/vmnest/bogus", environ=local_cloud.environ, deadline=Deadline(10)
        )


def test_one_that_hangs_is_named_by_its_pid(environ: dict[str, str]) -> None:
    rendezvous.prepare_folder(rendezvous.folder(environ))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hung = rendezvous.Daemon(url=f"http://127.0.0.1:{listener.getsockname()[1]}", version="1.0", pid=4242)
        with pytest.raises(errors.LocalDaemonError, match="process 4242, does not answer") as caught:
            daemon.ask(hung, method="GET", path=rendezvous.STATUS_PATH, environ=environ, deadline=Deadline(0.2))
    assert "kill -9 4242" in (caught.value.hint or "")


# -- wherever vmnest lies ----------------------------------------------------------------------------------------------

UP = """
import os, sys
from {package} import daemon, deadline, rendezvous
assert daemon.__file__.startswith(sys.argv[1]), daemon.__file__
started = daemon.ensure(os.environ, deadline=deadline.Deadline(60))
told = daemon.ask(started, method="GET", path=rendezvous.STATUS_PATH, environ=os.environ, deadline=deadline.Deadline(9))
print(told["driver"])
"""


def copy_package(destination: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "vmnest", destination, symlinks=False, ignore=ignore)


def start_from(folder: Path, environ: dict[str, str], *, package: str, path: Path) -> None:
    (folder / "json.py").write_text("raise ImportError('the working directory must not be imported from')")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:1] = [{str(path)!r}]\n" + UP.format(package=package), path],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=START_SECONDS,
    )
    assert (done.stdout, done.stderr) == ("namespace\n", "")


def test_it_starts_from_a_copy_inside_another_package(tmp_path: Path, environ: dict[str, str]) -> None:
    outer = tmp_path / "lib" / "outer" / "vendor"
    outer.mkdir(parents=True)
    (outer.parent / "__init__.py").write_text("import sys; assert sys.argv[0] == '-c' and len(sys.argv) == 2, sys.argv")
    (outer / "__init__.py").touch()
    copy_package(outer / "nest")
    (tmp_path / "cwd").mkdir()
    start_from(tmp_path / "cwd", environ, package="outer.vendor.nest", path=tmp_path / "lib")


def test_it_starts_from_a_zip_archive(tmp_path: Path, environ: dict[str, str]) -> None:
    copy_package(tmp_path / "tree" / "vmnest")
    archive = tmp_path / "lib.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in (tmp_path / "tree").rglob("*.py"):
            file.write(path, path.relative_to(tmp_path / "tree"))
    (tmp_path / "cwd").mkdir()
    start_from(tmp_path / "cwd", environ, package="vmnest", path=archive)


def test_byte_code_goes_where_ours_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "pycache_prefix", "/elsewhere")
    command = daemon.build_command(["--folder", "/f"])
    assert command[:5] == [sys.executable, "-I", "-B", "-X", "pycache_prefix=/elsewhere"]
    assert command[-2:] == ["--folder", "/f"]


def test_an_interpreter_without_a_program_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(errors.LocalDaemonError, match="interpreter"):
        daemon.build_command([])


def test_a_program_that_is_waited_for_does_not_detach() -> None:
    assert "fork" in " ".join(daemon.build_command([]))
    assert "fork" not in " ".join(daemon.build_command([], detached=False))
