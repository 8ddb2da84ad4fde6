"""Sizes of image versions, with an account whose service answers by what is asked for."""

from __future__ import annotations

import pytest

from tests.support.costs import MIB, Account
from vmnest import errors
from vmnest.deadline import Deadline
from vmnest.ops import image_sizes
from vmnest.ops.image_sizes import Key, Sizes
from vmnest.ops.prices import Range

REGION = "us-east-1"


def key(name: str = "demo", number: str = "1.0") -> Key:
    return REGION, f"arn:aws:lambda:{REGION}:111122223333:microvm-image:{name}", number


def sizes() -> Sizes:
    return Sizes(region=None, deadline=Deadline(30))


def test_a_version_has_the_memory_and_the_snapshots_of_its_builds(priced: Account) -> None:
    found = sizes().find([key()])[key()]
    # Of memory and disk 620 and 512 MiB; with the code 800 and 692.
    assert found.memory_mib == 2048
    assert found.loaded == Range(512 * MIB, 800 * MIB)
    assert found.stored == Range(512 * MIB, 1492 * MIB)
    assert found.reason is None


def test_each_version_is_asked_for_once(priced: Account) -> None:
    assert list(sizes().find([key(), key(), key()])) == [key()]
    assert len(priced.peer.requests) == 4  # the version, its builds, and two that succeeded


def test_a_version_that_does_not_say_has_the_services_own_memory(priced: Account) -> None:
    priced.add_version("demo", "1.0", resources=None)
    assert sizes().find([key()])[key()].memory_mib == 2048


def test_what_is_not_told_is_not_made_up(priced: Account) -> None:
    priced.snapshots.clear()
    found = sizes().find([key()])[key()]
    assert (found.memory_mib, found.loaded, found.stored) == (2048, None, None)
    assert found.reason is not None
    assert "does not tell" in found.reason


def test_who_may_not_look_at_builds_still_learns_the_memory(priced: Account) -> None:
    priced.refused.append("/builds")
    found = sizes().find([key()])[key()]
    assert (found.memory_mib, found.stored) == (2048, None)
    assert "not authorized" in str(found.reason)


def test_a_version_that_is_gone_has_no_size_and_the_others_have(priced: Account) -> None:
    gone = key("gone")
    found = sizes().find([gone, key()])
    assert found[gone].memory_mib is None
    assert "not here" in str(found[gone].reason)
    assert found[key()].memory_mib == 2048


def test_without_a_way_to_the_service_no_size_is_known(priced: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nonsense")
    found = sizes().find([key()])[key()]
    assert found.memory_mib is None
    assert found.reason


def test_the_versions_that_are_kept_are_those_that_did_not_fail(priced: Account) -> None:
    priced.add_version("demo", "2.0", status="INACTIVE")
    priced.add_version("demo", "3.0", state="FAILED")
    priced.add_version("other", "1.0")
    assert sizes().list_kept(REGION) == [key(), key(number="2.0"), key("other")]
    priced.refused.append("/versions$")
    with pytest.raises(errors.AccessDeniedError):
        sizes().list_kept(REGION)


def test_an_image_that_is_deleted_meanwhile_keeps_nothing(priced: Account) -> None:
    priced.add_version("other", "1.0")
    priced.gone.append("other/versions$")
    assert sizes().list_kept(REGION) == [key()]


def test_the_key_of_a_sandbox_is_its_version_where_that_is_known() -> None:
    view = {"region": REGION, "image_arn": "arn", "image_version": "1.0"}
    assert image_sizes.key_of(view) == (REGION, "arn", "1.0")
    assert image_sizes.key_of({**view, "region": None}) == ("", "arn", "1.0")
    assert image_sizes.key_of({**view, "image_version": None}) is None
    assert image_sizes.key_of({}) is None
