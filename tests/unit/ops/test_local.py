"""The local cloud's verbs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cloud import LocalCloud
from tests.support.image_works import ENDLESS, Works
from vmnest import errors
from vmnest.ops import local, removal, sandboxes


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
    assert (status["states"], status["notes"]) == ({"RUNNING": 1}, [])
    with pytest.raises(errors.LocalBusyError, match="has 1 sandbox: web"):
        local.down()
    removal.remove_sandbox(name="web")
    assert local.status()["microvms"] == []
    assert local.status()["states"] in ({"TERMINATING": 1}, {"TERMINATED": 1})
    assert local.down() == {"stopped": True, "ended": []}
    assert local.down() == {"stopped": False, "ended": []}
    nothing = {"states": {}, "microvms": [], "builds": [], "notes": []}
    assert local.status() == {"running": False, "folder": here.folder, **nothing}


def test_force_ends_what_runs(here: LocalCloud) -> None:
    sandboxes.create_sandbox(name="web", local=True)
    ended = local.down(force=True)["ended"]
    assert isinstance(ended, list)
    assert [each["name"] for each in ended] == ["web"]
    assert here.process.wait(30) == 0


def test_it_is_not_stopped_in_the_middle_of_a_build(here: LocalCloud) -> None:
    works = Works(here)
    works.api.create_microvm_image(name="demo", **works.settings(ENDLESS))
    assert local.status()["builds"] == ["demo 1.0"]
    with pytest.raises(errors.LocalBusyError, match=r"has 1 image that is being built: demo 1\.0"):
        local.down()
    assert local.down(force=True) == {"stopped": True, "ended": []}


def test_microvms_without_names_are_told_by_their_ids(here: LocalCloud) -> None:
    image = "arn:aws:lambda:us-east-1:000000000000:microvm-image:local"
    ids = [here.client().run_microvm(imageIdentifier=image)["microvmId"] for _ in range(2)]
    with pytest.raises(errors.LocalBusyError) as caught:
        local.down()
    assert caught.value.message == f"the local cloud has 2 MicroVMs without a name here: {ids[0]}, {ids[1]}"
    assert caught.value.hint == "End them with: vmnest local down --force"
    sandboxes.create_sandbox(name="web", local=True)
    with pytest.raises(errors.LocalBusyError, match="has 1 sandbox: web and 2 MicroVMs without a name here: "):
        local.down()


def test_a_damaged_state_file_costs_the_names_alone(here: LocalCloud) -> None:
    sandboxes.create_sandbox(name="web", local=True)
    Path(here.folder, "state.json").write_bytes(b"{")
    status = local.status()
    assert isinstance(status["microvms"], list)
    assert [(each["name"], each["state"]) for each in status["microvms"]] == [(None, "RUNNING")]
    assert str(status["notes"]).startswith("['no names are known: the state file ")
    with pytest.raises(errors.LocalBusyError, match="has 1 MicroVM without a name here: "):
        local.down()
    assert local.down(force=True)["stopped"] is True


def test_many_are_not_all_named() -> None:
    error = local._busy([{"name": f"n{number}", "microvm_id": "m"} for number in range(9)])
    assert error.message == "the local cloud has 9 sandboxes: n0, n1, n2, n3, n4, n5, n6, n7, ..."
    assert error.hint is not None
    assert error.hint.startswith("Remove them first (vmnest rm NAME)")


def test_a_setting_that_is_not_in_force_is_told(here: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DISK", "3GiB")
    (note,) = local.up()["notes"]  # type: ignore[misc]  # an object that is a list
    assert note.startswith("AGENT_SANDBOX_LOCAL_DISK is not in force")


def test_env_tells_what_leads_here(here: LocalCloud) -> None:
    environment = local.env()["environment"]
    assert isinstance(environment, dict)
    assert environment["AWS_ENDPOINT_URL_LAMBDA_MICROVMS"] == here.url
    assert environment["AWS_ACCESS_KEY_ID"] == here.keys.access_key
    assert environment["AWS_SESSION_TOKEN"] is None
