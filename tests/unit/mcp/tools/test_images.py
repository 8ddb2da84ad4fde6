"""Images, through tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mcp_tools import Tools
from vmnest.mcp.tools import attendance

DOCKERFILE = 'FROM scratch\nCOPY a /srv/a\nCMD ["sleep", "600"]\n'
FAILING = "FROM scratch\nRUN echo because >&2; exit 3\n"


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to make images of, in the working directory."""
    here = tmp_path / "here"
    folder = here / "box"
    folder.mkdir(parents=True)
    monkeypatch.chdir(here)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "a").write_text("a")
    return folder


def test_an_image_is_built_looked_at_and_deleted(local_tools: Tools, guest: Path) -> None:
    call = local_tools.open(progress=True)
    made = local_tools.data(
        "image_build", within=call, directory="box", name="mcp-one", memory=512, environment={"KEY": "hunter2"}
    )
    assert (made["state"], made["running"], made["image_version"]) == ("SUCCESSFUL", False, "1.0")
    assert "this machine's own programs" in str(made["notes"])
    listed = local_tools.data("image_list")["images"]
    assert made["image_arn"] in [each["image_arn"] for each in listed]
    shown = local_tools.call("image_inspect", image_arn=made["image_arn"], image_version="1.0")
    assert shown["data"]["version"]["variables"] == ["KEY"]
    assert "hunter2" not in str(shown)
    assert "versions" in local_tools.data("image_list", managed=True)["images"][0]

    assert local_tools.error("image_remove", image_arn="mcp-one")["code"] == "confirm_required"
    assert local_tools.data("image_inspect", image_arn="mcp-one")["state"] == "CREATED"
    removed = local_tools.data("image_remove", image_arn="mcp-one", confirm=True)
    assert (removed["image_arn"], removed["removed"]) == (made["image_arn"], True)
    assert local_tools.error("image_inspect", image_arn="mcp-one")["code"] == "image_not_found"


def test_unused_images_go_when_it_is_confirmed(local_tools: Tools, guest: Path) -> None:
    local_tools.data("image_build", directory="box", name="mcp-two")
    assert local_tools.error("image_prune")["code"] == "confirm_required"
    planned = local_tools.data("image_prune", dry_run=True)
    assert planned["dry_run"] is True
    assert "mcp-two" in [each["name"] for each in planned["images"]]
    assert local_tools.data("image_inspect", image_arn="mcp-two")["name"] == "mcp-two"
    pruned = local_tools.data("image_prune", confirm=True)
    assert pruned == {"images": planned["images"], "failed": []}


def test_a_build_that_fails_tells_the_end_of_its_log(local_tools: Tools, guest: Path) -> None:
    (guest / "Dockerfile").write_text(FAILING)
    error = local_tools.error("image_build", directory="box", name="mcp-three")
    assert error["code"] == "image_build_failed"
    assert "because" in str(error["details"])


def test_a_long_build_is_asked_for_again(local_tools: Tools, guest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (guest / "Dockerfile").write_text(DOCKERFILE + "RUN sleep 1\n")
    monkeypatch.setattr(attendance, "MOST_SECONDS", 0.2)
    data = local_tools.data("image_build", directory="box", name="mcp-four")
    assert (data["running"], len(data["id"])) == (True, 32)
    while data["running"]:
        data = local_tools.data("image_build", id=data["id"])
    assert data["state"] == "SUCCESSFUL"
    assert local_tools.error("image_build", id="0" * 32)["code"] == "not_found"


def test_nothing_is_made_of_directories_that_may_not_be_read(local_tools: Tools, guest: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "Dockerfile").write_text(DOCKERFILE)
    (guest.parent / "link").symlink_to(outside)
    for directory in (str(outside), "../outside", "link", "/etc"):
        assert local_tools.error("image_build", directory=directory, name="mine")["code"] == "policy_denied"
    (guest.parent / "guest").symlink_to(outside)
    assert local_tools.error("image_build", name="mine")["code"] == "policy_denied"
    (guest.parent / "sandbox.yaml").write_text(f"image: {{name: mine, guest_dir: {outside}}}\n")
    assert local_tools.error("image_build")["code"] == "policy_denied"
    assert local_tools.error("image_build", directory="none", name="mine")["code"] == "guest_image"
