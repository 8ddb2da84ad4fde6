"""What ``completion`` prints. Real shells use it in ``tests/functional/test_completion.py``."""

from __future__ import annotations

import json
import subprocess

import pytest

from vmnest.cli import completing, completion, verbs
from vmnest.cli.main import main


@pytest.mark.parametrize("shell", completing.SHELLS)
def test_a_script_asks_vmnest(shell: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    captured = capfd.readouterr()
    assert captured == (completion.SCRIPTS[shell], "")
    assert f" {verbs.COMPLETE} {shell} " in captured.out
    assert all(f"{kind}" in captured.out for kind in (completing.FILES, completing.DIRECTORIES))


def test_it_is_one_json_object_on_demand(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"shell": "zsh", "script": completion.SCRIPTS["zsh"]}


@pytest.mark.parametrize("line", [["completion"], ["completion", "csh"], ["completion", ""]], ids=" ".join)
def test_another_shell_is_told_which_there_are(line: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[1].startswith("  One of: bash, zsh, fish.")


def test_bash_can_read_its_script() -> None:
    subprocess.run(["bash", "-n"], input=completion.SCRIPTS["bash"], text=True, check=True)


def test_help_says_where_the_line_goes(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "--help"]) == 0
    text = capfd.readouterr().out
    for shell in completing.SHELLS:
        assert f"vmnest completion {shell}" in text
