"""The door to S3: downloads that are cut, buckets in other regions, buckets that are made and emptied, bad answers."""

import io
import random
import re
import shutil
import threading
from urllib.parse import quote

import pytest

from tests.support.clock import FakeClock
from tests.support.peers import Answer, HangUp, Peer, Raw, Request, Serve
from tests.support.s3_double import KEY, Call, Double, Reply, failure, serving_double
from vmnest import errors, transport
from vmnest.aws import credentials, s3, s3_requests, service
from vmnest.aws.s3 import S3
from vmnest.deadline import NEVER, Deadline

CONTENT = random.Random(7).randbytes(300_000)
PAGE = b"<!doctype html><html><head><title>Please log in</title></head></html>"


@pytest.fixture
def sender():
    made = transport.Transport(environ={})
    yield made
    made.close()


@pytest.fixture
def double():
    with serving_double() as running:
        yield running


@pytest.fixture
def client(double: Double, sender: transport.Transport, fake_clock: FakeClock) -> S3:
    return double.client(sender, clock=fake_clock)


@pytest.fixture
def scripted(serve: Serve, sender: transport.Transport, fake_clock: FakeClock):
    """Starts a peer with a script, and gives it and a client of it."""

    def start(*script, region: str = "us-east-1") -> tuple[Peer, S3]:
        peer = serve(*script)
        called = service.Service(
            "s3",
            endpoint=peer.url,
            region=region,
            credentials=credentials.StaticSource(KEY),
            transport=sender,
            clock=fake_clock,
        )
        return peer, S3(called, clock=fake_clock)

    return start


def put(client: S3, key: str = "key", content: bytes = CONTENT) -> None:
    client.upload("bucket", key, io.BytesIO(content), size=len(content), deadline=NEVER)


def xml(root: str, inside: str = "") -> Answer:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{inside}</{root}>'
    return Answer(200, body.encode(), [("Content-Type", "application/xml")])


def refusal(status: int, code: str, extra: str = "", **headers: str) -> Answer:
    fields = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Answer(status, f"<Error><Code>{code}</Code><Message>because</Message>{extra}</Error>".encode(), fields)


# -- downloads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [".", "..", "a/../b", "./a", "a//b", "/a", "\x01\r\n"])
def test_a_key_is_no_path(client, double, key):
    put(client, key, b"content")
    assert list(double.objects) == [f"/bucket/{key}"]
    with client.open("bucket", key, deadline=NEVER) as download:
        assert download.read() == b"content"


@pytest.mark.parametrize("size", [1, 1000, 65536, 10**6])
def test_an_object_is_a_file_to_read_from(client, size):
    put(client)
    with client.open("bucket", "key", deadline=NEVER) as download:
        assert download.size == len(CONTENT)
        first = download.read(size)
        assert 0 < len(first) <= size
        rest = io.BytesIO()
        shutil.copyfileobj(download, rest)
        assert first + rest.getvalue() == CONTENT
        assert download.read(1) == b""


def test_an_object_comes_in_chunks(client):
    put(client)
    with client.open("bucket", "key", deadline=NEVER) as download:
        assert b"".join(download.chunks()) == CONTENT


def test_an_empty_object_has_no_content(client):
    put(client, content=b"")
    with client.open("bucket", "key", deadline=NEVER) as download:
        assert download.read() == b""


def cut_at(double: Double, *places: int) -> None:
    """Cut the first answers to GET after so many bytes of what they would send."""
    left = list(places)

    def cut(call: Call) -> Reply | None:
        if call.what != "GET" or not left:
            return None
        stored = double.objects["/bucket/key"]
        reply = double.perform(call, stored, b"")
        reply.cut = left.pop(0)
        return reply

    double.after = cut


def test_a_download_that_is_cut_goes_on_from_there(client, double):
    put(client)
    cut_at(double, 100_000, 50_000, 0)
    with client.open("bucket", "key", deadline=NEVER) as download:
        assert download.read() == CONTENT
    asked = [call.headers.get("range") for call in double.calls if call.what == "GET"]
    assert asked == [None, "bytes=100000-", "bytes=150000-", "bytes=150000-"]


def test_a_download_that_gets_no_further_ends(client, double, fake_clock):
    put(client)
    cut_at(double, 10, *[0] * 20)
    with client.open("bucket", "key", deadline=NEVER) as download, pytest.raises(errors.ConnectionLostError):
        download.read()
    assert double.count("GET") == s3.MAX_ATTEMPTS
    assert fake_clock.sleeps


def test_what_was_replaced_in_the_meantime_is_not_mixed(client, double):
    put(client)
    cut_at(double, 1000)
    with client.open("bucket", "key", deadline=NEVER) as download:
        chunks = download.chunks()
        next(chunks)
        put(client, content=CONTENT[::-1])
        with pytest.raises(errors.ServiceError, match="PreconditionFailed"):
            list(chunks)


def test_a_server_that_starts_again_is_not_believed(scripted):
    tag = [("ETag", '"a"')]
    cut = Raw([b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: "a"\r\n\r\nabcd'])
    _, client = scripted(cut, Answer(200, b"abcdefghij", tag))
    with (
        client.open("bucket", "key", deadline=NEVER) as download,
        pytest.raises(errors.AnswerInvalidError, match="from 4 on"),
    ):
        download.read()


def test_a_closed_download_is_not_opened_again(client, double):
    put(client)
    download = client.open("bucket", "key", deadline=NEVER)
    chunks = download.chunks()
    next(chunks)
    download.close()
    download.close()
    with pytest.raises(errors.ConnectionLostError):
        list(chunks)
    with pytest.raises(ValueError, match="closed"):
        download.read(1)
    assert double.count("GET") == 1


def test_the_beginning_of_a_download_is_asked_for_again(client, double):
    put(client)
    left = [failure(503, "SlowDown"), failure(500, "InternalError"), Reply(hang_up=True)]
    double.before = lambda _call: left.pop() if left else None
    with client.open("bucket", "key", deadline=NEVER) as download:
        assert download.read() == CONTENT


def test_a_deadline_bounds_the_reading(client, double):
    put(client)
    cut_at(double, 10, 0, 0)
    deadline = Deadline(50)
    with client.open("bucket", "key", deadline=deadline) as download:
        chunks = download.chunks()
        next(chunks)
        deadline.expire()
        with pytest.raises(errors.TransportError):
            list(chunks)
    assert double.count("GET") == 1


def test_a_page_is_no_object(scripted):
    _, client = scripted(Answer(200, PAGE, [("Content-Type", "text/html")]))
    with pytest.raises(errors.AnswerInvalidError, match="ETag"):
        client.open("bucket", "key", deadline=NEVER)


# -- what is there -----------------------------------------------------------------------------------------------------


def test_an_object_is_there_or_not(client):
    put(client)
    assert client.exists("bucket", "key").size == len(CONTENT)
    assert client.exists("bucket", "other") is None


@pytest.mark.parametrize("status", [403, 503])
def test_what_cannot_be_seen_is_not_said_to_be_absent(client, double, status):
    double.before = lambda _call: Reply(status)
    with pytest.raises((errors.AccessDeniedError, errors.ServiceFaultError)):
        client.exists("bucket", "key")


def test_a_head_of_something_else_is_no_object(scripted):
    _, client = scripted(Answer(200, PAGE, [("Content-Type", "text/html")]))
    with pytest.raises(errors.AnswerInvalidError):
        client.exists("bucket", "key")


@pytest.mark.parametrize("answer", [Answer(200, PAGE), Answer(200, b"True"), Answer(200, b"<ListBucketResult>")])
def test_what_is_no_list_is_not_an_empty_one(scripted, answer):
    _, client = scripted(answer)
    with pytest.raises(errors.AnswerInvalidError):
        list(client.objects("bucket"))


# -- regions -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def far(sender: transport.Transport, fake_clock: FakeClock):
    with serving_double(region="eu-west-1") as running:
        yield running, running.client(sender, clock=fake_clock)


def test_a_bucket_in_another_region_is_followed_and_remembered(far):
    double, client = far
    put(client, content=b"content")
    assert [call.region for call in double.calls] == ["us-east-1", "eu-west-1"]
    put(client, content=b"content")
    assert client.exists("bucket", "key").size == 7
    assert [call.region for call in double.calls[2:]] == ["eu-west-1"] * 2


def test_a_head_without_a_body_tells_the_region(far):
    double, client = far
    assert client.exists("bucket", "key") is None
    assert [call.region for call in double.calls] == ["us-east-1", "eu-west-1"]


@pytest.mark.parametrize(
    "moved",
    [
        failure(301, "PermanentRedirect", x_amz_bucket_region="eu-west-1"),
        failure(307, "TemporaryRedirect", extra="<Endpoint>bucket.s3-eu-west-1.amazonaws.com</Endpoint>"),
        failure(400, "AuthorizationHeaderMalformed", extra="<Region>eu-west-1</Region>"),
    ],
    ids=["301", "307", "400"],
)
def test_each_way_to_say_so_is_understood(far, moved):
    double, client = far
    double.before = lambda call: moved if call.region == "us-east-1" else None
    put(client, content=b"content")
    assert [call.region for call in double.calls] == ["us-east-1", "eu-west-1"]
    assert double.objects["/bucket/key"].content == b"content"


def test_each_bucket_has_a_region_of_its_own(far):
    double, client = far
    put(client, content=b"content")
    client.exists("another", "key")
    assert [call.region for call in double.calls[2:]] == ["us-east-1", "eu-west-1"]


def test_a_service_that_sends_us_round_is_left(client, double):
    other = {"us-east-1": "eu-west-1", "eu-west-1": "us-east-1"}
    double.before = lambda call: failure(301, "PermanentRedirect", x_amz_bucket_region=other[call.region])
    with pytest.raises(errors.ServiceError, match="PermanentRedirect"):
        put(client, content=b"content")
    assert len(double.calls) == 2


def test_a_redirect_to_nowhere_is_an_error(client, double):
    double.before = lambda _call: failure(301, "PermanentRedirect", location="http://127.0.0.1:9/")
    with pytest.raises(errors.ServiceError, match="PermanentRedirect"):
        put(client, content=b"content")
    assert len(double.calls) == 1


# -- buckets that are made ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_only_outside_of_us_east_1_is_a_bucket_made_for_a_region(scripted, region):
    peer, client = scripted(Answer(200), region=region)
    assert client.create_bucket("bucket", deadline=NEVER)
    (request,) = peer.requests
    assert (b"<LocationConstraint>eu-west-1</LocationConstraint>" in request.body) is (region == "eu-west-1")
    assert bool(request.body) is (region == "eu-west-1")


def test_a_bucket_that_is_ours_is_said_to_be(scripted):
    _, client = scripted(refusal(409, "BucketAlreadyOwnedByYou"))
    assert client.create_bucket("bucket", deadline=NEVER) is False


def test_a_bucket_that_is_somebody_elses_is_a_conflict(scripted):
    _, client = scripted(refusal(409, "BucketAlreadyExists"))
    with pytest.raises(errors.ConflictError) as caught:
        client.create_bucket("bucket", deadline=NEVER)
    assert caught.value.error_type == "BucketAlreadyExists"


@pytest.mark.parametrize("lost", [HangUp(), Answer(500)], ids=["cut", "500"])
def test_a_bucket_that_an_attempt_made_whose_answer_was_lost_is_new(scripted, lost):
    _, client = scripted(lost, refusal(409, "BucketAlreadyOwnedByYou"))
    assert client.create_bucket("bucket", deadline=NEVER) is True


def test_a_bucket_whose_predecessor_is_being_removed_is_waited_for(scripted, fake_clock):
    _, client = scripted(refusal(409, "OperationAborted"), refusal(409, "OperationAborted"), Answer(200))
    assert client.create_bucket("bucket", deadline=NEVER) is True
    assert len(fake_clock.sleeps) == 2


def test_where_a_bucket_is_can_be_asked(scripted):
    _, client = scripted(
        Answer(200, headers=[("x-amz-bucket-region", "eu-west-1")]), Answer(404), Answer(403, headers=[]), Answer(200)
    )
    assert client.region_of("bucket", deadline=NEVER) == "eu-west-1"
    assert client.region_of("bucket", deadline=NEVER) is None
    with pytest.raises(errors.AccessDeniedError):
        client.region_of("bucket", deadline=NEVER)
    assert client.region_of("bucket", deadline=NEVER) == "us-east-1"


# -- buckets that are emptied ------------------------------------------------------------------------------------------


class Shelf:
    """Answers of a bucket's lists and deletions, out of what is on it."""

    def __init__(self, keys: list[str], *, page: int = 1000) -> None:
        self.versions = [(key, "null") for key in keys]
        self.page = page
        self.batches: list[int] = []
        self.singles: list[str] = []
        self.failing: dict[str, list[str]] = {}  # key → codes, one a try
        self.uploads: list[str] = []

    def __call__(self, request: Request) -> Answer:
        target = request.target.partition("?")[2]
        if request.method == "GET" and "versions" in target:
            return self._list()
        if request.method == "GET":
            found = "".join(f"<Upload><Key>k</Key><UploadId>{one}</UploadId></Upload>" for one in self.uploads[:1])
            return xml("ListMultipartUploadsResult", found)
        if request.method == "DELETE" and "uploadId" in target:
            self.uploads.pop(0)
            return refusal(404, "NoSuchUpload")  # somebody else was faster
        if request.method == "DELETE":
            self.singles.append(request.target)
            self.versions = [each for each in self.versions if s3_requests.fits_xml(each[0])]
            return Answer(204)
        return self._delete(request.body.decode())

    def _list(self) -> Answer:
        shown = "".join(
            f"<Version><Key>{quote(key)}</Key><VersionId>{version}</VersionId></Version>"
            for key, version in self.versions[: self.page]
        )
        more = str(len(self.versions) > self.page).lower()
        inside = f"<EncodingType>url</EncodingType><IsTruncated>{more}</IsTruncated>{shown}"
        return xml("ListVersionsResult", inside)

    def _delete(self, body: str) -> Answer:
        named = re.findall(r"<Key>(.*?)</Key>", body)
        self.batches.append(len(named))
        problems = ""
        for key in named:
            codes = self.failing.get(key)
            if codes:
                problems += f"<Error><Key>{key}</Key><Code>{codes.pop(0)}</Code><Message>no</Message></Error>"
            else:
                self.versions.remove((key, "null"))
        return xml("DeleteResult", problems)


def emptied(scripted, shelf: Shelf) -> int:
    _, client = scripted(*[shelf] * 60)
    removed: int = client.empty("bucket", deadline=NEVER)
    return removed


def test_a_bucket_is_emptied_batch_by_batch(scripted):
    shelf = Shelf([f"key-{number}" for number in range(1004)])
    assert emptied(scripted, shelf) == 1004
    assert shelf.batches == [1000, 4]


def test_a_key_that_xml_cannot_carry_is_removed_by_itself(scripted):
    shelf = Shelf(["a", "\r"])
    assert emptied(scripted, shelf) == 2
    assert shelf.batches == [1]
    assert shelf.singles == ["/bucket/%0D?versionId=null"]


def test_unfinished_uploads_are_ended_even_by_somebody_else(scripted):
    shelf = Shelf([])
    shelf.uploads = ["u1", "u2"]
    assert emptied(scripted, shelf) == 0
    assert not shelf.uploads


def test_a_key_that_fails_for_a_moment_is_removed_in_the_end(scripted, fake_clock):
    shelf = Shelf(["a", "b"])
    shelf.failing = {"a": ["InternalError", "SlowDown"], "b": ["InternalError"]}
    assert emptied(scripted, shelf) == 2
    assert len(fake_clock.sleeps) == 2


def test_a_key_that_cannot_be_removed_is_named(scripted):
    shelf = Shelf(["a", "b"])
    shelf.failing = {"b": ["AccessDenied"] * 9, "a": ["InternalError"]}
    with pytest.raises(errors.AccessDeniedError, match="'b' and 1 more of bucket bucket"):
        emptied(scripted, shelf)


def test_a_key_that_fails_for_ever_is_not_waited_for_as_long(scripted):
    shelf = Shelf(["a"])
    shelf.failing = {"a": ["InternalError"] * 99}
    with pytest.raises(errors.ServiceFaultError, match="'a'"):
        emptied(scripted, shelf)
    assert len(shelf.batches) == s3.MAX_ATTEMPTS


def test_a_page_without_keys_is_not_the_end(scripted):
    first = xml("ListVersionsResult", "<IsTruncated>true</IsTruncated><NextKeyMarker>a b</NextKeyMarker>")
    shelf = Shelf(["a"])
    peer, client = scripted(first, *[shelf] * 9)
    assert client.empty("bucket", deadline=NEVER) == 1
    assert "key-marker=a%20b" in peer.requests[1].target


@pytest.mark.parametrize(
    "page",
    [
        xml("ListVersionsResult", "<IsTruncated>true</IsTruncated>"),
        xml("ListVersionsResult", "<IsTruncated>true</IsTruncated><NextKeyMarker>a</NextKeyMarker>"),
    ],
    ids=["no marker", "the same marker"],
)
def test_pages_without_keys_and_end_are_an_error(scripted, page):
    _, client = scripted(page, page, page)
    with pytest.raises(errors.AnswerInvalidError):
        client.empty("bucket", deadline=NEVER)


def test_a_bucket_that_stays_full_is_left_at_the_deadline(scripted, fake_clock):
    listing = xml("ListVersionsResult", "<Version><Key>a</Key><VersionId>v</VersionId></Version>")

    def pass_time(_request: Request) -> Answer:
        fake_clock.advance(1)
        return listing if _request.method == "GET" else xml("DeleteResult")

    _, client = scripted(*[pass_time] * 60)
    with pytest.raises((errors.WaitTimeoutError, errors.TransportError)):
        client.empty("bucket", deadline=Deadline(20, clock=fake_clock))


def test_a_client_is_safe_for_threads(client, double):
    def work(number: int) -> None:
        put(client, f"key-{number}", bytes([number]) * 1000)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(double.objects) == 8
