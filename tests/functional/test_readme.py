"""The manual's first examples do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cloud import LocalCloud
from tests.support.paths import ROOT

TEXT = (ROOT / "README.rst").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The part of the manual below a heading, up to the next heading of its kind or a higher one."""
    underline = r"\n(=+|-+)\n"
    begin = re.search(rf"^{title}{underline}", TEXT, re.MULTILINE)
    assert begin is not None
    ends = re.finditer(rf"^.+{underline}", TEXT[begin.end() :], re.MULTILINE)
    end = next(each for each in ends if each[1][0] in {"=", begin[1][0]})
    return TEXT[begin.end() : begin.end() + end.start()]


HERE = section("On this machine")
LIFE = section("The life of a sandbox")


def blocks(kind: str, part: str) -> list[str]:
    """The literal blocks of a part, without their indentation."""
    found = re.findall(rf"^\.\. code-block:: {kind}\n\n((?: {{4}}.*\n|\n)+)", part, re.MULTILINE)
    return [re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in found]


def type_lines(part: str, environ: dict[str, str]) -> list[str]:
    """What is printed when the part's command lines are typed one after another, without a failure."""
    blocks_ = blocks("console", part)
    lines = [line.removeprefix("$ ") for block in blocks_ for line in block.splitlines() if line[:2] == "$ "]
    program = sys.executable + " -m vmnest "
    script = "set -e\n" + "\n".join(re.sub(r"^vmnest ", program, line) for line in lines)
    done = subprocess.run(["sh", "-c", script], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).splitlines()


@pytest.fixture
def environ(shared_cloud: LocalCloud, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "AGENT_SANDBOX_LOCAL_DIR": shared_cloud.folder,
        "AGENT_SANDBOX_STATE": str(tmp_path / "state.json"),
        "PYTHONPATH": str(ROOT),
    }


def test_the_python_example_sorts_numbers_in_a_sandbox(environ: dict[str, str]) -> None:
    (example,) = blocks("python", HERE)
    done = subprocess.run([sys.executable, "-c", example], env=environ, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0 1\n2\n3\n\n", "")


def test_the_first_command_lines_work_one_after_another(environ: dict[str, str]) -> None:
    answers = type_lines(HERE, environ)
    assert answers[:2] == ["hello", "demo"]
    assert "5" in answers  # the size of /work/file
    assert answers[-1].split()[::2] == ["demo", "ended"]


def test_the_command_lines_of_a_sandboxs_life_do_what_is_said(environ: dict[str, str]) -> None:
    made, stopped, state, sleeps, started, heads, row, report, removed, *refusal = type_lines(
        LIFE, {**environ, "AGENT_SANDBOX_TARGET": "local"}
    )
    assert (made, stopped, state, sleeps) == ("job", "job", "SUSPENDED", "status 125: it sleeps")
    assert (started, report.split()[-1], removed.split()[::2]) == ("job", "RESULT", ["job", "ended"])
    assert heads.split()[:2] == ["NAME", "STATE"]
    assert row.split()[:2] == ["job", "RUNNING"]
    assert refusal[0].startswith("vmnest: sandbox job is suspended")
