"""With ``tools/test --all`` a skipped test is a failure, unless its reason begins with one of the allowed ones.

What is allowed to be missing is what neither PyPI nor the distribution's packages bring.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

VARIABLE = "VMNEST_TEST_ALL"
OTHER_PYTHON = "needs another Python"
KVM = "needs KVM"
AWS = "needs AWS"
ALLOWED = (OTHER_PYTHON, KVM, AWS)


def must_run(reason: str) -> bool:
    """A test that gives this reason for its skip must run when all tests must."""
    return not reason.removeprefix("Skipped: ").startswith(ALLOWED)


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if os.environ.get(VARIABLE) != "1" or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if must_run(reason):
        report.outcome = "failed"
        report.longrepr = f"{reason}\n(a skip is a failure here: {VARIABLE}=1, set by tools/test --all)"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report
