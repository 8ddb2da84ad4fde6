"""A role goes with all that hangs on it; one that others made comes back with the tags that tell so."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.memory_account import MemoryAccount
from vmnest import errors
from vmnest.deadline import Deadline
from vmnest.infra.account.roles import Roles, parse_document

TRUST = {"Version": "2012-10-17", "Statement": []}


@pytest.fixture
def memory() -> MemoryAccount:
    return MemoryAccount()


@pytest.fixture
def roles(memory: MemoryAccount, fake_clock: FakeClock) -> Roles:
    iam: Any = memory.service("iam")
    return Roles(iam, deadline=Deadline(600, clock=fake_clock), clock=fake_clock)


def test_a_role_is_found_with_all_that_it_may(roles: Roles) -> None:
    made = roles.create("exec", trust=TRUST, description="d", tags={"a": "b"})
    assert (made.name, made.arn, made.tags, made.trust) == (
        *("exec", "arn:aws:iam::111122223333:role/exec", {"a": "b"}, TRUST),
    )
    roles.set_policy("exec", "inline", {"x": 1})
    roles.attach("exec", "arn:policy")
    roles.set_trust("exec", {"y": 2})
    roles.tag("exec", {"c": "d"})
    found = roles.find("exec")
    assert found is not None
    assert found.policies == {"inline": {"x": 1}}
    assert found.attached == {"arn:policy"}
    assert found.trust == {"y": 2}
    assert found.tags == {"a": "b", "c": "d"}


def test_there_is_none_of_that_name(roles: Roles) -> None:
    assert roles.find("exec") is None


def test_a_role_is_deleted_with_what_hangs_on_it(memory: MemoryAccount, roles: Roles) -> None:
    roles.create("exec", trust=TRUST, description="d", tags={})
    roles.set_policy("exec", "one", {})
    roles.attach("exec", "arn:policy")
    found = roles.find("exec")
    assert found is not None
    roles.delete(found)
    assert memory.inventory() == {}
    roles.delete(found)  # it is gone


def test_what_it_has_not_is_detached_without_a_word(roles: Roles) -> None:
    roles.create("exec", trust=TRUST, description="d", tags={})
    roles.detach("exec", "arn:policy")


def test_a_role_of_that_name_is_returned_for_its_tags_to_be_judged(memory: MemoryAccount, roles: Roles) -> None:
    memory.iam.make("exec", {"whose": "theirs"})
    assert roles.create("exec", trust=TRUST, description="d", tags={}).tags == {"whose": "theirs"}


def test_somebody_who_may_not_look_is_told_so(memory: MemoryAccount, roles: Roles) -> None:
    memory.iam.is_hidden = True
    with pytest.raises(errors.AccessDeniedError):
        roles.find("exec")


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (json.dumps(TRUST), TRUST),
        (urllib.parse.quote(json.dumps(TRUST)), TRUST),
        (TRUST, TRUST),
        ("", {}),
        (None, {}),
        ("[1]", {}),
    ],
)
def test_documents_are_read_in_every_form(given: object, read: object) -> None:
    assert parse_document(given) == read
