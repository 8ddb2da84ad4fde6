"""The guest image's Dockerfile: the essentials that the platform and the local image builder rely on."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from guest.agentd import config
from tests.support.agent import GUEST

# What the local image builder takes.
KNOWN = {"FROM", "ENV", "ARG", "WORKDIR", "COPY", "ADD", "RUN", "USER", "EXPOSE", "CMD", "ENTRYPOINT", "LABEL", "SHELL"}


def instructions() -> list[tuple[str, str]]:
    """The file's instructions, continued lines joined."""
    text = (GUEST / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    words = (line.partition(" ") for line in joined.split("\n") if line.strip())
    return [(word, rest.strip()) for word, _, rest in words]


def values(word: str) -> list[str]:
    return [rest for name, rest in instructions() if name == word]


def environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for rest in values("ENV") for pair in rest.split())


def test_only_known_instructions_stand_in_it() -> None:
    assert {name for name, _ in instructions()} <= KNOWN


def test_it_begins_at_the_recommended_base() -> None:
    assert instructions()[0] == ("FROM", "public.ecr.aws/lambda/microvms:al2023-minimal")


def test_nothing_is_installed_with_pip() -> None:
    assert not any("pip install" in rest or "pip3" in rest for rest in values("RUN"))


def test_the_toolbox_is_there() -> None:
    (install,) = (rest for rest in values("RUN") if "dnf install" in rest)
    words = set(install.split())
    assert {"bash", "python3", "git", "tar", "gzip", "procps-ng", "findutils", "which", "diffutils"} <= words
    # They conflict with what the base has.
    assert words.isdisjoint({"curl", "coreutils"})


def test_where_there_is_no_dnf_the_install_line_does_nothing(tmp_path: Path) -> None:
    (install,) = (rest for rest in values("RUN") if "dnf install" in rest)
    shell = shutil.which("sh")
    assert shell is not None
    subprocess.run([shell, "-c", install], env={"PATH": str(tmp_path)}, check=True)


@pytest.mark.parametrize("dnf", ["present", "failing"])
def test_where_there_is_dnf_its_failure_fails_the_build(tmp_path: Path, dnf: str) -> None:
    (install,) = (rest for rest in values("RUN") if "dnf install" in rest)
    program = tmp_path / "dnf"
    program.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/calls\n{"exit 1" if dnf == "failing" else ""}\n')
    program.chmod(0o755)
    done = subprocess.run(["/bin/sh", "-c", install], env={"PATH": str(tmp_path)}, check=False)
    assert done.returncode == (dnf == "failing")
    assert (tmp_path / "calls").read_text().split() == (["install"] if dnf == "failing" else ["install", "clean"])


def test_the_python_name_is_made_only_where_it_is_missing() -> None:
    (link,) = (rest for rest in values("RUN") if "/usr/bin/python" in rest)
    assert link.startswith("command -v python >/dev/null 2>&1 || ln -s ")


def test_it_starts_the_agent_with_settings_that_the_agent_takes() -> None:
    assert values("CMD") == ['["python3", "-m", "agentd.serve"]']
    assert values("ENTRYPOINT") == []
    settings = config.load(environment())
    assert settings.bind == "0.0.0.0"
    assert (settings.port, settings.hook_port) == (8080, 9000)


def test_both_ports_are_exposed() -> None:
    assert values("EXPOSE") == ["8080 9000"]


def test_the_working_directory_is_the_agents() -> None:
    assert values("WORKDIR") == ["/work"] == [environment()["AGENT_SANDBOX_WORKDIR"]]


def test_the_agent_is_where_python_looks_for_it() -> None:
    source, target = values("COPY")[0].split()
    assert (GUEST / source / "serve.py").is_file()
    assert target == f"{environment()['PYTHONPATH']}/agentd"
