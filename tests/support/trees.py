"""Directory trees to copy, and what an independent eye sees of them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

NOBODY = 65534
PR_SET_DUMPABLE = 4

# Names that something between two ends could trip over.
ODD_NAMES = (
    b"space and+plus",
    b"per%2Fcent%00",
    b"new\nline",
    b"tab\t",
    b"-rf",
    b"~",
    b"back\\slash",
    b"quote'\"",
    b"\xff\xfe not utf-8",
    "\u00fcn\u00efc\u00f6d\u00e9 \u65e5\u672c".encode(),
    b"\xed\xb2\x80 half a surrogate",
    b".hidden",
    b"x" * 255,
    b"...",
    b"a:b",
    b"*",
)


def look(root: Path | bytes, *, times: bool = True) -> dict[bytes, tuple[object, ...]]:
    """Every path below ``root`` with its kind, permissions, content or target, and time of change."""
    top = os.fsencode(root)
    seen: dict[bytes, tuple[object, ...]] = {}
    for folder, folders, names in os.walk(top):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            detail: object = None
            if stat.S_ISLNK(status.st_mode):
                detail = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as stream:
                    detail = stream.read()
            mode = 0 if stat.S_ISLNK(status.st_mode) else status.st_mode
            seen[os.path.relpath(path, top)] = (
                stat.S_IFMT(status.st_mode),
                stat.S_IMODE(mode),
                detail,
                status.st_mtime_ns if times else None,
            )
    return seen


def build(root: Path) -> None:
    """A tree with something of everything that travels."""
    top = os.fsencode(root)
    os.makedirs(top, exist_ok=True)
    for number, name in enumerate(ODD_NAMES):
        _write(os.path.join(top, name), name * number)
    folder = os.path.join(top, b"folder")
    os.makedirs(os.path.join(folder, b"y" * 200, b"z" * 200))
    os.mkdir(os.path.join(folder, b"empty"))
    _write(os.path.join(folder, b"program"), b"#!/bin/sh\n", mode=0o755)
    _write(os.path.join(folder, b"secret"), b"s", mode=0o600)
    _write(os.path.join(folder, b"nothing"), b"", mode=0o000)
    _write(os.path.join(folder, b"y" * 200, b"large"), os.urandom(700_001))
    os.link(os.path.join(folder, b"secret"), os.path.join(top, b"second name"))
    os.symlink(b"../folder/program", os.path.join(folder, b"up"))
    os.symlink(b"nowhere", os.path.join(folder, b"dangling"))
    os.symlink(b"t" * 300, os.path.join(folder, b"long target"))
    os.symlink(b"target \xff\n", os.path.join(folder, b"link \xff"))
    os.symlink(b"loop", os.path.join(top, b"loop"))
    locked = os.path.join(top, b"locked")
    os.mkdir(locked)
    _write(os.path.join(locked, b"inside"), b"i")
    os.chmod(locked, 0o555)
    for number, path in enumerate(sorted(look(root))):
        os.utime(
            os.path.join(top, path), ns=(number, 1_600_000_000_123_456_789 + number * 10**9), follow_symlinks=False
        )
    os.utime(os.path.join(top, b"..."), ns=(0, -1_500_000_000))


def _write(path: bytes, data: bytes, *, mode: int = 0o644) -> None:
    with open(path, "wb") as stream:
        stream.write(data)
    os.chmod(path, mode)


@contextlib.contextmanager
def without_rights() -> Iterator[None]:
    """Permissions count in this block, also where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # else /proc/self stays root's
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def before_opening(monkeypatch: pytest.MonkeyPatch, name: bytes, act: Callable[[], object]) -> None:
    """Have somebody ``act`` between the look at what has this name and its opening."""
    true_open = os.open

    def open_later(path: object, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == name:
            act()
        return true_open(path, flags, mode, dir_fd=dir_fd)  # type: ignore[arg-type] # whatever it is

    monkeypatch.setattr(os, "open", open_later)
