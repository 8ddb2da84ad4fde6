"""Calls about buckets."""

import pytest

LOCATION = b"<CreateBucketConfiguration><LocationConstraint>%b</LocationConstraint></CreateBucketConfiguration>"
VERSIONING = b"<VersioningConfiguration><Status>%b</Status></VersioningConfiguration>"


class TestCreate:
    @pytest.mark.parametrize("name", ["ab", "A-b-c", "a..b", "-abc", "abc.", "192.168.0.1", "x" * 64, "a_b", "%2e%2e"])
    def test_names_are_those_of_s3(self, s3, name):
        assert s3.ask("PUT", f"/{name}").code == "InvalidBucketName"

    def test_a_region_is_named_by_a_constraint(self, s3):
        answer = s3.ask("PUT", "/other", LOCATION % b"eu-west-1")
        assert (answer.status, answer.fields["location"]) == (200, "/other")
        assert s3.ask("GET", "/other?location").xml.text == "eu-west-1"
        assert s3.ask("HEAD", "/other").fields["x-amz-bucket-region"] == "eu-west-1"

    def test_us_east_1_is_named_by_none(self, s3):
        assert s3.ask("PUT", "/other", LOCATION % b"us-east-1").code == "InvalidLocationConstraint"
        assert s3.ask("PUT", "/other", LOCATION % b"nowhere").code == "InvalidLocationConstraint"
        assert s3.ask("GET", "/bucket?location").xml.text == ""

    def test_elsewhere_the_constraint_is_that_of_the_endpoint(self, s3):
        wrong = "IllegalLocationConstraintException"
        assert s3.ask("PUT", "/other", region="eu-west-1").code == wrong
        assert s3.ask("PUT", "/other", LOCATION % b"eu-west-2", region="eu-west-1").code == wrong
        assert s3.ask("PUT", "/other", LOCATION % b"EU", region="eu-west-1").status == 200

    def test_one_that_is_there_is_ours_already(self, s3):
        answer = s3.ask("PUT", "/bucket")
        assert (answer.status, answer.code) == (409, "BucketAlreadyOwnedByYou")

    def test_tags_and_ownership_come_with_it(self, s3):
        tags = b"<Tags><Tag><Key>a</Key><Value>1</Value></Tag></Tags>"
        body = b"<CreateBucketConfiguration>%b</CreateBucketConfiguration>" % tags
        s3.ask("PUT", "/other", body, headers=[("x-amz-object-ownership", "ObjectWriter")])
        assert s3.ask("GET", "/other?tagging").texts("TagSet", "Tag", "Key") == ["a"]
        assert s3.ask("GET", "/other?ownershipControls").texts("Rule", "ObjectOwnership") == ["ObjectWriter"]

    def test_what_it_cannot_be_is_refused(self, s3):
        locked = s3.ask("PUT", "/other", headers=[("x-amz-bucket-object-lock-enabled", "true")])
        assert locked.code == "NotImplemented"
        for body in (b"<Other/>", b"<"):
            assert s3.ask("PUT", "/other", body).code == "MalformedXML"


def test_all_are_listed_in_pages(s3):
    for name in ("abc", "abd", "zzz"):
        s3.ask("PUT", f"/{name}")
    first = s3.ask("GET", "/?max-buckets=2")
    assert first.texts("Buckets", "Bucket", "Name") == ["abc", "abd"]
    (token,) = first.texts("ContinuationToken")
    rest = s3.ask("GET", f"/?continuation-token={token}")
    assert rest.texts("Buckets", "Bucket", "Name") == ["bucket", "zzz"]
    assert rest.texts("ContinuationToken") == []
    assert s3.ask("GET", "/?prefix=ab").texts("Buckets", "Bucket", "Name") == ["abc", "abd"]
    assert s3.ask("GET", "/?bucket-region=eu-west-1").texts("Buckets", "Bucket") == []


def test_head_tells_the_region_and_404_of_what_is_not_there(s3):
    assert s3.ask("HEAD", "/bucket").fields["x-amz-bucket-region"] == "us-east-1"
    assert s3.ask("HEAD", "/nothing").status == 404


def test_delete_is_for_empty_ones(s3):
    s3.put("k")
    assert s3.ask("DELETE", "/bucket").code == "BucketNotEmpty"
    s3.ask("DELETE", "/bucket/k")
    assert s3.ask("DELETE", "/bucket").status == 204
    assert s3.ask("DELETE", "/bucket").code == "NoSuchBucket"


def test_versioning_is_nothing_until_it_is_set(s3):
    assert s3.ask("GET", "/bucket?versioning").texts("Status") == []
    for status in (b"Enabled", b"Suspended"):
        assert s3.ask("PUT", "/bucket?versioning", VERSIONING % status).status == 200
        assert s3.ask("GET", "/bucket?versioning").texts("Status") == [status.decode()]
    assert s3.ask("PUT", "/bucket?versioning", VERSIONING % b"Off").code == "MalformedXML"


@pytest.mark.parametrize(
    ("name", "body", "put_status", "missing"),
    [
        ("policy", b'{"Statement": [1]}', 204, "NoSuchBucketPolicy"),
        ("tagging", b"<Tagging><TagSet></TagSet></Tagging>", 204, "NoSuchTagSet"),
        (
            "publicAccessBlock",
            b"<PublicAccessBlockConfiguration/>",
            200,
            "NoSuchPublicAccessBlockConfiguration",
        ),
        (
            "ownershipControls",
            b"<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule></OwnershipControls>",
            200,
            "OwnershipControlsNotFoundError",
        ),
    ],
)
def test_settings_are_put_answered_and_removed(s3, name, body, put_status, missing):
    assert s3.ask("PUT", f"/bucket?{name}", body).status == put_status
    found = s3.ask("GET", f"/bucket?{name}")
    assert found.status == 200
    assert found.body == body if name == "policy" else found.xml.name
    assert s3.ask("DELETE", f"/bucket?{name}").status == 204
    gone = s3.ask("GET", f"/bucket?{name}")
    assert (gone.status, gone.code) == (404, missing)
    assert s3.ask("DELETE", f"/bucket?{name}").status == 204
    for method in ("GET", "PUT", "DELETE"):
        assert s3.ask(method, f"/nothing?{name}").code == "NoSuchBucket"


def test_encryption_always_has_a_default(s3):
    path = ("Rule", "ApplyServerSideEncryptionByDefault", "SSEAlgorithm")
    rule = (
        b"<ApplyServerSideEncryptionByDefault><SSEAlgorithm>aws:kms</SSEAlgorithm></ApplyServerSideEncryptionByDefault>"
    )
    body = b"<ServerSideEncryptionConfiguration><Rule>%b</Rule></ServerSideEncryptionConfiguration>" % rule
    s3.ask("PUT", "/bucket?encryption", body)
    assert s3.ask("GET", "/bucket?encryption").texts(*path) == ["aws:kms"]
    s3.ask("DELETE", "/bucket?encryption")
    assert s3.ask("GET", "/bucket?encryption").texts(*path) == ["AES256"]
