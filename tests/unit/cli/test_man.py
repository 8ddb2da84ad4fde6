"""The man page, read by those who read man pages: mandoc, which also finds faults."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import __version__, settings
from vmnest.cli import man, manual, verbs
from vmnest.cli.main import main


def mandoc(*arguments: str, page: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("mandoc") is None:
        pytest.skip("needs mandoc")
    return subprocess.run(["mandoc", *arguments], input=page, capture_output=True, text=True, check=False)


def read(page: str) -> str:
    """What somebody reads, with every run of space as one."""
    shown = mandoc("-T", "utf8", "-O", "width=90", page=page).stdout
    return " ".join(re.sub(".\b", "", shown).split())


@pytest.fixture(scope="module")
def text() -> str:
    return read(man.render_man())


def test_it_has_no_fault_but_that_it_is_of_no_date() -> None:
    done = mandoc("-T", "lint", "-W", "warning", page=man.render_man())
    assert [line for line in done.stdout.splitlines() if "missing date" not in line] == []


def test_it_is_ascii_and_has_no_line_that_is_a_request_by_mistake() -> None:
    page = man.render_man()
    assert page.isascii()
    requests = {line.split(" ")[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests == {*(".TH", ".nh", ".ad", ".SH", ".SS", ".TP", ".PP", ".B", ".nf", ".fi", ".RS", ".RE")}


@pytest.mark.parametrize("verb", verbs.VERBS, ids=lambda verb: verb.title)
def test_every_command_is_in_it_with_its_options(text: str, verb: verbs.Verb) -> None:
    parser = verbs.build_parser(verb)
    part = text[text.index(f" {parser.usage} {verb.summary}.") :]
    for row in parser.rows:
        part = part[part.index(f"{row.flags[-1]} {row.metavar}".strip()) :]
        meaning = " ".join(row.help.split())
        assert part[: len(meaning) + 200].find(meaning[1:]) > 0
    for line in parser.notes.splitlines():
        assert " ".join(line.split()) in part


def test_options_settings_and_statuses_are_in_it(text: str) -> None:
    for spelled, meaning in manual.OPTIONS:
        assert f"{spelled} {meaning[:1].upper()}{meaning[1:]}." in text
    for status, meaning in (*manual.EXIT_STATUSES, *manual.EXEC_STATUSES):
        assert f"{status} {meaning[:1].upper()}{meaning[1:]}." in text
    for row in settings.SETTINGS.values():
        assert f"{row.env} {row.meaning} (default: {row.shown_default})." in text


def test_it_says_of_which_version_it_is(text: str) -> None:
    assert f"vmnest {__version__}" in text
    assert "NAME vmnest - disposable microVM sandboxes" in text


def test_it_is_printed_in_the_place_of_a_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--man"]) == 0
    assert capfd.readouterr() == (man.render_man(), "")


@given(st.lists(st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), min_size=1), min_size=1))
def test_any_text_is_read_as_it_is(words: list[str]) -> None:
    line = " ".join(words)
    shown = man._line(line)
    assert not shown.startswith((".", "'"))
    undone = re.sub(r"\\(\(..|[e&-])", lambda found: UNDONE[found[1]], shown)
    assert undone == line


UNDONE = {"e": "\\", "-": "-", "&": "", "(aq": "'", "(ga": "`", "(ha": "^", "(ti": "~"}


def test_text_that_roff_would_take_for_its_own_is_read_as_it_is() -> None:
    odd = ".SH 'a' \\fB --x ~/^`b` \"c\" \u2026 \U0001f600"
    assert odd in read("\n".join((".TH X 1", ".SH NAME", "x \\- y", ".SH TEXT", man._line(odd))))
    assert "\n'a" not in man._line("'a")


def test_indented_lines_are_kept_and_others_fill_the_page() -> None:
    lines = list(man._paragraphs("one\ntwo\n    kept\nthree\n\nfour\n    last"))
    assert lines == [
        *("one", "two", ".PP", ".RS 4", ".nf", "kept", ".fi", ".RE", ".PP", "three", ".PP", "four"),
        *(".PP", ".RS 4", ".nf", "last", ".fi", ".RE"),
    ]
