"""The control plane's contract, driven by boto3: what every cloud must answer (see tests/support/live.py)."""

from __future__ import annotations

import uuid

import pytest
from botocore.exceptions import ClientError

CONNECTOR = "arn:aws:lambda:{region}:aws:network-connector:aws-network-connector:"
POLICY = {"maxIdleDurationSeconds": 120, "suspendedDurationSeconds": 3600, "autoResumeEnabled": True}
NONE_THERE = "microvm-00000000-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def cloud(any_cloud):
    return any_cloud


@pytest.fixture(scope="module")
def running(cloud):
    """One that runs, for tests that only look."""
    return cloud.run_ready()


@pytest.fixture(scope="module")
def ended(cloud):
    """One that has run and was terminated."""
    vm = cloud.run_ready()
    cloud.terminate(vm)
    return vm


def connector(cloud, name):
    return CONNECTOR.format(region=cloud.region) + name


def refusal(call, **params):
    with pytest.raises(ClientError) as caught:
        call(**params)
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"], answer["Error"]["Message"]


def violation(message):
    """What the constraint layer answers to one violation."""
    return 400, "ValidationException", f"1 validation error detected: {message}"


class TestRun:
    def test_a_microvm_is_pending_with_defaults_and_then_runs(self, cloud):
        started = cloud.run()
        assert started["state"] == "PENDING"
        assert started["microvmId"].startswith("microvm-")
        uuid.UUID(started["microvmId"].removeprefix("microvm-"))
        assert started["endpoint"]
        assert started["imageArn"] == cloud.image
        assert started["ingressNetworkConnectors"] == [connector(cloud, "HTTP_INGRESS")]
        assert started["egressNetworkConnectors"] == [connector(cloud, "INTERNET_EGRESS")]
        assert {"idlePolicy", "stateReason", "terminatedAt"}.isdisjoint(started)
        found = cloud.wait_for(started, "RUNNING")
        assert {**found, "ResponseMetadata": None} == {**started, "state": "RUNNING", "ResponseMetadata": None}

    def test_it_may_live_eight_hours_unless_told_otherwise(self, cloud):
        started = cloud.run(maximumDurationInSeconds=28800)
        cloud.terminate(started)
        assert started["maximumDurationInSeconds"] == 28800

    def test_a_token_can_be_minted_at_once_and_the_first_requests_are_held_or_refused_with_502(self, cloud):
        started = cloud.run()
        answer = cloud.ask(started, "GET", "/healthz", headers=cloud.mint(started, 8080))
        assert answer.status in (200, 502)
        cloud.wait_ready(started)

    def test_the_idle_policy_is_echoed_while_it_runs_and_while_it_is_suspended(self, cloud):
        vm = cloud.run_ready(idlePolicy=POLICY)
        assert vm["idlePolicy"] == POLICY
        assert cloud.get(vm)["idlePolicy"] == POLICY
        assert cloud.suspend(vm)["idlePolicy"] == POLICY

    def test_the_same_client_token_is_the_same_microvm_even_when_it_is_suspended(self, cloud):
        token = str(uuid.uuid4())
        vm = cloud.run_ready(clientToken=token)
        cloud.suspend(vm)
        again = cloud.run(clientToken=token)
        assert (again["microvmId"], again["endpoint"]) == (vm["microvmId"], vm["endpoint"])
        assert again["state"] == "SUSPENDED"

    def test_a_client_token_with_other_parameters_is_a_conflict(self, cloud, running):
        token = str(uuid.uuid4())
        cloud.run(clientToken=token)
        params = {"imageIdentifier": cloud.image, "maximumDurationInSeconds": 61, "clientToken": token}
        assert refusal(cloud.api.run_microvm, **params)[:2] == (409, "ConflictException")

    def test_a_payload_of_4096_characters_is_taken_and_never_shown(self, cloud):
        started = cloud.run(runHookPayload="x" * 4096)
        assert "runHookPayload" not in started
        assert "runHookPayload" not in cloud.get(started)

    @pytest.mark.parametrize(
        ("params", "status", "code", "message"),
        [
            ({"imageIdentifier": "local"}, 400, "ValidationException", "Malformed ARN - doesn't start with 'arn:'"),
            (
                {"imageIdentifier": "{image}-x"},
                404,
                "ResourceNotFoundException",
                "No active version found for MicroVM image {image}-x",
            ),
            (
                {"imageVersion": "9999.0"},
                404,
                "ResourceNotFoundException",
                "No active version found for MicroVM image {image} and version 9999.0",
            ),
            (
                {"ingressNetworkConnectors": ["HTTP_INGRESS"]},
                400,
                "ValidationException",
                "Malformed network connector ARN: HTTP_INGRESS",
            ),
            (
                {"egressNetworkConnectors": ["{connector}NO_EGRESS"]},
                400,
                "ValidationException",
                "Unrecognized managed network connector ARN: {connector}NO_EGRESS",
            ),
            (
                {"egressNetworkConnectors": ["{connector}INTERNET_EGRESS"] * 2},
                400,
                "ValidationException",
                "Only one egress network connector can be provided",
            ),
        ],
        ids=["name", "image", "version", "bare connector", "no egress", "two egress"],
    )
    def test_what_cannot_be_run_is_refused_in_the_services_words(self, cloud, params, status, code, message):
        def fill(value):
            if isinstance(value, list):
                return [fill(item) for item in value]
            return value.format(image=cloud.image, connector=connector(cloud, ""))

        filled = {"imageIdentifier": cloud.image, **{name: fill(value) for name, value in params.items()}}
        assert refusal(cloud.api.run_microvm, **filled) == (status, code, fill(message))

    def test_all_ingress_cannot_be_combined(self, cloud):
        """Some met this refusal at RunMicrovm, some when they minted a token: either is the service's."""
        both = [connector(cloud, "ALL_INGRESS"), connector(cloud, "SHELL_INGRESS")]

        def run_and_mint():
            cloud.mint(cloud.run(ingressNetworkConnectors=both), 8080)

        assert refusal(run_and_mint) == (
            400,
            "ValidationException",
            "ALL_INGRESS cannot be combined with other ingress network connectors; "
            "use HTTP_INGRESS and/or SHELL_INGRESS instead",
        )

    def test_a_missing_member_is_refused(self, cloud):
        assert refusal(cloud.unchecked.run_microvm) == violation(
            "Value null at 'imageIdentifier' failed to satisfy constraint: Member must not be null"
        )

    def test_a_payload_of_4097_characters_is_refused_and_not_repeated(self, cloud):
        assert refusal(cloud.api.run_microvm, imageIdentifier=cloud.image, runHookPayload="x" * 4097) == violation(
            "Value at 'runHookPayload' failed to satisfy constraint: Member must have length less than or equal to 4096"
        )

    @pytest.mark.parametrize(
        "policy", [{"maxIdleDurationSeconds": 59}, {"suspendedDurationSeconds": -1}], ids=["idle", "suspended"]
    )
    def test_an_idle_policy_below_its_minimum_is_refused(self, cloud, policy):
        params = {"imageIdentifier": cloud.image, "idlePolicy": {**POLICY, **policy}}
        (name,) = policy
        minimum = 60 if name == "maxIdleDurationSeconds" else 0
        status, code, message = refusal(cloud.unchecked.run_microvm, **params)
        assert (status, code) == (400, "ValidationException")
        assert message.startswith("1 validation error detected: ")
        assert f"'idlePolicy.{name}'" in message
        assert message.endswith(f"Member must have value greater than or equal to {minimum}")

    def test_an_idle_time_above_eight_hours_is_refused(self, cloud):
        params = {"imageIdentifier": cloud.image, "idlePolicy": {**POLICY, "maxIdleDurationSeconds": 28801}}
        assert refusal(cloud.api.run_microvm, **params)[:2] == (400, "ValidationException")

    @pytest.mark.parametrize("missing", sorted(POLICY))
    def test_an_idle_policy_needs_all_its_members(self, cloud, missing):
        policy = {name: value for name, value in POLICY.items() if name != missing}
        status, code, message = refusal(cloud.unchecked.run_microvm, imageIdentifier=cloud.image, idlePolicy=policy)
        assert (status, code) == (400, "ValidationException")
        assert f"Value null at 'idlePolicy.{missing}' failed to satisfy constraint: Member must not be null" in message

    @pytest.mark.parametrize(
        ("seconds", "bound"), [(0, "greater than or equal to 1"), (28801, "less than or equal to 28800")]
    )
    def test_a_life_of_no_or_too_many_seconds_is_refused(self, cloud, seconds, bound):
        params = {"imageIdentifier": cloud.image, "maximumDurationInSeconds": seconds}
        status, code, message = refusal(cloud.unchecked.run_microvm, **params)
        assert (status, code) == (400, "ValidationException")
        assert "'maximumDurationInSeconds'" in message
        assert message.endswith(f"Member must have value {bound}")

    def test_all_violations_come_together(self, cloud):
        params = {"runHookPayload": "x" * 4097, "idlePolicy": {**POLICY, "maxIdleDurationSeconds": 59}}
        status, code, message = refusal(cloud.unchecked.run_microvm, maximumDurationInSeconds=0, **params)
        assert (status, code) == (400, "ValidationException")
        assert message.startswith("4 validation errors detected: ")
        for name in ("imageIdentifier", "runHookPayload", "idlePolicy.maxIdleDurationSeconds"):
            assert f"'{name}'" in message


class TestList:
    def test_pages_hold_every_microvm_once_and_no_endpoint(self, cloud):
        started = {cloud.run()["microvmId"] for _ in range(3)}
        pages = cloud.api.get_paginator("list_microvms").paginate(
            imageIdentifier=cloud.image, PaginationConfig={"PageSize": 2}
        )
        items = [item for page in pages for item in page["items"]]
        ids = [item["microvmId"] for item in items]
        assert len(ids) == len(set(ids))
        assert started <= set(ids)
        assert set(items[0]) == {"microvmId", "state", "imageArn", "imageVersion", "startedAt"}

    def test_another_image_has_none(self, cloud):
        assert cloud.api.list_microvms(imageIdentifier=f"{cloud.image}-x")["items"] == []

    def test_what_has_ended_stays_listed(self, cloud, ended):
        pages = cloud.api.get_paginator("list_microvms").paginate(imageIdentifier=cloud.image)
        states = {item["microvmId"]: item["state"] for page in pages for item in page["items"]}
        assert states[ended["microvmId"]] == "TERMINATED"


class TestTerminate:
    def test_a_terminated_microvm_stays_readable_with_its_reason(self, cloud, ended):
        found = cloud.get(ended)
        assert (found["state"], found["stateReason"]) == ("TERMINATED", "Success.")
        assert found["terminatedAt"] >= found["startedAt"]

    def test_terminating_it_again_is_fine(self, cloud, ended):
        cloud.api.terminate_microvm(microvmIdentifier=ended["microvmId"])
        assert cloud.get(ended)["stateReason"] == "Success."

    @pytest.mark.parametrize("operation", ["suspend_microvm", "resume_microvm"])
    def test_its_state_cannot_be_changed(self, cloud, ended, operation):
        microvm_id = ended["microvmId"]
        assert refusal(getattr(cloud.api, operation), microvmIdentifier=microvm_id) == (
            400,
            "ValidationException",
            f"The MicroVM {microvm_id} has been terminated and its state cannot be changed.",
        )

    def test_a_microvm_that_has_just_begun_to_start_can_be_terminated(self, cloud):
        assert cloud.terminate(cloud.run())["stateReason"] == "Success."

    @pytest.mark.parametrize("operation", ["get_microvm", "terminate_microvm", "suspend_microvm", "resume_microvm"])
    def test_an_unknown_microvm_is_not_found(self, cloud, operation):
        assert refusal(getattr(cloud.api, operation), microvmIdentifier=NONE_THERE) == (
            404,
            "ResourceNotFoundException",
            f"MicroVM not found: {NONE_THERE}",
        )


class TestTokens:
    def test_a_token_is_a_map_with_one_header(self, cloud, running):
        token = cloud.mint(running, 8080, minutes=60)
        assert list(token) == ["X-aws-proxy-auth"]
        parts = token["X-aws-proxy-auth"].split(".")
        assert (len(parts), parts[1]) == (5, "")

    def test_61_minutes_are_too_many(self, cloud, running):
        params = {"microvmIdentifier": running["microvmId"], "expirationInMinutes": 61, "allowedPorts": [{"port": 1}]}
        assert refusal(cloud.api.create_microvm_auth_token, **params) == (
            400,
            "ValidationException",
            "ExpirationMinutes 61 exceeded max allowed of 60.",
        )

    def test_ports_are_needed_and_lie_within_bounds(self, cloud, running):
        params = {"microvmIdentifier": running["microvmId"], "expirationInMinutes": 1}
        for ports in ([], [{"port": 0}], [{"port": 65536}]):
            status, code, _ = refusal(cloud.unchecked.create_microvm_auth_token, allowedPorts=ports, **params)
            assert (status, code) == (400, "ValidationException")

    def test_a_token_can_be_minted_for_a_port_where_nobody_listens(self, cloud, running):
        assert cloud.mint(running, 65535)

    def test_an_unknown_microvm_has_none(self, cloud):
        params = {"microvmIdentifier": NONE_THERE, "expirationInMinutes": 1, "allowedPorts": [{"port": 8080}]}
        assert refusal(cloud.api.create_microvm_auth_token, **params) == (
            404,
            "ResourceNotFoundException",
            f"MicroVM not found: {NONE_THERE}",
        )

    def test_a_shell_token_needs_its_connector(self, cloud, running):
        params = {"microvmIdentifier": running["microvmId"], "expirationInMinutes": 1}
        assert refusal(cloud.api.create_microvm_shell_auth_token, **params) == (
            400,
            "ValidationException",
            "Shell access requires SHELL_INGRESS network connector to be configured on the MicroVM.",
        )


class TestImages:
    def test_the_image_and_its_version_are_described(self, cloud):
        found = cloud.api.get_microvm_image(imageIdentifier=cloud.image)
        assert found["imageArn"] == cloud.image
        assert found["state"] in {"CREATED", "UPDATED"}
        version = cloud.api.get_microvm_image_version(
            imageIdentifier=cloud.image, imageVersion=found["latestActiveImageVersion"]
        )
        assert (version["state"], version["status"]) == ("SUCCESSFUL", "ACTIVE")

    def test_images_versions_and_bases_are_listed(self, cloud):
        pages = cloud.api.get_paginator("list_microvm_images").paginate()
        assert cloud.image in [item["imageArn"] for page in pages for item in page["items"]]
        assert cloud.api.list_microvm_image_versions(imageIdentifier=cloud.image)["items"]
        bases = [item["imageArn"] for item in cloud.api.list_managed_microvm_images()["items"]]
        assert any(base.endswith(":aws:microvm-image:al2023-1") for base in bases)

    def test_a_bare_name_is_no_identifier(self, cloud):
        answer = refusal(cloud.api.get_microvm_image, imageIdentifier="local")
        assert answer == (400, "ValidationException", "Invalid ARN format: local")

    def test_a_missing_image_is_said_in_the_services_words(self, cloud):
        assert refusal(cloud.api.get_microvm_image, imageIdentifier=f"{cloud.image}-x") == (
            404,
            "ResourceNotFoundException",
            f"MicroVMImage not found for MicroVMImageID: {cloud.image}-x",
        )


class TestTags:
    def test_tags_merge_and_go(self, cloud):
        tags = {"vmnest-contract-a": "1", "vmnest-contract-b": "2"}

        def found():
            all_tags = cloud.api.list_tags(Resource=cloud.image)["Tags"]
            return {name: value for name, value in all_tags.items() if name in tags}

        cloud.api.tag_resource(Resource=cloud.image, Tags=tags)
        cloud.api.tag_resource(Resource=cloud.image, Tags={"vmnest-contract-b": "3"})
        assert found() == {"vmnest-contract-a": "1", "vmnest-contract-b": "3"}
        cloud.api.untag_resource(Resource=cloud.image, TagKeys=list(tags))
        assert found() == {}

    def test_a_microvm_has_no_tags(self, cloud, running):
        arn = cloud.image.rpartition("microvm-image:")[0] + f"microvm:{running['microvmId']}"
        assert refusal(cloud.api.list_tags, Resource=arn)[:2] == (400, "ValidationException")
