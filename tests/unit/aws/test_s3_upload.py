"""A file into one object: in one request or in parts, through faults, and never half."""

import _thread
import hashlib
import io
import os
import random
import threading

import pytest

from tests.support.clock import FakeClock
from tests.support.s3_double import Call, Double, Reply, failure, serving_double
from vmnest import errors, transport
from vmnest.aws import s3_requests, s3_upload
from vmnest.aws.s3 import S3
from vmnest.deadline import NEVER, Deadline

PART = s3_requests.MIN_PART_BYTES
LARGE = 5 * PART + 12345


@pytest.fixture
def double():
    with serving_double() as running:
        yield running


@pytest.fixture
def client(double: Double, fake_clock: FakeClock):
    sender = transport.Transport(environ={})
    try:
        yield double.client(sender, clock=fake_clock)
    finally:
        sender.close()
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("s3-upload")]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A file that needs six parts, no two of which are alike."""
    path = tmp_path_factory.mktemp("large") / "file"
    path.write_bytes(random.Random(1).randbytes(LARGE))
    return path


def upload(client: S3, path, *, size: int | None = None, deadline: Deadline = NEVER, **options) -> None:
    with open(path, "rb") as file:
        client.upload("bucket", "a key", file, size=size or os.path.getsize(path), deadline=deadline, **options)


def check_content(double: Double, path) -> None:
    """The object is the file, byte for byte."""
    stored = double.objects["/bucket/a key"]
    with open(path, "rb") as file:
        for part in stored.parts or (stored,):
            assert hashlib.sha256(file.read(part.size)).hexdigest() == part.sha256
        assert file.read() == b""
    assert not double.uploads


def on(what: str, *replies: Reply):
    """Answer the first requests of a kind so."""
    left, lock = list(replies), threading.Lock()

    def answer(call: Call) -> Reply | None:
        with lock:
            return left.pop(0) if call.what == what and left else None

    return answer


# -- one request -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, s3_upload.PIECE_BYTES, s3_upload.PIECE_BYTES + 1, s3_requests.SINGLE_BYTES])
def test_a_small_file_is_one_request_with_a_length(client, double, tmp_path, size):
    path = tmp_path / "file"
    path.write_bytes(random.Random(2).randbytes(size))
    upload(client, path, size=size or None, metadata={"made-by": "vmnest"})
    (call,) = double.calls
    assert (call.what, call.target, call.headers["content-length"]) == ("PUT", "/bucket/a%20key", str(size))
    assert call.headers["content-type"] == "application/zip"
    assert call.headers["x-amz-meta-made-by"] == "vmnest"
    assert "transfer-encoding" not in call.headers
    assert call.headers["x-amz-content-sha256"] == call.sha256
    check_content(double, path)


def test_a_small_file_is_sent_again_after_a_fault(client, double, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content" * 99999)
    double.before = on("PUT", failure(500, "InternalError"), failure(503, "SlowDown"), Reply(hang_up=True))
    upload(client, path)
    assert double.count("PUT") == 4
    check_content(double, path)


def test_a_refusal_before_the_body_was_read_is_heard(client, double, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(random.Random(4).randbytes(s3_requests.SINGLE_BYTES))
    told = failure(307, "TemporaryRedirect", x_amz_bucket_region="eu-west-1")
    double.region = "eu-west-1"
    double.before = lambda call: None if "/eu-west-1/" in call.headers["authorization"] else told
    double.is_hasty = lambda call: "/eu-west-1/" not in call.headers["authorization"]
    upload(client, path)
    assert [call.region for call in double.calls] == ["eu-west-1"]
    check_content(double, path)


def test_a_file_in_memory_is_a_file(client, double):
    client.upload("bucket", "key", io.BytesIO(b"content"), size=7, deadline=NEVER)
    assert double.objects["/bucket/key"].content == b"content"


def test_threads_share_a_file_that_has_one_position(client, double, large):
    with open(large, "rb") as file:
        memory = io.BytesIO(file.read())
    client.upload("bucket", "a key", memory, size=LARGE, deadline=NEVER)
    check_content(double, large)


def test_what_the_writer_has_not_flushed_is_sent(client, double, tmp_path):
    with open(tmp_path / "file", "w+b") as file:
        file.write(b"content")
        client.upload("bucket", "key", file, size=7, deadline=NEVER)
    assert double.objects["/bucket/key"].content == b"content"


def test_only_the_first_bytes_are_sent_if_only_they_are_asked_for(client, double, tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    upload(client, tmp_path / "file", size=3)
    assert double.objects["/bucket/a key"].content == b"con"


def test_metadata_that_no_header_can_carry_is_refused(client, double):
    with pytest.raises(errors.UsageError, match="'author'"):
        client.upload("b", "k", io.BytesIO(), size=0, metadata={"author": "Jörg\r\n"}, deadline=NEVER)
    assert not double.calls


# -- parts -------------------------------------------------------------------------------------------------------------


def test_a_larger_file_goes_in_parts_several_at_a_time(client, double, large):
    meeting = threading.Barrier(s3_upload.PARALLEL)

    def meet(call: Call) -> None:
        if call.what == "PART" and int(call.query["partNumber"]) <= s3_upload.PARALLEL:
            meeting.wait(20)

    double.before = meet
    upload(client, large, metadata={"a": "b"})
    assert (double.count("UPLOAD"), double.count("PART"), double.count("COMPLETE")) == (1, 6, 1)
    begun = next(call for call in double.calls if call.what == "UPLOAD")
    assert (begun.headers["content-type"], begun.headers["x-amz-meta-a"]) == ("application/zip", "b")
    assert all("transfer-encoding" not in call.headers for call in double.calls)
    check_content(double, large)


def test_a_byte_more_than_one_request_takes_is_a_part(client, double, tmp_path):
    path = tmp_path / "file"
    with open(path, "wb") as file:
        file.truncate(s3_requests.SINGLE_BYTES + 1)
    upload(client, path)
    assert [part.size for part in double.objects["/bucket/a key"].parts] == [PART, PART, 1]
    check_content(double, path)


@pytest.mark.parametrize(
    "fault",
    [failure(500, "InternalError"), failure(503, "SlowDown"), failure(400, "RequestTimeout"), Reply(hang_up=True)],
    ids=["500", "slow down", "request timeout", "cut"],
)
def test_a_part_is_sent_again(client, double, large, fault):
    double.before = on("PART", fault)
    upload(client, large)
    assert double.count("PART") == 7
    check_content(double, large)


def test_a_part_whose_answer_was_lost_is_sent_again(client, double, large):
    double.after = on("PART", Reply(hang_up=True))
    upload(client, large)
    check_content(double, large)


def test_an_upload_comes_through_many_faults(client, double, large):
    chance = random.Random(5)

    def fail(_call: Call) -> Reply | None:
        with double.lock:
            draw = chance.random()
        if draw < 0.2:
            return failure(503, "SlowDown") if draw < 0.1 else failure(500, "InternalError")
        return None

    double.before = fail
    for _ in range(3):
        upload(client, large)
        check_content(double, large)


def test_progress_is_told_in_the_callers_thread_up_to_the_size(client, double, large):
    told = []
    upload(client, large, on_progress=lambda sent, size: told.append((threading.current_thread(), sent, size)))
    assert {thread for thread, _, _ in told} == {threading.current_thread()}
    assert {size for _, _, size in told} == {LARGE}
    sent = [sent for _, sent, _ in told]
    assert sent == sorted(set(sent))
    assert sent[-1] == LARGE


# -- an upload that fails ----------------------------------------------------------------------------------------------


def check_nothing_left(double: Double) -> None:
    assert not double.objects
    assert not double.uploads
    assert double.count("COMPLETE") == 0
    assert double.count("ABORT") == 1


def test_a_refusal_ends_all_parts_and_leaves_none(client, double, large):
    double.before = lambda call: failure(403, "AccessDenied") if call.query.get("partNumber") == "2" else None
    with pytest.raises(errors.AccessDeniedError):
        upload(client, large)
    check_nothing_left(double)


def test_a_fault_that_lasts_ends_it(client, double, large):
    double.before = lambda call: failure(500, "InternalError") if call.query.get("partNumber") == "5" else None
    with pytest.raises(errors.ServiceFaultError):
        upload(client, large)
    check_nothing_left(double)


def test_a_refusal_to_begin_leaves_nothing_to_end(client, double, large):
    double.before = on("UPLOAD", failure(404, "NoSuchBucket"))
    with pytest.raises(errors.ResourceNotFoundError):
        upload(client, large)
    assert double.count("ABORT") == 0


def test_ctrl_c_ends_all_parts_and_leaves_none(client, double, large):
    pressed = threading.Event()

    def press(call: Call) -> None:
        if call.what == "PART" and not pressed.is_set():
            pressed.set()
            _thread.interrupt_main()

    double.before = press
    with pytest.raises(KeyboardInterrupt):
        upload(client, large)
    check_nothing_left(double)


def test_who_is_told_of_the_progress_may_end_it(client, double, large):
    def refuse(_sent: int, _size: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        upload(client, large, on_progress=refuse)
    check_nothing_left(double)


def test_a_deadline_ends_it(client, double, large):
    is_over = threading.Event()

    def hang(call: Call) -> None:
        if call.query.get("partNumber") == "3":
            is_over.wait(30)

    double.before = hang
    try:
        with pytest.raises((errors.WaitTimeoutError, errors.ReadTimeoutError)):
            upload(client, large, deadline=Deadline(3))
    finally:
        is_over.set()
    check_nothing_left(double)


def test_a_file_that_becomes_shorter_is_not_waited_for(client, double, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    with pytest.raises(errors.LocalFileError, match="ends at 10"):
        upload(client, path, size=11)
    with pytest.raises(errors.LocalFileError, match="shorter"):
        upload(client, path, size=LARGE)
    assert not double.objects
    assert not double.uploads


def test_a_file_that_changes_between_its_hash_and_its_way_is_refused(client, double, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def change(call: Call) -> Reply | None:
        path.write_bytes(b"after!")
        return failure(500, "InternalError")

    double.before = lambda call: change(call) if double.count("PUT") == 1 else None
    with pytest.raises(errors.ValidationError, match="SHA256"):
        upload(client, path)
    assert not double.objects


def test_a_file_that_cannot_be_read_is_an_error_of_this_side(client, tmp_path):
    with (
        open(os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT), "wb") as file,
        pytest.raises(errors.LocalFileError, match="cannot be read"),
    ):
        client.upload("bucket", "key", file, size=3, deadline=NEVER)


def test_parts_that_cannot_be_thrown_away_are_told_of(client, double, large, caplog):
    double.before = lambda call: (
        failure(403, "AccessDenied") if call.what == "ABORT" or call.query.get("partNumber") == "1" else None
    )
    with pytest.raises(errors.AccessDeniedError) as caught:
        upload(client, large)
    assert "stay in the bucket" in (caught.value.hint or "")
    assert "parts of an upload stay" in caplog.text


def test_an_upload_that_somebody_else_ended_needs_no_end(client, double, large):
    def end(call: Call) -> None:
        if call.what == "PART":
            double.uploads.clear()

    double.before = end
    with pytest.raises(errors.ResourceNotFoundError):
        upload(client, large)
    assert double.count("ABORT") == 1


# -- the last request --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["InternalError", "SlowDown"])
def test_an_error_under_status_200_is_an_error(client, double, large, code):
    hidden = failure(200, code)
    double.before = on("COMPLETE", Reply(200, b"   \n" + hidden.body, hidden.headers), hidden)
    upload(client, large)
    assert double.count("COMPLETE") == 3
    check_content(double, large)


def test_an_error_under_status_200_that_lasts_is_raised(client, double, large):
    double.before = lambda call: failure(200, "InvalidPart") if call.what == "COMPLETE" else None
    with pytest.raises(errors.ServiceError, match="InvalidPart"):
        upload(client, large)
    assert not double.uploads
    assert not double.objects


def test_a_completion_whose_answer_was_lost_is_one(client, double, large):
    double.after = on("COMPLETE", Reply(hang_up=True))
    upload(client, large)
    assert double.count("COMPLETE") == 2
    check_content(double, large)


def test_an_upload_that_is_gone_is_no_object(client, double, large):
    def lose(call: Call) -> Reply | None:
        if call.what == "COMPLETE":
            double.uploads.clear()
            return Reply(hang_up=True) if double.count("COMPLETE") == 1 else None
        return None

    double.before = lose
    with pytest.raises(errors.ResourceNotFoundError):
        upload(client, large)
    assert not double.objects


def test_a_part_without_a_tag_cannot_be_named(client, double, large):
    double.before = on("PART", Reply(200))
    with pytest.raises(errors.AnswerInvalidError, match="ETag"):
        upload(client, large)
    check_nothing_left(double)
