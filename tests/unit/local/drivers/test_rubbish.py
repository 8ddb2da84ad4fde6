"""The heap of what nobody waits to see removed."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from vmnest.local.drivers import namespace, rubbish


def wait_empty(folder: Path) -> None:
    end = time.monotonic() + 20
    while os.listdir(folder):
        assert time.monotonic() < end, os.listdir(folder)
        time.sleep(0.01)


def test_what_is_thrown_is_gone_at_once_and_removed_soon(cell: namespace.Cell, tmp_path: Path) -> None:
    heap = rubbish.Rubbish(str(tmp_path), runtime=cell.runtime)
    for name in ("a", "b"):
        (tmp_path / name / "deep" / "deeper").mkdir(parents=True)
    heap.throw(str(tmp_path / "a"), str(tmp_path / "never"), str(tmp_path / "b"))
    assert os.listdir(tmp_path) == [rubbish.FOLDER]
    wait_empty(tmp_path / rubbish.FOLDER)


def test_nobody_waits_for_the_removal(cell: namespace.Cell, tmp_path: Path) -> None:
    heap = rubbish.Rubbish(str(tmp_path), runtime=cell.runtime)
    busy = os.open(tmp_path / rubbish.FOLDER, os.O_RDONLY)
    fcntl.flock(busy, fcntl.LOCK_EX)  # what another remover does while it removes
    (tmp_path / "a").mkdir()
    heap.throw(str(tmp_path / "a"))
    assert len(os.listdir(tmp_path / rubbish.FOLDER)) == 1
    os.close(busy)
    wait_empty(tmp_path / rubbish.FOLDER)


def test_what_an_interrupted_remover_left_goes_the_next_time(cell: namespace.Cell, tmp_path: Path) -> None:
    (tmp_path / rubbish.FOLDER / "half" / "gone").mkdir(parents=True)
    rubbish.Rubbish(str(tmp_path), runtime=cell.runtime).collect()
    wait_empty(tmp_path / rubbish.FOLDER)
