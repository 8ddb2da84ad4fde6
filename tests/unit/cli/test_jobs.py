"""``jobs``, ``attach``, ``kill``: what is made of options and answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cloud import LocalCloud, open_cloud, work_in
from vmnest.cli import attending, jobs, verbs, words
from vmnest.cli.main import main
from vmnest.wire import names


def parse(*line: str) -> Any:
    verb = verbs.find((line[0],))
    assert verb is not None
    parser = jobs.build_parser(verb)
    words.add_globals(parser)
    return parser.parse(words.split(parser, line[1:]))


def test_options_of_each() -> None:
    assert parse("jobs", "-a", "box").all is True
    attach = parse("attach", "box", "job-1", "--from-offset", "7", "-i", "--no-resume")
    assert (attach.names, attach.from_offset, attach.interactive, attach.no_resume) == (["box", "job-1"], 7, True, True)
    assert parse("kill", "box", "job-1").signal is None
    assert parse("kill", "box", "job-1", "-s", "int").signal == "SIGINT"
    assert parse("kill", "-s9", "box", "job-1").signal == 9


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["kill", "box"], "JOB"),
        (["kill", "box", "job-1", "-s", "NOTHING"], "must be a signal"),
        (["attach", "box"], "JOB"),
        (["attach", "box", "job-1", "--from-offset", "-1"], "must be a number of bytes"),
        (["attach", "box", "job-1", "--output-limit", "1k"], "--output-limit is for --json alone"),
        (["attach", "box", "job-1", "--tty"], "no option --tty"),
        (["jobs"], "name"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_refused(line: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    assert message in capfd.readouterr().err


def test_who_wants_to_end_a_sandbox_is_told_how(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["kill", "box"]) == 2
    assert "vmnest rm NAME ends the sandbox itself" in capfd.readouterr().err


JOB = {
    "job": "job-1", "state": "running", "exit_code": None, "signal": None, "timed_out": False,
    "command": ["sh", "-c", "echo 'a b'"], "started_at": None, "offset": 12,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "running"),
        ({"exit_code": 0}, "status 0"),
        ({"exit_code": 137, "signal": "SIGKILL"}, "SIGKILL"),
        ({"exit_code": 143, "signal": "SIGTERM", "timed_out": True}, "timed out"),
    ],
    ids=str,
)
def test_a_row_tells_how_it_is(changes: dict[str, object], state: str) -> None:
    assert jobs._row({**JOB, **changes}) == ["job-1", state, None, 12, "sh -c 'echo '\"'\"'a b'\"'\"''"]


def test_a_long_command_is_cut_and_its_beginning_stays() -> None:
    shown = jobs._command({**JOB, "command": ["x" * 100]})
    assert shown == "x" * 59 + "…"


def test_a_shell_is_called_one() -> None:
    assert jobs._command({**JOB, "command": ["sh", "-c", names.LOGIN_SHELL]}) == "(login shell)"


@pytest.fixture(scope="module")
def cloud_with_web() -> Iterator[LocalCloud]:
    with open_cloud() as cloud, pytest.MonkeyPatch.context() as patch:
        work_in(cloud, patch)
        assert main(["-q", "create", "web"]) == 0
        yield cloud
        assert main(["-q", "rm", "web"]) == 0


@pytest.fixture
def web(cloud_with_web: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a sandbox named web."""
    work_in(cloud_with_web, monkeypatch)


@pytest.mark.usefixtures("web")
def test_a_sandbox_without_jobs_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "web"]) == 0
    assert capfd.readouterr() == ("", "vmnest: there are no jobs in web\n")
    assert main(["jobs", "web", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"jobs": []}


@pytest.mark.usefixtures("web")
def test_a_job_is_listed_ended_and_seen_again(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "web", "--background", "--", "sh", "-c", "echo \033[31ma; exec sleep 60"]) == 0
    captured = capfd.readouterr()
    job = captured.out.strip()
    assert captured.err.splitlines() == [
        f"vmnest: its output is shown by: vmnest attach web {job}",
        "vmnest: if nobody attaches, an idle sandbox is suspended, and the job is frozen with it",
    ]
    assert main(["kill", "web", job]) == 0
    assert capfd.readouterr() == (f"{job}\n", "")
    assert main(["attach", "web", job, "--from-offset", "5"]) == 143
    assert capfd.readouterr().out == "a\n"
    assert main(["jobs", "web"]) == 0
    shown = capfd.readouterr().out
    assert "SIGTERM" in shown
    assert "\033" not in shown


@pytest.mark.usefixtures("web")
def test_a_job_that_is_not_there_is_not_found(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["kill", "web", "nobody"]) == 3
    assert main(["attach", "web", "nobody"]) == 125
    assert "there is no job nobody in web" in capfd.readouterr().err


def test_who_attaches_leaves_what_runs() -> None:
    front = jobs.commands.build_front(parse("attach", "box", "job-1", "-i"), name="box", leaves=True)
    assert (type(front), front._leaves, front._reads) == (attending.Front, True, True)
