"""A VM as the daemon sees it: with real sandboxes, and with a scripted supervisor for what a real one never says."""

from __future__ import annotations

import _socket
import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import descriptors
from tests.support.cells import LISTENER, Room
from vmnest import errors
from vmnest.local.drivers import Ended, channel, machine, namespace, rubbish, runtime

DIALLED = 8080


def processes_of(folder: str) -> list[int]:
    """Pids of all processes that have something of a VM's folder open, or run in its namespaces; no zombies."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            links = descriptors.targets(int(name))
            if int(name) != os.getpid() and any(link.startswith(folder + "/") for link in links):
                found.append(int(name))
    return found


# -- the way out -------------------------------------------------------------------------------------------------------

ASKER = """
import os, socket
with socket.create_connection(("127.0.0.1", 3128)) as call:
    call.sendall(b"from inside")
    print(os.environ["HTTPS_PROXY"], call.recv(10).decode())
"""


def test_the_way_out_is_a_socket_inside_that_is_served_from_outside(room: Room) -> None:
    running = room.start_python(ASKER, egress=True)
    with running.egress_listener() as listener:
        listener.settimeout(20)
        call, _ = listener.accept()
        with call:
            assert call.recv(20) == b"from inside"
            call.sendall(b"answer")
            assert room.over.wait(20)
    assert room.console(running).split() == ["http://127.0.0.1:3128", "answer"]


def test_every_daemon_gets_the_way_out(room: Room) -> None:
    running = room.start_python(ASKER, egress=True)
    with running.egress_listener():
        pass
    adopted = room.driver.adopt(running.folder, on_end=lambda _ended: None)
    assert adopted is not None
    with adopted.egress_listener() as listener:
        listener.settimeout(20)
        listener.accept()[0].close()
    assert room.over.wait(20)


def test_without_egress_there_is_no_way_out(room: Room) -> None:
    running = room.start_listener()
    with pytest.raises(errors.LocalCloudError, match="no way out: none"):
        running.egress_listener()
    with pytest.raises(ConnectionRefusedError):
        running.dial(channel.EGRESS_PORT, timeout=5)


def test_no_program_inside_can_take_the_place_of_the_way_out(room: Room) -> None:
    program = (
        "import socket\n"
        "listener = socket.socket()\n"
        "for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):\n"
        "    listener.setsockopt(socket.SOL_SOCKET, option, 1)\n"
        "for host in ('127.0.0.1', ''):\n"
        "    try:\n"
        "        listener.bind((host, 3128))\n"
        "    except OSError as error:\n"
        "        print(error.strerror)\n"
    )
    running = room.start_python(program, egress=True)
    assert room.over.wait(20)
    assert room.console(running) == "Address already in use\n" * 2


def test_the_way_out_ends_with_the_machine(room: Room) -> None:
    running = room.start("/bin/sleep", "1000", egress=True)
    running.stop()
    with pytest.raises(errors.LocalCloudError, match="has ended"):
        running.egress_listener()


# -- dial --------------------------------------------------------------------------------------------------------------


def test_a_dial_reaches_what_listens_inside(room: Room) -> None:
    running = room.start_listener()
    with running.dial(DIALLED, timeout=5) as call:
        assert call.getpeername() == ("127.0.0.1", DIALLED)
        assert call.gettimeout() is None
        assert call.recv(10) == b"here"


def test_a_dial_to_a_port_where_nothing_listens_is_refused(room: Room) -> None:
    running = room.start_listener()
    with pytest.raises(ConnectionRefusedError, match="8081"):
        running.dial(8081, timeout=5)


@pytest.mark.parametrize("port", [-1, 65536, 2**40])
def test_a_port_that_cannot_be_is_an_error(room: Room, port: int) -> None:
    running = room.start_listener()
    with pytest.raises(errors.LocalCloudError):
        running.dial(port, timeout=5)
    with running.dial(DIALLED, timeout=5) as call:
        assert call.recv(10) == b"here"


def test_a_dial_that_nobody_accepts_times_out(room: Room) -> None:
    program = """
import os, socket, signal
listener = socket.socket()
listener.bind(("127.0.0.1", 8080))
listener.listen(0)
fillers = [socket.socket() for _ in range(4)]
for filler in fillers:
    filler.setblocking(False)
    filler.connect_ex(("127.0.0.1", 8080))
print("full", flush=True)
signal.pause()
"""
    running = room.start_python(program)
    while "full" not in room.console(running):
        assert running.ended is None
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        running.dial(DIALLED, timeout=0.5)
    assert 0.4 < time.monotonic() - start < 5


def test_many_dials_at_once_all_succeed(room: Room) -> None:
    running = room.start_listener()
    answers: list[bytes] = []

    def dial() -> None:
        for _ in range(10):
            with running.dial(DIALLED, timeout=20) as call:
                answers.append(call.recv(10))

    threads = [threading.Thread(target=dial) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [b"here"] * 160


def test_a_dial_after_the_end_says_that_it_has_ended(room: Room) -> None:
    running = room.start_listener()
    running.stop()
    with pytest.raises(errors.LocalCloudError, match="ended"):
        running.dial(DIALLED, timeout=5)


# -- the end -----------------------------------------------------------------------------------------------------------


def test_stop_leaves_nothing(room: Room) -> None:
    running = room.start_python(
        "import os, time\nos.makedirs('/work/a/b'); os.chmod('/work/a', 0)\n"
        "while True:\n    if os.fork() == 0: os.setsid(); time.sleep(1000)\n    time.sleep(0.02)\n"
    )
    assert processes_of(running.folder)
    running.stop()
    assert room.ends == [Ended(None, 9, "stopped")]
    assert processes_of(running.folder) == []
    assert sorted(os.listdir(running.folder)) == ["console.log", "ended.json", "supervisor.log"]
    assert running.folder not in Path("/proc/self/mountinfo").read_text()


def test_stop_may_be_called_by_many_and_again(room: Room) -> None:
    running = room.start_listener()
    threads = [threading.Thread(target=running.stop) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    running.stop()
    assert len(room.ends) == 1


def test_the_end_is_recorded_for_a_later_daemon(room: Room) -> None:
    running = room.start("/bin/sh", "-c", "exit 4")
    assert room.over.wait(20)
    assert machine.load_ended(running.folder) == Ended(4, None, "exited")


def test_a_supervisor_that_is_killed_takes_everything_along(room: Room) -> None:
    program = "import os, time\nos.fork()\nos.fork()\nprint('x', flush=True)\ntime.sleep(1000)\n"
    running = room.start_python(program)
    while room.console(running).count("x") < 4:
        assert running.ended is None
    init = Path(running.folder)
    assert init.exists()
    running.kill()
    assert room.over.wait(20)
    assert room.ends == [Ended(None, None, "lost")]
    assert processes_of(running.folder) == []
    assert machine.load_ended(running.folder) == Ended(None, None, "lost")
    assert sorted(os.listdir(running.folder)) == ["console.log", "ended.json", "supervisor.log"]


def test_on_end_comes_after_ended_is_set(room: Room) -> None:
    seen: list[Ended | None] = []
    launch = room.launch("/bin/sh", "-c", "sleep 0.2")
    over = threading.Event()
    box: list[machine.NamespaceMachine] = []

    def on_end(_ended: Ended) -> None:
        seen.append(box[0].ended)
        over.set()

    box.append(room.driver.start(launch, on_end=on_end))
    assert over.wait(20)
    assert seen == [Ended(0, None, "exited")]


# -- a later daemon ----------------------------------------------------------------------------------------------------


def test_another_daemon_can_take_a_machine_over(room: Room) -> None:
    running = room.start_listener()
    over = threading.Event()
    taken = room.driver.adopt(running.folder, on_end=lambda _ended: over.set())
    assert taken is not None
    with taken.dial(DIALLED, timeout=5) as call:
        assert call.recv(10) == b"here"
    taken.stop()
    assert over.wait(20)
    assert taken.ended == Ended(None, 9, "stopped")
    assert room.over.wait(20)


def test_nobody_to_take_over_is_none(room: Room, tmp_path: Path) -> None:
    assert room.driver.adopt(str(tmp_path), on_end=lambda _ended: None) is None


def test_discard_ends_a_machine_that_still_runs(room: Room) -> None:
    running = room.start_listener()
    room.driver.discard(running.folder)
    assert room.over.wait(20)
    assert processes_of(running.folder) == []


def test_an_end_that_cannot_be_recorded_is_an_end(room: Room) -> None:
    """As on a full disk."""
    running = room.start_listener()
    assert running.pid is not None
    record = Path(running.folder, "ended.json")
    record.unlink()
    record.mkdir()
    os.kill(running.pid, signal.SIGKILL)
    running.stop()
    assert running.ended == Ended(None, None, "lost")
    assert room.over.wait(20)


def test_stop_does_not_wait_long_for_a_supervisor_that_hangs(room: Room) -> None:
    running = room.start_listener()
    assert running.pid is not None
    os.kill(running.pid, signal.SIGSTOP)
    began = time.monotonic()
    running.stop(grace=30)
    assert time.monotonic() - began < machine._STOP_SECONDS
    assert processes_of(running.folder) == []


def test_discard_does_not_wait_for_a_supervisor_that_hangs(room: Room) -> None:
    running = room.start_listener()
    assert running.pid is not None
    os.kill(running.pid, signal.SIGSTOP)
    began = time.monotonic()
    room.driver.discard(running.folder)
    assert time.monotonic() - began < machine._STOP_SECONDS / 2
    assert processes_of(running.folder) == []


def test_discard_cleans_after_a_supervisor_that_died_unseen(room: Room, tmp_path: Path) -> None:
    folder = tmp_path / "dead"
    work = folder / "layer" / "usr.work" / "work"
    work.mkdir(parents=True)
    work.chmod(0)
    (folder / "stage").mkdir()
    channel.listen(str(folder)).close()
    room.driver.discard(str(folder))
    assert os.listdir(folder) == []


# -- a supervisor that cannot be trusted -------------------------------------------------------------------------------


@contextlib.contextmanager
def scripted(folder: Path, script: Callable[[_socket.socket, list[str]], None]) -> Iterator[machine.NamespaceMachine]:
    """A machine whose supervisor answers each request by ``script``."""
    folder.mkdir()
    listener = channel.listen(str(folder))
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)

    def serve() -> None:
        while True:
            try:
                descriptor, _ = listener._accept()  # type: ignore[attr-defined]
            except OSError:
                return
            connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, descriptor)
            script(connection, channel.receive(connection)[0])
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
    heap = rubbish.Rubbish(str(folder), runtime=runtime.Runtime("", agent={}, digest=""))
    fake = machine.NamespaceMachine(
        str(folder), connection=ours, pid=pid, facts={}, rubbish=heap, on_end=lambda _ended: None
    )
    try:
        yield fake
    finally:
        os.kill(pid, signal.SIGKILL)
        theirs.close()
        listener.shutdown(_socket.SHUT_RDWR)
        thread.join()
        listener.close()
        fake.conclude()


def answer_with(descriptor: int) -> Callable[[_socket.socket, list[str]], None]:
    return lambda connection, words: channel.send(connection, "ok", descriptor=descriptor)


def test_a_descriptor_that_is_no_connected_tcp_socket_is_refused(tmp_path: Path) -> None:
    unix, peer = socket.socketpair()
    loose = socket.socket(socket.AF_INET)
    datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for index, offered in enumerate((unix, loose, datagram)):
        script = answer_with(offered.fileno())
        with scripted(tmp_path / str(index), script) as fake, pytest.raises(errors.LocalCloudError):
            fake.dial(80, timeout=1)
    for one in (unix, peer, loose, datagram):
        one.close()


def test_a_socket_that_is_connected_elsewhere_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with (
            socket.create_connection(("127.0.0.1", port)) as call,
            scripted(tmp_path / "vm", answer_with(call.fileno())) as fake,
            pytest.raises(errors.LocalCloudError),
        ):
            fake.dial(port - 1, timeout=1)


def test_a_way_out_that_does_not_listen_where_it_should_is_refused(tmp_path: Path) -> None:
    elsewhere = socket.create_server(("127.0.0.1", 0))
    loose = socket.socket(socket.AF_INET)
    unix, peer = socket.socketpair()
    with open(os.devnull, "rb") as null:
        numbers = [elsewhere.fileno(), loose.fileno(), unix.fileno(), null.fileno()]
        for index, number in enumerate(numbers):
            with (
                scripted(tmp_path / str(index), answer_with(number)) as fake,
                pytest.raises(errors.LocalCloudError, match="no way out: ok"),
            ):
                fake.egress_listener()
    for one in (elsewhere, loose, unix, peer):
        one.close()


def test_a_descriptor_that_is_no_socket_is_refused_and_closed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with (
        file.open("w") as offered,
        scripted(tmp_path / "vm", answer_with(offered.fileno())) as fake,
        pytest.raises(errors.LocalCloudError),
    ):
        fake.dial(80, timeout=1)
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    assert str(file) not in [os.readlink(link) for link in links if os.path.exists(link)]


@pytest.mark.parametrize("frame", [b"ok", b"no such word", b"\xff\xfe", b"x" * 600, b"error 22"])
def test_an_answer_that_makes_no_sense_is_an_error(tmp_path: Path, frame: bytes) -> None:
    def script(connection: _socket.socket, _words: list[str]) -> None:
        connection.send(frame)

    with scripted(tmp_path / "vm", script) as fake, pytest.raises(errors.LocalCloudError):
        fake.dial(80, timeout=1)


def test_a_supervisor_that_says_nothing_is_an_error_in_time(tmp_path: Path) -> None:
    released = threading.Event()

    def script(_connection: _socket.socket, _words: list[str]) -> None:
        released.wait(30)

    with scripted(tmp_path / "vm", script) as fake:
        with pytest.raises(errors.LocalCloudError, match="does not answer"):
            fake.dial(80, timeout=0.5 - machine.DIAL_SPARE_SECONDS)
        released.set()


# -- freezing ----------------------------------------------------------------------------------------------------------


def hears(running: machine.NamespaceMachine, *, within: float) -> bool:
    """Whether what listens inside answers."""
    with running.dial(DIALLED, timeout=5) as call:
        call.settimeout(within)
        with contextlib.suppress(TimeoutError):
            return call.recv(10) == b"here"
    return False


def test_nothing_in_a_frozen_machine_answers_and_all_goes_on_afterwards(held_room: Room) -> None:
    running = held_room.start_listener()
    assert not running.is_frozen
    running.freeze()
    assert running.is_frozen
    assert not hears(running, within=0.2)
    running.thaw()
    assert not running.is_frozen
    assert hears(running, within=10)


def test_a_frozen_machine_uses_no_cpu_time(held_room: Room) -> None:
    running = held_room.start_python(
        "import os\nfor _ in range(3): os.fork()\nprint('up', flush=True)\nwhile True: pass"
    )
    while held_room.console(running).count("up") < 8:
        assert running.ended is None
    running.freeze()
    before = cpu_ticks(running)
    held_room.over.wait(0.3)
    assert cpu_ticks(running) == before


def test_a_machine_that_starts_programs_all_the_time_can_be_frozen(held_room: Room) -> None:
    """Forks and vforks are where a freeze may get stuck."""
    program = """
import os, socket, threading
def work():
    while True:
        os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)
for _ in range(4):
    threading.Thread(target=work).start()
listener = socket.create_server(('127.0.0.1', 8080))
print('up', flush=True)
while True:
    call, _ = listener.accept()
    call.sendall(b'here')
    call.close()
"""
    running = held_room.start_python(program)
    while "up" not in held_room.console(running):
        assert running.ended is None
    for _ in range(25):
        running.freeze()
        running.thaw()
    assert hears(running, within=10)


def cpu_ticks(running: machine.NamespaceMachine) -> int:
    """What all processes of a machine have used, but for process 1 and what has ended."""
    total = 0
    pending = [running.pid or 0]
    while pending:
        pid = pending.pop()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        total += int(fields[11]) + int(fields[12]) if pid != running.pid else 0
        for task in os.listdir(f"/proc/{pid}/task"):
            pending += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return total


def test_freeze_and_thaw_may_be_called_by_many_and_again(held_room: Room) -> None:
    running = held_room.start_listener()
    for action, frozen in ((running.freeze, True), (running.thaw, False)) * 2:
        threads = [threading.Thread(target=action) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        action()
        assert running.is_frozen == frozen
    assert hears(running, within=10)


def test_what_stopped_itself_before_a_freeze_stays_so(held_room: Room) -> None:
    program = """
import os, time
if os.fork() == 0:
    os.kill(os.getpid(), 19)
    print('woken', flush=True)
os.waitpid(-1, os.WUNTRACED)
print('stopped', flush=True)
os.waitpid(-1, 0)
"""
    running = held_room.start_python(program)
    while "stopped" not in held_room.console(running):
        assert running.ended is None
    running.freeze()
    running.thaw()
    held_room.over.wait(0.2)
    assert "woken" not in held_room.console(running)


@pytest.mark.parametrize("grace", [0, 5])
def test_a_frozen_machine_stops_at_once_and_leaves_nothing(held_room: Room, grace: float) -> None:
    running = held_room.start_python("import os, time\nos.fork()\nos.fork()\ntime.sleep(1000)")
    running.freeze()
    began = time.monotonic()
    running.stop(grace=grace)
    assert time.monotonic() - began < 4
    assert held_room.ends == [Ended(None, 9, "stopped")]
    assert processes_of(running.folder) == []
    assert sorted(os.listdir(running.folder)) == ["console.log", "ended.json", "supervisor.log"]


def test_the_maximum_duration_goes_on_while_a_machine_is_frozen(held_room: Room) -> None:
    running = held_room.start_listener(max_seconds=1.0)
    running.freeze()
    assert held_room.over.wait(20)
    assert held_room.ends == [Ended(None, 9, "lifetime")]


def test_a_supervisor_that_is_killed_takes_a_frozen_machine_along(held_room: Room) -> None:
    running = held_room.start_python("import os, time\nos.fork()\nos.fork()\ntime.sleep(1000)")
    running.freeze()
    running.kill()
    assert held_room.over.wait(20)
    assert held_room.ends == [Ended(None, None, "lost")]
    assert processes_of(running.folder) == []


def test_nobody_outlives_a_supervisor_and_a_daemon_that_were_killed_while_it_was_frozen(held_room: Room) -> None:
    """A group of version 1 keeps what is frozen alive; a later daemon ends it."""
    driver = namespace.NamespaceDriver(held_room.cell)
    launch = held_room.launch("/bin/sleep", "1000")
    running = driver.start(launch, on_end=held_room.end)
    inside = [int(pid) for pid in Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()]
    init = os.pidfd_open(inside[0])
    running.freeze()
    driver.close()
    assert running.pid is not None
    os.kill(running.pid, signal.SIGKILL)
    os.waitpid(running.pid, 0)
    held_room.driver.discard(launch.folder)
    assert machine._is_dead(init, seconds=10)
    os.close(init)
    assert held_room.ends == []


def test_a_frozen_machine_that_is_adopted_is_known_to_be(held_room: Room) -> None:
    driver = namespace.NamespaceDriver(held_room.cell)
    launch = held_room.launch(held_room.cell.interpreter.path, "-I", "-S", "-c", LISTENER)
    running = namespace.spawn(held_room.cell, launch, skeleton=driver.skeleton(), on_end=held_room.end, ready=True)
    namespace.await_words(running, "ready", folder=launch.folder)
    running.freeze()
    taken = driver.adopt(launch.folder, on_end=held_room.end)
    assert taken is not None
    assert taken.is_frozen
    assert taken.facts == running.facts
    taken.thaw()
    assert hears(taken, within=10)
    again = driver.adopt(launch.folder, on_end=held_room.end)
    assert again is not None
    assert not again.is_frozen
    taken.stop()
    running.conclude()
    driver.close()


def test_a_machine_that_has_ended_can_neither_be_frozen_nor_thawed(room: Room) -> None:
    running = room.start_listener()
    running.stop()
    for action in (running.freeze, running.thaw):
        with pytest.raises(errors.LocalCloudError, match="ended"):
            action()
    assert not running.is_frozen


def test_a_freeze_that_a_thaw_calls_off_is_an_error(tmp_path: Path) -> None:
    def script(connection: _socket.socket, _words: list[str]) -> None:
        channel.send(connection, "thawed")

    with scripted(tmp_path / "vm", script) as fake:
        with pytest.raises(errors.LocalCloudError, match="could not be frozen"):
            fake.freeze()
        assert not fake.is_frozen
        fake.thaw()


def test_a_supervisor_that_hangs_is_not_adopted(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_FACTS_SECONDS", 0.2)
    running = room.start_listener()
    assert running.pid is not None
    os.kill(running.pid, signal.SIGSTOP)
    assert room.driver.adopt(running.folder, on_end=room.end) is None
    os.kill(running.pid, signal.SIGCONT)


def test_a_supervisor_of_an_older_version_is_adopted(tmp_path: Path) -> None:
    """It hangs up on a request that it does not know."""
    with scripted(tmp_path / "vm", lambda _connection, _words: None) as fake:
        assert fake.learn()
        assert not fake.is_frozen


@pytest.mark.parametrize("frame", [b"facts", b"facts sorcery frozen more", b"facts sorcery thawed", b"dance"])
def test_facts_that_make_no_sense_are_none(tmp_path: Path, frame: bytes) -> None:
    def script(connection: _socket.socket, _words: list[str]) -> None:
        connection.send(frame)

    with scripted(tmp_path / "vm", script) as fake:
        assert fake.learn()
        assert fake.facts == {}
        assert not fake.is_frozen


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ended exit 3 exited", Ended(3, None, "exited")),
        ("ended signal 9 lifetime", Ended(None, 9, "lifetime")),
        ("ended signal 9 memory", Ended(None, 9, "memory")),
        ("ended exit 3", None),
        ("ended exit -1 exited", None),
        ("ended crash 3 exited", None),
        ("ended exit 3 lost", None),
        ("ended exit 3 exited twice", None),
    ],
)
def test_only_a_proper_line_tells_an_end(line: str, expected: Ended | None) -> None:
    assert machine.parse_ended(line.split()) == expected


@pytest.mark.parametrize("text", ["", "{", "[]", "null", json.dumps({"exit_code": 1})])
def test_a_record_that_was_not_finished_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "ended.json").write_text(text)
    assert machine.load_ended(str(tmp_path)) is None
    assert machine.load_ended(str(tmp_path / "nothing")) is None
