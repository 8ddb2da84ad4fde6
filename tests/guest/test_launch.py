"""Starting commands: their streams, terminals, users, limits, and what is said when they cannot be started."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from guest.agentd import launch, limits, programs, terminals, users
from guest.agentd.errors import RequestError
from tests.support import skips
from tests.support.paths import ROOT, find_python

SECONDS = 20.0
STRANGER = 4_000_000_123
SIZE = (100, 30)
IS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can become somebody else")


class Run:
    """A command that was started; ``finish`` reads it to its end."""

    def __init__(self, started: launch.Started) -> None:
        self.started = started
        self.ends = {
            name: end
            for name in ("stdin", "stdout", "stderr", "terminal")
            if (end := getattr(started, name)) is not None
        }

    def close(self, name: str) -> None:
        os.close(self.ends.pop(name))

    def finish(self) -> tuple[str, str, int]:
        """What it wrote to its standard output or terminal, and to its standard error, and its exit status."""
        output = dict.fromkeys(("stdout", "stderr", "terminal"), b"")
        open_ends = {self.ends[name]: name for name in self.ends if name != "stdin"}
        while open_ends:
            readable, _, _ = select.select(list(open_ends), [], [], SECONDS)
            assert readable, "the command does not end"
            for end in readable:
                data = terminals.read(end)
                if data:
                    output[open_ends[end]] += data
                elif data is not None:
                    del open_ends[end]
        status = self.started.child.wait(SECONDS)
        out = output["stdout"] + output["terminal"].replace(b"\r\n", b"\n")
        return out.decode("utf-8", "surrogateescape"), output["stderr"].decode(), status

    def end(self) -> None:
        for name in list(self.ends):
            self.close(name)
        if self.started.child.poll() is None:
            self.started.child.kill()
            self.started.child.wait()


class Bench:
    """A launcher and what it started."""

    def __init__(self) -> None:
        self.launcher = launch.Launcher()
        self.runs: list[Run] = []

    def start(self, *argv: str | bytes, **members: object) -> Run:
        command = build(*argv, **members)
        run = Run(self.launcher.start(command, programs.resolve(command)))
        self.runs.append(run)
        return run

    def run(self, *argv: str | bytes, **members: object) -> tuple[str, str, int]:
        return self.start(*argv, **members).finish()

    def shell(self, script: str, **members: object) -> str:
        """What a script writes; it must succeed."""
        out, err, status = self.run("sh", "-c", script, **members)
        assert (err, status) == ("", 0)
        return out

    def refusal(self, *argv: str | bytes, **members: object) -> RequestError:
        with pytest.raises(RequestError) as caught:
            self.start(*argv, **members)
        return caught.value


def build(*argv: str | bytes, **members: object) -> programs.Command:
    user = members.pop("user", None)
    found = users.find(user) if isinstance(user, (str, int)) else None
    own = {b"PATH": os.environb[b"PATH"]}
    own.update(members.pop("env", {}))  # type: ignore[call-overload]
    environment = programs.build_environment({}, own=own, user=found, is_terminal="pty" in members)
    cwd = os.fsencode(str(members.pop("cwd", "/")))
    words = [os.fsencode(word) for word in argv]
    return programs.Command(words, cwd=cwd, environment=environment, user=found, **members)  # type: ignore[arg-type]


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A launcher; whatever it started is ended, and it leaves no child and no descriptor."""
    before = sorted(os.listdir("/proc/self/fd"))
    made = Bench()
    yield made
    for run in made.runs:
        run.end()
    assert sorted(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


PREPARED = {
    "plain": {},
    "terminal": {"pty": SIZE},
    "limits": {"rlimits": {"core": (0, 0)}},
    "own user": {"user": os.geteuid()},
    "all": {"pty": SIZE, "rlimits": {"core": (0, 0)}, "user": os.geteuid()},
}
each_way = pytest.mark.parametrize("members", PREPARED.values(), ids=list(PREPARED))


@each_way
def test_arguments_variables_and_the_working_directory_arrive_byte_by_byte(
    bench: Bench, tmp_path: Path, members: dict[str, object]
) -> None:
    odd = b"a'b \"c\\n $HOME \xff"
    run = bench.start("sh", "-c", 'printf "%s|" "$0" "$ODD"; pwd', odd, env={b"ODD": odd}, cwd=tmp_path, **members)
    out, _, status = run.finish()
    assert (os.fsencode(out), status) == (odd + b"|" + odd + b"|" + bytes(tmp_path) + b"\n", 0)


@each_way
def test_a_command_leads_its_session_and_its_group(bench: Bench, members: dict[str, object]) -> None:
    run = bench.start("cat", "/proc/self/stat", **members)
    pid, _, rest = run.finish()[0].partition(" (")
    assert rest.rpartition(") ")[2].split()[2:4] == [pid, pid]
    assert int(pid) == run.started.child.pid


@each_way
def test_a_command_gets_no_descriptor_and_no_signal_setting_of_ours(bench: Bench, members: dict[str, object]) -> None:
    script = "ls -1 /proc/self/fd; grep -E 'Sig(Blk|Ign)' /proc/self/status"
    lines = bench.shell(script, **members).split("\n")
    assert lines[:4] == ["0", "1", "2", "3"]  # 3 is the directory that ls itself reads
    of_the_library = 0b11 << 31  # a C library may keep its own two signals (32, 33) ignored in what it spawns
    assert [int(line.split()[1], 16) & ~of_the_library for line in lines[4:6]] == [0, 0]


@each_way
def test_a_large_environment_and_many_arguments_arrive(bench: Bench, members: dict[str, object]) -> None:
    words = ["x" * 1000] * 900
    variables = {b"V%d" % number: b"y" * 10_000 for number in range(60)}
    assert bench.run("sh", "-c", "echo $# ${#V59}", "sh", *words, env=variables, **members)[0] == "900 10000\n"


def test_streams_are_kept_apart_and_standard_input_is_empty(bench: Bench) -> None:
    run = bench.start("sh", "-c", "cat; echo out; echo err >&2; exit 3")
    assert run.finish() == ("out\n", "err\n", 3)
    assert sorted(run.ends) == ["stderr", "stdout"]


@pytest.mark.parametrize("members", [{}, {"rlimits": {"core": (0, 0)}}], ids=["plain", "limits"])
def test_standard_input_is_a_pipe_where_that_is_wanted(bench: Bench, members: dict[str, object]) -> None:
    run = bench.start("wc", "-c", stdin=True, **members)
    assert os.write(run.ends["stdin"], b"five\n") == 5
    run.close("stdin")
    assert run.finish() == ("5\n", "", 0)


def test_our_ends_never_block(bench: Bench) -> None:
    run = bench.start("cat", stdin=True)
    assert [os.get_blocking(end) for end in run.ends.values()] == [False] * 3
    # But that of the command does: it shares no state with ours.
    flags = bench.shell("grep flags /proc/self/fdinfo/1").split()[1]
    assert not int(flags, 8) & os.O_NONBLOCK


def test_a_terminal_is_the_commands_three_streams_and_its_controlling_terminal(bench: Bench) -> None:
    run = bench.start(
        "sh", "-c", "tty; stty size; tty <&1; tty <&2; ps -o pid=,pgid=,sid=,tpgid= -p $$; : >/dev/tty", pty=SIZE
    )
    out, _, status = run.finish()
    lines = out.splitlines()
    assert status == 0
    assert lines[0].startswith("/dev/pts/")
    assert lines[1] == "30 100"
    assert lines[2:4] == [lines[0]] * 2
    assert lines[4].split() == [str(run.started.child.pid)] * 4
    assert list(run.ends) == ["stdin", "terminal"]
    assert os.ttyname(run.ends["stdin"]) == os.ttyname(run.ends["terminal"])


def test_a_terminal_says_what_it_is_and_that_it_takes_utf_8(bench: Bench) -> None:
    assert bench.shell("echo $TERM $LANG", pty=SIZE) == "xterm-256color C.UTF-8\n"


def test_the_signal_keys_of_a_terminal_work(bench: Bench) -> None:
    run = bench.start("sh", "-c", "trap 'echo got; exit 7' INT; echo ready; read x", pty=SIZE)
    select.select([run.ends["terminal"]], [], [], SECONDS)
    terminals.write(run.ends["terminal"], b"\x03")
    out, _, status = run.finish()
    assert (out.splitlines()[-1][-3:], status) == ("got", 7)


def test_limits_hold_for_the_command(bench: Bench) -> None:
    asked = limits.parse({"nofile": [99, 101], "core": 0, "stack": [1_048_576, 2_097_152]})
    out = bench.shell("ulimit -Sn; ulimit -Hn; ulimit -c; ulimit -Ss; ulimit -Hs", rlimits=asked)
    assert out.split() == ["99", "101", "0", "1024", "2048"]


def test_a_limit_that_the_system_refuses_is_named(bench: Bench) -> None:
    error = bench.refusal("true", rlimits=limits.parse({"nofile": 2**40}))
    assert (error.status, error.code) == (400, "bad_argument")
    assert error.detail.startswith("rlimits.nofile: refused, as a hard limit above the present one is: ")


def test_a_command_that_writes_beyond_its_limit_is_ended_by_the_signal_for_it(bench: Bench, tmp_path: Path) -> None:
    # The interpreter that prepares a command ignores that signal, and the command must not.
    script = ["head", "-c", "100000", "/dev/zero"]
    run = bench.start("sh", "-c", f"exec {' '.join(script)} > {tmp_path}/big", rlimits={"fsize": (4096, 4096)})
    assert run.finish()[2] == -signal.SIGXFSZ


@each_way
def test_the_agents_own_limit_of_files_is_not_that_of_commands(
    bench: Bench, members: dict[str, object], raised: limits.OwnFiles
) -> None:
    bench.launcher = launch.Launcher(files=raised)
    assert bench.shell("ulimit -Sn", **members) == f"{raised.original[0]}\n"


def test_a_limit_of_files_that_was_asked_for_wins_over_the_agents_own(bench: Bench, raised: limits.OwnFiles) -> None:
    bench.launcher = launch.Launcher(files=raised)
    assert bench.shell("ulimit -Sn", rlimits={"nofile": (77, 77)}) == "77\n"


def test_with_very_many_open_files_commands_start_and_get_the_common_limit(
    bench: Bench, raised: limits.OwnFiles
) -> None:
    bench.launcher = launch.Launcher(files=raised)
    low = raised.original[0]
    fillers = [os.open(os.devnull, os.O_RDONLY)]
    while fillers[-1] < low + 10:
        fillers.append(os.dup(fillers[0]))
    try:
        run = bench.start("sh", "-c", "read x; ulimit -Sn", stdin=True)
        os.write(run.ends["stdin"], b"go\n")  # the limit is set as soon as the command runs
        assert run.finish()[0] == f"{low}\n"
    finally:
        for filler in fillers:
            os.close(filler)


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> Iterator[limits.OwnFiles]:
    """This process's own limit of open files, low and then raised by a little."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    monkeypatch.setattr(limits, "_OWN_FILES", 400)
    try:
        files = limits.OwnFiles()
        files.raise_limit()
        yield files
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@needs_root
def test_a_command_of_another_user_has_nothing_left_of_ours(bench: Bench) -> None:
    out = bench.shell("grep -E '^(Uid|Gid|Groups)' /proc/self/status; echo $HOME $USER $LOGNAME $SHELL", user=STRANGER)
    number = str(STRANGER)
    assert out.split() == [
        *["Uid:", *[number] * 4],
        *["Gid:", *[number] * 4],
        *["Groups:", number],
        *["/", number, number, "/bin/sh"],
    ]


@needs_root
def test_a_user_with_as_many_processes_as_it_may_have_is_no_shortage_of_the_sandbox(bench: Bench) -> None:
    bench.start("sleep", "60", user=STRANGER)
    error = bench.refusal("true", user=STRANGER, rlimits={"nproc": (0, 0)})
    assert (error.status, error.code) == (400, "bad_argument")
    assert error.detail.startswith("rlimits.nproc: ")


@needs_root
def test_a_known_user_has_its_groups(bench: Bench) -> None:
    name = "daemon"
    out = bench.shell("id -un; id -G", user=name)
    expected = subprocess.run(["id", "-G", name], capture_output=True, text=True, check=True).stdout
    assert out.split("\n", 1)[0] == name
    assert set(out.split("\n", 1)[1].split()) == set(expected.split())


@needs_root
def test_a_user_can_open_its_own_streams_by_name(bench: Bench) -> None:
    run = bench.start(
        "sh", "-c", "cat /dev/stdin; echo out > /dev/stdout; echo err > /dev/stderr", user=STRANGER, stdin=True
    )
    os.write(run.ends["stdin"], b"in\n")
    run.close("stdin")
    assert run.finish() == ("in\nout\n", "err\n", 0)


@needs_root
def test_a_user_owns_its_terminal(bench: Bench) -> None:
    out = bench.shell('stat -c %u "$(tty)"; echo x > "$(tty)"', user=STRANGER, pty=SIZE)
    assert out == f"{STRANGER}\nx\n"


@needs_root
def test_a_folder_that_is_closed_to_the_user_is_no_working_directory(bench: Bench, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    error = bench.refusal("true", user=STRANGER, cwd=tmp_path)
    assert (error.status, error.code) == (400, "cwd_not_found")
    assert "permission denied" in error.detail


@needs_root
def test_a_program_that_only_root_can_execute_is_passed_over_as_in_a_shell_of_that_user(
    bench: Bench, tmp_path: Path
) -> None:
    closed, opened = tmp_path / "a", tmp_path / "b"
    for folder, mode in ((closed, 0o700), (opened, 0o755)):
        folder.mkdir()
        (folder / "tool").write_text(f"#!/bin/sh\necho {folder.name}\n")
        (folder / "tool").chmod(0o755)
        folder.chmod(mode)
    for parent in (tmp_path, *tmp_path.parents[:3]):
        if parent != Path("/tmp"):
            parent.chmod(0o755)
    path = os.fsencode(f"{closed}:{opened}:/usr/bin:/bin")
    assert bench.shell("tool", env={b"PATH": path}) == "a\n"
    assert bench.run("tool", user=STRANGER, env={b"PATH": path})[0] == "b\n"
    error = bench.refusal(str(closed / "tool"), user=STRANGER)
    assert (error.status, error.code) == (400, "not_executable")
    assert "permission denied" in error.detail


NAMESPACE = ["unshare", "--user", "--map-root-user"]
CONFINED = """
import os, sys
from guest.agentd import launch, programs, users
from guest.agentd.errors import RequestError

for wanted in sys.argv[1:]:
    command = programs.Command([b"id", b"-u"], cwd=b"/", environment=dict(os.environb), user=users.find(wanted))
    try:
        started = launch.Launcher().start(command, programs.resolve(command))
        started.child.wait()
        print(os.read(started.stdout, 100).decode().strip())
    except RequestError as error:
        print(error.status, error.code, error.detail)
"""


def run_program(
    program: str, *arguments: str, wrapper: list[str] | None = None, python: str = sys.executable
) -> list[str]:
    command = [*(wrapper or []), python, "-c", program, *arguments]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.skipif(
    subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode != 0,
    reason="user namespaces are refused here",
)
def test_where_there_is_only_one_user_no_other_one_can_be_had(bench: Bench) -> None:
    own, other = run_program(CONFINED, "0", str(STRANGER), wrapper=NAMESPACE)
    assert own == "0"
    assert other.startswith("400 no_such_user ")
    assert str(STRANGER) in other


@each_way
def test_what_the_kernel_cannot_run_is_not_executable(bench: Bench, tmp_path: Path, members: dict[str, object]) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\0\1\2 no program")
    garbage.chmod(0o755)
    error = bench.refusal(str(garbage), **members)
    assert (error.status, error.code) == (400, "not_executable")
    assert "exec format error" in error.detail


@each_way
def test_an_argument_that_is_too_long_is_a_typed_error(bench: Bench, members: dict[str, object]) -> None:
    error = bench.refusal("true", "x" * 200_000, **members)
    assert (error.status, error.code) == (400, "argument_too_long")


@each_way
def test_a_cwd_that_vanished_after_it_was_found_is_named(
    bench: Bench, tmp_path: Path, members: dict[str, object]
) -> None:
    command = build("true", cwd=tmp_path / "gone", **dict(members))
    with pytest.raises(RequestError) as caught:
        bench.launcher.start(command, b"/bin/true")
    assert caught.value.code == "cwd_not_found"
    assert "no such directory" in caught.value.detail


def replace_prelude(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    path = folder / "prelude.py"
    path.write_text(text)
    monkeypatch.setattr(launch, "_PRELUDE", str(path))


@pytest.mark.parametrize(
    ("text", "members", "status", "code"),
    [
        ("raise SystemExit(1)", {"pty": SIZE}, 503, "overloaded"),
        ("import os; os.kill(os.getpid(), 9)", {"pty": SIZE}, 503, "overloaded"),
        ("import os; os.kill(os.getpid(), 9)", {"rlimits": {"as": (9, 9)}}, 400, "bad_argument"),
        ("import os, sys; os.write(int(sys.argv[1]), b'nonsense')", {"pty": SIZE}, 503, "overloaded"),
        ("import os, sys; os.write(int(sys.argv[1]), b'terminal 5')", {"pty": SIZE}, 500, "internal"),
        ("import os, sys; os.write(int(sys.argv[1]), b'user 1')", {"user": 0, "pty": SIZE}, 400, "permission_denied"),
    ],
    ids=["exit", "killed", "limits", "nonsense", "terminal", "user"],
)
def test_a_process_that_ends_before_its_command_began_is_a_typed_error(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    text: str,
    members: dict[str, object],
    status: int,
    code: str,
) -> None:
    replace_prelude(monkeypatch, tmp_path, text)
    # More than a socket holds: what nobody reads must not block us either.
    error = bench.refusal("true", env={b"V%d" % number: b"y" * 100_000 for number in range(20)}, **members)
    assert (error.status, error.code) == (status, code)


def test_a_process_that_never_comes_to_its_command_is_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replace_prelude(monkeypatch, tmp_path, "import time; time.sleep(60)")
    monkeypatch.setattr(launch, "_PRELUDE_SECONDS", 0.2)
    error = bench.refusal("true", env={b"V%d" % number: b"y" * 100_000 for number in range(20)}, pty=SIZE)
    assert (error.status, error.code) == (503, "overloaded")


def test_an_interpreter_that_is_gone_is_not_taken_for_the_command(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    error = bench.refusal("true", pty=SIZE)
    assert (error.status, error.code) == (500, "internal")
    assert "/no/such/python" in error.detail
    assert bench.shell("echo plain ones go on") == "plain ones go on\n"


@pytest.fixture
def fillers() -> Iterator[list[int]]:
    """Open files, as many as there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    opened = [os.open(os.devnull, os.O_RDONLY)]
    with contextlib.suppress(OSError):
        while True:
            opened.append(os.dup(opened[0]))
    yield opened
    for filler in opened:
        os.close(filler)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("members", "least"),
    [({}, 7), ({"stdin": True}, 8), ({"pty": SIZE}, 7), ({"rlimits": {"core": (0, 0)}, "stdin": True}, 10)],
    ids=["plain", "stdin", "terminal", "limits"],
)
def test_without_enough_files_a_command_is_refused_and_none_stays_open(
    fillers: list[int], members: dict[str, object], least: int
) -> None:
    launcher = launch.Launcher()
    command = build("true", **members)
    for room in range(least):
        with pytest.raises(RequestError) as caught:
            launcher.start(command, b"/bin/true")
        assert (room, caught.value.status, caught.value.code) == (room, 503, "overloaded")
        os.close(fillers.pop())
    # Nothing was lost: what was freed is enough.
    run = Run(launcher.start(command, b"/bin/true"))
    assert run.started.child.wait(SECONDS) == 0
    run.end()


def test_many_threads_start_commands_at_once(bench: Bench) -> None:
    results: list[tuple[str, str, int]] = []

    def work(number: int) -> None:
        members: dict[str, object] = {"pty": SIZE} if number % 4 == 0 else {}
        run = Run(bench.launcher.start(command := build("echo", str(number), **members), programs.resolve(command)))
        results.append(run.finish())
        run.end()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted((f"{number}\n", "", 0) for number in range(24))


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.13"])
def test_every_python_that_an_image_may_have_prepares_commands(version: str) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"{skips.OTHER_PYTHON}: {version}")
    program = """
import os
from guest.agentd import launch, programs, terminals, users
user = users.find(os.getuid())
command = programs.Command([b"sh", b"-c", b"stty size; ulimit -n"], cwd=b"/", environment=dict(os.environb),
                           pty=(100, 30), rlimits={"nofile": (50, 50)}, user=user)
started = launch.Launcher().start(command, programs.resolve(command))
started.child.wait()
output = b""
while piece := terminals.read(started.terminal):
    output += piece
print(output.split())
"""
    assert run_program(program, python=python) == ["[b'30', b'100', b'50']"]
