"""Shells in sandboxes, at real terminals: a pty that the test holds, and tmux where a person would sit."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.cli import PROGRAM, Cli, bare_environ
from tests.support.cloud import LocalCloud, open_cloud
from tests.support.terminals import Terminal

WAIT_SECONDS = 30.0
PROMPT = b"here> "


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with open_cloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def cli(cloud: LocalCloud) -> Cli:
    return Cli({**bare_environ(cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": cloud.folder})


@pytest.fixture(scope="module")
def box(cli: Cli) -> Iterator[str]:
    """A sandbox for the tests of this module."""
    done = cli("create", "box", "--local", "--ingress", "HTTP_INGRESS", "--ingress", "SHELL_INGRESS")
    assert (done.status, done.text, done.remarks) == (0, "box\n", "")
    yield "box"
    assert cli("rm", "box").status == 0


@contextlib.contextmanager
def at_terminal(cli: Cli, *words: str, size: tuple[int, int] = (80, 24)) -> Iterator[Terminal]:
    with Terminal([*PROGRAM, *words], env={**cli.environ, "TERM": "xterm"}, size=size) as terminal:
        yield terminal


@contextlib.contextmanager
def in_shell(cli: Cli, box: str, *options: str, size: tuple[int, int] = (80, 24)) -> Iterator[Terminal]:
    """A shell that has shown its prompt, with a prompt that is known."""
    with at_terminal(cli, "shell", box, *options, size=size) as terminal:
        terminal.type(b"PS1='he''re> '\r")
        terminal.read_until(PROMPT)
        yield terminal


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def running(cli: Cli, box: str) -> list[str]:
    """The ids of what runs in the sandbox."""
    jobs = cli("jobs", box, "--json").data["jobs"]
    return [job["job"] for job in jobs if job["state"] == "running"]


# -- a session ---------------------------------------------------------------------------------------------------------


def test_a_login_shell_on_a_terminal_whose_status_is_ours(cli: Cli, box: str) -> None:
    with in_shell(cli, box, size=(111, 33)) as terminal:
        assert terminal.is_raw
        terminal.type(b"tty; stty size; echo TERM=$TERM; shopt -q login_shell; echo login=$?; locale charmap\r")
        terminal.read_until(b"/dev/pts/")
        terminal.read_until(b"33 111\r\n")
        terminal.read_until(b"TERM=xterm-256color\r\n")
        terminal.read_until(b"login=0\r\n")
        terminal.read_until(b"UTF-8\r\n")
        terminal.type(b"exit 7\r")
        assert terminal.wait() == 7
        assert terminal.modes() == terminal.modes_before


def test_place_and_variables_are_as_the_options_say(cli: Cli, box: str) -> None:
    with in_shell(cli, box, "-w", "/tmp", "-e", "A=b c", "--user", "1000") as terminal:
        terminal.type(b'pwd; echo "A=$A"; id -u; exit\r')
        terminal.read_until(b"/tmp\r\nA=b c\r\n1000\r\n")
        assert terminal.wait() == 0


def test_control_keys_are_for_what_runs_there(cli: Cli, box: str) -> None:
    with in_shell(cli, box) as terminal:
        # What says that it has begun is in the foreground by then.
        terminal.type(b"sh -c 'echo be\"\"gin; exec sleep 600'\r")
        terminal.read_until(b"begin\r\n")
        terminal.type(b"\x03")
        terminal.type(b"echo status=$?; sh -c 'echo ag\"\"ain; exec sleep 601'\r")
        terminal.read_until(b"status=130\r\nagain\r\n")
        terminal.type(b"\x1a")
        terminal.read_until(b"Stopped")
        terminal.type(b"kill %1; echo ca''t; cat\r")
        terminal.read_until(b"cat\r\n")
        terminal.type(b"line\r")
        terminal.read_until(b"line\r\nline\r\n")
        terminal.type(b"\x04")
        terminal.type(b"exit 5\r")
        assert terminal.wait() == 5


def test_the_window_may_have_another_size_at_any_time(cli: Cli, box: str) -> None:
    with in_shell(cli, box) as terminal:
        terminal.type(b"sh -c 'trap \"stty size\" WINCH; echo go''ing; while :; do sleep 0.05; done'\r")
        terminal.read_until(b"going\r\n")
        for columns, rows in ((100, 50), (60, 20), (200, 60)):
            terminal.resize(columns, rows)
            terminal.read_until(b"%d %d\r\n" % (rows, columns))
        terminal.type(b"\x03")
        terminal.type(b"exit 0\r")
        assert terminal.wait() == 0


def test_a_large_paste_arrives_whole_and_so_does_much_output(cli: Cli, box: str) -> None:
    data = os.urandom(32768).hex().encode()
    with in_shell(cli, box) as terminal:
        terminal.type(f"stty raw -echo; echo go''ing; head -c {len(data)} | sha256sum; stty sane\r".encode())
        terminal.read_until(b"going")
        terminal.type(data)
        terminal.read_until(hashlib.sha256(data).hexdigest().encode())
        terminal.type(b"seq 100000; echo en''d\r")
        shown = terminal.read_until(b"end\r\n")
        assert b"".join(b"%d\r\n" % number for number in range(1, 100001)) in shown
        terminal.type(b"exit\r")
        assert terminal.wait() == 0


@pytest.mark.parametrize("options", [(), ("--native",)], ids=["agent", "native"])
def test_a_flood_that_is_interrupted_ends_soon_on_a_slow_terminal(cli: Cli, box: str, options: tuple[str, ...]) -> None:
    def offset() -> int:
        return int(cli("jobs", box, "--json").data["jobs"][-1]["offset"])

    with in_shell(cli, box, *options) as terminal:
        terminal.type(b"yes 'a line of output'\r")
        terminal.read_until(b"output\r\na line")
        seen = [offset()]
        wait_for(lambda: seen.append(offset()) or seen[-1] == seen[-2] > 100_000)
        terminal.type(b"\x03")
        assert len(terminal.read_until(PROMPT)) < 1024 * 1024
        terminal.type(b"exit\r")
        terminal.wait()


def test_without_a_terminal_it_reads_a_script(cli: Cli, box: str) -> None:
    script = "tty; shopt -q login_shell && echo login; cat <<<$A >&2; exit 6"
    done = cli.shell(f"printf %s '{script}' | $vmnest shell {box} -e A=err")
    assert (done.status, done.out, done.err) == (6, b"not a tty\nlogin\n", b"err\n")


def test_json_is_nothing_for_a_shell(cli: Cli, box: str) -> None:
    done = cli("shell", box, "--json")
    assert (done.status, done.error["code"]) == (2, "usage")


def test_what_a_killed_program_left_is_undone(cli: Cli, box: str) -> None:
    with in_shell(cli, box) as terminal:
        terminal.type(b"printf '\\033[?1049h\\033[?25l'; kill -9 $$\r")
        rest = terminal.read_rest()
        assert terminal.wait() == 128 + signal.SIGKILL
        assert rest.endswith(b"\x1b[?25h\x1b[?1049l")
        assert terminal.modes() == terminal.modes_before


# -- leaving, and being cut off ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_us_hangs_the_shell_up(cli: Cli, box: str, number: signal.Signals) -> None:
    before = running(cli, box)
    with in_shell(cli, box) as terminal:
        terminal.type(b"sleep 602 & echo beg''un; cat\r")
        terminal.read_until(b"begun\r\n")
        terminal.signal(number)
        assert terminal.wait() == 128 + number
        assert terminal.modes() == terminal.modes_before
    wait_for(lambda: running(cli, box) == before)
    assert cli("exec", box, "--", "pgrep", "-fx", "sleep 602").status == 1


def test_a_window_that_is_closed_hangs_the_shell_up(cli: Cli, box: str) -> None:
    before = running(cli, box)
    with in_shell(cli, box) as terminal:
        terminal.hang_up()
        assert terminal.process.wait(WAIT_SECONDS) == 128 + signal.SIGHUP
    wait_for(lambda: running(cli, box) == before)


def test_a_window_that_is_closed_on_a_suspended_sandbox_wakes_nothing(cli: Cli, box: str) -> None:
    with in_shell(cli, box) as terminal:
        assert cli("stop", box).status == 0
        terminal.read_until(b"the sandbox is suspended")
        terminal.hang_up()
        assert terminal.process.wait(WAIT_SECONDS) == 128 + signal.SIGHUP
    assert cli("ps", box, "--json").data["state"] == "SUSPENDED"
    assert cli("start", box).status == 0


def test_who_leaves_can_come_back(cli: Cli, box: str) -> None:
    with in_shell(cli, box) as terminal:
        terminal.type(b"SECRET=ke''pt\r")
        terminal.read_until(PROMPT)
        terminal.type(b"~.")
        told = terminal.read_rest()
        assert terminal.wait() == 0
    job = re.search(rb"vmnest attach -i box ([0-9a-zA-Z_-]+)", told)
    assert job is not None, told
    assert job[1].decode() in running(cli, box)
    with at_terminal(cli, "attach", "-i", box, job[1].decode()) as terminal:
        terminal.type(b"echo $SECRET again; exit 9\r")
        terminal.read_until(b"kept again\r\n")
        assert terminal.wait() == 9


def test_two_may_type_into_one_shell(cli: Cli, box: str) -> None:
    job = cli("exec", box, "--background", "-it", "--", "bash", "--norc").text.strip()
    with at_terminal(cli, "attach", "-i", box, job) as one, at_terminal(cli, "attach", "-i", box, job) as other:
        for number in range(3):
            for hand, who in ((one, "one"), (other, "other")):
                hand.type(f"echo {who} ty''ped {number}\r".encode())
                for eyes in (one, other):
                    eyes.read_until(f"{who} typed {number}\r\n".encode())
        one.type(b"exit 3\r")
        assert (one.wait(), other.wait()) == (3, 3)


def test_a_client_that_is_killed_leaves_a_shell_to_come_back_to(cli: Cli, box: str) -> None:
    before = running(cli, box)
    with in_shell(cli, box) as terminal:
        terminal.type(b"STAYS=ye''s\r")
        terminal.read_until(PROMPT)
        terminal.process.kill()
        terminal.process.wait()
    (job,) = set(running(cli, box)) - set(before)
    with at_terminal(cli, "attach", "-i", box, job) as terminal:
        terminal.type(b"echo STAYS=$STAYS; exit 3\r")
        terminal.read_until(b"STAYS=yes\r\n")
        assert terminal.wait() == 3


def test_a_sandbox_that_ends_ends_the_shell(cli: Cli) -> None:
    assert cli("create", "brief", "--local").status == 0
    with in_shell(cli, "brief") as terminal:
        assert cli("rm", "brief").status == 0
        rest = terminal.read_rest()
        assert terminal.wait() == 125
        assert b"has ended" in rest or b"TERMINAT" in rest
        assert terminal.modes() == terminal.modes_before


# -- suspended ---------------------------------------------------------------------------------------------------------


def test_a_key_resumes_a_suspended_sandbox_and_nothing_is_lost(cli: Cli, box: str) -> None:
    with in_shell(cli, box) as terminal:
        terminal.type(b"for n in $(seq 500); do echo line $n; sleep 0.01; done; read reply; echo got $reply\r")
        shown = terminal.read_until(b"line 50\r\n")
        assert cli("stop", box).status == 0
        shown += terminal.read_until(b"the sandbox is suspended; a key resumes it")
        assert cli("ps", box, "--json").data["state"] == "SUSPENDED"
        terminal.resize(90, 30)
        terminal.type(b"typed ahead\r")
        shown += terminal.read_until(b"line 500\r\n")
        numbers = [int(number) for number in re.findall(rb"line (\d+)\r\n", shown)]
        assert numbers == list(range(1, 501))
        terminal.read_until(b"got typed ahead\r\n")
        terminal.type(b"stty size; exit 4\r")
        terminal.read_until(b"30 90\r\n")
        assert terminal.wait() == 4


def test_another_may_resume_it_too(cli: Cli, box: str) -> None:
    with in_shell(cli, box, "--no-resume") as terminal:
        assert cli("stop", box).status == 0
        terminal.type(b"echo st''ill here; exit 2\r")
        terminal.read_until(b"suspended")
        assert cli("ps", box, "--json").data["state"] == "SUSPENDED"
        assert cli("start", box).status == 0
        terminal.read_until(b"still here\r\n")
        assert terminal.wait() == 2


def test_a_daemon_that_is_killed_costs_nothing(cli: Cli) -> None:
    with open_cloud() as cloud:
        other = Cli({**bare_environ(cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": cloud.folder})
        assert other("create", "lasting", "--local").status == 0
        with in_shell(other, "lasting") as terminal:
            terminal.type(b"for n in $(seq 300); do echo line $n; sleep 0.01; done; exit 6\r")
            shown = terminal.read_until(b"line 50\r\n")
            cloud.process.kill()
            shown += terminal.read_until(b"line 300\r\n")
            assert [int(number) for number in re.findall(rb"line (\d+)\r\n", shown)] == list(range(1, 301))
            assert terminal.wait() == 6
        assert other("rm", "lasting").status == 0
        assert other("local", "down").status == 0


# -- the service's own shell -------------------------------------------------------------------------------------------


def test_the_services_shell_works_without_the_agents_protocol(cli: Cli, box: str) -> None:
    with in_shell(cli, box, "--native", size=(99, 44)) as terminal:
        terminal.type(b"stty size; echo TERM=$TERM\r")
        terminal.read_until(b"44 99\r\n")
        terminal.read_until(b"TERM=xterm\r\n")
        terminal.resize(55, 22)
        terminal.type(b"sleep 0.3; stty size\r")
        terminal.read_until(b"22 55\r\n")
        terminal.type(b"exit 3\r")
        assert terminal.wait() == 0  # the service does not tell
        assert terminal.modes() == terminal.modes_before


def test_a_suspension_ends_the_services_shell_with_a_reason(cli: Cli, box: str) -> None:
    with in_shell(cli, box, "--native") as terminal:
        assert cli("stop", box).status == 0
        terminal.read_until(b"the sandbox was suspended, which cuts the service's shell off")
        assert terminal.wait() == 125
        assert terminal.modes() == terminal.modes_before
    with in_shell(cli, box, "--native") as terminal:  # which resumes it
        terminal.type(b"~.")
        terminal.read_until(b"hung up")
        terminal.wait()


def test_the_services_shell_needs_its_connector(cli: Cli) -> None:
    assert cli("create", "plain", "--local").status == 0
    with at_terminal(cli, "shell", "plain", "--native") as terminal:
        rest = terminal.read_rest()
        assert terminal.wait() == 125
    assert b"was launched without SHELL_INGRESS" in rest
    assert cli("rm", "plain").status == 0


def test_the_services_shell_needs_a_terminal_and_takes_no_wishes(cli: Cli, box: str) -> None:
    done = cli("shell", box, "--native")
    assert (done.status, "needs a terminal" in done.remarks) == (2, True)
    for option in (("--user", "root"), ("-w", "/"), ("-e", "A=b"), ("--secret", "HOME")):
        done = cli("shell", box, "--native", *option)
        assert (done.status, "does not go with --native" in done.remarks) == (2, True)


# -- where a person sits -----------------------------------------------------------------------------------------------


class Tmux:
    """A window of tmux, of a server of its own."""

    def __init__(self, cli: Cli, folder: str) -> None:
        self._base = ["tmux", "-S", f"{folder}/tmux", "-f", "/dev/null"]
        self._environ = {**cli.environ, "vmnest": " ".join(PROGRAM), "LC_ALL": "C.UTF-8"}
        self.run("new-session", "-d", "-s", "t", "-x", "90", "-y", "24", "env PS1='host> ' bash --norc --noprofile")

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [*self._base, *words], env=self._environ, cwd=os.getcwd(), capture_output=True, text=True, check=True
        )
        return done.stdout

    def type(self, *keys: str) -> None:
        self.run("send-keys", "-t", "t", *keys)

    def resize(self, columns: int, rows: int) -> None:
        self.run("resize-window", "-t", "t", "-x", str(columns), "-y", str(rows))

    @property
    def screen(self) -> str:
        return self.run("capture-pane", "-p", "-t", "t")

    def wait_for(self, text: str) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while not re.search(text, self.screen, re.MULTILINE):
            assert time.monotonic() < end, f"{text!r} is not on\n{self.screen}"
            time.sleep(0.05)


@pytest.fixture
def tmux(cli: Cli, cloud: LocalCloud) -> Iterator[Tmux]:
    if shutil.which("tmux") is None or shutil.which("vim") is None or shutil.which("top") is None:
        pytest.skip("needs tmux, vim and top")
    made = Tmux(cli, cloud.folder)
    yield made
    with contextlib.suppress(subprocess.CalledProcessError):
        made.run("kill-server")


def test_a_person_works_in_full_screen_programs(cli: Cli, box: str, tmux: Tmux) -> None:
    tmux.type("clear; $vmnest shell box", "Enter")
    tmux.wait_for(r"\$ *$")
    tmux.type("vim -u NONE /tmp/note", "Enter")
    tmux.wait_for(r"\[New")
    tmux.type("ifirst line", "Escape")
    tmux.wait_for("^first line")
    tmux.resize(60, 15)
    tmux.type(":set lines? columns?", "Enter")
    tmux.wait_for("lines=15")
    tmux.wait_for("columns=60")
    tmux.type("Enter")
    assert cli("stop", box).status == 0
    tmux.wait_for("the sandbox is suspended; a key resumes it")
    tmux.type("osecond line", "Escape")
    tmux.wait_for("^second line")
    tmux.type(":wq", "Enter")
    tmux.wait_for(r"\$ *$")
    tmux.type("clear; top", "Enter")
    tmux.wait_for("^ *PID")
    tmux.resize(100, 30)
    tmux.wait_for("COMMAND")
    tmux.type("q")  # top takes what comes in one piece for one key
    tmux.wait_for(r"\$ *$")
    tmux.type("clear; python3 -q", "Enter")
    tmux.wait_for("^>>> *$")
    tmux.type("print(open('/tmp/note').read())", "Enter")
    tmux.wait_for("^first line\nsecond line")
    tmux.type("import os; os.get_terminal_size()", "Enter")
    tmux.wait_for("columns=100, lines=30")
    tmux.type("C-d")
    tmux.wait_for(r"\$ *$")
    tmux.type("exit 8", "Enter")
    tmux.wait_for("^host>")
    tmux.type("echo status $?; stty -a | tr ' ' '\\n' | grep -cx echo", "Enter")
    tmux.wait_for("^status 8\n1")
