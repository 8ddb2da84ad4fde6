"""Wheel and source archive: both hold the whole library, the guest included, though that is a symlink here."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.vendored import Place, open_folder

NOT_SOURCES = (".*", "build", "dist", "*.egg-info", "__pycache__")
BESIDE_THE_SOURCES = {
    *("CHANGELOG", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.rst", "pyproject.toml", "setup.cfg"),
}


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind: str, *, tree: Path, to: Path) -> Path:
    """Build as pip does, with the setuptools that stands in the test requirements, so that no network is needed."""
    hook = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(to)!r}))"
    return to / run(sys.executable, "-c", hook, cwd=tree).splitlines()[-1]


def packaged_files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}


def source_files() -> Iterator[str]:
    for path in (ROOT / "vmnest").rglob("*.py"):
        if "_guest" not in path.parts:
            yield str(path.relative_to(ROOT))
    for path in (ROOT / "guest").rglob("*.py"):
        yield str("vmnest/_guest" / path.relative_to(ROOT / "guest"))
    yield from ("vmnest/py.typed", "vmnest/_guest/Dockerfile", "vmnest/_guest/.dockerignore")


def leave_out(folder: str, names: list[str]) -> set[str]:
    return shutil.ignore_patterns(*NOT_SOURCES)(folder, names) - {".dockerignore"}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository to build in, since builds leave files behind."""
    copy = tmp_path_factory.mktemp("tree") / "vmnest"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=leave_out)
    return copy


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tree=tree, to=tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_library_and_the_guest_and_nothing_else(wheel: Path) -> None:
    assert packaged_files(wheel) == set(source_files())


def test_the_source_archive_builds_the_same_wheel_from_itself(tree: Path, wheel: Path, tmp_path: Path) -> None:
    sdist = build("sdist", tree=tree, to=tmp_path)
    with tarfile.open(sdist) as archive:
        for member in archive.getmembers():
            assert member.isfile() or member.isdir(), member.name
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    files = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert {name for name in files if name.startswith("vmnest/")} == set(source_files())
    assert {name for name in files if not name.startswith(("vmnest/", "vmnest.egg-info/"))} == BESIDE_THE_SOURCES
    assert packaged_files(build("wheel", tree=unpacked, to=tmp_path)) == packaged_files(wheel)


@pytest.fixture(scope="module")
def programs(wheel: Path) -> Iterator[Path]:
    """The programs of an environment that has the wheel, and nothing else."""
    with open_folder() as folder:
        place = folder / "venv"
        venv.create(place, with_pip=False, symlinks=True)
        python = place / "bin" / "python"
        run(sys.executable, "-m", "pip", "--python", python, "install", "-qq", "--no-deps", "--no-index", wheel)
        yield python.parent


def test_an_installed_wheel_brings_the_command_and_the_guest(programs: Path, tmp_path: Path) -> None:
    python = programs / "python"
    place = run(python, "-I", "-c", "import vmnest._guest.agentd.wire as wire; print(wire.__file__)")
    assert place.startswith(f"{programs.parent}/")
    version = run(python, "-I", "-c", "import vmnest; print(vmnest.__version__)").strip()
    assert version in run(programs / "vmnest", "--version")
    # The MCP server starts, and lists its tools, without the dependencies, which are not there.
    requests = tmp_path / "requests"
    requests.write_text(
        '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}\n'
        '{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n'
    )
    for command in (["vmnest", "mcp"], ["vmnest-mcp"]):
        program = shlex.join([str(programs / command[0]), *command[1:]])
        answers = run("sh", "-c", f"exec {program} <{shlex.quote(str(requests))}").splitlines()
        assert [json.loads(answer)["id"] for answer in answers] == [0, 1]
        assert version in answers[0]
        assert "sandbox_exec" in answers[1]


def test_with_its_libraries_it_runs_sandboxes_and_builds_the_image_of_its_guest(programs: Path) -> None:
    there = Place(programs.parents[1], [str(programs / "vmnest")])
    origin = there.run(program=[str(programs / "python"), "-c", "import vmnest; print(vmnest.__file__)"])
    assert origin.decode().startswith(f"{programs.parent}/")
    assert there.run("--local", "run", "--", "python3", "-c", "print(1)") == b"1\n"
    built = there.run("--local", "image", "build", "--name", "demo", "--quiet").decode()
    assert built.strip().endswith(":microvm-image:demo")


def test_the_page_of_a_package_index_can_be_made_of_it(wheel: Path) -> None:
    assert "PASSED" in run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", wheel)


def test_the_metadata_has_a_licence_and_names_no_person_and_no_place(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        head = archive.read(metadata).decode().partition("\n\n")[0]
        (licence,) = (name for name in archive.namelist() if name.endswith("/licenses/LICENSE"))
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert "License-Expression: Apache-2.0" in head
    assert (ROOT / "LICENSE").read_text().lstrip().startswith("Apache License\n")
    for word in ("Author", "Maintainer", "Home-page", "Project-URL", "@", "://"):
        assert word not in head
