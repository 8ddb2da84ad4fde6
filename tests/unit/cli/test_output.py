"""Results and remarks."""

from __future__ import annotations

import json
import logging

import pytest

from vmnest.cli import output
from vmnest.cli.words import Options


def options(*, json: bool = False, quiet: bool = False) -> Options:
    return Options(json=json, quiet=quiet)


def test_a_result_is_text_or_one_json_object(capfd: pytest.CaptureFixture[str]) -> None:
    output.result({"a": 1}, options=options(), text="text\n")
    assert capfd.readouterr() == ("text\n", "")
    output.result({"a": 1}, options=options(json=True), text="text\n")
    captured = capfd.readouterr()
    assert json.loads(captured.out) == {"a": 1}
    assert captured.err == ""


def test_a_remark_goes_beside_the_result_unless_it_is_not_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    output.remark("note \x1b", options=options())
    output.remark(None, options=options())
    output.remark("quiet", options=options(quiet=True))
    output.remark("json", options=options(json=True))
    assert capfd.readouterr() == ("", "vmnest: note \\x1b\n")


def test_a_warning_of_the_library_is_a_remark(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("vmnest.sandbox.launch")
    with output.warnings_as_remarks(options=options()):
        logger.warning("left \x1b %s", "demo")
        logger.info("nobody needs this")
    with output.warnings_as_remarks(options=options(json=True)):
        logger.warning("left demo")
    assert capfd.readouterr() == ("", "vmnest: left \\x1b demo\n")
