"""Several names, one after another."""

from __future__ import annotations

import json
import logging

import pytest

from vmnest import errors
from vmnest.cli import batch, words


def line(*names: str, json: bool = False, quiet: bool = False) -> words.Options:
    return words.Options(names=list(names), json=json, quiet=quiet)


def operate(name: str) -> dict[str, object]:
    if name.startswith("no"):
        raise errors.SandboxNotFoundError(f"not there: {name}")
    return {"name": name}


def test_each_is_done_once_and_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert batch.run(operate, options=line("a", "b", "a"), doing="x", done="xed") == [{"name": "a"}, {"name": "b"}]
    assert capfd.readouterr() == ("a\nb\n", "")
    batch.run(operate, options=line("a", json=True), doing="x", done="xed")
    assert json.loads(capfd.readouterr().out) == {"xed": [{"name": "a"}]}


def test_a_failure_does_not_keep_the_others_from_being_done(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(errors.SandboxNotFoundError, match="no1") as caught:
        batch.run(operate, options=line("a", "no1", "b", "no2"), doing="x", done="xed")
    assert caught.value.details == {"xed": ["a", "b"]}
    assert capfd.readouterr() == ("a\nb\n", "vmnest: not there: no2\n")


def test_with_json_a_failure_is_all_that_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(errors.SandboxNotFoundError) as caught:
        batch.run(operate, options=line("no1", "a", "no2", json=True), doing="x", done="xed")
    assert caught.value.details["xed"] == ["a"]
    assert capfd.readouterr() == ("", "")


def test_what_the_library_warns_of_is_a_remark(capfd: pytest.CaptureFixture[str]) -> None:
    def warn(name: str) -> dict[str, object]:
        logging.getLogger("vmnest.sandbox.link").warning("%s is not recorded", name)
        return {"name": name}

    batch.run(warn, options=line("a"), doing="x", done="xed")
    assert capfd.readouterr() == ("a\n", "vmnest: a is not recorded\n")
    batch.run(warn, options=line("a", json=True), doing="x", done="xed")
    assert capfd.readouterr().err == ""


def test_answers_that_have_no_names_are_told_as_they_are(capfd: pytest.CaptureFixture[str]) -> None:
    options = line(json=True)
    answers, failed = batch.attempt(lambda number: {"twice": 2 * number}, [1, 2, 1], options=options)
    batch.conclude(answers, failed, options=options, done="doubled")
    assert json.loads(capfd.readouterr().out) == {"doubled": [{"twice": 2}, {"twice": 4}]}
    answers, failed = batch.attempt(operate, ["a", "no1"], options=options)
    with pytest.raises(errors.SandboxNotFoundError) as caught:
        batch.conclude(answers, failed, options=options, done="named")
    assert caught.value.details == {"named": [{"name": "a"}]}
    assert capfd.readouterr() == ("", "")
