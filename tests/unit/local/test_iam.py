"""The local account's roles."""

import json

import pytest

from vmnest.local import faults, iam

MANAGED = "arn:aws:iam::aws:policy/ReadOnlyAccess"
ALLOW = json.dumps({"Statement": {"Effect": "Allow", "Action": ["s3:*", "ec2:Create*"], "Resource": "*"}})


@pytest.fixture
def roles(tmp_path, fake_clock):
    return iam.Roles(str(tmp_path), clock=fake_clock)


def create(roles, name="one", **options):
    given = {"path": "/", "trust": "{}", "description": None, "max_session_seconds": 3600, "tags": {}}
    return roles.create(name, **{**given, **options})


def refused(act, *args):
    with pytest.raises(faults.Fault) as caught:
        act(*args)
    return caught.value.status, caught.value.error_type, caught.value.message


def test_a_role_is_made_found_and_removed(roles):
    role = create(roles, path="/a/", tags={"k": "v"})
    assert role.arn == "arn:aws:iam::000000000000:role/a/one"
    assert (role.role_id[:4], len(role.role_id)) == ("AROA", 21)
    assert roles.get("ONE") == role
    assert roles.exists(role.arn)
    assert not roles.exists("arn:aws:iam::000000000000:role/one")
    assert roles.all("/a/") == [role]
    assert roles.all("/b/") == []
    roles.delete("one")
    assert refused(roles.get, "one") == (404, "NoSuchEntity", "The role with name one cannot be found.")
    assert not roles.exists(role.arn)


def test_a_name_is_taken_whatever_its_case(roles):
    create(roles)
    assert refused(create, roles, "ONE") == (409, "EntityAlreadyExists", "Role with name ONE already exists.")


def test_what_still_has_policies_is_not_removed(roles):
    create(roles)
    roles.put_policy("one", "p", ALLOW)
    roles.attach("one", MANAGED)
    assert refused(roles.delete, "one")[1:] == (
        "DeleteConflict",
        "Cannot delete entity, must detach all policies first.",
    )
    roles.detach("one", MANAGED)
    assert refused(roles.delete, "one")[2] == "Cannot delete entity, must delete policies first."
    roles.delete_policy("one", "p")
    roles.delete("one")


def test_policies_are_kept_as_they_were_sent(roles):
    create(roles)
    roles.put_policy("one", "p", ALLOW)
    assert roles.policy("one", "p") == ALLOW
    missing = (404, "NoSuchEntity", "The role policy with name q cannot be found.")
    assert refused(roles.policy, "one", "q") == missing
    assert refused(roles.delete_policy, "one", "q") == missing


def test_only_managed_policies_of_aws_can_be_attached_and_once(roles):
    create(roles)
    own = "arn:aws:iam::000000000000:policy/own"
    assert refused(roles.attach, "one", own)[2] == f"Policy {own} does not exist or is not attachable."
    roles.attach("one", MANAGED)
    roles.attach("one", MANAGED)
    assert roles.get("one").attached == (MANAGED,)
    roles.detach("one", MANAGED)
    assert refused(roles.detach, "one", MANAGED) == (404, "NoSuchEntity", f"Policy {MANAGED} was not found.")


def test_there_are_limits(roles, monkeypatch):
    create(roles)
    for number in range(iam.MAX_ATTACHED):
        roles.attach("one", f"{MANAGED}{number}")
    assert refused(roles.attach, "one", MANAGED)[1] == "LimitExceeded"
    roles.put_policy("one", "p", "x " * iam.MAX_INLINE_BYTES)  # white space is free
    assert refused(roles.put_policy, "one", "q", "x")[1] == "LimitExceeded"
    assert refused(roles.tag, "one", {str(number): "" for number in range(51)})[1] == "LimitExceeded"
    monkeypatch.setattr(iam, "MAX_ROLES", 1)
    assert refused(create, roles, "two")[1] == "LimitExceeded"


def test_tags_are_merged_and_removed(roles):
    create(roles, tags={"a": "1"})
    roles.tag("one", {"a": "2", "b": "3"})
    roles.untag("one", ["a", "none"])
    assert roles.get("one").tags == {"b": "3"}


def test_trust_is_replaced(roles):
    create(roles)
    roles.set_trust("one", "[]")
    assert roles.get("one").trust == "[]"


@pytest.mark.parametrize(
    ("action", "may"), [("ec2:CreateNetworkInterface", True), ("EC2:createTags", True), ("ec2:DeleteVpc", False)]
)
def test_a_role_may_do_what_a_policy_speaks_of(roles, action, may):
    role = create(roles)
    roles.put_policy("one", "p", ALLOW)
    assert roles.may_do(role.arn, action) is may


def test_a_role_with_a_managed_policy_and_one_of_another_account_may_do_anything(roles):
    role = create(roles)
    assert not roles.may_do(role.arn, "ec2:CreateTags")
    roles.attach("one", MANAGED)
    assert roles.may_do(role.arn, "ec2:CreateTags")
    assert roles.may_do("arn:aws:iam::111122223333:role/x", "ec2:CreateTags")
    assert not roles.may_do("arn:aws:iam::000000000000:role/none", "ec2:CreateTags")
    denied = json.dumps({"Statement": [{"Effect": "Deny", "Action": "*", "Resource": "*"}]})
    other = create(roles, "two")
    roles.put_policy("two", "p", denied)
    assert not roles.may_do(other.arn, "ec2:CreateTags")


def test_the_next_daemon_knows_them(roles, tmp_path, fake_clock):
    create(roles, tags={"a": "1"}, description="d")
    roles.put_policy("one", "p", ALLOW)
    roles.attach("one", MANAGED)
    assert iam.Roles(str(tmp_path), clock=fake_clock).all() == roles.all()


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2, "roles": []}', '{"schema": 1, "roles": [{}]}'])
def test_what_is_damaged_is_kept_aside(tmp_path, text):
    path = tmp_path / "account" / iam.FILE
    path.parent.mkdir()
    path.write_text(text)
    assert iam.Roles(str(tmp_path)).all() == []
    assert path.with_name(iam.FILE + ".bad").read_text() == text
