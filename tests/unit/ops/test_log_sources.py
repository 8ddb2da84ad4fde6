"""Whose log a name stands for."""

from __future__ import annotations

import pytest

from tests.support.control import IMAGE_ARN
from tests.support.log_plane import GROUP, MICROVM, STARTED, STREAM, LogPlane
from vmnest import errors, registry
from vmnest.deadline import Deadline
from vmnest.ops import log_sources, logs
from vmnest.ops.log_sources import Source, Want
from vmnest.registry import Record

OTHER = "microvm-0a0b0c0d-0002"


def messages(name: str, **how: object) -> list[object]:
    events = logs.sandbox_logs(name=name, **how)["events"]  # type: ignore[arg-type]
    assert isinstance(events, list)
    return [event["message"] for event in events]


def test_a_name_is_that_of_its_microvm(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a")
    assert messages("web") == ["a"]


def test_the_id_of_a_recorded_microvm_will_do(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a")
    data = logs.sandbox_logs(name=MICROVM)
    assert (data["name"], data["microvm_id"]) == (MICROVM, MICROVM)


def test_the_id_of_one_that_was_removed_will_do(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a")
    log_plane.end()
    logged.remove("web")
    assert messages(MICROVM) == ["a"]


def test_one_that_the_service_has_forgotten_is_found_by_its_record(
    log_plane: LogPlane, logged: registry.Registry
) -> None:
    log_plane.put("a")
    log_plane.microvms.clear()
    data = logs.sandbox_logs(name="web")
    assert (data["state"], data["streams"]) == ("GONE", [STREAM])


def test_one_that_everybody_has_forgotten_is_looked_for_in_all_groups(
    log_plane: LogPlane, logged: registry.Registry
) -> None:
    log_plane.put("x", group="/aws/lambda-microvms/another")
    log_plane.put("a", stream=f"2026/01/01[9.0]{OTHER}")
    assert messages(OTHER) == ["a"]


def test_one_that_nobody_ever_knew_is_not_found(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("x")
    for name in (OTHER, "mvm-12345"):
        with pytest.raises(errors.MicroVMNotFoundError, match=name):
            logs.sandbox_logs(name=name)


def test_a_name_that_is_none_is_not_found_and_the_error_knows_of_ids(logged: registry.Registry) -> None:
    with pytest.raises(errors.SandboxNotFoundError) as caught:
        logs.sandbox_logs(name="nobody")
    assert "id of its MicroVM" in (caught.value.hint or "")


def test_one_on_the_other_target_is_not_found(logged: registry.Registry) -> None:
    for name in ("web", MICROVM):
        with pytest.raises(errors.SandboxNotFoundError, match="on AWS"):
            logs.sandbox_logs(name=name, local=True)


def test_one_that_is_being_started_has_none_yet(logged: registry.Registry) -> None:
    logged.put(Record("new", image_arn=IMAGE_ARN, region="us-east-1"))
    with pytest.raises(errors.MicroVMNotFoundError, match="no MicroVM yet"):
        logs.sandbox_logs(name="new")


def test_who_may_not_look_at_microvms_may_read_their_logs(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("a")
    log_plane.is_shut = True
    data = logs.sandbox_logs(name="web")
    assert (data["state"], len(log_plane.names())) == ("UNKNOWN", 2)
    with pytest.raises(errors.AccessDeniedError, match="GetMicrovm"):
        logs.sandbox_logs(name=OTHER)


def test_the_recorded_group_is_used_and_the_callers_before_it(log_plane: LogPlane, logged: registry.Registry) -> None:
    logged.update("web", log_group="/mine")
    log_plane.put("a", group="/mine")
    log_plane.put("b", group="/yours")
    log_plane.put("c")
    assert messages("web") == ["a"]
    assert messages("web", log_group="/yours") == ["b"]


@pytest.mark.parametrize("created_at", [None, 1e30, -1e30])
def test_a_record_without_a_time_is_found_by_the_id(
    log_plane: LogPlane, logged: registry.Registry, created_at: float | None
) -> None:
    logged.update("web", created_at=created_at)
    log_plane.microvms.clear()
    log_plane.put("a", stream=MICROVM)
    assert messages("web") == ["a"]


def source(name: str = "web") -> Source:
    return Source(name, local=None, region=None, deadline=Deadline(20))


def test_one_that_runs_has_not_ended(log_plane: LogPlane, logged: registry.Registry) -> None:
    found = source()
    assert not found.has_ended()
    log_plane.launch(state="TERMINATING")
    assert not found.has_ended()
    log_plane.end()
    assert found.has_ended()
    looks = log_plane.looks
    assert found.has_ended()
    assert log_plane.looks == looks  # it does not come back


def test_one_that_is_forgotten_meanwhile_has_ended_and_is_still_known(
    log_plane: LogPlane, logged: registry.Registry
) -> None:
    found = source()
    log_plane.microvms.clear()
    assert found.has_ended()
    assert found.microvm is not None
    assert found.settle_seconds == 0


def test_the_last_lines_of_one_that_ended_just_now_are_waited_for(
    log_plane: LogPlane, logged: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_plane.end()
    assert source().settle_seconds == 0
    monkeypatch.setattr(log_sources.SYSTEM_CLOCK, "time", lambda: STARTED + 61, raising=False)
    assert source().settle_seconds == source().pace.settle_seconds > 0


def test_why_there_is_nothing_is_told(log_plane: LogPlane, logged: registry.Registry) -> None:
    data = logs.sandbox_logs(name="web")
    assert data["note"] == f"there is no log group {GROUP}; {log_sources._ROLE}"
    log_plane.groups[GROUP] = {}
    log_plane.launch(executionRoleArn="arn:aws:iam::111122223333:role/r")
    assert logs.sandbox_logs(name="web")["note"] == f"{GROUP} has no stream of {MICROVM}"
    log_plane.put("a")
    assert logs.sandbox_logs(name="web")["note"] is None


@pytest.mark.parametrize(
    "wish",
    [
        {"tail": -1},
        {"tail": True},
        {"tail": 50_001},
        {"tail": "5"},
        {"since": -1},
        {"since": "1h"},
        {"grep": "("},
        {"grep": "x{99999999999}"},
        {"cursor": "1"},
    ],
    ids=str,
)
def test_what_cannot_be_wanted_is_refused(wish: dict[str, object]) -> None:
    nothing: dict[str, object] = dict.fromkeys(("log_group", "since", "tail", "grep", "cursor"))
    with pytest.raises(errors.UsageError):
        Want(**{**nothing, **wish}).mark()  # type: ignore[arg-type]
