"""The copy of what runs outside the daemon."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vmnest.local.drivers import runtime

INSTALL = """
import os, sys
from {package}.local.drivers import runtime
copy = runtime.install(sys.argv[1])
os.mkdir(os.path.join(sys.argv[1], "agent"))
copy.install_agent(os.path.join(sys.argv[1], "agent"))
print(copy.digest)
"""


def test_the_copy_is_made_once(tmp_path: Path) -> None:
    first = runtime.install(str(tmp_path))
    made = [(path, path.stat().st_mtime_ns) for path in sorted((tmp_path / "runtime").rglob("*"))]
    assert runtime.install(str(tmp_path)).digest == first.digest
    assert [(path, path.stat().st_mtime_ns) for path in sorted((tmp_path / "runtime").rglob("*"))] == made


def test_copies_of_other_versions_and_unfinished_ones_are_removed(tmp_path: Path) -> None:
    (tmp_path / "runtime" / "0123456789abcdef" / "cell").mkdir(parents=True)
    (tmp_path / "runtime" / "fedcba.77.new").mkdir()
    copy = runtime.install(str(tmp_path))
    assert os.listdir(tmp_path / "runtime") == [copy.digest]


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["removed", "emptied"])
@pytest.mark.parametrize("kind", ["supervisor.py", "supervisor.*.pyc"])
def test_what_was_lost_of_it_is_made_anew(tmp_path: Path, kind: str, damage: Callable[[Path], object]) -> None:
    def read() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in (tmp_path / "runtime").rglob("*") if path.is_file()}

    runtime.install(str(tmp_path))
    whole = read()
    (file,) = (tmp_path / "runtime").rglob(kind)
    damage(file)
    runtime.install(str(tmp_path))
    assert read() == whole


def test_the_stand_alone_modules_need_nothing_else(tmp_path: Path) -> None:
    copy = runtime.install(str(tmp_path))
    for name in runtime.STANDALONE:
        module = name.removesuffix(".py").replace("/", ".")
        command = copy.command(module)
        command[-1] = command[-1].replace("m.main()", "print(sorted(sys.modules))")
        done = subprocess.run(command, env={}, cwd="/", capture_output=True, text=True, check=True)
        assert "vmnest" not in done.stdout
        assert "'site'" not in done.stdout


def test_a_supervisor_loads_no_slow_module(tmp_path: Path) -> None:
    command = runtime.install(str(tmp_path)).command("supervisor")
    command[-1] = command[-1].replace("m.main()", "print(*sys.modules)")
    loaded = subprocess.run(command, env={}, cwd="/", capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & {"enum", "json", "re", "selectors", "signal", "socket", "subprocess", "threading"}


def test_byte_code_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "elsewhere"))  # which supervisors do not know
    copy = runtime.install(str(tmp_path))
    found = {path.name.split(".")[0] for path in (tmp_path / "runtime" / copy.digest).rglob("*.pyc")}
    assert {Path(name).stem for name in runtime.STANDALONE} <= found


def test_the_agent_can_be_read_by_all_whatever_the_umask(tmp_path: Path) -> None:
    copy = runtime.install(str(tmp_path))
    target = tmp_path / "agent"
    target.mkdir()
    before = os.umask(0o077)
    try:
        copy.install_agent(str(target))
        assert runtime.compile_agent(str(target), interpreter=sys.executable).wait(60) == 0
    finally:
        os.umask(before)
    for path in (target / "agentd").rglob("*"):
        assert path.stat().st_mode & 0o444 == 0o444
    assert (target / "agentd" / "serve.py").is_file()


def install_from(place: Path, package: str, folder: Path) -> str:
    folder.mkdir()
    command = [sys.executable, "-c", INSTALL.format(package=package), str(folder)]
    environment = {"PYTHONPATH": str(place)}
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=True).stdout.strip()


def copy_package(target: Path) -> None:
    for path in sorted((ROOT / "vmnest").rglob("*.py")):
        place = target / path.relative_to(ROOT / "vmnest")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    for path in sorted((ROOT / "guest").rglob("*.py")):
        place = target / "_guest" / path.relative_to(ROOT / "guest")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())


def test_a_vendored_copy_under_another_name_installs_the_same(tmp_path: Path) -> None:
    copy_package(tmp_path / "place" / "product" / "vendored_nest")
    (tmp_path / "place" / "product" / "__init__.py").touch()
    digest = install_from(tmp_path / "place", "product.vendored_nest", tmp_path / "state")
    assert (tmp_path / "state" / "agent" / "agentd" / "serve.py").is_file()
    assert (tmp_path / "state" / "runtime" / digest / "cell" / "supervisor.py").is_file()


def test_a_zip_installs_the_same(tmp_path: Path) -> None:
    copy_package(tmp_path / "vmnest")
    archive = tmp_path / "vmnest.zip"
    with zipfile.ZipFile(archive, "w") as writer:
        for path in sorted((tmp_path / "vmnest").rglob("*.py")):
            writer.write(path, path.relative_to(tmp_path))
    digest = install_from(archive, "vmnest", tmp_path / "state")
    assert (tmp_path / "state" / "agent" / "agentd" / "serve.py").is_file()
    assert (tmp_path / "state" / "runtime" / digest / "cell" / "drivers" / "init.py").is_file()


def test_the_interpreter_is_not_one_of_a_virtual_environment() -> None:
    if sys.prefix == sys.base_prefix:
        pytest.skip("this is no virtual environment")
    assert not runtime.own_interpreter().startswith(sys.prefix)
