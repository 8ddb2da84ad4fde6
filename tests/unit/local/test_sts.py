"""Who am I?"""

from datetime import datetime, timezone

from tests.support.account import KEYS, Answer, signed
from vmnest.local import callers, sts


def test_the_one_user_of_the_account(fake_clock):
    body = b"Action=GetCallerIdentity&Version=2011-06-15"
    when = datetime.fromtimestamp(fake_clock.time(), timezone.utc)
    service = sts.service(callers.Callers(KEYS, clock=fake_clock))
    answer = Answer(service.answer(signed("POST", "/", body, service="sts", when=when), body))
    assert answer.texts("GetCallerIdentityResult", "Account") == ["000000000000"]
    assert answer.texts("GetCallerIdentityResult", "Arn") == ["arn:aws:iam::000000000000:user/local"]
    assert answer.texts("GetCallerIdentityResult", "UserId")[0].startswith("AIDA")
