"""The service's contract, driven by boto3: what any target must answer. Here the target is the local cloud."""

import contextlib
import time
import uuid

import pytest
from botocore.exceptions import ClientError

IMAGE = "arn:aws:lambda:us-east-1:000000000000:microvm-image:local"
CONNECTOR = "arn:aws:lambda:us-east-1:aws:network-connector:aws-network-connector:"
RUN_SECONDS = 60
LIFETIME_SECONDS = 300


@pytest.fixture(scope="module")
def service(shared_cloud):
    return shared_cloud.client()


@pytest.fixture(scope="module")
def run(service):
    """Starts MicroVMs that do not outlive the module."""
    with contextlib.ExitStack() as stack:

        def start(**params):
            options = {"imageIdentifier": IMAGE, "maximumDurationInSeconds": LIFETIME_SECONDS, **params}
            started = service.run_microvm(**options)
            stack.callback(service.terminate_microvm, microvmIdentifier=started["microvmId"])
            return started

        yield start


@pytest.fixture(scope="module")
def running(service, run):
    """One that runs, for tests that only look."""
    return wait_for(service, run()["microvmId"], "RUNNING")


def wait_for(service, microvm_id, state):
    end = time.monotonic() + RUN_SECONDS
    while time.monotonic() < end:
        found = service.get_microvm(microvmIdentifier=microvm_id)
        if found["state"] == state:
            return found
        assert found["state"] != "TERMINATED", found.get("stateReason")
        time.sleep(0.05)
    pytest.fail(f"{microvm_id} is not {state} but {found['state']} after {RUN_SECONDS} s")


def refusal(call, **params):
    with pytest.raises(ClientError) as caught:
        call(**params)
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"], answer["Error"]["Message"]


class TestRun:
    def test_a_microvm_is_pending_with_defaults_and_then_runs(self, service, run):
        started = run()
        assert started["state"] == "PENDING"
        assert started["microvmId"].startswith("microvm-")
        uuid.UUID(started["microvmId"].removeprefix("microvm-"))
        assert started["endpoint"]
        assert (started["imageArn"], started["imageVersion"]) == (IMAGE, "1.0")
        assert started["ingressNetworkConnectors"] == [CONNECTOR + "HTTP_INGRESS"]
        assert started["egressNetworkConnectors"] == [CONNECTOR + "INTERNET_EGRESS"]
        found = wait_for(service, started["microvmId"], "RUNNING")
        assert found["endpoint"] == started["endpoint"]
        assert found["startedAt"] == started["startedAt"]
        assert "stateReason" not in found

    def test_an_idle_policy_is_echoed(self, run):
        policy = {"maxIdleDurationSeconds": 120, "suspendedDurationSeconds": 3600, "autoResumeEnabled": True}
        assert run(idlePolicy=policy)["idlePolicy"] == policy

    def test_the_same_client_token_is_the_same_microvm(self, run):
        token = str(uuid.uuid4())
        assert run(clientToken=token)["microvmId"] == run(clientToken=token)["microvmId"]

    def test_a_client_token_with_other_parameters_is_a_conflict(self, service, run):
        token = str(uuid.uuid4())
        run(clientToken=token)
        status, code, _ = refusal(service.run_microvm, imageIdentifier=IMAGE, clientToken=token, runHookPayload="x")
        assert (status, code) == (409, "ConflictException")

    @pytest.mark.parametrize(
        ("params", "status", "code", "message"),
        [
            ({"imageIdentifier": "local"}, 400, "ValidationException", "Malformed ARN - doesn't start with 'arn:'"),
            (
                {"imageIdentifier": IMAGE + "x"},
                404,
                "ResourceNotFoundException",
                f"No active version found for MicroVM image {IMAGE}x",
            ),
            (
                {"imageVersion": "7.0"},
                404,
                "ResourceNotFoundException",
                f"No active version found for MicroVM image {IMAGE} and version 7.0",
            ),
            (
                {"runHookPayload": "x" * 4097},
                400,
                "ValidationException",
                "1 validation error detected: Value at 'runHookPayload' failed to satisfy constraint: "
                "Member must have length less than or equal to 4096",
            ),
            (
                {"ingressNetworkConnectors": [CONNECTOR + "ALL_INGRESS", CONNECTOR + "SHELL_INGRESS"]},
                400,
                "ValidationException",
                "ALL_INGRESS cannot be combined with other ingress network connectors; "
                "use HTTP_INGRESS and/or SHELL_INGRESS instead",
            ),
            (
                {"ingressNetworkConnectors": ["HTTP_INGRESS"]},
                400,
                "ValidationException",
                "Malformed network connector ARN: HTTP_INGRESS",
            ),
            (
                {"egressNetworkConnectors": [CONNECTOR + "NO_EGRESS"]},
                400,
                "ValidationException",
                f"Unrecognized managed network connector ARN: {CONNECTOR}NO_EGRESS",
            ),
            (
                {"egressNetworkConnectors": [CONNECTOR + "INTERNET_EGRESS"] * 2},
                400,
                "ValidationException",
                "Only one egress network connector can be provided",
            ),
        ],
        ids=["name", "image", "version", "payload", "all and shell", "bare connector", "no egress", "two egress"],
    )
    def test_what_cannot_be_run_is_refused_in_the_services_words(self, service, params, status, code, message):
        assert refusal(service.run_microvm, **{"imageIdentifier": IMAGE, **params}) == (status, code, message)

    def test_too_short_an_idle_time_is_refused(self, shared_cloud):
        from botocore.config import Config

        service = shared_cloud.client(config=Config(parameter_validation=False, proxies={}))
        policy = {"maxIdleDurationSeconds": 59, "suspendedDurationSeconds": 0, "autoResumeEnabled": True}
        status, _, message = refusal(service.run_microvm, imageIdentifier=IMAGE, idlePolicy=policy)
        assert status == 400
        assert message.endswith("Member must have value greater than or equal to 60")

    def test_a_missing_member_is_refused(self, shared_cloud):
        from botocore.config import Config

        service = shared_cloud.client(config=Config(parameter_validation=False, proxies={}))
        assert refusal(service.run_microvm) == (
            400,
            "ValidationException",
            "1 validation error detected: Value null at 'imageIdentifier' failed to satisfy constraint: "
            "Member must not be null",
        )


class TestList:
    def test_pages_hold_every_microvm_once_and_no_endpoint(self, service, run):
        started = {run()["microvmId"] for _ in range(3)}
        pages = service.get_paginator("list_microvms").paginate(imageIdentifier=IMAGE, PaginationConfig={"PageSize": 2})
        items = [item for page in pages for item in page["items"]]
        ids = [item["microvmId"] for item in items]
        assert len(ids) == len(set(ids))
        assert started <= set(ids)
        assert set(items[0]) == {"microvmId", "state", "imageArn", "imageVersion", "startedAt"}

    def test_another_image_has_none(self, service):
        assert service.list_microvms(imageIdentifier=IMAGE + "x")["items"] == []


class TestTerminate:
    def test_a_terminated_microvm_stays_readable(self, service, run):
        microvm_id = run()["microvmId"]
        wait_for(service, microvm_id, "RUNNING")
        service.terminate_microvm(microvmIdentifier=microvm_id)
        end = time.monotonic() + RUN_SECONDS
        while (found := service.get_microvm(microvmIdentifier=microvm_id))["state"] != "TERMINATED":
            assert time.monotonic() < end
            time.sleep(0.05)
        assert found["stateReason"] == "Success."
        assert found["terminatedAt"] >= found["startedAt"]
        service.terminate_microvm(microvmIdentifier=microvm_id)
        status, code, message = refusal(service.suspend_microvm, microvmIdentifier=microvm_id)
        assert (status, code) == (400, "ValidationException")
        assert message == f"The MicroVM {microvm_id} has been terminated and its state cannot be changed."

    @pytest.mark.parametrize("operation", ["get_microvm", "terminate_microvm", "suspend_microvm", "resume_microvm"])
    def test_an_unknown_microvm_is_not_found(self, service, operation):
        assert refusal(getattr(service, operation), microvmIdentifier="microvm-x") == (
            404,
            "ResourceNotFoundException",
            "MicroVM not found: microvm-x",
        )

    def test_resuming_a_running_microvm_is_fine(self, service, running):
        service.resume_microvm(microvmIdentifier=running["microvmId"])


class TestTokens:
    def test_a_token_is_a_map_with_one_header(self, service, running):
        token = service.create_microvm_auth_token(
            microvmIdentifier=running["microvmId"], expirationInMinutes=60, allowedPorts=[{"port": 8080}]
        )["authToken"]
        assert list(token) == ["X-aws-proxy-auth"]
        assert token["X-aws-proxy-auth"].count(".") == 4

    def test_61_minutes_are_too_many(self, service, running):
        params = {"microvmIdentifier": running["microvmId"], "expirationInMinutes": 61, "allowedPorts": [{"port": 1}]}
        assert refusal(service.create_microvm_auth_token, **params) == (
            400,
            "ValidationException",
            "ExpirationMinutes 61 exceeded max allowed of 60.",
        )

    def test_a_shell_token_needs_its_connector(self, service, running):
        params = {"microvmIdentifier": running["microvmId"], "expirationInMinutes": 1}
        assert refusal(service.create_microvm_shell_auth_token, **params) == (
            400,
            "ValidationException",
            "Shell access requires SHELL_INGRESS network connector to be configured on the MicroVM.",
        )


class TestImages:
    def test_the_image_and_its_version_are_described(self, service):
        found = service.get_microvm_image(imageIdentifier=IMAGE)
        assert (found["imageArn"], found["state"]) == (IMAGE, "CREATED")
        version = service.get_microvm_image_version(
            imageIdentifier=IMAGE, imageVersion=found["latestActiveImageVersion"]
        )
        assert (version["state"], version["status"]) == ("SUCCESSFUL", "ACTIVE")

    def test_images_versions_and_bases_are_listed(self, service):
        assert IMAGE in [item["imageArn"] for item in service.list_microvm_images()["items"]]
        assert [item["imageVersion"] for item in service.list_microvm_image_versions(imageIdentifier=IMAGE)["items"]]
        assert service.list_managed_microvm_images()["items"][0]["imageArn"].endswith(":microvm-image:al2023-1")

    @pytest.mark.parametrize(
        ("identifier", "status", "message"),
        [
            ("local", 400, "Invalid ARN format: local"),
            (IMAGE + "x", 404, f"MicroVMImage not found for MicroVMImageID: {IMAGE}x"),
        ],
    )
    def test_a_missing_image_is_said_in_the_services_words(self, service, identifier, status, message):
        assert refusal(service.get_microvm_image, imageIdentifier=identifier)[::2] == (status, message)


class TestTags:
    def test_tags_merge_and_go(self, service):
        service.tag_resource(Resource=IMAGE, Tags={"a": "1", "b": "2"})
        service.tag_resource(Resource=IMAGE, Tags={"b": "3"})
        assert service.list_tags(Resource=IMAGE)["Tags"] == {"a": "1", "b": "3"}
        service.untag_resource(Resource=IMAGE, TagKeys=["a", "b"])
        assert service.list_tags(Resource=IMAGE)["Tags"] == {}

    def test_a_microvm_has_no_tags(self, service, running):
        arn = f"arn:aws:lambda:us-east-1:000000000000:microvm:{running['microvmId']}"
        assert refusal(service.list_tags, Resource=arn)[:2] == (400, "ValidationException")


def test_connectors_are_answered_with_a_modelled_error(shared_cloud):
    status, code, _ = refusal(shared_cloud.client("lambda-core").list_network_connectors)
    assert (status, code) == (400, "ValidationException")
