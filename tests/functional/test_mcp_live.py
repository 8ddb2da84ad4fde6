"""A whole piece of work through the MCP server: on this machine, and with ``AGENT_SANDBOX_MCP_E2E=1`` on AWS itself.

On AWS it takes credentials, region, image and role as vmnest finds them. It starts two MicroVMs there, which cost
money, and ends them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import skips
from tests.support.cloud import LocalCloud
from tests.support.mcp_process import Server, open_server, six_variables

VARIABLE = "AGENT_SANDBOX_MCP_E2E"
LIFETIME_SECONDS = 600


@pytest.fixture(params=["local", "aws"])
def working(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server for sandboxes there, with names of its own."""
    environ = {**six_variables(tmp_path), "AGENT_SANDBOX_TARGET": request.param}
    if request.param == "local":
        cloud = request.getfixturevalue("shared_cloud")
        assert isinstance(cloud, LocalCloud)
        environ |= {"AGENT_SANDBOX_LOCAL_DIR": cloud.folder}
    elif os.environ.get(VARIABLE) == "1":
        environ = {**os.environ, **environ, "HOME": os.path.expanduser("~")}
    else:
        pytest.skip(f"{skips.AWS}: {VARIABLE}=1")
    (tmp_path / "project").mkdir()
    environ |= {"AGENT_SANDBOX_STATE": str(tmp_path / "state.json")}
    with open_server(environ, cwd=tmp_path / "project") as server:
        server.shake_hands()
        yield server
        assert server.data("sandbox_list")["sandboxes"] == []
        assert server.end() == 0


def test_a_model_makes_a_sandbox_and_works_in_it(working: Server, tmp_path: Path) -> None:
    made = working.data("sandbox_create", name="work", max_duration=LIFETIME_SECONDS)
    try:
        assert made["state"] == "RUNNING"
        work_with_files(working, tmp_path / "project")
        work_with_commands(working)
        assert working.data("sandbox_stop", name="work")["state"] == "SUSPENDED"
        done = working.data("sandbox_shell", name="work", command="cat greeting.txt")  # resumes it
        assert done["stdout"]["text"] == "hello, world\n"
        assert working.data("sandbox_metrics", name="work")["name"] == "work"
    finally:
        assert working.data("sandbox_remove", name="work")["removed"]


def work_with_files(server: Server, project: Path) -> None:
    server.data("sandbox_fs_write", name="work", path="greeting.txt", content="hello, world\n")
    read = server.data("sandbox_fs_read", name="work", path="greeting.txt")
    assert read["content"]["text"] == "hello, world\n"
    assert server.data("sandbox_fs_exists", name="work", path="nothing")["exists"] is False
    (project / "src").mkdir()
    (project / "src" / "main.py").write_text("print(6 * 7)\n")
    server.data("sandbox_fs_copy_from_host", name="work", host_path="src", dest="/work/src")
    done = server.data("sandbox_exec", name="work", command="python3", args=["src/main.py"])
    assert (done["exit_code"], done["stdout"]["text"]) == (0, "42\n")
    server.data("sandbox_fs_copy_to_host", name="work", src="/work/greeting.txt", host_path="got.txt")
    assert (project / "got.txt").read_text() == "hello, world\n"


def work_with_commands(server: Server) -> None:
    done = server.data("sandbox_shell", name="work", command="echo out; echo err >&2; exit 3", cwd="/tmp")
    assert (done["exit_code"], done["success"]) == (3, False)
    assert (done["stdout"]["text"], done["stderr"]["text"]) == ("out\n", "err\n")
    started = server.data("sandbox_exec_start", name="work", command="cat")
    server.data("sandbox_exec_write_stdin", name="work", id=started["id"], data="fed\n", eof=True)
    text, offset, running = "", 0, True
    while running:
        polled = server.data("sandbox_exec_poll", name="work", id=started["id"], offset=offset)
        text, offset, running = text + polled["stdout"], polled["next_offset"], polled["running"]
    assert (text, polled["exit_code"]) == ("fed\n", 0)


def test_a_model_runs_a_command_and_leaves_nothing(working: Server) -> None:
    done = working.data("sandbox_run", command="echo $((6 * 7)); pwd")
    assert (done["exit_code"], done["running"]) == (0, False)
    assert done["stdout"]["text"].startswith("42\n")
