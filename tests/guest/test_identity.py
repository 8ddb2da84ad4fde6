"""The identity of a VM: made once, and not by whoever asks second."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from guest.agentd import identity

LAUNCH = json.dumps({"microvmId": "microvm-1", "runHookPayload": '{"a": 1}'}).encode()


def test_a_claim_makes_an_identity_and_keeps_the_payload(tmp_path: Path) -> None:
    own = identity.Identity(str(tmp_path / "run" / "identity"))
    assert own.vm_id is None
    assert own.claim(LAUNCH)
    assert own.vm_id is not None
    assert re.fullmatch("[0-9a-f]{32}", own.vm_id)
    assert (tmp_path / "run" / "identity").read_text() == own.vm_id
    assert (own.microvm_id, own.payload) == ("microvm-1", '{"a": 1}')
    assert (tmp_path / "run" / "payload").read_text() == '{"a": 1}'
    assert (tmp_path / "run" / "payload").stat().st_mode & 0o777 == 0o600
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"identity", "payload"}


def test_a_launch_without_a_payload_leaves_no_file_for_it(tmp_path: Path) -> None:
    own = identity.Identity(str(tmp_path / "identity"))
    assert own.claim(b'{"microvmId": "microvm-1", "runHookPayload": ""}')
    assert [path.name for path in tmp_path.iterdir()] == ["identity"]


def test_a_second_claim_changes_nothing(tmp_path: Path) -> None:
    own = identity.Identity(str(tmp_path / "identity"))
    own.claim(LAUNCH)
    files = [tmp_path / "identity", tmp_path / "payload"]
    before = (own.vm_id, own.microvm_id, own.payload, [path.read_text() for path in files])
    assert not own.claim(b'{"microvmId": "forged", "runHookPayload": "forged"}')
    assert (own.vm_id, own.microvm_id, own.payload, [path.read_text() for path in files]) == before


def test_two_vms_of_one_snapshot_differ(tmp_path: Path) -> None:
    twins = [identity.Identity(str(tmp_path / name)) for name in "ab"]
    drawn = []
    for twin in twins:
        random.seed(1)
        twin.claim(LAUNCH)
        drawn.append(random.random())
    assert twins[0].vm_id != twins[1].vm_id
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(
    "body",
    [b"", b"{bad", b"\xff", b"[]", b"null", b'{"microvmId": 7, "runHookPayload": {}}', b"[" * 100_000],
    ids=range(7),
)
def test_a_malformed_launch_still_gets_an_identity(tmp_path: Path, body: bytes) -> None:
    own = identity.Identity(str(tmp_path / "identity"))
    assert own.claim(body)
    assert own.vm_id is not None
    assert (own.microvm_id, own.payload) == (None, None)
    assert not own.claim(LAUNCH)


def test_a_file_that_cannot_be_written_is_told_and_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    own = identity.Identity(str(tmp_path / "file" / "identity"))
    assert own.claim(LAUNCH)
    assert own.vm_id is not None
    assert "identity could not be written" in capsys.readouterr().err


def test_reseeding_parts_the_random_numbers_of_clones() -> None:
    random.seed(1)
    identity.reseed()
    first = random.random()
    random.seed(1)
    identity.reseed()
    assert random.random() != first
