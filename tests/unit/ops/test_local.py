"""The local cloud's verbs."""

from __future__ import annotations

import pytest

from tests.support.cloud import LocalCloud
from vmnest import errors
from vmnest.ops import local, sandboxes


@pytest.fixture
def here(local_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> LocalCloud:
    """This process works with a local cloud of the test's own."""
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", local_cloud.folder)
    monkeypatch.setenv("AGENT_SANDBOX_STATE", f"{local_cloud.folder}/state.json")
    return local_cloud


def test_what_runs_is_described_with_its_sandboxes(here: LocalCloud) -> None:
    assert local.up()["started"] is False
    sandboxes.create_sandbox(name="web", local=True)
    status = local.status()
    assert (status["running"], status["url"], status["folder"]) == (True, here.url, here.folder)
    assert isinstance(status["microvms"], list)
    assert [(each["name"], each["state"]) for each in status["microvms"]] == [("web", "RUNNING")]
    with pytest.raises(errors.LocalBusyError, match="has 1 sandbox: web"):
        local.down()
    sandboxes.remove_sandbox(name="web")
    assert local.status()["microvms"] == []
    assert local.down() == {"stopped": True, "ended": []}
    assert local.down() == {"stopped": False, "ended": []}
    assert local.status() == {"running": False, "folder": here.folder, "microvms": []}


def test_force_ends_what_runs(here: LocalCloud) -> None:
    sandboxes.create_sandbox(name="web", local=True)
    ended = local.down(force=True)["ended"]
    assert isinstance(ended, list)
    assert [each["name"] for each in ended] == ["web"]
    assert here.process.wait(30) == 0


def test_env_tells_what_leads_here(here: LocalCloud) -> None:
    environment = local.env()["environment"]
    assert isinstance(environment, dict)
    assert environment["AWS_ENDPOINT_URL_LAMBDA_MICROVMS"] == here.url
    assert environment["AWS_ACCESS_KEY_ID"] == here.keys.access_key
    assert environment["AWS_SESSION_TOKEN"] is None
