from __future__ import annotations

import os
import stat
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


def test_files_are_taken_where_they_are(environ: dict[str, str], tmp_path: Path) -> None:
    assert packaged.find(environ) == str(ROOT / "guest")
    assert not list(tmp_path.iterdir())


def test_what_is_read_is_what_the_image_is_made_of(environ: dict[str, str]) -> None:
    files = packaged.read()
    assert not [name for name in files if name.endswith(".pyc")]
    assert {"Dockerfile", ".dockerignore", "agentd/serve.py"} <= set(files)
    with pack(packaged.unpack(files, environ=environ)) as unpacked, pack(str(ROOT / "guest")) as direct:
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


@pytest.mark.parametrize("change", ["changed", "added", "removed"])
def test_what_was_changed_there_is_not_used(environ: dict[str, str], change: str) -> None:
    path = Path(packaged.unpack(FILES, environ=environ))
    if change == "removed":
        (path / "Dockerfile").unlink()
    else:
        (path / ("Dockerfile" if change == "changed" else "more")).write_text("FROM elsewhere\n")
    assert packaged.unpack(FILES, environ=environ) == str(path)
    found = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert found == FILES
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_place_that_cannot_be_written_to_is_told_with_a_remedy(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".agent_sandbox").mkdir()
    (tmp_path / ".agent_sandbox" / "guest").touch()
    with pytest.raises(errors.GuestImageError, match="cannot unpack the guest") as caught:
        packaged.unpack(FILES, environ=environ)
    assert "Set HOME" in str(caught.value.hint)
