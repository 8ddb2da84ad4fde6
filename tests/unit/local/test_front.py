"""Which service a request is for."""

from datetime import datetime, timezone

import pytest

from tests.support.account import CREDENTIALS, ScriptedStream, signed
from vmnest.aws.signing import Credentials
from vmnest.local import front, httpd
from vmnest.wire import http1


@pytest.fixture
def doors(s3):
    def named(name):
        return lambda request, body: httpd.Reply(200, [], name + b" " + body)

    return front.Front(
        named(b"control"), s3=s3.service, others={"iam": named(b"iam")}, access_key=CREDENTIALS.access_key
    )


def ask(doors, request, body=b""):
    return doors.respond(request, httpd.Incoming(ScriptedStream(body), request))


def request(service, body=b"", credentials=CREDENTIALS):
    now = datetime.now(timezone.utc)
    signed_request = signed("POST", "/", body, service=service, when=now, credentials=credentials)
    return http1.Request("POST", "/", [*signed_request.fields, ("Content-Length", str(len(body)))])


@pytest.mark.parametrize(("service", "answer"), [("lambda", b"control x"), ("iam", b"iam x"), ("ec2", b"control x")])
def test_the_scope_of_the_signature_says_it(doors, service, answer):
    assert ask(doors, request(service, b"x"), b"x").body == answer


def test_s3_reads_its_bodies_itself(doors):
    assert b"<Code>" in ask(doors, request("s3")).body


def test_what_is_not_signed_is_for_the_control_plane(doors):
    assert ask(doors, http1.Request("GET", "/", [("Host", "h")])).body == b"control "


def test_a_signed_url_is_for_s3(doors):
    answer = ask(doors, http1.Request("GET", "/b/k?X-Amz-Credential=x", [("Host", "h")]))
    assert (answer.status, b"signed URLs" in answer.body) == (501, True)


def test_the_body_of_whoever_has_not_our_key_is_not_read(doors):
    others = Credentials("SOMEBODYS", CREDENTIALS.secret_key)
    for service in ("lambda", "iam"):
        foreign = request(service, b"x", credentials=others)
        incoming = httpd.Incoming(ScriptedStream(b"x"), foreign)
        assert doors.respond(foreign, incoming).body in {b"control ", b"iam "}
        assert not incoming.is_complete
    unsigned = http1.Request("POST", "/", [("Host", "h"), ("Content-Length", str(10 * httpd.MAX_BODY_BYTES))])
    assert ask(doors, unsigned).body == b"control "


def test_bodies_of_all_but_s3_are_small(doors):
    big = httpd.MAX_BODY_BYTES + 1
    for service in ("lambda", "iam"):
        head = http1.Request("POST", "/", [*request(service).fields[:-1], ("Content-Length", str(big))])
        with pytest.raises(http1.MessageError) as caught:
            ask(doors, head)
        assert caught.value.status == 413


def test_it_is_as_idle_as_s3(doors, s3):
    s3.clock.advance(7)
    assert doors.idle_seconds() == 7
