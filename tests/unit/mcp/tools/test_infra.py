"""Infrastructure, through tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mcp_tools import Tools
from tests.support.memory_account import MemoryAccount
from tests.support.sandbox_yaml import write, write_stack
from vmnest.ops import infra


def test_what_would_change_is_told_and_not_done(memory_account: MemoryAccount, tmp_path: Path, tools: Tools) -> None:
    write_stack(tmp_path / "sandbox.yaml", more="")
    before = memory_account.inventory()
    (stack,) = tools.data("infra_preview")["stacks"]
    assert (stack["project"], stack["stack"], stack["has_changes"]) == ("demo", "dev", True)
    assert {"resource", "action", "reason"} <= set(stack["steps"][0])
    assert memory_account.inventory() == before
    assert tools.data("infra_list") == {"stacks": [], "count": 0}


def test_what_is_up_is_listed_and_offered(memory_account: MemoryAccount, tmp_path: Path, tools: Tools) -> None:
    file = write_stack(tmp_path / "sandbox.yaml")
    infra.up_infra()
    listed = tools.data("infra_list")
    assert (listed["count"], listed["stacks"][0]["project"]) == (1, "demo")
    for how in ({"project": "demo"}, {"stack": "dev"}, {"setup_file": "sandbox.yaml"}, {"setup_file": str(file)}):
        offered = tools.data("infra_outputs", **how)
        assert (offered["ready"], offered["project"]) == (True, "demo")
        assert offered["image_arn"] == {"value": listed["stacks"][0]["image_arn"], "source": "infra"}
    assert tools.error("infra_outputs", project="other")["code"] == "not_found"
    (stack,) = tools.data("infra_preview", setup_file="sandbox.yaml", stack="dev")["stacks"]
    assert stack["has_changes"] is False


def test_values_of_variables_are_not_shown(memory_account: MemoryAccount, tmp_path: Path, tools: Tools) -> None:
    write_stack(tmp_path / "sandbox.yaml")
    infra.up_infra()
    text = (tmp_path / "sandbox.yaml").read_text()
    (tmp_path / "sandbox.yaml").write_text(text.replace("guest_dir:", "environment: {TOKEN: hunter2}, guest_dir:"))
    envelope = tools.call("infra_preview")
    assert envelope["ok"]
    assert "TOKEN" in str(envelope)
    assert "hunter2" not in str(envelope)


@pytest.mark.parametrize("guest_dir", ["/elsewhere", "../elsewhere", "./link"])
def test_a_folder_elsewhere_is_not_read_either(
    memory_account: MemoryAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: Tools, guest_dir: str
) -> None:
    """A file that may be read may name any folder, and what it holds would show: by its size, its digest, its links."""
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    for folder in (elsewhere, here):
        folder.mkdir()
    (elsewhere / "Dockerfile").write_text("FROM scratch\n")
    (here / "link").symlink_to(elsewhere)
    named = guest_dir.replace("/elsewhere", str(elsewhere)) if guest_dir.startswith("/") else guest_dir
    write(here / "sandbox.yaml", f"project: demo\nimage: {{name: demo, guest_dir: {named}}}\n")
    monkeypatch.chdir(here)
    assert tools.error("infra_preview")["code"] == "policy_denied"


def test_a_file_elsewhere_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: Tools) -> None:
    secret = write(tmp_path / "secret.yaml", "password: hunter2\n")
    here = tmp_path / "here"
    here.mkdir()
    (here / "link.yaml").symlink_to(secret)
    monkeypatch.chdir(here)
    for tool in ("infra_outputs", "infra_preview"):
        for path in (str(secret), "../secret.yaml", "link.yaml"):
            error = tools.error(tool, setup_file=path)
            assert error["code"] == "policy_denied"
            assert "password" not in str(error)
