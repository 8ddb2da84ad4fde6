"""The driver's host side."""

from __future__ import annotations

import http.client
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cells import Room
from vmnest import errors
from vmnest.local.drivers import Ended, namespace
from vmnest.local.drivers.interpreter import Interpreter

SYSTEM = Interpreter("/usr/bin/python3")


def test_the_agent_answers_when_start_returns(room: Room) -> None:
    machine = room.start()
    for port in (8080, 9000):
        machine.dial(port, timeout=5).close()
    connection = http.client.HTTPConnection("sandbox")
    connection.sock = machine.dial(8080, timeout=5)
    connection.request("GET", "/healthz")
    assert b'"ok"' in connection.getresponse().read()
    connection.close()


def test_programs_that_people_use_work(room: Room) -> None:
    script = """
set -e
python -c 'import sys; print(sys.version_info >= (3, 9))'
cd /work
git init -q . && git config user.email a@b && git config user.name a && touch f && git add f && git commit -qm x
tar -czf a.tgz f && tar -xzf a.tgz
python3 -m venv --without-pip env && env/bin/python -c 'print("venv")'
printf '#!/bin/sh\necho script\n' > s && chmod +x s && ./s
id -un; getent hosts localhost | head -1 | wc -l
"""
    if room.cell.writable == "bind" or not shutil.which("git"):
        pytest.skip("needs overlays and git")
    machine = room.start("/bin/bash", "-lc", script)
    assert room.over.wait(60)
    assert room.console(machine).split() == ["True", "venv", "script", "sandbox", "1"], room.console(machine)


def test_several_machines_run_side_by_side(room: Room) -> None:
    machines = [room.start_listener() for _ in range(3)]
    for machine in machines:
        with machine.dial(8080, timeout=5) as call:
            assert call.recv(10) == b"here"
    machines[0].stop()
    with machines[1].dial(8080, timeout=5) as call:
        assert call.recv(10) == b"here"


def test_machines_started_at_once_do_not_meet(room: Room) -> None:
    ends: list[Ended] = []
    threads = [threading.Thread(target=lambda: room.start("/bin/sh", "-c", "exit 0")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while len(room.ends) < 4:
        assert room.over.wait(20)
    ends += room.ends
    assert ends == [Ended(0, None, "exited")] * 4


def test_the_machine_tells_its_facts(room: Room) -> None:
    machine = room.start_listener()
    assert machine.facts["isolation"] == "namespace"
    assert machine.facts["writable"] in {"disk", "memory", "bind"}


def test_a_failed_start_shows_the_consoles_end_and_leaves_nothing(room: Room) -> None:
    launch = room.launch(
        room.cell.interpreter.path, "-I", "-S", "-c", "import sys; print('what went wrong'); sys.exit(1)"
    )
    machine = namespace.spawn(room.cell, launch, skeleton=room.driver.skeleton(), on_end=room.end, ready=True)
    with pytest.raises(namespace.StartFailedError) as caught:
        namespace.await_words(machine, "ready", folder=launch.folder)
    assert caught.value.step == "agent"
    assert "what went wrong" in (caught.value.hint or "")
    assert sorted(os.listdir(launch.folder)) == ["console.log", "ended.json", "supervisor.log"]
    assert room.ends == []


def test_an_agent_that_is_never_ready_is_given_up(room: Room) -> None:
    launch = room.launch("/bin/sleep", "1000")
    machine = namespace.spawn(room.cell, launch, skeleton=room.driver.skeleton(), on_end=room.end, ready=True)
    with pytest.raises(namespace.StartFailedError, match="within 1 s") as caught:
        namespace.await_words(machine, "ready", folder=launch.folder, seconds=1)
    assert caught.value.step == "agent"
    assert machine.ended == Ended(None, None, "lost")
    assert not os.path.exists(f"{launch.folder}/layer")


def test_a_supervisor_that_cannot_start_says_so(room: Room) -> None:
    launch = room.launch("/bin/true")
    machine = namespace.spawn(room.cell, launch, skeleton="/no/such/skeleton", on_end=room.end)
    with pytest.raises(namespace.StartFailedError) as caught:
        namespace.await_words(machine, "started", folder=launch.folder)
    assert caught.value.step == "supervisor"
    assert "/no/such/skeleton" in (caught.value.hint or "")
    assert sorted(os.listdir(launch.folder)) == ["console.log", "ended.json", "supervisor.log"]


def test_a_folder_that_is_in_use_is_refused_and_left_alone(room: Room) -> None:
    machine = room.start_listener()
    launch = room.launch("/bin/true")
    with pytest.raises(FileExistsError):
        room.driver.start(replace(launch, folder=machine.folder), on_end=room.end)
    with machine.dial(8080, timeout=5) as call:
        assert call.recv(10) == b"here"


def test_a_directory_that_the_driver_was_not_selected_with_is_refused(room: Room) -> None:
    with pytest.raises(errors.LocalCloudError, match="/var/spool"):
        room.start("/bin/true", visible=("/usr/share", "/var/spool"))


def test_the_environment_is_what_programs_expect() -> None:
    environment = namespace.build_environment({}, interpreter=SYSTEM, ready=True)
    assert environment["PATH"].split(":") == [
        "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/.sandbox/bin",
    ]  # fmt: skip
    assert (environment["HOME"], environment["USER"], environment["AGENTD_READY_FD"]) == ("/work", "sandbox", "3")


def test_the_interpreters_own_programs_come_last_in_path() -> None:
    environment = namespace.build_environment({}, interpreter=Interpreter("/p/bin/python3", prefix="/p"), ready=False)
    assert environment["PATH"].endswith(":/p/bin")
    assert "AGENTD_READY_FD" not in environment


def test_a_caller_adds_variables_but_does_not_open_the_agent() -> None:
    more = {"LANG": "de_DE.UTF-8", "TOKEN": "x", "AGENTD_BIND": "0.0.0.0"}
    environment = namespace.build_environment(more, interpreter=SYSTEM, ready=False)
    assert (environment["LANG"], environment["TOKEN"]) == ("de_DE.UTF-8", "x")
    assert environment["AGENTD_BIND"] == "127.0.0.1"


def test_the_main_process_finds_the_launchs_variables(room: Room) -> None:
    machine = room.start("/bin/sh", "-c", 'echo "$GREETING"', environment={"GREETING": "höi"})
    assert room.over.wait(20)
    assert room.console(machine) == "höi\n"


def test_supervisors_keep_the_variables_by_which_ci_cleans_up(room: Room) -> None:
    cell = replace(room.cell, environ={"BUILD_ID": "77", "SECRET": "x"})
    launch = room.launch("/bin/sleep", "1000")
    machine = namespace.spawn(cell, launch, skeleton=room.driver.skeleton(), on_end=room.end)
    namespace.await_words(machine, "started", folder=launch.folder)
    assert machine.pid is not None
    room.driver.watch(machine)
    try:
        text = Path(f"/proc/{machine.pid}/environ").read_bytes()
    except PermissionError:
        pytest.skip("another uid's environment cannot be read here")
    assert b"BUILD_ID=77" in text
    assert b"SECRET" not in text


def test_a_driver_that_closes_lets_its_machines_go_on(room: Room) -> None:
    driver = namespace.NamespaceDriver(room.cell)
    launch = room.launch("/bin/sleep", "1000")
    machine = driver.start(launch, on_end=room.end)
    driver.close()
    taken = room.driver.adopt(launch.folder, on_end=room.end)
    assert taken is not None
    taken.stop()
    assert taken.ended == Ended(None, 9, "stopped")
    assert machine.ended is None
    assert machine.pid is not None
    os.waitpid(machine.pid, 0)


def test_what_is_printed_is_read_from_its_end(tmp_path: Path) -> None:
    (tmp_path / "console.log").write_text("")
    (tmp_path / "supervisor.log").write_text("x" * 5000 + "the end\n")
    text = namespace.read_tail(str(tmp_path))
    assert text.endswith("the end")
    assert len(text) <= 2000


def test_a_start_failed_is_an_error_of_the_local_cloud() -> None:
    failure = namespace.StartFailedError("x", step="proc", number=1)
    assert isinstance(failure, errors.LocalCloudError)
    assert failure.details == {"step": "proc", "errno": 1}


@pytest.mark.parametrize("writable", ["memory", "bind"])
def test_images_are_refused_where_nothing_can_be_kept(room: Room, writable: str) -> None:
    driver = namespace.NamespaceDriver(replace(room.cell, writable=writable))
    try:
        assert "AGENT_SANDBOX_LOCAL_DIR" in driver.obstacle_to_images
        for changes in ({"image_layers": ("/x",)}, {"keep_layer_at": "/x"}):
            launch = room.launch("/bin/true", **changes)
            with pytest.raises(errors.LocalCloudError, match="Images do not work here"):
                driver.start(launch, on_end=room.end)
            assert os.listdir(launch.folder) == []
    finally:
        driver.close()


def test_what_images_lie_on_has_a_name_that_stays(room: Room) -> None:
    assert room.driver.image_base() == room.driver.image_base()
    assert room.driver.image_environment()["HOME"] == "/work"
    assert room.driver.owner == room.cell.uid


def test_a_directory_to_start_in_must_be_there(room: Room) -> None:
    with pytest.raises(namespace.StartFailedError) as caught:
        room.start("/bin/true", workdir="/no/such")
    assert caught.value.step == "exec"
