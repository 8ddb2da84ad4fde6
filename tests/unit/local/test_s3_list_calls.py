"""Calls that list what is in a bucket."""

import pytest

VERSIONING = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"


@pytest.fixture
def full(s3):
    for key in ("a/1", "a/2", "b", "c%20d%2B"):
        s3.put(key)
    return s3


def test_objects_with_all_that_is_told_of_them(full):
    answer = full.ask("GET", "/bucket?list-type=2&fetch-owner=true")
    assert answer.texts("Contents", "Key") == ["a/1", "a/2", "b", "c d+"]
    assert answer.texts("KeyCount") == ["4"]
    assert answer.texts("IsTruncated") == ["false"]
    (first, *_) = answer.xml.all("Contents")
    assert {child.name: child.text for child in first.children if child.name != "Owner"} == {
        "Key": "a/1",
        "LastModified": "2027-01-15T08:00:00.000Z",
        "ETag": '"9dd4e461268c8034f5c8564e155c67a6"',
        "Size": "1",
        "StorageClass": "STANDARD",
    }
    assert first.find("Owner") is not None
    assert full.ask("GET", "/bucket?list-type=2").texts("Contents", "Owner") == []


def test_a_page_leads_to_the_next(full):
    first = full.ask("GET", "/bucket?list-type=2&max-keys=2&delimiter=/")
    assert (first.texts("CommonPrefixes", "Prefix"), first.texts("Contents", "Key")) == (["a/"], ["b"])
    (token,) = first.texts("NextContinuationToken")
    rest = full.ask("GET", f"/bucket?list-type=2&delimiter=/&continuation-token={token}")
    assert rest.texts("Contents", "Key") == ["c d+"]
    assert rest.texts("ContinuationToken") == [token]


@pytest.mark.parametrize("token", ["x", "%C3%A9", "eA=="])
def test_a_token_of_nobody_is_refused(full, token):
    assert full.ask("GET", f"/bucket?list-type=2&continuation-token={token}").code == "InvalidArgument"


def test_it_starts_behind_a_key(full):
    assert full.ask("GET", "/bucket?list-type=2&start-after=a/1").texts("Contents", "Key") == ["a/2", "b", "c d+"]


def test_the_old_list_has_markers(full):
    first = full.ask("GET", "/bucket?max-keys=1&delimiter=/")
    assert (first.texts("CommonPrefixes", "Prefix"), first.texts("NextMarker")) == (["a/"], ["a/"])
    assert full.ask("GET", "/bucket?marker=a/&delimiter=/").texts("Contents", "Key") == ["b", "c d+"]
    assert full.ask("GET", "/bucket?max-keys=1").texts("NextMarker") == []
    assert full.ask("GET", "/bucket?marker=a/2").texts("Contents", "Key") == ["b", "c d+"]


def test_keys_are_encoded_where_that_is_asked(full):
    answer = full.ask("GET", "/bucket?list-type=2&encoding-type=url&prefix=c%20")
    assert answer.texts("Contents", "Key") == ["c%20d%2B"]
    assert (answer.texts("Prefix"), answer.texts("EncodingType")) == (["c%20"], ["url"])
    assert full.ask("GET", "/bucket?encoding-type=html").code == "InvalidArgument"


def test_a_bucket_that_is_not_there_has_no_list(s3):
    for query in ("", "?list-type=2", "?versions", "?uploads"):
        assert s3.ask("GET", f"/nothing{query}").code == "NoSuchBucket"


class TestVersions:
    @pytest.fixture
    def full(self, s3):
        s3.put("a")
        s3.ask("PUT", "/bucket?versioning", VERSIONING)
        for key in ("a", "b", "b"):
            s3.put(key)
        s3.ask("DELETE", "/bucket/a")
        return s3

    def told(self, answer):
        """Key, id and whether it is the latest, of versions and markers in their order."""
        kinds = ("Version", "DeleteMarker")
        found = [child for child in answer.xml.children if child.name in kinds]
        return [(each.name[0] + each.value("Key"), each.value("IsLatest")) for each in found]

    def test_the_newest_of_a_key_is_first(self, full):
        answer = full.ask("GET", "/bucket?versions")
        assert self.told(answer) == [
            ("Da", "true"),
            ("Va", "false"),
            ("Va", "false"),
            ("Vb", "true"),
            ("Vb", "false"),
        ]
        assert answer.texts("Version", "VersionId")[1] == "null"

    @pytest.mark.parametrize("size", [1, 2, 3, 4])
    def test_pages_together_are_the_whole(self, full, size):
        found, more = [], ""
        for _ in range(6):
            answer = full.ask("GET", f"/bucket?versions&max-keys={size}{more}")
            found += self.told(answer)
            if answer.texts("IsTruncated") == ["false"]:
                break
            (key,), (version,) = answer.texts("NextKeyMarker"), answer.texts("NextVersionIdMarker")
            more = f"&key-marker={key}&version-id-marker={version}"
        assert found == self.told(full.ask("GET", "/bucket?versions"))

    def test_a_key_alone_is_a_marker_too(self, full):
        assert self.told(full.ask("GET", "/bucket?versions&key-marker=a")) == [("Vb", "true"), ("Vb", "false")]

    def test_common_prefixes_are_a_marker_as_well(self, full):
        full.put("x/1")
        full.put("x/2")
        first = full.ask("GET", "/bucket?versions&delimiter=/&prefix=x&max-keys=1")
        assert first.texts("CommonPrefixes", "Prefix") == ["x/"]
        full.put("y")
        assert full.ask("GET", "/bucket?versions&delimiter=/&key-marker=x/").texts("Version", "Key") == ["y"]

    def test_a_deleted_key_is_in_no_list_of_objects(self, full):
        assert full.ask("GET", "/bucket?list-type=2").texts("Contents", "Key") == ["b"]


class TestUploads:
    @pytest.fixture
    def ids(self, s3):
        found = []
        for key in ("k", "k", "m/1", "m/2"):
            found += s3.ask("POST", f"/bucket/{key}?uploads").texts("UploadId")
            s3.clock.advance(1)
        return found

    def test_they_are_in_the_order_of_keys_and_time(self, s3, ids):
        assert s3.ask("GET", "/bucket?uploads").texts("Upload", "UploadId") == ids

    def test_pages_go_on_behind_an_upload(self, s3, ids):
        first = s3.ask("GET", "/bucket?uploads&max-uploads=1")
        assert (first.texts("NextKeyMarker"), first.texts("NextUploadIdMarker")) == (["k"], [ids[0]])
        rest = s3.ask("GET", f"/bucket?uploads&key-marker=k&upload-id-marker={ids[0]}")
        assert rest.texts("Upload", "UploadId") == ids[1:]
        assert s3.ask("GET", "/bucket?uploads&key-marker=k").texts("Upload", "UploadId") == ids[2:]

    def test_prefix_and_delimiter_hold(self, s3, ids):
        answer = s3.ask("GET", "/bucket?uploads&delimiter=/&encoding-type=url")
        assert (answer.texts("CommonPrefixes", "Prefix"), len(answer.texts("Upload"))) == (["m/"], 2)
        assert s3.ask("GET", "/bucket?uploads&prefix=m").texts("Upload", "Key") == ["m/1", "m/2"]
