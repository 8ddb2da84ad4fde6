"""Spools: memory first, then a file without a name; what does not fit on the disk is dropped and told."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.agentd import spool
from tests.support.agent import GUEST


def content(kept: spool.Spool) -> bytes:
    return b"".join(kept.pieces())


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(0, 200))
def test_what_was_appended_comes_back(pieces: list[bytes], memory_bytes: int) -> None:
    with spool.Spool(memory_bytes=memory_bytes) as kept:
        for piece in pieces:
            kept.append(piece)
        assert content(kept) == b"".join(pieces)
        assert content(kept) == b"".join(pieces)
        assert kept.size == sum(map(len, pieces))
        assert not kept.truncated


def test_up_to_the_limit_no_file_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with spool.Spool(memory_bytes=10) as kept:
        kept.append(b"0123456789")
        assert content(kept) == b"0123456789"


def test_the_file_has_no_name_and_is_closed_with_the_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    kept = spool.Spool(memory_bytes=10)
    kept.append(b"x" * 11)
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before + 1
    kept.close()
    kept.close()
    assert len(os.listdir("/proc/self/fd")) == before


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(0, 60), st.integers(0, 200))
def test_beyond_its_limit_the_rest_is_dropped(pieces: list[bytes], memory_bytes: int, limit_bytes: int) -> None:
    whole = b"".join(pieces)
    with spool.Spool(memory_bytes=memory_bytes, limit_bytes=limit_bytes) as kept:
        for piece in pieces:
            kept.append(piece)
        assert content(kept) == whole[:limit_bytes]
        assert kept.size == min(len(whole), limit_bytes)
        assert kept.truncated == (len(whole) > limit_bytes)


def test_a_large_spool_is_read_in_blocks() -> None:
    with spool.Spool(memory_bytes=10) as kept:
        for _ in range(10):
            kept.append(b"y" * 100_000)
        assert max(map(len, kept.pieces())) < 300_000
        assert content(kept) == b"y" * 1_000_000


def test_a_full_disk_drops_the_rest_and_says_so() -> None:
    # RLIMIT_FSIZE answers EFBIG at an exact size, as a full disk answers ENOSPC. It binds a whole process: one of its
    # own.
    program = """
import resource, signal
from agentd import spool
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
kept = spool.Spool(memory_bytes=1000)
for count in range(30):
    kept.append(bytes([65 + count]) * 300)
whole = b"".join(bytes([65 + count]) * 300 for count in range(30))
assert kept.truncated
assert kept.size == 5000
assert b"".join(kept.pieces()) == whole[:5000]
"""
    subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": str(GUEST)}, check=True, capture_output=True)


def test_without_a_place_for_the_file_what_is_in_memory_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    import tempfile  # the spool's own late import needs files too

    tempfile.gettempdir()
    with spool.Spool(memory_bytes=10) as kept:
        kept.append(b"0123456789")
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            kept.append(b"more")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert kept.truncated
        assert content(kept) == b"0123456789"


def test_without_a_folder_for_the_file_what_is_in_memory_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with spool.Spool(memory_bytes=10) as kept:
        kept.append(b"0123456789")
        kept.append(b"more")
        assert kept.truncated
        assert content(kept) == b"0123456789"


def test_a_broken_disk_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(spool, "open_unlinked", fail)
    with spool.Spool(memory_bytes=1) as kept, pytest.raises(OSError, match="Input/output error"):
        kept.append(b"two")
