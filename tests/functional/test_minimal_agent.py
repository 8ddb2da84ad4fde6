"""Files over the upstream package's own agent, which has nothing but the base contract."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.functional.test_upstream_agent import OWN_NETWORK
from tests.support.paths import ROOT, UPSTREAM_PYTHON

MOST_MEMORY = 100 * 1024 * 1024  # beside Python, some parts of a file of 50 MB, and each in base64


@pytest.fixture(scope="module")
def dialogue(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each step came to."""
    if not UPSTREAM_PYTHON.exists():
        pytest.skip("the upstream package is not installed: run tools/test --all")
    folder = tmp_path_factory.mktemp("minimal")
    program = 'ip link set lo up && exec "$@"'
    words = [sys.executable, "-m", "tests.support.upstream_files", str(UPSTREAM_PYTHON), str(folder)]
    done = subprocess.run(
        [*OWN_NETWORK, "sh", "-c", program, "sh", *words], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr + Path(folder, "agent.log").read_text()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def value(dialogue: dict[str, Any], step: str) -> Any:
    return dialogue[step]["value"]


def test_a_file_of_any_name_has_its_content_and_mode(dialogue: dict[str, Any]) -> None:
    assert value(dialogue, "small") == {"written": 256, "read": True, "mode": 0o640}


def test_files_are_streams(dialogue: dict[str, Any]) -> None:
    assert value(dialogue, "streams") == "line 2\n"


def test_the_file_system_is_used_through_tools(dialogue: dict[str, Any]) -> None:
    found = value(dialogue, "names")
    assert found["entries"] == [
        ["/a", "directory", None],
        ["/a/b", "directory", None],
        ["/a/b/f", "file", None],
        ["/a/link", "link", "nowhere"],
        ["/c", "directory", None],
        ["/c/b", "directory", None],
        ["/c/g", "file", None],
        ["/c/link", "link", "nowhere"],
    ]
    assert (found["digest"], found["gone"]) == (True, True)


def test_a_tree_goes_in_and_comes_back(dialogue: dict[str, Any]) -> None:
    found = value(dialogue, "tree")
    assert found["told"] == [2, 4, 1, 100_002]
    assert found["back"] == [2, 3, 1, 100_002]
    assert found["differs"] == "Only in /tree: empty\n"
    assert found["mode"] == 0o755


@pytest.mark.parametrize("step", ["fifo", "write fifo"])
def test_a_fifo_does_not_wedge_the_agent(dialogue: dict[str, Any], step: str) -> None:
    assert value(dialogue, step)["error"] == "NotAFileError"


@pytest.mark.parametrize("step", ["absent", "absent folder"])
def test_what_is_not_there_has_the_error_of_our_own_agent(dialogue: dict[str, Any], step: str) -> None:
    assert value(dialogue, step)["error"] == "RemoteFileNotFoundError"


def test_what_a_tool_refuses_is_told_in_its_words(dialogue: dict[str, Any]) -> None:
    found = value(dialogue, "full")
    assert found["error"].endswith("Error")
    assert "/proc" in found["message"]


def test_a_large_file_goes_both_ways_in_parts(dialogue: dict[str, Any]) -> None:
    assert value(dialogue, "large") == {"same": True, "part": True}


def test_no_part_of_a_file_is_left_over_and_memory_is_flat(dialogue: dict[str, Any]) -> None:
    assert dialogue["left over"] == []
    assert value(dialogue, "memory") < MOST_MEMORY
