"""The contract tests' way to AWS (``--live``), walked to the local cloud: what costs money must not be untried."""

from __future__ import annotations

import subprocess
import sys

from tests.support.cloud import LocalCloud
from tests.support.live import LOCAL_IMAGE
from tests.support.paths import ROOT

WAIT_SECONDS = 120.0


def run_live(cloud: LocalCloud, expression: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--live", "-k", expression]
    return subprocess.run(
        [*command, "tests/contract/test_microvms.py", "tests/contract/test_data_plane.py"],
        cwd=ROOT,
        env={**cloud.environ, **environ},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )


def test_the_same_body_runs_against_whatever_cloud_the_environment_names(shared_cloud: LocalCloud) -> None:
    done = run_live(shared_cloud, "aws and (TestTokens or TestWebSocket)", AGENT_SANDBOX_IMAGE_ARN=LOCAL_IMAGE)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    states = {item["state"] for item in shared_cloud.client().list_microvms()["items"]}
    assert states <= {"TERMINATING", "TERMINATED"}
    assert states


def test_without_an_image_it_says_what_is_missing(shared_cloud: LocalCloud) -> None:
    done = run_live(shared_cloud, "aws and TestTokens")
    assert done.returncode == 1
    assert "--live needs AGENT_SANDBOX_IMAGE_ARN" in done.stdout
