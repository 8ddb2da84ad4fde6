"""Is everything there that sandboxes need?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.checks import make_context
from vmnest import errors
from vmnest.ops import doctor
from vmnest.ops.checks import AREAS, VERDICTS, Check, Context


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own, and no settings."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def diagnose(**options: bool | None) -> tuple[dict[str, object], dict[str, Check]]:
    """What was found, and its checks by their ids."""
    found = doctor.diagnose(**options)  # type: ignore[arg-type] # of these tests
    checks = found["checks"]
    assert isinstance(checks, list)
    return found, {each["id"]: each for each in checks}


def test_this_machine_is_judged_by_what_local_sandboxes_need(home: Path) -> None:
    found, checks = diagnose(local=True)
    assert (found["ready"], found["target"]) == (True, "local")
    assert found["targets"] == {"aws": {"ready": None}, "local": {"ready": True}}
    assert {each["area"] for each in checks.values()} == {"host", "state", "local"}
    assert list(home.iterdir()) == []


def test_the_target_is_that_of_other_commands(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_TARGET", "local")
    assert diagnose()[0]["target"] == "local"
    monkeypatch.setenv("AGENT_SANDBOX_TARGET", "moon")
    monkeypatch.setattr(doctor, "_aws_tables", list)
    found, checks = diagnose()
    assert (found["ready"], found["target"]) == (False, "aws")
    assert found["targets"] == {"aws": {"ready": False}, "local": {"ready": False}}
    assert "AGENT_SANDBOX_TARGET" in checks["host.settings"]["detail"]


def test_what_local_sandboxes_lack_is_no_obstacle_to_others(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_ISOLATION", "vm")
    monkeypatch.setattr(doctor, "_aws_tables", list)
    found, checks = diagnose()
    assert (found["ready"], found["target"]) == (True, "aws")
    assert found["targets"] == {"aws": {"ready": True}, "local": {"ready": False}}
    assert checks["local.isolation"]["verdict"] == "failed"


def test_every_check_has_an_id_of_its_own_and_known_words(home: Path) -> None:
    checks = doctor.diagnose(local=True)["checks"]
    assert isinstance(checks, list)
    assert len({each["id"] for each in checks}) == len(checks)
    assert {each["area"] for each in checks} <= set(AREAS)
    assert {each["verdict"] for each in checks} <= set(VERDICTS)
    order = [AREAS.index(each["area"]) for each in checks]
    assert order == sorted(order)


def run_one(probe: Callable[[Context], list[Check]], *, seconds: float = 60) -> Check:
    """What becomes of one probe."""
    (found,) = doctor.run([("aws", probe)], make_context({}, seconds=seconds))
    return found


def test_what_a_probe_raises_is_unknown_with_its_remedy() -> None:
    def a_refusal(context: Context) -> list[Check]:
        raise errors.ConnectError("no way", hint="Look at the cable.")

    found = run_one(a_refusal)
    assert (found.id, found.verdict, found.detail) == ("aws.a_refusal", "unknown", "no way")
    assert (found.title, found.remedy, found.data) == ("a refusal", "Look at the cable.", {"finished": False})


def test_a_fault_of_a_probe_does_not_hide_the_others() -> None:
    def faulty(context: Context) -> list[Check]:
        raise KeyError("x")

    def sound(context: Context) -> list[Check]:
        return [Check("aws.sound", title="sound", verdict="ok", detail="")]

    found = doctor.run([("aws", faulty), ("aws", sound)], make_context({}))
    assert [(each.id, each.verdict) for each in found] == [("aws.faulty", "unknown"), ("aws.sound", "ok")]
    assert found[0].detail == "KeyError: 'x'"


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (ModuleNotFoundError("No module named 'urllib3'", name="urllib3"), "urllib3"),
        (ImportError("cannot import name 'transport' from 'vmnest'", name="vmnest"), "a library"),
        (ImportError("odd"), "a library"),
    ],
)
def test_a_library_that_is_missing_is_named(error: ImportError, named: str) -> None:
    def needy(context: Context) -> list[Check]:
        raise error

    found = run_one(needy)
    assert (found.verdict, found.detail) == ("skipped", f"{named} is not there to look with")


def test_a_probe_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "GRACE_SECONDS", 0.0)
    end = threading.Event()

    def stuck(context: Context) -> list[Check]:
        end.wait(60)
        return []

    try:
        found = run_one(stuck, seconds=0.05)
    finally:
        end.set()
    assert (found.verdict, found.detail) == ("unknown", "not found out within 0.05 s")


def test_probes_run_at_the_same_time() -> None:
    together = threading.Barrier(3)

    def probe(context: Context) -> list[Check]:
        together.wait(60)
        return []

    assert doctor.run([("aws", probe)] * 3, make_context({})) == []


def test_what_did_not_come_to_its_end_is_not_claimed_to_be_ready(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(context: Context) -> list[Check]:
        raise OSError("no more files")

    monkeypatch.setattr(doctor, "_aws_tables", lambda: [("aws", (broken,))])
    found, checks = diagnose()
    assert found["targets"] == {"aws": {"ready": False}, "local": {"ready": True}}
    assert checks["aws.broken"]["verdict"] == "unknown"


def test_a_working_directory_that_was_removed_is_no_obstacle(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert doctor.diagnose(local=True)["ready"] is True
