"""The caller: attempts, signatures, retries, and every class of error that a service's answer can become."""

import hashlib
import json
from datetime import datetime, timezone
from email.utils import formatdate

import pytest

from tests.support.clock import FakeClock
from tests.support.peers import Answer, HangUp, Peer, Raw, Request, Serve, Silence, json_answer
from vmnest import errors, transport
from vmnest.aws import credentials, retries, service, signing
from vmnest.deadline import Deadline

KEY = credentials.build("AKIDEXAMPLE", "secret-of-the-key", token="token-of-the-key")
HTML = b"<html><head><title>502 Bad\nGateway</title></head><body>x</body></html>"
VM = {
    "microvmId": "microvm-1",
    "state": "RUNNING",
    "endpoint": "host.example",
    "imageArn": "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo",
    "imageVersion": "1.0",
    "maximumDurationInSeconds": 28800,
    "startedAt": 1789463942.026,
    "stateReason": None,
}


class Calls:
    """A service whose answers come from a script, with a clock that stands still."""

    def __init__(self, peer: Peer, clock: FakeClock, **options) -> None:
        self.peer = peer
        self.clock = clock
        self.transport = transport.Transport(environ={})
        options.setdefault("credentials", credentials.StaticSource(KEY))
        self.service = service.Service(
            "lambda-microvms",
            endpoint=options.pop("endpoint", peer.url),
            region="us-east-1",
            transport=self.transport,
            clock=clock,
            **options,
        )

    def call(self, operation: str, seconds: float | None = 60, **params: object) -> dict[str, object]:
        return self.service.call(operation, params, deadline=Deadline(seconds, clock=self.clock))

    def get(self, **options) -> dict[str, object]:
        return self.call("GetMicrovm", microvmIdentifier="microvm-1", **options)

    def run(self) -> dict[str, object]:
        return self.call("RunMicrovm", imageIdentifier=VM["imageArn"])


@pytest.fixture
def calls(serve: Serve, fake_clock: FakeClock):
    made: list[Calls] = []

    def build(*script, **options) -> Calls:
        made.append(Calls(serve(*script), fake_clock, **options))
        return made[-1]

    yield build
    for one in made:
        one.transport.close()


def refusal(status: int, kind: str | None = None, message: str | None = "because", **headers: str) -> Answer:
    named = {} if kind is None else {"x-amzn-errortype": kind}
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return json_answer(status, {"message": message}, headers={**named, "x-amzn-requestid": "request-1", **fields})


def check_signature(request: Request, now: float) -> None:
    verified = signing.verify(
        method=request.method,
        raw_target=request.target,
        headers=request.headers,
        body_sha256=hashlib.sha256(request.body).hexdigest(),
        secret_for=lambda key: KEY.secret_key if key == KEY.access_key else None,
        service="lambda",
        now=datetime.fromtimestamp(now, timezone.utc),
    )
    assert verified.region == "us-east-1"


# -- one call ----------------------------------------------------------------------------------------------------------


def test_a_call_is_signed_and_its_answer_read(calls):
    one = calls(json_answer(200, {**VM, "localDetails": {"a": None}}))
    answer = one.get()
    (request,) = one.peer.requests
    assert (request.method, request.target) == ("GET", "/2025-09-09/microvms/microvm-1")
    assert request.get("x-amz-security-token") == "token-of-the-key"
    check_signature(request, one.clock.time())
    assert answer["state"] == "RUNNING"
    assert "stateReason" not in answer
    assert answer["localDetails"] == {"a": None}


def test_extra_headers_are_signed(calls):
    one = calls(json_answer(200, VM))
    one.service.call(
        "RunMicrovm",
        {"imageIdentifier": VM["imageArn"]},
        deadline=Deadline(5),
        extra_headers=[("vmnest-local-options", '{"cpus":1}')],
    )
    (request,) = one.peer.requests
    assert request.get("vmnest-local-options") == '{"cpus":1}'
    assert "vmnest-local-options" in request.get("authorization")
    check_signature(request, one.clock.time())


def test_an_arn_in_the_path_is_encoded_and_signed(calls):
    one = calls(json_answer(200, {}), json_answer(200, {"Tags": {"a": "b"}}))
    assert one.call("ListTags", Resource=VM["imageArn"]) in ({}, {"Tags": {"a": "b"}})
    assert "%3A" in one.peer.requests[0].target
    check_signature(one.peer.requests[0], one.clock.time())


def test_an_answer_without_content_is_empty(calls):
    one = calls(Answer(204))
    assert one.call("TagResource", Resource=VM["imageArn"], Tags={"a": "b"}) == {}


def test_a_request_that_breaks_the_model_is_not_sent(calls):
    one = calls()
    with pytest.raises(errors.RequestInvalidError):
        one.call("RunMicrovm")
    assert one.peer.requests == []


def test_an_endpoint_may_have_a_path(calls):
    one = calls(json_answer(200, VM))
    one.service.endpoint += "/base"
    one.get()
    assert one.peer.requests[0].target == "/base/2025-09-09/microvms/microvm-1"
    check_signature(one.peer.requests[0], one.clock.time())


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (refusal(400, "ValidationException"), errors.ValidationError),
        (refusal(400), errors.ValidationError),
        (refusal(400, "InvalidParameterValueException"), errors.ValidationError),
        (refusal(402, "ServiceQuotaExceededException"), errors.QuotaExceededError),
        (refusal(402), errors.QuotaExceededError),
        (refusal(403, "AccessDeniedException"), errors.AccessDeniedError),
        (refusal(403), errors.AccessDeniedError),
        (refusal(403, "UnrecognizedClientException"), errors.SignatureRefusedError),
        (refusal(403, "InvalidSignatureException"), errors.SignatureRefusedError),
        (refusal(403, "ExpiredTokenException"), errors.CredentialsExpiredError),
        (refusal(403, "MissingAuthenticationTokenException"), errors.SignatureRefusedError),
        (refusal(404, "ResourceNotFoundException"), errors.ResourceNotFoundError),
        (refusal(404), errors.ResourceNotFoundError),
        (refusal(409, "ConflictException"), errors.ConflictError),
        (refusal(409, "ResourceConflictException"), errors.ConflictError),
        (refusal(429, "ThrottlingException"), errors.ThrottledError),
        (refusal(429, "TooManyRequestsException"), errors.ThrottledError),
        (refusal(400, "ThrottlingException"), errors.ThrottledError),
        (refusal(500, "InternalServerException"), errors.ServiceFaultError),
        (refusal(500, "ServiceException"), errors.ServiceFaultError),
        (refusal(503), errors.ServiceFaultError),
        (refusal(500, "InsufficientCapacityException"), errors.CapacityError),
        (refusal(418, "TeapotException"), errors.ServiceError),
        (refusal(301), errors.ServiceError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_a_refusal_becomes_the_error_of_its_meaning(calls, answer, expected):
    one = calls(*[answer] * 20)
    with pytest.raises(errors.ServiceError) as caught:
        one.get()
    error = caught.value
    assert type(error) is expected
    assert error.status == answer.status
    assert error.operation == "GetMicrovm"
    assert error.request_id == "request-1"
    assert error.message.startswith("GetMicrovm: because")
    assert "\n" not in error.message


def test_every_class_of_the_service_s_branch_is_reached_here():
    reached = {
        errors.ValidationError,
        errors.QuotaExceededError,
        errors.AccessDeniedError,
        errors.SignatureRefusedError,
        errors.CredentialsExpiredError,
        errors.ResourceNotFoundError,
        errors.ConflictError,
        errors.ThrottledError,
        errors.ServiceFaultError,
        errors.CapacityError,
        errors.RoleNotReadyError,
        errors.ServiceError,
        errors.ClockSkewError,
        errors.AnswerInvalidError,
    }
    assert set(errors.iter_classes(errors.ServiceError)) == reached


@pytest.mark.parametrize("kind", ["AccessDeniedException", None])
def test_a_denial_without_a_reason_hints_at_the_region(calls, kind):
    one = calls(refusal(403, kind, message=None))
    with pytest.raises(errors.AccessDeniedError) as caught:
        one.get()
    assert "us-east-1" in caught.value.hint
    assert "region" in caught.value.hint
    assert "no reason" in caught.value.message


@pytest.mark.parametrize("status", [404, 502])
def test_html_from_a_gateway_is_read_by_nobody(calls, status):
    one = calls(*[Answer(status, HTML, [("Content-Type", "text/html")])] * 10)
    with pytest.raises(errors.ServiceError, match=r"GetMicrovm: 502 Bad Gateway \(HTTP \d+\)") as caught:
        one.get()
    # That a gateway does not know the path must not be taken for the MicroVM's end: its record would be dropped.
    assert not isinstance(caught.value, errors.ResourceNotFoundError)


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "application/json", "application/x-amz-json-1.1"])
def test_json_is_json_whatever_it_is_called(calls, content_type):
    fields = [("Content-Type", content_type)]
    one = calls(
        Answer(200, json.dumps(VM).encode(), fields),
        Answer(404, b'{"message": "gone", "__type": "com.amazonaws#ResourceNotFoundException"}', fields),
    )
    assert one.get()["microvmId"] == "microvm-1"
    with pytest.raises(errors.ResourceNotFoundError, match=r"gone \(ResourceNotFoundException\)"):
        one.get()


def test_html_in_place_of_no_content_is_no_success(calls):
    one = calls(Answer(200, HTML, [("Content-Type", "text/html")]))
    with pytest.raises(errors.AnswerInvalidError):
        one.call("TagResource", Resource=VM["imageArn"], Tags={"a": "b"})


def test_an_error_without_a_body_is_told_by_its_status(calls):
    one = calls(*[Answer(503)] * 10)
    with pytest.raises(errors.ServiceFaultError, match=r"no reason \(HTTP 503\)"):
        one.get()


def test_an_error_in_capital_letters_is_read_too(calls):
    one = calls(json_answer(404, {"Message": "Network connector not found"}))
    with pytest.raises(errors.ResourceNotFoundError, match="Network connector not found"):
        one.get()


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, HTML, [("Content-Type", "text/html")]),
        Answer(200, HTML, [("Content-Type", "application/json")]),
        Answer(200, HTML),
        Answer(200, b"", [("Content-Type", "application/json")]),
        json_answer(200, {"microvmId": "x"}),
        json_answer(200, {**VM, "state": 5}),
        json_answer(200, ["x"]),
        Answer(200, b'{"microvmId": "x', [("Content-Type", "application/json")]),
        Answer(200, b"[" * 100_000, [("Content-Type", "application/json")]),
    ],
)
def test_success_that_cannot_be_one_is_an_error(calls, answer):
    one = calls(answer)
    with pytest.raises(errors.AnswerInvalidError, match="GetMicrovm: the answer is not") as caught:
        one.get()
    assert one.peer.url in caught.value.hint
    assert "\n" not in caught.value.message
    assert len(one.peer.requests) == 1


def test_an_answer_without_end_is_not_taken(calls, monkeypatch):
    monkeypatch.setattr(service, "MAX_ANSWER_BYTES", 1000)
    one = calls(Answer(200, b" " * 1001, [("Content-Type", "application/json")]))
    with pytest.raises(errors.AnswerTooLargeError):
        one.get()


def test_nothing_secret_is_in_an_error(calls):
    one = calls(refusal(403, "InvalidSignatureException", message=f"Authorization: AWS4-HMAC-SHA256 {'a' * 64}"))
    with pytest.raises(errors.SignatureRefusedError) as caught:
        one.get()
    shown = f"{caught.value} {caught.value!r} {json.dumps(caught.value.to_wire())} {KEY!r} {vars(one.service)}"
    for secret in ("secret-of-the-key", "token-of-the-key", "a" * 64):
        assert secret not in shown


# -- again -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        refusal(429, "ThrottlingException"),
        refusal(500, "InternalServerException"),
        refusal(500, "InsufficientCapacityException"),
        Answer(502, HTML, [("Content-Type", "text/html")]),
        HangUp(),
        Raw((b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",)),
    ],
    ids=["throttled", "fault", "capacity", "gateway", "hang-up", "cut"],
)
def test_what_passes_is_tried_again_with_the_same_token_and_a_new_signature(calls, failure):
    one = calls(failure, failure, json_answer(200, VM))
    assert one.run()["microvmId"] == "microvm-1"
    bodies = [request.body for request in one.peer.requests]
    assert len(bodies) == 3
    assert len(set(bodies)) == 1
    assert len(json.loads(bodies[0])["clientToken"]) == 36
    assert len({request.get("x-amz-date") for request in one.peer.requests}) >= 1
    for request in one.peer.requests:
        check_signature(request, one.clock.time())


def test_each_attempt_takes_credentials_anew(calls):
    class Turning:
        def __init__(self) -> None:
            self.asked = 0

        def get(self) -> credentials.Credentials:
            self.asked += 1
            return credentials.build(f"AKID{self.asked}", "secret")

        def renew(self, refused: credentials.Credentials) -> bool:
            return False

    one = calls(refusal(500), refusal(500), json_answer(200, VM), credentials=Turning())
    one.get()
    used = [request.get("authorization").split("Credential=")[1][:5] for request in one.peer.requests]
    assert used == ["AKID1", "AKID2", "AKID3"]


@pytest.mark.parametrize(
    ("answer", "attempts"),
    [
        (refusal(402, "ServiceQuotaExceededException"), 1),
        (refusal(403, "AccessDeniedException"), 1),
        (refusal(400, "ValidationException"), 1),
        (refusal(404, "ResourceNotFoundException"), 1),
        (refusal(409, "ConflictException"), 1),
        (refusal(500, "InternalServerException"), 5),
        (refusal(429, "ThrottlingException"), 8),
        (refusal(500, "InsufficientCapacityException"), 8),
    ],
)
def test_attempts_are_bounded(calls, answer, attempts):
    one = calls(*[answer] * 20)
    with pytest.raises(errors.ServiceError):
        one.run()
    assert len(one.peer.requests) == attempts
    assert len(one.clock.sleeps) == attempts - 1


def test_the_waits_between_attempts_grow(calls):
    one = calls(*[refusal(429, "ThrottlingException")] * 20)
    with pytest.raises(errors.ThrottledError):
        one.get()
    assert 0.25 <= one.clock.sleeps[0] <= 0.5
    assert one.clock.sleeps[-1] > 2 * one.clock.sleeps[0]


def test_the_service_s_own_wait_is_honoured(calls):
    one = calls(refusal(429, "ThrottlingException", retry_after="7"), json_answer(200, VM))
    one.get()
    assert one.clock.sleeps == [7.0]


def test_a_wait_until_a_date_is_honoured(calls, fake_clock: FakeClock):
    now = fake_clock.time() + 5000  # the server's clock counts, not ours
    one = calls(refusal(503, None, retry_after=formatdate(now + 9), date=formatdate(now)), json_answer(200, VM))
    one.get()
    assert one.clock.sleeps == [9.0]


@pytest.mark.parametrize("retry_after", ["61", "999999999"])
def test_a_wait_that_is_too_long_is_the_caller_s_business(calls, retry_after):
    one = calls(refusal(429, "ThrottlingException", retry_after=retry_after))
    with pytest.raises(errors.ThrottledError) as caught:
        one.get(seconds=None)
    assert caught.value.retry_after == float(retry_after)
    assert one.clock.sleeps == []


def test_no_wait_goes_beyond_the_deadline(calls):
    one = calls(*[refusal(429, "ThrottlingException", retry_after="20")] * 5)
    with pytest.raises(errors.ThrottledError):
        one.get(seconds=30)
    assert one.clock.sleeps == [20.0]


def test_a_deadline_that_has_passed_sends_nothing(calls, fake_clock: FakeClock):
    one = calls()
    deadline = Deadline(1, clock=fake_clock)
    fake_clock.advance(2)
    with pytest.raises(errors.WaitTimeoutError, match="GetMicrovm"):
        one.service.call("GetMicrovm", {"microvmIdentifier": "x"}, deadline=deadline)
    assert one.peer.requests == []


def test_what_may_not_be_done_twice_is_not_tried_again_once_sent(calls, monkeypatch):
    monkeypatch.setattr(retries, "_HARMLESS_TWICE", frozenset())
    one = calls(HangUp(), json_answer(200, {"authToken": {}}))
    with pytest.raises(errors.ConnectionLostError):
        one.call("CreateMicrovmAuthToken", microvmIdentifier="m", expirationInMinutes=1, allowedPorts=[{"port": 8080}])
    assert len(one.peer.requests) == 1


def test_what_was_throttled_was_not_done_and_is_tried_again(calls, monkeypatch):
    monkeypatch.setattr(retries, "_HARMLESS_TWICE", frozenset())
    one = calls(refusal(429), json_answer(200, {"authToken": {"X-aws-proxy-auth": "t"}}))
    one.call("CreateMicrovmAuthToken", microvmIdentifier="m", expirationInMinutes=1, allowedPorts=[{"port": 8080}])
    assert len(one.peer.requests) == 2


def test_a_peer_that_does_not_answer_ends_the_call_at_its_deadline(serve: Serve):
    # The real clock: this is about real silence.
    peer = serve(*[Silence()] * 9)
    sender = transport.Transport(environ={})
    made = service.Service(
        "lambda-microvms",
        endpoint=peer.url,
        region="us-east-1",
        credentials=credentials.StaticSource(KEY),
        transport=sender,
    )
    with pytest.raises(errors.ReadTimeoutError):
        made.call("GetMicrovm", {"microvmIdentifier": "x"}, deadline=Deadline(0.3))
    sender.close()


def test_nobody_listening_is_tried_again_and_then_an_error(calls, refused_port):
    one = calls(endpoint=f"http://127.0.0.1:{refused_port}")
    with pytest.raises(errors.ConnectError):
        one.get()
    assert len(one.clock.sleeps) == 4


def test_a_refused_connection_asks_once_for_another_endpoint(calls, refused_port, serve: Serve):
    moved = serve(json_answer(200, VM), json_answer(200, VM))
    asked: list[float | None] = []

    def move(deadline: Deadline) -> str:
        asked.append(deadline.seconds)
        return moved.url

    one = calls(endpoint=f"http://127.0.0.1:{refused_port}", on_refused=move)
    one.get(seconds=7)
    one.get()
    assert asked == [7], "the call's own deadline bounds the search"
    assert one.clock.sleeps == []
    check_signature(moved.requests[0], one.clock.time())


def test_a_second_refusal_in_one_call_is_an_error(calls, refused_port):
    asked: list[str] = []

    def move(_: Deadline) -> str:
        asked.append("again")
        return f"http://127.0.0.1:{refused_port}"

    one = calls(endpoint=f"http://127.0.0.1:{refused_port}", on_refused=move)
    with pytest.raises(errors.ConnectError):
        one.get()
    assert asked == ["again"]


ROLE = refusal(400, "ValidationException", "The role defined for the function cannot be assumed by Lambda.")


def test_a_role_made_a_moment_ago_is_waited_for(calls):
    one = calls(ROLE, ROLE, json_answer(200, VM))
    assert one.run()["microvmId"] == "microvm-1"
    tokens = {json.loads(request.body)["clientToken"] for request in one.peer.requests}
    assert len(tokens) == 1


def test_a_role_that_never_can_be_assumed_is_not_waited_for_long(calls):
    one = calls(*[ROLE] * 20)
    with pytest.raises(errors.RoleNotReadyError) as caught:
        one.run()
    assert len(one.peer.requests) == retries.MAX_ATTEMPTS_ROLE
    assert 15 < sum(one.clock.sleeps) < 60
    assert "lambda.amazonaws.com" in caught.value.hint


def test_a_refusal_that_the_caller_knows_to_pass_is_waited_for(calls):
    missing = refusal(404, "ResourceNotFoundException", "No active version found")
    asked: list[errors.ServiceError] = []

    def is_passing(error: errors.ServiceError) -> bool:
        asked.append(error)
        return len(asked) < 3

    one = calls(*[missing] * 9)
    deadline = Deadline(60, clock=one.clock)
    with pytest.raises(errors.ResourceNotFoundError):
        one.service.call("GetMicrovm", {"microvmIdentifier": "m"}, deadline=deadline, is_passing=is_passing)
    assert len(one.peer.requests) == 3
    assert [type(error) for error in asked] == [errors.ResourceNotFoundError] * 3
    assert one.clock.sleeps[0] >= 0.25


def test_a_refusal_is_not_waited_for_for_ever_whatever_the_caller_says(calls):
    one = calls(*[refusal(404, "ResourceNotFoundException")] * 20)
    deadline = Deadline(None, clock=one.clock)
    with pytest.raises(errors.ResourceNotFoundError):
        one.service.call("GetMicrovm", {"microvmIdentifier": "m"}, deadline=deadline, is_passing=lambda error: True)
    assert len(one.peer.requests) == retries.MAX_ATTEMPTS_THROTTLED


@pytest.mark.parametrize("lost", [HangUp(), refusal(500), Answer(502, HTML)], ids=["hang-up", "fault", "gateway"])
def test_a_refusal_after_a_lost_answer_says_that_the_outcome_is_unknown(calls, lost):
    one = calls(lost, refusal(402, "ServiceQuotaExceededException"))
    with pytest.raises(errors.QuotaExceededError) as caught:
        one.run()
    assert caught.value.details["outcome"] == "unknown"


def test_an_answer_that_is_lost_on_a_connection_in_use_is_a_lost_answer(calls):
    one = calls(json_answer(200, VM), HangUp(), refusal(402, "ServiceQuotaExceededException"))
    one.get()  # leaves the connection that the launch then takes
    with pytest.raises(errors.QuotaExceededError) as caught:
        one.run()
    assert [request.connection for request in one.peer.requests] == [0, 0, 1]
    assert caught.value.details["outcome"] == "unknown"


def test_keys_that_end_after_a_lost_answer_leave_its_outcome_unknown(calls):
    class Ending:
        def __init__(self) -> None:
            self.asked = 0

        def get(self) -> credentials.Credentials:
            self.asked += 1
            if self.asked > 1:
                raise errors.CredentialsBrokenError("ended")
            return KEY

    one = calls(HangUp(), credentials=Ending())
    with pytest.raises(errors.CredentialsBrokenError) as caught:
        one.run()
    assert caught.value.details == {"outcome": "unknown"}


@pytest.mark.parametrize(
    "script",
    [
        [refusal(402, "ServiceQuotaExceededException")],
        [refusal(429, "ThrottlingException"), refusal(400, "ValidationException")],
        [refusal(500, "InsufficientCapacityException"), refusal(403, "AccessDeniedException")],
    ],
    ids=["refused", "throttled", "capacity"],
)
def test_what_was_surely_not_done_is_not_said_to_be_unknown(calls, script):
    one = calls(*script)
    with pytest.raises(errors.ServiceError) as caught:
        one.run()
    assert "outcome" not in caught.value.details


def test_nobody_asks_for_the_outcome_of_a_look(calls):
    one = calls(*[HangUp()] * 20)
    with pytest.raises(errors.ConnectionLostError) as caught:
        one.get()
    assert "outcome" not in caught.value.details


def test_a_lost_answer_says_what_to_do(calls):
    one = calls(*[HangUp()] * 20)
    with pytest.raises(errors.ConnectionLostError) as caught:
        one.get()
    assert one.peer.url in caught.value.hint


class Renewing:
    """Keys that are others when they were refused, as often as there are any."""

    def __init__(self, *keys: str) -> None:
        self.keys = list(keys)
        self.refused: list[str] = []

    def get(self) -> credentials.Credentials:
        return credentials.build(self.keys[0], "secret")

    def renew(self, refused: credentials.Credentials) -> bool:
        self.refused.append(refused.access_key)
        if len(self.keys) > 1:
            self.keys.pop(0)
        return self.keys[0] != refused.access_key


@pytest.mark.parametrize("kind", ["ExpiredTokenException", "UnrecognizedClientException", "InvalidSignatureException"])
def test_keys_that_were_refused_are_renewed_once(calls, kind):
    source = Renewing("AKID1", "AKID2", "AKID3")
    one = calls(refusal(403, kind), json_answer(200, VM), credentials=source)
    one.get()
    used = [request.get("authorization").split("Credential=")[1][:5] for request in one.peer.requests]
    assert used == ["AKID1", "AKID2"]
    one = calls(*[refusal(403, kind)] * 9, credentials=source)
    with pytest.raises(errors.SignatureRefusedError):
        one.get()
    assert len(one.peer.requests) == 2
    assert one.clock.sleeps == []


def test_keys_that_cannot_be_renewed_are_not_tried_again(calls):
    one = calls(refusal(403, "ExpiredTokenException"), credentials=Renewing("AKID1"))
    with pytest.raises(errors.CredentialsExpiredError):
        one.get()
    assert len(one.peer.requests) == 1


def test_keys_that_may_not_do_this_are_not_renewed(calls):
    source = Renewing("AKID1", "AKID2")
    one = calls(refusal(403, "AccessDeniedException"), credentials=source)
    with pytest.raises(errors.AccessDeniedError):
        one.get()
    assert source.refused == []


def test_a_refused_signature_says_where_the_keys_are_from(calls):
    keys = KEY._replace(origin="profile 'x' in /home/me/.aws/credentials")
    one = calls(refusal(403, "InvalidSignatureException"), credentials=credentials.StaticSource(keys))
    with pytest.raises(errors.SignatureRefusedError) as caught:
        one.get()
    assert "The secret key is not the access key's" in caught.value.hint
    assert "/home/me/.aws/credentials" in caught.value.hint


# -- clocks ------------------------------------------------------------------------------------------------------------

EXPIRED = "Signature expired: 20260101T000000Z is now earlier than 20260101T000500Z"
EARLY = "Signature not yet current: 20260101T000000Z is still later than 20260101T000500Z"


@pytest.mark.parametrize(("skew", "message"), [(600, EXPIRED), (-600, EARLY)])
def test_a_clock_that_is_off_is_set_by_the_server_s(calls, fake_clock: FakeClock, skew, message):
    server = fake_clock.time() + skew
    late = refusal(403, "InvalidSignatureException", message, date=formatdate(server))
    one = calls(late, json_answer(200, VM), json_answer(200, VM))
    one.get()
    one.get()
    _, second, third = one.peer.requests
    check_signature(second, server)
    check_signature(third, server)
    assert one.clock.sleeps == []


@pytest.mark.parametrize("skew", [600, -600])
def test_a_clock_that_is_set_right_later_is_believed_again(calls, fake_clock: FakeClock, skew):
    def late(date: float) -> Answer:
        return refusal(403, "InvalidSignatureException", EXPIRED, date=formatdate(date))

    begin = fake_clock.time()
    one = calls(late(begin + skew), json_answer(200, VM), late(begin + skew), json_answer(200, VM))
    one.get()
    fake_clock.advance(skew)  # by NTP; the service's clock stands still
    one.get()
    check_signature(one.peer.requests[3], begin + skew)


def test_a_clock_that_stays_off_is_said_so(calls, fake_clock: FakeClock):
    late = refusal(403, "InvalidSignatureException", EXPIRED, date=formatdate(fake_clock.time() + 600))
    one = calls(*[late] * 9)
    with pytest.raises(errors.ClockSkewError, match="clock is 600 s behind the service's") as caught:
        one.get()
    assert len(one.peer.requests) == 2
    assert caught.value.hint


def test_an_expired_signature_with_a_right_clock_is_no_skew(calls, fake_clock: FakeClock):
    one = calls(refusal(403, "InvalidSignatureException", EXPIRED, date=formatdate(fake_clock.time() + 3)))
    with pytest.raises(errors.SignatureRefusedError) as caught:
        one.get()
    assert type(caught.value) is errors.SignatureRefusedError


def test_a_server_without_a_date_cannot_correct_the_clock(calls):
    one = calls(refusal(403, "InvalidSignatureException", EXPIRED))
    with pytest.raises(errors.SignatureRefusedError):
        one.get()
    assert len(one.peer.requests) == 1
