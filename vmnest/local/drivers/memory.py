"""How much memory a sandbox uses, where no control group can be asked to limit it: looked at again and again.

Stand-alone (see ``runtime``). Strategy: what processes have in memory, and the files that they keep there, is summed
up cheaply and too high (a page that two processes share counts twice). Only when that is over the limit each page is
counted once, which costs milliseconds a process, and takes at most a twentieth of the time; a fifth, if the cheap sum
has grown since the last count by more than was free then. The less is free, the sooner the next look: a program can
fill some hundred MiB while nobody looks, not many GiB. While nothing changes the looks grow rarer.

A program can make a count take long, so that much happens until the next. So a count has its time, and processes that
it had none for count as in the cheap sum.

Files without a name (memfd) that no process has mapped are in no process's sum. They are searched for when the whole
machine's shared memory grew by more than the sandbox may still use, or a minute went by.

The pages of files on disk do not count: the kernel takes them away when it needs to.
"""

from __future__ import annotations

import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BYTES_PER_SECOND = 512 * 2**20  # how fast a sandbox is thought to fill its memory, when the next look is planned
_SHORTEST_SECONDS = 0.05
_LONGEST_SECONDS = 1.0
_STEADY_FACTOR = 4
_LOOK_SHARE = 10  # a look that took t seconds, since there are thousands of processes, is followed by a pause of 10 t
_SHARE = 20  # a count that took t seconds is followed by a pause of 20 t,
_LONGEST_REST_SECONDS = 5.0  # or this,
_GROWN_SHARE = 4  # or 4 t if so much came since that it may be too much
_COUNT_SECONDS = 1.0  # of CPU time: on a machine that is busy, a count comes as far
_SEARCH_SECONDS = 60.0
_BLOCK_BYTES = 512
_FILE_BYTES = 1024  # what a file in memory costs beside its pages, as the kernel itself reckons
_TABLE_FIELDS = (b"VmPTE:",)  # a program can fill memory with those of pages that it only reads
_ROUGH_FIELDS = (b"RssAnon:", b"RssShmem:", b"VmSwap:", *_TABLE_FIELDS)
_PRIVATE_FIELDS = (b"Pss_Anon:", b"SwapPss:")
_SHARED_FIELDS = (b"Pss_Shmem:",)


class MemoryWatch:
    """Tells when a sandbox used up its memory. ``due`` is when ``step`` wants to be called, by CLOCK_BOOTTIME."""

    def __init__(self, proc: int, *, limit: int, folders: Sequence[int], now: float) -> None:
        """``proc`` is open on the sandbox's own /proc, ``folders`` on the file systems that it has in memory."""
        self._proc = proc
        self._limit = limit
        self._folders = folders
        self._used = 0
        self._unnamed = 0
        self._searched_at = now
        self._search_rest_until = now
        self._machine_shared = _machine_shared()
        self._rest_until = now
        self._short_rest_until = now
        self._grows_until = 0  # beyond this cheap sum, what was free at the last count may be used up
        self.due = now + _SHORTEST_SECONDS

    def step(self, now: float) -> bool:
        """Look; True if more is in use than the limit."""
        before, began = self._used, time.monotonic()
        self.due = now + _SHORTEST_SECONDS
        files = sum(_used_bytes(folder) for folder in self._folders) + _segment_bytes()
        self._look_for_unnamed(now, headroom=self._limit - files)
        self._used = files + self._unnamed + sum(self._sum(name, "status", _ROUGH_FIELDS) for name in self._processes())
        headroom = self._limit - self._used
        pause = plan_pause(headroom, steady=self._used == before)
        self.due = now + max(pause, _LOOK_SHARE * (time.monotonic() - began))
        return headroom < 0 and self._is_rested(now) and self._count(now, files) > self._limit

    def _is_rested(self, now: float) -> bool:
        return now >= (self._rest_until if self._used <= self._grows_until else self._short_rest_until)

    def _count(self, now: float, files: int) -> int:
        """Each page once. Of what is shared, and may be a file's as well, the larger is taken."""
        private = shared = 0
        began = time.monotonic()
        end = time.thread_time() + _COUNT_SECONDS
        for name in self._processes():
            try:
                pages = self._count_pages(name) if time.thread_time() < end else None
            except PermissionError:
                pages = None
            if pages is None:  # a process that hides itself gets no benefit of the doubt
                pages = self._sum(name, "status", _ROUGH_FIELDS), 0
            private += pages[0]
            shared += pages[1]
        counted = private + max(shared, files + self._unnamed)
        took = time.monotonic() - began
        self._rest_until = now + min(_SHARE * took, _LONGEST_REST_SECONDS)
        self._short_rest_until = now + min(_GROWN_SHARE * took, _LONGEST_REST_SECONDS)
        self._grows_until = self._used + self._limit - counted
        return counted

    def _count_pages(self, process: str) -> tuple[int, int]:
        """What a process has for itself, and its share of what it shares."""
        private = self._sum(process, "smaps_rollup", _PRIVATE_FIELDS) + self._sum(process, "status", _TABLE_FIELDS)
        return private, self._sum(process, "smaps_rollup", _SHARED_FIELDS)

    def _processes(self) -> list[str]:
        """All but process 1, which is ours."""
        return [name for name in os.listdir(self._proc) if name.isdigit() and name != "1"]

    def _sum(self, process: str, file: str, fields: Sequence[bytes]) -> int:
        """Some fields of a process's file, in bytes; nothing if it has just ended."""
        try:
            descriptor = os.open(f"{process}/{file}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        except FileNotFoundError:
            return 0
        try:
            text = os.read(descriptor, 8192)
        except ProcessLookupError:
            return 0
        finally:
            os.close(descriptor)
        # A process chooses its name, which may hold any end of a line but the kernel's own.
        return sum(int(line.split()[1]) * 1024 for line in text.split(b"\n") if line.startswith(tuple(fields)))

    def _look_for_unnamed(self, now: float, *, headroom: int) -> None:
        shared = _machine_shared()
        has_grown = shared - self._machine_shared > headroom - self._unnamed and now >= self._search_rest_until
        if not has_grown and now - self._searched_at < _SEARCH_SECONDS:
            return
        began = time.monotonic()
        self._machine_shared, self._searched_at = shared, now
        self._unnamed = sum({(one.st_dev, one.st_ino): one.st_blocks for one in self._unnamed_files()}.values())
        self._unnamed *= _BLOCK_BYTES
        self._search_rest_until = now + min(_GROWN_SHARE * (time.monotonic() - began), _LONGEST_REST_SECONDS)

    def _unnamed_files(self) -> Iterator[os.stat_result]:
        memory = os.memfd_create("device", os.MFD_CLOEXEC)
        in_memory = os.fstat(memory).st_dev
        os.close(memory)
        end = time.thread_time() + _COUNT_SECONDS
        for process in self._processes():
            if time.thread_time() >= end:  # millions of descriptors: nothing else would be looked after
                return
            try:
                folder = os.open(f"{process}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)
            except OSError:  # not to be looked into, or it has just ended
                continue
            try:
                yield from (one for one in _files_in(folder) if one.st_dev == in_memory)
            finally:
                os.close(folder)


def plan_pause(headroom: int, *, steady: bool) -> float:
    """How long nobody need look when ``headroom`` bytes are free; ``steady``: nothing changed since the last time."""
    pause = min(max(headroom / _BYTES_PER_SECOND, _SHORTEST_SECONDS), _LONGEST_SECONDS)
    return min(pause * _STEADY_FACTOR, _LONGEST_SECONDS) if steady else pause


def _files_in(folder: int) -> Iterator[os.stat_result]:
    """What the links of a process's ``fd`` directory lead to, of ordinary files."""
    try:
        names = os.listdir(folder)
    except OSError:  # the process has ended
        return
    for name in names:
        try:
            status = os.stat(name, dir_fd=folder)
        except OSError:  # closed meanwhile
            continue
        if stat.S_ISREG(status.st_mode):
            yield status


def _used_bytes(folder: int) -> int:
    found = os.fstatvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize + (found.f_files - found.f_ffree) * _FILE_BYTES


def _segment_bytes() -> int:
    """What the System V segments of our namespace, which is the sandbox's, have in memory, attached or not."""
    try:
        with open("/proc/sysvipc/shm", "rb") as reader:
            lines = reader.read().splitlines()[1:]
    except FileNotFoundError:  # a kernel without them
        return 0
    return sum(int(size) for line in lines for size in line.split()[-2:])  # rss and swap, the last two columns


def _machine_shared() -> int:
    with open("/proc/meminfo", "rb") as reader:
        for line in reader:
            if line.startswith(b"Shmem:"):
                return int(line.split()[1]) * 1024
    return 0
