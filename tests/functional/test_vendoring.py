"""Copies of vmnest inside another project, under another name, at work with nothing but the libraries that it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mcp_process import open_server
from tests.support.paths import ROOT
from tests.support.vendored import DEPENDENCIES, Place, open_folder, vendor

PACKAGE = "app.parts.boxes"
SDK = f"""
from {PACKAGE} import Sandbox, VmnestError
with Sandbox.create("sdk", local=True) as sandbox:
    sandbox.files.write("/work/numbers", b"3\\n1\\n2\\n")
    print(sandbox.exec("sort", ["/work/numbers"]).stdout_text)
assert VmnestError.__module__.startswith("{PACKAGE}.")
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """A copy inside the packages of an application, which only the application can import."""
    with open_folder() as folder:
        done = vendor(folder / "project" / "app" / "parts", "--name", "boxes")
        assert (done.returncode, done.stdout) == (0, f"{folder}/project/app/parts/boxes\n"), done.stderr
        (folder / "project" / "app" / "__init__.py").write_text("import os\nos.environ['APPLICATION']\n")
        # Without site-packages proper: no .pth file there leads to the checkout.
        program = [sys.executable, "-S", "-m", PACKAGE]
        yield Place(folder, program, path=f"{folder}/project:{DEPENDENCIES}")


@pytest.fixture
def copied(place: Place) -> Path:
    return place.folder / "project" / "app" / "parts" / "boxes"


def test_no_other_vmnest_is_there_to_be_taken(place: Place) -> None:
    program = "import importlib.util; print(importlib.util.find_spec('vmnest'))"
    assert place.run(program=[sys.executable, "-S", "-c", program]) == b"None\n"


def test_a_copy_has_the_guest_the_licence_and_where_it_comes_from(copied: Path) -> None:
    assert (copied / "_guest" / "agentd" / "serve.py").read_bytes() == (ROOT / "guest/agentd/serve.py").read_bytes()
    assert (copied / "_guest" / "Dockerfile").is_file()
    assert (copied / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    note = (copied / "VENDORED").read_text()
    assert "vmnest 0." in note
    assert "tools/vendor DEST --name boxes" in note
    assert not [path for path in copied.rglob("*") if path.is_symlink() or path.name == "tests"]


def test_its_command_line_runs_a_command_in_a_sandbox(place: Place) -> None:
    out = place.run("--local", "run", "--", "sh", "-c", "echo hello; ls -d /work")
    assert out == b"hello\n/work\n"


def test_its_library_does(place: Place) -> None:
    assert place.run(program=[sys.executable, "-S", "-c", SDK]) == b"1\n2\n3\n\n"


def test_its_mcp_server_does_as_its_snippet_for_hosts_starts_it(place: Place) -> None:
    out = place.run("--local", "mcp", "config", "generic", "--json")
    start = json.loads(out)
    command = [start["command"], "-S", *start["args"]]
    assert start["env"]["PYTHONPATH"] == place.path
    environ = {**place.environ, "PYTHONPATH": "", **start["env"]}
    with open_server(environ, program=command) as server:
        data = server.data("sandbox_run", command="echo hello")
        assert data["stdout"]["text"] == "hello\n"
        assert server.end() == 0


def test_a_copy_is_replaced_by_a_new_one_and_nothing_else_is(place: Place, copied: Path, tmp_path: Path) -> None:
    (copied / "removed.py").write_text("")
    assert vendor(copied.parent, "--name", "boxes").returncode == 0
    assert not (copied / "removed.py").exists()
    assert [path.name for path in copied.parent.iterdir()] == ["boxes"]
    (tmp_path / "boxes").mkdir()
    (tmp_path / "link").symlink_to(copied)
    for name in ("boxes", "link"):
        done = vendor(tmp_path, "--name", name)
        assert done.returncode == 1
        assert f"tools/vendor: {tmp_path}/{name} is there" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["boxes", "link"]


@pytest.mark.parametrize(
    "words",
    [
        *(
            [],
            [""],
            ["--pyz", ""],
            ["--pyz", "."],
            ["--pyz", "/dev/full"],
            ["d", "--pyz", "f"],
            ["--pyz", "f", "--name", "n"],
        ),
        *(["d", "--name", name] for name in ("a-b", "a.b", "class", "json", "__main__", "__pycache__")),
        *([str(ROOT / folder), "--name", "inside"] for folder in ("vmnest", "vmnest/cli", "guest", "vmnest/_guest")),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str], tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "tools" / "vendor", *words], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode in (1, 2)
    assert not list(tmp_path.iterdir())
    assert not [*(ROOT / "vmnest").rglob("inside"), *(ROOT / "guest").rglob("inside")]


@pytest.mark.parametrize("words", [["there"], ["there/below"], ["--pyz", "there/below"]])
def test_what_cannot_be_written_is_named_with_the_reason(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "there").write_text("kept")
    done = subprocess.run(
        [ROOT / "tools" / "vendor", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Errno" not in done.stderr
    assert f"tools/vendor: cannot write {words[-1]}: " in done.stderr
    assert (tmp_path / "there").read_text() == "kept"
