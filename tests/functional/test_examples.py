"""The examples of the checkout do what the manual says: each runs as a user would run it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.cloud import LocalCloud
from tests.support.paths import ROOT, TOOLS
from vmnest.wire import names

EXAMPLES = ROOT / "tools" / "examples"
RUN_SECONDS = 120


@pytest.fixture
def environ(shared_cloud: LocalCloud, tmp_path: Path) -> Iterator[dict[str, str]]:
    """As a user has it who works on this machine. No sandbox of an example outlives it."""
    yield {
        **{name: value for name, value in shared_cloud.environ.items() if not name.startswith("AWS_")},
        "AGENT_SANDBOX_STATE": str(tmp_path / "state.json"),
        "AGENT_SANDBOX_TARGET": "local",
        "PYTHONPATH": str(ROOT),
    }
    states = {vm["state"] for vm in shared_cloud.client().list_microvms()["items"]}
    assert states <= set(names.ENDED_STATES)


def start(example: str, *words: str, environ: Mapping[str, str]) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, EXAMPLES / example, *words], env=environ, text=True, **pipes)  # type: ignore[call-overload,no-any-return]


def test_run_code_prints_what_the_code_prints(environ: dict[str, str]) -> None:
    with start("run_code.py", environ=environ) as example:
        out, err = example.communicate(timeout=RUN_SECONDS)
    assert (example.returncode, err) == (0, "")
    assert out.startswith("Hello from a microVM!\nHere is Python 3.")


def test_an_example_works_on_this_machine_when_it_is_told_to(environ: dict[str, str]) -> None:
    del environ["AGENT_SANDBOX_TARGET"]
    with start("run_code.py", "--local", environ=environ) as example:
        out, _ = example.communicate(timeout=RUN_SECONDS)
    assert out.startswith("Hello from a microVM!")


def test_an_example_that_cannot_work_says_why_in_words(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    with start("run_code.py", environ={**environ, "PYTHONPATH": str(ROOT)}) as example:
        out, err = example.communicate(timeout=RUN_SECONDS)
    assert (example.returncode, out) == (1, "")
    assert "--local" in err
    assert "Traceback" not in err


def fetch(url: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=RUN_SECONDS) as answer:
        data: bytes = answer.read()
    return data


def test_serve_fastapi_serves_until_it_is_interrupted(environ: dict[str, str]) -> None:
    if not (TOOLS / "fastapi").is_dir():
        pytest.skip("fetches packages from PyPI: run tools/test --all")
    with start("serve_fastapi.py", "--port", "0", environ=environ) as example:
        assert example.stdout is not None
        line = next((line for line in example.stdout if line.startswith("Open ")), None)
        if line is None:
            pytest.fail(example.communicate()[1])
        assert b"Hello from a microVM!" in fetch(line.split()[1])
        example.send_signal(signal.SIGINT)
        out, err = example.communicate(timeout=RUN_SECONDS)
    assert (example.returncode, out) == (0, "Bye.\n"), err
