"""Decisions are told, but a sandbox cannot flood the log with them."""

from __future__ import annotations

from tests.support.clock import FakeClock
from vmnest.local.egress import journal


def test_decisions_are_told_once_a_minute() -> None:
    lines: list[str] = []
    clock = FakeClock()
    one = journal.Journal(lines.append, clock=clock)
    for _ in range(3):
        one.allow("pypi.org:443")
        one.refuse("10.0.0.1:80", "no rule allows it")
        one.fail("a.example:80", "refused")
    assert lines == [
        "egress to pypi.org:443: allowed",
        "egress to 10.0.0.1:80: refused, no rule allows it",
        "egress to a.example:80: failed, refused",
    ]
    clock.advance(journal.WINDOW_SECONDS)
    one.allow("pypi.org:443")
    assert lines[3:] == lines[:1]


def test_what_exceeds_a_minutes_lines_is_counted() -> None:
    lines: list[str] = []
    clock = FakeClock()
    one = journal.Journal(lines.append, clock=clock)
    for index in range(journal.MAX_LINES + 40):
        one.allow(f"a{index}.example:443")
    assert len(lines) == journal.MAX_LINES
    clock.advance(journal.WINDOW_SECONDS)
    one.allow("b.example:443")
    assert lines[journal.MAX_LINES :] == ["egress: 40 more decisions were not told", "egress to b.example:443: allowed"]


def test_the_latest_refusals_are_kept_each_once() -> None:
    one = journal.Journal(lambda line: None, clock=FakeClock())
    for index in range(journal.MAX_REFUSALS + 5):
        one.refuse(f"a{index}.example:443", "no")
    one.refuse("a10.example:443", "no")
    assert len(one.refusals) == journal.MAX_REFUSALS
    assert one.refusals[-2:] == (f"a{journal.MAX_REFUSALS + 4}.example:443", "a10.example:443")
    assert one.refusals.count("a10.example:443") == 1
