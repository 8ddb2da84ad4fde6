"""The help of the whole program."""

from __future__ import annotations

import pytest

from vmnest.cli import manual, verbs


def test_every_verb_is_listed_with_its_line() -> None:
    text = manual.help_text()
    for verb in verbs.VERBS:
        assert any(verb.title in line and verb.summary in line for line in text.splitlines())


@pytest.mark.parametrize("status", ["0", "1", "2", "3", "130", "124", "125", "126", "127", "128+N"])
def test_every_exit_status_is_told(status: str) -> None:
    assert status in manual.help_text()


def test_a_group_lists_its_own() -> None:
    text = manual.group_help("local")
    assert "local up" in text
    assert "create" not in text


def test_no_line_is_wider_than_a_terminal() -> None:
    assert max(len(line) for line in manual.help_text().splitlines()) <= 100


def test_the_first_thing_it_shows_is_a_line_to_try() -> None:
    text = manual.help_text()
    assert text.index("vmnest --local run -- echo hello") < text.index("Commands:")
