"""The error tree: one class, one meaning, one code."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
import traceback
from typing import Any

import pytest

from vmnest import errors
from vmnest.agent.results import ExecResult

# Other modules have subclasses for their own use, which no caller is meant to know.
CLASSES = [each for each in dict.fromkeys(errors.iter_classes()) if each.__module__ == errors.__name__]
# A machine that reads the code needs no difference here; the classes differ for Python's sake.
SHARED_CODES = {
    "timed_out": {errors.WaitTimeoutError, errors.CommandTimedOutError},
    "not_found": {errors.NotFoundError, errors.ResourceNotFoundError},
}


def by_name(error_class: type[errors.VmnestError]) -> str:
    return error_class.__name__


def test_a_code_belongs_to_one_class_but_for_those_documented() -> None:
    users: dict[str, set[type[errors.VmnestError]]] = {}
    for error_class in CLASSES:
        users.setdefault(error_class.code, set()).add(error_class)
    assert {code: classes for code, classes in users.items() if len(classes) > 1} == SHARED_CODES


@pytest.mark.parametrize("error_class", CLASSES, ids=by_name)
def test_every_class_says_what_it_means(error_class: type[errors.VmnestError]) -> None:
    assert "code" in vars(error_class)
    assert error_class.code.isidentifier()
    assert error_class.code.islower()
    assert inspect.getdoc(error_class) != inspect.getdoc(error_class.__mro__[1])
    assert error_class.__name__.endswith("Error")


def make(error_class: type[errors.VmnestError]) -> errors.VmnestError:
    wanted = inspect.signature(error_class.__init__).parameters
    extras = {
        "result": ExecResult(3, b"out", b""),
        "operation": "GetMicrovm",
        "status": 400,
        "request_id": "id-1",
        "retry_after": 2.0,
    }
    chosen: dict[str, Any] = {name: value for name, value in extras.items() if name in wanted}
    return error_class("it failed", hint="Look.", **chosen)


@pytest.mark.parametrize("error_class", CLASSES, ids=by_name)
def test_every_error_travels_between_processes(error_class: type[errors.VmnestError]) -> None:
    # A pool whose worker raises one that cannot be unpickled waits for ever.
    error = make(error_class)
    error.details["more"] = 1
    error.retryable = True
    for arrived in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(arrived) is error_class
        assert str(arrived) == "it failed"
        assert vars(arrived) == vars(error)
        assert arrived.to_wire() == error.to_wire()


@pytest.mark.parametrize("error_class", CLASSES, ids=by_name)
def test_every_exit_status_is_one_of_the_manuals(error_class: type[errors.VmnestError]) -> None:
    statuses = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert error_class.exit_status in statuses


def test_every_error_class_of_the_module_is_in_the_tree() -> None:
    members = {member for _, member in inspect.getmembers(errors, inspect.isclass) if issubclass(member, Exception)}
    assert members == set(CLASSES)


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


def test_details_are_in_the_wire_form_when_there_are_any() -> None:
    error = errors.ThrottledError("RunMicrovm: too many calls", operation="RunMicrovm", status=429, retry_after=2.0)
    assert error.to_wire()["details"] == {"operation": "RunMicrovm", "status": 429}


def test_an_error_about_a_command_carries_its_result() -> None:
    result = ExecResult(exit_code=3, stdout=b"out", stderr=b"err")
    assert errors.CommandFailedError("false: exit status 3", result=result).result is result


@pytest.mark.parametrize(
    "text",
    [
        "X-aws-proxy-auth: hunter2",
        "{'X-Amz-Security-Token': 'hunter2'}",
        'authorization: AWS4-HMAC-SHA256 Credential=AKID/20260101, Signature=hunter2"',
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
