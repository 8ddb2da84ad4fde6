"""Which sandboxes there are, with a service that answers from a script."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.support.control import vm
from tests.support.fleet import REGION, Fleet, Recording
from tests.support.peers import Answer, Request, Serve, json_answer
from vmnest import errors, registry
from vmnest.ops import inventory, views
from vmnest.registry import Record

POLICY = {"max_idle_duration_seconds": 60, "suspended_duration_seconds": 0, "auto_resume_enabled": True}


def listed(**options: object) -> list[dict[str, object]]:
    found = inventory.list_sandboxes(**options)["sandboxes"]  # type: ignore[arg-type]
    assert isinstance(found, list)
    return found


def names(**options: object) -> list[object]:
    return [each["name"] for each in listed(**options)]


def record_many(fleet: Fleet, record_as: Recording, count: int, **members: object) -> None:
    for number in range(count):
        record_as(f"n{number}", **members)
        fleet.add(f"microvm-n{number}")


# -- what has a name ---------------------------------------------------------------------------------------------------


def test_without_records_nobody_is_asked(fleet: Fleet) -> None:
    assert inventory.list_sandboxes() == {"sandboxes": []}
    assert not fleet.asked


def test_up_to_ten_are_asked_for_one_by_one_and_listed_in_the_order_of_the_records(
    fleet: Fleet, record_as: Recording
) -> None:
    record_many(fleet, record_as, 10, created_at=0.0)
    fleet.members["microvm-n0"]["stateReason"] = "why"
    found = listed()
    assert [each["name"] for each in found] == [f"n{number}" for number in range(10)]
    assert {each["state"] for each in found} == {"RUNNING"}
    assert found[0]["state_reason"] == "why"
    assert found[0]["created_at"] == "1970-01-01T00:00:00+00:00"
    assert found[0]["endpoint"] == "https://0000.lambda-microvm.us-east-1.on.aws"
    assert fleet.asked == {"get": 10}


def test_of_more_the_list_is_read_as_far_as_needed(fleet: Fleet, record_as: Recording) -> None:
    record_many(
        fleet, record_as, 60, max_duration=3600, idle_policy=POLICY, endpoint="https://there", labels={"a": "1"}
    )
    fleet.add(*[f"microvm-of-others-{number}" for number in range(500)], state="TERMINATED")
    fleet.members["microvm-n7"].update(state="HIBERNATING", startedAt=0.0)
    found = listed()
    assert [each["name"] for each in found] == [f"n{number}" for number in range(60)]
    assert fleet.asked == {"list": 2}
    assert (found[7]["state"], found[7]["expires_at"]) == ("HIBERNATING", "1970-01-01T01:00:00+00:00")
    assert (found[7]["idle_policy"], found[7]["endpoint"], found[7]["labels"]) == (POLICY, "https://there", {"a": "1"})
    assert found[7]["egress_network_connectors"] is None
    assert list(found[7]) == list(views.describe_record(Record("x"), state="GONE"))


def test_what_the_list_does_not_have_is_asked_for(fleet: Fleet, record_as: Recording) -> None:
    record_many(fleet, record_as, 12)
    record_as("gone")
    record_as("cut-off", microvm_id=None, client_token="token")
    found = {each["name"]: each["state"] for each in listed()}
    assert (found["gone"], found["cut-off"], found["n0"]) == ("GONE", "LAUNCHING", "RUNNING")
    assert fleet.asked == {"list": 1, "get": 1}


def test_pages_may_be_empty_or_tell_the_same_twice(fleet: Fleet, record_as: Recording) -> None:
    fleet.empty_pages, fleet.page, fleet.doubles = 3, 5, True
    record_many(fleet, record_as, 12)
    assert names() == [f"n{number}" for number in range(12)]
    assert fleet.asked == {"list": 6}


def test_a_list_that_has_no_end_is_not_read_to_it(
    fleet: Fleet, record_as: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "MOST_LISTED", 100)
    fleet.add(*[f"microvm-of-others-{number}" for number in range(500)])
    record_many(fleet, record_as, 11)
    assert {each["state"] for each in listed()} == {"RUNNING"}
    assert fleet.asked == {"list": 2, "get": 11}


def test_who_may_not_read_the_list_asks_one_by_one(fleet: Fleet, record_as: Recording) -> None:
    fleet.refused["list"] = 403
    record_many(fleet, record_as, 11)
    assert {each["state"] for each in listed()} == {"RUNNING"}
    assert fleet.asked == {"list": 1, "get": 11}


def test_of_a_list_that_is_nonsense_each_is_asked_for(fleet: Fleet, record_as: Recording) -> None:
    fleet.add("microvm-web")
    fleet.add("microvm-nobodys", startedAt="yesterday")
    record_as("web")
    assert [(each["name"], each["state"]) for each in listed(unnamed=True)] == [("web", "RUNNING")]


def test_a_list_that_fails_is_not_asked_again_for_each(fleet: Fleet, record_as: Recording) -> None:
    fleet.refused["list"] = 400
    record_many(fleet, record_as, 11)
    found = listed()
    assert {each["state"] for each in found} == {"UNKNOWN"}
    assert {json.dumps(each["error"]) for each in found} == {json.dumps(found[0]["error"])}
    assert fleet.asked == {"list": 1}


def test_places_are_asked_at_a_time(serve: Serve, record_as: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2, timeout=20)

    def answer(request: Request) -> Answer:
        together.wait()
        return json_answer(200, {"items": []} if "maxResults" in request.target else vm())

    monkeypatch.setenv("AWS_ENDPOINT_URL", serve(*[answer] * 24).url)
    for number in range(11):
        record_as(f"a{number}")
        record_as(f"b{number}", region="eu-west-1")
    assert len(listed()) == 22


def test_several_are_asked_at_a_time(serve: Serve, record_as: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(4, timeout=20)

    def answer(request: Request) -> Answer:
        together.wait()
        return json_answer(200, vm())

    monkeypatch.setenv("AWS_ENDPOINT_URL", serve(*[answer] * 4).url)
    for name in "abcd":
        record_as(name)
    assert len(listed()) == 4


@pytest.mark.parametrize("count", [1, 11])
def test_a_service_that_cannot_be_asked_makes_a_state_unknown_and_no_error(record_as: Recording, count: int) -> None:
    for number in range(count):
        record_as(f"n{number}")
    for found in listed(timeout=1):
        assert found["state"] == "UNKNOWN"
        assert isinstance(found["error"], dict)
        assert found["error"]["code"] == "connect_failed"


def test_a_launch_that_was_cut_off_is_listed_without_asking(record_as: Recording) -> None:
    record_as("web", microvm_id=None, client_token="token")
    assert listed()[0]["state"] == "LAUNCHING"


def test_a_region_that_is_not_recorded_is_the_one_that_was_asked(fleet: Fleet, record_as: Recording) -> None:
    record_as("web", region=None)
    fleet.add("microvm-web", "microvm-left")
    assert [each["region"] for each in listed(unnamed=True)] == [REGION, REGION]


def test_a_record_whose_region_is_none_says_so(fleet: Fleet, record_as: Recording) -> None:
    record_as("web", region="no region")
    (found,) = listed()
    assert isinstance(found["error"], dict)
    assert found["error"]["message"] == "sandbox web is recorded in 'no region', which is no AWS region"
    (found,) = listed(region="no region")
    assert isinstance(found["error"], dict)
    assert found["error"]["message"] == "--region (Python: region) names no AWS region: 'no region'"


def test_a_target_of_a_later_version_spoils_no_other(fleet: Fleet, record_as: Recording) -> None:
    record_many(fleet, record_as, 1)
    record_as("far", target="moon")
    assert [each["state"] for each in listed()] == ["RUNNING", "UNKNOWN"]


@pytest.mark.parametrize("seconds", [1e300, -1e300])
def test_a_date_that_is_none_is_left_out(record_as: Recording, seconds: float) -> None:
    record_as("web", microvm_id=None, created_at=seconds)
    assert listed()[0]["created_at"] is None


def test_a_fault_in_one_of_the_threads_is_not_lost(
    fleet: Fleet, record_as: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_many(fleet, record_as, 2)
    monkeypatch.setattr(views, "describe", lambda record, microvm: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        listed()


# -- limits ------------------------------------------------------------------------------------------------------------


def test_the_list_can_be_limited_to_a_target(record_as: Recording) -> None:
    record_as("here", microvm_id=None, target="local")
    record_as("there", microvm_id=None)
    for local, expected in ((True, ["here"]), (False, ["there"]), (None, ["here", "there"])):
        assert names(local=local) == expected


def test_the_list_can_be_limited_to_labels(fleet: Fleet, record_as: Recording) -> None:
    record_as("one", microvm_id=None, labels={"a": "1", "b": "1"})
    record_as("two", labels={"a": "1"})
    assert names(labels={"a": "1", "b": "1"}) == ["one"]
    assert not fleet.asked


def test_the_list_can_be_limited_to_states(fleet: Fleet, record_as: Recording) -> None:
    record_many(fleet, record_as, 3)
    fleet.members["microvm-n1"]["state"] = "SUSPENDED"
    record_as("gone")
    assert names(states=["SUSPENDED"]) == ["n1"]
    assert names(states=["GONE", "RUNNING"]) == ["n0", "n2", "gone"]


def test_the_list_can_be_limited_to_images_by_name_or_arn(fleet: Fleet, record_as: Recording) -> None:
    arn = "arn:aws:lambda:us-east-1:111122223333:microvm-image:"
    record_as("asked", image_arn=None)
    record_as("known", image_arn=f"{arn}other")
    fleet.add("microvm-asked", imageArn=f"{arn}demo")
    fleet.add("microvm-known", imageArn=f"{arn}other")
    assert names(images=["demo"]) == ["asked"]
    assert fleet.asked == {"get": 1}  # of the other it was known
    assert names(images=[f"{arn}other"]) == ["known"]
    assert names(images=["demo", "other"]) == ["asked", "known"]
    assert names(images=["dem", "microvm-image"]) == []


# -- what has no name --------------------------------------------------------------------------------------------------


def test_what_has_no_name_is_listed_behind_the_others_the_oldest_first(fleet: Fleet, record_as: Recording) -> None:
    record_many(fleet, record_as, 1)
    fleet.add("microvm-late", startedAt=2e9)
    fleet.add("microvm-early", startedAt=1e9, state="SUSPENDED")
    fleet.add("microvm-over", state="TERMINATED")
    found = listed(unnamed=True)
    assert [each["microvm_id"] for each in found] == ["microvm-n0", "microvm-early", "microvm-late"]
    assert [each["name"] for each in found] == ["n0", None, None]
    early = found[1]
    assert (early["state"], early["target"], early["region"], early["labels"]) == ("SUSPENDED", "aws", REGION, {})
    assert early["started_at"] == "2001-09-09T01:46:40+00:00"
    assert (early["endpoint"], early["idle_policy"], early["expires_at"]) == (None, None, None)
    assert fleet.asked == {"list": 1}


def test_what_has_no_name_and_has_ended_is_listed_on_demand(fleet: Fleet, record_as: Recording) -> None:
    fleet.add("microvm-over", state="TERMINATED")
    fleet.add("microvm-alive")
    assert [each["microvm_id"] for each in listed(unnamed=True, states=["TERMINATED"])] == ["microvm-over"]


def test_a_name_that_is_filtered_out_is_a_name_all_the_same(fleet: Fleet, record_as: Recording) -> None:
    record_many(fleet, record_as, 1, target="aws", image_arn="arn:aws:lambda:us-east-1:1:microvm-image:odd")
    assert listed(unnamed=True, images=["demo"]) == []


def test_what_has_no_name_has_no_labels(fleet: Fleet, record_as: Recording) -> None:
    fleet.add("microvm-alive")
    assert listed(unnamed=True, labels={"a": "1"}) == []
    assert not fleet.asked


def test_every_place_that_has_a_record_is_asked_and_each_microvm_told_once(fleet: Fleet, record_as: Recording) -> None:
    record_as("far", region="eu-west-1")
    fleet.add("microvm-x")
    assert [each["microvm_id"] for each in listed(unnamed=True)] == ["microvm-far", "microvm-x"]
    assert fleet.asked == {"list": 2, "get": 1}
    fleet.asked.clear()
    assert [each["microvm_id"] for each in listed(unnamed=True, region=REGION)] == ["microvm-x"]
    assert fleet.asked == {"list": 1}


def test_a_place_that_cannot_be_asked_is_told(fleet: Fleet, record_as: Recording) -> None:
    fleet.refused["list"] = 403
    fleet.add("microvm-web")
    record_as("web")
    data = inventory.list_sandboxes(unnamed=True)
    assert isinstance(data["sandboxes"], list)
    assert [each["state"] for each in data["sandboxes"]] == ["RUNNING"]
    assert isinstance(data["failed"], list)
    (failed,) = data["failed"]
    assert (failed["target"], failed["region"], failed["error"]["code"]) == ("aws", REGION, "access_denied")


def test_if_no_place_can_be_asked_that_is_an_error(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.refused["list"] = 403
    with pytest.raises(errors.AccessDeniedError):
        listed(unnamed=True)
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/none")
    with pytest.raises(errors.RegionNotFoundError):
        listed(unnamed=True)


def test_a_local_cloud_is_not_started_to_say_that_it_has_none(fleet: Fleet, tmp_path: Path) -> None:
    assert listed(unnamed=True) == []
    assert not (tmp_path / "local").exists()


def test_two_hundred_take_four_calls(fleet: Fleet, aws_records: registry.Registry) -> None:
    members = {f"n{number}": Record("", microvm_id=f"microvm-n{number}", region=REGION) for number in range(200)}
    whole = {"sandboxes": {name: record.to_file() for name, record in members.items()}}
    Path(aws_records.path).write_text(json.dumps(whole))
    fleet.add(*[f"microvm-{name}" for name in members])
    assert len(listed()) == 200
    assert fleet.asked == {"list": 4}
