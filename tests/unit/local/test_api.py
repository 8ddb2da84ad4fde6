"""The control plane on the wire: signatures, dispatch, the forms of answers."""

import hashlib
import json
from datetime import datetime, timedelta, timezone

import pytest

from tests.support.machines import open_fake_cloud
from vmnest import rendezvous
from vmnest.aws import signing
from vmnest.aws.credentials import Credentials
from vmnest.local import api
from vmnest.wire import http1

KEYS = rendezvous.Keys(access_key="AK", secret_key="SK")
CREDENTIALS = Credentials("AK", signing.Secret("SK"))
IMAGE = "arn:aws:lambda:us-east-1:000000000000:microvm-image:local"
MICROVMS = "/2025-09-09/microvms"


@pytest.fixture
def plane(tmp_path):
    routes = {
        ("POST", "/vmnest/later"): lambda: api.Own({}, then=print),
        ("GET", "/vmnest/status"): lambda: api.Own({"up": True}),
        ("POST", "/vmnest/broken"): lambda: 1 / 0,
    }
    with open_fake_cloud(tmp_path) as one:
        yield api.ControlPlane(one.cloud, keys=KEYS, own_routes=routes)


def request(method, target, body=b"", *, headers=(), **changes):
    """A signed request."""
    options = {
        "credentials": CREDENTIALS,
        "region": "us-east-1",
        "service": "lambda",
        "when": datetime.now(timezone.utc),
        **changes,
    }
    added = signing.sign(
        method=method,
        url=f"http://127.0.0.1:1{target}",
        headers=list(headers),
        body_sha256=hashlib.sha256(body).hexdigest(),
        **options,
    )
    return http1.Request(method, target, [*headers, *added])


def ask(plane, method, target, content=None, **options):
    body = b"" if content is None else json.dumps(content).encode()
    reply = plane.answer(request(method, target, body, **options), body)
    return reply.status, http1.first(reply.fields, "x-amzn-errortype"), json.loads(reply.body or b"null")


class TestSignatures:
    def test_a_signed_request_is_answered(self, plane):
        assert ask(plane, "GET", MICROVMS) == (200, None, {"items": [], "nextToken": None})

    @pytest.mark.parametrize("region", ["eu-central-1", "local"])
    def test_any_region_will_do(self, plane, region):
        assert ask(plane, "GET", MICROVMS, region=region)[0] == 200

    @pytest.mark.parametrize(
        ("changes", "error_type", "message"),
        [
            (
                {"credentials": Credentials("XX", signing.Secret("SK"))},
                "UnrecognizedClientException",
                "The security token",
            ),
            (
                {"credentials": Credentials("AK", signing.Secret("XX"))},
                "InvalidSignatureException",
                "The request signature",
            ),
            (
                {"service": "s3"},
                "InvalidSignatureException",
                "Credential should be scoped to correct service: 'lambda'",
            ),
            (
                {"when": datetime.now(timezone.utc) - timedelta(minutes=20)},
                "InvalidSignatureException",
                "Signature expired",
            ),
        ],
        ids=["key", "secret", "service", "clock"],
    )
    def test_a_signature_that_does_not_hold_is_403(self, plane, changes, error_type, message):
        status, told, body = ask(plane, "GET", MICROVMS, **changes)
        assert (status, told) == (403, error_type)
        assert body["message"].startswith(message)

    def test_no_signature_is_403(self, plane):
        reply = plane.answer(http1.Request("GET", MICROVMS, [("Host", "h")]), b"")
        assert reply.status == 403
        assert http1.first(reply.fields, "x-amzn-errortype") == "MissingAuthenticationTokenException"
        assert json.loads(reply.body) == {"message": "Missing Authentication Token"}

    def test_a_changed_body_or_target_does_not_pass(self, plane):
        signed = request("GET", MICROVMS)
        assert plane.answer(signed, b"x").status == 403
        assert plane.answer(http1.Request("GET", MICROVMS + "?maxResults=1", signed.fields), b"").status == 403

    def test_the_raw_request_line_counts(self, plane):
        signed = request("GET", "/" + MICROVMS)
        assert plane.answer(signed, b"").status == 404  # a leading "//" is not folded away

    def test_nothing_is_told_to_who_does_not_sign(self, plane):
        for target in ("/", "/vmnest/status", "/unknown"):
            assert plane.answer(http1.Request("GET", target, [("Host", "h")]), b"").status == 403


class TestDispatch:
    def test_three_families_are_on_one_listener(self, plane):
        encoded = IMAGE.replace(":", "%3A")
        assert ask(plane, "GET", f"/2017-03-31/tags/{encoded}") == (200, None, {"Tags": {}})
        assert ask(plane, "GET", f"/2025-09-09/microvm-images/{encoded}")[2]["name"] == "local"
        assert ask(plane, "GET", "/2026-04-04/network-connectors") == (200, None, {"NetworkConnectors": []})

    def test_arns_may_have_plain_colons(self, plane):
        assert ask(plane, "GET", f"/2025-09-09/microvm-images/{IMAGE}")[2]["imageArn"] == IMAGE

    def test_tags_change_without_content(self, plane):
        target = "/2017-03-31/tags/" + IMAGE.replace(":", "%3A")
        assert ask(plane, "POST", target, {"Tags": {"a": "1", "b": "2"}}) == (204, None, None)
        assert ask(plane, "DELETE", target + "?tagKeys=a&tagKeys=x") == (204, None, None)
        assert ask(plane, "GET", target) == (200, None, {"Tags": {"b": "2"}})

    def test_tagging_a_microvm_is_a_validation_error(self, plane):
        target = "/2017-03-31/tags/arn%3Aaws%3Alambda%3Aus-east-1%3A000000000000%3Amicrovm%3Ax"
        assert ask(plane, "GET", target)[:2] == (400, "ValidationException")

    @pytest.mark.parametrize(("method", "target"), [("GET", "/"), ("PUT", MICROVMS), ("GET", MICROVMS + "/a/b/c")])
    def test_what_is_no_operation_is_404(self, plane, method, target):
        assert ask(plane, method, target)[:2] == (404, "UnknownOperationException")

    def test_an_operation_that_we_lack_says_so(self, plane):
        status, error_type, body = ask(plane, "GET", "/2026-10-01/runtimes")
        assert (status, error_type) == (400, "ValidationException")
        assert body == {"message": "The local cloud does not have ListRuntimes."}

    def test_its_own_routes_are_answered(self, plane):
        assert ask(plane, "GET", "/vmnest/status") == (200, None, {"up": True})

    def test_what_comes_after_an_answer_goes_with_it(self, plane):
        assert plane.answer(request("POST", "/vmnest/later"), b"").then is print


class TestForms:
    def test_all_violations_come_in_one_message(self, plane):
        policy = {"maxIdleDurationSeconds": 1, "suspendedDurationSeconds": 0, "autoResumeEnabled": True}
        status, error_type, body = ask(plane, "POST", MICROVMS, {"idlePolicy": policy, "runHookPayload": "x" * 4097})
        assert (status, error_type) == (400, "ValidationException")
        assert body["message"].startswith("3 validation errors detected: ")
        assert (
            "Value null at 'imageIdentifier' failed to satisfy constraint: Member must not be null" in body["message"]
        )
        assert "xxxx" not in body["message"]

    def test_bounds_that_the_model_lacks_are_reported_with_the_others(self, plane):
        policy = {"maxIdleDurationSeconds": 28801, "suspendedDurationSeconds": -1, "autoResumeEnabled": True}
        status, _, body = ask(plane, "POST", MICROVMS, {"imageIdentifier": IMAGE, "idlePolicy": policy})
        assert status == 400
        assert body["message"].startswith("2 validation errors detected: ")
        for path, bound in [("suspendedDurationSeconds", "greater than or equal to 0"), ("max", "less than")]:
            assert f"at 'idlePolicy.{path}" in body["message"]
            assert f"Member must have value {bound}" in body["message"]

    def test_a_value_of_the_wrong_type_is_said_in_the_services_form(self, plane):
        content = {"expirationInMinutes": 1, "allowedPorts": [{"allPorts": True}]}
        status, _, body = ask(plane, "POST", f"{MICROVMS}/microvm-x/auth-token", content)
        assert (status, body) == (400, {"Message": "Expected null"})

    @pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"1"], ids=repr)
    def test_a_body_that_is_no_object_is_400(self, plane, body):
        assert plane.answer(request("POST", MICROVMS, body), body).status == 400

    def test_missing_details_are_null(self, plane):
        assert ask(plane, "GET", MICROVMS + "/microvm-x") == (
            404,
            "ResourceNotFoundException",
            {"message": "MicroVM not found: microvm-x", "resourceId": None, "resourceType": None},
        )

    def test_an_answer_says_null_and_seconds(self, plane):
        _, _, body = ask(plane, "POST", MICROVMS, {"imageIdentifier": IMAGE})
        assert body["state"] == "PENDING"
        assert body["stateReason"] is None
        assert isinstance(body["startedAt"], float | int)
        assert body["localDetails"]["egress"] == []

    def test_local_options_must_be_signed(self, plane):
        body = json.dumps({"imageIdentifier": IMAGE}).encode()
        signed = request("POST", MICROVMS, body)
        added = http1.Request("POST", MICROVMS, [*signed.fields, ("vmnest-local-options", '{"cpus": 1}')])
        assert plane.answer(added, body).status == 400
        headers = [("vmnest-local-options", '{"cpus": 1}')]
        _, _, answer = ask(plane, "POST", MICROVMS, {"imageIdentifier": IMAGE}, headers=headers)
        assert answer["localDetails"]["cpus"] == 1.0

    def test_every_answer_has_an_id_and_a_date(self, plane):
        reply = plane.answer(http1.Request("GET", "/", []), b"")
        assert http1.first(reply.fields, "x-amzn-requestid")
        assert str(http1.first(reply.fields, "date")).endswith(" GMT")

    def test_a_failure_of_ours_is_a_500_and_in_the_log(self, plane, caplog):
        assert ask(plane, "POST", "/vmnest/broken")[:2] == (500, "InternalServerException")
        assert "ZeroDivisionError" in caplog.text
