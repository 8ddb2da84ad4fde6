"""What the daemon of a local cloud leaves behind: notes of MicroVMs, written by its own ledger."""

from __future__ import annotations

import pytest

from vmnest import rendezvous
from vmnest.local import ledger, options, records
from vmnest.wire import names

IMAGE_ARN = names.image_arn(region=names.LOCAL_REGION, account=names.LOCAL_ACCOUNT, name="local")
BEGAN, ENDED = 1_700_000_000.5, 1_700_000_060.0


def leave_note(folder: str, microvm_id: str, *, has_ended: bool = True) -> None:
    """Note a MicroVM that ran for a minute and has ended, or one whose start nobody has heard of since."""
    kept = ledger.Ledger(folder)
    spec = records.Spec(
        image_arn=IMAGE_ARN,
        image_version="1.0",
        execution_role_arn=None,
        idle_policy={"maxIdleDurationSeconds": 60, "suspendedDurationSeconds": 0, "autoResumeEnabled": True},
        max_seconds=3600,
        ingress=("in",),
        egress=(),
        kms_key=None,
        payload=None,
        options=options.Options(cpus=1.5, memory_mib=512),
    )
    record = records.Record(
        microvm_id, spec, number=1, started_at=BEGAN, endpoint="http://127.0.0.1:1234", client_token=microvm_id
    )
    kept.save(record)
    record.ledger = kept
    if has_ended:
        with record.changed:
            record.advance(records.GONE, at=ENDED, reason="exit status 1")


@pytest.fixture
def no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts a local cloud, or looks for one that is to be started, fails."""

    def refuse(*args: object, **kwargs: object) -> rendezvous.Daemon:
        raise AssertionError("a local cloud was started")

    monkeypatch.setattr("vmnest.daemon.ensure", refuse)
