"""``mcp`` and ``mcp config``. The server itself: ``tests/functional/test_mcp.py``."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.paths import ROOT
from vmnest.cli import hosts
from vmnest.cli.main import main

PING = b'{"jsonrpc":"2.0","id":0,"method":"ping"}\n'
PONG = b'{"jsonrpc":"2.0","id":0,"result":{}}\n'


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_CA_BUNDLE", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("client", hosts.HOSTS)
def test_the_snippet_alone_is_on_standard_output(client: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "config", client, "--local", "--region", "eu-west-1"]) == 0
    captured = capfd.readouterr()
    for text in ("agent-sandbox", "AGENT_SANDBOX_TARGET", "local", "AGENT_SANDBOX_REGION", "eu-west-1", "vmnest"):
        assert text in captured.out
    assert captured.err.startswith(f"vmnest: for {hosts.HOSTS[client].title}: ")
    assert main(["mcp", "config", client, "-q"]) == 0
    assert capfd.readouterr().err == ""


def test_without_a_client_it_is_what_most_hosts_read(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "config"]) == 0
    assert list(json.loads(capfd.readouterr().out)) == ["mcpServers"]


def test_it_is_one_json_object_on_demand(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert main(["--json", "mcp", "config", "cursor", "--env", "A=1"]) == 0
    captured = capfd.readouterr()
    data = json.loads(captured.out)
    assert (data["client"], data["env"], captured.err) == ("cursor", {"A": "1"}, "")
    assert json.loads(data["snippet"])["mcpServers"]["agent-sandbox"]["command"] == data["command"]


def test_it_tells_of_settings_that_hosts_do_not_pass_on(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "research")
    assert main(["mcp", "config"]) == 0
    captured = capfd.readouterr()
    assert "research" not in captured.out
    assert "AWS_PROFILE" in captured.err
    assert main(["mcp", "config", "--env", "AWS_PROFILE"]) == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out)["mcpServers"]["agent-sandbox"]["env"]["AWS_PROFILE"] == "research"
    assert "AWS_PROFILE" not in captured.err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["mcp", "config", "emacs"], f"One of: {', '.join(hosts.HOSTS)}."),
        (["mcp", "serve"], "mcp config"),
        (["mcp", "config", "goose", "more"], "one name too many"),
        (["mcp", "config", "--env", "NOT_SET_HERE"], "NOT_SET_HERE"),
        (["mcp", "--env", "A=1"], "--env is for mcp config"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_meant_says_what_can(line: list[str], says: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert says in captured.err


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        ([], "'aws' None"),
        (["--local", "-q"], "'local' None"),
        (["--region", "eu-west-1", "--debug"], "'aws' 'eu-west-1'"),
    ],
    ids=" ".join,
)
def test_options_become_settings_of_the_server(words: list[str], seen: str) -> None:
    program = (
        "import sys; sys.argv = ['vmnest', *sys.argv[1:]]\n"
        "from vmnest import __main__, settings\n"
        "if sys.argv[1:] == ['mcp']:\n"
        "    print(repr(settings.text('target')), repr(settings.text('region')), file=sys.stderr)\n"
        "__main__.console()"
    )
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program, "mcp", *words], env=environ, input=PING, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, PONG)
    assert done.stderr.decode() == f"{seen}\n"


def test_its_help_is_no_server(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--help"]) == 0
    assert "mcp config CLIENT" in capfd.readouterr().out
