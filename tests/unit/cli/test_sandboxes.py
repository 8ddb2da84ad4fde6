"""``ps`` and ``inspect``: what is made of options and results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.control import vm
from tests.support.peers import Serve, json_answer
from vmnest import registry
from vmnest.cli.main import main
from vmnest.registry import Record


@pytest.fixture(autouse=True)
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> registry.Registry:
    """A registry of the test's own, with keys for AWS."""
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    return registry.open_default()


def put(known: registry.Registry, name: str) -> None:
    known.put(Record(name, microvm_id="microvm-1", region="eu-west-1"))


def members(text: str) -> dict[str, str]:
    """The lines of ``ps``."""
    return {name.strip(): value for name, _, value in (line.partition("  ") for line in text.splitlines())}


def show(serve: Serve, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], **said: object) -> str:
    """What ``ps web`` prints when the service says this."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", serve(json_answer(200, vm(**said))).url)
    assert main(["ps", "web"]) == 0
    return capfd.readouterr().out


def test_ps_leaves_out_what_is_not_known(
    known: registry.Registry, serve: Serve, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    put(known, "web")
    text = show(serve, monkeypatch, capfd, stateReason="bad\x1b[2J")
    assert "state reason   bad\\x1b[2J\n" in text
    for absent in ("created at", "stopped at", "idle policy", "labels", "terminated at"):
        assert absent not in text


def test_ps_tells_when_and_how_it_ends(
    known: registry.Registry, serve: Serve, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    known.put(
        Record("web", microvm_id="microvm-1", region="eu-west-1", stopped_at=0.0, labels={"team": "a", "tier": "b c"})
    )
    policy = {"maxIdleDurationSeconds": 90, "suspendedDurationSeconds": 3600, "autoResumeEnabled": False}
    seen = {"state": "SUSPENDED", "startedAt": 0.0, "maximumDurationInSeconds": 5400, "idlePolicy": policy}
    text = show(serve, monkeypatch, capfd, **seen)
    shown = {name: value.strip() for name, value in members(text).items()}
    assert shown["stopped at"] == "1970-01-01T00:00:00+00:00"
    assert shown["expires at"] == "1970-01-01T01:30:00+00:00"
    assert shown["max duration"] == "1h30m"
    assert shown["labels"] == "team=a, tier=b c"
    assert (shown["ingress"], shown["egress"]) == ("in", "out")
    assert shown["idle policy"] == (
        "suspended after 1m30s without a request, for up to 1h; not resumed by the next request"
    )
    text = show(serve, monkeypatch, capfd, idlePolicy={**policy, "suspendedDurationSeconds": 0})
    assert "ends after 1m30s without a request\n" in text


def test_ps_shows_what_a_local_sandbox_really_reaches(
    known: registry.Registry, serve: Serve, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    put(known, "web")
    details = {"isolation": "namespace", "egress": [], "cpus": None}
    text = show(serve, monkeypatch, capfd, localDetails=details)
    assert [line.split() for line in text.splitlines()][-2:] == [["isolation", "namespace"], ["egress", "none"]]
    assert text.count("egress") == 1
    details = {"egress": ["pypi.org", "[::1]:80"], "egress_refused": ["10.0.0.1:80"]}
    shown = members(show(serve, monkeypatch, capfd, localDetails=details))
    assert (shown["egress"].strip(), shown["egress refused"].strip()) == ("pypi.org, [::1]:80", "10.0.0.1:80")
    assert "ingress" not in text


def test_inspect_is_json_with_all_that_is_known_and_no_secret(
    known: registry.Registry, serve: Serve, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", serve(*[json_answer(200, vm(newMember=[1], startedAt=0.5))] * 2).url)
    known.put(
        Record("web", microvm_id="microvm-1", region="eu-west-1", client_token="hunter2", launch={"x": "hunter2"},
               unknown={"later": 1})
    )  # fmt: skip
    assert main(["inspect", "web"]) == 0
    text = capfd.readouterr().out
    data = json.loads(text)
    assert "hunter2" not in text
    assert text.startswith('{\n  "name": "web",\n')
    assert (data["name"], data["state"], data["expires_at"]) == ("web", "RUNNING", "1970-01-01T08:00:00+00:00")
    assert data["record"]["later"] == 1
    assert data["microvm"]["newMember"] == [1]
    assert data["microvm"]["startedAt"] == "1970-01-01T00:00:00.500+00:00"
    assert main(["--json", "inspect", "web"]) == 0
    assert json.loads(capfd.readouterr().out) == data


def test_ps_says_the_unit_of_a_local_sandboxs_memory_and_disk(
    known: registry.Registry, serve: Serve, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    put(known, "web")
    text = show(serve, monkeypatch, capfd, localDetails={"cpus": None, "memory": 512, "disk": 8192, "egress": []})
    shown = members(text)
    assert shown["memory"].strip() == "512 MiB"
    assert shown["disk"].strip() == "8192 MiB"
    assert "cpus" not in shown
