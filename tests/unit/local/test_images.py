"""The built-in image."""

import pytest

from vmnest.aws import shapes
from vmnest.local import faults, images

ARN = "arn:aws:lambda:us-east-1:000000000000:microvm-image:local"
OTHER = "arn:aws:lambda:us-east-1:000000000000:microvm-image:other"


@pytest.fixture
def stock():
    return images.Images(created_at=5.0, memory_mib=2048)


def refusal(call):
    with pytest.raises(faults.Fault) as caught:
        call()
    return caught.value.status, caught.value.message


class TestToRun:
    @pytest.mark.parametrize("version", [None, "1.0"])
    def test_the_built_in_image_runs(self, stock, version):
        image, chosen = stock.to_run(ARN, version)
        assert (image.arn, chosen) == (ARN, "1.0")

    @pytest.mark.parametrize(
        ("identifier", "version", "status", "message"),
        [
            ("local", None, 400, "Malformed ARN - doesn't start with 'arn:'"),
            (OTHER, None, 404, f"No active version found for MicroVM image {OTHER}"),
            (OTHER, "1.0", 404, f"No active version found for MicroVM image {OTHER} and version 1.0"),
            (ARN, "2.0", 404, f"No active version found for MicroVM image {ARN} and version 2.0"),
            (ARN, "1", 404, f"No active version found for MicroVM image {ARN} and version 1"),
            ("arn:aws:s3:::x", None, 400, "Invalid ARN format: arn:aws:s3:::x"),
        ],
    )
    def test_anything_else_is_refused_in_the_services_words(self, stock, identifier, version, status, message):
        assert refusal(lambda: stock.to_run(identifier, version)) == (status, message)

    def test_another_accounts_image_is_denied(self, stock):
        foreign = ARN.replace("000000000000", "111122223333")
        status, message = refusal(lambda: stock.to_run(foreign, None))
        assert status == 403
        assert f"lambda:RunMicrovm on resource: {foreign}" in message


class TestOperations:
    def test_an_image_is_described(self, stock):
        found = stock.get_image({"imageIdentifier": ARN}, tags={"a": "1"})
        assert {**found, "id": ""} == {
            "imageArn": ARN,
            "name": "local",
            "id": "",
            "state": "CREATED",
            "latestActiveImageVersion": "1.0",
            "latestFailedImageVersion": None,
            "createdAt": 5.0,
            "updatedAt": 5.0,
            "tags": {"a": "1"},
        }

    def test_its_version_is_active(self, stock):
        found = stock.get_version({"imageIdentifier": ARN, "imageVersion": "1"}, tags={})
        assert (found["imageVersion"], found["state"], found["status"]) == ("1.0", "SUCCESSFUL", "ACTIVE")
        assert found["resources"] == [{"minimumMemoryInMiB": 2048}]
        assert stock.list_versions({"imageIdentifier": ARN}, tags={})["items"] == [found]

    def test_it_tells_the_hooks_and_their_times(self, stock):
        found = stock.get_version({"imageIdentifier": ARN, "imageVersion": "1.0"}, tags={})["hooks"]
        assert found["port"] == 9000
        for name in ("run", "resume", "suspend", "terminate"):
            assert found["microvmHooks"][name] == "ENABLED"
            assert 1 <= found["microvmHooks"][f"{name}TimeoutInSeconds"] <= 60
        assert found["microvmImageHooks"]["ready"] == "ENABLED"
        shape = shapes.load("lambda-microvms").operation("GetMicrovmImageVersion").output.members["hooks"].shape
        assert set(found) <= set(shape.members)
        assert set(found["microvmHooks"]) <= set(shape.members["microvmHooks"].shape.members)

    def test_the_name_filter_leaves_a_page_empty(self, stock):
        assert [item["name"] for item in stock.list_images({"nameFilter": "oca"})["items"]] == ["local"]
        assert stock.list_images({"nameFilter": "x"}) == {"items": [], "nextToken": None}

    def test_the_managed_base_is_listed(self, stock):
        (item,) = stock.list_managed({})["items"]
        (version,) = stock.list_managed_versions({"imageIdentifier": item["imageArn"]})["items"]
        assert item["imageArn"] == "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1"
        assert (version["imageVersion"], version["status"]) == ("1", "AVAILABLE")

    @pytest.mark.parametrize(
        ("call", "status", "message"),
        [
            (lambda s: s.get_image({"imageIdentifier": "local"}, tags={}), 400, "Invalid ARN format: local"),
            (
                lambda s: s.get_image({"imageIdentifier": OTHER}, tags={}),
                404,
                f"MicroVMImage not found for MicroVMImageID: {OTHER}",
            ),
            (
                lambda s: s.get_version({"imageIdentifier": ARN, "imageVersion": "9.0"}, tags={}),
                404,
                f"MicroVMImage not found for MicroVMImage: {ARN}, Version: 9.0",
            ),
            (
                lambda s: s.list_managed_versions({"imageIdentifier": ARN}),
                404,
                f"MicroVMImage not found for MicroVMImageID: {ARN}",
            ),
        ],
        ids=["name", "image", "version", "managed"],
    )
    def test_what_is_missing_is_said_in_the_services_words(self, stock, call, status, message):
        assert refusal(lambda: call(stock)) == (status, message)
