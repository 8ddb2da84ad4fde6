"""A launch leaves nothing behind when it fails, and a trace to adopt when its client dies."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_control import ARN, WISH, FakeControl, FakePlace
from vmnest import errors, registry, settings
from vmnest.control.microvms import IdlePolicy, RunSpec
from vmnest.deadline import NEVER
from vmnest.sandbox import launch


@pytest.fixture
def control() -> FakeControl:
    return FakeControl("https://vm.example")


@pytest.fixture
def records(tmp_path: Path) -> registry.Registry:
    return registry.Registry(str(tmp_path / "state.json"))


def plan(control: FakeControl, *, kind: str = settings.TARGET_AWS, **changes: Any) -> tuple[registry.Record, RunSpec]:
    wish = WISH._replace(**changes)
    place: Any = FakePlace(control, kind=kind)
    fake: Any = control
    return launch.plan(wish, place=place, control=fake, deadline=NEVER)


def start(control: FakeControl, records: registry.Registry, **changes: Any) -> registry.Record:
    record, spec = plan(control, **changes)
    fake: Any = control
    return launch.start(record, spec, control=fake, registry=records, deadline=NEVER)


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_the_plan_resolves_names_and_fills_in_the_lifetime(control: FakeControl) -> None:
    record, spec = plan(control)
    assert spec.image_arn == record.image_arn == ARN
    assert spec.idle_policy == IdlePolicy(900, 28_800, True)
    assert spec.maximum_duration_seconds == 28_800
    assert spec.egress_connectors == ("arn:egress",)
    assert spec.client_token == record.client_token
    assert (record.name, record.target, record.region) == ("demo", "aws", "us-east-1")
    assert record.microvm_id is None
    assert record.labels == {"team": "a"}
    assert control.microvms.calls == []


def test_every_plan_has_a_token_of_its_own(control: FakeControl) -> None:
    assert plan(control)[1].client_token != plan(control)[1].client_token


def test_sizes_go_to_the_local_cloud_as_options_and_never_to_aws(control: FakeControl) -> None:
    assert plan(control, kind="local", cpus=0.5, memory_mib=300)[1].local_options == {"cpus": 0.5, "memory": 300}
    assert plan(control, kind="local")[1].local_options is None
    assert plan(control, kind="local", egress_allow=("pypi.org",))[1].local_options == {"egress_allow": ["pypi.org"]}
    assert plan(control, cpus=1, memory_mib=512)[1].local_options is None


@pytest.mark.parametrize(
    ("memory_of_image", "wish", "refused"),
    [
        (512, {"memory_mib": 512, "cpus": 1}, None),
        (512, {"memory_mib": 513}, "memory 513 MiB"),
        (512, {"cpus": 2}, "cpus 2"),
        (2048, {"memory_mib": 300}, None),
        (2048, {"cpus": 4}, None),
        (2048, {"cpus": 4.5, "memory_mib": 4096}, "memory 4096 MiB .* and cpus 4.5"),
        (None, {"memory_mib": 2048}, None),
        (None, {"memory_mib": 2049}, "memory 2049 MiB"),
    ],
)
def test_on_aws_sizes_are_compared_with_the_image(
    memory_of_image: int | None, wish: dict[str, Any], refused: str | None
) -> None:
    control = FakeControl("https://vm.example", versions={"1.0": 512, "2.0": memory_of_image})
    if refused is None:
        plan(control, **wish)
    else:
        with pytest.raises(errors.UsageError, match=refused) as caught:
            plan(control, **wish)
        assert "larger" in (caught.value.hint or "")


def test_a_pinned_version_is_the_one_that_is_compared() -> None:
    control = FakeControl("https://vm.example", versions={"1.0": 512, "2.0": 8192})
    plan(control, memory_mib=8192)
    with pytest.raises(errors.UsageError, match=r"version 1\.0"):
        plan(control, memory_mib=8192, image_version="1.0")


def test_an_image_without_a_version_that_runs_is_left_to_the_service() -> None:
    plan(FakeControl("https://vm.example", versions={}), memory_mib=8192)


# -- the launch --------------------------------------------------------------------------------------------------------


def test_a_launch_completes_its_record(control: FakeControl, records: registry.Registry) -> None:
    record = start(control, records)
    assert record == records.get("demo")
    assert (record.microvm_id, record.endpoint, record.state_hint) == ("microvm-1", "https://vm.example", None)
    assert record.launch is None
    assert (record.max_duration, record.idle_policy) == (28_800, IdlePolicy()._asdict())


def test_the_record_is_written_before_the_run_and_tells_how_to_repeat_it(
    control: FakeControl, records: registry.Registry
) -> None:
    seen: list[registry.Record | None] = []
    control.microvms.failures["run"] = [KeyboardInterrupt()]
    original = control.microvms.run

    def run(spec: RunSpec, **options: Any) -> Any:
        seen.append(records.get("demo"))
        return original(spec, **options)

    control.microvms.run = run  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        start(control, records)
    assert seen[0] is not None
    assert seen[0].microvm_id is None
    assert seen[0].client_token == control.microvms.specs[0].client_token
    assert seen[0].launch is not None


def test_a_name_in_use_starts_nothing_and_keeps_the_other_record(
    control: FakeControl, records: registry.Registry
) -> None:
    first = start(control, records)
    with pytest.raises(errors.NameInUseError):
        start(control, records)
    assert records.get("demo") == first
    assert control.microvms.calls == ["run"]


@pytest.mark.parametrize(
    "failure",
    [
        errors.ValidationError("bad", operation="RunMicrovm", status=400),
        errors.QuotaExceededError("full", operation="RunMicrovm", status=402),
        errors.CapacityError("full", operation="RunMicrovm", status=500),
        errors.ImageNotFoundError("none"),
        errors.ConnectError("refused"),
        errors.CredentialsNotFoundError("none"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_refused_run_leaves_no_record(
    control: FakeControl, records: registry.Registry, failure: BaseException
) -> None:
    control.microvms.failures["run"] = [failure]
    with pytest.raises(type(failure)):
        start(control, records)
    assert records.all() == []
    assert control.microvms.calls == ["run"]


def test_a_run_whose_answer_was_lost_is_found_by_its_token_and_ended(
    control: FakeControl, records: registry.Registry
) -> None:
    control.microvms.lose_answer_of_run = True
    with pytest.raises(errors.ReadTimeoutError):
        start(control, records)
    assert control.microvms.calls == ["run", "run", "terminate"]
    assert len({spec.client_token for spec in control.microvms.specs}) == 1
    assert control.microvms.alive == []
    assert records.all() == []


def lost(error: errors.VmnestError) -> errors.VmnestError:
    """A refusal that came after an attempt of the same call whose answer was lost."""
    error.details["outcome"] = "unknown"
    return error


@pytest.mark.parametrize(
    "failure",
    [
        errors.QuotaExceededError("full", operation="RunMicrovm", status=402),
        errors.ThrottledError("slow", operation="RunMicrovm", status=429),
        errors.ConnectError("refused"),
        errors.CredentialsBrokenError("expired"),
        errors.ImageNotFoundError("none"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_refusal_after_a_lost_answer_is_no_proof(
    control: FakeControl, records: registry.Registry, failure: errors.VmnestError
) -> None:
    control.microvms.failures["run"] = [lost(failure)]
    with pytest.raises(type(failure)):
        start(control, records)
    assert control.microvms.calls == ["run", "run", "terminate"]
    assert control.microvms.alive == []
    assert records.all() == []


def test_an_interrupt_during_the_run_ends_what_it_may_have_started(
    control: FakeControl, records: registry.Registry
) -> None:
    control.microvms.failures["run"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        start(control, records)
    assert control.microvms.alive == []
    assert records.all() == []


def test_an_answer_that_cannot_be_read_is_no_refusal(control: FakeControl, records: registry.Registry) -> None:
    control.microvms.failures["run"] = [errors.AnswerInvalidError("html", operation="RunMicrovm", status=200)]
    with pytest.raises(errors.AnswerInvalidError):
        start(control, records)
    assert control.microvms.calls == ["run", "run", "terminate"]
    assert records.all() == []


@pytest.mark.parametrize("payload", [None, "hush-hush"])
@pytest.mark.parametrize(
    ("successor", "kind"),
    [
        (None, errors.SandboxNotFoundError),
        (registry.Record("demo", client_token="other"), errors.NameInUseError),
    ],
    ids=["removed", "replaced"],
)
def test_a_launch_whose_record_was_removed_meanwhile_leaves_nothing_behind(
    control: FakeControl, records: registry.Registry, successor: registry.Record | None, kind: Any, payload: str | None
) -> None:
    original = control.microvms.run

    def run(spec: RunSpec, **options: Any) -> Any:
        microvm = original(spec, **options)
        records.remove("demo")
        if successor is not None:
            records.put(successor)
        return microvm

    control.microvms.run = run  # type: ignore[method-assign]
    with pytest.raises(kind, match="while its MicroVM was started"):
        start(control, records, run_payload=payload)
    assert control.microvms.calls == ["run", "terminate"]
    assert records.all() == ([] if successor is None else [successor])


def test_when_even_the_cleanup_fails_the_record_stays_and_the_first_error_is_raised(
    control: FakeControl, records: registry.Registry
) -> None:
    control.microvms.lose_answer_of_run = True
    control.microvms.failures["terminate"] = [errors.ConnectError("gone")]
    with pytest.raises(errors.ReadTimeoutError):
        start(control, records)
    left = records.get("demo")
    assert left is not None
    assert left.client_token == control.microvms.specs[0].client_token


def test_the_error_tells_what_its_cleanup_left_behind(control: FakeControl, records: registry.Registry) -> None:
    control.microvms.failures["run"] = [
        errors.ReadTimeoutError("no answer", hint="Wait."),
        errors.ReadTimeoutError("silence"),
    ]
    with pytest.raises(errors.ReadTimeoutError) as caught:
        start(control, records)
    assert caught.value.details["left_behind"] == "demo"
    assert caught.value.hint == "Wait. What was started may still run (silence); end it with: vmnest rm demo"


def test_a_registry_that_fails_meanwhile_leaves_a_name_and_no_microvm(
    control: FakeControl, records: registry.Registry, tmp_path: Path
) -> None:
    original = control.microvms.run

    def run(spec: RunSpec, **options: Any) -> Any:
        (tmp_path / "state.json").write_text("{damaged")
        return original(spec, **options)

    control.microvms.run = run  # type: ignore[method-assign]
    with pytest.raises(errors.StateFileError) as caught:
        start(control, records)
    assert control.microvms.alive == []
    assert "still recorded, without a MicroVM" in (caught.value.hint or "")
    assert "may still run" not in (caught.value.hint or "")


def test_a_refusal_is_the_error_even_if_the_registry_fails_meanwhile(
    control: FakeControl, records: registry.Registry, tmp_path: Path
) -> None:
    original = control.microvms.run

    def run(spec: RunSpec, **options: Any) -> Any:
        (tmp_path / "state.json").write_text("{damaged")
        return original(spec, **options)

    control.microvms.run = run  # type: ignore[method-assign]
    control.microvms.failures["run"] = [errors.QuotaExceededError("full", operation="RunMicrovm", status=402)]
    with pytest.raises(errors.QuotaExceededError, match="full") as caught:
        start(control, records)
    assert "vmnest rm demo" in (caught.value.hint or "")


def test_an_interrupt_whose_cleanup_fails_warns(
    control: FakeControl, records: registry.Registry, caplog: pytest.LogCaptureFixture
) -> None:
    control.microvms.failures["run"] = [KeyboardInterrupt(), errors.ReadTimeoutError("silence")]
    with pytest.raises(KeyboardInterrupt):
        start(control, records)
    assert caplog.messages == ["What was started may still run (silence); end it with: vmnest rm demo"]


# -- adoption ----------------------------------------------------------------------------------------------------------


def left_by_a_killed_client(control: FakeControl, records: registry.Registry, **changes: Any) -> registry.Record:
    record, spec = plan(control, **changes)
    records.put(record)
    control.microvms.run(spec, deadline=NEVER)
    return records.require("demo")


def adopt(record: registry.Record, control: FakeControl) -> str | None:
    fake: Any = control
    return launch.adopt(record, control=fake, deadline=NEVER)


def test_the_microvm_of_a_killed_client_is_found_through_its_record(
    control: FakeControl, records: registry.Registry
) -> None:
    record = left_by_a_killed_client(control, records, idle_policy=IdlePolicy(60, 0, False), cpus=1, kind="local")
    assert adopt(record, control) == "microvm-1"
    assert control.microvms.specs[0] == control.microvms.specs[1]


def test_a_run_that_the_service_refuses_now_has_no_microvm(control: FakeControl, records: registry.Registry) -> None:
    record = left_by_a_killed_client(control, records)
    control.microvms.failures["run"] = [
        errors.ImageNotFoundError("deleted", details={"error_type": "ResourceNotFoundException"})
    ]
    assert adopt(record, control) is None


def test_a_service_that_does_not_answer_leaves_it_open(control: FakeControl, records: registry.Registry) -> None:
    record = left_by_a_killed_client(control, records)
    control.microvms.failures["run"] = [errors.ReadTimeoutError("silence")]
    with pytest.raises(errors.ReadTimeoutError):
        adopt(record, control)


@pytest.mark.parametrize(
    "failure",
    [
        errors.ConnectError("refused"),
        errors.CredentialsNotFoundError("none"),
        errors.AccessDeniedError("no", operation="RunMicrovm", status=403, error_type="AccessDeniedException"),
        errors.SignatureRefusedError("no", operation="RunMicrovm", status=403),
        errors.ThrottledError("slowly", operation="RunMicrovm", status=429),
        errors.CapacityError("full", operation="RunMicrovm", status=500),
        errors.CredentialsExpiredError("late", operation="RunMicrovm", status=403, error_type="ExpiredTokenException"),
        errors.ConflictError("other parameters", operation="RunMicrovm", status=409, error_type="ConflictException"),
        errors.SettingError("AWS_CA_BUNDLE cannot be used"),
        errors.ServiceError("a gateway's page", operation="RunMicrovm", status=404),
        errors.ValidationError("a gateway's page", operation="RunMicrovm", status=400),
        errors.ImageNotFoundError("nobody's words"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_keeps_the_repeated_run_from_its_answer_leaves_it_open(
    control: FakeControl, records: registry.Registry, failure: BaseException
) -> None:
    record = left_by_a_killed_client(control, records)
    control.microvms.failures["run"] = [failure]
    with pytest.raises(type(failure)):
        adopt(record, control)


def test_a_record_that_outlived_every_microvm_is_not_launched_anew(
    control: FakeControl, records: registry.Registry
) -> None:
    record = left_by_a_killed_client(control, records)
    calls = len(control.microvms.calls)
    old = record.replace(created_at=(record.created_at or 0) - 28_801)
    assert adopt(old, control) is None
    assert adopt(record.replace(launch=None), control) is None
    assert len(control.microvms.calls) == calls


@pytest.mark.parametrize("change", [{"unknown": 1}, {"ingress_connectors": 1}, {"idle_policy": {"x": 1}}], ids=str)
def test_a_launch_that_cannot_be_understood_is_a_state_file_error(
    control: FakeControl, records: registry.Registry, change: dict[str, object]
) -> None:
    record = left_by_a_killed_client(control, records)
    with pytest.raises(errors.StateFileError):
        adopt(record.replace(launch={**(record.launch or {}), **change}), control)
    with pytest.raises(errors.StateFileError):
        adopt(record.replace(launch=change), control)


def test_a_payload_is_a_secret_that_no_record_holds(
    control: FakeControl, records: registry.Registry, tmp_path: Path
) -> None:
    record = left_by_a_killed_client(control, records, run_payload="hush-hush")
    assert record.launch is None
    assert "hush-hush" not in json.dumps(json.loads((tmp_path / "state.json").read_text()))


# -- completion --------------------------------------------------------------------------------------------------------


def complete(record: registry.Record, control: FakeControl, records: registry.Registry) -> registry.Record:
    fake: Any = control
    return launch.complete(record, control=fake, registry=records, deadline=NEVER)


def test_a_launch_that_was_cut_off_is_completed_by_the_same_run(
    control: FakeControl, records: registry.Registry
) -> None:
    record = left_by_a_killed_client(control, records, log_group="/aws/x", idle_policy=IdlePolicy(60, 0, False))
    done = complete(record, control, records)
    assert done == records.require("demo")
    assert (done.microvm_id, done.endpoint, done.launch) == ("microvm-1", "https://vm.example", None)
    assert (done.log_group, done.auto_resume) == ("/aws/x", False)
    assert control.microvms.specs[0] == control.microvms.specs[1]


def test_a_launch_that_was_only_slow_is_not_repeated(control: FakeControl, records: registry.Registry) -> None:
    record = left_by_a_killed_client(control, records)
    records.update("demo", microvm_id="microvm-1", launch=None)
    calls = list(control.microvms.calls)
    assert complete(record, control, records).microvm_id == "microvm-1"
    assert control.microvms.calls == calls


@pytest.mark.parametrize(
    ("change", "reason"), [({"launch": None}, "payload"), ({"created_at": 1.0}, "too long ago")], ids=str
)
def test_a_launch_that_cannot_be_repeated_says_why_and_what_to_do(
    control: FakeControl, records: registry.Registry, change: dict[str, Any], reason: str
) -> None:
    record = left_by_a_killed_client(control, records).replace(**change)
    with pytest.raises(errors.MicroVMNotFoundError, match=reason) as caught:
        complete(record, control, records)
    assert "vmnest rm demo" in (caught.value.hint or "")


def test_a_repeated_launch_that_is_refused_tells_how_to_drop_it(
    control: FakeControl, records: registry.Registry
) -> None:
    record = left_by_a_killed_client(control, records)
    control.microvms.failures["run"] = [errors.ImageNotFoundError("deleted")]
    with pytest.raises(errors.ImageNotFoundError) as caught:
        complete(record, control, records)
    assert "vmnest rm demo" in (caught.value.hint or "")
    assert records.require("demo") == record


@pytest.mark.parametrize("successor", [None, registry.Record("demo", client_token="u")], ids=["removed", "replaced"])
def test_a_launch_whose_name_was_taken_away_is_ended_and_not_completed(
    control: FakeControl, records: registry.Registry, successor: registry.Record | None
) -> None:
    record = left_by_a_killed_client(control, records)
    records.remove("demo")
    if successor is not None:
        records.put(successor)
    with pytest.raises(errors.SandboxNotFoundError):
        complete(record, control, records)
    assert control.microvms.alive == []
    assert records.get("demo") == successor


def test_the_end_of_a_record_needs_its_id_alone_and_may_have_come_before(control: FakeControl) -> None:
    fake: Any = control
    assert launch.end(registry.Record("old", microvm_id="microvm-7"), control=fake, deadline=NEVER) == "microvm-7"
    assert control.microvms.calls == ["terminate"]
    assert launch.end(registry.Record("none"), control=fake, deadline=NEVER) is None


def test_microvms_that_may_be_the_lost_one_are_named(control: FakeControl, records: registry.Registry) -> None:
    record = left_by_a_killed_client(control, records, run_payload="hush")
    moment = datetime.fromtimestamp(record.created_at or 0, timezone.utc)
    for number in range(2, 7):
        control.microvms.run(RunSpec(ARN, f"token-{number}"), deadline=NEVER)
    for microvm_id in control.microvms.known:
        control.microvms.change(microvm_id, started_at=moment + timedelta(seconds=2))
    control.microvms.change("microvm-2", started_at=moment - timedelta(hours=1))
    control.microvms.change("microvm-3", started_at=moment + timedelta(hours=1))
    control.microvms.change("microvm-4", state="TERMINATED")
    control.microvms.change("microvm-5", image_arn="arn:of-another")
    records.put(registry.Record("other", microvm_id="microvm-6"))
    with pytest.raises(errors.MicroVMNotFoundError) as caught:
        complete(record, control, records)
    assert caught.value.details["microvm_ids"] == ["microvm-1"]
    assert "microvm-1" in (caught.value.hint or "")
    assert control.microvms.alive == ["microvm-1", "microvm-2", "microvm-3", "microvm-5", "microvm-6"]
