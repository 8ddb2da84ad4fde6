"""What is shown of a sandbox."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.control import vm
from tests.support.peers import Serve, json_answer
from vmnest import errors
from vmnest.control.microvms import IdlePolicy, MicroVM, MicroVMSummary
from vmnest.deadline import Deadline
from vmnest.ops import views
from vmnest.registry import Record

MOMENT = datetime(2026, 1, 1, tzinfo=timezone.utc)


def microvm(**members: object) -> MicroVM:
    plain = MicroVM("m-1", "RUNNING", "https://host", "arn:image", "1.0", MOMENT, 5400)
    return plain._replace(**members)  # type: ignore[arg-type]


def test_what_the_service_says_and_what_is_recorded() -> None:
    record = Record("web", microvm_id="m-1", region="r", created_at=0.0, stopped_at=1.0, labels={"a": "1"})
    seen = microvm(state="SUSPENDED", idle_policy=IdlePolicy(60, 0, False), egress=("e",), ingress=("i",))
    view = views.describe(record, seen)
    assert view == {
        "name": "web",
        "target": "aws",
        "state": "SUSPENDED",
        "microvm_id": "m-1",
        "image_arn": "arn:image",
        "image_version": "1.0",
        "region": "r",
        "endpoint": "https://host",
        "created_at": "1970-01-01T00:00:00+00:00",
        "started_at": "2026-01-01T00:00:00+00:00",
        "stopped_at": "1970-01-01T00:00:01+00:00",
        "expires_at": "2026-01-01T01:30:00+00:00",
        "terminated_at": None,
        "state_reason": None,
        "max_duration_seconds": 5400,
        "idle_policy": {
            "max_idle_duration_seconds": 60,
            "suspended_duration_seconds": 0,
            "auto_resume_enabled": False,
        },
        "execution_role_arn": None,
        "ingress_network_connectors": ["i"],
        "egress_network_connectors": ["e"],
        "labels": {"a": "1"},
    }
    assert json.loads(json.dumps(view)) == view


def test_what_a_request_resumed_is_not_stopped_any_more() -> None:
    assert views.describe(Record("web", stopped_at=1.0), microvm())["stopped_at"] is None


def test_a_view_has_the_same_members_whatever_is_known() -> None:
    record = Record("web", microvm_id="m-1")
    assert list(views.describe_record(record, state="GONE")) == list(views.describe(record, microvm()))


def summary(**members: object) -> MicroVMSummary:
    return MicroVMSummary("m-1", "RUNNING", "arn:image", "1.0", MOMENT)._replace(**members)  # type: ignore[arg-type]


def test_what_a_list_does_not_tell_is_as_recorded() -> None:
    policy = IdlePolicy(60, 0, False)._asdict()
    record = Record("web", endpoint="e", max_duration=5400, idle_policy=policy, stopped_at=1.0)
    view = views.describe_summary(record, summary(state="SUSPENDED"))
    assert (view["state"], view["microvm_id"], view["endpoint"]) == ("SUSPENDED", "m-1", "e")
    assert (view["image_arn"], view["image_version"]) == ("arn:image", "1.0")
    assert (view["started_at"], view["expires_at"]) == ("2026-01-01T00:00:00+00:00", "2026-01-01T01:30:00+00:00")
    assert (view["max_duration_seconds"], view["idle_policy"]) == (5400, policy)
    assert view["stopped_at"] == "1970-01-01T00:00:01+00:00"
    assert views.describe_summary(record, summary())["stopped_at"] is None
    assert views.describe_summary(record, summary(state="TERMINATED"))["expires_at"] is None
    assert list(view) == list(views.describe(record, microvm()))


@pytest.mark.parametrize(
    "wrong",
    [{"max_idle_duration_seconds": True}, {"max_idle_duration_seconds": 10**30}, {"auto_resume_enabled": 1},
     {"suspended_duration_seconds": "\x1b[2J"}, {"suspended_duration_seconds": None}],
    ids=str,
)  # fmt: skip
def test_what_a_file_says_of_a_policy_is_checked(wrong: dict[str, object]) -> None:
    record = Record("web", idle_policy={**IdlePolicy()._asdict(), "later": 1})
    assert views.describe_record(record, state="GONE")["idle_policy"] == IdlePolicy()._asdict()
    record = Record("web", idle_policy={**IdlePolicy()._asdict(), **wrong})
    assert views.describe_record(record, state="GONE")["idle_policy"] is None


@pytest.mark.parametrize("seconds", [-1, 0, 10**30])
def test_a_life_that_none_has_is_left_out(seconds: int) -> None:
    view = views.describe_summary(Record("web", max_duration=seconds), summary())
    assert (view["max_duration_seconds"], view["expires_at"]) == (None, None)
    assert views.describe(Record("web"), microvm(max_duration_seconds=10**12))["expires_at"] is None


VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=1)
)


@given(
    st.dictionaries(st.sampled_from([*IdlePolicy._fields, "odd"]), VALUES),
    st.integers(),
    st.floats() | st.integers(),
    st.datetimes(timezones=st.just(timezone.utc)),
)
def test_whatever_a_file_and_a_list_say_can_be_shown(
    policy: dict[str, object], seconds: int, created_at: float, started_at: datetime
) -> None:
    record = Record("web", idle_policy=policy, max_duration=seconds, created_at=created_at, stopped_at=created_at)
    for view in (
        views.describe_summary(record, summary(started_at=started_at)),
        views.describe_record(record, state="GONE"),
    ):
        assert json.loads(json.dumps(view)) == view


def test_what_has_ended_does_not_expire() -> None:
    view = views.describe(Record("web"), microvm(state="TERMINATED", terminated_at=MOMENT + timedelta(seconds=1)))
    assert (view["expires_at"], view["terminated_at"]) == (None, "2026-01-01T00:00:01+00:00")


def test_a_target_of_a_later_version_is_an_error_in_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Record("web", microvm_id="m-1", target="moon")
    view = views.Look(region=None, deadline=Deadline(5)).at(record)
    assert (view["name"], view["state"], view["target"]) == ("web", "UNKNOWN", "moon")
    assert isinstance(view["error"], dict)
    assert view["error"]["code"] == errors.UnsupportedError.code


@pytest.fixture
def look(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> views.Look:
    """Sees what the service says, and then that it knows nothing."""
    gone = json_answer(404, {"message": "no"}, headers={"x-amzn-errortype": "ResourceNotFoundException"})
    monkeypatch.setenv("AWS_ENDPOINT_URL", serve(json_answer(200, vm(startedAt=0.25, odd={"a": [None]})), gone).url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return views.Look(region="us-east-1", deadline=Deadline(5))


def test_a_look_into_it_keeps_the_services_words_and_no_token(look: views.Look) -> None:
    record = Record("web", microvm_id="m-1", client_token="hunter2", log_group="g", launch={"token": "hunter2"})
    view = look.into(record)
    assert view["record"] == {"name": "web", "microvm_id": "m-1", "target": "aws", "log_group": "g"}
    said = view["microvm"]
    assert isinstance(said, dict)
    assert (said["startedAt"], said["odd"]) == ("1970-01-01T00:00:00.250+00:00", {"a": [None]})
    assert json.loads(json.dumps(view)) == view
    view = look.into(record)
    assert (view["state"], view["microvm"]) == ("GONE", None)


def test_a_launch_that_was_cut_off_is_looked_into_without_asking(look: views.Look) -> None:
    view = look.into(Record("web", client_token="hunter2"))
    assert (view["state"], view["microvm"]) == ("LAUNCHING", None)
