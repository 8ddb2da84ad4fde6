"""The forms of S3's answers."""

from vmnest.local import faults, s3_answers, xml_documents


def test_an_error_tells_its_members_and_has_header_fields_for_some():
    fault = faults.Fault("<m>", error_type="E", status=418, members={"Key": "a&b", "x-amz-delete-marker": "true"})
    reply = s3_answers.error(fault, resource="/b/k", request_id="R")
    root = xml_documents.parse(reply.body)
    told = {child.name: child.text for child in root.children}
    assert reply.status == 418
    assert told == {
        "Code": "E",
        "Message": "<m>",
        "Key": "a&b",
        "Resource": "/b/k",
        "RequestId": "R",
        "HostId": "vmnest-local",
    }
    assert ("x-amz-delete-marker", "true") in reply.fields


def test_moments_are_in_utc():
    assert s3_answers.moment(1_800_000_000.1239) == "2027-01-15T08:00:00.123Z"
    assert s3_answers.last_modified(1_800_000_000.9) == ("Last-Modified", "Fri, 15 Jan 2027 08:00:00 GMT")


def test_keys_are_encoded_where_that_is_asked():
    assert s3_answers.encoded("a b+/é", {"encoding-type": "url"}) == "a%20b%2B/%C3%A9"
    assert s3_answers.encoded("a b+/é", {}) == "a b+/é"


def test_a_document_has_the_namespace_and_an_empty_answer_nothing():
    assert b' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"' in s3_answers.document("A", []).body
    assert s3_answers.empty(204).body == b""
    assert s3_answers.text("{}", kind="application/json").fields == [("Content-Type", "application/json")]


def test_faults_say_what_they_are_about():
    fault = s3_answers.invalid_argument("m", name="n", value="v" * 300)
    assert fault.members == {"ArgumentName": "n", "ArgumentValue": "v" * 200}
    assert s3_answers.not_implemented("has no x").status == 501
    assert s3_answers.malformed_xml().error_type == "MalformedXML"
    assert s3_answers.etag("x") == ("ETag", '"x"')
    assert s3_answers.owner("Initiator")[0] == "Initiator"
