"""Data-plane tokens: opaque, bound, not to be forged."""

import base64
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local import tokens

SEAL = tokens.Seal("secret")
GRANT = tokens.Grant("microvm-1", ports=((8080, 8080), (9000, 9100)), expires_at=1000.5)


def test_a_token_opens_to_what_it_was_made_for():
    assert SEAL.open(SEAL.make(GRANT)) == GRANT


def test_another_daemon_of_the_folder_opens_it_too():
    assert tokens.Seal("secret").open(SEAL.make(GRANT)) == GRANT


def test_it_looks_like_a_jwe_and_tells_nothing():
    token = SEAL.make(GRANT)
    parts = token.split(".")
    assert len(parts) == 5
    assert parts[1] == ""
    header = json.loads(base64.urlsafe_b64decode(parts[0] + "=="))
    assert header == {"kid": header["kid"], "alg": "dir", "enc": "A256GCM"}
    assert re.fullmatch(r"[A-Za-z0-9._-]{700,870}", token)
    assert b"microvm" not in base64.urlsafe_b64decode(parts[3] + "===")


def test_its_length_does_not_depend_on_what_it_covers():
    all_ports = tokens.Grant("microvm-1", ports=(tokens.ALL_PORTS,), expires_at=1.0)
    assert len(SEAL.make(GRANT)) == len(SEAL.make(all_ports))


def test_two_tokens_for_the_same_differ():
    assert SEAL.make(GRANT) != SEAL.make(GRANT)


def test_many_ports_fit():
    grant = tokens.Grant("microvm-1", ports=tuple((port, port) for port in range(1, 200)), expires_at=1.0)
    assert SEAL.open(SEAL.make(grant)) == grant


@pytest.mark.parametrize(("port", "covered"), [(8080, True), (8081, False), (9000, True), (9100, True), (9101, False)])
def test_a_grant_covers_its_ranges(port, covered):
    assert GRANT.covers(port) is covered


def test_another_folders_token_is_refused():
    with pytest.raises(tokens.TokenInvalidError):
        tokens.Seal("other").open(SEAL.make(GRANT))


@given(st.data())
def test_a_changed_token_is_refused(data):
    token = SEAL.make(GRANT)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(min_codepoint=33, max_codepoint=126).filter(lambda c: c != token[at]))
    changed = token[:at] + other + token[at + 1 :]
    try:
        opened = SEAL.open(changed)
    except tokens.TokenInvalidError:
        return
    # The last digit of a base64 text carries bits that mean nothing.
    assert opened == GRANT


@given(st.text(max_size=60))
def test_any_text_is_refused(text):
    with pytest.raises(tokens.TokenInvalidError):
        SEAL.open(text)


@pytest.mark.parametrize("text", ["....", "a.b.c.d.e", "x" * 9000], ids=["empty", "five parts", "long"])
def test_other_shapes_are_refused(text):
    with pytest.raises(tokens.TokenInvalidError):
        SEAL.open(text)
