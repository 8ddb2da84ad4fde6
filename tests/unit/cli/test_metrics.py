"""``metrics``: what is made of options and answers, and how it reads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.figures import BROKEN, FIGURES, NO_STATS, TOLD, OpenMeasured, cloudwatch_answer, refused
from tests.support.planes import NAME
from tests.support.screens import on_terminal, read_until
from tests.support.scripted import Answer, json_answer
from vmnest import registry
from vmnest.cli import metrics, render, terminal, verbs, words
from vmnest.cli.main import main

MIB = 2**20
Read = pytest.CaptureFixture[str]


def parse(*line: str) -> Any:
    verb = verbs.find(("metrics",))
    assert verb is not None
    parser = metrics.build_parser(verb)
    words.add_globals(parser)
    return parser.parse(words.split(parser, line))


def test_options() -> None:
    once = parse("box")
    assert (once.names, once.all, once.watch, once.interval, once.timeout) == (["box"], False, False, None, None)
    watch = parse("-aw", "--interval", "0.5")
    assert (watch.names, watch.all, watch.watch, watch.interval) == ([], True, True, 0.5)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([], "the name is missing"),
        (["box", "--all"], "a name or --all, not both"),
        (["box", "other"], "one name too many"),
        (["box", "--interval", "2"], "--interval is for --watch alone"),
        (["box", "--watch", "--timeout", "2"], "--timeout is not for --watch"),
        (["box", "--watch", "--interval", "0"], "must be a number of seconds above 0"),
        ([NAME, "--watch", "--interval", "0.05"], "the interval must be 0.1 s or more"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_refused(measured: OpenMeasured, line: list[str], message: str, capfd: Read) -> None:
    measured(TOLD)
    assert main(["metrics", *line]) == 2
    assert message in capfd.readouterr().err


def test_a_name_that_is_not_there_is_not_found(measured: OpenMeasured, capfd: Read) -> None:
    measured(TOLD)
    assert main(["metrics", "nobody", "--json"]) == 3
    out, err = capfd.readouterr()
    assert (out, json.loads(err)["error"]["code"]) == ("", "sandbox_not_found")


# -- once --------------------------------------------------------------------------------------------------------------


def test_a_sandbox_is_a_table_with_a_row_for_each_figure_and_its_source(measured: OpenMeasured, capfd: Read) -> None:
    here = str(render.render_moment("2026-11-30T12:01:00+00:00"))[-8:]
    measured(TOLD, cloudwatch=cloudwatch_answer(3, 12.25))
    assert main(["metrics", NAME]) == 0
    out, err = capfd.readouterr()
    assert out == (
        "METRIC             VALUE               SHARE  SOURCE\n"
        "cpu                2 CPUs               12 %  agent\n"
        "load               0.50, 0.25, 0.00        -  agent\n"
        "memory             128 MiB of 512 MiB   25 %  agent\n"
        "disk               1000 B of 3.9 KiB    25 %  agent\n"
        "received           7 B                     -  agent\n"
        "sent               0 B                     -  agent\n"
        "processes          5                       -  agent\n"
        "uptime             1m                      -  agent\n"
        f"CPUUtilization     -                    12 %  cloudwatch {here}\n"
        f"MemoryUtilization  -                    12 %  cloudwatch {here}\n"
    )
    assert err == ""


def test_json_is_the_same_data_in_one_object(measured: OpenMeasured, capfd: Read) -> None:
    measured(TOLD)
    assert main(["metrics", NAME, "--json"]) == 0
    out, err = capfd.readouterr()
    data = json.loads(out)
    assert (data["name"], data["state"], data["agent"]["figures"]["processes"]) == (NAME, "RUNNING", 5)
    assert err == ""


def test_what_is_not_told_is_a_dash_and_no_zero(measured: OpenMeasured, capfd: Read) -> None:
    measured(json_answer(200, {"memory": {"used": 5 * MIB}, "uptime": -1, "processes": 0}))
    assert main(["metrics", NAME]) == 0
    rows = {line.split()[0]: line.split()[1:-1] for line in capfd.readouterr().out.splitlines()[1:]}
    assert rows == {
        **{name: ["-", "-"] for name in ("cpu", "disk", "uptime")},  # and no rows of load, received and sent
        "memory": ["5.0", "MiB", "of", "?", "-"],
        "processes": ["0", "-"],
    }


@pytest.mark.parametrize(
    ("state", "agent", "said"),
    [
        ("SUSPENDED", TOLD, "vmnest: sandbox web is suspended\n"),
        ("TERMINATED", TOLD, "TERMINATED"),
        ("RUNNING", NO_STATS, "web: the agent in this sandbox does not tell what it uses"),
    ],
    ids=["suspended", "ended", "another agent"],
)
def test_where_nobody_tells_a_figure_there_is_a_reason_and_no_table(
    measured: OpenMeasured, capfd: Read, state: str, agent: Answer, said: str
) -> None:
    on = measured(agent)
    on.control.state = state
    assert main(["metrics", NAME]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert said in err
    assert "web: CloudWatch has no figures of it" in err


def test_an_agent_that_fails_is_an_error_that_cannot_steer_the_terminal(measured: OpenMeasured, capfd: Read) -> None:
    measured(BROKEN)
    assert main(["metrics", NAME]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert "broken" in err
    assert "\x1b" not in err


def test_all_of_them_are_a_table_and_what_is_missing_is_told_where_the_state_does_not(
    measured: OpenMeasured, capfd: Read
) -> None:
    measured(TOLD, cloudwatch=refused)
    records = registry.open_default()
    records.put(registry.Record("begun", region="us-east-1"))
    records.put(registry.Record("moon", microvm_id="microvm-3", target="moon"))
    assert main(["metrics", "--all"]) == 0
    out, err = capfd.readouterr()
    assert out == (
        "NAME   STATE       CPU   MEM  DISK  PROCS              MEMORY  SOURCE   IN  OUT  UPTIME\n"
        "web    RUNNING    12 %  25 %  25 %      5  128 MiB of 512 MiB  agent   7 B  0 B      1m\n"
        "begun  LAUNCHING     -     -     -      -                   -  -         -    -       -\n"
        "moon   UNKNOWN       -     -     -      -                   -  -         -    -       -\n"
    )
    assert err.count("\n") == 1
    assert "vmnest: sandbox moon is on the target 'moon'" in err


def test_where_no_sandbox_has_a_figure_of_its_network_there_is_no_column_of_it(
    measured: OpenMeasured, capfd: Read
) -> None:
    measured(json_answer(200, {name: figure for name, figure in FIGURES.items() if name not in ("network", "load")}))
    assert main(["metrics", "--all"]) == 0
    assert capfd.readouterr().out.split("\n")[0].split() == (
        ["NAME", "STATE", "CPU", "MEM", "DISK", "PROCS", "MEMORY", "SOURCE", "UPTIME"]
    )
    assert main(["metrics", NAME]) == 0
    titles = [line.split()[0] for line in capfd.readouterr().out.splitlines()[1:]]
    assert titles == ["cpu", "memory", "disk", "processes", "uptime"]


def test_no_sandboxes_are_no_table(measured: OpenMeasured, capfd: Read) -> None:
    measured(TOLD)
    for line, said in ([], "there are no sandboxes"), (["--watch"], "there are no sandboxes on this machine"):
        assert main(["--local", "metrics", "--all", *line]) == 0
        out, err = capfd.readouterr()
        assert out == ""
        assert said in err


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0, "0.0 %"), (0.04, "0.0 %"), (9.94, "9.9 %"), (9.96, "10 %"), (100.0, "100 %"), (None, None), ("5", None)],
)
def test_shares_are_three_characters(share: object, shown: str | None) -> None:
    assert metrics._percent(share) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (99 * MIB, "99.0 MiB"), (2**63 - 1, "8388608 TiB"), (None, None)],
)
def test_sizes_are_short(count: object, shown: str | None) -> None:
    assert metrics._size(count) == shown


# -- again and again ---------------------------------------------------------------------------------------------------


@pytest.fixture
def ended_after(measured: OpenMeasured) -> Callable[[int], Any]:
    """Opens a sandbox that ends after it was asked so often."""

    def start(count: int) -> Any:
        def tell(request: object) -> Answer:
            if len(on.asked) >= count:
                on.control.state = "TERMINATED"
            return TOLD

        on = measured(tell)
        return on

    return start


def test_in_a_pipe_each_sample_is_a_line_under_one_head(ended_after: Callable[[int], Any], capfd: Read) -> None:
    ended_after(2)
    assert main(["metrics", NAME, "--watch", "--interval", "0.1"]) == 0
    out, err = capfd.readouterr()
    head, *lines = out.splitlines()
    assert " ".join(head.split()) == "TIME NAME STATE CPU MEM DISK PROCS MEMORY SOURCE IN OUT UPTIME"
    assert [line.split()[2:5] for line in lines] == [["web", "RUNNING", "12"]] * 2 + [["web", "TERMINATED", "-"]]
    # Columns stay where they are.
    assert len({line.index("web") for line in lines}) == len({len(line) for line in lines}) == 1
    assert "\x1b" not in out
    assert err.splitlines() == [
        "vmnest: a sandbox that is watched stays awake: to be asked counts as use",
        "vmnest: web has ended (TERMINATED)",
    ]


def test_with_json_each_sample_is_an_object_on_a_line(ended_after: Callable[[int], Any], capfd: Read) -> None:
    ended_after(1)
    assert main(["metrics", NAME, "--watch", "--interval", "0.1", "--json"]) == 0
    out, err = capfd.readouterr()
    assert [json.loads(line)["state"] for line in out.splitlines()] == ["RUNNING", "TERMINATED"]
    assert err == ""


def test_a_failure_meanwhile_is_told_once_and_the_watch_goes_on(measured: OpenMeasured, capfd: Read) -> None:
    def end(request: object) -> Answer:
        on.control.state = "TERMINATED"
        return TOLD

    on = measured(TOLD, BROKEN, BROKEN, end)
    assert main(["metrics", NAME, "--watch", "--interval", "0.1"]) == 0
    out, err = capfd.readouterr()
    assert [line.split()[4] for line in out.splitlines()[1:]] == ["12", "-", "-", "12", "-"]
    assert err.count("broken") == 1
    assert "\x1b" not in err


def test_a_failure_of_the_first_look_ends_it(measured: OpenMeasured, capfd: Read) -> None:
    measured(BROKEN)
    assert main(["metrics", NAME, "--watch"]) == 1
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("columns", "head"),
    [
        (80, "NAME  STATE         CPU    MEM   DISK  PROCS                MEMORY  SOURCE"),
        (40, "NAME  STATE         CPU    MEM   DISK"),
    ],
)
def test_on_a_terminal_the_table_stays_in_its_place_and_fits(
    ended_after: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch, columns: int, head: str
) -> None:
    ended_after(2)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(terminal, "size", lambda: (columns, 24))
    with on_terminal(terminal.STDOUT) as master:
        assert main(["-q", "metrics", NAME, "--watch", "--interval", "0.1"]) == 0
        seen = read_until(master, re.compile(rb"TERMINATED[^J]*\x1b\[J")).decode()
    frames = seen.split("\x1b[2F")
    assert len(frames) == 3
    for frame, state in zip(frames, ("RUNNING", "RUNNING", "TERMINATED"), strict=True):
        first, second, rest = frame.split("\x1b[K\n")
        assert first == head
        assert f"m{state}" in second  # in its colour
        assert rest == "\x1b[J"


def test_on_a_dumb_terminal_it_is_lines_that_fit(
    ended_after: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_after(1)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(terminal, "size", lambda: (40, 24))
    with on_terminal(terminal.STDOUT) as master:
        assert main(["-q", "metrics", NAME, "--watch", "--interval", "0.1"]) == 0
        seen = read_until(master, re.compile(rb"TERMINATED.*\n")).decode()
    head, *lines, rest = seen.split("\n")
    assert head == "TIME      NAME  STATE         CPU    MEM"
    assert [line.split()[1:3] for line in lines] == [["web", "RUNNING"], ["web", "TERMINATED"]]
    assert "\x1b" not in seen
    assert rest == ""


def test_lines_in_a_window_that_changes_have_a_new_head(
    ended_after: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    on = ended_after(3)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(terminal, "size", lambda: (40 if len(on.asked) < 2 else 60, 24))
    with on_terminal(terminal.STDOUT) as master:
        assert main(["-q", "metrics", NAME, "--watch", "--interval", "0.1"]) == 0
        seen = read_until(master, re.compile(rb"TERMINATED.*\n")).decode()
    assert [line.split()[-1] for line in seen.splitlines() if "NAME" in line] == ["MEM", "PROCS"]
    assert len(seen.splitlines()) == 6
