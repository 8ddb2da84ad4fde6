"""Commands through tools, in a local cloud."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from tests.support.mcp_tools import Tools
from vmnest import registry
from vmnest.mcp.calls import Call, CancelledError
from vmnest.mcp.tools import attendance


@pytest.fixture
def box(local_tools: Tools) -> Tools:
    """Tools with a sandbox ``web``."""
    local_tools.data("sandbox_create", name="web")
    return local_tools


def test_a_program_is_run_with_its_arguments_as_they_are(box: Tools) -> None:
    done = box.data(
        "sandbox_exec",
        name="web",
        command="sh",
        args=["-c", 'printf "%s|" "$@" "$X"; echo no >&2; exit 3', "_", "a b", "*"],
        env={"X": "é"},
        cwd="/tmp",
    )
    assert (done["exit_code"], done["success"], done["running"], done["timed_out"]) == (3, False, False, False)
    assert done["stdout"] == {"text": "a b|*|é|", "truncated": False, "total_bytes": 9, "returned_bytes": 9}
    assert done["stderr"]["text"] == "no\n"


def test_a_line_is_run_by_the_shell_that_is_told(box: Tools) -> None:
    done = box.data("sandbox_shell", name="web", command="cd / && pwd | tr / x\necho $0")
    assert done["stdout"]["text"].startswith("x\n")
    assert done["shell"] == done["stdout"]["text"].split()[-1]


def test_what_cannot_be_run_says_why(box: Tools) -> None:
    missing = box.error("sandbox_exec", name="web", command="no-such-program")
    assert missing["code"] == "command_not_found"
    assert "sandbox_shell" in str(missing["hint"])
    assert box.error("sandbox_exec", name="web", command="true", cwd="/nowhere")["code"] == "cwd_not_found"
    assert box.error("sandbox_exec", name="nobody", command="true")["code"] == "sandbox_not_found"
    assert box.error("sandbox_exec", name="web", command="")["code"] == "usage"
    assert box.error("sandbox_exec", name="web", command="true", timeout=-1)["code"] == "usage"
    assert "max_bytes" in str(box.error("sandbox_exec", name="web", command="true", max_bytes=0)["message"])


def test_long_output_has_its_beginning_and_its_end(box: Tools) -> None:
    done = box.data("sandbox_shell", name="web", command="seq 1 100000", max_bytes=100)
    assert done["stdout"]["text"].startswith("1\n2\n")
    assert done["stdout"]["text"].endswith("99999\n100000\n")
    assert "bytes are left out here" in done["stdout"]["text"]
    assert (done["stdout"]["truncated"], done["stdout"]["total_bytes"]) == (True, 588895)


def test_a_command_is_ended_at_its_timeout_and_keeps_what_it_wrote(box: Tools) -> None:
    done = box.data("sandbox_shell", name="web", command="echo begun; sleep 100", timeout=0.5)
    assert (done["timed_out"], done["success"], done["stdout"]["text"]) == (True, False, "begun\n")


def test_what_takes_too_long_for_a_host_goes_on_and_can_be_polled(box: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "MOST_SECONDS", 0.5)
    left = box.data(
        "sandbox_shell", name="web", command="echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 4"
    )
    assert (left["running"], left["exit_code"], left["stdout"]["text"]) == (True, None, "one\n")
    box.data("sandbox_exec", name="web", command="touch", args=["go"])
    polled = box.data("sandbox_exec_poll", name="web", id=left["id"], offset=left["next_offset"], wait=30)
    if polled["running"]:
        polled = box.data("sandbox_exec_poll", name="web", id=left["id"], offset=left["next_offset"], wait=30)
    assert (polled["exit_code"], polled["stdout"]) == (4, "two\n")


def test_a_cancelled_command_is_ended_with_all_that_it_started(box: Tools) -> None:
    call = box.open()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            box.call(
                "sandbox_shell",
                within=call,
                name="web",
                command="trap 'touch termed' TERM; touch begun; sleep 987 & wait",
            )
        except CancelledError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    box.data("sandbox_shell", name="web", command="until [ -e begun ]; do sleep 0.02; done", timeout=30)
    call.cancel()
    thread.join(30)
    assert len(failed) == 1
    gone = box.data(
        "sandbox_shell", name="web", command="while pgrep -f 'sleep 98[7]'; do sleep 0.02; done", timeout=30
    )
    assert gone["success"]


@pytest.mark.parametrize("was_cancelled", [False, True])
def test_a_server_that_ends_does_not_wait_for_who_ignores_being_asked(
    box: Tools, monkeypatch: pytest.MonkeyPatch, was_cancelled: bool
) -> None:
    monkeypatch.setattr(attendance, "_GRACE_SECONDS", 60.0)
    call = box.open()
    line = f"trap '' TERM; touch asked-{was_cancelled}; sleep 975; sleep 975"
    thread = threading.Thread(target=box_call, args=(box, call, line))
    thread.start()
    box.data(
        "sandbox_shell", name="web", command=f"until [ -e asked-{was_cancelled} ]; do sleep 0.02; done", timeout=30
    )
    if was_cancelled:
        call.cancel()
    ending = call.cancel(hurried=True)
    assert ending is not None
    ending.join(30)
    assert not ending.is_alive()
    gone = box.data(
        "sandbox_shell", name="web", command="while pgrep -f 'sleep 97[5]'; do sleep 0.02; done", timeout=30
    )
    assert gone["success"]
    thread.join(30)


def box_call(box: Tools, call: Call, line: str) -> None:
    with contextlib.suppress(CancelledError):
        box.call("sandbox_shell", within=call, name="web", command=line)


def test_a_command_of_its_own_leaves_no_sandbox(local_tools: Tools) -> None:
    done = local_tools.data("sandbox_run", command="echo $X; pwd; exit 2", env={"X": "hi"})
    assert (done["exit_code"], done["stdout"]["text"]) == (2, "hi\n/work\n")
    assert "name" not in done
    assert local_tools.error("sandbox_run", command="true", cwd="/nowhere")["code"] == "cwd_not_found"
    assert registry.open_default().all() == []


def test_a_cancelled_command_of_its_own_is_not_waited_for_to_remove_its_sandbox(local_tools: Tools) -> None:
    """A server that ends has a moment for that."""
    call = local_tools.open()

    def run() -> None:
        with contextlib.suppress(CancelledError):  # or it tells whoever does not hear it that the sandbox has gone
            local_tools.call("sandbox_run", within=call, command="trap '' TERM; touch begun; sleep 600")

    thread = threading.Thread(target=run)
    thread.start()
    while not any(record.microvm_id for record in registry.open_default().all()):
        time.sleep(0.02)
    (record,) = registry.open_default().all()
    begun = local_tools.data("sandbox_shell", name=record.name, command="until [ -e begun ]; do sleep 0.02; done")
    assert begun["success"]
    ending = call.cancel()
    assert ending is not None
    ending.join(1.5)  # the command itself would be given two seconds
    assert registry.open_default().all() == []
    thread.join(30)


def test_a_long_command_of_its_own_keeps_its_sandbox(local_tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "MOST_SECONDS", 1.0)
    left = local_tools.data("sandbox_run", command="echo one; sleep 600")
    assert (left["running"], left["stdout"]["text"]) == (True, "one\n")
    closed = local_tools.data("sandbox_exec_close", name=left["name"], id=left["id"])
    assert closed["closed"] is True
    assert local_tools.data("sandbox_remove", name=left["name"])["removed"] is True
