"""The signer, held to AWS's published suite and to botocore's signer."""

from __future__ import annotations

import hashlib
import http.server
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from unittest import mock
from urllib.parse import quote, unquote

import boto3
import botocore.auth
import botocore.awsrequest
import botocore.credentials
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import AWS_CLI, ROOT
from vmnest.aws import signing
from vmnest.aws.credentials import Credentials, Secret

SUITE = ROOT / "tests" / "vectors" / "sigv4"
CASES = sorted(path.parent for path in SUITE.rglob("*.req"))
SECRET = Secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
NOON = datetime(2015, 8, 30, 12, 36, tzinfo=timezone.utc)
ARN = "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo"


def secret_for(access_key: str) -> Secret | None:
    return SECRET if access_key == "AKIDEXAMPLE" else None


# -- the published suite -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A folder of the suite, read."""

    folder: Path

    def text(self, kind: str) -> str:
        return (self.folder / f"{self.folder.name}.{kind}").read_bytes().decode()

    def request(self, kind: str = "req") -> tuple[str, str, list[tuple[str, str]], bytes]:
        head, _, body = self.text(kind).partition("\n\n")
        lines = head.rstrip("\n").split("\n")
        method, _, rest = lines[0].partition(" ")
        headers: list[tuple[str, str]] = []
        for line in lines[1:]:
            if line.startswith(" "):
                headers[-1] = (headers[-1][0], headers[-1][1] + "\n" + line)
            else:
                name, _, value = line.partition(":")
                headers.append((name, value))
        return method, rest.removesuffix(" HTTP/1.1"), headers, body.encode()

    @property
    def token(self) -> str | None:
        """The session token that is to be signed, if any (one case shows it in the later steps only)."""
        name = "x-amz-security-token:"
        return next((line.removeprefix(name) for line in self.text("creq").split("\n") if line.startswith(name)), None)


def test_the_suite_is_complete() -> None:
    assert len(CASES) == 34


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_each_step_of_the_published_suite_holds(folder: Path) -> None:
    case = Case(folder)
    method, target, headers, body = case.request()
    if case.token is not None:
        headers = change(headers, "X-Amz-Security-Token", case.token)
    canonical = signing.canonical_request(
        method=method,
        target=target,
        headers=headers,
        signed_headers={name.lower() for name, _ in headers},
        payload=hashlib.sha256(body).hexdigest(),
        service="service",
    )
    assert canonical == case.text("creq")
    scope = signing.Scope(day="20150830", region="us-east-1", service="service")
    to_sign = signing.string_to_sign(canonical, stamp="20150830T123600Z", scope=scope)
    assert to_sign == case.text("sts")
    assert case.text("authz").endswith("Signature=" + signing.signature(SECRET, scope=scope, text=to_sign))


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_sign_makes_the_published_authorization(folder: Path) -> None:
    case = Case(folder)
    method, target, headers, body = case.request()
    token = case.token
    bare = [pair for pair in headers if pair[0] not in {"X-Amz-Date", "X-Amz-Security-Token"}]
    added = signing.sign(
        method=method,
        url="https://example.amazonaws.com" + target,
        headers=bare,
        body_sha256=hashlib.sha256(body).hexdigest(),
        credentials=Credentials("AKIDEXAMPLE", SECRET, None if token is None else Secret(token)),
        region="us-east-1",
        service="service",
        when=NOON,
    )
    assert dict(added)["Authorization"] == case.text("authz")


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_verify_accepts_each_signed_request_of_the_suite(folder: Path) -> None:
    case = Case(folder)
    method, target, headers, body = case.request("sreq")
    # The suite's own mistake: in one case the signature in .sreq is not the one in .authz (which is right).
    headers = change(headers, "Authorization", case.text("authz"))
    if folder.name == "get-utf8":
        # It signs a path of raw UTF-8. No HTTP client may send that, so a server refuses it unseen.
        with pytest.raises(signing.SignatureError, match="ASCII"):
            verify_suite_request(method, target, headers, body)
        return
    verified = verify_suite_request(method, quote(target, safe="/?=&%$ "), headers, body)
    assert (verified.access_key, verified.region) == ("AKIDEXAMPLE", "us-east-1")


def verify_suite_request(method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> signing.Verified:
    return signing.verify(
        method=method,
        raw_target=target,
        headers=headers,
        body_sha256=hashlib.sha256(body).hexdigest(),
        secret_for=secret_for,
        service="service",
        now=NOON,
    )


# -- beside botocore ---------------------------------------------------------------------------------------------------


def signed_by_botocore(
    request: Request, *, service: str, token: str | None = None, when: datetime = NOON
) -> list[tuple[str, str]]:
    """The same request, all headers as botocore's own signer leaves them (with Host, which its HTTP client adds)."""
    sent = botocore.awsrequest.AWSRequest(method=request.method, url=request.url, data=request.body)
    for name, value in request.headers:
        sent.headers.add_header(name, value)
    keys = botocore.credentials.Credentials("AKIDEXAMPLE", SECRET.reveal(), token)
    signer = botocore.auth.S3SigV4Auth if service == "s3" else botocore.auth.SigV4Auth
    with mock.patch("botocore.auth.get_current_datetime", return_value=when.replace(tzinfo=None)):
        signer(keys, service, request.region).add_auth(sent)
    return [("Host", request.host), *sent.headers.items()]


@dataclass(frozen=True)
class Request:
    method: str = "POST"
    host: str = "lambda.us-east-1.amazonaws.com"
    target: str = "/2025-09-09/microvms"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    region: str = "us-east-1"

    @property
    def url(self) -> str:
        return f"https://{self.host}{self.target}"

    def sign(self, *, service: str = "lambda", token: str | None = None) -> list[tuple[str, str]]:
        """All headers as sent."""
        added = signing.sign(
            method=self.method,
            url=self.url,
            headers=self.headers,
            body_sha256=hashlib.sha256(self.body).hexdigest(),
            credentials=Credentials("AKIDEXAMPLE", SECRET, None if token is None else Secret(token)),
            region=self.region,
            service=service,
            when=NOON,
        )
        return [*self.headers, *added]

    def verify(
        self, headers: list[tuple[str, str]], *, service: str = "lambda", now: datetime = NOON
    ) -> signing.Verified:
        return signing.verify(
            method=self.method,
            raw_target=self.target,
            headers=headers,
            body_sha256=hashlib.sha256(self.body).hexdigest(),
            secret_for=secret_for,
            service=service,
            now=now,
        )


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SEGMENTS = st.one_of(TEXT.map(lambda text: quote(text, safe="~")), st.sampled_from(["", ".", "..", quote(ARN), ARN]))
PATHS = st.lists(SEGMENTS, max_size=6).map(lambda segments: "/" + "/".join(segments))
KEYS_WITH_VALUES = st.tuples(TEXT.filter(bool), TEXT).map(lambda pair: "=".join(quote(part, safe="~") for part in pair))
PAIRS = st.one_of(
    KEYS_WITH_VALUES,
    st.sampled_from(["tagKeys=a", "tagKeys=b", "tagKeys=b", "a-b=1", "acl", "nextToken=QUJD%3D%3D"]),
)
QUERIES = st.lists(PAIRS, max_size=6).map("&".join)
TARGETS = st.builds(lambda path, query: f"{path}?{query}" if query else path, PATHS, QUERIES)
NAMES = st.sampled_from(
    [
        "content-type",
        "X-Amz-Client",
        "x-custom",
        "X-Custom",
        "Expect",
        "User-Agent",
        "Connection",
        "vmnest-local-options",
    ]
)
VALUES = st.text(st.characters(codec="ascii", min_codepoint=32, max_codepoint=126), max_size=20)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=6).map(tuple)
REQUESTS = st.builds(
    Request,
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE", "PATCH", "HEAD"]),
    host=st.sampled_from(["lambda.us-east-1.amazonaws.com", "127.0.0.1:8031", "[::1]:8031", "h:80"]),
    target=TARGETS,
    headers=HEADERS,
    body=st.binary(max_size=40),
    region=st.sampled_from(["us-east-1", "cn-north-1"]),
)
TOKENS = st.none() | st.text(st.characters(codec="ascii", min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
SERVICES = st.sampled_from(["lambda", "s3"])


def authorization(headers: list[tuple[str, str]]) -> str:
    return next(value for name, value in headers if name == "Authorization")


def as_sent_by_clients(request: Request, *, service: str) -> Request:
    """S3's clients send a path with every byte encoded that needs it; for other services any path is comparable."""
    path, mark, query = request.target.partition("?")
    return replace(request, target=quote(unquote(path), safe="/~") + mark + query) if service == "s3" else request


@given(request=REQUESTS, token=TOKENS, service=SERVICES)
def test_our_signature_is_botocores(request: Request, token: str | None, service: str) -> None:
    request = as_sent_by_clients(request, service=service)
    theirs = signed_by_botocore(request, service=service, token=token)
    assert authorization(request.sign(service=service, token=token)) == authorization(theirs)


@given(request=REQUESTS, token=TOKENS, service=SERVICES)
def test_what_botocore_signs_is_verified(request: Request, token: str | None, service: str) -> None:
    request = as_sent_by_clients(request, service=service)
    headers = signed_by_botocore(request, service=service, token=token)
    assert request.verify(headers, service=service).region == request.region


@given(request=REQUESTS, token=TOKENS, service=SERVICES, folding=st.randoms(use_true_random=False))
def test_what_we_sign_is_verified_whatever_the_case_and_blanks_of_headers(
    request: Request, token: str | None, service: str, folding: object
) -> None:
    headers = [(name.upper(), f"  {value}\t") for name, value in request.sign(service=service, token=token)]
    verified = request.verify(headers, service=service)
    assert "host" in verified.signed_headers


FLIPS = {
    "method": lambda request, headers: (replace(request, method="OPTIONS"), headers),
    "path": lambda request, headers: (
        replace(request, target="?".join([request.target.partition("?")[0] + "/x", *request.target.split("?")[1:]])),
        headers,
    ),
    "query": lambda request, headers: (
        replace(request, target=request.target + ("&" if "?" in request.target else "?") + "more=1"),
        headers,
    ),
    "body": lambda request, headers: (replace(request, body=request.body + b"x"), headers),
    "header": lambda request, headers: (request, [(n, v + "x" if n == "X-Signed" else v) for n, v in headers]),
    "host": lambda request, headers: (request, [(n, "other" if n == "Host" else v) for n, v in headers]),
    "token": lambda request, headers: (
        request,
        [(n, v + "x" if n == "X-Amz-Security-Token" else v) for n, v in headers],
    ),
    "date": lambda request, headers: (
        request,
        [(n, "20150830T123601Z" if n == "X-Amz-Date" else v) for n, v in headers],
    ),
    "signature": lambda request, headers: (
        request,
        [(n, v[:-1] + ("0" if v[-1] != "0" else "1") if n == "Authorization" else v) for n, v in headers],
    ),
    "region": lambda request, headers: (
        request,
        [(n, v.replace("/us-east-1/", "/us-east-2/") if n == "Authorization" else v) for n, v in headers],
    ),
}


@pytest.mark.parametrize("piece", FLIPS)
@pytest.mark.parametrize("service", ["lambda", "s3"])
@given(target=TARGETS, body=st.binary(max_size=20))
def test_a_change_to_any_piece_is_a_mismatch(piece: str, service: str, target: str, body: bytes) -> None:
    request = Request(target=target, body=body, headers=(("X-Signed", "value"),))
    changed, headers = FLIPS[piece](request, request.sign(service=service, token="token"))  # type: ignore[no-untyped-call]
    with pytest.raises(signing.SignatureError) as caught:
        changed.verify(headers, service=service)
    assert caught.value.kind == "mismatch"


# -- beside boto3 and the AWS CLI on a real socket ---------------------------------------------------------------------


class Recorder(http.server.BaseHTTPRequestHandler):
    """Verifies what arrives, keeps the outcome, and answers 200 with an empty object."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        target = self.requestline.split(" ")[1]
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            seen: object = signing.verify(
                method=self.command,
                raw_target=target,
                headers=list(self.headers.items()),
                body_sha256=hashlib.sha256(body).hexdigest(),
                secret_for=secret_for,
                service="s3" if target.startswith("/bucket") else "lambda",
                now=datetime.now(timezone.utc),
            )
        except signing.SignatureError as error:
            seen = error
        self.server.seen.append((self.command, target, seen))  # type: ignore[attr-defined]
        self.send_response(200)
        answer = b"" if self.command == "PUT" else b"{}"  # S3 answers XML or nothing
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815

    def log_message(self, *args: object) -> None:
        """Silent."""


@pytest.fixture
def recorder() -> Iterator[http.server.ThreadingHTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder) as server:
        server.seen = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


TAGGED = "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo"


def targets_verified(recorder: http.server.ThreadingHTTPServer) -> list[str]:
    seen = recorder.seen  # type: ignore[attr-defined]
    assert [outcome for _, _, outcome in seen if not isinstance(outcome, signing.Verified)] == []
    return [target for _, target, _ in seen]


def test_what_boto3_sends_is_verified(recorder: http.server.ThreadingHTTPServer) -> None:
    session = boto3.Session("AKIDEXAMPLE", SECRET.reveal(), "a/session+token==", "eu-west-1")
    url = f"http://127.0.0.1:{recorder.server_port}"
    microvms = session.client("lambda-microvms", endpoint_url=url)
    microvms.untag_resource(Resource=TAGGED, TagKeys=["a b", "a", "z/ü"])
    microvms.run_microvm(imageIdentifier=TAGGED)
    microvms.list_microvms(nextToken="QUJD+/==", maxResults=3)
    s3 = session.client("s3", endpoint_url=url)
    s3.put_object(Bucket="bucket", Key="a//b c:d/ü", Body=b"data")
    assert targets_verified(recorder) == [
        f"/2017-03-31/tags/{quote(TAGGED, safe='')}?tagKeys=a%20b&tagKeys=a&tagKeys=z%2F%C3%BC",
        "/2025-09-09/microvms",
        "/2025-09-09/microvms?nextToken=QUJD%2B%2F%3D%3D&maxResults=3",
        "/bucket/a//b%20c%3Ad/%C3%BC",
    ]


def test_what_the_aws_cli_sends_is_verified(recorder: http.server.ThreadingHTTPServer, tmp_path: Path) -> None:
    if not AWS_CLI.exists():
        pytest.skip("the AWS CLI is not installed in .tools")
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET.reveal(),
        "AWS_SESSION_TOKEN": "a/session+token==",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{recorder.server_port}",
    }
    command = [str(AWS_CLI), "lambda-microvms", "untag-resource", "--resource", TAGGED, "--tag-keys", "a b", "c"]
    subprocess.run(command, env=environ, check=True, timeout=60)
    assert targets_verified(recorder) == [f"/2017-03-31/tags/{quote(TAGGED, safe='')}?tagKeys=a%20b&tagKeys=c"]


# -- making ------------------------------------------------------------------------------------------------------------


def test_an_arn_in_the_path_is_encoded_once_more_except_for_s3() -> None:
    path = "/2025-09-09/microvm-images/" + quote(ARN, safe="")
    assert "%253A" in signing.canonical_path(path, service="lambda")
    assert signing.canonical_path(path, service="s3") == path


def test_s3_keys_keep_their_slashes_and_dots() -> None:
    assert signing.canonical_path("/bucket//a/../b", service="s3") == "/bucket//a/../b"
    assert signing.canonical_path("/bucket//a/../b", service="lambda") == "/bucket/b"


def test_an_unencoded_s3_path_is_signed_as_if_it_were_encoded() -> None:
    assert signing.canonical_path("/bucket/a:b", service="s3") == "/bucket/a%3Ab"


def test_the_query_is_encoded_anew_before_it_is_sorted() -> None:
    assert signing.canonical_query("b=1+2&a%2Db=c=d&a=&&acl") == "a=&a-b=c%3Dd&acl=&b=1%2B2"


def test_sign_adds_only_what_is_missing() -> None:
    names = [name for name, _ in Request(headers=(("host", "lambda.us-east-1.amazonaws.com"),)).sign()]
    assert names == ["host", "X-Amz-Date", "Authorization"]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://H.example/x", "h.example"),
        ("https://h:443/", "h"),
        ("http://h:443/", "h:443"),
        ("http://h:80/", "h"),
        ("http://user@127.0.0.1:8031?a", "127.0.0.1:8031"),
        ("http://[::1]:8031/", "[::1]:8031"),
    ],
)
def test_the_host_header_names_the_port_only_if_it_is_not_the_default(url: str, host: str) -> None:
    added = signing.sign(
        method="GET",
        url=url,
        headers=[],
        body_sha256=signing.EMPTY_SHA256,
        credentials=Credentials("AKIDEXAMPLE", SECRET),
        region="us-east-1",
        service="lambda",
        when=NOON,
    )
    assert dict(added)["Host"] == host


def test_the_date_is_in_utc_whatever_the_time_zone_given() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=5)))
    request = Request()
    added = signing.sign(
        method=request.method,
        url=request.url,
        headers=[],
        body_sha256=signing.EMPTY_SHA256,
        credentials=Credentials("AKIDEXAMPLE", SECRET),
        region="us-east-1",
        service="lambda",
        when=east,
    )
    assert dict(added)["X-Amz-Date"] == "20150830T123600Z"


@pytest.mark.parametrize("name", ["Authorization", "x-amz-date", "X-Amz-Security-Token"])
def test_headers_that_signing_makes_cannot_be_handed_in(name: str) -> None:
    with pytest.raises(ValueError, match=name.lower()):
        Request(headers=((name, "x"),)).sign()


def test_an_unsigned_s3_payload_is_declared_and_verified() -> None:
    request = Request(method="PUT", host="s3.us-east-1.amazonaws.com", target="/bucket/key", body=b"data")
    added = signing.sign(
        method="PUT",
        url=request.url,
        headers=[],
        body_sha256=signing.UNSIGNED_PAYLOAD,
        credentials=Credentials("AKIDEXAMPLE", SECRET),
        region="us-east-1",
        service="s3",
        when=NOON,
    )
    assert dict(added)["X-Amz-Content-SHA256"] == "UNSIGNED-PAYLOAD"
    request.verify(added, service="s3")


def test_an_s3_payload_digest_given_as_a_header_is_the_one_signed() -> None:
    digest = hashlib.sha256(b"data").hexdigest()
    request = Request(method="PUT", target="/b/k", body=b"data", headers=(("x-amz-content-sha256", digest),))
    headers = request.sign(service="s3")
    assert [value for name, value in headers if name.lower() == "x-amz-content-sha256"] == [digest]
    request.verify(headers, service="s3")


def test_header_values_are_signed_as_the_latin_1_bytes_that_travel() -> None:
    request = Request(headers=(("x-custom", "caf\xe9 \xa0\x85"),))
    request.verify(request.sign())


# -- verifying ---------------------------------------------------------------------------------------------------------


def change(headers: list[tuple[str, str]], name: str, value: str | None) -> list[tuple[str, str]]:
    """The headers with one replaced, or removed (None)."""
    kept = [pair for pair in headers if pair[0] != name]
    return kept if value is None else [*kept, (name, value)]


def edit(headers: list[tuple[str, str]], old: str, new: str) -> list[tuple[str, str]]:
    """The headers with the Authorization edited."""
    assert old in authorization(headers)
    return change(headers, "Authorization", authorization(headers).replace(old, new))


GOOD = Request().sign()
FAULTS = [
    ("no authorization", change(GOOD, "Authorization", None), "missing"),
    ("another scheme", change(GOOD, "Authorization", "Bearer abc"), "malformed"),
    ("two authorizations", [*GOOD, ("authorization", authorization(GOOD))], "malformed"),
    ("empty authorization", change(GOOD, "Authorization", ""), "malformed"),
    ("no signature", edit(GOOD, ", Signature=", ", Sign="), "malformed"),
    ("a parameter twice", edit(GOOD, ", Signature=", ", Signature=a, Signature="), "malformed"),
    ("no equals sign", edit(GOOD, "Signature=", "Signature"), "malformed"),
    ("short credential", edit(GOOD, "AKIDEXAMPLE/", ""), "malformed"),
    ("capital signature", change(GOOD, "Authorization", authorization(GOOD)[:-64] + "A" * 64), "malformed"),
    ("wrong terminator", edit(GOOD, "aws4_request", "aws5_request"), "malformed"),
    ("wrong service", edit(GOOD, "/lambda/", "/s3/"), "wrong_service"),
    ("another day in the scope", edit(GOOD, "/20150830/", "/20150829/"), "malformed"),
    ("host not signed", edit(GOOD, "SignedHeaders=host;", "SignedHeaders="), "malformed"),
    ("no host", change(GOOD, "Host", None), "malformed"),
    ("two hosts", [*GOOD, ("host", "x")], "malformed"),
    ("no date", change(GOOD, "X-Amz-Date", None), "malformed"),
    ("a date that is none", change(GOOD, "X-Amz-Date", "20151330T123600Z"), "malformed"),
    ("an unreadable date", change(GOOD, "X-Amz-Date", "yesterday"), "malformed"),
    ("a signed header that was not sent", edit(GOOD, "=host;", "=host;x-custom;"), "malformed"),
    ("an x-amz header that was not signed", [*GOOD, ("X-Amz-Meta-A", "x")], "malformed"),
    ("an unknown key", edit(GOOD, "AKIDEXAMPLE", "AKIDOTHER"), "unknown_key"),
]


@pytest.mark.parametrize(("headers", "kind"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_each_fault_has_its_kind(headers: list[tuple[str, str]], kind: str) -> None:
    with pytest.raises(signing.SignatureError) as caught:
        Request().verify(headers)
    assert caught.value.kind == kind


def test_a_target_that_is_not_ascii_is_malformed() -> None:
    with pytest.raises(signing.SignatureError) as caught:
        Request(target="/caf\xe9").verify(GOOD)
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize("seconds", [-901, 901])
def test_a_date_too_far_off_is_expired_either_way(seconds: int) -> None:
    with pytest.raises(signing.SignatureError) as caught:
        Request().verify(GOOD, now=NOON + timedelta(seconds=seconds))
    assert caught.value.kind == "expired"
    assert "20150830T123600Z" in caught.value.message
    assert "15 min." in caught.value.message


@pytest.mark.parametrize("seconds", [-900, 0, 900])
def test_a_date_within_the_window_is_accepted(seconds: int) -> None:
    Request().verify(GOOD, now=NOON + timedelta(seconds=seconds))


def test_the_secret_is_not_asked_for_before_the_claim_makes_sense() -> None:
    asked: list[str] = []

    def secret_for(access_key: str) -> None:
        asked.append(access_key)

    with pytest.raises(signing.SignatureError):
        signing.verify(
            method="GET",
            raw_target="/",
            headers=edit(GOOD, "/lambda/", "/s3/"),
            body_sha256=signing.EMPTY_SHA256,
            secret_for=secret_for,
            service="lambda",
            now=NOON,
        )
    assert asked == []


@pytest.mark.parametrize("date", ["Sun, 30 Aug 2015 12:36:00 GMT", "Sun, 30 Aug 2015 12:36:00 -0000"])
def test_a_date_header_serves_where_there_is_no_x_amz_date(date: str) -> None:
    request = Request(headers=(("Date", "Sun, 30 Aug 2015 12:36:00 GMT"),))
    headers = signed_by_botocore(request, service="lambda")
    assert "X-Amz-Date" not in dict(headers)
    request.verify(headers)
    with pytest.raises(signing.SignatureError) as caught:
        Request().verify(change(headers, "Date", date.replace("12:36", "12:37")))
    assert caught.value.kind == "mismatch"


def test_x_amz_date_goes_before_date() -> None:
    request = Request(headers=(("Date", "Mon, 01 Jan 1990 00:00:00 GMT"),))
    request.verify(request.sign())


def test_a_token_added_after_signing_is_let_through() -> None:
    Request().verify([*GOOD, ("X-Amz-Security-Token", "later")])


def test_a_declared_digest_must_be_that_of_the_body_for_any_service() -> None:
    digest = hashlib.sha256(b"").hexdigest()
    request = Request(headers=(("x-amz-content-sha256", digest),))
    headers = request.sign()
    request.verify(headers)
    with pytest.raises(signing.SignatureError) as caught:
        replace(request, body=b"x").verify(headers)
    assert caught.value.kind == "mismatch"


def test_an_unsigned_payload_is_for_s3_only() -> None:
    request = Request(headers=(("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),))
    with pytest.raises(signing.SignatureError) as caught:
        request.verify(request.sign())
    assert caught.value.kind == "mismatch"


def test_bodies_of_signed_chunks_are_refused_with_their_name() -> None:
    request = Request(headers=(("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),))
    with pytest.raises(signing.SignatureError, match="STREAMING-AWS4-HMAC-SHA256-PAYLOAD") as caught:
        request.verify(request.sign(service="s3"), service="s3")
    assert caught.value.kind == "malformed"


def verify_before_the_body(headers: list[tuple[str, str]], *, service: str = "s3") -> signing.Verified:
    return signing.verify(
        method=Request().method,
        raw_target=Request().target,
        headers=headers,
        body_sha256=None,
        secret_for=secret_for,
        service=service,
        now=NOON,
    )


def signed_for(payload: str, *, service: str = "s3") -> list[tuple[str, str]]:
    return Request(headers=(("x-amz-content-sha256", payload),)).sign(service=service)


@pytest.mark.parametrize("payload", ["ab" * 32, signing.UNSIGNED_PAYLOAD, signing.STREAMING_UNSIGNED_PAYLOAD])
def test_s3_verifies_a_request_before_its_body_and_tells_what_that_must_be(payload: str) -> None:
    assert verify_before_the_body(signed_for(payload)).payload == payload


@pytest.mark.parametrize("payload", ["", "x", "AB" * 32, "STREAMING-UNSIGNED-PAYLOAD"])
def test_a_body_to_come_is_declared_by_a_digest_or_a_word_of_s3(payload: str) -> None:
    with pytest.raises(signing.SignatureError) as caught:
        verify_before_the_body(signed_for(payload))
    assert caught.value.kind == "malformed"


def test_only_s3_verifies_before_the_body() -> None:
    with pytest.raises(signing.SignatureError):
        verify_before_the_body(signed_for("ab" * 32, service="lambda"), service="lambda")
    with pytest.raises(signing.SignatureError, match="Missing required header"):
        verify_before_the_body(Request().sign(), service="lambda")


def test_the_claimed_service_is_read_and_not_verified() -> None:
    headers = Request().sign(service="logs")
    assert signing.claimed_service(change(headers, "X-Amz-Date", "never")) == "logs"
    assert signing.claimed_service([]) is None
    assert signing.claimed_service([("Authorization", "Basic x")]) is None


def test_the_claimed_access_key_is_read_and_not_verified() -> None:
    headers = Request().sign(service="logs")
    assert signing.claimed_access_key(change(headers, "X-Amz-Date", "never")) == "AKIDEXAMPLE"
    assert signing.claimed_access_key([]) is None
    assert signing.claimed_access_key([("Authorization", "Basic x")]) is None


@given(text=st.text(max_size=200))
def test_any_authorization_is_accepted_or_refused_and_never_breaks(text: str) -> None:
    with pytest.raises(signing.SignatureError):
        Request().verify(change(GOOD, "Authorization", text))
    with pytest.raises(signing.SignatureError):
        Request().verify(change(GOOD, "Authorization", "AWS4-HMAC-SHA256 " + text))
    with pytest.raises(signing.SignatureError):
        Request().verify(change(GOOD, "X-Amz-Date", text))
