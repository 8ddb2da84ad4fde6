"""``doctor`` as a program, on machines that lack something."""

from __future__ import annotations

import os
import sys

from tests.support.cli import PROGRAM, Cli, Done


def find(done: Done, title: str) -> tuple[str, str]:
    """The line of a check, and what stands on the one below it."""
    lines = done.text.splitlines()
    at = next(number for number, line in enumerate(lines) if f"{title}: " in line)
    return lines[at].strip(), lines[at + 1].strip()


def test_without_user_namespaces_the_switch_is_named(cli: Cli) -> None:
    line = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    words = ("unshare", "--user", "--map-root-user", "sh", "-c", line, "sh", *PROGRAM)
    done = cli("doctor", "--local", program=words)
    assert (done.status, done.remarks) == (1, "")
    found, remedy = find(done, "isolation")
    assert found.startswith("failed   isolation: Programs cannot be isolated on this machine.")
    assert remedy == "-> Namespaces are switched off: `sudo sysctl -w user.max_user_namespaces=10000`."
    assert done.text.endswith("no       on this machine (the target in use)\n")


def test_without_its_libraries_it_says_so_and_looks_at_the_rest(cli: Cli) -> None:
    done = cli("doctor", program=(sys.executable, "-S", "-m", "vmnest"))
    assert (done.status, done.remarks) == (1, "")
    for name in ("botocore", "urllib3"):
        found, remedy = find(done, name)
        assert found == f"failed   {name}: not installed: nothing works without it"
        assert f"-m pip install '{name}>=" in remedy
    assert find(done, "isolation")[0].startswith("ok ")
    assert "Traceback" not in done.text


def test_it_can_be_read_in_part_or_not_at_all(cli: Cli) -> None:
    assert cli.shell("set -o pipefail; $vmnest doctor --local | head -1").text == "This machine\n"
    assert cli.shell("$vmnest doctor --local >&-").remarks == ""
    done = cli("doctor", "--local", LANG="C", PYTHONIOENCODING="ascii", AGENT_SANDBOX_STATE="/tmp/n\u00e4mes.json")
    assert "/tmp/n\\xe4mes.json" in done.text


def test_it_leaves_nothing_in_an_empty_home(cli: Cli) -> None:
    done = cli("doctor", "--local")
    assert done.status == 0
    assert os.listdir(cli.environ["HOME"]) == []
