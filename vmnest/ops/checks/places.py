"""What can be wrong with a file or a folder of ours: others get at it, we cannot write it, there is no room."""

from __future__ import annotations

import os
import shlex
import stat

from ... import daemon, systems
from . import check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Finding", "combine", "free_bytes", "look_at_access", "look_at_room", "look_at_writing", "nearest"]

SCANT_BYTES = 64 * 2**20


class Finding:
    """Something that is not as it should be: a verdict, what it is, and what to do about it."""

    __slots__ = ("remedy", "text", "verdict")

    def __init__(self, verdict: str, text: str, *, remedy: str | None = None) -> None:
        self.verdict = verdict
        self.text = text
        self.remedy = remedy


def combine(
    name: str, *, title: str, fine: str, findings: Iterable[Finding], data: Mapping[str, object] | None = None
) -> check.Check:
    """One check of several findings, as bad as the worst; ``fine`` is the detail where there is none."""
    found = sorted(findings, key=lambda finding: finding.verdict != check.FAILED)
    remedies = dict.fromkeys(finding.remedy for finding in found if finding.remedy)
    return check.Check(
        name,
        title=title,
        verdict=found[0].verdict if found else check.OK,
        detail="; ".join(dict.fromkeys(finding.text for finding in found)) or fine,
        remedy="\n".join(remedies) or None,
        data=data,
    )


def nearest(path: str) -> str:
    """The path itself, or what exists above it: where it would be made."""
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def look_at_access(path: str, *, wanted: int) -> Iterator[Finding]:
    """Whether a file or folder is ours, and no more open than ``wanted``; what is not there is fine."""
    try:
        status = os.stat(path)
    except OSError:  # it is not there, or the way to it is closed, which its use tells
        return
    uid = systems.user_id()
    if uid is None:  # neither owners nor modes
        return
    if status.st_uid != uid:
        yield Finding(
            check.WARNING,
            f"{path} belongs to uid {status.st_uid}, not to us ({uid})",
            remedy=f"Use vmnest as one user, without sudo, and give that user the file: chown USER {shlex.quote(path)}",
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & ~wanted & 0o077:
        text = f"others can get at {path} (mode {mode:04o})"
        yield Finding(check.WARNING, text, remedy=f"chmod {mode & wanted | 0o600:o} {shlex.quote(path)}")


def look_at_writing(folder: str, *, variable: str) -> Iterator[Finding]:
    """Whether files can be made in a folder, or in what exists above it; ``variable`` is what names another place."""
    place = nearest(folder)
    elsewhere = f"Set {variable} to another place."
    if not os.path.isdir(place):
        yield Finding(check.FAILED, f"{place} is not a directory", remedy=elsewhere)
    elif hasattr(os, "statvfs") and os.statvfs(place).f_flag & os.ST_RDONLY:
        yield Finding(check.FAILED, f"{place} is on a file system that is read-only", remedy=elsewhere)
    elif not os.access(place, os.W_OK | os.X_OK):
        is_ours = os.stat(place).st_uid == systems.user_id()
        remedy = f"chmod u+rwx {shlex.quote(place)}" if is_ours else elsewhere
        yield Finding(check.FAILED, f"{place} cannot be written to", remedy=remedy)


def look_at_room(folder: str, *, variable: str) -> Iterator[Finding]:
    """The room on the disk that a folder is on, or would be."""
    place = nearest(folder)
    remedy = f"Make room (df -h {shlex.quote(place)}), or set {variable} to another place."
    if hasattr(os, "statvfs") and daemon.is_full(place):
        yield Finding(check.FAILED, f"the disk of {place} is full", remedy=remedy)
    elif free_bytes(place) < SCANT_BYTES:
        left = f"{free_bytes(place) // 2**20} MiB"
        yield Finding(check.WARNING, f"there is little room on the disk of {place}: {left}", remedy=remedy)


def free_bytes(path: str) -> int:
    """What can be written where the path is, or would be."""
    if not hasattr(os, "statvfs"):
        import shutil

        return shutil.disk_usage(nearest(path)).free
    found = os.statvfs(nearest(path))
    return found.f_bavail * found.f_frsize
