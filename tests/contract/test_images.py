"""Image operations, driven by boto3 against the local cloud: what AWS was seen to answer, word for word.

Local alone: on AWS each build takes minutes, and costs.
"""

from __future__ import annotations

import json
import uuid
from datetime import datetime

import pytest
from botocore.exceptions import ClientError

from tests.support.cloud import open_cloud, start_daemon
from tests.support.image_works import ARN, BASE, BUCKET, CONNECTOR, ENDLESS, FAILING, Works
from vmnest import rendezvous


def refusal(call, **params):
    with pytest.raises(ClientError) as caught:
        call(**params)
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"], answer["Error"]["Message"]


def invalid(message):
    return 400, "ValidationException", message


def missing(message):
    return 404, "ResourceNotFoundException", message


def status(answer):
    return answer["ResponseMetadata"]["HTTPStatusCode"]


def bare(answer):
    return {name: value for name, value in answer.items() if name != "ResponseMetadata"}


@pytest.fixture(scope="module")
def works(shared_cloud):
    return Works(shared_cloud)


@pytest.fixture
def own_works(local_cloud):
    """For tests whose builds do not end."""
    return Works(local_cloud)


@pytest.fixture(scope="module")
def built(works):
    """An image for tests that only look: version 1.0 was built, 2.0 failed, 3.0 was built."""
    arn = works.create(name="looked-at", tags={"team": "blue"})
    works.update(arn, FAILING)
    works.update(arn, description="third")
    return arn


class TestCreate:
    def test_it_is_answered_201_creating_and_is_created_then(self, works):
        made = works.api.create_microvm_image(name="first", **works.settings())
        assert status(made) == 201
        assert {**bare(made), "createdAt": None, "updatedAt": None} == {
            **works.settings(),
            "imageArn": f"{ARN}first",
            "name": "first",
            "state": "CREATING",
            "imageVersion": "1.0",
            "createdAt": None,
            "updatedAt": None,
            "baseImageVersion": "1.0",
            "egressNetworkConnectors": [f"{CONNECTOR}INTERNET_EGRESS"],
            "resources": [{"minimumMemoryInMiB": 2048}],
        }
        assert isinstance(made["createdAt"], datetime)
        found = works.settle(f"{ARN}first")
        assert (found["state"], found["latestActiveImageVersion"], found["tags"]) == ("CREATED", "1.0", {})
        assert found["updatedAt"] >= found["createdAt"] == made["createdAt"]

    def test_absent_members_are_null_and_some_are_in_no_model(self, works):
        bodies = []
        works.api.meta.events.register_last(
            "after-call", lambda http_response, **_: bodies.append(json.loads(http_response.content)), "bodies"
        )
        try:
            arn = works.api.create_microvm_image(name="nulls", **works.settings())["imageArn"]
            works.settle(arn)
            build = works.builds(arn)[0]
            works.api.get_microvm_image_build(imageIdentifier=arn, imageVersion="1.0", buildId=build["buildId"])
            works.version(arn)
        finally:
            works.api.meta.events.unregister("after-call", unique_id="bodies")
        made, *_, listed, shown, version = bodies
        unknown = {"id": made["id"], "buildPhaseOverrides": None, "roleConfiguration": None}
        absent = [
            *("description", "logging", "cpuConfigurations", "additionalOsCapabilities", "hooks", "tags"),
            *("environmentVariables", "kmsKeyIdentifier", "latestActiveImageVersion", "latestFailedImageVersion"),
        ]
        assert {name: made[name] for name in [*unknown, *absent]} == {**unknown, **dict.fromkeys(absent)}
        uuid.UUID(made["id"])
        assert listed["nextToken"] is None
        assert {name: shown[name] for name in ("stateReason", "terminationReasonCode")} == {
            "stateReason": None,
            "terminationReasonCode": None,
        }
        assert version["versionStateTimeBucket"].startswith("SUCCESSFUL#")
        assert (version["tags"], version["stateReason"]) == (None, None)

    def test_whatever_was_given_is_echoed(self, works):
        given = {
            "description": "all of it",
            "baseImageVersion": "0.0",
            "logging": {"cloudWatch": {"logGroup": "/mine", "logStream": "one"}},
            "cpuConfigurations": [{"architecture": "ARM_64"}],
            "resources": [{"minimumMemoryInMiB": 512}],
            "additionalOsCapabilities": ["ALL"],
            "hooks": {"microvmHooks": {"run": "DISABLED", "runTimeoutInSeconds": 5}},
            "environmentVariables": {"A": "ä", "B": ""},
            "egressNetworkConnectors": [f"{CONNECTOR}INTERNET_EGRESS"],
        }
        made = works.api.create_microvm_image(name="echo", tags={"a": "b"}, **works.settings(**given))
        assert {name: made[name] for name in given} == given
        assert made["tags"] == {"a": "b"}
        works.settle(made["imageArn"])
        version = works.version(made["imageArn"])
        assert {name: version[name] for name in given} == given
        logs = works.cloud.client("logs").get_log_events(logGroupName="/mine", logStreamName="one")
        assert logs["events"]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"name": "looked-at"}, "A MicroVM image with the name 'looked-at' already exists in this account"),
            ({"name": "local"}, "A MicroVM image with the name 'local' already exists in this account"),
            (
                {"codeArtifact": {"uri": "https://example.com/x.zip"}},
                "CodeArtifact URI must be a valid S3 URI in the format: s3://<bucket>/<key>",
            ),
            ({"baseImageVersion": "999"}, f"No managed MicroVM Image with arn {BASE} and version 999 is available"),
            (
                {"resources": [{"minimumMemoryInMiB": 3000}]},
                f"The requested memory size of 3000 MiB is not supported by base MicroVM image {BASE}. "
                "Supported memory sizes in MiB are: [512, 1024, 2048, 4096, 8192].",
            ),
            ({"environmentVariables": {"AWS_REGION": "x"}}, "Environment variable key 'AWS_REGION' is reserved"),
            (
                {"hooks": {"port": 9000, "microvmHooks": {"run": "ENABLED"}}},
                "The ready (/ready) MicroVM image hook must be enabled when any MicroVM lifecycle hook "
                "(run, resume, suspend, or terminate) is enabled.",
            ),
            ({"egressNetworkConnectors": ["x"]}, "Malformed network connector ARN: x"),
            (
                {"egressNetworkConnectors": [f"{CONNECTOR}NO_EGRESS"]},
                f"Unrecognized managed network connector ARN: {CONNECTOR}NO_EGRESS",
            ),
            (
                {"buildRoleArn": "arn:aws:iam::000000000000:role/nobody"},
                "The role arn:aws:iam::000000000000:role/nobody cannot be assumed by Lambda.",
            ),
        ],
        ids=["name", "built in", "artifact", "base", "memory", "variable", "hooks", "connector", "egress", "role"],
    )
    def test_what_cannot_be_built_is_refused_in_the_services_words(self, works, built, changes, message):
        params = {**works.settings(), "name": "refused", **changes}
        assert refusal(works.api.create_microvm_image, **params) == invalid(message)

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            (
                {"name": "x", "baseImageArn": BASE, "buildRoleArn": "arn:aws:iam::000000000000:role/build"},
                "1 validation error detected: Value null at 'codeArtifact' failed to satisfy constraint: "
                "Member must not be null",
            ),
            (
                {"name": "x"},
                "3 validation errors detected: "
                "Value null at 'baseImageArn' failed to satisfy constraint: Member must not be null; "
                "Value null at 'codeArtifact' failed to satisfy constraint: Member must not be null; "
                "Value null at 'buildRoleArn' failed to satisfy constraint: Member must not be null",
            ),
        ],
        ids=["one", "several"],
    )
    def test_all_that_is_missing_is_told_together(self, works, params, message):
        assert refusal(works.unchecked.create_microvm_image, **params) == invalid(message)

    def test_a_name_has_a_pattern(self, works):
        assert refusal(works.api.create_microvm_image, name="bad name!", **works.settings()) == invalid(
            "1 validation error detected: Value 'bad name!' at 'name' failed to satisfy constraint: "
            "Member must satisfy regular expression pattern: [a-zA-Z0-9-_]+"
        )

    @pytest.mark.parametrize("reuse", ["create", "update"])
    def test_a_client_token_is_for_ever(self, works, reuse):
        token, name = str(uuid.uuid4()), f"once-{reuse}"
        params = {"name": name, "clientToken": token, **works.settings()}
        if reuse == "update":
            params = {"imageIdentifier": works.create(name=name), "clientToken": token, **works.settings()}
        call = getattr(works.api, f"{reuse}_microvm_image")
        first = call(**params)
        assert bare(call(**params)) == bare(first)
        works.settle(f"{ARN}{name}")
        assert refusal(call, **{**params, "description": "other"})[:2] == (409, "ConflictException")
        works.api.delete_microvm_image(imageIdentifier=f"{ARN}{name}")
        assert works.settle(f"{ARN}{name}") is None
        # It replays what was answered, and makes nothing.
        again = call(**params)
        assert (bare(again), status(again)) == (bare(first), status(first))
        assert works.settle(f"{ARN}{name}") is None


class TestUpdate:
    def test_it_makes_the_next_version_of_what_is_given_and_of_nothing_else(self, works):
        arn = works.create(description="d", environmentVariables={"A": "1"}, resources=[{"minimumMemoryInMiB": 512}])
        made = works.api.update_microvm_image(imageIdentifier=arn, **works.settings())
        assert (status(made), made["state"], made["imageVersion"]) == (200, "UPDATING", "2.0")
        assert made["latestActiveImageVersion"] == "1.0"
        assert made["resources"] == [{"minimumMemoryInMiB": 2048}]
        assert {"description", "environmentVariables", "tags"}.isdisjoint(made)
        found = works.settle(arn)
        assert (found["state"], found["latestActiveImageVersion"]) == ("UPDATED", "2.0")
        assert {"description", "environmentVariables"}.isdisjoint(works.version(arn, "2"))
        assert works.version(arn)["description"] == "d"

    def test_it_wants_all_that_an_image_needs(self, works, built):
        _, code, message = refusal(works.unchecked.update_microvm_image, imageIdentifier=built)
        assert (code, message[:28]) == ("ValidationException", "3 validation errors detected")

    def test_its_image_must_be_there(self, works):
        answer = refusal(works.api.update_microvm_image, imageIdentifier=f"{ARN}nowhere", **works.settings())
        assert answer == missing(f"MicroVMImage not found for MicroVMImageID: {ARN}nowhere")


class TestFailure:
    def test_a_failed_build_is_a_version_with_a_reason_in_its_builds(self, works):
        arn = works.create(FAILING)
        image = works.api.get_microvm_image(imageIdentifier=arn)
        assert (image["state"], image["latestFailedImageVersion"]) == ("CREATE_FAILED", "1.0")
        assert "latestActiveImageVersion" not in image
        version = works.version(arn)
        assert (version["state"], version["status"]) == ("FAILED", "INACTIVE")
        builds = works.builds(arn)
        assert [build["buildState"] for build in builds] == ["FAILED", "FAILED"]
        assert all(build["stateReason"].startswith("The container image build failed.") for build in builds)
        shown = works.api.get_microvm_image_build(imageIdentifier=arn, imageVersion="1", buildId=builds[0]["buildId"])
        assert "snapshotBuild" not in shown
        assert refusal(works.api.run_microvm, imageIdentifier=arn) == missing(
            f"No active version found for MicroVM image {arn}"
        )

    def test_numbers_go_on_and_the_version_before_stays(self, works, built):
        image = works.api.get_microvm_image(imageIdentifier=built)
        assert (image["state"], image["latestActiveImageVersion"]) == ("UPDATED", "3.0")
        assert image["latestFailedImageVersion"] == "2.0"
        items = works.api.list_microvm_image_versions(imageIdentifier=built)["items"]
        assert [(item["imageVersion"], item["state"], item["status"]) for item in items] == [
            ("1.0", "SUCCESSFUL", "ACTIVE"),
            ("2.0", "FAILED", "INACTIVE"),
            ("3.0", "SUCCESSFUL", "ACTIVE"),
        ]

    @pytest.mark.parametrize(
        ("uri", "code"),
        [("s3://nowhere/x.zip", "S3_NO_SUCH_BUCKET"), (f"s3://{BUCKET}/x.zip", "S3_NO_SUCH_KEY")],
    )
    def test_an_artifact_is_looked_for_by_the_build(self, works, uri, code):
        arn = works.create(codeArtifact={"uri": uri})
        assert {build["stateReason"].partition(":")[0] for build in works.builds(arn)} == {code}


class TestLooking:
    def test_versions_come_in_pages(self, works, built):
        pages = works.api.get_paginator("list_microvm_image_versions").paginate(
            imageIdentifier=built, PaginationConfig={"PageSize": 1}
        )
        found = [item for page in pages for item in page["items"]]
        assert [item["imageVersion"] for item in found] == ["1.0", "2.0", "3.0"]
        assert found[2] == bare(works.version(built, "3"))
        assert found[2]["tags"] == {"team": "blue"}

    def test_images_come_in_pages_that_are_cut_before_names_are_looked_at(self, works, built):
        pages = list(
            works.api.get_paginator("list_microvm_images").paginate(
                nameFilter="looked", PaginationConfig={"PageSize": 1}
            )
        )
        found = [item for page in pages for item in page["items"]]
        assert [item["imageArn"] for item in found] == [built]
        assert len(pages) > 1
        assert set(found[0]) == {
            *("createdAt", "imageArn", "name", "state", "latestActiveImageVersion", "latestFailedImageVersion")
        }

    def test_a_version_has_two_builds(self, works, built):
        builds = works.builds(built)
        assert [
            (item["architecture"], item["chipset"], item["chipsetGeneration"], item["buildState"]) for item in builds
        ] == [("ARM_64", "GRAVITON", "4", "SUCCESSFUL"), ("ARM_64", "GRAVITON", "3", "SUCCESSFUL")]
        assert works.builds(built, "1", chipsetGeneration="3") == builds[1:]
        assert works.builds(built, "1", architecture="X86_64") == []
        pages = works.api.get_paginator("list_microvm_image_builds").paginate(
            imageIdentifier=built, imageVersion="1", PaginationConfig={"PageSize": 1}
        )
        assert [item for page in pages for item in page["items"]] == builds
        shown = works.api.get_microvm_image_build(imageIdentifier=built, imageVersion="1", buildId=builds[1]["buildId"])
        sizes = shown.pop("snapshotBuild")
        assert bare(shown) == builds[1]
        assert set(sizes) == {"codeInstallSizeInBytes", "diskSnapshotSizeInBytes"}

    def test_there_is_a_base_with_two_versions(self, works):
        pages = works.api.get_paginator("list_managed_microvm_images").paginate()
        assert [item["imageArn"] for page in pages for item in page["items"]] == [BASE]
        pages = works.api.get_paginator("list_managed_microvm_image_versions").paginate(
            imageIdentifier=BASE, PaginationConfig={"PageSize": 1}
        )
        items = [item for page in pages for item in page["items"]]
        assert [(item["imageVersion"], item["status"]) for item in items] == [("1", "AVAILABLE"), ("0", "AVAILABLE")]

    @pytest.mark.parametrize(
        ("operation", "params"),
        [
            ("get_microvm_image", {}),
            ("delete_microvm_image", {}),
            ("list_microvm_image_versions", {}),
            ("get_microvm_image_version", {"imageVersion": "1.0"}),
            ("delete_microvm_image_version", {"imageVersion": "1.0"}),
            ("update_microvm_image_version", {"imageVersion": "1.0", "status": "ACTIVE"}),
            ("list_microvm_image_builds", {"imageVersion": "1.0"}),
            ("get_microvm_image_build", {"imageVersion": "1.0", "buildId": "x"}),
            ("list_managed_microvm_image_versions", {}),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_what_is_missing_is_said_in_the_services_words(self, works, built, operation, params):
        call = getattr(works.api, operation)
        assert refusal(call, imageIdentifier=f"{ARN}nowhere", **params) == missing(
            f"MicroVMImage not found for MicroVMImageID: {ARN}nowhere"
        )
        assert refusal(call, imageIdentifier="nowhere", **params) == invalid("Invalid ARN format: nowhere")
        if "imageVersion" in params:
            assert refusal(call, imageIdentifier=built, **{**params, "imageVersion": "9.0"}) == missing(
                f"MicroVMImage not found for MicroVMImage: {built}, Version: 9.0"
            )

    def test_members_of_a_refusal_are_there_and_null(self, works):
        with pytest.raises(ClientError) as caught:
            works.api.get_microvm_image(imageIdentifier=f"{ARN}nowhere")
        assert caught.value.response["ResponseMetadata"]["HTTPHeaders"]["x-amzn-errortype"] == (
            "ResourceNotFoundException"
        )


class TestRunning:
    def test_a_microvm_runs_what_was_built(self, works, built):
        for pinned in ({}, {"imageVersion": "1"}, {"imageVersion": "1.0"}):
            vm = works.run(built, **pinned)
            assert (vm["imageArn"], vm["imageVersion"]) == (built, "1.0" if pinned else "3.0")
            works.terminate(vm["microvmId"])

    def test_an_inactive_version_is_not_run(self, works):
        arn = works.create()
        works.update(arn)
        params = {"imageIdentifier": arn, "imageVersion": "2", "status": "INACTIVE"}
        changed = works.api.update_microvm_image_version(**params)
        assert (changed["imageVersion"], changed["state"], changed["status"]) == ("2.0", "SUCCESSFUL", "INACTIVE")
        assert bare(changed) == bare(works.version(arn, "2.0"))
        assert works.api.get_microvm_image(imageIdentifier=arn)["latestActiveImageVersion"] == "1.0"
        for label in ("2", "2.0"):
            assert refusal(works.api.run_microvm, imageIdentifier=arn, imageVersion=label) == missing(
                f"No active version found for MicroVM image {arn} and version {label}"
            )
        works.api.update_microvm_image_version(**{**params, "imageVersion": "1"})
        assert refusal(works.api.run_microvm, imageIdentifier=arn) == missing(
            f"No active version found for MicroVM image {arn}"
        )
        assert works.api.update_microvm_image_version(**{**params, "status": "ACTIVE"})["status"] == "ACTIVE"

    def test_a_payload_needs_the_run_hook(self, works, built):
        assert refusal(works.api.run_microvm, imageIdentifier=built, runHookPayload="x") == invalid(
            "The run hook must be enabled in the MicroVM image to pass the run hook payload"
        )
        assert (
            "length less than or equal to 4096"
            in refusal(works.api.run_microvm, imageIdentifier=built, runHookPayload="x" * 4097)[2]
        )


class TestDelete:
    def test_an_image_is_gone_after_a_while_and_once_more_is_no_error(self, works):
        arn = works.create(tags={"a": "b"})
        answer = works.api.delete_microvm_image(imageIdentifier=arn)
        assert bare(answer) == {"imageIdentifier": arn, "state": "DELETING"}
        assert works.settle(arn) is None
        assert status(works.api.delete_microvm_image(imageIdentifier=arn)) == 200
        assert refusal(works.api.list_tags, Resource=arn)[0] == 404
        assert refusal(works.api.run_microvm, imageIdentifier=arn)[2] == (
            f"No active version found for MicroVM image {arn}"
        )
        # Its name is free.
        assert works.create(name=arn.rpartition(":")[2]) == arn
        assert works.api.list_tags(Resource=arn)["Tags"] == {}

    def test_one_with_microvms_stays(self, works):
        arn = works.create()
        vm = works.run(arn)
        assert refusal(works.api.delete_microvm_image, imageIdentifier=arn) == invalid(
            "Cannot delete microvm image with running microvms."
        )
        works.terminate(vm["microvmId"])
        works.api.delete_microvm_image(imageIdentifier=arn)
        assert works.settle(arn) is None

    def test_versions_go_one_by_one_but_for_the_last(self, works):
        arn = works.create()
        works.update(arn)
        vm = works.run(arn, imageVersion="1")
        answer = works.api.delete_microvm_image_version(imageIdentifier=arn, imageVersion="1.0")
        assert bare(answer) == {"imageIdentifier": arn, "imageVersion": "1.0", "state": "DELETING"}
        assert works.settle(arn)["state"] == "UPDATED"
        assert refusal(works.version, arn=arn) == missing(
            f"MicroVMImage not found for MicroVMImage: {arn}, Version: 1.0"
        )
        assert status(works.api.delete_microvm_image_version(imageIdentifier=arn, imageVersion="1.0")) == 200
        assert refusal(works.api.delete_microvm_image_version, imageIdentifier=arn, imageVersion="2.0") == invalid(
            "This is the last version. Please delete the entire image"
        )
        assert works.api.get_microvm(microvmIdentifier=vm["microvmId"])["state"] == "RUNNING"
        works.terminate(vm["microvmId"])

    @pytest.mark.parametrize("operation", ["delete_microvm_image", "update_microvm_image"])
    def test_the_built_in_image_stays(self, works, operation):
        params = works.settings() if operation == "update_microvm_image" else {}
        assert refusal(getattr(works.api, operation), imageIdentifier=f"{ARN}local", **params)[0] == 400
        assert works.api.get_microvm_image(imageIdentifier=f"{ARN}local")["state"] == "CREATED"


class TestTags:
    def test_an_images_tags_merge_and_go(self, works):
        arn = works.create(tags={"a": "1"})
        assert status(works.api.tag_resource(Resource=arn, Tags={"b": "2"})) == 204
        assert works.api.get_microvm_image(imageIdentifier=arn)["tags"] == {"a": "1", "b": "2"}
        assert status(works.api.untag_resource(Resource=arn, TagKeys=["a", "b"])) == 204
        assert works.api.list_tags(Resource=arn)["Tags"] == {}


class TestBusy:
    def test_while_a_version_is_built_nothing_else_may_change(self, own_works):
        works = own_works
        arn = works.create()
        made = works.api.update_microvm_image(imageIdentifier=arn, **works.settings(ENDLESS))
        assert made["state"] == "UPDATING"
        busy = (409, "ConflictException", "MicroVM Image is already in state: UPDATING")
        version = {"imageIdentifier": arn, "imageVersion": "1.0"}
        assert refusal(works.api.update_microvm_image, imageIdentifier=arn, **works.settings()) == busy
        assert refusal(works.api.update_microvm_image_version, **version, status="INACTIVE") == busy
        assert refusal(works.api.delete_microvm_image_version, **version) == busy
        assert refusal(works.api.delete_microvm_image, imageIdentifier=arn) == invalid(
            f"Cannot delete MicroVM image in its current state: {arn}"
        )
        # What was there before runs all the while.
        vm = works.run(arn)
        assert vm["imageVersion"] == "1.0"

    def test_five_builds_at_once_are_the_most(self, own_works):
        works = own_works
        for number in range(5):
            works.api.create_microvm_image(name=f"endless-{number}", **works.settings(ENDLESS))
        assert refusal(works.api.create_microvm_image, name="sixth", **works.settings()) == (
            402,
            "ServiceQuotaExceededException",
            "Account 000000000000 has reached the maximum number of concurrent builds allowed.",
        )
        names = [item["name"] for item in works.api.list_microvm_images()["items"]]
        assert "sixth" not in names

    def test_a_build_that_outlived_its_daemon_has_failed(self):
        with open_cloud() as cloud:
            works = Works(cloud)
            arn = works.create(environmentVariables={"A": "1"})
            before = bare(works.version(arn))
            works.api.update_microvm_image(imageIdentifier=arn, **works.settings(ENDLESS))
            works.wait_for_line(arn, "RUN sleep")
            cloud.process.kill()
            cloud.process.wait()
            process, line = start_daemon(cloud.folder)
            try:
                cloud.daemon = rendezvous.parse_ready(line)
                works.api = cloud.client()
                image = works.api.get_microvm_image(imageIdentifier=arn)
                assert (image["state"], image["latestActiveImageVersion"]) == ("UPDATE_FAILED", "1.0")
                assert [build["stateReason"].partition(":")[0] for build in works.builds(arn, "2")] == [
                    "INTERNAL_PLATFORM_ERROR"
                ] * 2
                assert bare(works.version(arn)) == before
                works.terminate(works.run(arn)["microvmId"])
            finally:
                process.terminate()
                process.wait(60)
