"""Operations on images: parameters in, answers out, with the members that were recorded from the service."""

import pytest

from tests.support.image_stage import ARN, BASE, CREATED_AT, INTERNET, SETTINGS, ImageStage
from tests.support.shapes import botocore_service
from vmnest.aws import shapes
from vmnest.local import builder, faults, image_operations

MODEL = shapes.load("lambda-microvms")
LOCAL = ARN + "local"
DEMO = ARN + "demo"
DEMO_1 = {"imageIdentifier": DEMO, "imageVersion": "1.0"}


@pytest.fixture
def stage(tmp_path):
    one = ImageStage(tmp_path)
    yield one
    one.close()


def call(stage, operation, *, local_options=None, **params):
    if operation in image_operations.BUILD_OPERATIONS:
        answer = image_operations.BUILD_OPERATIONS[operation](stage.images, params, local_options)
    else:
        answer = image_operations.OPERATIONS[operation](stage.images, params)
    # Whatever is said has the model's types, and says what the model requires.
    wire = shapes.build_answer(MODEL.operation(operation), answer)
    shapes.parse_answer(MODEL.operation(operation), wire.headers, wire.body)
    return answer


def refusal(stage, operation, **params):
    with pytest.raises(faults.Fault) as caught:
        call(stage, operation, **params)
    return caught.value.status, caught.value.error_type, caught.value.message


def create(stage, name="demo", **changes):
    made = call(stage, "CreateMicrovmImage", **{**SETTINGS, "name": name, **changes})
    stage.wait_settled(name)
    return made


def update(stage, name="demo", **changes):
    made = call(stage, "UpdateMicrovmImage", **{**SETTINGS, "imageIdentifier": ARN + name, **changes})
    stage.wait_settled(name)
    return made


def test_every_operation_on_images_is_there():
    wanted = {name for name in botocore_service(MODEL.service).operation_names if "MicrovmImage" in name}
    assert {*image_operations.OPERATIONS, *image_operations.BUILD_OPERATIONS} == wanted


class TestCreate:
    def test_the_answer_is_creating_with_the_services_defaults_and_nulls(self, stage):
        stage.builder.gate.clear()
        found = call(stage, "CreateMicrovmImage", name="demo", **SETTINGS)
        assert {**found, "id": "", "createdAt": 0, "updatedAt": 0} == {
            **SETTINGS,
            "imageArn": DEMO,
            "name": "demo",
            "id": "",
            "state": "CREATING",
            "imageVersion": "1.0",
            "latestActiveImageVersion": None,
            "latestFailedImageVersion": None,
            "createdAt": 0,
            "updatedAt": 0,
            "baseImageVersion": "1.0",
            "egressNetworkConnectors": [INTERNET],
            "resources": [{"minimumMemoryInMiB": 2048}],
            "description": None,
            "logging": None,
            "cpuConfigurations": None,
            "additionalOsCapabilities": None,
            "hooks": None,
            "environmentVariables": None,
            "kmsKeyIdentifier": None,
            "tags": None,
            "buildPhaseOverrides": None,
            "roleConfiguration": None,
        }

    def test_what_was_given_is_echoed_and_kept_with_the_version(self, stage):
        given = {"description": "d", "environmentVariables": {"A": "1"}, "logging": {"disabled": {}}}
        made = create(stage, **given, tags={"a": "b"})
        assert {name: made[name] for name in given} == given
        assert made["tags"] == {"a": "b"}
        version = call(stage, "GetMicrovmImageVersion", **DEMO_1)
        assert {name: version[name] for name in given} == given
        assert call(stage, "GetMicrovmImage", imageIdentifier=DEMO)["tags"] == {"a": "b"}

    @pytest.mark.parametrize("operation", ["CreateMicrovmImage", "UpdateMicrovmImage"])
    def test_a_client_token_replays_the_answer_also_when_the_image_is_gone(self, stage, operation):
        params = {**SETTINGS, "name": "demo", "clientToken": "t"}
        if operation == "UpdateMicrovmImage":
            create(stage)
            params = {**SETTINGS, "imageIdentifier": DEMO, "clientToken": "t"}
        first = call(stage, operation, **params)
        assert call(stage, operation, **params) == first
        stage.wait_settled("demo")
        assert refusal(stage, operation, **{**params, "description": "other"})[0] == 409
        call(stage, "DeleteMicrovmImage", imageIdentifier=DEMO)
        assert stage.wait_settled("demo") is None
        assert call(stage, operation, **params) == first
        assert stage.images.find(DEMO) is None

    @pytest.mark.parametrize(
        ("local_options", "allowed"),
        [
            (None, ("internet",)),
            ("{}", ("internet",)),
            ('{"egress_allow": []}', ()),
            ('{"egress_allow": ["pypi.org"]}', ("pypi.org",)),
        ],
    )
    def test_steps_of_its_build_may_reach_what_the_caller_says(self, stage, local_options, allowed):
        create(stage, local_options=local_options)
        update(stage, local_options=local_options)
        assert [spec.egress_allow for spec in stage.builder.specs] == [allowed, allowed]

    def test_it_is_part_of_what_a_client_token_is_for(self, stage):
        params = {**SETTINGS, "name": "demo", "clientToken": "t"}
        call(stage, "CreateMicrovmImage", **params, local_options='{"egress_allow": []}')
        assert refusal(stage, "CreateMicrovmImage", **params)[0] == 409

    def test_options_that_make_no_sense_are_refused(self, stage):
        params = {**SETTINGS, "name": "demo"}
        assert refusal(stage, "CreateMicrovmImage", **params, local_options='{"egress": 1}')[0] == 400
        assert stage.images.find(DEMO) is None

    def test_its_name_is_taken_then(self, stage):
        create(stage)
        for name in ("demo", "local"):
            assert refusal(stage, "CreateMicrovmImage", **SETTINGS, name=name) == (
                400,
                "ValidationException",
                f"A MicroVM image with the name '{name}' already exists in this account",
            )

    def test_the_rules_hold(self, stage):
        assert refusal(stage, "CreateMicrovmImage", **{**SETTINGS, "name": "demo", "baseImageVersion": "9"})[0] == 400
        stage.roles.clear()
        _, kind, message = refusal(stage, "CreateMicrovmImage", **SETTINGS, name="demo")
        assert (kind, "cannot be assumed" in message) == ("ValidationException", True)

    def test_too_many_tags_make_no_image(self, stage):
        tags = {str(number): "" for number in range(51)}
        assert refusal(stage, "CreateMicrovmImage", **SETTINGS, name="demo", tags=tags)[0] == 400
        assert stage.images.find(DEMO) is None


class TestUpdate:
    def test_the_answer_is_updating_the_next_version(self, stage):
        first = create(stage)
        stage.builder.gate.clear()
        found = call(stage, "UpdateMicrovmImage", **SETTINGS, imageIdentifier=DEMO, description="d")
        assert (found["state"], found["imageVersion"], found["description"]) == ("UPDATING", "2.0", "d")
        assert (found["latestActiveImageVersion"], found["id"]) == ("1.0", first["id"])
        assert found["createdAt"] == first["createdAt"]
        assert found["updatedAt"] >= first["updatedAt"]
        assert "tags" not in found

    def test_it_replaces_everything(self, stage):
        create(stage, description="d", environmentVariables={"A": "1"}, resources=[{"minimumMemoryInMiB": 512}])
        found = update(stage)
        assert (found["description"], found["environmentVariables"]) == (None, None)
        assert found["resources"] == [{"minimumMemoryInMiB": 2048}]

    def test_its_image_must_be_there(self, stage):
        # Whatever else is wrong.
        params = {**SETTINGS, "imageIdentifier": DEMO, "baseImageVersion": "9"}
        message = f"MicroVMImage not found for MicroVMImageID: {DEMO}"
        assert refusal(stage, "UpdateMicrovmImage", **params) == (404, "ResourceNotFoundException", message)

    def test_no_other_change_begins_meanwhile(self, stage):
        create(stage)
        stage.builder.gate.clear()
        call(stage, "UpdateMicrovmImage", **SETTINGS, imageIdentifier=DEMO)
        message = "MicroVM Image is already in state: UPDATING"
        for operation, params in [
            ("UpdateMicrovmImage", {**SETTINGS, "imageIdentifier": DEMO}),
            ("UpdateMicrovmImageVersion", {**DEMO_1, "status": "INACTIVE"}),
            ("DeleteMicrovmImageVersion", DEMO_1),
        ]:
            assert refusal(stage, operation, **params) == (409, "ConflictException", message)
        assert refusal(stage, "DeleteMicrovmImage", imageIdentifier=DEMO) == (
            400,
            "ValidationException",
            f"Cannot delete MicroVM image in its current state: {DEMO}",
        )


class TestImages:
    def test_one_is_described(self, stage):
        made = create(stage)
        found = call(stage, "GetMicrovmImage", imageIdentifier=DEMO)
        assert {**found, "updatedAt": 0} == {
            "imageArn": DEMO,
            "name": "demo",
            "id": made["id"],
            "state": "CREATED",
            "latestActiveImageVersion": "1.0",
            "latestFailedImageVersion": None,
            "createdAt": made["createdAt"],
            "updatedAt": 0,
            "tags": {},
        }

    def test_the_built_in_one_is_described(self, stage):
        found = call(stage, "GetMicrovmImage", imageIdentifier=LOCAL)
        assert (found["state"], found["latestActiveImageVersion"]) == ("CREATED", "1.0")
        assert (found["createdAt"], found["updatedAt"]) == (CREATED_AT, CREATED_AT)

    def test_pages_are_cut_before_the_names_are_looked_at(self, stage):
        for name in ("one", "two", "three"):
            create(stage, name)
        pages, token = [], None
        while True:
            page = call(stage, "ListMicrovmImages", maxResults=1, nameFilter="e", nextToken=token)
            pages.append([item["name"] for item in page["items"]])
            token = page["nextToken"]
            if token is None:
                break
        assert pages == [[], ["one"], [], ["three"]]

    def test_an_item_of_the_list_is_a_summary(self, stage):
        (item,) = call(stage, "ListMicrovmImages")["items"]
        assert set(item) == {
            *("createdAt", "id", "imageArn", "latestActiveImageVersion", "latestFailedImageVersion", "name", "state")
        }

    @pytest.mark.parametrize(
        ("identifier", "refused"),
        [
            ("demo", (400, "ValidationException", "Invalid ARN format: demo")),
            ("arn:aws:s3:::x", (400, "ValidationException", "Invalid ARN format: arn:aws:s3:::x")),
            (DEMO, (404, "ResourceNotFoundException", f"MicroVMImage not found for MicroVMImageID: {DEMO}")),
        ],
        ids=["name", "other", "missing"],
    )
    @pytest.mark.parametrize(
        ("operation", "params"),
        [
            ("GetMicrovmImage", {}),
            ("DeleteMicrovmImage", {}),
            ("ListMicrovmImageVersions", {}),
            ("GetMicrovmImageVersion", {"imageVersion": "1.0"}),
            ("DeleteMicrovmImageVersion", {"imageVersion": "1.0"}),
            ("UpdateMicrovmImageVersion", {"imageVersion": "1.0", "status": "ACTIVE"}),
            ("ListMicrovmImageBuilds", {"imageVersion": "1.0"}),
            ("GetMicrovmImageBuild", {"imageVersion": "1.0", "buildId": "x"}),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_what_is_missing_is_said_in_the_services_words(self, stage, operation, params, identifier, refused):
        assert refusal(stage, operation, imageIdentifier=identifier, **params) == refused

    def test_another_accounts_image_is_denied(self, stage):
        foreign = DEMO.replace("000000000000", "111122223333")
        status, kind, message = refusal(stage, "GetMicrovmImage", imageIdentifier=foreign)
        assert (status, kind) == (403, "AccessDeniedException")
        assert f"lambda:GetMicrovmImage on resource: {foreign}" in message


class TestVersions:
    def test_one_is_described(self, stage):
        made = create(stage, tags={"a": "b"})
        found = call(stage, "GetMicrovmImageVersion", **DEMO_1)
        assert {**found, "updatedAt": 0, "versionStateTimeBucket": found["versionStateTimeBucket"][:11]} == {
            **SETTINGS,
            "imageArn": DEMO,
            "imageVersion": "1.0",
            "state": "SUCCESSFUL",
            "status": "ACTIVE",
            "stateReason": None,
            "createdAt": made["createdAt"],
            "updatedAt": 0,
            "baseImageVersion": "1.0",
            "egressNetworkConnectors": [INTERNET],
            "resources": [{"minimumMemoryInMiB": 2048}],
            "description": None,
            "logging": None,
            "cpuConfigurations": None,
            "additionalOsCapabilities": None,
            "hooks": None,
            "environmentVariables": None,
            "kmsKeyIdentifier": None,
            "tags": {"a": "b"},
            "versionStateTimeBucket": "SUCCESSFUL#",
        }
        assert call(stage, "GetMicrovmImageVersion", imageIdentifier=DEMO, imageVersion="1") == found
        assert call(stage, "ListMicrovmImageVersions", imageIdentifier=DEMO)["items"] == [found]

    def test_all_are_listed_with_failed_ones(self, stage):
        create(stage)
        stage.builder.failures["demo"] = builder.BuildFailed("CONTAINER_BUILD_FAILED", "no")
        update(stage)
        first = call(stage, "ListMicrovmImageVersions", imageIdentifier=DEMO, maxResults=1)
        second = call(stage, "ListMicrovmImageVersions", imageIdentifier=DEMO, nextToken=first["nextToken"])
        items = [*first["items"], *second["items"]]
        assert [(item["imageVersion"], item["state"], item["status"], item["stateReason"]) for item in items] == [
            ("1.0", "SUCCESSFUL", "ACTIVE", None),
            ("2.0", "FAILED", "INACTIVE", "One or more builds failed."),
        ]
        image = call(stage, "GetMicrovmImage", imageIdentifier=DEMO)
        assert (image["state"], image["latestFailedImageVersion"]) == ("UPDATE_FAILED", "2.0")

    @pytest.mark.parametrize("label", ["2.0", "2", "0", "x"])
    @pytest.mark.parametrize(
        ("operation", "params"),
        [
            ("GetMicrovmImageVersion", {}),
            ("DeleteMicrovmImageVersion", {}),
            ("UpdateMicrovmImageVersion", {"status": "ACTIVE"}),
            ("ListMicrovmImageBuilds", {}),
            ("GetMicrovmImageBuild", {"buildId": "x"}),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_one_that_never_was_is_not_found(self, stage, operation, params, label):
        create(stage)
        assert refusal(stage, operation, imageIdentifier=DEMO, imageVersion=label, **params) == (
            404,
            "ResourceNotFoundException",
            f"MicroVMImage not found for MicroVMImage: {DEMO}, Version: {label}",
        )

    def test_its_status_can_be_changed(self, stage):
        create(stage)
        found = call(stage, "UpdateMicrovmImageVersion", imageIdentifier=DEMO, imageVersion="1", status="INACTIVE")
        assert (found["status"], found["state"], found["imageVersion"]) == ("INACTIVE", "SUCCESSFUL", "1.0")
        assert call(stage, "GetMicrovmImageVersion", **DEMO_1) == found
        assert call(stage, "GetMicrovmImage", imageIdentifier=DEMO)["latestActiveImageVersion"] is None
        assert call(stage, "UpdateMicrovmImageVersion", **DEMO_1, status="ACTIVE")["status"] == "ACTIVE"

    def test_one_that_was_not_built_cannot_be_active(self, stage):
        stage.builder.failures["demo"] = builder.BuildFailed("CONTAINER_BUILD_FAILED", "no")
        create(stage)
        assert refusal(stage, "UpdateMicrovmImageVersion", **DEMO_1, status="ACTIVE")[0] == 400
        assert call(stage, "UpdateMicrovmImageVersion", **DEMO_1, status="INACTIVE")["status"] == "INACTIVE"


class TestDelete:
    def test_an_image_goes(self, stage):
        create(stage, tags={"a": "b"})
        assert call(stage, "DeleteMicrovmImage", imageIdentifier=DEMO) == {"imageIdentifier": DEMO, "state": "DELETING"}
        stage.wait_settled("demo")
        assert refusal(stage, "GetMicrovmImage", imageIdentifier=DEMO)[0] == 404
        assert stage.tags.of(DEMO) == {}
        # Once more is no error, and one that never was is.
        assert call(stage, "DeleteMicrovmImage", imageIdentifier=DEMO)["state"] == "DELETED"
        assert refusal(stage, "DeleteMicrovmImage", imageIdentifier=DEMO + "x")[0] == 404

    def test_a_version_goes_while_its_image_is_updating(self, stage):
        create(stage)
        update(stage)
        stage.builder.sweep_gate.clear()
        found = call(stage, "DeleteMicrovmImageVersion", imageIdentifier=DEMO, imageVersion="1")
        assert found == {"imageIdentifier": DEMO, "imageVersion": "1.0", "state": "DELETING"}
        assert call(stage, "GetMicrovmImage", imageIdentifier=DEMO)["state"] == "UPDATING"
        assert call(stage, "GetMicrovmImageVersion", **DEMO_1)["state"] == "DELETING"
        stage.builder.sweep_gate.set()
        assert stage.wait_settled("demo").state == "UPDATED"
        assert refusal(stage, "GetMicrovmImageVersion", **DEMO_1)[0] == 404
        assert call(stage, "DeleteMicrovmImageVersion", **DEMO_1)["state"] == "DELETED"

    def test_the_last_version_does_not_go_alone(self, stage):
        create(stage)
        assert refusal(stage, "DeleteMicrovmImageVersion", **DEMO_1) == (
            400,
            "ValidationException",
            "This is the last version. Please delete the entire image",
        )

    @pytest.mark.parametrize(
        ("operation", "params"),
        [
            ("UpdateMicrovmImage", SETTINGS),
            ("DeleteMicrovmImage", {}),
            ("DeleteMicrovmImageVersion", {"imageVersion": "1.0"}),
            ("UpdateMicrovmImageVersion", {"imageVersion": "1.0", "status": "INACTIVE"}),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_the_built_in_image_does_not_change(self, stage, operation, params):
        before = stage.images.find(LOCAL)
        assert refusal(stage, operation, imageIdentifier=LOCAL, **params)[:2] == (400, "ValidationException")
        assert stage.images.find(LOCAL) == before


class TestBuilds:
    def test_there_are_two_of_each_version(self, stage):
        made = create(stage)
        items = call(stage, "ListMicrovmImageBuilds", **DEMO_1)["items"]
        for item, generation in zip(items, ("4", "3"), strict=True):
            assert {**item, "buildId": ""} == {
                "imageArn": DEMO,
                "imageVersion": "1.0",
                "buildId": "",
                "buildState": "SUCCESSFUL",
                "architecture": "ARM_64",
                "chipset": "GRAVITON",
                "chipsetGeneration": generation,
                "stateReason": None,
                "createdAt": made["createdAt"],
                "terminationReasonCode": None,
            }
            found = call(stage, "GetMicrovmImageBuild", **DEMO_1, buildId=item["buildId"])
            sizes = {"codeInstallSizeInBytes": 10, "diskSnapshotSizeInBytes": 2}
            assert found == {**item, "snapshotBuild": sizes}

    def test_a_failed_one_tells_why_and_has_no_snapshot(self, stage):
        stage.builder.failures["demo"] = builder.BuildFailed("CONTAINER_BUILD_FAILED", "Dockerfile line 3: no")
        create(stage)
        items = call(stage, "ListMicrovmImageBuilds", **DEMO_1)["items"]
        assert [(item["buildState"], item["stateReason"]) for item in items] == [
            ("FAILED", "Dockerfile line 3: no")
        ] * 2
        found = call(stage, "GetMicrovmImageBuild", **DEMO_1, buildId=items[0]["buildId"])
        assert found["snapshotBuild"] is None

    @pytest.mark.parametrize(
        ("filters", "generations"),
        [
            ({"architecture": "ARM_64", "chipset": "GRAVITON"}, ["4", "3"]),
            ({"architecture": "X86_64"}, []),
            ({"chipset": "INTEL"}, []),
            ({"chipsetGeneration": "3"}, ["3"]),
            ({"maxResults": 1}, ["4"]),
        ],
    )
    def test_they_can_be_chosen(self, stage, filters, generations):
        found = call(stage, "ListMicrovmImageBuilds", imageIdentifier=LOCAL, imageVersion="1", **filters)
        assert [item["chipsetGeneration"] for item in found["items"]] == generations

    def test_pages_follow_each_other(self, stage):
        params = {"imageIdentifier": LOCAL, "imageVersion": "1", "maxResults": 1}
        first = call(stage, "ListMicrovmImageBuilds", **params)
        second = call(stage, "ListMicrovmImageBuilds", **params, nextToken=first["nextToken"])
        assert [item["chipsetGeneration"] for item in second["items"]] == ["3"]
        assert second["nextToken"] is None

    def test_one_that_is_not_there_is_not_found(self, stage):
        status, _, message = refusal(
            stage, "GetMicrovmImageBuild", imageIdentifier=LOCAL, imageVersion="1.0", buildId="b"
        )
        assert status == 404
        assert "Build: b" in message


class TestManaged:
    def test_the_base_is_listed(self, stage):
        assert call(stage, "ListManagedMicrovmImages")["items"] == [
            {"imageArn": BASE, "createdAt": CREATED_AT, "updatedAt": CREATED_AT}
        ]

    def test_its_versions_are_listed_newest_first(self, stage):
        first = call(stage, "ListManagedMicrovmImageVersions", imageIdentifier=BASE, maxResults=1)
        second = call(stage, "ListManagedMicrovmImageVersions", imageIdentifier=BASE, nextToken=first["nextToken"])
        items = [*first["items"], *second["items"]]
        assert [(item["imageVersion"], item["status"]) for item in items] == [("1", "AVAILABLE"), ("0", "AVAILABLE")]
        assert second["nextToken"] is None

    @pytest.mark.parametrize(
        ("identifier", "refused"),
        [
            (LOCAL, (404, "ResourceNotFoundException", f"MicroVMImage not found for MicroVMImageID: {LOCAL}")),
            ("al2023-1", (400, "ValidationException", "Invalid ARN format: al2023-1")),
        ],
    )
    def test_nothing_else_is_a_base(self, stage, identifier, refused):
        assert refusal(stage, "ListManagedMicrovmImageVersions", imageIdentifier=identifier) == refused
