"""Results and remarks."""

from __future__ import annotations

import json
import logging

import pytest

from tests.support.cloud import LocalCloud
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


def test_failures_beside_a_result_are_told_once_with_what_to_do(capfd: pytest.CaptureFixture[str]) -> None:
    failures = [
        *(("a: no", {"hint": "Try\nagain."}), ("b: no", {"hint": "Try\nagain."}), ("a: no", {"hint": None})),
        *(("c: no", None), ("d: no", {})),
    ]
    output.remark_failures(failures, options=options())
    assert capfd.readouterr().err.splitlines() == [
        *("vmnest: a: no", "  Try", "  again.", "vmnest: b: no", "vmnest: c: no", "vmnest: d: no"),
    ]
    output.remark_failures(failures, options=options(json=True))
    output.remark_failures(failures, options=options(quiet=True))
    assert capfd.readouterr().err == ""


def test_a_warning_of_the_library_is_a_remark(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("vmnest.sandbox.launch")
    with output.warnings_as_remarks(options=options()):
        logger.warning("left \x1b %s", "demo")
        logger.info("nobody needs this")
    with output.warnings_as_remarks(options=options(json=True)):
        logger.warning("left demo")
    assert capfd.readouterr() == ("", "vmnest: left \\x1b demo\n")


def test_a_setting_that_the_local_cloud_was_not_started_with_is_told_where_it_matters(
    shared_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", shared_cloud.folder)
    monkeypatch.delenv("AGENT_SANDBOX_TARGET", raising=False)
    local = Options(json=False, quiet=False, local=True)
    output.remark_local_cloud(options=local)
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DISK", "1GiB")
    output.remark_local_cloud(options=Options(json=False, quiet=False, local=False))
    assert capfd.readouterr().err == ""
    for told in (local, Options(json=False, quiet=False, local=False)):
        output.remark_local_cloud(options=told)
        assert capfd.readouterr().err.startswith("vmnest: AGENT_SANDBOX_LOCAL_DISK is not in force")
        monkeypatch.setenv("AGENT_SANDBOX_TARGET", "local")
