"""The state files."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from tests.support.checks import by_id, make_context
from vmnest import registry
from vmnest.ops.checks import Check, state

FOLDER = ".agent_sandbox"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder of the test's own."""
    tmp_path.chmod(0o700)
    return tmp_path


def look(home: Path, **environ: str) -> dict[str, Check]:
    """All that is said of the state files."""
    context = make_context({"HOME": str(home), **environ})
    return by_id(each for probe in state.PROBES for each in probe(context))


def make(home: Path, name: str, data: bytes, *, mode: int = 0o600) -> Path:
    """A state file, in a folder of the right mode."""
    folder = home / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / name
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_where_nothing_is_recorded_all_is_well_and_nothing_is_made(home: Path) -> None:
    found = look(home)
    assert [each.verdict for each in found.values()] == ["ok"] * 3
    assert found["state.names"].detail == f"none recorded yet; the file will be {home}/{FOLDER}/state.json"
    assert found["state.names"].data == {"path": f"{home}/{FOLDER}/state.json", "exists": False}
    assert os.listdir(home) == []


def test_what_is_recorded_is_counted(home: Path) -> None:
    (home / FOLDER).mkdir(mode=0o700)
    held = registry.open_default({"HOME": str(home)})
    held.put(registry.Record("web", created_at=1.0))
    make(home, "infra-state.json", json.dumps({"stacks": {"a/b": {}, "a/c": {}}}).encode())
    found = look(home)
    assert [each.verdict for each in found.values()] == ["ok"] * 3
    assert found["state.names"].detail == f"1 sandbox in {home}/{FOLDER}/state.json"
    assert found["state.infrastructure"].detail == f"2 stacks in {home}/{FOLDER}/infra-state.json"


@pytest.mark.parametrize(
    ("name", "check"), [("state.json", "state.names"), ("infra-state.json", "state.infrastructure")]
)
@pytest.mark.parametrize(
    ("data", "detail", "remedy"),
    [(b"{x", "is damaged: not JSON", "Repair the file"), (b'{"schema": 9}', "newer version", "Upgrade vmnest")],
)
def test_a_file_that_cannot_be_understood_fails_with_its_remedy(
    home: Path, name: str, check: str, data: bytes, detail: str, remedy: str
) -> None:
    path = make(home, name, data)
    found = look(home)[check]
    assert found.verdict == "failed"
    assert detail in found.detail
    assert str(path) in found.detail
    assert remedy in (found.remedy or "")
    assert sorted(os.listdir(home / FOLDER)) == [name]  # a copy of what is damaged is a writer's affair


def test_what_is_no_file_is_not_waited_for(home: Path) -> None:
    (home / FOLDER).mkdir(mode=0o700)
    os.mkfifo(home / FOLDER / "state.json", 0o600)
    found = look(home)["state.names"]
    assert (found.verdict, "not a regular file" in found.detail) == ("failed", True)


def test_files_that_others_can_read_are_one_warning_with_a_remedy_each(home: Path) -> None:
    names = make(home, "state.json", b"", mode=0o644)
    stacks = make(home, "infra-state.json", b"", mode=0o640)
    (home / FOLDER).chmod(0o755)
    found = look(home)
    assert [each.verdict for each in found.values()] == ["ok", "ok", "warning"]
    assert (found["state.permissions"].remedy or "").split("\n") == [
        f"chmod 700 {home}/{FOLDER}",
        f"chmod 600 {names}",
        f"chmod 600 {stacks}",
    ]


def test_what_is_no_file_is_not_closed_like_one(home: Path) -> None:
    (home / FOLDER).mkdir(mode=0o700)
    (home / FOLDER / "state.json").mkdir(mode=0o755)
    found = look(home)["state.permissions"]
    assert (found.verdict, found.remedy) == ("ok", None)


def test_the_folder_of_a_file_that_the_user_has_named_is_the_users(home: Path) -> None:
    (home / "shared").mkdir(mode=0o755)
    found = look(home, AGENT_SANDBOX_STATE=str(home / "shared" / "names.json"))
    assert [each.verdict for each in found.values()] == ["ok"] * 3


def test_a_place_that_cannot_be_written_to_is_told_with_its_variable(home: Path) -> None:
    (home / "file").touch()
    found = look(home, AGENT_SANDBOX_INFRA_STATE=str(home / "file" / "x.json"))["state.infrastructure"]
    assert (found.verdict, found.detail) == ("failed", f"{home}/file is not a directory")
    assert found.remedy == "Set AGENT_SANDBOX_INFRA_STATE to another place."


def test_names_that_are_kept_in_an_unusual_place_are_a_warning(home: Path) -> None:
    found = look(home, HOME="/proc/nowhere", AGENT_SANDBOX_LOCAL_DIR=str(home / "local"))["state.names"]
    assert (found.verdict, found.data["path"]) == ("warning", f"{home}/local/state.json")
    assert "Set HOME" in (found.remedy or "")


def test_a_writer_that_is_stopped_is_told_and_not_waited_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(home, "state.json", b"")
    lock = make(home, "state.json.lock", b"")
    monkeypatch.setattr(state, "_LOCK_SECONDS", 0.05)
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = look(home)["state.names"]
        assert (found.verdict, found.detail) == ("warning", f"another process keeps {lock} locked")
        fcntl.flock(held, fcntl.LOCK_UN)
        assert look(home)["state.names"].verdict == "ok"
