"""moto with its authentication switched on, as an independent judge of what we sign and send.

moto computes each signature anew with botocore's signer, and knows whose key it is. It runs as a process of its own.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import pytest

from tests.support.moto_server import REGION, prepare, serving_moto, switch_on_authentication
from vmnest import errors, transport
from vmnest.aws import credentials, service, signing
from vmnest.aws.credentials import Credentials
from vmnest.deadline import Deadline


@dataclass
class Moto:
    """A server that refuses what is not signed. ``user`` may do everything, ``nobody`` nothing."""

    url: str
    user: Credentials
    nobody: Credentials
    role: Credentials
    sender: transport.Transport

    def send(
        self,
        method: str,
        path: str,
        *,
        service_name: str,
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
        by: Credentials | None = None,
        body_sha256: str | None = None,
        tampered: bytes | None = None,
    ) -> tuple[int, bytes]:
        """Sign with our signer, send with our transport; ``tampered`` is sent in place of what was signed."""
        url = self.url + path
        signature = signing.sign(
            method=method,
            url=url,
            headers=headers,
            body_sha256=body_sha256 or hashlib.sha256(body).hexdigest(),
            credentials=by or self.user,
            region=REGION,
            service=service_name,
            when=datetime.now(timezone.utc),
        )
        sent = body if tampered is None else tampered
        with self.sender.send(
            method, url, headers=[*headers, *signature], body=sent or None, deadline=Deadline(20)
        ) as response:
            return response.status, response.read(2**20)

    def who(self, **options: object) -> tuple[int, bytes]:
        form = [("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")]
        body = b"Action=GetCallerIdentity&Version=2011-06-15"
        return self.send("POST", "/", service_name="sts", headers=form, body=body, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def moto() -> Iterator[Moto]:
    with serving_moto() as url:
        sender = transport.Transport(environ={})
        try:
            user, nobody, role = prepare(url)
            switch_on_authentication(url)
            yield Moto(url, user, nobody, role, sender)
        finally:
            sender.close()


# -- who may call ------------------------------------------------------------------------------------------------------


def test_the_right_key_is_accepted(moto: Moto):
    status, body = moto.who()
    assert status == 200
    assert b":user/user<" in body


def test_a_session_token_is_accepted(moto: Moto):
    status, body = moto.who(by=moto.role)
    assert status == 200
    assert b"assumed-role/role/session" in body


def test_a_wrong_secret_is_refused(moto: Moto):
    status, body = moto.who(by=moto.user._replace(secret_key=credentials.Secret("wrong")))
    assert status == 403
    assert b"SignatureDoesNotMatch" in body


def test_an_unknown_key_is_refused(moto: Moto):
    status, body = moto.who(by=credentials.build("AKIAUNKNOWN", "secret"))
    assert status == 403
    assert b"InvalidClientTokenId" in body


def test_a_wrong_session_token_is_refused(moto: Moto):
    status, _ = moto.who(by=moto.role._replace(token=credentials.Secret("wrong")))
    assert status == 403


def test_another_body_than_was_signed_is_refused(moto: Moto):
    status, body = moto.who(tampered=b"Action=GetCallerIdentity&Version=2011-06-15&x=y")
    assert status == 403
    assert b"SignatureDoesNotMatch" in body


def test_a_request_without_a_signature_is_refused(moto: Moto):
    url = f"{moto.url}/bucket/never"
    with moto.sender.send("PUT", url, body=b"content", deadline=Deadline(20)) as response:
        assert response.status >= 400  # moto says 500
    assert moto.send("GET", "/bucket/never", service_name="s3")[0] == 404


# -- s3: encoded once, keys of any shape, bodies signed by their hash -------------------------------------------------


@pytest.mark.parametrize(
    "key",
    ["plain", "a/b/c.txt", "with%20space", "a%2Bb", "%C3%BC", "a//b", "x%3Dy%26z", "~-._", "a%25b", "%28a%29%2A%21%27"],
)
def test_objects_of_any_name_are_written_and_read(moto: Moto, key):
    assert moto.send("PUT", f"/bucket/{key}", service_name="s3", body=b"content") == (200, b"")
    assert moto.send("GET", f"/bucket/{key}", service_name="s3") == (200, b"content")


def test_a_body_may_go_unsigned(moto: Moto):
    sent = moto.send(
        "PUT", "/bucket/unsigned", service_name="s3", body=b"content", body_sha256=signing.UNSIGNED_PAYLOAD
    )
    assert sent == (200, b"")
    assert moto.send("GET", "/bucket/unsigned", service_name="s3") == (200, b"content")


@pytest.mark.parametrize(
    "query",
    [
        "list-type=2",
        "list-type=2&prefix=a%2Fb&max-keys=5",
        "prefix=x&list-type=2&delimiter=%2F",
        "list-type=2&prefix=",
        "location",
        "location=",
        "list-type=2&prefix=%C3%BC&start-after=a%20b",
    ],
)
def test_queries_of_any_order_are_accepted(moto: Moto, query):
    status, _ = moto.send("GET", f"/bucket?{query}", service_name="s3")
    assert status == 200


def test_a_wrong_secret_reads_nothing(moto: Moto):
    wrong = moto.user._replace(secret_key=credentials.Secret("wrong"))
    status, body = moto.send("GET", "/bucket/plain", service_name="s3", by=wrong)
    assert status == 403
    assert b"SignatureDoesNotMatch" in body


def test_a_key_without_rights_reads_nothing(moto: Moto):
    status, body = moto.send("GET", "/bucket/plain", service_name="s3", by=moto.nobody)
    assert status == 403
    assert b"AccessDenied" in body


# -- the caller of rest-json services ----------------------------------------------------------------------------------
#
# moto has no MicroVMs, and refuses even boto3's signature of a GET to a rest-json service (it takes the parameters for
# a body). So the judge here is AWS Batch: rest-json as well, POST with a body, ARNs in the path.

QUEUE_ARN = f"arn:aws:batch:{REGION}:123456789012:job-queue/x"


def call(moto: Moto, operation: str, params: dict[str, object], *, by: Credentials | None = None) -> dict[str, object]:
    caller = service.Service(
        "batch",
        endpoint=moto.url,
        region=REGION,
        credentials=credentials.StaticSource(by or moto.user),
        transport=moto.sender,
    )
    return caller.call(operation, params, deadline=Deadline(20))


@pytest.mark.parametrize("who", ["user", "role"])
def test_a_call_is_accepted_and_its_answer_read(moto: Moto, who):
    assert call(moto, "DescribeJobQueues", {}, by=getattr(moto, who)) == {"jobQueues": []}


def test_an_arn_in_the_path_is_signed_as_the_judge_signs_it(moto: Moto):
    assert call(moto, "TagResource", {"resourceArn": QUEUE_ARN, "tags": {"a": "b"}}) == {}


@pytest.mark.parametrize(
    "by",
    [
        lambda moto: moto.user._replace(secret_key=credentials.Secret("wrong")),
        lambda moto: moto.user._replace(token=credentials.Secret("one too many")),
        lambda moto: moto.role._replace(token=credentials.Secret("wrong")),
        lambda moto: credentials.build("AKIAUNKNOWN", "secret"),
    ],
    ids=["wrong secret", "token that does not belong", "wrong token", "unknown key"],
)
def test_a_caller_that_is_not_known_is_told_so(moto: Moto, by):
    with pytest.raises(errors.SignatureRefusedError):
        call(moto, "DescribeJobQueues", {}, by=by(moto))


def test_a_caller_without_rights_is_told_so(moto: Moto):
    with pytest.raises(errors.AccessDeniedError, match="not authorized to perform: batch:describejobqueues"):
        call(moto, "DescribeJobQueues", {}, by=moto.nobody)
