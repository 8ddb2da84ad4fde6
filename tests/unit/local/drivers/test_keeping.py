"""Layers of images: what one VM wrote is what the next ones find."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.cells import Room
from vmnest.local.drivers import keeping, mounts

CHANGE = r"""
set -e
mkdir -p /opt/tool/bin && echo 'echo tool' > /opt/tool/bin/tool && chmod 755 /opt/tool/bin/tool
ln -s /opt/tool/bin/tool /usr/local/bin/tool
echo work > /work/file
rm -r /usr/share/doc && mkdir /usr/share/doc && echo only > /usr/share/doc/only
rm /etc/hostname
"""
LOOK = r"""
tool; cat /work/file; ls /usr/share/doc; test -e /etc/hostname || echo gone; stat -c '%U %a' /opt/tool/bin/tool
touch /opt/tool/more && rm /work/file && echo new > /usr/share/doc/only
"""


def run(room: Room, script: str, **changes: object) -> str:
    room.over.clear()
    machine = room.start("/bin/sh", "-c", script, **changes)
    assert room.over.wait(30)
    return room.console(machine)


@pytest.fixture
def layer(room: Room) -> str:
    if room.driver.obstacle_to_images:
        pytest.skip(room.driver.obstacle_to_images)
    target = str(room.folder / "kept")
    assert run(room, CHANGE, keep_layer_at=target) == ""
    return target


def test_a_vm_finds_what_an_earlier_one_left(room: Room, layer: str) -> None:
    assert run(room, LOOK, image_layers=(layer,)).split("\n") == ["tool", "work", "only", "gone", "sandbox 755", ""]


def test_a_layer_is_never_changed(room: Room, layer: str) -> None:
    before = run(room, LOOK, image_layers=(layer,))
    assert run(room, LOOK, image_layers=(layer,)) == before


def test_layers_lie_on_each_other(room: Room, layer: str) -> None:
    second = str(room.folder / "second")
    run(room, "rm -r /opt/tool; echo more > /usr/share/doc/more", image_layers=(layer,), keep_layer_at=second)
    script = "ls /usr/share/doc; test -e /opt/tool || echo gone; cat /work/file"
    assert run(room, script, image_layers=(second, layer)).split() == ["more", "only", "gone", "work"]


def test_what_a_failed_command_wrote_is_not_kept(room: Room) -> None:
    target = room.folder / "kept"
    run(room, "echo x > /work/x; exit 3", keep_layer_at=str(target))
    assert not target.exists()
    run(room, "echo x > /work/x; kill -9 $$", keep_layer_at=str(target))
    assert not target.exists()


def test_a_layer_in_use_is_held(room: Room, layer: str) -> None:
    from vmnest.local.drivers import layers

    machine = room.start_listener(image_layers=(layer,))
    assert not layers.is_unused(layer)
    machine.stop()
    assert layers.is_unused(layer)


def test_the_main_process_starts_where_it_is_to(room: Room) -> None:
    assert run(room, "pwd", workdir="/usr/share") == "/usr/share\n"


def test_of_what_a_vm_wrote_only_its_own_files_are_kept(tmp_path: Path) -> None:
    written = tmp_path / "layer"
    for name in ("usr", "etc", mounts.ROOT_LAYER):
        (written / f"{name}{mounts.UPPER}").mkdir(parents=True)
        (written / f"{name}{mounts.WORK}" / "work").mkdir(parents=True)
        (written / f"{name}{mounts.WORK}" / "work").chmod(0)
    (written / f"usr{mounts.UPPER}" / "file").touch()
    keeping.keep_layer(str(written), str(tmp_path / "kept"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert os.listdir(tmp_path / "kept") == ["usr"]
    assert os.listdir(tmp_path / "kept" / "usr") == ["file"]
