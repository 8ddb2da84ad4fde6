"""What IAM demands of a policy document."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local import faults, iam_policies

ROLE = "arn:aws:iam::000000000000:role/gone"


def document(*statements, **fields):
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements), **fields})


def trust(**changes):
    given = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    return {key: value for key, value in {**given, **changes}.items() if value is not None}


def rights(**changes):
    given = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
    return {key: value for key, value in {**given, **changes}.items() if value is not None}


def check_trust(text):
    iam_policies.check_trust(text, is_known=lambda arn: arn != ROLE)


def refused(check, text):
    with pytest.raises(faults.Fault) as caught:
        check(text)
    assert caught.value.error_type == "MalformedPolicyDocument"
    return caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        document(trust()),
        json.dumps({"Statement": trust()}),
        document(trust(Principal="*")),
        document(trust(Principal={"AWS": ["111122223333", "arn:aws:iam::111122223333:root"]})),
        document(
            trust(Principal={"Federated": "cognito-identity.amazonaws.com"}, Action=["sts:AssumeRoleWithWebIdentity"])
        ),
        document(trust(Sid="a", Condition={"StringEquals": {"aws:SourceAccount": "1"}}), trust(Sid="b")),
        document(trust(Action=["sts:AssumeRole", "sts:TagSession"])),
    ],
)
def test_trust_that_iam_takes(text):
    check_trust(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "This policy contains invalid Json"),
        ("[]", "This policy contains invalid Json"),
        ("[" * 2000, "This policy contains invalid Json"),
        (document(), "Missing required field Statement"),
        (document(1), "This policy contains invalid Json"),
        (document(trust(), Version="2020-01-01"), "The policy must contain a valid version string."),
        (document(trust(Resource="*")), "Has prohibited field Resource"),
        (document(trust(Principal=None)), "Missing required field Principal"),
        (document(trust(Effect=None)), "Missing required field Effect"),
        (document(trust(Effect="Maybe")), "This policy contains invalid Json"),
        (document(trust(Effect=[])), "This policy contains invalid Json"),
        (document(trust(Action="s3:GetObject")), "AssumeRole policy may only specify STS AssumeRole actions."),
        (document(trust(Action=[])), "AssumeRole policy may only specify STS AssumeRole actions."),
        (document(trust(Principal={"Service": "lambda"})), 'Invalid principal in policy: "SERVICE":"lambda"'),
        (document(trust(Principal={"AWS": ROLE})), f'Invalid principal in policy: "AWS":"{ROLE}"'),
        (document(trust(Principal={"AWS": "me"})), 'Invalid principal in policy: "AWS":"me"'),
        (document(trust(Principal={"Nobody": "x"})), 'Invalid principal in policy: "NOBODY":"x"'),
        (document(trust(Principal={})), "Invalid principal in policy."),
        (document(trust(Sid="a"), trust(Sid="a")), "Statement IDs (SID) in a single policy must be unique."),
    ],
)
def test_trust_that_iam_refuses(text, message):
    assert refused(check_trust, text) == message


def test_trust_has_a_largest_size_without_its_white_space():
    check_trust(document(trust()) + " " * 3000)
    with pytest.raises(faults.Fault) as caught:
        check_trust(document(trust(Sid="x" * 2048)))
    assert caught.value.error_type == "LimitExceeded"


@pytest.mark.parametrize(
    "text",
    [
        document(rights()),
        document(rights(Action="*", Resource=["arn:aws:s3:::x/*"])),
        document(rights(Action=None, NotAction="iam:*", Resource=None, NotResource="arn:aws:s3:::x")),
    ],
)
def test_rights_that_iam_takes(text):
    iam_policies.check_identity(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "Syntax errors in policy."),
        ("[" * 100_000, "Syntax errors in policy."),
        (document(rights(Principal="*")), "Policy document should not specify a principal."),
        (document(rights(Action=None)), "Policy statement must contain actions."),
        (
            document(rights(Action="GetObject")),
            "Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc.",
        ),
        (document(rights(Resource=None)), "Policy statement must contain resources."),
        (document(rights(Resource="bucket")), 'Resource bucket must be in ARN format or "*".'),
    ],
)
def test_rights_that_iam_refuses(text, message):
    assert refused(iam_policies.check_identity, text) == message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Statement", "Effect", "Action", "Principal", "Resource", "AWS", "Sid"]), inner
        )
    ),
)


@given(JSON)
def test_any_json_is_taken_or_refused(value):
    for check in (check_trust, iam_policies.check_identity):
        try:
            check(json.dumps(value))
        except faults.Fault:
            continue
