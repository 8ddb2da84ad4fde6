"""ARNs in parts."""

from __future__ import annotations

import pytest

from vmnest.ops.checks import arns


@pytest.mark.parametrize(
    ("text", "account", "resource", "last"),
    [
        ("arn:aws:iam::123456789012:role/path/name", "123456789012", "role/path/name", "name"),
        ("arn:aws:lambda:eu-west-1:123456789012:microvm-image:demo", "123456789012", "microvm-image:demo", "demo"),
        ("arn:aws-cn:sts::1:assumed-role/r/session", "1", "assumed-role/r/session", "session"),
    ],
)
def test_the_parts_of_an_arn(text: str, account: str, resource: str, last: str) -> None:
    found = arns.parse(text)
    assert found is not None
    assert (found.account, found.resource, found.last) == (account, resource, last)


@pytest.mark.parametrize(
    "text", ["", "demo", "arn:aws:iam", "arn:aws:iam::1:", "urn:aws:iam::1:role/x", "arn::iam::1:r"]
)
def test_what_is_no_arn_has_no_parts(text: str) -> None:
    assert arns.parse(text) is None
