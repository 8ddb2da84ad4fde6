"""Sandboxes that run one command."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lifecycle import eventually
from vmnest import errors
from vmnest.local import build_cells
from vmnest.local.build_cells import Step
from vmnest.local.drivers import Ended, namespace


@pytest.fixture
def cells(cell_driver: namespace.NamespaceDriver, tmp_path: Path) -> Iterator[build_cells.Cells]:
    one = build_cells.Cells(cell_driver, str(tmp_path), disk_bytes=1 << 28)
    yield one
    one.close()
    assert not list(tmp_path.glob("vms/*"))


def shell(script: str) -> Step:
    return Step(("/bin/sh", "-c", script))


def test_output_is_told_line_by_line(cells: build_cells.Cells) -> None:
    said: list[str] = []
    script = r"echo one; echo two >&2; echo; printf 'a\rb\rc\n\377\nlast'; exit 3"
    assert cells.run(shell(script), log=said.append) == Ended(3, None, "exited")
    assert said == ["one", "two", "c", "\ufffd", "last"]


def test_output_is_told_while_the_command_runs(cells: build_cells.Cells) -> None:
    heard = threading.Event()
    began: list[object] = []

    def log(line: str) -> None:
        heard.set()

    with cells.start(shell("echo here; sleep 1000")) as cell:
        began.append(cell.machine)
        follower = threading.Thread(target=cell.follow, args=(log,))
        follower.start()
        assert heard.wait(20)
        assert cell.ended is None
    follower.join()


def test_a_command_is_ended_with_its_block(cells: build_cells.Cells) -> None:
    with cells.start(shell("sleep 1000")) as cell:
        assert cell.machine.ended is None
    assert cell.machine.ended == Ended(None, 9, "stopped")


def test_of_much_output_the_beginning_and_the_end_are_told() -> None:
    said: list[str] = []
    teller = build_cells.Teller(said.append)
    for first in range(1, 400_001, 1000):
        teller.take("".join(f"{number}\n" for number in range(first, first + 1000)).encode())
    teller.end()
    assert said[:3] == ["1", "2", "3"]
    assert said[-build_cells.LAST_LINES :] == [str(number) for number in range(399_901, 400_001)]
    assert said[-build_cells.LAST_LINES - 1].startswith("[vmnest: ")
    assert sum(len(line) + 1 for line in said) < build_cells.MAX_OUTPUT_BYTES + 1000


def test_output_is_whole_wherever_it_is_cut() -> None:
    text = "eins\nzwei ä\r\ndrei".encode()
    for cut in range(len(text)):
        said: list[str] = []
        teller = build_cells.Teller(said.append)
        teller.take(text[:cut])
        teller.take(text[cut:])
        teller.end()
        assert said == ["eins", "zwei ä", "drei"]


def test_a_line_without_end_is_cut(cells: build_cells.Cells) -> None:
    said: list[str] = []
    cells.run(shell("head -c 300000 /dev/zero | tr '\\0' x; echo; echo end"), log=said.append)
    assert said[-1] == "end"
    assert max(map(len, said)) <= 65536


def test_what_does_not_start_is_told(cells: build_cells.Cells, tmp_path: Path) -> None:
    with pytest.raises(errors.LocalCloudError) as caught:
        cells.run(Step(("/no/such/program",)), log=lambda line: None)
    assert caught.value.details["step"] == "exec"


def test_closing_ends_what_runs_and_starts_nothing_more(cells: build_cells.Cells, tmp_path: Path) -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            cells.run(shell("sleep 1000"), log=lambda line: None)
        except build_cells.ClosedError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    eventually(lambda: os.path.isdir(tmp_path / "vms") and bool(os.listdir(tmp_path / "vms")))
    cells.close()
    thread.join()
    assert len(caught) == 1
    with pytest.raises(build_cells.ClosedError):
        cells.run(shell("true"), log=lambda line: None)
