"""Users by name and by number."""

from __future__ import annotations

import os
import pwd

import pytest

from guest.agentd import users
from guest.agentd.errors import RequestError

ROOT = pwd.getpwuid(0)
UNKNOWN_UID = 4_000_000_123


def refusal(wanted: object) -> RequestError:
    with pytest.raises(RequestError) as caught:
        users.find(wanted)  # type: ignore[arg-type] # what a document may hold
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize("wanted", [ROOT.pw_name, "0", 0], ids=["name", "digits", "number"])
def test_a_user_is_found_with_what_a_login_would_know(wanted: str | int) -> None:
    found = users.find(wanted)
    assert (found.uid, found.gid) == (0, ROOT.pw_gid)
    assert set(found.groups) == set(os.getgrouplist(ROOT.pw_name, ROOT.pw_gid))
    assert found.environment == {
        b"HOME": os.fsencode(ROOT.pw_dir),
        b"USER": os.fsencode(ROOT.pw_name),
        b"LOGNAME": os.fsencode(ROOT.pw_name),
        b"SHELL": os.fsencode(ROOT.pw_shell),
    }


@pytest.mark.parametrize("wanted", [UNKNOWN_UID, str(UNKNOWN_UID)], ids=["number", "digits"])
def test_a_number_that_nobody_has_is_a_user_without_a_name_and_with_no_rights_of_others(wanted: str | int) -> None:
    found = users.find(wanted)
    assert (found.uid, found.gid, found.groups) == (UNKNOWN_UID, UNKNOWN_UID, (UNKNOWN_UID,))
    assert found.environment[b"USER"] == str(UNKNOWN_UID).encode()
    assert found.environment[b"HOME"] == b"/"


@pytest.mark.parametrize(
    "wanted", ["no-such-user-here", "a\0b", "\ud800", "-1", "0x0", "٣", "1:1", " 0"], ids=lambda text: ascii(text)
)
def test_a_name_that_nobody_has_is_no_such_user(wanted: str) -> None:
    assert refusal(wanted).code == "no_such_user"


@pytest.mark.parametrize("wanted", ["", True, None, 1.5, [], -1, 2**32 - 1, 2**32, "4294967295", "9999999999"])
def test_what_can_be_no_user_is_a_bad_argument(wanted: object) -> None:
    error = refusal(wanted)
    assert error.code == "bad_argument"
    assert "user" in error.detail
