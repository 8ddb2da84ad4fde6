"""The local cloud while it does not run: what it has noted is told without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.support import notes
from vmnest import errors, rendezvous
from vmnest.aws.service import Service
from vmnest.control import Control, resting
from vmnest.control.microvms import IdlePolicy, RunSpec
from vmnest.deadline import Deadline
from vmnest.wire import names


class WokenError(Exception):
    """The real service was asked for."""


def wake(deadline: Deadline) -> Service:
    raise WokenError


@pytest.fixture
def folder(tmp_path: Path) -> str:
    tmp_path.chmod(0o700)
    return str(tmp_path)


@pytest.fixture
def control(folder: str) -> Control:
    return Control(resting.Resting(folder, region="us-east-1", wake=wake))


NOW = Deadline(5)


def test_what_has_ended_is_told_as_the_daemon_noted_it(folder: str, control: Control) -> None:
    notes.leave_note(folder, "microvm-1")
    found = control.microvms.get("microvm-1", deadline=NOW)
    assert (found.state, found.state_reason, found.image_arn) == (names.TERMINATED, "exit status 1", notes.IMAGE_ARN)
    assert found.started_at == datetime.fromtimestamp(notes.BEGAN, timezone.utc)
    assert found.terminated_at == datetime.fromtimestamp(notes.ENDED, timezone.utc)
    assert found.idle_policy == IdlePolicy(60, 0, True)
    assert found.raw[names.LOCAL_DETAILS_MEMBER] == {"cpus": 1.5, "memory": 512, "egress": []}


def test_all_that_ended_are_listed_and_by_their_image(folder: str, control: Control) -> None:
    assert list(control.microvms.list(deadline=NOW)) == []
    notes.leave_note(folder, "microvm-1")
    notes.leave_note(folder, "microvm-2")
    assert sorted(each.microvm_id for each in control.microvms.list(deadline=NOW)) == ["microvm-1", "microvm-2"]
    assert list(control.microvms.list(image_arn="another", deadline=NOW)) == []


def test_what_is_unknown_is_not_found_and_what_ended_may_be_ended_again(folder: str, control: Control) -> None:
    notes.leave_note(folder, "microvm-1")
    for microvm_id in ("microvm-2", "../records/microvm-1"):
        with pytest.raises(errors.MicroVMNotFoundError):
            control.microvms.get(microvm_id, deadline=NOW)
    assert control.microvms.terminate("microvm-1", deadline=NOW) is True
    assert control.microvms.terminate("microvm-2", deadline=NOW) is False


def test_a_folder_that_is_not_there_has_nothing_and_is_not_made(tmp_path: Path) -> None:
    folder = tmp_path / "none"
    control = Control(resting.Resting(str(folder), region="us-east-1", wake=wake))
    assert list(control.microvms.list(deadline=NOW)) == []
    assert not folder.exists()


def _damage(folder: str) -> None:
    Path(folder, rendezvous.NOTES_FOLDER, "microvm-1.json").write_text("{")


def _spoil(folder: str, **members: object) -> None:
    path = Path(folder, rendezvous.NOTES_FOLDER, "microvm-1.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **members}))


def _leave_vm(folder: str) -> None:
    Path(folder, rendezvous.VMS_FOLDER, "microvm-9").mkdir(parents=True)


@pytest.mark.parametrize(
    "change",
    [
        _damage,
        _leave_vm,
        lambda folder: notes.leave_note(folder, "microvm-1", has_ended=False),
        lambda folder: _spoil(folder, schema=2),
        lambda folder: _spoil(folder, spec=[]),
        lambda folder: _spoil(folder, started_at="yesterday"),
        lambda folder: _spoil(folder, started_at=1e300),
        lambda folder: _spoil(folder, microvm_id="microvm-2"),
    ],
    ids=["damaged", "something lives", "a start was cut off", "newer", "no spec", "no time", "far", "another's"],
)
def test_where_a_daemon_has_something_to_do_it_is_woken(
    change: Callable[[str], None], folder: str, control: Control
) -> None:
    notes.leave_note(folder, "microvm-1")
    change(folder)
    with pytest.raises(WokenError):
        control.microvms.get("microvm-1", deadline=NOW)
    with pytest.raises(WokenError):
        list(control.microvms.list(deadline=NOW))


def test_all_other_calls_wake_it(control: Control) -> None:
    with pytest.raises(WokenError):
        control.microvms.run(RunSpec(notes.IMAGE_ARN, "token"), deadline=NOW)
    with pytest.raises(WokenError):
        control.images.get(notes.IMAGE_ARN, deadline=NOW)
