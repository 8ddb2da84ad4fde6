"""Signatures of requests whose whole body is there."""

from datetime import datetime, timedelta, timezone

import pytest

from tests.support.account import KEYS, signed
from vmnest.aws.credentials import Credentials, Secret
from vmnest.local import callers, faults

REFUSALS = {
    kind: (kind.upper(), 400 + number)
    for number, kind in enumerate(("missing", "malformed", "unknown_key", "mismatch", "expired", "wrong_service"))
}


@pytest.fixture
def known(fake_clock):
    return callers.Callers(KEYS, clock=fake_clock)


def request(fake_clock, *, late=0.0, **options):
    when = datetime.fromtimestamp(fake_clock.time() - late, timezone.utc)
    return signed("POST", "/", b"body", **{"service": "iam", **options}, when=when)


def test_who_has_the_keys_may_call(known, fake_clock):
    verified = known.check(request(fake_clock), b"body", service="iam", refusals=REFUSALS)
    assert (verified.access_key, verified.region) == ("AK", "us-east-1")


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"service": "sts"}, "WRONG_SERVICE"),
        ({"credentials": Credentials("XX", Secret("SK"))}, "UNKNOWN_KEY"),
        ({"credentials": Credentials("AK", Secret("XX"))}, "MISMATCH"),
        ({"late": timedelta(hours=1).total_seconds()}, "EXPIRED"),
    ],
)
def test_each_fault_is_answered_in_the_services_words(known, fake_clock, options, kind):
    with pytest.raises(faults.Fault) as caught:
        known.check(request(fake_clock, **options), b"body", service="iam", refusals=REFUSALS)
    assert (caught.value.error_type, caught.value.status) == REFUSALS[kind.lower()]


def test_another_body_is_a_mismatch(known, fake_clock):
    with pytest.raises(faults.Fault) as caught:
        known.check(request(fake_clock), b"other", service="iam", refusals=REFUSALS)
    assert caught.value.error_type == "MISMATCH"
