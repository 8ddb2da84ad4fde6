"""The guest of the package becomes a directory that is ours alone, and that nobody's changes get into."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vmnest import errors
from vmnest.guest_image import packaged
from vmnest.guest_image.packing import pack

FILES = {"Dockerfile": b"FROM scratch\n", "agentd/serve.py": b"pass\n"}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An install's guest, as a umask of 022 makes it."""
    package = tmp_path / "site" / "vmnest"
    guest = package / "_guest"
    shutil.copytree(ROOT / "guest", guest, ignore=shutil.ignore_patterns("__pycache__"))
    for place in guest.rglob("*"):
        place.chmod(0o755 if place.is_dir() else 0o644)
    monkeypatch.setattr(packaged, "__file__", str(package / "guest_image" / "packaged.py"))
    return guest


def test_files_are_taken_where_they_are(environ: dict[str, str], tmp_path: Path, installed: Path) -> None:
    (installed / "agentd" / "__pycache__").mkdir(mode=0o700)
    assert packaged.find(environ) == str(installed)
    assert not (tmp_path / ".agent_sandbox").exists()


def test_the_umask_of_an_install_makes_no_other_image(environ: dict[str, str], installed: Path) -> None:
    with pack(packaged.find(environ)) as package:
        digest = package.digest
    for place in installed.rglob("*"):
        place.chmod(0o2775 if place.is_dir() else 0o664)
    with pack(packaged.find(environ)) as package:
        assert package.digest == digest


def test_what_is_read_is_what_the_image_is_made_of(environ: dict[str, str], installed: Path) -> None:
    files = packaged.read()
    assert not [name for name in files if name.endswith(".pyc")]
    assert {"Dockerfile", ".dockerignore", "agentd/serve.py"} <= set(files)
    with pack(packaged.unpack(files, environ=environ)) as unpacked, pack(str(installed)) as direct:
        assert unpacked.digest == direct.digest


def test_it_is_unpacked_once_for_us_alone(environ: dict[str, str], tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        path = Path(packaged.unpack(FILES, environ=environ))
    finally:
        os.umask(before)
    assert path.parent == tmp_path / ".agent_sandbox" / "guest"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((path / "agentd").stat().st_mode) == 0o755
    assert stat.S_IMODE((path / "agentd" / "serve.py").stat().st_mode) == 0o644
    written = (path / "Dockerfile").stat().st_ino
    assert packaged.unpack(FILES, environ=environ) == str(path)
    assert (path / "Dockerfile").stat().st_ino == written
    assert packaged.unpack({**FILES, "agentd/serve.py": b"pass"}, environ=environ) != str(path)


def test_without_a_home_folder_it_is_unpacked_where_all_else_is(tmp_path: Path) -> None:
    path = packaged.unpack(FILES, environ={"AGENT_SANDBOX_LOCAL_DIR": str(tmp_path / "local")})
    assert Path(path).parent == tmp_path / "local" / "guest"


CHANGES: dict[str, Callable[[Path], object]] = {
    "changed": lambda path: (path / "Dockerfile").write_text("FROM elsewhere\n"),
    "added": lambda path: (path / "more").touch(),
    "removed": lambda path: (path / "Dockerfile").unlink(),
    "an empty folder": lambda path: (path / "more").mkdir(),
    "a link to a folder": lambda path: (path / "more").symlink_to("/etc"),
    "a link to the same": lambda path: (
        (path / "Dockerfile").rename(path.parent / "kept") and (path / "Dockerfile").symlink_to("../kept")
    ),
    "a pipe": lambda path: (path / "Dockerfile").unlink() or os.mkfifo(path / "Dockerfile"),
    "modes": lambda path: [place.chmod(0o777) for place in path.rglob("*")],
    "a file in its place": lambda path: path.rename(path.parent / "kept") and path.touch(),
    "half of it, left by somebody killed": lambda path: (path.rename(f"{path}.new") / "Dockerfile").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_there_is_not_used(environ: dict[str, str], change: str) -> None:
    path = Path(packaged.unpack(FILES, environ=environ))
    with pack(str(path)) as package:
        digest = package.digest
    CHANGES[change](path)
    assert packaged.unpack(FILES, environ=environ) == str(path)
    with pack(str(path)) as package:
        assert package.digest == digest
    assert {entry.name for entry in path.parent.iterdir()} - {"kept"} == {path.name, "lock"}


def test_who_unpacks_it_at_once_takes_nothing_from_another(environ: dict[str, str]) -> None:
    files = {**FILES, **{f"agentd/{number}.py": b"pass\n" * number for number in range(200)}}
    begin = threading.Barrier(4)
    for home in range(4):
        Path(environ["HOME"], str(home)).mkdir()

    def unpack(home: str) -> str:
        begin.wait(30)
        with pack(packaged.unpack(files, environ={"HOME": home})) as package:
            return package.digest

    with ThreadPoolExecutor(4) as pool:
        digests = [pool.submit(unpack, f"{environ['HOME']}/{count // 4}") for count in range(16)]
        assert len({digest.result() for digest in digests}) == 1


def test_the_home_folders_part_may_be_a_link_to_another_place(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / ".agent_sandbox").symlink_to("elsewhere")
    path = Path(packaged.unpack(FILES, environ=environ))
    assert (tmp_path / "elsewhere" / "guest" / path.name / "Dockerfile").is_file()
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o755


def test_a_place_that_cannot_be_written_to_is_told_with_a_remedy(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".agent_sandbox").mkdir()
    (tmp_path / ".agent_sandbox" / "guest").touch()
    with pytest.raises(errors.GuestImageError, match="cannot unpack the guest") as caught:
        packaged.unpack(FILES, environ=environ)
    assert "Set HOME" in str(caught.value.hint)
