"""Whose log a name stands for."""

from __future__ import annotations

import pytest

from tests.support.control import IMAGE_ARN
from tests.support.log_plane import MICROVM, STREAM, LogPlane
from vmnest import errors, registry
from vmnest.deadline import Deadline
from vmnest.ops import log_sources, logs
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


def test_the_region_is_the_records_unless_the_caller_names_one(logged: registry.Registry) -> None:
    logged.put(Record("far", microvm_id=OTHER, region="eu-west-1"))
    regions = [
        log_sources.find("far", local=None, region=region, deadline=Deadline(20)).place.region
        for region in (None, "eu-central-1")
    ]
    assert regions == ["eu-west-1", "eu-central-1"]
