"""That secrets do not print."""

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
    assert (made.token, made.expires_at, made.origin) == (None, 5.0, "a test")
