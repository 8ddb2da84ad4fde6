"""S3 on the wire: signatures, dispatch, errors."""

import threading
from datetime import datetime, timedelta, timezone

import pytest

from tests.support.account import KEYS, S3Stage, ScriptedStream, signed
from vmnest.aws import signing
from vmnest.aws.credentials import Credentials, Secret
from vmnest.local import httpd, s3_service
from vmnest.wire import http1


def now(s3):
    return datetime.fromtimestamp(s3.clock.time(), timezone.utc)


@pytest.mark.parametrize(
    ("options", "status", "code"),
    [
        ({"credentials": Credentials("XX", Secret("SK"))}, 403, "InvalidAccessKeyId"),
        ({"credentials": Credentials("AK", Secret("XX"))}, 403, "SignatureDoesNotMatch"),
        ({"payload": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}, 501, "NotImplemented"),
        ({"payload": "nonsense"}, 400, "AuthorizationHeaderMalformed"),
    ],
    ids=["key", "secret", "signed chunks", "payload"],
)
def test_a_signature_that_does_not_hold_is_refused_before_the_body(s3, options, status, code):
    answer = s3.ask("PUT", "/bucket/k", b"x", **options)
    assert (answer.status, answer.code) == (status, code)
    assert not s3.incoming.is_complete


def test_a_clock_that_is_off_and_another_service_are_refused(s3):
    late = signed("GET", "/", service="s3", when=now(s3) - timedelta(hours=1))
    assert s3.send(late).code == "RequestTimeTooSkewed"
    other = signed("GET", "/", service="lambda", when=now(s3))
    assert s3.send(other).code == "AuthorizationHeaderMalformed"
    assert s3.send(http1.Request("GET", "/", [("Host", "h")])).code == "AccessDenied"


def test_a_target_that_was_changed_is_not_what_was_signed(s3):
    request = signed("GET", "/bucket/a", service="s3", when=now(s3))
    for target in ("/bucket/b", "/bucket//a", "/bucket/./a", "/bucket/a?versionId=x"):
        assert s3.send(http1.Request("GET", target, request.fields)).code == "SignatureDoesNotMatch"


def test_signed_urls_are_not_here_and_that_is_said(s3):
    answer = s3.send(http1.Request("GET", "/bucket/k?X-Amz-Credential=AK%2F1", [("Host", "h")]))
    assert (answer.status, answer.code) == (501, "NotImplemented")


@pytest.mark.parametrize("key", ["a//b", "/x", "a/../b", "%2F", "%C3%A9", "a+b", "a%20b", "~", "a:b@c"])
def test_odd_keys_are_signed_as_they_stand(s3, key):
    s3.put(key, key.encode())
    assert s3.ask("GET", f"/bucket/{key}").body == key.encode()


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/bucket?acl"),
        ("PUT", "/bucket?lifecycle"),
        ("GET", "/bucket/k?tagging"),
        ("POST", "/bucket/k"),
        ("POST", "/bucket/k?uploads&uploadId=x"),
        ("DELETE", "/"),
        ("PATCH", "/bucket"),
    ],
)
def test_what_is_not_here_names_what_is(s3, method, target):
    answer = s3.ask(method, target)
    assert (answer.status, answer.code) == (501, "NotImplemented")
    assert "; it has: " in answer.xml.value("Message")


@pytest.mark.parametrize("host", ["bucket.localhost:80", "bucket.s3.amazonaws.com", "bucket.127.0.0.1:8031"])
def test_a_bucket_in_the_host_name_is_refused_and_not_misread(s3, host):
    answer = s3.ask("PUT", "/key", b"x")
    assert answer.status == 400  # as a bucket's name and nothing else
    request = signed("PUT", "/key", service="s3", when=now(s3))
    fields = [field for field in request.fields if field[0].lower() not in {"host", "authorization"}]
    given = [("Host", host), *(field for field in fields if field[0].lower() != "x-amz-date")]
    added = signing.sign(
        method="PUT",
        url="http://h/key",
        headers=given,
        body_sha256=signing.EMPTY_SHA256,
        credentials=Credentials(KEYS.access_key, Secret(KEYS.secret_key)),
        region="us-east-1",
        service="s3",
        when=now(s3),
    )
    refused = s3.send(http1.Request("PUT", "/key", [*given, *added]))
    assert (refused.status, "path" in refused.xml.value("Message")) == (400, True)
    assert [bucket.name for bucket in s3.store.all()] == ["bucket"]


def test_every_answer_has_an_id_and_a_date(s3):
    for answer in (s3.ask("GET", "/"), s3.ask("GET", "/bucket/none")):
        assert answer.fields["x-amz-request-id"]
        assert answer.fields["date"] == "Fri, 15 Jan 2027 08:00:00 GMT"
    assert answer.texts("RequestId") == [answer.fields["x-amz-request-id"]]
    assert answer.texts("Resource") == ["/bucket/none"]


def test_a_full_disk_is_an_error_of_the_service_and_leaves_nothing(s3, monkeypatch, caplog):
    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(s3_service.buckets.os, "rename", full)
    answer = s3.ask("PUT", "/bucket/k", b"x")
    assert (answer.status, answer.code) == (500, "InternalError")
    assert "No space left" in answer.xml.value("Message")
    monkeypatch.undo()
    assert s3.ask("GET", "/bucket/k").code == "NoSuchKey"


def test_a_failure_of_ours_is_a_500_and_in_the_log(s3, monkeypatch, caplog):
    monkeypatch.setattr(s3.store, "all", lambda: 1 / 0)
    assert s3.ask("GET", "/").code == "InternalError"
    assert "ZeroDivisionError" in caplog.text


def test_a_body_that_nobody_wants_is_held_to_its_signature(s3):
    assert s3.ask("GET", "/bucket?list-type=2", b"body").status == 200
    assert s3.incoming.is_complete
    s3.put("k")
    # With what would be sent, the file is closed: ResourceWarning is an error here.
    assert s3.ask("GET", "/bucket/k", b"body", payload="0" * 64).code == "XAmzContentSHA256Mismatch"


def test_a_body_that_is_cut_short_has_no_answer(s3):
    request = signed("PUT", "/bucket/k", b"xyz", service="s3", when=now(s3))
    request = http1.Request("PUT", "/bucket/k", [*request.fields, ("Content-Length", "3")])
    with pytest.raises(http1.TruncatedError):
        s3.send(request, b"x")
    assert s3.ask("GET", "/bucket/k").code == "NoSuchKey"


def test_it_is_idle_for_as_long_as_nobody_asks(s3):
    s3.clock.advance(50)
    assert s3.service.idle_seconds() == 50
    seen = []

    class Watching(ScriptedStream):
        def receive(self):
            seen.append(s3.service.idle_seconds())
            return super().receive()

    request = signed("PUT", "/bucket/k", b"x", service="s3", when=now(s3))
    request = http1.Request("PUT", "/bucket/k", [*request.fields, ("Content-Length", "1")])
    s3.service.respond(request, httpd.Incoming(Watching(b"x"), request))
    assert (seen, s3.service.idle_seconds()) == ([0.0], 0.0)


def test_many_put_and_delete_the_same_key_at_once(tmp_path, fake_clock):
    stage = S3Stage(str(tmp_path), fake_clock)
    stage.ask("PUT", "/bucket")
    failures = []

    def work(number):
        for _ in range(20):
            put = stage.ask("PUT", "/bucket/k", b"%d" % number * 2000)
            got = stage.ask("GET", "/bucket/k")
            gone = stage.ask("DELETE", "/bucket/k")
            whole = len(set(got.body)) == 1 if got.status == 200 else got.status == 404
            failures.extend(each.body for each in (put, gone) if each.status >= 300)
            failures.extend([] if whole else [got.body])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list((tmp_path / "account" / "s3" / "bucket" / "data").iterdir()) == []
    assert list((tmp_path / "account" / "spool").iterdir()) == []
