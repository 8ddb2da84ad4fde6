"""Errors in XML, in the three forms that services have, and in none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.aws import xml_errors

QUERY = b"""<ErrorResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><Error><Type>Sender</Type>
<Code>NoSuchEntity</Code><Message>The role with name "x" &amp; \xc3\xbc cannot be found.</Message></Error>
<RequestId>query-1</RequestId></ErrorResponse>"""
EC2 = b"""<?xml version="1.0" encoding="UTF-8"?>
<Response><Errors><Error><Code>InvalidGroup.NotFound</Code><Message>The security group 'sg-1' does not exist</Message>
</Error></Errors><RequestID>ec2-1</RequestID></Response>"""
S3 = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>AuthorizationHeaderMalformed</Code><Message>expecting 'eu-west-1'</Message><Region>eu-west-1</Region>
<RequestId>s3-1</RequestId><HostId>host</HostId></Error>"""


@pytest.mark.parametrize(
    ("body", "error_type", "message", "request_id"),
    [
        (QUERY, "NoSuchEntity", 'The role with name "x" & ü cannot be found.', "query-1"),
        (EC2, "InvalidGroup.NotFound", "The security group 'sg-1' does not exist", "ec2-1"),
        (S3, "AuthorizationHeaderMalformed", "expecting 'eu-west-1'", "s3-1"),
        (b"<Error><Code>X</Code></Error>", "X", None, None),
        (b"<Error><Code> X\n</Code><Message/></Error>", "X", None, None),
    ],
    ids=["query", "ec2", "s3", "bare", "blanks"],
)
def test_each_form_is_read(body, error_type, message, request_id):
    found = xml_errors.parse(body)
    assert (found.error_type, found.message, found.request_id) == (error_type, message, request_id)


def test_what_else_stands_beside_the_type_is_kept():
    assert xml_errors.parse(S3).members["Region"] == "eu-west-1"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><title>x</title></html>",
        b"<Error><Code>X</Code>",
        b'{"Code": "X"}',
        b"\xff\xfe",
        b'<?xml version="1.0" encoding="nonsense"?><Error><Code>X</Code></Error>',
    ],
)
def test_what_is_no_error_says_nothing(body):
    assert xml_errors.parse(body) == (None, None, {}, None)


def test_only_names_are_types():
    found = xml_errors.parse(b"<Error><Code>two words &lt;b&gt;</Code><Message>m</Message></Error>")
    assert (found.error_type, found.message) == (None, "m")


@given(st.binary(max_size=100) | st.text("<>/ErorCd&;!-?", max_size=60).map(str.encode))
def test_nothing_breaks_it(noise):
    for body in (noise, b"<Error><Code>" + noise + b"</Code></Error>", QUERY[: len(noise) * 3] + noise):
        xml_errors.parse(body)
