"""Every refusal of the data plane and of the agents to its own error."""

from __future__ import annotations

import json

import pytest

from vmnest import errors
from vmnest.agent import refusals
from vmnest.transport import Headers
from vmnest.wire import names


def from_agent(status: int, answer: object, *, asked: str = refusals.EXEC) -> errors.VmnestError:
    headers = Headers([("Content-Type", "application/json; charset=utf-8")])
    return refusals.build(status, headers, json.dumps(answer).encode(), asked=asked, port=8080)


def from_endpoint(status: int, text: str = "", *, proxy_error: str | None = None) -> errors.VmnestError:
    pairs = [("content-type", "text/plain")]
    if proxy_error is not None:
        pairs.append((names.PROXY_ERROR_HEADER, proxy_error))
    return refusals.build(status, Headers(pairs), text.encode(), asked=refusals.EXEC, port=8080)


@pytest.mark.parametrize(
    ("status", "text", "proxy_error", "expected"),
    [
        (403, "Request missing authentication", "UNAUTHORIZED", errors.TokenRefusedError),
        (403, "Token authentication failed", None, errors.TokenRefusedError),
        (403, "", None, errors.TokenRefusedError),
        (403, "<html>Forbidden</html>", None, errors.TokenRefusedError),
        (403, "Access to port denied", None, errors.PortRefusedError),
        (403, "Access to port denied\n", None, errors.PortRefusedError),
        (429, "", None, errors.EndpointThrottledError),
        (502, "", "APP_CONNECT_FAILED", errors.EndpointUnavailableError),
        (502, "", "MICROVM_CONNECT_FAILED", errors.EndpointUnavailableError),
        (502, "<html>Bad Gateway</html>", None, errors.EndpointUnavailableError),
        (503, "", None, errors.EndpointUnavailableError),
        (504, "<html>", None, errors.AgentUnreachableError),
        (500, "Internal Server Error", None, errors.EndpointError),
        (400, "bad port", None, errors.EndpointError),
        (404, "<html>", None, errors.EndpointError),
        (302, "", None, errors.EndpointError),
    ],
)
def test_each_refusal_of_the_data_plane_has_its_class(
    status: int, text: str, proxy_error: str | None, expected: type[errors.VmnestError]
) -> None:
    error = from_endpoint(status, text, proxy_error=proxy_error)
    assert type(error) is expected
    assert error.details["status"] == status
    assert error.details.get("proxy_error") == proxy_error
    assert "<" not in error.message
    assert status != 502 or not proxy_error or f"in the sandbox ({proxy_error})" in error.message


def test_an_answer_marked_by_the_data_plane_is_never_parsed_even_if_it_is_json() -> None:
    headers = Headers([("content-type", "application/json"), ("X-AWS-Proxy-Error", "APP_CONNECT_FAILED")])
    error = refusals.build(502, headers, b'{"code":"command_not_found"}', asked=refusals.EXEC, port=8080)
    assert type(error) is errors.EndpointUnavailableError


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (403, errors.TokenRefusedError),
        (429, errors.EndpointThrottledError),
        (502, errors.EndpointUnavailableError),
    ],
)
def test_a_status_that_no_agent_answers_is_the_data_planes_whatever_it_is_written_in(
    status: int, expected: type[errors.VmnestError]
) -> None:
    # What the service says of an expired token, for one, nobody has recorded.
    error = from_agent(status, {"message": "The token has expired"})
    assert type(error) is expected
    assert status == 502 or "The token has expired" in error.message
    assert type(from_agent(status, {"detail": "no", "code": "internal"})) is errors.AgentError


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("cwd_not_found", errors.CwdNotFoundError),
        ("command_not_found", errors.CommandNotFoundError),
        ("not_executable", errors.NotExecutableError),
        ("argument_too_long", errors.ArgumentTooLongError),
        ("bad_argument", errors.BadArgumentError),
        ("file_not_found", errors.RemoteFileNotFoundError),
        ("not_a_file", errors.NotAFileError),
        ("file_error", errors.RemoteFileError),
        ("too_large", errors.RequestTooLargeError),
        ("overloaded", errors.EndpointThrottledError),
        ("suspending", errors.EndpointUnavailableError),
        ("bad_request", errors.AgentError),
        ("internal", errors.AgentError),
        ("something_new", errors.AgentError),
    ],
)
def test_each_code_of_our_agent_has_its_class(code: str, expected: type[errors.VmnestError]) -> None:
    error = from_agent(400, {"detail": "what went wrong", "code": code})
    assert type(error) is expected
    assert error.message == "what went wrong"
    assert error.details == {"status": 400, "agent_code": code}


def test_what_is_too_long_for_arguments_has_another_way_for_everybody() -> None:
    hint = from_agent(400, {"detail": "argument too long", "code": "argument_too_long"}).hint
    assert hint is not None
    assert all(way in hint for way in ("vmnest cp", "files.write", "sandbox_fs_write"))


def test_a_command_that_was_started_before_is_one_of_unknown_outcome() -> None:
    error = from_agent(409, {"detail": "a command of this id was started before", "code": "already_started"})
    assert type(error) is errors.AgentUnreachableError
    assert error.details == {"status": 409, "agent_code": "already_started", "outcome": "unknown"}


@pytest.mark.parametrize(
    ("status", "proxy_error", "outcome"),
    [
        (502, None, "unknown"),
        (502, "NEW", "unknown"),
        (503, None, "unknown"),
        (504, None, "unknown"),
        (500, None, "unknown"),
        (502, "APP_CONNECT_FAILED", None),
        (502, "MICROVM_CONNECT_FAILED", None),
        (403, None, None),
        (429, None, None),
        (400, None, None),
        (302, None, None),
        (204, None, "unknown"),
    ],
)
def test_whether_a_refused_command_may_have_run_is_told(
    status: int, proxy_error: str | None, outcome: str | None
) -> None:
    error = from_endpoint(status, proxy_error=proxy_error)
    assert error.details.get("outcome") == outcome
    # A command that may have run is not one to try again without a thought.
    assert (error.hint or "").endswith("The command may have run.") is (outcome == "unknown")
    assert not (error.retryable and outcome == "unknown")


@pytest.mark.parametrize("status", [302, 400, 403, 404, 407, 429, 500, 502, 503, 504])
def test_a_refusal_says_what_to_do(status: int) -> None:
    assert from_endpoint(status).hint


def test_another_server_on_the_agents_port_is_thought_of() -> None:
    assert "on port 8080" in (from_endpoint(501).hint or "")


def test_a_process_without_a_terminal_is_started_anew_with_the_size_of_one() -> None:
    assert "pty=(80, 24)" in (from_agent(409, {"detail": "it has none", "code": "no_pty"}).hint or "")


def test_an_agent_that_says_nothing_may_be_none() -> None:
    assert "listens on the agent's port" in (from_agent(500, {}).hint or "")
    assert from_agent(500, {"detail": "the disk is full"}).hint is None


@pytest.mark.parametrize(
    ("status", "answer", "asked", "expected"),
    [
        (400, {"detail": "command not found: x"}, refusals.EXEC, errors.CommandNotFoundError),
        (404, {"detail": "no such file: /x"}, refusals.FILE, errors.RemoteFileNotFoundError),
        (404, {"detail": "Not Found"}, refusals.FILE, errors.UnsupportedError),
        (404, {"detail": "Not Found"}, refusals.EXEC, errors.UnsupportedError),
        (405, {"detail": "Method Not Allowed"}, refusals.EXEC, errors.UnsupportedError),
        (400, {"detail": "[Errno 21] Is a directory: '/'"}, refusals.FILE, errors.RemoteFileError),
        (413, {"detail": "too much"}, refusals.FILE, errors.RequestTooLargeError),
        (500, {"detail": "oops"}, refusals.EXEC, errors.AgentError),
        (500, None, refusals.EXEC, errors.AgentError),
        (500, ["x"], refusals.EXEC, errors.AgentError),
        (500, {"detail": {"x": 1}, "code": 7}, refusals.EXEC, errors.AgentError),
    ],
)
def test_without_a_code_the_status_means_what_it_means_upstream(
    status: int, answer: object, asked: str, expected: type[errors.VmnestError]
) -> None:
    assert type(from_agent(status, answer, asked=asked)) is expected


def test_the_list_of_violations_that_frameworks_answer_is_readable() -> None:
    error = from_agent(
        422,
        {
            "detail": [
                {"type": "missing", "loc": ["body", "command"], "msg": "Field required", "input": {}},
                {"loc": ["body", "args", 0], "msg": "Input should be a valid string"},
                {"msg": "without a place"},
                "not an object",
            ]
        },
    )
    assert type(error) is errors.BadArgumentError
    assert error.message == (
        "command: Field required; args.0: Input should be a valid string; without a place; not an object"
    )


def test_what_the_guest_says_is_made_printable_and_cut() -> None:
    error = from_agent(500, {"detail": "\x1b]0;owned\x07 a\r\nb" + "x" * 5000})
    assert "\x1b" not in error.message
    assert error.message.startswith("]0;owned a bxx")
    assert len(error.message) <= 500
    assert "\x1b" not in from_endpoint(500, "\x1b[2J", proxy_error="\x1b[1m").message


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.ConnectError("x"), True),
        (errors.ConnectionLostError("x"), False),
        (errors.ReadTimeoutError("x"), False),
        (errors.TokenRefusedError("x"), True),
        (errors.EndpointThrottledError("x"), True),
        (from_endpoint(502, proxy_error="APP_CONNECT_FAILED"), True),
        (from_endpoint(502, proxy_error="MICROVM_CONNECT_FAILED"), True),
        (from_endpoint(502, proxy_error="SOMETHING_ELSE"), False),
        (from_endpoint(502), False),
        (from_endpoint(503), False),
        (from_agent(503, {"code": "suspending"}), True),
        (from_agent(503, {"code": "overloaded"}), True),
        (from_agent(409, {"code": "already_started"}), False),
        (errors.AgentError("x"), False),
    ],
)
def test_only_what_surely_did_not_reach_the_agent_counts_as_not_executed(
    error: errors.VmnestError, expected: bool
) -> None:
    assert refusals.is_unexecuted(error) is expected


def test_a_doubt_is_told_once_and_takes_the_advice_to_try_again_away() -> None:
    error = errors.EndpointUnavailableError("x", hint="Look.")
    refusals.cast_doubt(error)
    refusals.cast_doubt(error)
    assert (error.hint, error.retryable) == ("Look. The command may have run.", False)
