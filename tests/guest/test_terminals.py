"""Terminals: sizes, reading to the end, typing without loss."""

from __future__ import annotations

import errno
import hashlib
import os
import select
import signal
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Iterator

import pytest

from guest.agentd import terminals
from guest.agentd.errors import RequestError

SECONDS = 20.0
ALL = 2**40  # of the input, to its end


class Pair:
    """Both ends of a terminal."""

    def __init__(self) -> None:
        self.ours, self.theirs = terminals.open_pair((80, 24))
        self.is_open = True

    def close_theirs(self) -> None:
        if self.is_open:
            os.close(self.theirs)
            self.is_open = False

    def wait(self, events: int = select.POLLIN) -> None:
        poller = select.poll()
        poller.register(self.ours, events)
        assert poller.poll(SECONDS * 1000), "nothing happens"


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close_theirs()
    os.close(made.ours)


def size_of(descriptor: int) -> tuple[int, int]:
    found = os.get_terminal_size(descriptor)
    return found.columns, found.lines


def test_a_size_is_columns_and_rows() -> None:
    assert terminals.parse_size({"cols": 132, "rows": 43, "more": "ignored"}) == (132, 43)
    assert terminals.parse_size({"cols": 1, "rows": 65535}) == (1, 65535)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (None, "pty"),
        ([80, 24], "pty"),
        ("80x24", "pty"),
        (True, "pty"),
        ({}, "pty.cols"),
        ({"cols": 80}, "pty.rows"),
        ({"cols": 0, "rows": 1}, "pty.cols"),
        ({"cols": 65536, "rows": 1}, "pty.cols"),
        ({"cols": 80, "rows": "24"}, "pty.rows"),
        ({"cols": True, "rows": 24}, "pty.cols"),
        ({"cols": 80.5, "rows": 24}, "pty.cols"),
        ({"cols": None, "rows": 24}, "pty.cols"),
    ],
    ids=str,
)
def test_what_is_no_size_is_refused_by_its_name(value: object, field: str) -> None:
    with pytest.raises(RequestError, match=f"^{field}: ") as caught:
        terminals.parse_size(value)
    assert caught.value.code == "bad_argument"


def test_a_new_terminal_has_its_size_and_is_inherited_by_nobody(pair: Pair) -> None:
    assert size_of(pair.theirs) == (80, 24)
    assert not os.get_inheritable(pair.ours)
    assert not os.get_inheritable(pair.theirs)


def test_only_our_end_is_non_blocking(pair: Pair) -> None:
    assert not os.get_blocking(pair.ours)
    assert os.get_blocking(pair.theirs)


def test_the_erase_key_takes_a_whole_character(pair: Pair) -> None:
    terminals.write(pair.ours, "aä\x7f\n".encode())
    assert os.read(pair.theirs, 100) == b"a\n"


def test_another_size_is_seen_by_its_programs(pair: Pair) -> None:
    terminals.resize(pair.ours, (200, 50))
    assert size_of(pair.theirs) == (200, 50)


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [(errno.ENOSPC, 503, "overloaded"), (errno.EMFILE, 503, "overloaded"), (errno.ENOENT, 500, "internal")],
)
def test_a_terminal_that_is_not_to_be_had_is_a_typed_error(
    monkeypatch: pytest.MonkeyPatch, number: int, status: int, code: str
) -> None:
    def refuse() -> tuple[int, int]:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "openpty", refuse)
    with pytest.raises(RequestError) as caught:
        terminals.open_pair((80, 24))
    assert (caught.value.status, caught.value.code) == (status, code)


def test_reading_tells_nothing_yet_from_the_end(pair: Pair) -> None:
    tty.setraw(pair.theirs)
    assert terminals.read(pair.ours) is None
    os.write(pair.theirs, b"out")
    pair.wait()
    assert terminals.read(pair.ours) == b"out"
    assert terminals.read(pair.ours) is None
    os.write(pair.theirs, b"last")
    pair.close_theirs()
    assert terminals.read(pair.ours) == b"last"
    assert terminals.read(pair.ours) == b""
    assert terminals.read(pair.ours) == b""


def test_typing_into_a_full_terminal_takes_nothing_and_waits_for_nobody(pair: Pair) -> None:
    tty.setraw(pair.theirs)
    count = 0
    while taken := terminals.write(pair.ours, b"x" * 4096):
        count += taken
        assert count < 2**20
    assert count > 4096


# Reads its input, in either mode of a terminal, and says what it was.
READER = """
import hashlib, os, sys, tty, termios
if sys.argv[1] == "raw":
    tty.setraw(0)
os.write(1, b"ready")
digest, left = hashlib.sha256(), int(sys.argv[2])
while left and (piece := os.read(0, min(left, 1000))):
    digest.update(piece)
    left -= len(piece)
tty.setraw(1)
os.write(1, b"<" + digest.hexdigest().encode() + b">")
"""


def type_into(pair: Pair, data: bytes, *, mode: str, length: int) -> bytes:
    """What a program says of the input that it got, while its output is read all along, as the agent does."""
    command = [sys.executable, "-c", READER, mode, str(length)]
    said, unsent, ended = b"", memoryview(data), False
    with subprocess.Popen(command, stdin=pair.theirs, stdout=pair.theirs, start_new_session=True) as child:
        pair.close_theirs()
        poller = select.poll()
        poller.register(pair.ours, select.POLLIN)
        deadline = time.monotonic() + SECONDS
        while (piece := terminals.read(pair.ours)) != b"":
            assert time.monotonic() < deadline, said[-200:]
            said += piece or b""
            if said.startswith(b"ready"):
                unsent = unsent[terminals.write(pair.ours, unsent) :] if unsent else unsent
                if not unsent and not ended:
                    terminals.write(pair.ours, terminals.build_end(pair.ours, last=data[-1:]))
                    ended = True
                poller.modify(pair.ours, select.POLLIN | (select.POLLOUT if unsent else 0))
            poller.poll(1000)
        assert child.wait(SECONDS) == 0
    return said


def digest(data: bytes) -> bytes:
    return b"<" + hashlib.sha256(data).hexdigest().encode() + b">"


def test_a_paste_of_64_kb_arrives_whole_in_raw_mode(pair: Pair) -> None:
    data = bytes(range(256)) * 256
    assert type_into(pair, data, mode="raw", length=len(data)).endswith(digest(data))


def test_a_paste_of_many_lines_arrives_whole_although_all_of_it_is_echoed(pair: Pair) -> None:
    data = b"".join(b"%05d %s\n" % (count, b"x" * 73) for count in range(820))
    assert len(data) > 64000
    said = type_into(pair, data, mode="lines", length=ALL)
    assert said.endswith(digest(data))
    assert b"x" * 73 in said  # on a busy machine not all of it: the kernel drops echo that is not read in time


@pytest.mark.parametrize("data", [b"", b"a line\n", b"no end of line", b"two\nlines"], ids=repr)
def test_the_end_of_input_is_seen_wherever_the_line_stands(pair: Pair, data: bytes) -> None:
    assert type_into(pair, data, mode="lines", length=ALL).endswith(digest(data))


def change_mode(descriptor: int, *, end: bytes) -> None:
    attributes = termios.tcgetattr(descriptor)
    attributes[6][termios.VEOF] = end
    termios.tcsetattr(descriptor, termios.TCSANOW, attributes)


def test_the_end_of_input_is_the_character_that_the_terminal_has_for_it(pair: Pair) -> None:
    assert terminals.build_end(pair.ours, last=b"\n") == b"\x04"
    change_mode(pair.theirs, end=b"\x1a")
    assert terminals.build_end(pair.ours, last=b"\n") == b"\x1a"
    change_mode(pair.theirs, end=b"\0")
    assert terminals.build_end(pair.ours, last=b"\n") == b""


def test_in_raw_mode_one_end_character_is_typed_for_the_program_to_read(pair: Pair) -> None:
    tty.setraw(pair.theirs)
    change_mode(pair.theirs, end=b"\x04")
    assert terminals.build_end(pair.ours, last=b"x") == b"\x04"


def test_the_foreground_group_is_none_while_no_session_has_the_terminal(pair: Pair) -> None:
    assert terminals.find_foreground(pair.ours) is None


def test_the_foreground_group_is_that_of_the_job_that_runs(pair: Pair) -> None:
    program = """
import fcntl, os, signal, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
job = subprocess.Popen(["sleep", "20"], preexec_fn=os.setpgrp)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.tcsetpgrp(0, job.pid)
os.write(1, b"%d\\n" % job.pid)
job.wait()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=pair.theirs, stdout=pair.theirs, start_new_session=True
    ):
        pair.wait()
        job = int(terminals.read(pair.ours) or b"")
        assert terminals.find_foreground(pair.ours) == job
        os.killpg(job, signal.SIGKILL)


def test_an_end_that_is_typed_again_takes_back_what_became_of_the_first(pair: Pair) -> None:
    assert terminals.build_end(pair.ours, last=b"", is_again=True) == b"\x04"
    tty.setraw(pair.theirs)
    change_mode(pair.theirs, end=b"\x04")
    assert terminals.build_end(pair.ours, last=b"", is_again=True) == b"\x7f\x04"


def test_a_look_tells_the_mode_and_whether_something_waits_to_be_read(pair: Pair) -> None:
    assert terminals.look(pair.ours) == (True, False)
    terminals.write(pair.ours, b"half a line")
    assert terminals.look(pair.ours) == (True, False)  # nobody would get it yet
    terminals.write(pair.ours, b"\n\x04")
    assert terminals.look(pair.ours) == (True, True)
    os.read(pair.theirs, 100)
    assert terminals.look(pair.ours) == (True, True)  # the end
    tty.setraw(pair.theirs, termios.TCSANOW)
    assert terminals.look(pair.ours) == (False, True)
    assert os.read(pair.theirs, 100) == b"\0"  # and this is how one is lost
    assert terminals.look(pair.ours) == (False, False)


def test_a_look_leaves_no_descriptor_open(pair: Pair) -> None:
    before = os.listdir("/proc/self/fd")
    terminals.look(pair.ours)
    assert os.listdir("/proc/self/fd") == before


def test_what_is_no_terminal_of_ours_cannot_be_looked_at(pair: Pair) -> None:
    assert terminals.look(pair.theirs) is None
