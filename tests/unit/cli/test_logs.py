"""``logs``: what a person reads, and what a program does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support.log_plane import DENIED, GROUP, MICROVM, STARTED_MS, STREAM, LogPlane
from tests.support.paths import ROOT
from vmnest import registry
from vmnest.cli.main import main
from vmnest.ops import logs


def printed(capfd: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(["logs", *words]) == status
    return capfd.readouterr().out


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "UTC-1")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_the_lines_are_printed_as_they_were_written(
    log_plane: LogPlane, logged: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    log_plane.put("one\n", "two", "a\ttab", "", "three\nfour\r\n")
    assert main(["logs", "web"]) == 0
    assert capfd.readouterr() == ("one\ntwo\na\ttab\n\nthree\nfour\n", "")


def test_nothing_in_it_steers_a_terminal(
    log_plane: LogPlane, logged: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    log_plane.put("\x1b]0;owned\x07", "\x9b31m", "\u202eright to left", "over\rwritten", "\x00")
    log_plane.put("x", stream=f"{STREAM}/\x1b[2J")
    out = printed(capfd, "web")
    assert out.splitlines() == [
        "\\x1b]0;owned\\x07", "\\x9b31m", "\\u202eright to left", "over", "written", "\\x00", "[\\x1b[2J] x"
    ]  # fmt: skip
    assert printed(capfd, "web", "--timestamps").isprintable() is False  # for the ends of its lines alone
    assert all(line.isprintable() for line in printed(capfd, "web", "--timestamps").split("\n"))


def test_lines_of_a_stream_beside_the_main_one_say_so(
    log_plane: LogPlane, logged: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    log_plane.put("one")
    log_plane.put("allowed example.org\nand more", at=STARTED_MS + 1, stream=f"{STREAM}/egress")
    assert printed(capfd, "web") == "one\n[egress] allowed example.org\n[egress] and more\n"


@pytest.mark.parametrize("stream", [MICROVM, f"odd/{MICROVM}", STREAM])
def test_a_main_stream_has_no_label(
    log_plane: LogPlane, logged: registry.Registry, capfd: pytest.CaptureFixture[str], stream: str
) -> None:
    log_plane.put("one", stream=stream)
    assert printed(capfd, "web") == "one\n"


def test_times_are_those_of_this_place_and_have_their_zone_in_json(
    log_plane: LogPlane, logged: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    log_plane.put("one")
    assert printed(capfd, "web", "-t") == "2026-09-15 10:19:02  one\n"
    (event,) = json.loads(printed(capfd, "web", "--json"))["events"]
    assert event["time"] == "2026-09-15T09:19:02.026+00:00"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("2026-09-15T09:19:02.001Z agentd: hook run: 200", "agentd: hook run: 200"),
        ("2026-09-15T09:19:03.900Z agentd: hook run: 200", "agentd: hook run: 200"),
        ("2026-09-15T09:18:59.001Z agentd: late", "2026-09-15T09:18:59.001Z agentd: late"),
        ("2026-09-15T09:19:02.001Z mine", "2026-09-15T09:19:02.001Z mine"),
        ("2026-99-15T09:19:02.001Z agentd: no date", "2026-99-15T09:19:02.001Z agentd: no date"),
    ],
)
def test_the_agents_own_time_is_not_shown_beside_the_same_one(
    log_plane: LogPlane, logged: registry.Registry, capfd: pytest.CaptureFixture[str], message: str, shown: str
) -> None:
    log_plane.put(message)
    assert printed(capfd, "web", "-t") == f"2026-09-15 10:19:02  {shown}\n"
    assert printed(capfd, "web") == f"{message}\n"


def test_options_choose(log_plane: LogPlane, logged: registry.Registry, capfd: pytest.CaptureFixture[str]) -> None:
    now_ms = int(time.time() * 1000)
    log_plane.put("old 1", "old 2", step=1)
    log_plane.put("new 1", "new 2", at=now_ms - 60_000)
    assert printed(capfd, "web", "--tail", "1") == "new 2\n"
    assert printed(capfd, "web", "-n", "3", "--grep", "1$") == "old 1\nnew 1\n"
    assert printed(capfd, "web", "--since", "10m") == "new 1\nnew 2\n"
    log_plane.put("elsewhere", group="/mine")
    assert printed(capfd, "web", "--log-group", "/mine") == "elsewhere\n"


def test_all_answers_are_printed(
    log_plane: LogPlane,
    logged: registry.Registry,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "MOST_EVENTS", 4)
    log_plane.put(*map(str, range(10)), step=1)
    assert printed(capfd, "web") == "".join(f"{number}\n" for number in range(10))
    data = json.loads(printed(capfd, "web", "--json"))
    assert (len(data["events"]), data["more"]) == (4, True)


def test_that_there_is_nothing_is_a_remark(
    log_plane: LogPlane, logged: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["logs", "web"]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"vmnest: nothing is logged of web: there is no log group {GROUP}; a MicroVM without")
    log_plane.put("a")
    assert main(["logs", "web", "--grep", "b"]) == 0
    assert capfd.readouterr() == ("", f"vmnest: nothing that was asked for is logged of web in {GROUP}\n")
    assert main(["logs", "web", "--tail", "0"]) == 0
    assert capfd.readouterr() == ("", f"vmnest: nothing that was asked for is logged of web in {GROUP}\n")
    assert main(["logs", "web", "--grep", "b", "-q"]) == 0
    assert capfd.readouterr() == ("", "")
    assert main(["logs", "web", "--grep", "b", "--json"]) == 0
    out, err = capfd.readouterr()
    assert (json.loads(out)["events"], err) == ([], "")


def test_what_the_service_refuses_is_told_with_what_to_allow(
    log_plane: LogPlane, logged: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    log_plane.failures = [DENIED, DENIED]
    assert main(["logs", "web", "--json"]) == 1
    out, err = capfd.readouterr()
    error = json.loads(err)["error"]
    assert (out, error["code"]) == ("", "access_denied")
    assert "logs:DescribeLogStreams" in error["message"]
    assert "prefix logs:" in error["hint"]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["nobody"], 3),
        (["microvm-00000000"], 3),
        (["web", "--log-group", "/nope"], 3),
        (["web", "--log-group", "no group"], 2),
        ([], 2),
        (["web", "web"], 2),
        (["web", "--tail", "-1"], 2),
        (["web", "--tail", "1e3"], 2),
        (["web", "--tail", "99999999999"], 2),
        (["web", "--since", "yesterday"], 2),
        (["web", "--grep", "["], 2),
        (["web", "--follow", "--build"], 2),
        (["web", "--build", "--log-group", "/mine"], 2),
    ],
)
def test_what_cannot_be_meant_fails(
    logged: registry.Registry, capfd: pytest.CaptureFixture[str], words: list[str], status: int
) -> None:
    assert main(["logs", *words]) == status
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("vmnest: ")


# -- following ---------------------------------------------------------------------------------------------------------


def test_a_log_is_followed_until_the_end(
    log_plane: LogPlane, logged: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    log_plane.put("one", "two")
    log_plane.end()
    assert main(["logs", "--follow", "web"]) == 0
    assert capfd.readouterr() == ("one\ntwo\n", "vmnest: web has ended\n")


def test_a_timeout_ends_the_following(
    log_plane: LogPlane, logged: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    log_plane.put("one")
    assert main(["logs", "--follow", "web", "--timeout", "0.1"]) == 0
    assert capfd.readouterr() == ("one\n", "vmnest: the log of web goes on: 0.1 s are over\n")


def test_followed_as_json_each_event_is_a_line(
    log_plane: LogPlane, logged: registry.Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    log_plane.put("one", "two\x1b", step=1)
    log_plane.end()
    assert main(["logs", "-f", "web", "--json", "--tail", "1"]) == 0
    out, err = capfd.readouterr()
    assert (out.count("\n"), out.isascii(), err) == (1, True, "")
    assert json.loads(out) == {"time": "2026-09-15T09:19:02.027+00:00", "stream": STREAM, "message": "two\x1b"}


def test_ctrl_c_ends_the_following(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put("one")
    program = [sys.executable, "-m", "vmnest", "logs", "-f", "web"]
    with subprocess.Popen(
        program, cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "one\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == "vmnest: interrupted\n"


def test_a_reader_that_has_gone_ends_the_following(log_plane: LogPlane, logged: registry.Registry) -> None:
    log_plane.put(*("line" for _ in range(10)))
    log_plane.on_call = lambda name, number: log_plane.put("more") if name == "FilterLogEvents" else None
    line = f"{sys.executable} -m vmnest logs -f web | head -1"
    done = subprocess.run(
        ["sh", "-c", line], cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("line\n", "")
