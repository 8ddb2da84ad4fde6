"""IAM's actions, as they are asked and answered."""

import json
from datetime import datetime, timezone
from urllib.parse import unquote, urlencode

import pytest

from tests.support.account import KEYS, Answer, signed
from vmnest.local import callers, iam, iam_calls

TRUST = json.dumps(
    {"Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}]}
)
RIGHTS = json.dumps({"Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]})
MANAGED = "arn:aws:iam::aws:policy/service-role/Basic"


@pytest.fixture
def ask(tmp_path, fake_clock):
    roles = iam.Roles(str(tmp_path), clock=fake_clock)
    service = iam_calls.Iam(roles).service(callers.Callers(KEYS, clock=fake_clock))
    when = datetime.fromtimestamp(fake_clock.time(), timezone.utc)

    def one(action, **form):
        body = urlencode(
            {"Action": action, **{name.replace("__", "."): value for name, value in form.items()}}
        ).encode()
        return Answer(service.answer(signed("POST", "/", body, service="iam", when=when), body))

    return one


def create(ask, name="one", **form):
    answer = ask("CreateRole", RoleName=name, AssumeRolePolicyDocument=TRUST, **form)
    assert answer.status == 200, answer.body
    return answer


def told(answer):
    return answer.xml.find("Error").value("Code"), answer.xml.find("Error").value("Message")


def test_a_role_is_answered_with_all_that_is_known_of_it(ask):
    created = create(ask, Path="/a/", Description="é", Tags__member__1__Key="k", Tags__member__1__Value="<v>")
    for answer, result in ((created, "CreateRoleResult"), (ask("GetRole", RoleName="one"), "GetRoleResult")):
        (role,) = answer.xml.find(result).all("Role")
        assert role.value("Arn") == "arn:aws:iam::000000000000:role/a/one"
        assert role.value("CreateDate") == "2027-01-15T08:00:00Z"
        assert unquote(role.value("AssumeRolePolicyDocument")) == TRUST
        assert (role.value("Description"), role.value("MaxSessionDuration")) == ("é", "3600")
        assert answer.texts(result, "Role", "Tags", "member", "Value") == ["<v>"]


def test_lists_leave_tags_out_and_have_pages(ask):
    for name in ("b", "a", "c"):
        create(ask, name, Tags__member__1__Key="k", Tags__member__1__Value="v")
    first = ask("ListRoles", MaxItems="2")
    assert first.texts("ListRolesResult", "Roles", "member", "RoleName") == ["a", "b"]
    assert first.texts("ListRolesResult", "Roles", "member", "Tags") == []
    (marker,) = first.texts("ListRolesResult", "Marker")
    rest = ask("ListRoles", Marker=marker)
    assert rest.texts("ListRolesResult", "Roles", "member", "RoleName") == ["c"]
    assert ask("ListRoles", PathPrefix="/x/").texts("ListRolesResult", "Roles", "member") == []


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ({"RoleName": "a b"}, "ValidationError"),
        ({"RoleName": "x" * 65}, "ValidationError"),
        ({"Path": "no"}, "ValidationError"),
        ({"MaxSessionDuration": "60"}, "ValidationError"),
        ({"AssumeRolePolicyDocument": "{"}, "MalformedPolicyDocument"),
        ({"AssumeRolePolicyDocument": RIGHTS}, "MalformedPolicyDocument"),
        ({"PermissionsBoundary": MANAGED}, "InvalidInput"),
        (
            {"Tags.member.1.Key": "a", "Tags.member.2.Key": "A"},
            "InvalidInput",
        ),
        ({"Tags.member.1.Key": "x" * 129}, "ValidationError"),
    ],
)
def test_a_role_that_iam_refuses_is_not_made(ask, form, code):
    answer = ask("CreateRole", **{"RoleName": "one", "AssumeRolePolicyDocument": TRUST, **form})
    assert (answer.status, told(answer)[0]) == (400, code)
    assert ask("ListRoles").texts("ListRolesResult", "Roles", "member") == []


def test_a_principal_that_is_a_role_of_ours_must_be_there(ask):
    create(ask)
    for name, status in (("one", 200), ("none", 400)):
        trust = json.loads(TRUST)
        trust["Statement"][0]["Principal"] = {"AWS": f"arn:aws:iam::000000000000:role/{name}"}
        assert ask("UpdateAssumeRolePolicy", RoleName="one", PolicyDocument=json.dumps(trust)).status == status


def test_inline_policies_are_put_answered_listed_and_removed(ask):
    create(ask)
    assert ask("PutRolePolicy", RoleName="one", PolicyName="p", PolicyDocument=RIGHTS).status == 200
    (document,) = ask("GetRolePolicy", RoleName="one", PolicyName="p").texts("GetRolePolicyResult", "PolicyDocument")
    assert unquote(document) == RIGHTS
    listed = ask("ListRolePolicies", RoleName="one")
    assert listed.texts("ListRolePoliciesResult", "PolicyNames", "member") == ["p"]
    assert told(ask("DeleteRole", RoleName="one"))[0] == "DeleteConflict"
    assert ask("DeleteRolePolicy", RoleName="one", PolicyName="p").status == 200
    assert told(ask("GetRolePolicy", RoleName="one", PolicyName="p"))[0] == "NoSuchEntity"
    assert (
        told(ask("PutRolePolicy", RoleName="one", PolicyName="p", PolicyDocument="x"))[0] == "MalformedPolicyDocument"
    )
    assert told(ask("PutRolePolicy", RoleName="none", PolicyName="p", PolicyDocument="x"))[0] == "NoSuchEntity"
    assert ask("DeleteRole", RoleName="one").status == 200


def test_managed_policies_are_attached_and_listed_by_their_path(ask):
    create(ask)
    ask("AttachRolePolicy", RoleName="one", PolicyArn=MANAGED)
    path = ("ListAttachedRolePoliciesResult", "AttachedPolicies", "member", "PolicyName")
    assert ask("ListAttachedRolePolicies", RoleName="one").texts(*path) == ["Basic"]
    assert ask("ListAttachedRolePolicies", RoleName="one", PathPrefix="/service-role/").texts(*path) == ["Basic"]
    assert ask("ListAttachedRolePolicies", RoleName="one", PathPrefix="/other/").texts(*path) == []
    assert ask("DetachRolePolicy", RoleName="one", PolicyArn=MANAGED).status == 200
    assert ask("ListAttachedRolePolicies", RoleName="one").texts(*path) == []


def test_tags_are_set_listed_and_removed(ask):
    create(ask)
    ask("TagRole", RoleName="one", Tags__member__1__Key="a", Tags__member__1__Value="1")
    listed = ask("ListRoleTags", RoleName="one")
    assert listed.texts("ListRoleTagsResult", "Tags", "member", "Key") == ["a"]
    ask("UntagRole", RoleName="one", TagKeys__member__1="a")
    assert ask("ListRoleTags", RoleName="one").texts("ListRoleTagsResult", "Tags", "member") == []


@pytest.mark.parametrize(
    "action",
    ["GetRole", "DeleteRole", "TagRole", "UntagRole", "ListRoleTags", "ListRolePolicies", "ListAttachedRolePolicies"],
)
def test_a_role_that_is_not_there(ask, action):
    assert told(ask(action, RoleName="none")) == ("NoSuchEntity", "The role with name none cannot be found.")


def test_there_is_one_user(ask):
    assert ask("GetUser").texts("GetUserResult", "User", "Arn") == ["arn:aws:iam::000000000000:user/local"]
    assert told(ask("GetUser", UserName="other"))[0] == "NoSuchEntity"
