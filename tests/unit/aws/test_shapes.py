"""The codec, each direction held to botocore's serializer and parser for random values of every operation."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from datetime import datetime, timezone
from typing import Any

import botocore.awsrequest
import botocore.parsers
import botocore.serialize
import botocore.validate
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.paths import ROOT
from tests.support.shapes import botocore_service, error_names, structures
from vmnest import errors
from vmnest.aws import shapes

SERVICES = ("lambda-microvms", "lambda-core")
OPERATIONS = [(service, name) for service in SERVICES for name in botocore_service(service).operation_names]
MICROVMS, CORE = map(shapes.load, SERVICES)
ARN = "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo"
TOKEN = "00000000-0000-4000-8000-000000000000"

every_operation = pytest.mark.parametrize(("service", "name"), OPERATIONS, ids=[name for _, name in OPERATIONS])
every_output = pytest.mark.parametrize(
    ("service", "name"), [pair for pair in OPERATIONS if shapes.load(pair[0]).operation(pair[1]).output is not None]
)
some = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def botocore_request(service: str, name: str, params: dict[str, Any]) -> tuple[str, str, dict[str, str], bytes]:
    """Method, target, headers and body as botocore makes them, after its own validation."""
    serializer = botocore.serialize.create_serializer("rest-json", include_validation=True)
    request = serializer.serialize_to_request(params, botocore_service(service).operation_model(name))
    botocore.awsrequest.prepare_request_dict(request, endpoint_url="https://host")
    return request["method"], request["url"].removeprefix("https://host"), request["headers"], request["body"]


def botocore_answer(
    service: str, name: str, *, status: int, headers: list[tuple[str, str]], body: bytes
) -> dict[str, Any]:
    """What botocore's parser makes of an answer."""
    parser = botocore.parsers.create_parser("rest-json")
    response = {"status_code": status, "headers": botocore.awsrequest.HeadersDict(headers), "body": body}
    parsed = parser.parse(response, botocore_service(service).operation_model(name).output_shape)
    del parsed["ResponseMetadata"]
    return parsed  # type: ignore[no-any-return]


def params_of(operation: shapes.Operation, data: st.DataObject) -> dict[str, Any]:
    assert operation.input is not None
    params: dict[str, Any] = data.draw(structures(operation.input), label="params")
    if operation.token_member is not None:
        params.setdefault(operation.token_member, TOKEN)
    return params


# -- both directions, beside botocore ----------------------------------------------------------------------------------


@every_operation
@some
@given(data=st.data())
def test_a_request_is_the_one_that_botocore_makes(service: str, name: str, data: st.DataObject) -> None:
    operation = shapes.load(service).operation(name)
    params = params_of(operation, data)
    request = shapes.build_request(operation, params)
    method, target, headers, body = botocore_request(service, name, params)
    # botocore leaves a bare "?" where the query holds but an empty list.
    assert (request.method, request.target) == (method, target.removesuffix("?"))
    assert (dict(request.headers), request.body) == (headers, body)


@every_operation
@some
@given(data=st.data())
def test_a_request_of_ours_reaches_the_service_as_it_was_meant(service: str, name: str, data: st.DataObject) -> None:
    operation = shapes.load(service).operation(name)
    params = params_of(operation, data)
    assume([] not in params.values() or name != "UntagResource")  # a query has no form for an empty list
    request = shapes.build_request(operation, params)
    path, _, query = request.target.partition("?")
    found = shapes.match([MICROVMS, CORE], request.method, path)
    assert found is not None
    model, matched, path_params = found
    assert (model.service, matched.name) == (service, name)
    parsed, violations = shapes.parse_request(
        matched, path_params, raw_query=query, headers=request.headers, body=request.body
    )
    assert parsed == params
    assert violations == []


@every_output
@some
@given(data=st.data())
def test_an_answer_of_ours_is_read_alike_by_botocore_and_by_us(service: str, name: str, data: st.DataObject) -> None:
    operation = shapes.load(service).operation(name)
    assert operation.output is not None
    result = data.draw(structures(operation.output))
    answer = shapes.build_answer(operation, {**result, "unmodelled": {"a": [1, None]}})
    theirs = botocore_answer(service, name, status=answer.status, headers=answer.headers, body=answer.body)
    assert theirs == result
    assert shapes.parse_answer(operation, answer.headers, answer.body) == {**result, "unmodelled": {"a": [1, None]}}


@every_output
@some
@given(data=st.data())
def test_nulls_in_an_answer_are_absent_for_both(service: str, name: str, data: st.DataObject) -> None:
    operation = shapes.load(service).operation(name)
    assert operation.output is not None
    result = data.draw(structures(operation.output))
    wire = json.loads(shapes.build_answer(operation, result).body)
    body = json.dumps({**dict.fromkeys(operation.output.members), **wire, "x": None}).encode()
    assert botocore_answer(service, name, status=200, headers=[], body=body) == result
    assert shapes.parse_answer(operation, [], body) == {**result, "x": None}


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5000) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@every_operation
@some
@given(data=st.data())
def test_what_botocore_refuses_is_refused(service: str, name: str, data: st.DataObject) -> None:
    operation = shapes.load(service).operation(name)
    assert operation.input is not None
    params = params_of(operation, data)
    broken = data.draw(st.sampled_from([*operation.input.members, "unknown"]), label="broken")
    # None is how our callers say "absent", and botocore's do not.
    params[broken] = data.draw(JUNK.filter(lambda value: value is not None), label="junk")
    report = botocore.validate.ParamValidator().validate(
        params, botocore_service(service).operation_model(name).input_shape
    )
    if report.has_errors():
        with pytest.raises(errors.RequestInvalidError, match=broken):
            shapes.build_request(operation, params)


@pytest.mark.parametrize(
    ("service", "error"), [(service, error) for service in SERVICES for error in sorted(error_names(service))]
)
def test_each_modelled_error_is_read_alike_by_botocore_and_by_us(service: str, error: str) -> None:
    model = shapes.load(service)
    shape = model.error(error)
    assert shape is not None
    answer = shapes.build_error(error, shape.status, "what came of it", model=model)
    name = botocore_service(service).operation_names[0]
    theirs = botocore_answer(service, name, status=answer.status, headers=answer.headers, body=answer.body)
    assert theirs == {"Error": {"Code": error, "Message": "what came of it"}}
    ours = shapes.parse_error(answer.headers, answer.status, answer.body)
    assert (ours.error_type, ours.message) == (error, "what came of it")


# -- the client's side -------------------------------------------------------------------------------------------------


def test_a_client_token_is_filled_in_and_is_new_each_time() -> None:
    operation = MICROVMS.operation("RunMicrovm")
    tokens = {
        json.loads(shapes.build_request(operation, {"imageIdentifier": ARN}).body)["clientToken"] for _ in range(20)
    }
    assert len(tokens) == 20
    assert all(len(token) == 36 and token[14] == "4" and token[19] in "89ab" for token in tokens)


def test_a_client_token_can_be_handed_in_or_its_source() -> None:
    operation = MICROVMS.operation("RunMicrovm")
    request = shapes.build_request(operation, {"imageIdentifier": ARN, "clientToken": None}, new_token=lambda: TOKEN)
    assert json.loads(request.body)["clientToken"] == TOKEN
    request = shapes.build_request(operation, {"imageIdentifier": ARN, "clientToken": "mine"}, new_token=lambda: TOKEN)
    assert json.loads(request.body)["clientToken"] == "mine"


def test_parameters_that_are_none_are_absent_at_any_depth() -> None:
    request = shapes.build_request(
        MICROVMS.operation("RunMicrovm"),
        {
            "imageIdentifier": ARN,
            "executionRoleArn": None,
            "logging": {"cloudWatch": {"logGroup": "a", "logStream": None}, "disabled": None},
            "clientToken": TOKEN,
        },
    )
    assert json.loads(request.body) == {
        "imageIdentifier": ARN,
        "logging": {"cloudWatch": {"logGroup": "a"}},
        "clientToken": TOKEN,
    }


def test_an_arn_in_the_path_and_repeated_keys_in_the_query_are_encoded() -> None:
    request = shapes.build_request(
        MICROVMS.operation("UntagResource"), {"Resource": ARN, "TagKeys": ["a b", "c=", "a b"]}
    )
    encoded = "arn%3Aaws%3Alambda%3Aus-east-1%3A111122223333%3Amicrovm-image%3Ademo"
    assert request.target == f"/2017-03-31/tags/{encoded}?tagKeys=a%20b&tagKeys=c%3D&tagKeys=a%20b"
    assert (request.headers, request.body) == ([], b"")


def test_a_parameter_cannot_smuggle_a_placeholder_or_a_slash_into_the_path() -> None:
    request = shapes.build_request(
        MICROVMS.operation("GetMicrovmImageVersion"),
        {"imageIdentifier": ARN + "/{imageVersion}?", "imageVersion": "1.0"},
    )
    assert request.target.endswith("demo%2F%7BimageVersion%7D%3F/versions/1.0")


def test_all_violations_are_told_at_once_with_their_paths() -> None:
    with pytest.raises(errors.RequestInvalidError) as caught:
        shapes.build_request(
            MICROVMS.operation("CreateMicrovmAuthToken"),
            {"microvmIdentifier": "", "allowedPorts": [{"port": 8080}, {"port": 0}, {"port": 1, "allPorts": {}}]},
        )
    members = [violation["member"] for violation in caught.value.details["violations"]]  # type: ignore[attr-defined]
    assert set(members) == {"microvmIdentifier", "expirationInMinutes", "allowedPorts[1].port", "allowedPorts[2]"}
    assert all(member in caught.value.message for member in members)


def test_a_secret_value_is_not_repeated_in_the_error() -> None:
    with pytest.raises(errors.RequestInvalidError) as caught:
        shapes.build_request(
            MICROVMS.operation("RunMicrovm"), {"imageIdentifier": ARN, "runHookPayload": "s3cret" * 1000}
        )
    assert "4096" in caught.value.message
    assert "s3cret" not in caught.value.message + str(caught.value.details)


def answer_body(**members: object) -> bytes:
    return json.dumps(
        {
            "microvmId": "microvm-1",
            "state": "PENDING",
            "endpoint": "h",
            "imageArn": ARN,
            "imageVersion": "1.0",
            "maximumDurationInSeconds": 28800,
            "startedAt": 1789463942.026,
            **members,
        }
    ).encode()


def test_an_answer_keeps_what_the_model_does_not_know_and_drops_nulls() -> None:
    answer = shapes.parse_answer(
        MICROVMS.operation("GetMicrovm"),
        [("content-type", "application/json")],
        answer_body(
            stateReason=None, terminationReasonCode=None, idlePolicy={"autoResumeEnabled": True, "new": 1}, state="NEW"
        ),
    )
    assert "stateReason" not in answer
    assert answer["terminationReasonCode"] is None
    assert answer["idlePolicy"] == {"autoResumeEnabled": True, "new": 1}
    assert answer["state"] == "NEW"
    assert answer["startedAt"] == datetime(2026, 9, 15, 9, 19, 2, 26000, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html><body>502 Bad Gateway</body></html>", "Expecting value"),
        (b"", "has no endpoint, imageArn"),
        (b"{}", "has no endpoint, imageArn"),
        (b"null", "NoneType"),
        (b"[]", "list"),
        (b'"text"', "str"),
        (b"\xff\xfe\xfd", "utf-16"),
        (b'{"a": NaN}', "NaN"),
        (b"[" * 100_000, "recursion"),
        (answer_body(startedAt=None), "has no startedAt"),
        (answer_body(startedAt="soon"), "startedAt: 'soon' is no timestamp"),
        (answer_body(startedAt=1e300), "startedAt: '1e[+]300' is no timestamp"),
        (answer_body(state=5), "state: NUMBER_VALUE can not be converted to a String"),
        (answer_body(idlePolicy=[]), "idlePolicy: Start of list found"),
        (answer_body(idlePolicy={"autoResumeEnabled": "yes"}), "idlePolicy.autoResumeEnabled: STRING_VALUE"),
        (answer_body(ingressNetworkConnectors=["a", 7]), r"ingressNetworkConnectors\[1\]: NUMBER_VALUE"),
        (answer_body(maximumDurationInSeconds=1.5), "maximumDurationInSeconds: NUMBER_VALUE"),
    ],
)
def test_a_malformed_answer_is_named_for_what_it_is(body: bytes, said: str) -> None:
    with pytest.raises(shapes.AnswerMalformed, match=said):
        shapes.parse_answer(MICROVMS.operation("GetMicrovm"), [], body)


def test_an_operation_without_output_reads_any_body() -> None:
    assert shapes.parse_answer(MICROVMS.operation("TagResource"), [], b"") == {}
    assert shapes.parse_answer(MICROVMS.operation("TagResource"), [], b"<html>") == {}


def test_headers_may_be_pairs_or_a_mapping() -> None:
    for headers in ([("X-Amzn-ErrorType", "A")], {"X-Amzn-ErrorType": "A"}):
        assert shapes.parse_error(headers, 400, b"{}").error_type == "A"


@pytest.mark.parametrize(
    ("headers", "body", "error_type", "message"),
    [
        ([("x-amzn-errortype", "Throttled:http://x.amazon.com/")], b'{"message":"m"}', "Throttled", "m"),
        ([], b'{"__type":"com.amazonaws.lambda#ValidationException","Message":"m"}', "ValidationException", "m"),
        ([], b'{"code":"AccessDenied","message":null}', "AccessDenied", None),
        ([], b'{"Message":"Expected null"}', None, "Expected null"),
        ([], b"<html><head><title>502</title></html>", None, None),
        ([], b"", None, None),
        ([], b"null", None, None),
        ([], b'{"message": {"a": 1}, "__type": 5}', None, None),
        ([], b"\x80", None, None),
        ([], b'{"__type":"x#Evil\\nType","message":"m"}', None, "m"),
        ([], json.dumps({"code": "x" * 5000, "message": "m"}).encode(), None, "m"),
        ([("X-AMZN-ERRORTYPE", " Throttled ")], b"{}", "Throttled", None),
    ],
)  # fmt: skip
def test_an_error_answer_of_any_kind_is_read(
    headers: list[tuple[str, str]], body: bytes, error_type: str | None, message: str | None
) -> None:
    answer = shapes.parse_error(headers, 400, body)
    assert (answer.error_type, answer.message) == (error_type, message)


@given(body=st.binary(max_size=60) | JUNK.map(lambda junk: json.dumps(junk).encode()))
def test_no_body_breaks_a_parser(body: bytes) -> None:
    shapes.parse_error([], 500, body)
    for operation in (MICROVMS.operation("GetMicrovm"), CORE.operation("ListNetworkConnectors")):
        with contextlib.suppress(shapes.AnswerMalformed):
            shapes.parse_answer(operation, [], body)
    for name in ("RunMicrovm", "CreateMicrovmImage", "TagResource"):
        with contextlib.suppress(shapes.RequestMalformed):
            shapes.parse_request(MICROVMS.operation(name), {}, body=body)


@every_operation
@some
@given(data=st.data())
def test_no_json_breaks_the_service(service: str, name: str, data: st.DataObject) -> None:
    operation = shapes.load(service).operation(name)
    assert operation.input is not None
    names = st.sampled_from([*operation.input.by_wire_name, "unknown"])
    body = json.dumps(data.draw(st.dictionaries(names, JUNK))).encode()
    try:
        _, violations = shapes.parse_request(operation, {}, raw_query="maxResults=1&MaxItems=-1", body=body)
    except shapes.RequestMalformed:
        return
    assert all(text.startswith("Value") for text in violations)


# -- the service's side ------------------------------------------------------------------------------------------------


def matched(method: str, path: str) -> tuple[str, dict[str, str]] | None:
    found = shapes.match([MICROVMS, CORE], method, path)
    return None if found is None else (found[1].name, found[2])


def test_arns_in_the_path_may_be_encoded_or_plain() -> None:
    for path in (ARN, ARN.replace(":", "%3A"), ARN.replace(":", "%3a")):
        assert matched("GET", f"/2025-09-09/microvm-images/{path}") == ("GetMicrovmImage", {"imageIdentifier": ARN})


def test_one_listener_serves_three_families_of_paths() -> None:
    assert matched("POST", f"/2017-03-31/tags/{ARN}") == ("TagResource", {"Resource": ARN})
    assert matched("DELETE", "/2026-04-04/network-connectors/nc-1") == (
        "DeleteNetworkConnector",
        {"Identifier": "nc-1"},
    )
    assert matched("POST", "/2025-09-09/microvms") == ("RunMicrovm", {})
    assert matched("POST", "/2025-09-09/microvms/m-1/suspend") == ("SuspendMicrovm", {"microvmIdentifier": "m-1"})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", ""),
        ("PUT", "/2025-09-09/microvms"),
        ("GET", "/2025-09-09/microvms/"),
        ("GET", "//2025-09-09/microvms"),
        ("GET", "/2025-09-09/microvms/a/b"),
        ("POST", "/2025-09-09/microvms/m-1/Suspend"),
        ("GET", "/2025-09-09/microvm-images/arn:aws:lambda:us-east-1:1:microvm-image/demo"),
    ],
)
def test_other_paths_name_no_operation(method: str, path: str) -> None:
    assert matched(method, path) is None


def refused(name: str, body: object, *, model: shapes.Model = MICROVMS, **path_params: str) -> str:
    _, violations = shapes.parse_request(model.operation(name), path_params, body=json.dumps(body).encode())
    return shapes.violations_message(violations)


def test_missing_members_are_reported_in_the_recorded_words_and_order() -> None:
    assert refused("CreateMicrovmImage", {"name": "demo"}) == (
        "3 validation errors detected: "
        "Value null at 'baseImageArn' failed to satisfy constraint: Member must not be null; "
        "Value null at 'codeArtifact' failed to satisfy constraint: Member must not be null; "
        "Value null at 'buildRoleArn' failed to satisfy constraint: Member must not be null"
    )
    assert refused("RunMicrovm", {}) == (
        "1 validation error detected: "
        "Value null at 'imageIdentifier' failed to satisfy constraint: Member must not be null"
    )


def test_a_bad_image_name_is_reported_in_the_recorded_words() -> None:
    body = {
        "name": "bad name!",
        "baseImageArn": "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1",
        "buildRoleArn": "arn:aws:iam::111122223333:role/build",
        "codeArtifact": {"uri": "s3://bucket/key"},
    }
    assert refused("CreateMicrovmImage", body) == (
        "1 validation error detected: Value 'bad name!' at 'name' failed to satisfy constraint: "
        "Member must satisfy regular expression pattern: [a-zA-Z0-9-_]+"
    )


def test_a_secret_is_not_echoed() -> None:
    assert refused("RunMicrovm", {"imageIdentifier": ARN, "runHookPayload": "x" * 4097}) == (
        "1 validation error detected: Value at 'runHookPayload' failed to satisfy constraint: "
        "Member must have length less than or equal to 4096"
    )


def test_paths_of_connectors_are_in_lower_camel_case() -> None:
    body = {"Name": "a", "Configuration": {"VpcEgressConfiguration": {"SubnetIds": ["subnet-1"] * 17}}}
    said = refused("CreateNetworkConnector", body, model=CORE)
    assert (
        "at 'configuration.vpcEgressConfiguration.subnetIds' failed to satisfy constraint: "
        "Member must have length less than or equal to 16" in said
    )


def test_violations_outside_the_body_count_too() -> None:
    _, violations = shapes.parse_request(
        MICROVMS.operation("ListMicrovmImageBuilds"),
        {"imageIdentifier": ARN, "imageVersion": "1 0"},
        raw_query="maxResults=51&architecture=SPARC",
    )
    assert shapes.violations_message(violations).startswith("3 validation errors detected: ")


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("CreateMicrovmAuthToken", b'{"allowedPorts":[{"allPorts":true}]}', "Expected null"),
        ("RunMicrovm", b'{"imageIdentifier":5}', "NUMBER_VALUE can not be converted to a String"),
        ("RunMicrovm", b'{"maximumDurationInSeconds":"5"}', "STRING_VALUE can not be converted to an Integer"),
        ("RunMicrovm", b'{"imageIdentifier":["a"]}', "Start of list found where not expected."),
        ("RunMicrovm", b'{"ingressNetworkConnectors":{}}', "Start of structure or map found where not expected."),
        ("RunMicrovm", b"{", "The body cannot be read as a JSON object"),
        ("RunMicrovm", b"[]", "The body cannot be read as a JSON object"),
    ],
)
def test_a_body_that_cannot_be_read_is_a_serialization_error(name: str, body: bytes, said: str) -> None:
    with pytest.raises(shapes.RequestMalformed, match=said) as caught:
        shapes.parse_request(MICROVMS.operation(name), {}, body=body)
    assert (caught.value.error_type, caught.value.status) == ("SerializationException", 400)


def test_a_number_in_the_query_must_be_one() -> None:
    with pytest.raises(shapes.RequestMalformed, match="STRING_VALUE can not be converted to an Integer"):
        shapes.parse_request(MICROVMS.operation("ListMicrovms"), {}, raw_query="maxResults=many")


def test_what_a_request_says_beyond_the_model_is_dropped_and_null_is_absent() -> None:
    body = b'{"imageIdentifier":"%s","cpus":4,"executionRoleArn":null}' % ARN.encode()
    params, violations = shapes.parse_request(MICROVMS.operation("RunMicrovm"), {}, body=body)
    assert (params, violations) == ({"imageIdentifier": ARN}, [])


def test_a_plus_sign_in_the_query_is_a_plus_sign_and_an_empty_value_is_one() -> None:
    params, _ = shapes.parse_request(
        MICROVMS.operation("ListMicrovms"), {}, raw_query="nextToken=a+b%2B%3D&&imageVersion="
    )
    assert params == {"nextToken": "a+b+=", "imageVersion": ""}


def test_a_body_sent_with_an_operation_that_has_none_is_ignored() -> None:
    params, violations = shapes.parse_request(
        MICROVMS.operation("SuspendMicrovm"), {"microvmIdentifier": "microvm-1"}, body=b"not json"
    )
    assert (params, violations) == ({"microvmIdentifier": "microvm-1"}, [])


def test_members_in_headers_are_written_and_read() -> None:
    # The newest model has such members (DeleteRuntime), the oldest has not.
    raw = {
        "metadata": {"apiVersion": "2020-01-01", "protocol": "rest-json", "endpointPrefix": "demo"},
        "operations": {"Get": {"http": {"method": "GET", "requestUri": "/"}, "input": {"shape": "Input"}}},
        "shapes": {
            "Days": {"type": "integer", "min": 1},
            "Flag": {"type": "boolean"},
            "Input": {
                "type": "structure",
                "members": {
                    "Days": {"shape": "Days", "location": "header", "locationName": "x-days"},
                    "Flag": {"shape": "Flag", "location": "header", "locationName": "x-flag"},
                },
            },
        },
    }
    operation = shapes.Model("demo", raw).operation("Get")
    request = shapes.build_request(operation, {"Days": 7, "Flag": True})
    assert (request.headers, request.body) == ([("x-days", "7"), ("x-flag", "true")], b"")
    for headers in (request.headers, {"X-Days": "7", "X-Flag": "TRUE"}):
        assert shapes.parse_request(operation, {}, headers=headers) == ({"Days": 7, "Flag": True}, [])


def test_microvm_answers_say_null_for_what_is_absent_and_pass_on_what_is_not_modelled() -> None:
    answer = shapes.build_answer(
        MICROVMS.operation("RunMicrovm"), {"microvmId": "m", "startedAt": 1789463942.026, "terminationReasonCode": None}
    )
    body = json.loads(answer.body)
    assert (answer.status, answer.headers) == (200, [("Content-Type", "application/json")])
    assert (body["stateReason"], body["terminatedAt"], body["terminationReasonCode"]) == (None, None, None)
    assert body["startedAt"] == 1789463942.026


def test_elements_of_lists_say_null_too_but_unions_do_not() -> None:
    answer = shapes.build_answer(
        MICROVMS.operation("ListMicrovmImageVersions"), {"items": [{"imageArn": ARN, "logging": {"disabled": {}}}]}
    )
    body = json.loads(answer.body)
    assert body["nextToken"] is None
    assert body["items"][0]["stateReason"] is None
    assert body["items"][0]["logging"] == {"disabled": {}}


def test_connector_answers_leave_absent_members_out_and_write_dates_as_text() -> None:
    answer = shapes.build_answer(
        CORE.operation("GetNetworkConnector"),
        {"Id": "nc-1", "LastModified": datetime(2026, 8, 1, 12, 30, 5, 250999, tzinfo=timezone.utc)},
    )
    assert json.loads(answer.body) == {"Id": "nc-1", "LastModified": "2026-08-01T12:30:05.250Z"}


@pytest.mark.parametrize(
    ("name", "status"),
    [("CreateMicrovmImage", 201), ("RunMicrovm", 200), ("TagResource", 204), ("UntagResource", 204), ("ListTags", 200)],
)
def test_answers_have_the_status_of_the_model(name: str, status: int) -> None:
    answer = shapes.build_answer(MICROVMS.operation(name), {})
    assert answer.status == status
    assert (answer.body == b"") == (status == 204)


def error_body(answer: shapes.WireAnswer) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(answer.body)
    return body


def test_errors_look_as_recorded() -> None:
    answer = shapes.build_error("ResourceNotFoundException", 404, "MicroVM not found: x", model=MICROVMS)
    assert dict(answer.headers)["x-amzn-errortype"] == "ResourceNotFoundException"
    assert error_body(answer) == {"message": "MicroVM not found: x", "resourceId": None, "resourceType": None}
    answer = shapes.build_error("ResourceNotFoundException", 404, "Network connector not found for: x", model=CORE)
    assert error_body(answer) == {"Message": "Network connector not found for: x"}
    answer = shapes.build_error("InvalidParameterValueException", 400, "no", model=MICROVMS)
    assert error_body(answer) == {"Type": "User", "message": "no"}
    answer = shapes.build_error("SerializationException", 400, "Expected null", model=MICROVMS)
    assert error_body(answer) == {"Message": "Expected null"}
    answer = shapes.build_error("ValidationException", 400, "1 validation error", model=CORE)
    assert error_body(answer) == {"message": "1 validation error"}
    answer = shapes.build_error("AccessDeniedException", 403, None)
    assert error_body(answer) == {"message": None}


def test_members_of_an_error_go_where_the_model_says() -> None:
    answer = shapes.build_error(
        "ThrottlingException", 429, "slow down", members={"retryAfterSeconds": 3, "quotaCode": "L-1"}, model=MICROVMS
    )
    assert dict(answer.headers)["Retry-After"] == "3"
    assert error_body(answer) == {"message": "slow down", "serviceCode": None, "quotaCode": "L-1"}


# -- cost --------------------------------------------------------------------------------------------------------------


def test_the_fast_path_never_imports_botocore() -> None:
    program = (
        "import sys; from vmnest.aws import shapes\n"
        "operation = shapes.load('lambda-microvms').operation('RunMicrovm')\n"
        "shapes.build_request(operation, {'imageIdentifier': 'x'})\n"
        "print([name for name in ('botocore', 'dateutil', 'gzip', 'uuid') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
