"""vmnest in one file: as a program of any Python, in any of its modes."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support import skips
from tests.support.mcp_process import open_server
from tests.support.paths import find_python
from tests.support.vendored import Place, open_folder, vendor
from vmnest import __version__

THIS = "{}.{}".format(*sys.version_info)
PYTHONS = [version for version in ("3.10", "3.11", "3.12", "3.13", "3.14") if version != THIS]
MODES = ("-S", "-O", "-OO", "-B", "-X dev", "-W error -b", "-s -E", "-I")


@pytest.fixture(scope="module")
def archive() -> Iterator[Place]:
    with open_folder() as folder:
        file = folder / "vmnest.pyz"
        done = vendor("--pyz", file)
        assert (done.returncode, done.stdout) == (0, f"{file}\n"), done.stderr
        yield Place(folder, [sys.executable, str(file)])


def test_it_holds_one_package_and_runs_by_itself(archive: Place) -> None:
    file = archive.folder / "vmnest.pyz"
    assert file.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    assert file.stat().st_mode & 0o111 == 0o111
    with zipfile.ZipFile(file) as members:
        assert {name.split("/")[0] for name in members.namelist()} == {"vmnest", "__main__.py"}
        assert {"vmnest/LICENSE", "vmnest/VENDORED", "vmnest/_guest/Dockerfile"} <= set(members.namelist())
    assert archive.run("--version") == f"vmnest {__version__}\n".encode()


def test_it_builds_an_image_from_the_guest_inside_and_runs_it(archive: Place) -> None:
    assert archive.run("--local", "image", "build", "--name", "own", "-q").endswith(b":microvm-image:own\n")
    out = archive.run("--local", "run", "own", "--", "sh", "-c", "echo $AWS_LAMBDA_MICROVM_IMAGE_NAME; ls /opt/agentd")
    assert out.splitlines() == [b"own", b"Dockerfile", b"agentd"] or out.splitlines() == [b"own", b"agentd"]
    (dockerfile,) = (archive.folder / "home" / ".agent_sandbox" / "guest").glob("*/Dockerfile")
    assert not list(dockerfile.parent.rglob("*.pyc"))


def test_its_mcp_server_is_started_by_its_snippet(archive: Place) -> None:
    start = json.loads(archive.run("--local", "mcp", "config", "--json"))
    environ = {**archive.environ, "PYTHONPATH": "", **start["env"]}
    with open_server(environ, program=[start["command"], *start["args"]]) as server:
        assert server.data("sandbox_run", command="echo hello")["stdout"]["text"] == "hello\n"
        assert server.end() == 0


@pytest.mark.parametrize("mode", MODES)
def test_it_runs_in_any_mode_of_python(archive: Place, mode: str) -> None:
    program = [sys.executable, *mode.split(), archive.program[1]]
    assert archive.run("--local", "run", "--", "echo", "hello", program=program) == b"hello\n"
    with open_server(archive.environ, program=[*program, "mcp"]) as server:
        tools = server.result("tools/list")["tools"]
        assert all(tool["description"] for tool in tools)
        assert server.end() == 0


@pytest.mark.parametrize("version", PYTHONS)
def test_it_runs_by_any_python_that_is_new_enough(archive: Place, version: str) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"{skips.OTHER_PYTHON}: {version}")
    with open_folder() as folder:  # with a local cloud of this Python's own
        place = replace(archive, folder=folder, program=[python, archive.program[1]])
        assert place.run("--local", "run", "--", "echo", "hello") == b"hello\n"
