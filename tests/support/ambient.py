"""What whoever runs the tests has set for their own use of vmnest and AWS: it is none of the tests' business."""

from __future__ import annotations

import os

import pytest

OWN = ("AGENT_SANDBOX_", "AGENTD_", "AWS_")
ASKED_FOR = "AGENT_SANDBOX_MCP_E2E"
KEPT = "AWS_CA_BUNDLE"  # whom this machine trusts is no choice of theirs


def pytest_configure(config: pytest.Config) -> None:
    """Forget it, before anything is imported that may look; but for tests on AWS, which are asked for."""
    if config.getoption("--live", default=False) or ASKED_FOR in os.environ:
        return
    for name in list(os.environ):
        if name.startswith(OWN) and name != KEPT:
            del os.environ[name]
