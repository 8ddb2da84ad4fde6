"""Policies give what is needed and no more, and equal ones are known for it however IAM writes them."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

import pytest

from vmnest.infra import documents

PLACE: Any = {"partition": "aws", "region": "us-east-1", "account_id": "111122223333"}


def statements(document: Any) -> list[Any]:
    return list(documents.statements(document))


def test_the_service_may_assume_the_role_for_this_account_alone() -> None:
    (statement,) = statements(documents.service_trust(account_id="111122223333"))
    assert statement["Principal"] == {"Service": "lambda.amazonaws.com"}
    assert statement["Action"] == ["sts:AssumeRole", "sts:TagSession"]
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": "111122223333"}}


def test_a_sandbox_reads_its_artifacts_and_writes_its_logs_and_nothing_else() -> None:
    read, write = statements(documents.sandbox_policy(**PLACE, bucket="b", prefix="vmnest/guest/", log_group=None))
    assert (read["Action"], read["Resource"]) == (["s3:GetObject"], ["arn:aws:s3:::b/vmnest/guest/*"])
    assert write["Action"] == ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"]
    (group,) = write["Resource"]
    assert fnmatchcase("arn:aws:logs:us-east-1:111122223333:log-group:/aws/lambda-microvms/guest:log-stream:x", group)
    assert not fnmatchcase("arn:aws:logs:us-east-1:111122223333:log-group:/aws/lambda/other", group)


def test_a_log_group_of_the_users_own_may_be_written_too() -> None:
    _, write = statements(documents.sandbox_policy(**PLACE, bucket="b", prefix="p/", log_group="/mine"))
    assert [resource.rpartition("log-group:")[2] for resource in write["Resource"]] == [
        *("/aws/lambda-microvms/*", "/mine", "/mine:*"),
    ]


def test_an_operator_makes_interfaces_and_tags_only_those() -> None:
    make, tag = statements(documents.operator_policy(**PLACE))
    assert make["Action"] == ["ec2:CreateNetworkInterface"]
    assert [resource.rpartition(":")[2] for resource in make["Resource"]] == [
        *("network-interface/*", "subnet/*", "security-group/*"),
    ]
    assert tag["Condition"] == {
        "StringEquals": {"ec2:ManagedResourceOperator": "network-connectors.lambda.amazonaws.com"}
    }


def test_a_buckets_own_statements_stay_beside_ours() -> None:
    theirs = {"Version": "2012-10-17", "Id": "x", "Statement": {"Sid": "Theirs", "Effect": "Allow"}}
    policy = documents.tls_only("b", partition="aws", present=theirs)
    assert policy["Id"] == "x"
    assert [statement["Sid"] for statement in statements(policy)] == ["Theirs", documents.TLS_STATEMENT]
    assert documents.are_equal(documents.tls_only("b", partition="aws", present=policy), policy)


ONE = {"Statement": [{"Action": ["a:X"], "Resource": ["r1", "r2"], "Principal": {"Service": ["s"]}}]}


@pytest.mark.parametrize(
    "other",
    [
        {"Statement": {"Action": "a:X", "Resource": ["r2", "r1"], "Principal": {"Service": "s"}}},
        json.loads(json.dumps(ONE)),
    ],
    ids=["one instead of a list, another order", "the same"],
)
def test_documents_that_say_the_same_are_equal(other: Any) -> None:
    assert documents.are_equal(ONE, other)


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"Statement": []},
        {"Statement": [{"Action": ["a:X"], "Resource": ["r1"], "Principal": {"Service": ["s"]}}]},
        {"Statement": [*ONE["Statement"], *ONE["Statement"]]},
        {"Statement": [{**ONE["Statement"][0], "Condition": {}}]},
    ],
)
def test_documents_that_do_not_say_the_same_differ(other: Any) -> None:
    assert not documents.are_equal(ONE, other)
