"""Who a sandbox is on the host: a uid that owns nothing, where we may choose; else ourselves.

Root must not be it: inside a user namespace that maps root's uid, everything that is root's alone on the host
(/etc/shadow, ~/.ssh) could still be read.
"""

from __future__ import annotations

import hashlib
import os
import pwd
from collections.abc import Iterator, Sequence

# systemd's table of uids calls this range unused (0x7fffffff is the last that fits every program's int).
_HIGH_FIRST = 1879048192
_HIGH_LAST = 2147483647
_LOW_FIRST = 1000
_LOW_AVOIDED = (65534, 65535)  # nobody, and the uid that means "none" to old calls
_FILE_NAME = "sandbox-uid"


def choose(folder: str) -> int | None:
    """The uid of this state folder's sandboxes, the same each time; None: we are not root, or have no second uid."""
    if os.geteuid() != 0:
        return None
    with open("/proc/self/uid_map", encoding="ascii") as table:
        ranges = parse_map(table.read())
    record = os.path.join(folder, _FILE_NAME)
    known = _load(record)
    if known is not None and _is_mapped(known, ranges):
        return known
    place = os.stat(folder)
    uid = next(candidates(ranges, seed=f"{place.st_dev}:{place.st_ino}"), None)
    if uid is not None:
        descriptor = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="ascii") as writer:
            writer.write(f"{uid}\n")
    return uid


def parse_map(text: str) -> list[tuple[int, int]]:
    """First and last uid of each line of a ``uid_map``."""
    rows = [line.split() for line in text.splitlines()]
    return [(int(first), int(first) + int(count) - 1) for first, _, count in rows]


def candidates(ranges: Sequence[tuple[int, int]], *, seed: str) -> Iterator[int]:
    """Uids that exist in this user namespace and belong to nobody, from a place that the seed picks."""
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")
    for first, last in _usable(ranges):
        size = last - first + 1
        for step in range(min(size, 4096)):
            uid = first + (number + step) % size
            if uid not in _LOW_AVOIDED and not _has_name(uid):
                yield uid


def _usable(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The high range where it is mapped, then the upper half of each other mapped range."""
    for first, last in ranges:
        if first <= _HIGH_FIRST and last >= _HIGH_FIRST:
            yield _HIGH_FIRST, min(last, _HIGH_LAST)
    for first, last in ranges:
        low = max(_LOW_FIRST, first + (min(last, _HIGH_FIRST - 1) - first) // 2)
        if low <= min(last, _HIGH_FIRST - 1):
            yield low, min(last, _HIGH_FIRST - 1)


def _load(record: str) -> int | None:
    try:
        with open(record, encoding="ascii") as reader:
            text = reader.read(16).strip()
    except FileNotFoundError:
        return None
    return int(text) if text.isdigit() else None


def _is_mapped(uid: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return uid >= _LOW_FIRST and any(first <= uid <= last for first, last in ranges)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
