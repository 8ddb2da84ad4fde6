"""Settings of buckets: checked, and written anew."""

import json

import pytest

from vmnest.local import faults, s3_settings, xml_documents

BLOCK = b"<PublicAccessBlockConfiguration>%b</PublicAccessBlockConfiguration>"
RULE = (
    b"<X><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>%b</SSEAlgorithm></ApplyServerSideEncryptionByDefault>"
)


def parse(name, data):
    return s3_settings.parse_setting(name, xml_documents.parse(data))


def refused(act, *args):
    with pytest.raises(faults.Fault) as caught:
        act(*args)
    return caught.value.error_type


def values(text, *path):
    found = [xml_documents.parse(text.encode())]
    for name in path:
        found = [child for each in found for child in each.all(name)]
    return [each.text for each in found]


def test_public_access_is_blocked_where_that_is_said():
    text = parse("publicAccessBlock", BLOCK % b"<BlockPublicAcls>TRUE</BlockPublicAcls>")
    assert values(text, "BlockPublicAcls") == ["true"]
    assert values(text, "RestrictPublicBuckets") == ["false"]


@pytest.mark.parametrize("inner", [b"<Other>true</Other>", b"<BlockPublicAcls>yes</BlockPublicAcls>"])
def test_other_blocks_are_malformed(inner):
    assert refused(parse, "publicAccessBlock", BLOCK % inner) == "MalformedXML"


def test_encryption_has_one_rule():
    text = parse("encryption", RULE % b"aws:kms" + b"<BucketKeyEnabled>true</BucketKeyEnabled></Rule></X>")
    assert values(text, "Rule", "ApplyServerSideEncryptionByDefault", "SSEAlgorithm") == ["aws:kms"]
    assert values(text, "Rule", "BucketKeyEnabled") == ["true"]
    assert refused(parse, "encryption", RULE % b"rot13" + b"</Rule></X>") == "MalformedXML"
    assert refused(parse, "encryption", b"<X/>") == "MalformedXML"


def test_ownership_is_one_of_three():
    text = parse("ownershipControls", b"<X><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule></X>")
    assert values(text, "Rule", "ObjectOwnership") == ["ObjectWriter"]
    assert refused(parse, "ownershipControls", b"<X><Rule/></X>") == "MalformedXML"


def tags(*pairs):
    inner = "".join(f"<Tag><Key>{key}</Key><Value>{value}</Value></Tag>" for key, value in pairs)
    return f"<Tagging><TagSet>{inner}</TagSet></Tagging>".encode()


def test_tags_are_a_set_of_few():
    text = parse("tagging", tags(("a", "1"), ("b", "")))
    assert values(text, "TagSet", "Tag", "Key") == ["a", "b"]
    assert refused(parse, "tagging", tags(("a", "1"), ("a", "2"))) == "InvalidTag"
    assert refused(parse, "tagging", tags(("", "1"))) == "InvalidTag"
    assert refused(parse, "tagging", tags(*((f"k{number}", "") for number in range(51)))) == "BadRequest"
    assert refused(parse, "tagging", b"<Tagging/>") == "MalformedXML"


def test_a_policy_is_kept_as_it_was_sent():
    text = json.dumps({"Statement": [{"Effect": "Deny"}]}, indent=1)
    assert s3_settings.parse_policy(text.encode()) == text


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b"{}", b"\xff", b"[" * 50_000, b'{"Statement": 1}' + b" " * 20480])
def test_what_is_no_policy_is_malformed(data):
    assert refused(s3_settings.parse_policy, data) == "MalformedPolicy"


def test_a_new_bucket_is_closed_and_encrypted():
    found = s3_settings.defaults(None)
    assert values(found["publicAccessBlock"], "BlockPublicPolicy") == ["true"]
    assert values(found["encryption"], "Rule", "ApplyServerSideEncryptionByDefault", "SSEAlgorithm") == ["AES256"]
    assert values(found["ownershipControls"], "Rule", "ObjectOwnership") == ["BucketOwnerEnforced"]
    assert refused(s3_settings.defaults, "Nobody") == "InvalidArgument"
