"""The way from page to page."""

from __future__ import annotations

import pytest

from vmnest import errors
from vmnest.aws import paging


def walk(service: str, operation: str) -> paging.Walk:
    return paging.Walk(paging.load(service, operation))


def test_a_flag_says_whether_there_is_more():
    roles = walk("iam", "ListRoles")
    assert roles.next_params({"IsTruncated": True, "Marker": "a"}) == {"Marker": "a"}
    assert roles.next_params({"IsTruncated": False, "Marker": "b"}) is None
    assert roles.next_params({"Marker": "b"}) is None


def test_without_a_flag_the_token_says_it():
    subnets = walk("ec2", "DescribeSubnets")
    assert subnets.next_params({"NextToken": "a"}) == {"NextToken": "a"}
    assert subnets.next_params({"NextToken": ""}) is None
    assert subnets.next_params({}) is None


def test_several_tokens_belong_together():
    versions = walk("s3", "ListObjectVersions")
    answer = {"IsTruncated": True, "NextKeyMarker": "k", "NextVersionIdMarker": "v"}
    assert versions.next_params(answer) == {"KeyMarker": "k", "VersionIdMarker": "v"}
    assert versions.next_params({"IsTruncated": True, "NextKeyMarker": "l"}) == {"KeyMarker": "l"}


def test_services_of_rest_json_have_pages_too():
    assert walk("lambda-core", "ListNetworkConnectors").next_params({"NextMarker": "m"}) == {"Marker": "m"}


def test_a_token_that_comes_again_has_no_end():
    subnets = walk("ec2", "DescribeSubnets")
    subnets.next_params({"NextToken": "a"})
    subnets.next_params({"NextToken": "b"})
    with pytest.raises(paging.Broken, match="same next page"):
        subnets.next_params({"NextToken": "a"})


def test_more_without_a_token_leads_nowhere():
    with pytest.raises(paging.Broken, match="IsTruncated"):
        walk("iam", "ListRoles").next_params({"IsTruncated": True})


@pytest.mark.parametrize(
    ("service", "operation"), [("iam", "GetRole"), ("s3", "ListObjects"), ("logs", "GetLogEvents"), ("iam", "Nothing")]
)
def test_an_operation_without_such_pages_is_refused(service, operation):
    with pytest.raises(errors.UnsupportedError, match=f"{service}: {operation}"):
        paging.load(service, operation)
