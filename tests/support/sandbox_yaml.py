"""Configuration files of infrastructure for tests, and none of the user's own."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmnest.infra import config
from vmnest.infra.spec import Stack


@pytest.fixture(autouse=True, scope="session")
def no_infrastructure_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whoever runs the tests may have infrastructure. What starts sandboxes in this process must not find it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT_SANDBOX_INFRA_STATE", str(tmp_path_factory.getbasetemp() / "no-infra-state.json"))
        patch.delenv("AGENT_SANDBOX_SETUP", raising=False)
        yield


def write(path: Path, text: str) -> Path:
    """Write a file, its text without the indentation of the test."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return path


def read(folder: Path, text: str, *, stack: str | None = None, want_guest: bool = False) -> list[Stack]:
    """The stacks of a ``sandbox.yaml`` with this text."""
    write(folder / "sandbox.yaml", text)
    return config.load(stack=stack, want_guest=want_guest, environ={}, cwd=str(folder))
