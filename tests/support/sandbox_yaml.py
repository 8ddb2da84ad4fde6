"""Configuration files of infrastructure for tests, and none of the user's own."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.memory_account import MemoryAccount, MemoryTarget
from vmnest.infra import config
from vmnest.infra.spec import Stack
from vmnest.ops import works


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


@pytest.fixture
def memory_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryAccount:
    """The verbs of infrastructure work in ``tmp_path``, with an account in memory at the seam of the target."""
    account = MemoryAccount()

    def resolve(*, local: bool, region: str | None = None, environ: Mapping[str, str] | None = None) -> MemoryTarget:
        target = account.target(kind="local" if local else "aws")
        target.region = account.region if local or region is None else region
        return target

    monkeypatch.setattr(works.targets, "resolve", resolve)
    monkeypatch.setenv("AGENT_SANDBOX_INFRA_STATE", str(tmp_path / "infra-state.json"))
    for name in ("AGENT_SANDBOX_TARGET", "AGENT_SANDBOX_REGION", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "small" / "Dockerfile", "FROM scratch\nCOPY program.py /\n")
    write(tmp_path / "small" / "program.py", "1\n")
    return account


def write_stack(path: Path, *, project: str = "demo", more: str = "") -> Path:
    """A file with one stack that has a small guest and names of its own."""
    return write(
        path,
        f"project: {project}\nimage: {{name: {project}-guest, guest_dir: {path.parent / 'small'}}}\n"
        f"role: {{name: {project}-exec}}\n{more}",
    )
