"""Our client drives the upstream package's own agent (FastAPI), over the contract that both have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT, UPSTREAM_PYTHON

# That agent listens on all interfaces: it gets a network in which there is nobody else.
OWN_NETWORK = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-r", "-n"]


@pytest.fixture(scope="module")
def dialogue(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each step of the dialogue came to."""
    if not UPSTREAM_PYTHON.exists():
        pytest.skip("the upstream package is not installed: run tools/test --all")
    folder = tmp_path_factory.mktemp("upstream")
    program = 'ip link set lo up && exec "$@"'
    words = [sys.executable, "-m", "tests.support.upstream_dialogue", str(UPSTREAM_PYTHON), str(folder)]
    done = subprocess.run(
        [*OWN_NETWORK, "sh", "-c", program, "sh", *words], cwd=ROOT, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr + Path(folder, "agent.log").read_text()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def value(dialogue: dict[str, Any], step: str) -> Any:
    return dialogue[step]["value"]


def test_it_is_ready_and_has_no_extensions(dialogue: dict[str, Any]) -> None:
    assert dialogue["health"] == {"version": "0.1.0", "features": []}


def test_status_and_both_outputs_arrive_byte_for_byte(dialogue: dict[str, Any]) -> None:
    result = value(dialogue, "status and output")
    assert (result["exit_code"], bytes.fromhex(result["stdout"]), bytes.fromhex(result["stderr"])) == (
        3,
        b"\xff\xfe",
        b"err\n",
    )


def test_its_negative_status_of_a_signal_is_mapped(dialogue: dict[str, Any]) -> None:
    result = value(dialogue, "death by signal")
    assert (result["exit_code"], result["signal"]) == (137, "SIGKILL")


def test_environment_and_working_directory_reach_the_command(dialogue: dict[str, Any]) -> None:
    assert bytes.fromhex(value(dialogue, "environment")["stdout"]) == b'a"b\nc=d $HOME\n'
    assert bytes.fromhex(value(dialogue, "cwd")["stdout"]) == b"/\n"


def test_a_missing_program_is_known_without_a_code(dialogue: dict[str, Any]) -> None:
    found = value(dialogue, "no such command")
    assert found == {"error": "CommandNotFoundError", "message": "command not found: no-such-program"}


def test_its_timeout_has_no_result_and_is_a_timeout_all_the_same(dialogue: dict[str, Any]) -> None:
    found = value(dialogue, "timeout")
    assert found["error"] == "CommandTimedOutError"
    assert (found["result"]["timed_out"], found["result"]["stdout"]) == (True, "")
    assert dialogue["timeout"]["seconds"] < 2.5


def test_a_large_output_whose_encoding_comes_last_arrives_whole(dialogue: dict[str, Any]) -> None:
    assert value(dialogue, "large output") == {"size": 20_000_000, "matches": True}


def test_files_are_written_and_read(dialogue: dict[str, Any]) -> None:
    assert value(dialogue, "files") == {"written": 256_000, "on disk": True, "read": True}


def test_what_is_no_file_has_the_errors_of_our_own_agent(dialogue: dict[str, Any]) -> None:
    assert value(dialogue, "no such file")["error"] == "RemoteFileNotFoundError"
    assert value(dialogue, "a folder as a file")["error"] == "RemoteFileError"


def test_fifty_commands_at_once_keep_their_outputs_apart(dialogue: dict[str, Any]) -> None:
    assert value(dialogue, "many at once") is True


def test_what_its_sandbox_uses_it_does_not_tell(dialogue: dict[str, Any]) -> None:
    assert value(dialogue, "what it uses")["error"] == "UnsupportedError"
