"""That secrets do not print."""

import pytest

from vmnest import errors
from vmnest.aws import credentials


def test_a_secret_does_not_print():
    made = credentials.build("AKID", "hunter2", token="hunter3")
    shown = (
        f"{made} {made!r} {made.secret_key} {made.secret_key!r} {made.secret_key:>20} {[made.token]} %s" % made.token
    )
    assert "hunter" not in shown
    assert made.secret_key.reveal() == "hunter2"
    assert made.secret_key == credentials.Secret("hunter2") != credentials.Secret("x")
    assert len({made.secret_key, credentials.Secret("hunter2")}) == 1


def test_keys_that_do_not_change_are_given_out_as_they_are():
    made = credentials.build("AKID", "hunter2", expires_at=5.0, origin="a test")
    assert credentials.StaticSource(made).get() is made
    assert credentials.StaticSource(made).renew(made) is False
    assert (made.token, made.expires_at, made.origin) == (None, 5.0, "a test")


def test_keys_without_blanks_are_keys():
    made = credentials.build("AKID", "a/b+c=", token="IQoJb3JpZ2luX2VjE//+==")
    assert credentials.check(made) is made


@pytest.mark.parametrize("blank", [" ", "\n", "\r", "\t", "\u00a0", "\u200b"])
@pytest.mark.parametrize("part", ["access key", "secret key", "session token"])
def test_a_blank_that_was_copied_along_is_named_and_its_key_is_not(part, blank):
    texts = {"access key": "AKIDX", "secret key": "hunter2", "session token": "hunter3"}
    access, secret, token = ((text + blank if name == part else text) for name, text in texts.items())
    made = credentials.build(access, secret, token=token, origin="profile 'x'")
    with pytest.raises(errors.CredentialsBrokenError, match=f"the {part} from profile 'x'") as caught:
        credentials.check(made)
    assert "hunter" not in caught.value.message
