"""The store of layers."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from vmnest.local import build_layers
from vmnest.local.drivers import removal


def make(layers: build_layers.Layers, name: str, *, files: tuple[str, ...] = ("file",)) -> str:
    with layers.making(name) as path:
        os.mkdir(path)
        for file in files:
            Path(path, file).write_bytes(b"x" * 5000)
        layers.publish(path, name)
    return layers.path(name)


@pytest.fixture
def layers(tmp_path: Path) -> build_layers.Layers:
    return build_layers.Layers(str(tmp_path))


def test_a_layer_is_there_once_it_is_published(layers: build_layers.Layers) -> None:
    with layers.making("a") as path:
        os.mkdir(path)
        assert not layers.find("a")
        layers.publish(path, "a")
    assert layers.find("a")
    assert layers.is_empty("a")
    assert layers.paths(["a", "b"]) == (layers.path("a"), layers.path("b"))


def test_only_one_makes_a_layer_and_the_next_finds_it(layers: build_layers.Layers) -> None:
    made = []
    gate = threading.Barrier(4)

    def work() -> None:
        gate.wait(10)
        with layers.making("a") as path:
            if not layers.find("a"):
                os.mkdir(path)
                made.append(path)
                layers.publish(path, "a")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_what_is_not_in_use_is_swept(layers: build_layers.Layers, tmp_path: Path) -> None:
    for name in ("used", "unused"):
        make(layers, name)
    layers.sweep({"used"}, kept_seconds=0)
    assert os.listdir(tmp_path / "layers") == ["used"]


def test_what_was_used_a_moment_ago_stays(layers: build_layers.Layers, tmp_path: Path) -> None:
    make(layers, "recent")
    os.utime(make(layers, "old"), (0, 0))
    os.utime(make(layers, "used again"), (0, 0))
    assert layers.find("used again")
    layers.sweep(set(), kept_seconds=60)
    assert sorted(os.listdir(tmp_path / "layers")) == ["recent", "used again"]


def test_what_a_vm_runs_on_stays(layers: build_layers.Layers) -> None:
    descriptor = os.open(make(layers, "held"), os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    layers.sweep(set(), kept_seconds=0)
    assert layers.find("held")
    os.close(descriptor)
    layers.sweep(set(), kept_seconds=0)
    assert not layers.find("held")


def test_what_a_killed_daemon_had_begun_is_removed(layers: build_layers.Layers, tmp_path: Path) -> None:
    make(layers, "whole")
    with layers.making("half") as path:
        os.mkdir(path)
        os.mkdir(f"{path}/sealed", 0)
    next_one = build_layers.Layers(str(tmp_path))
    assert len(os.listdir(tmp_path / "layers")) == 2  # whoever starts it does not wait for that
    next_one.sweep(set())
    assert os.listdir(tmp_path / "layers") == ["whole"]


def test_what_was_thrown_away_goes_with_the_next_sweep(layers: build_layers.Layers, tmp_path: Path) -> None:
    (tmp_path / "thing/deep").mkdir(parents=True)
    layers.throw(str(tmp_path / "thing"))
    layers.throw(str(tmp_path / "nothing"))
    assert not (tmp_path / "thing").exists()
    layers.sweep(set())
    assert not os.listdir(tmp_path / "layers")


def test_a_layer_that_is_being_made_is_not_swept(layers: build_layers.Layers) -> None:
    with layers.making("a") as path:
        os.mkdir(path)
        layers.sweep(set(), kept_seconds=0)
        layers.publish(path, "a")
    assert layers.find("a")


def test_sizes_are_those_on_the_disk(layers: build_layers.Layers) -> None:
    make(layers, "a")
    make(layers, "b", files=("one", "two"))
    assert layers.size(["a"]) >= 5000
    assert layers.size(["a", "b"]) == 3 * layers.size(["a"])


def test_the_size_of_a_tree_of_any_depth_is_known(layers: build_layers.Layers) -> None:
    path = make(layers, "a")
    flat = layers.size(["a"])
    deepest = path
    for _ in range(1500):
        deepest += "/d"
        os.mkdir(deepest)
    Path(deepest, "file").write_bytes(b"x" * 5000)
    assert layers.size(["a"]) >= 2 * flat
    removal.remove_tree(path)
