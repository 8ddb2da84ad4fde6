"""How much a sandbox wrote: looked at now and then, since no file system here can be asked to limit it.

Stand-alone (see ``runtime``). Strategy: once a second the file system is asked how full it is, which costs one call.
Only when it filled up since the last measurement by more than the sandbox may still write (or a minute went by) is
the layer measured: the files in it, and those that are deleted and still open. A measurement is cut into slices of
some milliseconds, so that dials do not wait for it, and takes at most a twentieth of the time, or is followed by a
pause of a minute if that is less. One file alone never
grows beyond the limit: RLIMIT_FSIZE sees to that at once.

What the tree's writer does meanwhile, and how, is not trusted: what vanishes is passed over, and directories that
lie deeper than a path can be long count as too much.
"""

from __future__ import annotations

import errno
import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_INTERVAL_SECONDS = 1.0
_LONGEST_SECONDS = 60.0
_SLICE_SECONDS = 0.005
_PAUSE_SECONDS = 0.02
_SHARE = 20  # a measurement that took t seconds is followed by a pause of 20 t
_BLOCK_BYTES = 512
_ENTRY_BYTES = 512  # what a file costs beside its blocks: millions of empty ones fill a disk too
_SHARED_MEMORY = "/dev/shm/"  # noqa: S108 - a tmpfs with a size of its own; not on the disk


class DiskWatch:
    """Tells when a layer outgrew its limit. ``due`` is when ``step`` wants to be called, by CLOCK_BOOTTIME."""

    def __init__(self, layer: int, *, limit: int, namespace: int, now: float) -> None:
        """``namespace`` is the inode of the pid namespace whose processes' deleted files count too."""
        self._layer = layer
        self._namespace = namespace
        self._limit = limit
        self._bytes = 0
        self._used = _used_bytes(layer)
        self._measured_at = now
        self._rest_until = now
        self._walk: Iterator[int] | None = None
        self._walk_began = now
        self.due = now + _INTERVAL_SECONDS

    def step(self, now: float) -> bool:
        """Look, for some milliseconds at most; True if there is more than the limit."""
        if self._walk is None:
            self.due = now + _INTERVAL_SECONDS
            if not self._wants_measurement(now):
                return False
            self._walk = measure(self._layer, namespace=self._namespace)
            self._walk_began = now
            self._used = _used_bytes(self._layer)
        end = time.monotonic() + _SLICE_SECONDS
        for found in self._walk:
            self._bytes = found
            if found > self._limit:
                return True
            if time.monotonic() >= end:
                self.due = now + _PAUSE_SECONDS
                return False
        self._walk = None
        self._measured_at = now
        # A program can make a walk take long, which must not give it hours without one.
        self._rest_until = now + min(_SHARE * (now - self._walk_began), _LONGEST_SECONDS)
        return False

    def _wants_measurement(self, now: float) -> bool:
        if now < self._rest_until:
            return False
        growth = _used_bytes(self._layer) - self._used
        return self._bytes + growth > self._limit or now - self._measured_at >= _LONGEST_SECONDS


def _used_bytes(layer: int) -> int:
    found = os.fstatvfs(layer)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def measure(layer: int, *, namespace: int) -> Iterator[int]:
    """The bytes found so far, again and again, until all are found."""
    total = 0
    # The tree first: programs can have millions of descriptors, at no cost.
    for size in _tree_sizes(f"/proc/self/fd/{layer}"):
        total += size
        yield total
    for size in _deleted_sizes(namespace):
        total += size
        yield total


def _tree_sizes(top: str) -> Iterator[int]:
    pending = [top]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    yield _size(entry)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                yield 1 << 62
            # It changed under our eyes.
            elif error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
                raise


def _size(entry: os.DirEntry[str]) -> int:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return 0
    return _ENTRY_BYTES + status.st_blocks * _BLOCK_BYTES // max(1, status.st_nlink)


def _deleted_sizes(namespace: int) -> Iterator[int]:
    """Sizes of files that have no name any more and that a process of the pid namespace holds open."""
    memory = os.memfd_create("device", os.MFD_CLOEXEC)
    seen = {os.fstat(memory).st_dev: set[int]()}
    in_memory = os.fstat(memory).st_dev
    os.close(memory)
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        for status in _unnamed_files(f"/proc/{name}", namespace):
            if status is None:
                yield 0
                continue
            inodes = seen.setdefault(status.st_dev, set())
            if status.st_dev != in_memory and status.st_ino not in inodes:
                inodes.add(status.st_ino)
                yield status.st_blocks * _BLOCK_BYTES


def _unnamed_files(process: str, namespace: int) -> Iterator[os.stat_result | None]:
    """None for each descriptor that is of something else."""
    try:
        if os.stat(f"{process}/ns/pid").st_ino != namespace:
            return
        for name in os.listdir(f"{process}/fd"):
            status = os.stat(f"{process}/fd/{name}")
            is_unnamed = stat.S_ISREG(status.st_mode) and status.st_nlink == 0
            is_on_disk = is_unnamed and not os.readlink(f"{process}/fd/{name}").startswith(_SHARED_MEMORY)
            yield status if is_on_disk else None
    except OSError:  # not ours to look into, or it has just ended
        return
