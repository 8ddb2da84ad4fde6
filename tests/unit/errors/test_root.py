"""The root of the errors: hints, the form on the wire, and what no text of theirs tells."""

from __future__ import annotations

import sys
import traceback

import pytest

from vmnest import errors


def test_hints_add_up() -> None:
    error = errors.ConnectError("could not connect to a", hint="Is a up?")
    error.add_hint("Else try b.")
    assert error.hint == "Is a up? Else try b."


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs Python 3.11: notes of exceptions")
def test_a_traceback_shows_the_hint() -> None:
    shown = "".join(traceback.format_exception(errors.ConnectError("could not connect to a", hint="Is a up?")))
    assert shown.endswith("could not connect to a\nIs a up?\n")


def test_the_wire_form_has_code_message_hint_and_retryable() -> None:
    error = errors.ConnectError("could not connect to a", hint="Is a up?")
    assert error.to_wire() == {
        "code": "connect_failed",
        "message": "could not connect to a",
        "hint": "Is a up?",
        "retryable": True,
    }


@pytest.mark.parametrize(
    "text",
    [
        "X-aws-proxy-auth: hunter2",
        "{'X-Amz-Security-Token': 'hunter2'}",
        'authorization: AWS4-HMAC-SHA256 Credential=AKID/20260101, Signature=hunter2"',
        "authorization: Bearer hunter2",
        "{'Proxy-Authorization': 'Basic hunter2'}",
        "{b'authorization': b'Bearer hunter2'}",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN=hunter2",
        "GET https://b.s3.amazonaws.com/k?X-Amz-Date=1&X-Amz-Signature=hunter2&a=b",
        "aws_secret_access_key = hunter2",
        "lambda-microvms.authentication.hunter2, lambda-microvms",
        "bad token eyJhbGciOiJkaXIi.hunter2.hunter2",
        'Failed to connect to proxy URL: "http://socks5://me:hunter2@proxy"',
        "Failed to parse: http://me:hunter2@hunter2@proxy:99999",
    ],
)
def test_secrets_do_not_travel_in_messages(text: str) -> None:
    assert "hunter2" not in str(errors.VmnestError(text))
    assert "[redacted]" in errors.redact(text)


def test_other_text_is_left_alone() -> None:
    for text in ("GetMicrovm of microvm-1 in us-east-1: 404 (request 12)", "http://host:8080/a@b and https://[::1]:9/"):
        assert errors.redact(text) == text


def test_what_machines_read_is_redacted_too() -> None:
    token = "eyJhbGciOiJkaXIi.c2VjcmV0.c2VjcmV0c2VjcmV0"
    error = errors.VmnestError("x", hint=f"token {token}", details={"code": [token, {"a": token}], "status": 403})
    error.details["later"] = f"authorization: {token}"
    wire = error.to_wire()
    assert token not in repr(wire)
    assert wire["details"] == {
        "code": ["[redacted]", {"a": "[redacted]"}],
        "status": 403,
        "later": "authorization: [redacted]",
    }


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("a\r\n b\t c", "a b c"),
        ("\x1b[31mred\x07\u202e", "[31mred"),
        ("0123456789", "0123456789"),
        ("0123456789x", "012345678…"),
        (" " * 50 + "x", ""),
        ("", ""),
    ],
)
def test_a_quoted_text_is_one_short_line_that_steers_no_terminal(text: str, quoted: str) -> None:
    assert errors.quote(text, limit=10) == quoted


@pytest.mark.parametrize(
    ("first", "joined"),
    [("Check it.", "Check it. Then repeat."), ("End it with: vmnest rm x", "End it with: vmnest rm x\nThen repeat.")],
    ids=["a sentence", "a command"],
)
def test_a_further_hint_does_not_run_into_a_command(first: str, joined: str) -> None:
    error = errors.VmnestError("no", hint=first)
    error.add_hint("Then repeat.")
    assert error.hint == joined
