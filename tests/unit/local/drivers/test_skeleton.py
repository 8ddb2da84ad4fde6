"""The worker that makes a skeleton."""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from vmnest.local.drivers import layers, mounts, namespace, skeleton
from vmnest.local.drivers.interpreter import Interpreter


@pytest.fixture
def seen(tmp_path: Path) -> Path:
    """A directory of the host with some of everything in it."""
    seen = tmp_path / "seen"
    (seen / "open" / "inner").mkdir(parents=True)
    (seen / "open" / "file").write_text("x")
    (seen / "closed" / "inner").mkdir(parents=True)
    (seen / "link").symlink_to("open")
    os.mkfifo(seen / "open" / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(seen / "open" / "socket"))
    for path in (tmp_path, tmp_path.parent, seen, seen / "open"):
        path.chmod(0o755)
    (seen / "closed").chmod(0o700)
    return seen


def build(cell: namespace.Cell, target: Path, *visible: Path, walk: bool = True, prefix: str | None = None) -> None:
    view = layers.View(tuple(map(str, visible)), links=(("/bin", "usr/bin"),), plain=(), staged=())
    interpreter = replace(cell.interpreter, prefix=prefix) if prefix else Interpreter("/usr/bin/python3")
    layers.Build(
        str(target), runtime=cell.runtime, view=view, uid=cell.uid, interpreter=interpreter, walk=walk
    ).finish()


def test_readable_directories_are_mirrored_empty(cell: namespace.Cell, seen: Path, tmp_path: Path) -> None:
    build(cell, tmp_path / "skeleton", seen)
    layer = tmp_path / "skeleton" / "layer" / mounts.layer_name(str(seen))
    assert (layer / "open" / "inner").is_dir()
    assert not (layer / "open" / "file").exists()
    assert not (layer / "link").is_symlink()
    assert (layer / "open").stat().st_uid == (cell.uid or os.geteuid())


@pytest.mark.skipif(os.geteuid() != 0, reason="a plain user's sandbox reads what the user can read")
def test_directories_that_the_sandbox_cannot_read_are_left_alone(
    cell: namespace.Cell, seen: Path, tmp_path: Path
) -> None:
    build(cell, tmp_path / "skeleton", seen)
    assert not (tmp_path / "skeleton" / "layer" / mounts.layer_name(str(seen)) / "closed").exists()


def test_sockets_and_pipes_are_whited_out_and_listed(cell: namespace.Cell, seen: Path, tmp_path: Path) -> None:
    build(cell, tmp_path / "skeleton", seen)
    layer = tmp_path / "skeleton" / "layer" / mounts.layer_name(str(seen))
    for name in ("socket", "pipe"):
        status = (layer / "open" / name).stat()
        assert stat.S_ISCHR(status.st_mode)
        assert status.st_rdev == 0
    listed = (tmp_path / "skeleton" / "specials").read_bytes().split(b"\0")
    assert sorted(listed) == sorted(os.fsencode(seen / "open" / name) for name in ("socket", "pipe"))


def test_the_base_has_the_usual_places_and_links(cell: namespace.Cell, tmp_path: Path) -> None:
    build(cell, tmp_path / "skeleton")
    root = tmp_path / "skeleton" / "root"
    assert (root / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert (root / "work").is_dir()
    assert os.readlink(root / "bin") == "usr/bin"
    assert os.readlink(root / "var" / "run") == "/run"
    assert os.readlink(root / ".sandbox" / "bin" / "python") == "/usr/bin/python3"


def test_the_base_holds_the_agent_with_its_byte_code(cell: namespace.Cell, tmp_path: Path) -> None:
    build(cell, tmp_path / "skeleton")
    agent = tmp_path / "skeleton" / "root" / ".sandbox" / "agentd"
    assert (agent / "serve.py").is_file()
    assert any((agent / "__pycache__").glob("serve.*.pyc"))
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in agent.rglob("*"))


def test_our_files_lie_over_etc(cell: namespace.Cell, tmp_path: Path) -> None:
    build(cell, tmp_path / "skeleton", Path("/etc"), walk=False)
    etc = tmp_path / "skeleton" / "layer" / "etc"
    assert sorted(os.listdir(etc)) == ["group", "hostname", "hosts", "nsswitch.conf", "passwd", "resolv.conf"]
    assert "sandbox:x:1000:1000:sandbox:/work:" in (etc / "passwd").read_text()
    assert (etc / "passwd").stat().st_mode & 0o777 == 0o644


def test_the_way_to_a_hidden_prefix_can_be_walked_and_not_listed(cell: namespace.Cell, tmp_path: Path) -> None:
    build(cell, tmp_path / "skeleton", prefix="/root/deep/python")
    root = tmp_path / "skeleton" / "root" / "root"
    assert root.stat().st_mode & 0o777 == 0o311
    assert (root / "deep").stat().st_mode & 0o777 == 0o311


def test_a_directory_that_does_not_exist_is_no_trouble(cell: namespace.Cell, tmp_path: Path) -> None:
    build(cell, tmp_path / "skeleton", tmp_path / "gone")
    assert (tmp_path / "skeleton" / "specials").read_bytes() == b""


def test_the_worker_ends_with_the_daemon_that_wants_the_skeleton(tmp_path: Path) -> None:
    with pytest.raises(skeleton.OrphanedError):
        skeleton._mirror(str(tmp_path), str(tmp_path), specials=[], budget=1, parent=os.getpid())
