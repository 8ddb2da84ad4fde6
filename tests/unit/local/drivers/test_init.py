"""Process 1, in real sandboxes."""

from __future__ import annotations

import pytest

from tests.support.cells import Room
from vmnest.local.drivers import Ended
from vmnest.local.drivers.namespace import StartFailedError


def test_the_main_processs_status_is_the_end(room: Room) -> None:
    room.start("/bin/sh", "-c", "exit 7")
    assert room.over.wait(20)
    assert room.ends == [Ended(7, None, "exited")]


def test_the_main_processs_signal_is_the_end(room: Room) -> None:
    room.start("/bin/sh", "-c", "kill -SEGV $$")
    assert room.over.wait(20)
    assert room.ends == [Ended(None, 11, "exited")]


def test_a_program_is_looked_for_along_path(room: Room) -> None:
    machine = room.start("sh", "-c", "echo found; tail -c 5 /proc/sys/kernel/ostype")
    assert room.over.wait(20)
    assert room.console(machine) == "found\ninux\n"


@pytest.mark.parametrize(
    ("command", "number"),
    [("/no/such/program", 2), ("no-such-program", 2), ("/etc/passwd", 13), ("/work", 13)],
    ids=["absent", "absent from PATH", "not executable", "a directory"],
)
def test_a_program_that_cannot_be_started_fails_the_start(room: Room, command: str, number: int) -> None:
    with pytest.raises(StartFailedError) as caught:
        room.start(command)
    assert (caught.value.step, caught.value.number) == ("exec", number)


def test_orphans_are_reaped(room: Room) -> None:
    program = """
import os, time
for _ in range(20):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
deadline = time.monotonic() + 10
while time.monotonic() < deadline and len([name for name in os.listdir("/proc") if name.isdigit()]) > 2:
    time.sleep(0.01)
print(len([name for name in os.listdir("/proc") if name.isdigit()]))
"""
    machine = room.start_python(program)
    assert room.over.wait(20)
    assert room.console(machine) == "2\n"


def test_signals_have_their_default_meaning_again(room: Room) -> None:
    program = """
import _signal, os
blocked = [line for line in open("/proc/self/status") if line.startswith("SigBlk")][0].split()[1]
print(int(blocked, 16))
"""
    machine = room.start_python(program)
    assert room.over.wait(20)
    assert room.console(machine) == "0\n"


def test_a_program_finds_no_signal_ignored(room: Room) -> None:
    machine = room.start("/bin/sh", "-c", "grep SigIgn /proc/self/status")
    assert room.over.wait(20)
    # glibc's posix_spawn leaves its own two internal signals ignored; programs cannot name them.
    assert int(room.console(machine).split()[1], 16) & ~(1 << 31 | 1 << 32) == 0


def test_what_the_main_process_leaves_behind_ends_with_it(room: Room) -> None:
    room.start("/bin/sh", "-c", "sleep 1000 & setsid sleep 1000 & exit 3")
    assert room.over.wait(20)
    assert room.ends == [Ended(3, None, "exited")]


def test_stop_with_grace_lets_the_main_process_end_itself(room: Room) -> None:
    program = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
print("set", flush=True)
signal.pause()
"""
    machine = room.start_python(program)
    while "set" not in room.console(machine):
        assert machine.ended is None
    machine.stop(grace=20)
    assert machine.ended == Ended(5, None, "stopped")


def test_stop_with_grace_kills_what_does_not_end(room: Room) -> None:
    machine = room.start("/bin/sh", "-c", "trap '' TERM; echo set; sleep 1000 & wait; sleep 1000")
    while "set" not in room.console(machine):
        assert machine.ended is None
    machine.stop(grace=0.2)
    assert machine.ended == Ended(None, 9, "stopped")
