"""Files and folders of ours."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.paths import ROOT
from vmnest.ops.checks import check, places
from vmnest.ops.checks.places import Finding

VARIABLE = "AGENT_SANDBOX_STATE"
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def test_several_findings_are_one_check_as_bad_as_the_worst() -> None:
    found = places.combine(
        "state.names",
        title="names",
        fine="fine",
        findings=[
            Finding(check.WARNING, "open", remedy="chmod"),
            Finding(check.FAILED, "damaged", remedy="repair"),
            Finding(check.WARNING, "open", remedy="chmod"),
        ],
    )
    assert (found.verdict, found.detail, found.remedy) == ("failed", "damaged; open", "repair\nchmod")


def test_no_finding_is_fine() -> None:
    found = places.combine("state.names", title="names", fine="3 names", findings=[])
    assert (found.verdict, found.detail, found.remedy) == ("ok", "3 names", None)


def test_where_a_path_would_be_made_is_what_exists_of_it(tmp_path: Path) -> None:
    assert places.nearest(str(tmp_path / "a" / "b")) == str(tmp_path)
    assert places.nearest(str(tmp_path)) == str(tmp_path)
    assert places.nearest("/") == "/"


@pytest.mark.parametrize(
    ("mode", "wanted", "remedy"),
    [(0o644, 0o600, "chmod 600"), (0o755, 0o700, "chmod 700"), (0o620, 0o600, "chmod 600")],
)
def test_what_is_open_to_others_is_closed_by_the_remedy(tmp_path: Path, mode: int, wanted: int, remedy: str) -> None:
    path = tmp_path / "it's a file"
    path.touch()
    path.chmod(mode)
    (found,) = places.look_at_access(str(path), wanted=wanted)
    assert found.verdict == check.WARNING
    assert f"(mode {mode:04o})" in found.text
    assert (found.remedy or "").startswith(remedy)
    subprocess.run(["sh", "-c", found.remedy or ""], check=True)
    assert list(places.look_at_access(str(path), wanted=wanted)) == []


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_what_is_closed_is_fine_and_so_is_what_is_not_there(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    assert list(places.look_at_access(str(path), wanted=0o600)) == []
    path.touch()
    path.chmod(mode)
    assert list(places.look_at_access(str(path), wanted=0o600)) == []


@ROOT_ONLY
def test_what_belongs_to_somebody_else_is_told(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(0o600)
    os.chown(path, 12345, -1)
    (found,) = places.look_at_access(str(path), wanted=0o600)
    assert "belongs to uid 12345, not to us (0)" in found.text


def test_a_place_that_is_no_folder_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (found,) = places.look_at_writing(str(tmp_path / "file" / "sub"), variable=VARIABLE)
    assert (found.verdict, found.text) == (check.FAILED, f"{tmp_path}/file is not a directory")
    assert found.remedy == f"Set {VARIABLE} to another place."
    assert list(places.look_at_writing(str(tmp_path / "new" / "er"), variable=VARIABLE)) == []


def test_no_mode_opens_a_file_system_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=found.f_flag | os.ST_RDONLY))
    (finding,) = places.look_at_writing(str(tmp_path), variable=VARIABLE)
    assert (finding.verdict, finding.remedy) == (check.FAILED, f"Set {VARIABLE} to another place.")
    assert "read-only" in finding.text


def test_a_folder_that_refuses_us_is_told_with_the_way_in() -> None:
    """Root is refused nothing but what is read-only, so it looks as somebody else."""
    code = (
        "import os, sys; from vmnest.ops.checks import places\n"
        "path = sys.argv[1]\n"
        "if not os.geteuid():\n"
        "    os.chown(path, 12345, -1); os.chmod(os.path.dirname(path), 0o755); os.setresuid(12345, 12345, 12345)\n"
        "os.chmod(path, 0o500)\n"
        "for each in places.look_at_writing(path, variable='V'):\n"
        "    print(each.verdict, each.text, each.remedy, sep='|')\n"
    )
    # Not below pytest's folders, which are closed to others, and are closed again whenever a pytest starts.
    with tempfile.TemporaryDirectory(prefix="vmnest-test-") as folder:
        closed = Path(folder, "closed")
        closed.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", code, closed], cwd=ROOT, capture_output=True, text=True, check=False
        )
    assert done.stderr == ""
    assert done.stdout == f"failed|{closed} cannot be written to|chmod u+rwx {closed}\n"


def test_a_disk_without_room_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(places.look_at_room(str(tmp_path / "new"), variable=VARIABLE)) == []
    monkeypatch.setattr(places, "SCANT_BYTES", 2**80)
    (found,) = places.look_at_room(str(tmp_path), variable=VARIABLE)
    assert (found.verdict, found.text.startswith("there is little room")) == (check.WARNING, True)


@ROOT_ONLY
def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path) -> None:
    code = (
        "import sys; from vmnest.ops.checks import places\n"
        "open(sys.argv[1] + '/fill', 'wb').write(bytes(512 * 1024))\n"
        "for each in places.look_at_room(sys.argv[1], variable='V'):\n"
        "    print(each.verdict, each.text, each.remedy, sep='|')\n"
    )
    line = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$1"'
    words = ["unshare", "--mount", "sh", "-c", line, "sh", str(tmp_path), sys.executable, code]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"failed|the disk of {tmp_path} is full|Make room (df -h {tmp_path}), or set V to another place.\n"
    )
