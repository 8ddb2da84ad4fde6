"""The supervisor of a VM: what it does by itself, and that nobody can talk it into more."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cells import LISTENER, Room
from vmnest import errors
from vmnest.local.drivers import Ended, channel, console, machine, namespace, runtime


def status(pid: int | None, field: str) -> list[str]:
    """A field of a process's status, as words."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return line.split()[1:]
    raise AssertionError(field)


def test_the_maximum_duration_is_enforced(room: Room) -> None:
    start = time.monotonic()
    room.start("/bin/sleep", "1000", max_seconds=0.7)
    assert room.over.wait(20)
    assert room.ends == [Ended(None, 9, "lifetime")]
    assert time.monotonic() - start >= 0.7


def test_the_maximum_duration_needs_no_daemon(room: Room) -> None:
    """Its driver is closed, as if the daemon were dead: nobody else could end the VM."""
    driver = namespace.NamespaceDriver(room.cell)
    launch = room.launch("/bin/sleep", "1000", max_seconds=1.0)
    running = driver.start(launch, on_end=room.end)
    driver.close()
    assert running.pid is not None
    os.waitpid(running.pid, 0)
    assert machine.load_ended(launch.folder) == Ended(None, 9, "lifetime")


def test_it_stays_small(room: Room) -> None:
    running = room.start_listener()
    assert int(status(running.pid, "VmRSS")[0]) <= 15 * 1024
    assert status(running.pid, "Threads") == ["1"]


def test_it_gives_up_root(room: Room) -> None:
    running = room.start_listener()
    assert set(status(running.pid, "Uid")) == {str(room.cell.uid or os.geteuid())}
    if room.cell.uid is not None:
        assert status(running.pid, "Groups") == []


def test_it_has_a_session_of_its_own(room: Room) -> None:
    running = room.start_listener()
    assert running.pid is not None
    assert os.getsid(running.pid) == running.pid


def test_it_inherits_no_descriptor(room: Room) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    room.start_listener()
    os.close(writer)
    assert os.read(reader, 1) == b""  # nobody else holds the other end
    os.close(reader)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"dance",
        b"dial",
        b"dial 80",
        b"dial -1 1000",
        b"dial 80 1000 more",
        b"dial \xb2 1000",
        b"stop",
        b"stop now",
        b"watch closely",
        b"freeze now",
        b"thaw 1",
        b"facts please",
        b"egress now",
        b"x" * (channel.MAX_FRAME_BYTES + 1),
        b"\xff\x00",
    ],
)
def test_a_frame_that_makes_no_sense_ends_its_connection_only(room: Room, frame: bytes) -> None:
    running = room.start_listener()
    connection = channel.connect(running.folder)
    connection.send(frame)
    assert connection.recv(10) == b""
    connection.close()
    with running.dial(8080, timeout=5) as call:
        assert call.recv(10) == b"here"


def test_a_descriptor_that_is_passed_to_it_is_closed(room: Room) -> None:
    running = room.start_listener()
    reader, writer = os.pipe()
    connection = channel.connect(running.folder)
    channel.send(connection, "watch", descriptor=writer)
    assert channel.receive(connection)[0][0] == "init"
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)
    connection.close()


def test_a_client_that_does_not_read_blocks_nobody(room: Room) -> None:
    running = room.start_listener()
    connection = channel.connect(running.folder)
    connection.setblocking(False)
    try:
        for _ in range(5000):
            channel.send(connection, "dial", 8081, 1000)
    except OSError:  # it was hung up on, as it should be
        pass
    with running.dial(8080, timeout=5) as call:
        assert call.recv(10) == b"here"
    connection.close()


def test_connections_beyond_the_limit_are_refused_and_others_served(room: Room) -> None:
    running = room.start_listener()
    connections = [channel.connect(running.folder) for _ in range(50)]
    with running.dial(8080, timeout=5) as call:
        assert call.recv(10) == b"here"
    for connection in connections:
        connection.close()


def test_a_lack_of_descriptors_makes_callers_wait_and_ends_nothing(room: Room) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        running = room.start_listener()  # its supervisor inherits the limit
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    callers = [channel.connect(running.folder) for _ in range(280)]
    callers[-1].settimeout(0.2)
    channel.send(callers[-1], "dial", 8080, 1000)
    with pytest.raises(TimeoutError):
        channel.receive(callers[-1])
    for caller in callers:
        caller.close()
    with running.dial(8080, timeout=5) as call:
        assert call.recv(10) == b"here"


def test_a_watcher_hears_what_was_before_it_came(room: Room) -> None:
    running = room.start_listener()
    connection = channel.connect(running.folder)
    channel.send(connection, "watch")
    words, pidfd = channel.receive(connection)
    assert words[0] == "init"
    assert pidfd is not None
    os.close(pidfd)
    assert channel.receive(connection)[0] in (["limits", "cgroup"], ["limits", "watch"])
    assert channel.receive(connection)[0] == ["started"]
    assert channel.receive(connection)[0] == ["ready"]
    running.stop()
    assert channel.receive(connection)[0] == ["ended", "signal", "9", "stopped"]
    assert channel.receive(connection)[0] == []
    connection.close()


def ask(running: machine.NamespaceMachine, *words: str) -> list[str]:
    """The supervisor's answer to a request."""
    connection = channel.connect(running.folder)
    connection.settimeout(20)
    channel.send(connection, *words)
    answer, _ = channel.receive(connection)
    connection.close()
    return answer


def test_it_tells_what_holds(held_room: Room) -> None:
    running = held_room.start_listener()
    enforced = str(running.facts["enforced"])
    assert ask(running, "facts") == ["facts", enforced, "thawed"]
    assert ask(running, "freeze") == ["frozen"]
    assert ask(running, "facts") == ["facts", enforced, "frozen"]
    assert ask(running, "freeze") == ["frozen"]
    assert ask(running, "thaw") == ["thawed"]
    assert ask(running, "thaw") == ["thawed"]


def test_who_asked_for_a_freeze_and_left_is_not_missed(held_room: Room) -> None:
    """As a daemon that is killed meanwhile: the next one is told how it stands."""
    running = held_room.start_listener()
    connection = channel.connect(running.folder)
    channel.send(connection, "freeze")
    connection.close()
    while ask(running, "facts")[-1] != "frozen":
        assert running.ended is None
    assert ask(running, "thaw") == ["thawed"]


def break_runtime(cell: namespace.Cell, folder: Path, *, file: str, old: str, new: str) -> namespace.Cell:
    """A cell whose supervisors are not what they should be."""
    shutil.copytree(cell.runtime.path, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / "cell" / file).read_text()
    assert text.count(old) == 1
    (folder / "cell" / file).write_text(text.replace(old, new))
    return replace(cell, runtime=runtime.Runtime(str(folder), agent={}, digest=""))


def test_a_freeze_without_end_is_given_up_and_all_goes_on(watched_room: Room, tmp_path: Path) -> None:
    cell = break_runtime(
        watched_room.cell, tmp_path / "1", file="drivers/stopping.py", old="return not is_awake", new="return False"
    )
    cell = break_runtime(
        cell, tmp_path / "2", file="supervisor.py", old="_FREEZE_SECONDS = 10.0", new="_FREEZE_SECONDS = 0.3"
    )
    launch = watched_room.launch(cell.interpreter.path, "-I", "-S", "-c", LISTENER)
    running = namespace.spawn(
        cell, launch, skeleton=watched_room.driver.skeleton(), on_end=watched_room.end, ready=True
    )
    namespace.await_words(running, "ready", folder=launch.folder)
    watched_room.driver.watch(running)
    with pytest.raises(errors.LocalCloudError, match="could not be frozen"):
        running.freeze()
    assert not running.is_frozen
    with running.dial(8080, timeout=5) as call:
        assert call.recv(10) == b"here"


def test_a_flood_of_output_fills_no_disk_and_blocks_no_dial(room: Room) -> None:
    program = """
import os, socket, threading
listener = socket.create_server(("127.0.0.1", 8080))
def flood():
    while True:
        os.write(1, b"x" * 65536)
threading.Thread(target=flood, daemon=True).start()
while True:
    call, _ = listener.accept()
    call.sendall(b"here")
    call.close()
"""
    running = room.start_python(program)
    log = Path(running.folder, "console.log")
    while log.stat().st_size < console.MAX_BYTES // 4:
        assert running.ended is None
        time.sleep(0.02)  # what is waited for needs the processor
    for _ in range(20):
        with running.dial(8080, timeout=5) as call:
            assert call.recv(10) == b"here"
        assert log.stat().st_blocks * 512 <= console.MAX_BYTES + 65536


def test_the_ready_line_is_read_once_and_bounded(room: Room) -> None:
    program = """
import os, signal
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
written = 0
try:
    while True:
        written += os.write(3, b"x" * 65536)
except BrokenPipeError:
    print("closed", flush=True)
signal.pause()
"""
    launch = room.launch(room.cell.interpreter.path, "-I", "-S", "-c", program)
    running = namespace.spawn(room.cell, launch, skeleton=room.driver.skeleton(), on_end=room.end, ready=True)
    namespace.await_words(running, "ready", folder=launch.folder)
    room.driver.watch(running)
    while "closed" not in room.console(running):
        assert running.ended is None


def test_term_ends_it_and_the_vm_with_it(room: Room) -> None:
    """As when CI ends what a job left behind."""
    running = room.start_listener()
    assert running.pid is not None
    os.kill(running.pid, signal.SIGTERM)
    assert room.over.wait(20)
    assert room.ends == [Ended(None, None, "lost")]


def test_the_control_socket_is_the_daemons_alone(room: Room) -> None:
    running = room.start_listener()
    assert Path(running.folder, channel.SOCKET_NAME).stat().st_mode & 0o077 == 0
