"""The standard streams."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vmnest import errors
from vmnest.cli import terminal


def test_all_bytes_arrive_also_through_a_pipe_that_is_full() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    data = os.urandom(300_000)

    def write() -> None:
        terminal.write_bytes(writer, data)
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    with open(reader, "rb") as file:
        assert file.read() == data
    thread.join()


def test_a_reader_that_is_gone_is_a_broken_pipe() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        terminal.write_bytes(writer, b"x")
    os.close(writer)


def test_a_full_disk_is_an_error_of_its_own() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(errors.OutputError, match="No space"):
        terminal.write_bytes(fd, b"x")
    os.close(fd)


def test_what_is_told_beside_may_go_unheard() -> None:
    code = "from vmnest.cli import terminal; terminal.tell('x'); terminal.write_text(1, 'went on')"
    reader, writer = os.pipe()
    os.close(reader)
    for fd in (writer, os.open("/dev/full", os.O_WRONLY)):
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=fd, check=True)
        os.close(fd)
        assert done.stdout == b"went on"


PRINT = "from vmnest.cli import terminal; terminal.write_text(1, 'na\\u00efve \\u65e5 \\udcff')"


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("utf-8", "naïve 日 \\udcff".encode()),
        ("ascii", b"na\\xefve \\u65e5 \\udcff"),
        ("cp1252", b"na\xefve \\u65e5 \\udcff"),
    ],
)
def test_text_is_written_in_any_encoding(encoding: str, expected: bytes) -> None:
    environ = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", PRINT], cwd=ROOT, env=environ, capture_output=True, check=True)
    assert done.stdout == expected


def test_closed_streams_are_opened_so_that_no_other_file_takes_their_place(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "for fd in (0, 1, 2): os.close(fd)\n"
        "from vmnest.cli import terminal\n"
        "terminal.open_missing()\n"
        "fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
        "terminal.write_text(1, 'x'); terminal.write_text(2, 'x')\n"
        "os.write(fd, str(fd).encode())\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "file"], cwd=ROOT, check=True)
    assert int((tmp_path / "file").read_bytes()) > 2


def test_nothing_but_a_terminal_gets_colour_or_progress(capfd: pytest.CaptureFixture[str]) -> None:
    assert not terminal.want_colour(terminal.STDERR)
    with terminal.Progress("waiting", shown=True) as progress:
        progress.end()
    assert capfd.readouterr() == ("", "")


def in_terminal(code: str, **environ: str) -> str:
    """What a program writes to a terminal."""
    import pty

    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **environ}, stdin=slave, stdout=slave, stderr=slave
    ) as child:
        os.close(slave)
        child.wait(timeout=30)
        output = b""
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:
                break
            output += data
    os.close(master)
    return output.decode()


@pytest.mark.parametrize(
    ("environ", "colour"),
    [
        ({"TERM": "xterm", "NO_COLOR": ""}, "True"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, "False"),
        ({"TERM": "dumb", "NO_COLOR": ""}, "False"),
    ],
)
def test_colour_is_for_terminals_that_know_it_and_users_who_want_it(environ: dict[str, str], colour: str) -> None:
    code = "from vmnest.cli import terminal; print(terminal.want_colour(2))"
    assert in_terminal(code, **environ).strip() == colour


PROGRESS = """
import threading
from vmnest.cli import terminal
terminal.PROGRESS_AFTER_SECONDS = 0.01
with terminal.Progress("starting demo", shown=True):
    threading.Event().wait({seconds})
print("done")
"""


def test_progress_is_shown_on_a_terminal_and_wiped() -> None:
    output = in_terminal(PROGRESS.format(seconds=0.3))
    assert "\rstarting demo ... 1 s" in output
    assert output.endswith("\r\x1b[Kdone\r\n")


def test_other_text_takes_the_place_of_a_line_that_is_drawn() -> None:
    output = in_terminal(
        "from vmnest.cli import terminal\n"
        "terminal.draw_line('half')\nterminal.write_text(2, 'said\\n')\nterminal.draw_line('')\n"
        "terminal.draw_line('more')\nterminal.draw_line('')\nprint('done')\n"
    )
    assert output == "\rhalf\x1b[K\r\x1b[Ksaid\r\n\rmore\x1b[K\r\x1b[Kdone\r\n"


def test_what_is_quick_shows_no_progress() -> None:
    code = PROGRESS.format(seconds=0).replace("0.01", "60")
    assert in_terminal(code) == "done\r\n"


def test_what_is_there_is_read_and_its_end_is_nothing() -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b"abc")
        assert terminal.read_bytes(reading, 100) == b"abc"
        os.close(writing)
        assert terminal.read_bytes(reading, 100) == b""
    finally:
        os.close(reading)


def test_a_pipe_that_somebody_made_non_blocking_is_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    writer = threading.Timer(0.05, os.write, (writing, b"late"))
    writer.start()
    try:
        assert terminal.read_bytes(reading, 100) == b"late"
        assert not os.get_blocking(reading)
    finally:
        writer.join()
        os.close(reading)
        os.close(writing)


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    try:
        with pytest.raises(errors.InputError, match="Bad file descriptor"):
            terminal.read_bytes(fd, 100)
    finally:
        os.close(fd)
