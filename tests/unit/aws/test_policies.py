"""Policy documents: the objects that they are."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import botocore.model
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.aws import model, policies

IAM = botocore.model.ServiceModel(model.read_data("iam", "service-2"), "iam")


def decoded(operation: str, value: dict[str, Any]) -> Any:
    return policies.decode(IAM.operation_model(operation).output_shape, value)


documents = st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.lists(st.text(max_size=3), max_size=2))


@given(documents)
def test_what_was_put_comes_back(document):
    written = quote(json.dumps(document), safe="")
    assert decoded("GetRolePolicy", {"PolicyDocument": written}) == {"PolicyDocument": document}


def test_documents_are_found_in_lists_and_structures():
    roles = {"Roles": [{"AssumeRolePolicyDocument": "%7B%7D", "RoleName": "%7B%7D"}], "IsTruncated": False}
    assert decoded("ListRoles", roles) == {
        "Roles": [{"AssumeRolePolicyDocument": {}, "RoleName": "%7B%7D"}],
        "IsTruncated": False,
    }


def test_a_document_that_nobody_encoded_is_taken_as_it_is():
    plain = '{"Resource": "arn:aws:s3:::a%2Fb"}'
    assert decoded("GetRolePolicy", {"PolicyDocument": plain})["PolicyDocument"] == {"Resource": "arn:aws:s3:::a%2Fb"}


@pytest.mark.parametrize("text", ["not json", "", "{", "[" * 100_000])
def test_what_is_no_document_stays_text(text):
    assert decoded("GetRolePolicy", {"PolicyDocument": text})["PolicyDocument"] == text


def test_an_answer_without_content_stays_so():
    assert policies.decode(None, {}) == {}
