"""That a VM gets the CPUs and the memory that it was given, whatever it is that holds it to them."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cells import Room
from vmnest.local.drivers import Ended, cgroups, interface, limits

# Each fills more than the 64 MiB that VMs have here, and then waits to be ended.
EATERS = {
    "the main process": "kept = [b'x' * 2**20 for _ in range(128)]; time.sleep(1000)",
    "a child of a child": """
if os.fork() == 0:
    if os.fork() == 0:
        kept = [b'x' * 2**20 for _ in range(128)]
        time.sleep(1000)
time.sleep(1000)""",
    "a process that hides": """
import ctypes
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
kept = [b'x' * 2**20 for _ in range(128)]
time.sleep(1000)""",
    "many that are small": """
for _ in range(40):
    if os.fork() == 0:
        kept = b'x' * 2**22
        time.sleep(1000)
time.sleep(1000)""",
    "files in memory and a process": """
with open('/dev/shm/file', 'wb') as writer:
    writer.write(b'x' * 30 * 2**20)
kept = [b'x' * 2**20 for _ in range(50)]
time.sleep(1000)""",
    "files without content": """
for number in range(300000):
    os.close(os.open(f'/dev/shm/{number}', os.O_CREAT))
time.sleep(1000)""",
    "files without a name": """
kept = []
for _ in range(128):
    kept.append(os.memfd_create('x'))
    os.write(kept[-1], b'x' * 2**20)
time.sleep(1000)""",
    "memory that is shared": """
import mmap
kept = mmap.mmap(-1, 128 * 2**20)
for start in range(0, len(kept), 4096):
    kept[start] = 1
time.sleep(1000)""",
    "segments that nobody is attached to": """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for _ in range(16):
    place = ctypes.c_void_p(libc.shmat(libc.shmget(0, 2**23, 0o1600), None, 0))
    ctypes.memset(place, 1, 2**23)
    libc.shmdt(place)
time.sleep(1000)""",
    "a process with a name that lies": """
import ctypes
ctypes.CDLL(None).prctl(15, b'\\rVmSwap: -99999', 0, 0, 0)
kept = [b'x' * 2**20 for _ in range(128)]
time.sleep(1000)""",
}


def way_of(room: Room) -> str:
    return interface.ENFORCED_WATCH if not room.cell.places.list_groups("x") else interface.ENFORCED_CGROUP


@pytest.mark.parametrize("eater", EATERS)
def test_a_machine_that_uses_up_its_memory_ends(held_room: Room, eater: str) -> None:
    held_room.start_python(f"import os, time\n{EATERS[eater]}")
    assert held_room.over.wait(20)
    assert held_room.ends == [Ended(None, 9, "memory")]


def test_a_machine_within_its_memory_goes_on(held_room: Room) -> None:
    """What it shares counts once, and what it reads from disk not at all."""
    program = """
import mmap, os, socket, time
kept = b'x' * 25 * 2**20
for _ in range(4):
    if os.fork() == 0:
        time.sleep(1000)
shared = mmap.mmap(-1, 16 * 2**20)
shared.write(b'x' * len(shared))
if os.fork() == 0:
    sum(shared[::4096])
    time.sleep(1000)
with open('/work/file', 'wb') as writer:
    for _ in range(50):
        writer.write(b'x' * 2**20)
with open('/work/file', 'rb') as reader:
    while reader.read(2**20):
        pass
listener = socket.create_server(('127.0.0.1', 8080))
end = time.monotonic() + 1.5
while time.monotonic() < end:
    pass
print('done', flush=True)
time.sleep(1000)
"""
    running = held_room.start_python(program)
    while "done" not in held_room.console(running):
        assert running.ended is None


def test_the_machine_tells_what_enforces_its_limits(held_room: Room) -> None:
    for cpus in (None, 0.5):
        assert held_room.start_listener(cpus=cpus).facts["enforced"] == way_of(held_room)


def test_a_machine_gets_no_more_cpu_time_than_its_share(held_room: Room) -> None:
    if way_of(held_room) == interface.ENFORCED_WATCH:
        return  # whole CPUs only: see the next test
    program = """
import os, time
if os.fork() == 0:
    while True:
        pass
end = time.monotonic() + 1.5
while time.monotonic() < end:
    pass
print(time.process_time(), flush=True)
"""
    running = held_room.start_python(program, cpus=0.5)
    assert held_room.over.wait(20)
    assert float(held_room.console(running)) < 1.0  # of 1.5 seconds; its child takes part of its 0.75


def test_a_machine_without_groups_stays_on_as_many_cpus_as_cover_its_share(watched_room: Room) -> None:
    program = """
import os
print(len(os.sched_getaffinity(0)))
try:
    os.sched_setaffinity(0, range(os.cpu_count()))
except PermissionError:
    print('refused')
"""
    for cpus, expected in ((0.5, "1 refused"), (None, str(len(os.sched_getaffinity(0))))):
        watched_room.over.clear()
        running = watched_room.start_python(program, cpus=cpus)
        assert watched_room.over.wait(20)
        assert watched_room.console(running).strip().replace("\n", " ") == expected


def test_more_cpus_than_there_are_is_all_of_them(held_room: Room) -> None:
    running = held_room.start_python("import os; print(len(os.sched_getaffinity(0)))", cpus=64.0)
    assert held_room.over.wait(20)
    assert int(held_room.console(running)) == len(os.sched_getaffinity(0))


def test_an_idle_machine_costs_its_supervisor_next_to_nothing(watched_room: Room) -> None:
    running = watched_room.start_listener()
    before = cpu_seconds(running.pid)
    watched_room.over.wait(3)
    assert cpu_seconds(running.pid) - before <= 0.05  # one in a hundred, and a tick of the clock that it is told by


def cpu_seconds(pid: int | None) -> float:
    with open(f"/proc/{pid}/stat", "rb") as reader:
        fields = reader.read().rpartition(b") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@given(st.sets(st.integers(0, 100), min_size=1), st.floats(0.01, 128))
def test_the_fewest_cpus_that_cover_a_share_are_picked(available: set[int], cpus: float) -> None:
    picked = limits.pick_cpus(available, cpus)
    assert picked <= available
    assert len(picked) == len(available) or len(picked) >= cpus > len(picked) - 1


def test_machines_spread_over_the_cpus() -> None:
    assert set().union(*(limits.pick_cpus({0, 1, 2, 3}, 1) for _ in range(200))) == {0, 1, 2, 3}


def test_no_group_is_left_when_a_machine_ended_by_itself(held_room: Room) -> None:
    launch = held_room.launch("/bin/true", cpus=1.0)
    groups = held_room.cell.places.list_groups(cgroups.name_group(launch.folder))
    held_room.driver.start(launch, on_end=held_room.end)
    assert held_room.over.wait(20)
    assert not [group for group in groups if os.path.exists(group)]
    assert "cgroups" not in os.listdir(launch.folder)


def test_the_folder_of_devices_cannot_be_filled_with_files(held_room: Room) -> None:
    """An empty one has no block, but costs memory all the same."""
    running = held_room.start_python("""
import os
try:
    for number in range(100000):
        os.close(os.open(f'/dev/{number}', os.O_CREAT))
except OSError as error:
    print(error.strerror)
""")
    assert held_room.over.wait(20)
    assert held_room.console(running) == "No space left on device\n"
