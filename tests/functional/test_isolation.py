"""What a program in a local sandbox cannot do: one test a claim, as this user (root, mostly) and as a plain user.

For each case, one sandbox runs ``tests/support/isolation_probe.py``, which tries everything and reports; the
tests read the report, and look at the host.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.cells import Host, Room, make_host
from tests.support.paths import ROOT
from vmnest.local.drivers import layers, namespace

PROBE = (ROOT / "tests" / "support" / "isolation_probe.py").read_text()
ALLOWED = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "nix", "gnu"}
OURS = {"dev", "home", "media", "mnt", "proc", "root", "run", "srv", "sys", "tmp", "var", "work", ".sandbox"}
PROCESSES = 4096
HOST_FILES = ("/etc/bash.bashrc", "/etc/profile", "/etc/ld.so.cache", "/usr/bin/env", "/etc/services")


@dataclass(frozen=True)
class Seen:
    """What one sandbox reported, and what was there on the host meanwhile."""

    report: dict[str, Any]
    outcome: dict[str, Any]
    facts: dict[str, Any]
    host: Host
    before: dict[str, tuple[int, int, int]]

    def __getitem__(self, attempt: str) -> Any:
        found = self.report[attempt]
        assert not str(found).startswith("raised"), found
        return found


def fingerprint(path: str) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def bait(host: Host) -> Iterator[dict[str, Any]]:
    """Things on the host that a sandbox must not find."""
    name = f"vmnest-bait-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        folders = [Path("~").expanduser(), Path("/tmp"), Path("/var/tmp"), Path("/run"), host.folder]
        secrets_at = [folder / name for folder in folders if os.access(folder, os.W_OK)]
        for path in secrets_at:
            path.write_text("a secret of the host")
            path.chmod(0o644)
            stack.callback(path.unlink)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix = str(secrets_at[-1]) + ".sock"
        for address in (unix, "\0" + name):
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(address)
        stack.callback(os.unlink, unix)
        yield {
            "names": [name],
            "secret_files": ["/etc/shadow", "/etc/gshadow", "/etc/ssh/ssh_host_ed25519_key", *map(str, secrets_at)],
            "unix": [unix, "@" + name, "/run/docker.sock", "/run/systemd/notify", "/var/run/docker.sock"],
            "top_level": sorted("/" + entry for entry in os.listdir("/")),
            "marker": f"marker-{name}",
            "host_files": [path for path in HOST_FILES if os.path.isfile(path)],
            "pids": [os.getpid(), os.getppid()],
            "tcp": [["127.0.0.1", listener.getsockname()[1]], ["::1", 22], ["192.0.2.1", 80], ["169.254.169.254", 80]],
            "more_threads_than_allowed": PROCESSES + 100,
        }


@dataclass(frozen=True)
class Case:
    """Who makes the sandbox, and what is taken away from the driver so that it must fall back."""

    user: str
    writables: tuple[str, ...] = ()
    system_interpreters: tuple[str, ...] | None = None

    def __str__(self) -> str:
        words = [self.user, "without overlays" * bool(self.writables)]
        return ", ".join(filter(None, [*words, "own interpreter" * (self.system_interpreters == ())]))


CASES = [
    Case("this user"),
    Case("plain user"),
    Case("this user", writables=("bind",)),
    Case("plain user", writables=("bind",)),
    Case("this user", system_interpreters=()),
]


@pytest.fixture(scope="module", params=CASES, ids=str)
def seen(request: pytest.FixtureRequest) -> Iterator[Seen]:
    """The report of one case's sandbox."""
    case: Case = request.param
    with contextlib.closing(make_host(case.user)) as hosts:
        host = next(hosts)
        with bait(host) as facts:
            before = {path: fingerprint(path) for path in facts["host_files"]}
            environ = {"HOST_SECRET": facts["names"][0], "AWS_SECRET_ACCESS_KEY": facts["names"][0]}
            outcome = host.run(
                *("{python}", "-I", "-S", "-c", PROBE, json.dumps(facts)),
                writables=case.writables,
                system_interpreters=case.system_interpreters,
                environ=environ,
            )
            yield Seen(json.loads(outcome["console"]), outcome, facts, host, before)


def test_the_probe_ran_to_its_end(seen: Seen) -> None:
    assert seen.outcome["ended"] == [0, None, "exited"]


# -- files -------------------------------------------------------------------------------------------------------------


def test_etc_shadow_and_other_secrets_cannot_be_read(seen: Seen) -> None:
    assert seen["read"]["/etc/shadow"] in {"EACCES", "ENOENT"}
    assert set(seen["read"].values()) <= {"EACCES", "ENOENT"}


def test_top_level_directories_outside_the_allow_list_are_absent_or_ours(seen: Seen) -> None:
    for path, names in seen["list"].items():
        if path[1:] not in ALLOWED | OURS:
            assert names is None, path


def test_the_users_home_and_the_other_private_directories_hold_nothing_of_the_host(seen: Seen) -> None:
    for path in ("/root", "/home", "/mnt", "/media", "/srv", "/tmp"):
        assert seen["list"].get(path) in (None, []), path
    assert seen["list"]["/run"] == ["lock"]
    assert set(seen["list"]["/var"]) == {"cache", "lib", "lock", "log", "run", "tmp"}


def test_no_file_of_the_host_is_found_by_a_walk(seen: Seen) -> None:
    assert seen["find"] == []


def test_no_host_path_that_matters_stands_in_mountinfo(seen: Seen) -> None:
    text = "\n".join(seen["mounts"])
    for word in ("skeleton", "state-", "vmnest", str(seen.host.folder), "runtime"):
        assert word not in text
    if not seen.outcome["interpreter"].startswith(os.path.expanduser("~")):  # else its own path must be there
        assert os.path.expanduser("~") + "/" not in text


def test_every_mount_denies_setuid_but_for_the_devices(seen: Seen) -> None:
    for line in seen["mounts"]:
        place, options = line.split()[4:6]
        if not place.startswith("/dev/"):
            assert "nosuid" in options.split(","), line


def test_no_write_reaches_the_host(seen: Seen) -> None:
    assert seen["mark"] > (10 if seen.outcome["writable"] == "bind" else 100)
    command = ["find", "/", "-xdev", "-name", seen.facts["marker"], "-not", "-path", "/proc/*"]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == ""


def test_writing_into_a_file_of_the_host_is_refused(seen: Seen) -> None:
    assert set(seen["append"].values()) <= {"EACCES", "EROFS", "ETXTBSY"}


def test_replacing_a_file_of_the_host_replaces_it_in_the_sandbox_only(seen: Seen) -> None:
    assert set(seen["replace"].values()) == {"EROFS" if seen.outcome["writable"] == "bind" else "ok"}
    assert {path: fingerprint(path) for path in seen.facts["host_files"]} == seen.before


# -- processes ---------------------------------------------------------------------------------------------------------


def test_no_process_of_the_host_is_seen(seen: Seen) -> None:
    assert seen["processes"]["all"] == [1, seen["processes"]["own"]]


def test_command_lines_tell_nothing_of_the_host(seen: Seen) -> None:
    assert seen["processes"]["command_lines"]["1"] == "vmnest-init"


def test_no_process_of_the_host_can_be_signalled(seen: Seen) -> None:
    assert set(seen["processes"]["kill"].values()) == {"ESRCH"}


def test_process_1_cannot_be_looked_into_nor_ended(seen: Seen) -> None:
    init = dict(seen["init"])
    # A signal from inside to process 1 is accepted, and does nothing: the probe went on.
    assert (init.pop("kill"), init.pop("stop")) == ("ok", "ok")
    assert set(init.values()) <= {"EACCES", "EPERM"}


def test_the_number_of_processes_is_limited(seen: Seen) -> None:
    limit = seen["processes_limit"]
    assert limit["failed"]
    assert limit["count"] < PROCESSES
    assert not limit["raised"]


# -- network and sockets -----------------------------------------------------------------------------------------------


def test_no_unix_socket_is_visible(seen: Seen) -> None:
    assert seen["sockets"] == []


def test_no_unix_socket_of_the_host_answers(seen: Seen) -> None:
    assert set(seen["unix"].values()) <= {"ENOENT", "ECONNREFUSED"}


def test_the_hosts_loopback_is_out_of_reach(seen: Seen) -> None:
    outcomes = seen["network"]["connect"]
    assert [outcomes[key] for key in outcomes if key.startswith("127.")] == ["ECONNREFUSED"]


def test_the_network_is_out_of_reach(seen: Seen) -> None:
    network = seen["network"]
    assert network["interfaces"] == ["lo"]
    assert network["datagram"] == "ENETUNREACH"
    assert {network["connect"][key] for key in ("192.0.2.1 80", "169.254.169.254 80")} == {"ENETUNREACH"}


def test_raw_sockets_are_refused(seen: Seen) -> None:
    assert seen["network"]["raw"] == "EPERM"


def test_vsock_and_other_families_do_not_exist(seen: Seen) -> None:
    families = dict(seen["families"])
    assert families.pop("netlink route") == "ok"
    assert set(families.values()) == {"EAFNOSUPPORT"}


# -- the kernel --------------------------------------------------------------------------------------------------------


def test_dangerous_system_calls_are_refused(seen: Seen) -> None:
    calls = dict(seen["calls"])
    assert calls.pop("clone3") == "ENOSYS"
    assert {name: text for name, text in calls.items() if text != "EPERM"} == {}


def test_no_namespace_can_be_made(seen: Seen) -> None:
    namespaces = dict(seen["namespaces"])
    assert namespaces.pop("none") == "ok"
    assert set(namespaces.values()) == {"EPERM"}


def test_a_call_by_another_abi_kills_the_process(seen: Seen) -> None:
    assert set(seen["other_abis"].values()) <= {"signal 31"}


def test_there_are_no_capabilities_and_no_way_to_gain_any(seen: Seen) -> None:
    status = seen["status"]
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0000000000000000"}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


# -- identity and surroundings -----------------------------------------------------------------------------------------


def test_the_user_is_sandbox_and_nobody_on_the_host(seen: Seen) -> None:
    identity = seen["identity"]
    assert (identity["uid"], identity["gid"], identity["name"], identity["home"]) == (1000, 1000, "sandbox", "/work")
    assert (identity["cwd"], identity["host"], identity["owner of home"]) == ("/work", "sandbox", 1000)
    assert (identity["setgroups"], identity["become root"]) == ("deny", "EINVAL")
    inside, outside, count = map(int, identity["map"])
    assert (inside, count) == (1000, 1)
    assert outside == (seen.outcome["uid"] or seen.host.uid or os.geteuid())
    assert outside != 0


def test_cgroups_tell_nothing_of_the_host(seen: Seen) -> None:
    assert all(line.endswith(":/") for line in seen["identity"]["cgroup"])


def test_the_environment_is_built_from_nothing(seen: Seen) -> None:
    assert set(seen["environment"]) - {"LC_CTYPE"} == {
        "AGENTD_BIND", "HOME", "LANG", "LOGNAME", "PATH", "SHELL", "USER",
    }  # fmt: skip
    assert seen.facts["names"][0] not in str(seen["environment"])


def test_no_descriptor_is_inherited(seen: Seen) -> None:
    assert seen["descriptors"] == []


def test_there_are_just_the_basic_devices(seen: Seen) -> None:
    devices = seen["devices"]
    assert devices["names"] == sorted(
        ["fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"]
    )
    assert (devices["mknod"], devices["full"], devices["pty"], devices["shm"]) == ("EPERM", "ENOSPC", "ok", "ok")


def test_sys_shows_the_cpus_and_nothing_else(seen: Seen) -> None:
    devices = seen["devices"]
    assert devices["sys"] == ["cpu", "devices", "system"]
    assert devices["sys writable"] in {"EROFS", "EACCES"}


def test_kernel_settings_cannot_be_written(seen: Seen) -> None:
    assert {seen["devices"]["proc sys writable"], seen["devices"]["sysrq"]} <= {"EACCES", "ENOENT", "EROFS"}


# -- what is left ------------------------------------------------------------------------------------------------------


def test_nothing_is_left_but_the_records(seen: Seen) -> None:
    assert seen.outcome["left"] == ["console.log", "ended.json", "supervisor.log"]


def test_no_mount_is_left(seen: Seen) -> None:
    assert str(seen.host.folder) not in Path("/proc/self/mountinfo").read_text()


# -- further directories -----------------------------------------------------------------------------------------------

LOOK = """
import json, os, socket, sys
top = sys.argv[1]
def outcome(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "ok"
def connect(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
if "wait" in sys.argv:
    with socket.create_server(("127.0.0.1", 8080)) as listener:
        print("listening", flush=True)
        listener.accept()
print(json.dumps({
    "names": sorted(os.listdir(top)),
    "text": open(top + "/file").read(),
    "append": outcome(lambda: open(top + "/file", "a")),
    "inner": outcome(lambda: open(top + "/inner/new", "w")),
    "create": outcome(lambda: open(top + "/new", "w")),
    "private": outcome(lambda: os.listdir(top + "/private")),
    "early": outcome(lambda: connect(top + "/early")),
    "late": outcome(lambda: connect(top + "/late")),
    "beside": os.listdir(os.path.dirname(top)),
}))
"""


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Path]:
    """A directory to show, in a place that only its owner can reach, with a socket in it."""
    closed = tmp_path / "closed"
    shown = closed / "shown"
    (shown / "private").mkdir(parents=True)
    (shown / "file").write_text("of the host")
    (closed / "secret").write_text("not shown")
    shown.chmod(0o755)
    (shown / "private").chmod(0o700)
    closed.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(shown / "early"))
        (shown / "early").chmod(0o777)
        listener.listen()
        yield shown


@pytest.mark.parametrize("writable", ["disk", "bind"])
def test_a_further_directory_is_shown_without_its_sockets_and_its_neighbours(shown: Path, writable: str) -> None:
    with contextlib.closing(make_host("this user")) as hosts:
        command = ("{python}", "-I", "-S", "-c", LOOK, str(shown))
        outcome = next(hosts).run(*command, visible=[str(shown)], writables=[writable])
    found = json.loads(outcome["console"].splitlines()[-1])
    assert found["text"] == "of the host"
    assert found["append"] in {"PermissionError", "OSError"} or os.geteuid() != 0
    assert found["early"] in {"FileNotFoundError", "ConnectionRefusedError"}
    assert found["beside"] == ["shown"]
    assert (shown / "file").read_text() == "of the host"
    assert not (shown / "new").exists()
    if os.geteuid() == 0:
        assert found["private"] == "PermissionError"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a mount")
def test_a_directory_with_a_mount_in_it_is_bound_read_only_and_without_its_sockets(shown: Path) -> None:
    """No overlay can be made of it; a bind that was not sealed to its depth would let writes through."""
    (shown / "inner").mkdir()
    script = 'mount -t tmpfs -o mode=0777 inner "$0/inner" && exec "$@"'
    with contextlib.closing(make_host("this user")) as hosts:
        outcome = next(hosts).run(
            *("{python}", "-I", "-S", "-c", LOOK, str(shown)),
            visible=[str(shown)],
            prefix=["unshare", "--mount", "sh", "-c", script, str(shown)],
        )
    found = json.loads(outcome["console"].splitlines()[-1])
    assert outcome["writable"] == "disk"
    assert (found["create"], found["inner"]) == ("OSError", "OSError")
    assert found["early"] == "ConnectionRefusedError"


def test_a_socket_that_comes_later_cannot_be_reached_through_an_overlay(room: Room, shown: Path) -> None:
    view = layers.view_host((str(shown),), folder=room.cell.folder)
    driver = namespace.NamespaceDriver(replace(room.cell, view=view))
    try:
        launch = room.launch(room.cell.interpreter.path, "-I", "-S", "-c", LOOK, str(shown), "wait")
        machine = driver.start(launch, on_end=room.end)
        while "listening" not in room.console(machine):
            assert machine.ended is None
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(shown / "late"))
            (shown / "late").chmod(0o777)
            listener.listen()
            machine.dial(8080, timeout=5).close()
            assert room.over.wait(60)
        found = json.loads(room.console(machine).splitlines()[1])
        assert found["late"] in {"ConnectionRefusedError", "FileNotFoundError"}
    finally:
        driver.close()
