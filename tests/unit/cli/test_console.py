"""The user's terminal and a program, joined. The program runs here, on a pty of its own; the user is the test."""

from __future__ import annotations

import array
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.support import screens
from tests.support.paths import ROOT
from tests.support.terminals import WAIT_SECONDS, Terminal
from vmnest.cli import console, terminal

JOIN = (sys.executable, "-m", "tests.support.console_program")

SIZES = 'while :; do size=$(stty size); [ "$size" = "$last" ] || echo "$size"; last=$size; sleep 0.02; done'


def join(*arguments: str, **options: object) -> Terminal:
    return Terminal([*JOIN, *arguments], **options)  # type: ignore[arg-type]


def wait_until(condition: object, *, seconds: float = WAIT_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


def test_every_key_goes_to_the_program_and_its_status_is_ours() -> None:
    with join("sh", "-c", "stty raw -echo; echo ready; head -c 3 | od -An -tx1; exit 7") as terminal:
        terminal.read_until(b"ready")
        assert terminal.is_raw
        terminal.type(b"\x03\x1a\x1c")
        terminal.read_until(b"03 1a 1c")
        assert terminal.wait() == 7
        assert terminal.modes() == terminal.modes_before


def test_ctrl_c_ends_the_program_and_not_us() -> None:
    with join("sh", "-c", "echo ready; exec sleep 600") as terminal:
        terminal.read_until(b"ready")
        terminal.type(b"\x03")
        assert terminal.wait() == 128 + signal.SIGINT


def test_the_program_has_the_size_of_the_window_from_the_start() -> None:
    script = "while [ \"$(stty size)\" != '33 111' ]; do sleep 0.01; done; echo right"
    with join("sh", "-c", script, size=(111, 33)) as terminal:
        terminal.read_until(b"right")
        assert terminal.wait() == 0


def test_the_program_hears_of_another_size() -> None:
    with join("sh", "-c", SIZES) as terminal:
        terminal.read_until(b"24 80")
        terminal.resize(120, 40)
        terminal.read_until(b"40 120")
        terminal.type(b"\x03")
        terminal.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_that_ends_us_leaves_the_terminal_as_it_was(number: signal.Signals) -> None:
    with join("sh", "-c", "printf '\\033[?1049h\\033[?25l'; echo ready; exec sleep 600") as terminal:
        terminal.read_until(b"ready")
        terminal.signal(number)
        rest = terminal.read_rest()
        assert terminal.wait() == 128 + number
        assert terminal.modes() == terminal.modes_before
        assert b"\x1b[?25h" in rest
        assert b"\x1b[?1049l" in rest


def test_what_a_killed_program_left_in_the_terminal_is_undone() -> None:
    with join("sh", "-c", "printf '\\033[?1049h\\033[?1000;1006h'; kill -9 $$") as terminal:
        rest = terminal.read_rest()
        assert terminal.wait() == 128 + signal.SIGKILL
        assert rest.endswith(b"\x1b[?1049l")
        assert b"\x1b[?1006l" in rest


def test_a_program_that_tidies_up_itself_is_followed_by_nothing() -> None:
    with join("sh", "-c", "printf '\\033[?1049h\\033[?1049l'; echo end") as terminal:
        assert terminal.read_rest().endswith(b"end\r\n")


def test_the_terminal_is_lent_back_while_we_are_stopped() -> None:
    with join("sh", "-c", "echo ready; read line; echo got $line") as terminal:
        terminal.read_until(b"ready")
        terminal.signal(signal.SIGTSTP)
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED | os.WNOWAIT)
        assert terminal.modes() == terminal.modes_before
        terminal.signal(signal.SIGCONT)
        wait_until(lambda: terminal.is_raw)
        terminal.type(b"keys\r")
        terminal.read_until(b"got keys")
        assert terminal.wait() == 0


def test_input_that_cannot_be_sent_is_an_error_and_ends_the_joint() -> None:
    with join("--deaf", "sh", "-c", "echo ready; exec sleep 600") as terminal:
        terminal.read_until(b"ready")
        terminal.type(b"x")
        terminal.read_until(b"nobody hears")
        assert terminal.wait() == 125
        assert terminal.modes() == terminal.modes_before


def test_keys_wait_for_a_sandbox_that_they_must_not_resume(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with join("--asleep", "sh", "-c", "echo ready; read x; echo got $x", cwd=tmp_path, env=environ) as terminal:
        terminal.read_until(b"ready")
        terminal.type(b"keys\r")
        terminal.read_until(b"vmnest: sandbox demo is suspended: what is typed waits until it is resumed\r\n")
        (tmp_path / "awake").touch()
        terminal.read_until(b"got keys")
        assert terminal.wait() == 0


def test_a_program_that_ends_while_keys_wait_ends_the_joint() -> None:
    with join("--asleep", "sh", "-c", "echo ready; sleep 0.3; exit 4") as terminal:
        terminal.read_until(b"ready")
        terminal.type(b"x")
        assert terminal.wait() == 4


def test_a_program_that_closes_its_input_is_fed_no_further() -> None:
    with join("--plain", "sh", "-c", "exec <&-; echo ready; sleep 0.5; exit 3") as terminal:
        terminal.read_until(b"ready")
        terminal.type(b"one\ntwo\n")
        assert terminal.wait() == 3


def test_a_large_paste_arrives_whole() -> None:
    data = os.urandom(49152).hex().encode()
    script = f"stty raw -echo; echo ready; head -c {len(data)} | sha256sum"
    with join("sh", "-c", script) as terminal:
        terminal.read_until(b"ready")
        terminal.type(data)
        terminal.read_until(hashlib.sha256(data).hexdigest().encode())
        assert terminal.wait() == 0


def test_a_paste_goes_in_pieces_larger_than_what_a_terminal_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"one of many lines\r" * 500
    monkeypatch.setattr(console, "_READ_BYTES", len(data))
    monkeypatch.setattr(console, "_GATHER_SECONDS", WAIT_SECONDS)
    with screens.on_terminal(terminal.STDIN) as master:
        terminal.RawMode(terminal.STDIN).begin()
        assert os.write(master, data) == len(data)
        held = array.array("i", [0])
        wait_until(lambda: not fcntl.ioctl(terminal.STDIN, termios.FIONREAD, held) and held[0] >= 4095)
        assert console._read_input(full=console._FULL_TERMINAL_BYTES) == data


def test_a_suspension_is_told_and_the_size_waits_for_its_end() -> None:
    with join("--pause", "sh", "-c", SIZES) as terminal:
        terminal.read_until(b"24 80")
        terminal.type(b"P")
        terminal.read_until(b"vmnest: the sandbox is suspended; a key resumes it\r\n")
        terminal.resize(90, 30)
        terminal.type(b"R")
        before = terminal.read_until(b"vmnest: the sandbox goes on\r\n")
        assert b"30 90" not in before
        terminal.read_until(b"30 90")
        terminal.type(b"\x03")
        terminal.wait()


def test_a_program_on_the_whole_screen_draws_anew_after_a_suspension() -> None:
    with join("--pause", "sh", "-c", f"printf '\\033[?1049h'; {SIZES}") as terminal:
        terminal.read_until(b"24 80")
        terminal.type(b"P")
        terminal.read_until(b"\x1b[24;1H\x1b[0;7mvmnest: the sandbox is suspended; a key resumes it")
        terminal.type(b"R")
        terminal.read_until(b"24 80")
        terminal.type(b"\x03")
        assert b"goes on" not in terminal.read_rest()


def test_missing_output_is_told_where_it_is_missing() -> None:
    with join("sh", "-c", "echo gap; echo end") as terminal:
        assert b"17 bytes of output are not kept any more" in terminal.read_rest()


def test_questions_in_output_that_is_shown_again_are_not_asked_again() -> None:
    with join("--again", "sh", "-c", f"printf 'old\\033[c\\033[6nnew\\033[c'; {SIZES}") as terminal:
        terminal.read_until(b"oldnew\x1b[c")
        terminal.read_until(b"24 80")
        terminal.type(b"\x03")
        terminal.wait()


def test_a_tilde_and_a_dot_leave() -> None:
    with join("--escape", "sh", "-c", "echo ready; exec sleep 600") as terminal:
        terminal.read_until(b"ready")
        terminal.type(b"~.")
        assert terminal.wait() == 77
        assert terminal.modes() == terminal.modes_before


def test_without_a_pty_the_terminal_keeps_its_modes_and_its_end_of_file_arrives() -> None:
    with join("--plain", "sh", "-c", "echo ready; cat; echo end; exit 5") as terminal:
        terminal.read_until(b"ready")
        assert not terminal.is_raw
        terminal.type(b"line\n")
        terminal.read_until(b"line\r\nline\r\n")
        terminal.type(b"\x04")
        terminal.read_until(b"end")
        assert terminal.wait() == 5


def test_input_from_a_pipe_goes_through_to_its_end() -> None:
    data = os.urandom(3_000_000)
    done = subprocess.run(
        [*JOIN, "--plain", "sha256sum"], input=data, capture_output=True, cwd=ROOT, check=True, timeout=WAIT_SECONDS
    )
    assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_the_end_of_a_pipe_is_an_end_of_file_on_the_pty() -> None:
    done = subprocess.run(
        [*JOIN, "cat"], input=b"line\n", capture_output=True, cwd=ROOT, check=True, timeout=WAIT_SECONDS
    )
    assert done.stdout.endswith(b"line\r\n")


def test_a_program_that_ends_is_not_kept_by_input_that_comes_no_more() -> None:
    reader, writer = os.pipe()
    with join("--plain", "true", stdin=reader) as terminal:
        os.close(reader)
        assert terminal.wait() == 0
    os.close(writer)


def test_an_inherited_descriptor_stays_blocking() -> None:
    with join("sh", "-c", "echo ready; read line") as terminal:
        terminal.read_until(b"ready")
        assert os.get_blocking(terminal._slave)
        terminal.type(b"\r")
        terminal.wait()
        assert os.get_blocking(terminal._slave)
