"""Freezing by signals: with real sandboxes that do what they can to go on."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cells import Room
from tests.support.paths import ROOT
from vmnest.local.drivers import channel, machine, stopping

SERVER = """
import os, socket, threading
listener = socket.create_server(("127.0.0.1", 8080))
def serve():
    while True:
        call, _ = listener.accept()
        with call:
            call.sendall(b"here")
threading.Thread(target=serve).start()
"""


def answers(running: machine.NamespaceMachine, *, within: float) -> bool:
    """Whether the program on port 8080 does."""
    with running.dial(8080, timeout=5) as call:
        call.settimeout(within)
        with contextlib.suppress(TimeoutError):
            return call.recv(10) == b"here"
    return False


def await_text(room: Room, running: machine.NamespaceMachine, text: str) -> None:
    while text not in room.console(running):
        assert running.ended is None


def members(running: machine.NamespaceMachine) -> list[int]:
    """The pids of all processes of a machine, as we see them; the first is process 1."""
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    found = [int(pid) for pid in children.read_text().split()]
    for pid in found:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += [int(child) for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    return found


def states(running: machine.NamespaceMachine) -> set[str]:
    """The states of all threads of a machine but for process 1."""
    found = set()
    for pid in members(running)[1:]:
        for task in os.listdir(f"/proc/{pid}/task"):
            found.add(Path(f"/proc/{pid}/task/{task}/stat").read_text().rpartition(") ")[2][0])
    return found


def test_all_threads_of_all_processes_stop_and_go_on(watched_room: Room) -> None:
    program = (
        f"{SERVER}\nfor _ in range(5):\n    if os.fork() == 0:\n        while True: pass\nprint('up', flush=True)\n"
    )
    running = watched_room.start_python(program)
    await_text(watched_room, running, "up")
    running.freeze()
    assert states(running) == {"T"}
    running.thaw()
    assert answers(running, within=10)


def test_a_bomb_of_processes_is_stopped_too(watched_room: Room) -> None:
    """It forks without end, each process ends at once: who lists them first and stops them then is always late."""
    program = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print('up', flush=True)
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
"""
    main = f"import os, time\nif os.fork() == 0:\n    exec({program!r})\n{SERVER}"
    running = watched_room.start_python(main)
    await_text(watched_room, running, "up")
    for _ in range(5):
        running.freeze()
        assert states(running) <= {"T", "Z"}
        running.thaw()
    assert answers(running, within=10)


def test_processes_that_wake_each_other_are_stopped_too(watched_room: Room) -> None:
    program = f"""{SERVER}
for _ in range(4):
    if os.fork() == 0:
        while True:
            os.kill(-1, 18)
print('up', flush=True)
"""
    running = watched_room.start_python(program)
    await_text(watched_room, running, "up")
    running.freeze()
    assert states(running) == {"T"}
    assert not answers(running, within=0.2)


def test_what_was_stopped_before_stays_so(watched_room: Room) -> None:
    program = f"""{SERVER}
if os.fork() == 0:
    print('stopping', flush=True)
    os.kill(os.getpid(), 19)
    print('woken', flush=True)
    os._exit(0)
os.waitpid(-1, os.WUNTRACED)
print('stopped', flush=True)
"""
    running = watched_room.start_python(program)
    await_text(watched_room, running, "stopped")
    for _ in range(2):
        running.freeze()
        running.thaw()
        assert answers(running, within=10)
        assert "T" in states(running)
    assert "woken" not in watched_room.console(running)


def test_a_parent_does_not_see_its_child_stopped(watched_room: Room) -> None:
    """A shell would take its terminal back."""
    program = f"""{SERVER}
child = os.fork()
if child == 0:
    while True: pass
print('up', flush=True)
while True:
    ended, status = os.waitpid(child, os.WUNTRACED)
    print('SEEN', os.WIFSTOPPED(status), flush=True)
"""
    running = watched_room.start_python(program)
    await_text(watched_room, running, "up")
    for _ in range(20):
        running.freeze()
        running.thaw()
    assert answers(running, within=10)
    assert "SEEN" not in watched_room.console(running)


def test_a_parent_that_waits_for_its_child_to_exec_does_not_hold_up_the_freeze(watched_room: Room) -> None:
    program = f"""{SERVER}
import ctypes
print('up', flush=True)
if ctypes.CDLL(None).vfork() == 0:
    while True: pass
"""
    running = watched_room.start_python(program)
    await_text(watched_room, running, "up")
    while "D" not in states(running):
        assert running.ended is None
    running.freeze()
    assert states(running) == {"D", "T"}
    assert not answers(running, within=0.2)


def test_those_who_signal_whatever_starts_cannot_hold_up_the_freeze(watched_room: Room) -> None:
    program = f"""{SERVER}
if os.fork() == 0:
    print('up', flush=True)
    while True:
        for pid in range(os.getpid() + 1, os.getpid() + 20):
            try:
                os.kill(pid, 19)
            except OSError:
                pass
"""
    running = watched_room.start_python(program)
    await_text(watched_room, running, "up")
    for _ in range(5):
        running.freeze()
        assert states(running) == {"T"}
        running.thaw()
    assert answers(running, within=10)


ASKED_AGAIN = """
import os, signal
from vmnest.local.drivers import stopping
assert os.getpid() == 1, 'it stops everybody else'
told = 0
def tell():
    global told
    told += 1
    if told < 3000:
        os.kill(1, signal.SIGUSR2)
stopping.obey(tell)
os.kill(1, signal.SIGUSR1)
while told < 3000:
    pass
print(told)
"""


def test_process_1_is_asked_as_often_as_somebody_likes_before_it_has_answered() -> None:
    words = [
        "unshare",
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
        sys.executable,
        "-c",
        ASKED_AGAIN,
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("3000\n", "")


def test_one_inside_who_asks_process_1_to_stop_everybody_gains_nothing(watched_room: Room) -> None:
    program = f"""{SERVER}
print('up', flush=True)
while True:
    os.kill(1, 10)
    os.kill(1, 12)
"""
    running = watched_room.start_python(program)
    await_text(watched_room, running, "up")
    running.freeze()
    assert states(running) == {"T"}
    running.stop()
    assert watched_room.over.wait(20)


def test_what_wakes_itself_is_stopped_again(watched_room: Room) -> None:
    """A timer may send SIGCONT, and does so while its process is stopped."""
    program = f"""{SERVER}
import ctypes, signal
signal.signal(signal.SIGCONT, lambda number, frame: print('woken', flush=True))
libc = ctypes.CDLL(None)
timer = ctypes.c_void_p()
libc.timer_create(1, (ctypes.c_int * 16)(0, 0, 18), ctypes.byref(timer))
libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 200_000_000, 0, 200_000_000), None)
print('up', flush=True)
while True: pass
"""
    running = watched_room.start_python(program)
    await_text(watched_room, running, "up")
    running.freeze()
    await_text(watched_room, running, "woken")
    while states(running) != {"T"}:
        assert running.ended is None
    assert running.is_frozen
    running.thaw()
    assert answers(running, within=10)


def test_a_machine_whose_freeze_was_called_off_goes_on(watched_room: Room) -> None:
    running = watched_room.start_python(f"{SERVER}\nprint('up', flush=True)")
    await_text(watched_room, running, "up")
    for _ in range(50):
        with contextlib.closing(channel.connect(running.folder)) as connection:
            channel.send(connection, "freeze")
            channel.send(connection, "thaw")
            assert channel.receive(connection)[0] in (["thawed"], ["frozen"])  # it may have been quick
            assert channel.receive(connection)[0] == ["thawed"]
    assert answers(running, within=10)


def test_a_machine_that_is_ended_while_it_is_being_frozen_ends(held_room: Room) -> None:
    """With processes that fork, so that the freeze takes a while: to go on with it would keep the killed alive."""
    program = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(5):
    os.fork()
print('up', flush=True)
while True:
    if os.fork() == 0:
        os._exit(0)
"""
    running = held_room.start_python(program)
    await_text(held_room, running, "up")
    with contextlib.closing(channel.connect(running.folder)) as connection:
        channel.send(connection, "freeze")
        channel.send(connection, "stop", 0)
        assert held_room.over.wait(9)


# -- over a tree of files that looks like /proc ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states_seen", "expected", "at_last"),
    [("TT", True, True), ("TD", False, True), ("TZ", True, True), ("TS", False, False), ("RT", False, False)],
)
def test_a_process_is_quiet_when_none_of_its_threads_can_run(
    tmp_path: Path, states_seen: str, expected: bool, at_last: bool
) -> None:
    for number, state in enumerate(states_seen):
        task = tmp_path / "7" / "task" / str(7 + number)
        task.mkdir(parents=True)
        (task / "stat").write_text(f"7 (a) b) {state} 1 2 3\n")
    proc = os.open(tmp_path, os.O_RDONLY)
    assert (list(stopping._find_running(proc, stopping._QUIET)) == []) == expected
    assert (list(stopping._find_running(proc, stopping._AS_GOOD_AS_QUIET)) == []) == at_last
    assert stopping._read_threads(proc, 8) == {}
    os.close(proc)
