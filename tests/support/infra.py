"""Configuration files and records of stacks for tests."""

from __future__ import annotations

import textwrap
from pathlib import Path

from vmnest.infra import config
from vmnest.infra.spec import Stack


def write(path: Path, text: str) -> Path:
    """Write a file, its text without the indentation of the test."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return path


def read(folder: Path, text: str, *, stack: str | None = None, want_guest: bool = False) -> list[Stack]:
    """The stacks of a ``sandbox.yaml`` with this text."""
    write(folder / "sandbox.yaml", text)
    return config.load(stack=stack, want_guest=want_guest, environ={}, cwd=str(folder))
