"""What a command left."""

from __future__ import annotations

import pytest

from vmnest import errors
from vmnest.agent.results import ExecResult, parse_exit


def test_text_is_a_view_in_which_bytes_that_are_no_utf8_are_marked() -> None:
    result = ExecResult(exit_code=0, stdout=b"\xff\xfeabc", stderr="é".encode())
    assert result.stdout_text == "��abc"
    assert result.stderr_text == "é"


def test_only_status_0_is_success() -> None:
    assert ExecResult(exit_code=0, stdout=b"", stderr=b"").success
    assert not ExecResult(exit_code=1, stdout=b"", stderr=b"").success


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"exit_code": 0}, (0, None)),
        ({"exit_code": 137, "signal": "SIGKILL"}, (137, "SIGKILL")),
        ({"exit_code": 3, "signal": None}, (3, None)),
        ({"exit_code": -9}, (137, "SIGKILL")),
        ({"exit_code": -15, "signal": "whatever"}, (143, "SIGTERM")),
        ({"exit_code": -64}, (192, "SIGRTMAX")),
        ({"exit_code": -100}, (228, "SIG100")),
        ({"exit_code": 255, "signal": 9}, (255, None)),
    ],
)
def test_signals_are_128_and_their_number_whoever_says_it(
    members: dict[str, object], expected: tuple[int, str | None]
) -> None:
    assert parse_exit(members, timed_out=False) == expected


@pytest.mark.parametrize("status", [None, "0", 1.5, True, -128, 2**40, [0]])
def test_a_status_that_no_process_can_have_is_refused(status: object) -> None:
    with pytest.raises(errors.AgentAnswerError, match="exit code"):
        parse_exit({"exit_code": status}, timed_out=False)


def test_a_timeout_without_a_status_is_124() -> None:
    assert parse_exit({}, timed_out=True) == (124, None)
    assert parse_exit({"exit_code": 143, "signal": "SIGTERM"}, timed_out=True) == (143, "SIGTERM")
