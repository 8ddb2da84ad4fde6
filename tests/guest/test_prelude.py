"""What is said between the agent and a command's process before the command."""

from __future__ import annotations

import errno
import marshal
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from guest.agentd import prelude

TRUE = b"/bin/true"


def order(**members: object) -> dict[str, object]:
    return {
        "argv": [b"name", b"argument"],
        "cwd": b"/",
        "environment": {b"A": b"\xff"},
        "executables": [TRUE],
        "rlimits": [],
        "terminal": False,
        "user": None,
        **members,
    }


def carry_out(document: dict[str, object]) -> tuple[bytes, bytes, int]:
    """The answer to an order, what the process wrote, and its exit status."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        command = [sys.executable, "-I", "-S", prelude.__file__, str(number)]
        with subprocess.Popen(command, stdin=-3, stdout=-1, stderr=-2, pass_fds=(number,)) as child:
            theirs.close()
            ours.sendall(marshal.dumps(document))
            ours.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := ours.recv(1000):
                answer += piece
            output, _ = child.communicate(timeout=20)
        return answer, output, child.returncode


def test_an_order_is_confirmed_and_the_channel_is_closed_by_the_exec() -> None:
    script = b'echo "$0" "$1"; ls /proc/self/fd | wc -l; exit 3'
    document = order(
        executables=[b"/bin/sh"], argv=[b"sh", b"-c", script, b"zero", b"one"], environment=dict(os.environb)
    )
    assert carry_out(document) == (b"+", b"zero one\n4\n", 3)


def test_nothing_but_the_orders_own_variables_is_passed_on() -> None:
    assert carry_out(order(executables=[b"/usr/bin/env"], argv=[b"env"])) == (b"+", b"A=\xff\n", 0)


FAILURES = {
    "cwd absent": ({"cwd": b"/no/such"}, f"cwd {errno.ENOENT}"),
    "cwd a file": ({"cwd": TRUE}, f"cwd {errno.ENOTDIR}"),
    "no terminal": ({"terminal": True}, f"terminal {errno.ENOTTY}"),
    "limit": ({"rlimits": [("core", resource.RLIMIT_CORE, (0, 0)), ("odd", 99, (1, 1))]}, f"rlimits.odd {errno.EPERM}"),
    "program absent": ({"executables": [b"/no/such"]}, f"+exec {errno.ENOENT}"),
    "no program": ({"executables": [b"/etc/passwd"]}, f"+exec {errno.EACCES}"),
    "no program, and absent": ({"executables": [b"/etc/passwd", b"/no/such"]}, f"+exec {errno.EACCES}"),
    "absent, and no program": ({"executables": [b"/no/such", b"/etc/passwd"]}, f"+exec {errno.EACCES}"),
    "argument too long": ({"argv": [b"true", b"x" * 200_000]}, f"+exec {errno.E2BIG}"),
}


@pytest.mark.parametrize(("members", "answer"), FAILURES.values(), ids=list(FAILURES))
def test_the_step_that_fails_is_named_with_its_error(members: dict[str, object], answer: str) -> None:
    assert carry_out(order(**members)) == (answer.encode(), b"", 1)


def test_the_next_file_of_that_name_is_tried_where_one_cannot_be_executed(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    files = [b"/no/such", b"/etc/passwd", os.fsencode(tool), TRUE]
    assert carry_out(order(executables=files)) == (b"+", b"found\n", 0)


def test_a_file_that_is_no_program_ends_the_search(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch(mode=0o755)
    assert carry_out(order(executables=[os.fsencode(empty), TRUE]))[0] == b"+exec %d" % errno.ENOEXEC


def test_our_own_user_needs_no_right_to_change_it() -> None:
    own = (os.getuid(), os.getgid(), (12345,))  # groups that only root could take
    assert carry_out(order(user=own))[0] == b"+"
