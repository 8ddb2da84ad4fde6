"""``create``, ``ls``, ``ps``, ``rm``: what is made of options and results."""

from __future__ import annotations

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


def test_the_table_of_ls(
    known: registry.Registry, serve: Serve, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", serve(json_answer(200, vm(startedAt=0.0))).url)
    put(known, "web")
    assert main(["ls"]) == 0
    heads, row = capfd.readouterr().out.splitlines()
    assert heads.split() == ["NAME", "STATE", "TARGET", "REGION", "AGE", "MICROVM"]
    assert row.split()[:4] == ["web", "RUNNING", "aws", "eu-west-1"]
    assert row.split()[4].endswith("d")


def test_one_reason_that_many_states_are_unknown_is_told_once(
    known: registry.Registry, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    put(known, "a")
    put(known, "b")
    assert main(["ls"]) == 0
    captured = capfd.readouterr()
    assert captured.out.count("UNKNOWN") == 2
    assert captured.err.count("credentials") >= 1
    assert len(captured.err.splitlines()) == 1
    assert main(["-q", "ls"]) == 0
    assert capfd.readouterr().err == ""


def test_ps_leaves_out_what_is_not_known(
    known: registry.Registry, serve: Serve, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", serve(json_answer(200, vm(stateReason="bad\x1b[2J"))).url)
    put(known, "web")
    assert main(["ps", "web"]) == 0
    text = capfd.readouterr().out
    assert "state reason          bad\\x1b[2J\n" in text
    assert "created at" not in text


def test_rm_tells_what_was_gone_already(
    known: registry.Registry, serve: Serve, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    gone = json_answer(404, {"message": "no"}, headers={"x-amzn-errortype": "ResourceNotFoundException"})
    monkeypatch.setenv("AWS_ENDPOINT_URL", serve(gone).url)
    put(known, "web")
    assert main(["rm", "web", "web"]) == 0
    assert capfd.readouterr() == ("web\n", "vmnest: the MicroVM of web was gone already\n")
