"""Artifacts of images: zips as people make them, and worse ones."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.agent import GUEST


def add(archive: zipfile.ZipFile, name: str, content: bytes | str = b"", *, mode: int = stat.S_IFREG | 0o644) -> None:
    """Add a member with all bits of its mode."""
    member = zipfile.ZipInfo(name, (2020, 1, 2, 3, 4, 6))
    member.create_system = 3
    member.external_attr = mode << 16
    archive.writestr(member, content)


def make_zip(members: Mapping[str, bytes | str | tuple[bytes | str, int]]) -> io.BytesIO:
    """A zip of these members: content, or content and mode."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            content, mode = member if isinstance(member, tuple) else (member, stat.S_IFREG | 0o644)
            add(archive, name, content, mode=mode)
    made.seek(0)
    return made


def link(target: str) -> tuple[str, int]:
    """A member of ``make_zip`` that is a link."""
    return target, stat.S_IFLNK | 0o777


def guest_files(folder: Path = GUEST) -> dict[str, bytes]:
    """The members of our own guest image."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
