"""How the supervisor leaves the host; that nothing leads back is seen by the tests of isolation."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.cells import Room


def namespaces(pid: int | str) -> dict[str, str]:
    return {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in ("user", "net", "ipc", "uts", "pid", "mnt")}


def test_the_supervisor_is_in_namespaces_of_its_own(room: Room) -> None:
    running = room.start_listener()
    ours, its = namespaces("self"), namespaces(running.pid or 0)
    assert {name for name in ours if ours[name] != its[name]} >= {"user", "net", "ipc", "uts"}
    assert ours["pid"] == its["pid"]  # only its children are in the new one
    assert os.readlink(f"/proc/{running.pid}/ns/pid_for_children") != its["pid"]


def test_one_user_is_mapped_and_no_groups_can_be_had(room: Room) -> None:
    running = room.start_listener()
    for name in ("uid_map", "gid_map"):
        inside, outside, count = Path(f"/proc/{running.pid}/{name}").read_text().split()
        assert (inside, count) == ("1000", "1")
        assert int(outside) == (room.cell.uid if room.cell.uid is not None else os.getuid())
    assert Path(f"/proc/{running.pid}/setgroups").read_text().strip() == "deny"


def test_the_machine_has_a_name_and_a_loopback_of_its_own(room: Room) -> None:
    program = "import socket; print(socket.gethostname(), len(socket.create_server(('127.0.0.1', 0)).getsockname()))"
    running = room.start_python(program)
    assert room.over.wait(20)
    assert room.console(running).split() == ["sandbox", "2"]
