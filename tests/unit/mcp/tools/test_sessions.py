"""Programs that go on between calls."""

from __future__ import annotations

import base64

import pytest

from tests.support.mcp_tools import Tools
from vmnest.mcp.calls import CancelledError


@pytest.fixture
def box(local_tools: Tools) -> Tools:
    """Tools with a sandbox ``web``."""
    local_tools.data("sandbox_create", name="web")
    return local_tools


def read_until(box: Tools, identity: object, text: str, *, offset: int = 0) -> dict[str, object]:
    """Poll until the text was written; the last answer, with all that was."""
    seen = ""
    while True:
        polled = box.data("sandbox_exec_poll", name="web", id=identity, offset=offset, wait=30)
        seen, offset = seen + polled["stdout"], polled["next_offset"]
        if text in seen:
            return {**polled, "stdout": seen}
        assert polled["running"], seen


def test_an_interpreter_is_fed_and_read_and_closed(box: Tools) -> None:
    started = box.data("sandbox_exec_start", name="web", command="python3", args=["-u", "-i", "-q"], timeout=60)
    assert started["pid"]
    told = box.data("sandbox_exec_write_stdin", name="web", id=started["id"], data="print(6 * 7)\n")
    assert told["written"] == 13
    polled = read_until(box, started["id"], "42\n")
    assert (polled["running"], polled["exit_code"]) == (True, None)
    data = base64.b64encode(b"exit(5)\n").decode()
    box.data("sandbox_exec_write_stdin", name="web", id=started["id"], data=data, encoding="base64", eof=True)
    while (ended := box.data("sandbox_exec_poll", name="web", id=started["id"], wait=30))["running"]:
        pass
    assert (ended["exit_code"], ended["stdout"]) == (5, "42\n")
    assert box.data("sandbox_exec_signal", name="web", id=started["id"])["delivered"] is False
    assert box.data("sandbox_exec_close", name="web", id=started["id"])["exit_code"] == 5
    assert box.error("sandbox_exec_poll", name="web", id=started["id"])["code"] == "process_not_found"


def test_whoever_has_lost_an_id_finds_it_again(box: Tools) -> None:
    started = box.data("sandbox_exec_start", name="web", command="exec sleep 600", shell=True)
    ended = box.data("sandbox_exec_start", name="web", command="true")
    while box.data("sandbox_exec_poll", name="web", id=ended["id"], wait=30)["running"]:
        pass
    found = box.data("sandbox_exec_list", name="web")
    states = {each["id"]: (each["state"], each["exit_code"]) for each in found["programs"]}
    assert states == {started["id"]: ("running", None), ended["id"]: ("ended", 0)}
    assert found["count"] == 2
    assert "sandbox_exec_list" in str(box.error("sandbox_exec_poll", name="web", id="nobody")["hint"])


def test_a_server_is_signalled(box: Tools) -> None:
    started = box.data("sandbox_exec_start", name="web", command="echo up; exec sleep 600", shell=True)
    read_until(box, started["id"], "up\n")
    assert box.data("sandbox_exec_poll", name="web", id=started["id"], offset=3, wait=0)["running"] is True
    assert box.data("sandbox_exec_signal", name="web", id=started["id"], signal="9")["delivered"] is True
    while (ended := box.data("sandbox_exec_poll", name="web", id=started["id"], wait=30))["running"]:
        pass
    assert (ended["exit_code"], ended["signal"]) == (137, "SIGKILL")


def test_output_is_read_in_parts_that_tear_no_character(box: Tools) -> None:
    started = box.data("sandbox_exec_start", name="web", command="printf 'aéaéaé日本'; exec sleep 600", shell=True)
    seen, offset = "", 0
    while len(seen) < 8:
        polled = box.data("sandbox_exec_poll", name="web", id=started["id"], offset=offset, max_bytes=4, wait=30)
        assert (polled["offset"], polled["lossy"]) == (offset, False)
        seen, offset = seen + polled["stdout"], polled["next_offset"]
    assert seen == "aéaéaé日本"


def test_who_does_not_wait_gets_what_is_there(box: Tools) -> None:
    started = box.data("sandbox_exec_start", name="web", command="echo up; sleep 600", shell=True)
    read_until(box, started["id"], "up\n")
    polled = box.data("sandbox_exec_poll", name="web", id=started["id"], wait=0)
    assert (polled["stdout"], polled["running"]) == ("up\n", True)
    box.data("sandbox_exec_signal", name="web", id=started["id"])
    while box.data("sandbox_exec_poll", name="web", id=started["id"], offset=3, wait=30)["running"]:
        pass
    ended = box.data("sandbox_exec_poll", name="web", id=started["id"], offset=3, wait=0)
    assert (ended["running"], ended["exit_code"]) == (False, 143)


def test_a_time_to_wait_is_not_below_0(local_tools: Tools) -> None:
    error = local_tools.error("sandbox_exec_poll", name="web", id="p", wait=-1)
    assert "wait must be a number of seconds" in str(error["message"])


def test_output_that_takes_much_place_in_json_comes_in_smaller_parts(box: Tools) -> None:
    count = 400_000
    started = box.data("sandbox_exec_start", name="web", command=f"head -c {count} /dev/zero", shell=True)
    offset, is_running = 0, True
    while is_running:
        polled = box.data("sandbox_exec_poll", name="web", id=started["id"], offset=offset, max_bytes=count, wait=30)
        assert offset < polled["next_offset"] == offset + len(polled["stdout"]) < offset + count or offset == count
        offset, is_running = polled["next_offset"], polled["running"]
    assert offset == count


def test_a_program_that_wants_a_terminal_has_one(box: Tools) -> None:
    started = box.data("sandbox_exec_start", name="web", command="tty; stty size", shell=True, terminal=True)
    assert "40 120" in read_until(box, started["id"], "120")["stdout"]


def test_what_is_wrong_is_said(box: Tools) -> None:
    assert box.error("sandbox_exec_start", name="web", command="a", args=["b"], shell=True)["code"] == "usage"
    assert box.error("sandbox_exec_start", name="web", command="no-such-program")["code"] == "command_not_found"
    for tool in ("poll", "write_stdin", "signal", "close"):
        error = box.error(f"sandbox_exec_{tool}", name="web", id="0" * 32)
        assert error["code"] == "process_not_found", tool
        assert error["hint"]
    started = box.data("sandbox_exec_start", name="web", command="true")
    assert (
        "base64"
        in box.error("sandbox_exec_write_stdin", name="web", id=started["id"], data="é", encoding="base64")["message"]
    )
    for signal, code in (("NOPE", "bad_argument"), ("9" * 5000, "usage"), ("99", "usage")):
        assert box.error("sandbox_exec_signal", name="web", id=started["id"], signal=signal)["code"] == code
    assert box.error("sandbox_exec_poll", name="web", id=started["id"], offset=-1)["code"] == "usage"


def test_a_program_that_nobody_has_heard_of_does_not_go_on(box: Tools) -> None:
    call = box.open()
    call.cancel()
    with pytest.raises(CancelledError):
        box.call("sandbox_exec_start", within=call, name="web", command="sleep", args=["976"])
    done = box.data("sandbox_shell", name="web", command="pgrep -fx 'sleep 976'")
    assert done["exit_code"] == 1
