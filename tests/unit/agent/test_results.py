"""What a command left."""

from __future__ import annotations

import pytest

from vmnest import errors
from vmnest.agent.results import ExecResult, Missing, parse_exit


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


def test_text_has_a_line_in_the_place_of_what_is_missing() -> None:
    result = ExecResult(0, b"begin\nend\n", b"abcd", stdout_missing=Missing(6, 1000), stderr_missing=Missing(2, 9))
    assert result.stdout_text == "begin\n[... 1000 bytes are missing here ...]\nend\n"
    assert result.stderr_text == "ab\n[... 9 bytes are missing here ...]\ncd"
    assert ExecResult(0, b"end", b"", stdout_missing=Missing(0, 5)).stdout_text.startswith("[... 5 bytes")


@pytest.mark.parametrize("text", ["aé", "a€", "a😀", "é", "€", "😀", "a"])
def test_a_character_that_a_gap_cuts_is_left_out_and_no_damage(text: str) -> None:
    data = text.encode()
    for cut in range(len(data) + 1):
        shown = ExecResult(0, data[:cut] + data, b"", stdout_missing=Missing(cut, 3)).stdout_text
        assert "\ufffd" not in shown
        assert shown.endswith(text)
        shown = ExecResult(0, data + data[cut:], b"", stdout_missing=Missing(len(data), 3)).stdout_text
        assert "\ufffd" not in shown
        assert shown.startswith(text)


def test_bytes_that_are_no_text_beside_a_gap_are_marked_as_ever() -> None:
    shown = ExecResult(0, b"a\xffb\xff", b"", stdout_missing=Missing(2, 3)).stdout_text
    assert shown.count("\ufffd") >= 1
