"""What is sent to run, list and end MicroVMs, and which refusals are the image's and which a connector's."""

import json
from datetime import datetime, timezone

import pytest

from tests.support.control import IMAGE_ARN, Controlled, Controls, summary, vm
from tests.support.peers import Answer, json_answer
from vmnest import errors
from vmnest.control.microvms import IdlePolicy, MicroVMSummary, RunSpec
from vmnest.wire import names


def missing(message: str = "MicroVM not found: x") -> Answer:
    return json_answer(404, {"message": message}, headers={"x-amzn-errortype": "ResourceNotFoundException"})


def test_run_sends_what_is_asked_for_and_nothing_else(controls: Controls):
    made = controls(json_answer(200, vm(state="PENDING")))
    made.control.microvms.run(RunSpec(IMAGE_ARN, "token-1"), deadline=made.deadline())
    (request,) = made.peer.requests
    assert (request.method, request.target) == ("POST", "/2025-09-09/microvms")
    assert json.loads(request.body) == {
        "imageIdentifier": IMAGE_ARN,
        "clientToken": "token-1",
        "idlePolicy": {"maxIdleDurationSeconds": 900, "suspendedDurationSeconds": 28800, "autoResumeEnabled": True},
        "maximumDurationInSeconds": 28800,
    }
    assert request.get("vmnest-local-options") is None


def test_run_sends_everything_that_there_is(controls: Controls):
    made = controls(json_answer(200, vm()))
    spec = RunSpec(
        IMAGE_ARN,
        "token-1",
        image_version="2.0",
        execution_role_arn="arn:aws:iam::111122223333:role/x",
        idle_policy=None,
        maximum_duration_seconds=60,
        ingress_connectors=("arn:aws:lambda:us-east-1:aws:network-connector:aws-network-connector:NO_INGRESS",),
        egress_connectors=("arn:aws:lambda:us-east-1:111122223333:network-connector:nc-1",),
        run_payload='{"a":1}',
        log_group="/x",
        local_options={"memory_mib": 512, "cpus": 1},
    )
    made.control.microvms.run(spec, deadline=made.deadline())
    (request,) = made.peer.requests
    assert json.loads(request.body) == {
        "imageIdentifier": IMAGE_ARN,
        "imageVersion": "2.0",
        "executionRoleArn": "arn:aws:iam::111122223333:role/x",
        "maximumDurationInSeconds": 60,
        "ingressNetworkConnectors": list(spec.ingress_connectors),
        "egressNetworkConnectors": list(spec.egress_connectors),
        "runHookPayload": '{"a":1}',
        "logging": {"cloudWatch": {"logGroup": "/x"}},
        "clientToken": "token-1",
    }
    assert request.get("vmnest-local-options") == '{"cpus":1,"memory_mib":512}'
    assert "vmnest-local-options" in request.get("authorization")


def test_a_payload_does_not_print():
    assert "hunter2" not in repr(RunSpec(IMAGE_ARN, "t", run_payload="hunter2"))


def test_a_payload_that_is_too_long_is_not_sent(controls: Controls):
    made = controls()
    with pytest.raises(errors.RequestInvalidError, match="runHookPayload"):
        made.control.microvms.run(RunSpec(IMAGE_ARN, "t", run_payload="x" * 4097), deadline=made.deadline())
    assert made.peer.requests == []


def test_run_on_an_image_that_cannot_run_is_about_the_image(controls: Controls):
    made = controls(missing("No active version found for MicroVM image x"))
    with pytest.raises(errors.ImageNotFoundError, match="No active version found"):
        made.control.microvms.run(RunSpec(IMAGE_ARN, "t"), deadline=made.deadline())


def test_who_names_an_image_that_this_machine_has_not_is_told_which_it_has(controls: Controls):
    made = controls(missing("No active version found for MicroVM image x"))
    image = names.image_arn(region=names.LOCAL_REGION, account=names.LOCAL_ACCOUNT, name="ubuntu")
    with pytest.raises(errors.ImageNotFoundError) as caught:
        made.control.microvms.run(RunSpec(image, "t"), deadline=made.deadline())
    assert "always there is local" in (caught.value.hint or "")


def test_run_with_a_connector_that_is_not_there_is_not_about_the_image(controls: Controls):
    made = controls(missing("Network connector not found for: arn:x"))
    with pytest.raises(errors.ResourceNotFoundError, match="connector not found") as caught:
        made.control.microvms.run(RunSpec(IMAGE_ARN, "t"), deadline=made.deadline())
    assert not isinstance(caught.value, errors.ImageNotFoundError)
    assert caught.value.hint == "Check the connector's ARN and region."


NO_VERSION = "No active version found for MicroVM image x"


def image(**members: object) -> Answer:
    content = {"imageArn": IMAGE_ARN, "name": "demo", "state": "CREATED", "createdAt": 1789463942.026, **members}
    return json_answer(200, content)


def version(state: str = "SUCCESSFUL", status: str = "ACTIVE") -> Answer:
    content = {
        "imageArn": IMAGE_ARN,
        "imageVersion": "2.0",
        "state": state,
        "status": status,
        "baseImageArn": "arn:base",
        "buildRoleArn": "arn:role",
        "codeArtifact": {"uri": "s3://bucket/key"},
        "createdAt": 1789463942.026,
        "updatedAt": 1789463943.026,
    }
    return json_answer(200, content)


def operations(made: Controlled) -> list[str]:
    return [request.target.rpartition("/")[2] for request in made.peer.requests]


def test_a_version_that_became_active_a_moment_ago_is_waited_for(controls: Controls):
    made = controls(missing(NO_VERSION), version(), missing(NO_VERSION), version(), json_answer(200, vm()))
    made.control.microvms.run(RunSpec(IMAGE_ARN, "t", image_version="2.0"), deadline=made.deadline())
    assert operations(made) == ["microvms", "2.0", "microvms", "2.0", "microvms"]
    assert len(made.clock.sleeps) == 2


def test_the_newest_version_is_looked_at_if_none_is_named(controls: Controls):
    made = controls(missing(NO_VERSION), image(latestActiveImageVersion="2.0"), version(), json_answer(200, vm()))
    made.control.microvms.run(RunSpec(IMAGE_ARN, "t"), deadline=made.deadline())
    assert operations(made)[2] == "2.0"
    assert len(made.peer.requests) == 4


@pytest.mark.parametrize(
    "seen",
    [
        [version(status="INACTIVE")],
        [version(state="FAILED")],
        [missing()],
        [json_answer(403, {"message": "not authorized to perform: lambda:GetMicrovmImageVersion"})],
    ],
    ids=["inactive", "failed", "missing", "denied"],
)
def test_a_version_that_cannot_run_is_not_waited_for(controls: Controls, seen):
    made = controls(missing(NO_VERSION), *seen)
    with pytest.raises(errors.ImageNotFoundError, match="No active version found"):
        made.control.microvms.run(RunSpec(IMAGE_ARN, "t", image_version="2.0"), deadline=made.deadline())
    assert len(made.peer.requests) == 2
    assert made.clock.sleeps == []


def test_an_image_without_an_active_version_is_not_waited_for(controls: Controls):
    made = controls(missing(NO_VERSION), image(latestActiveImageVersion=None))
    with pytest.raises(errors.ImageNotFoundError, match="No active version found"):
        made.control.microvms.run(RunSpec(IMAGE_ARN, "t"), deadline=made.deadline())
    assert made.clock.sleeps == []


def test_another_404_is_looked_into_no_further(controls: Controls):
    made = controls(missing("MicroVMImage not found for MicroVMImageID: x"))
    with pytest.raises(errors.ImageNotFoundError):
        made.control.microvms.run(RunSpec(IMAGE_ARN, "t"), deadline=made.deadline())
    assert len(made.peer.requests) == 1


def test_a_version_that_is_never_found_is_waited_for_within_bounds(controls: Controls):
    made = controls(*[missing(NO_VERSION), version()] * 20)
    with pytest.raises(errors.ImageNotFoundError):
        made.control.microvms.run(RunSpec(IMAGE_ARN, "t", image_version="2.0"), deadline=made.deadline(None))
    assert operations(made).count("microvms") == 8


def test_get_reads_every_member(controls: Controls):
    policy = {"maxIdleDurationSeconds": 120, "suspendedDurationSeconds": 0, "autoResumeEnabled": False}
    answer = vm(
        state="TERMINATED",
        stateReason="Success.",
        terminatedAt=1789463950,
        idlePolicy=policy,
        executionRoleArn="role",
        localDetails={"isolation": "namespace"},
    )
    made = controls(json_answer(200, answer))
    microvm = made.control.microvms.get("microvm-1", deadline=made.deadline())
    assert microvm.microvm_id == "microvm-1"
    assert microvm.state == "TERMINATED"
    assert microvm.ended
    assert microvm.state_reason == "Success."
    assert microvm.started_at == datetime(2026, 9, 15, 9, 19, 2, 26000, timezone.utc)
    assert microvm.terminated_at == datetime(2026, 9, 15, 9, 19, 10, tzinfo=timezone.utc)
    assert microvm.idle_policy == IdlePolicy(120, 0, False)
    assert microvm.execution_role_arn == "role"
    assert (microvm.ingress, microvm.egress) == (("in",), ("out",))
    assert microvm.max_duration_seconds == 28800
    assert microvm.raw["localDetails"] == {"isolation": "namespace"}


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("host.example", "https://host.example"),
        ("http://127.0.0.1:80", "http://127.0.0.1:80"),
        ("https://a", "https://a"),
    ],
)
def test_an_endpoint_gets_a_scheme_if_it_has_none(controls: Controls, endpoint, expected):
    made = controls(json_answer(200, vm(endpoint=endpoint)))
    assert made.control.microvms.get("microvm-1", deadline=made.deadline()).endpoint == expected


def test_a_state_that_nobody_knows_is_shown_as_it_is(controls: Controls):
    made = controls(json_answer(200, vm(state="HIBERNATED")))
    microvm = made.control.microvms.get("microvm-1", deadline=made.deadline())
    assert microvm.state == "HIBERNATED"
    assert not microvm.ended


@pytest.mark.parametrize("operation", ["get", "suspend", "resume"])
def test_an_unknown_id_is_an_error_of_its_own(controls: Controls, operation):
    made = controls(missing())
    with pytest.raises(errors.MicroVMNotFoundError, match="MicroVM not found"):
        getattr(made.control.microvms, operation)("microvm-1", deadline=made.deadline())


@pytest.mark.parametrize(
    ("operation", "method", "suffix"),
    [("suspend", "POST", "/suspend"), ("resume", "POST", "/resume"), ("terminate", "DELETE", "")],
)
def test_verbs_go_where_they_belong_without_a_body(controls: Controls, operation, method, suffix):
    made = controls(json_answer(200, {}))
    getattr(made.control.microvms, operation)("microvm-1", deadline=made.deadline())
    (request,) = made.peer.requests
    assert (request.method, request.target) == (method, f"/2025-09-09/microvms/microvm-1{suffix}")
    assert request.body == b""


def test_an_id_is_one_segment_of_the_path(controls: Controls):
    made = controls(json_answer(200, vm()))
    made.control.microvms.get("../a b/%2F?x", deadline=made.deadline())
    assert made.peer.requests[0].target == "/2025-09-09/microvms/..%2Fa%20b%2F%252F%3Fx"


def test_terminating_what_is_gone_is_a_success(controls: Controls):
    made = controls(json_answer(200, {}), missing())
    assert made.control.microvms.terminate("microvm-1", deadline=made.deadline()) is True
    assert made.control.microvms.terminate("microvm-1", deadline=made.deadline()) is False


def test_a_listing_goes_on_through_empty_pages_and_shows_each_once(controls: Controls):
    token = "a+b/c=="
    made = controls(
        json_answer(200, {"items": [], "nextToken": token}),
        json_answer(200, {"items": [summary("m-1"), summary("m-2")], "nextToken": "next"}),
        json_answer(200, {"items": [summary("m-2"), summary("m-3", state="ODD")], "nextToken": None}),
    )
    found = list(made.control.microvms.list(deadline=made.deadline()))
    assert [(one.microvm_id, one.state) for one in found] == [("m-1", "RUNNING"), ("m-2", "RUNNING"), ("m-3", "ODD")]
    assert all(isinstance(one, MicroVMSummary) for one in found)
    targets = [request.target for request in made.peer.requests]
    assert targets[0] == "/2025-09-09/microvms?maxResults=50"
    assert targets[1] == "/2025-09-09/microvms?maxResults=50&nextToken=a%2Bb%2Fc%3D%3D"


def test_a_listing_can_be_narrowed(controls: Controls):
    made = controls(json_answer(200, {"items": []}))
    assert list(made.control.microvms.list(image_arn=IMAGE_ARN, image_version="1.0", deadline=made.deadline())) == []
    assert "imageIdentifier=arn%3A" in made.peer.requests[0].target
    assert "imageVersion=1.0" in made.peer.requests[0].target


def test_a_listing_that_goes_round_in_a_circle_ends(controls: Controls):
    made = controls(*[json_answer(200, {"items": [], "nextToken": token}) for token in ("a", "b", "a")])
    with pytest.raises(errors.AnswerInvalidError, match="circle"):
        list(made.control.microvms.list(deadline=made.deadline()))
