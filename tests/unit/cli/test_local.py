"""``local up|down|status|env``: what is made of results."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support.cloud import LocalCloud
from tests.support.image_works import ENDLESS, Works
from vmnest import __version__, rendezvous
from vmnest.cli.main import main


@pytest.fixture
def here(local_cloud: LocalCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCloud:
    """This process works with a local cloud of the test's own."""
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", local_cloud.folder)
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    return local_cloud


def test_what_runs_is_told_in_lines(here: LocalCloud, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["local", "up"]) == 0
    told = capfd.readouterr().out
    assert told.startswith("local cloud  running\n")
    assert f"url          {here.url}\n" in told
    assert main(["-q", "local", "up"]) == 0
    assert capfd.readouterr().out == ""
    assert main(["local", "env"]) == 0
    lines = [shlex.split(line) for line in capfd.readouterr().out.splitlines()]
    assert {words[0] for words in lines} == {"export", "unset"}
    assert ["export", f"AWS_SECRET_ACCESS_KEY={here.keys.secret_key}"] in lines
    assert main(["local", "down"]) == 0
    assert capfd.readouterr() == ("", "vmnest: the local cloud is stopped\n")
    assert main(["local", "down"]) == 0
    assert capfd.readouterr() == ("", "vmnest: the local cloud does not run\n")


def test_a_daemon_of_another_version_is_pointed_out(here: LocalCloud, capfd: pytest.CaptureFixture[str]) -> None:
    other = rendezvous.Daemon(url=here.daemon.url, version="99.0", pid=here.daemon.pid)
    rendezvous.write_daemon(here.folder, other)
    assert main(["local", "status"]) == 0
    told = capfd.readouterr()
    assert "version      99.0\n" in told.out
    assert told.err.startswith(
        f"vmnest: the local cloud runs version 99.0, which is newer than this vmnest, {__version__}"
    )
    assert main(["local", "status", "--json"]) == 0
    assert capfd.readouterr().err == ""


def test_what_is_being_built_is_told(here: LocalCloud, capfd: pytest.CaptureFixture[str]) -> None:
    works = Works(here)
    works.api.create_microvm_image(name="demo", **works.settings(ENDLESS))
    assert main(["local", "status"]) == 0
    assert "builds       demo 1.0\n" in capfd.readouterr().out
    assert main(["local", "down"]) == 1
    assert "1 image that is being built: demo 1.0" in capfd.readouterr().err
    assert main(["local", "down", "--force"]) == 0


def test_force_tells_what_it_ended(here: LocalCloud, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["create", "web", "--local"]) == 0
    assert main(["local", "status"]) == 0
    told = capfd.readouterr().out
    assert "microvms     1 RUNNING\n" in told
    assert "web   RUNNING  microvm-" in told
    assert main(["local", "down"]) == 1
    assert "--force" in capfd.readouterr().err
    assert main(["local", "down", "--force"]) == 0
    assert capfd.readouterr() == ("", "vmnest: the local cloud is stopped\nvmnest: ended web\n")
