"""State files: what is read, locked, replaced and kept."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from vmnest import errors, statefile, systems


def test_a_file_that_is_not_there_has_no_bytes(tmp_path: Path) -> None:
    assert statefile.load(str(tmp_path / "none")) == b""
    (tmp_path / "file").write_bytes(b"x")
    assert statefile.load(str(tmp_path / "file" / "below")) == b""


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(errors.StateFileError, match="not a regular file"):
        statefile.load(str(tmp_path / "fifo"))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.StateFileError, match="not a regular file"):
        statefile.load(str(tmp_path))


def test_a_file_of_absurd_size_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(statefile.LARGEST_BYTES + 1)
    with pytest.raises(errors.StateFileError, match="67108865 bytes"):
        statefile.load(str(tmp_path / "big"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not an object"),
        (b"null", "not an object"),
        (b'{"schema": "1"}', "wrong schema number"),
        (b'{"schema": true}', "wrong schema number"),
        (b'{"schema": 0}', "wrong schema number"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_no_object_with_a_schema_is_damaged(data: bytes, reason: str) -> None:
    with pytest.raises(statefile.DamagedError, match=reason):
        statefile.parse(data, "/s", schema=1, setting="WHERE")


@pytest.mark.parametrize("data", [b"", b"{}", b'{"schema": 1}', b'{"schema": 2}'], ids=str)
def test_an_empty_file_and_one_of_an_older_schema_hold_nothing_odd(data: bytes) -> None:
    assert statefile.parse(data, "/s", schema=2, setting="WHERE") == {}


def test_what_a_newer_version_wrote_is_refused_with_the_variable_that_leads_elsewhere() -> None:
    with pytest.raises(
        errors.StateFileError, match=r"/s was written by a newer version .*schema 3, known here: 2"
    ) as caught:
        statefile.parse(b'{"schema": 3}', "/s", schema=2, setting="WHERE")
    assert "WHERE" in (caught.value.hint or "")


def test_the_error_of_a_damaged_file_tells_where_its_copy_is() -> None:
    error = statefile.damaged("/s", reason="not JSON", remedy="move it away.", copy="/s.bad")
    assert error.hint == "Nothing was changed. A copy is kept in /s.bad. Repair the file, or move it away."


def test_a_replaced_file_is_new_and_private(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_bytes(b"old")
    path.chmod(0o644)
    with path.open("rb") as reader:
        statefile.replace(str(path), b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


def test_a_failed_replacement_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.mkdir()
    with pytest.raises(errors.StateFileError, match="cannot write"):
        statefile.replace(str(path), b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


def test_the_error_of_a_place_that_cannot_be_written_names_it_and_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.StateFileError, match="cannot write") as caught, statefile.Lock(f"{tmp_path}/file/s"):
        pass
    assert "AGENT_SANDBOX_STATE" in str(caught.value.hint)


def test_the_lock_excludes_other_threads(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    entered = threading.Event()

    def enter() -> None:
        with statefile.Lock(path):
            entered.set()

    with statefile.Lock(path):
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.1)
    thread.join(timeout=10)
    assert entered.is_set()


HOLDER = """
import sys, time
from vmnest import statefile
with statefile.Lock(sys.argv[1]):
    print(1, flush=True)
    time.sleep(60)
"""


def test_the_lock_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with subprocess.Popen([sys.executable, "-c", HOLDER, path], cwd=ROOT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"1\n"
        holder.kill()
    with statefile.Lock(path):
        pass


def test_a_lock_that_is_never_given_back_is_an_error_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statefile, "LOCK_WAIT_SECONDS", 0.05)
    path = str(tmp_path / "s")
    with statefile.Lock(path), pytest.raises(errors.StateFileError, match="locked"), statefile.Lock(path):
        pass


def test_a_copy_takes_a_free_name_unless_one_holds_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    assert statefile.keep_copy(path, b"1") == f"{path}.bad"
    assert statefile.keep_copy(path, b"2") == f"{path}.bad.1"
    assert statefile.keep_copy(path, b"1") == f"{path}.bad"
    assert Path(f"{path}.bad").read_bytes() == b"1"


@pytest.mark.parametrize("has_flock", [True, False])
def test_writers_take_turns_on_any_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_flock: bool) -> None:
    monkeypatch.setattr(systems, "HAS_FLOCK", has_flock)
    path = str(tmp_path / "state")

    def count() -> None:
        for _ in range(5):
            with statefile.Lock(path):
                statefile.replace(path, str(int(statefile.load(path) or b"0") + 1).encode())

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statefile.load(path) == b"20"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == (["state", "state.lock"] if has_flock else ["state"])
