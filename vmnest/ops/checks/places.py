"""What can be wrong with a file or a folder of ours: others get at it, we cannot write it, there is no room."""

from __future__ import annotations

import os
import shlex
import stat

from ... import daemon
from . import check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Finding", "combine", "look_at_file", "look_at_folder", "look_at_room", "nearest"]

_SCANT_BYTES = 64 * 2**20


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
        detail="; ".join(finding.text for finding in found) or fine,
        remedy="\n".join(remedies) or None,
        data=data,
    )


def nearest(path: str) -> str:
    """The path itself, or what exists above it: where it would be made."""
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def look_at_file(path: str) -> Iterator[Finding]:
    """A file that nobody else shall read or write; it need not exist."""
    try:
        status = os.stat(path)
    except OSError:  # it is not there, or the way to it is closed, which reading it tells
        return
    yield from _look_at_owner(path, status)
    if stat.S_IMODE(status.st_mode) & 0o077:
        yield _open_to_others(path, status, wanted="600")


def look_at_folder(path: str, *, private: bool) -> Iterator[Finding]:
    """A folder that we make files in; it need not exist.

    Args:
        path: The folder.
        private: It is for us alone. One that the user has chosen may be read by others, but not be written by them.
    """
    place = nearest(path)
    if not os.path.isdir(place):
        yield Finding(check.FAILED, f"{place} is not a directory")
        return
    if not os.access(place, os.W_OK | os.X_OK):
        yield Finding(check.FAILED, f"{place} cannot be written to", remedy=f"chmod u+rwx {shlex.quote(place)}")
    if place != path:
        return  # what is above it is not ours to judge
    status = os.stat(place)
    if private:
        yield from _look_at_owner(place, status)
    mode = stat.S_IMODE(status.st_mode)
    if mode & (0o077 if private else 0o022) and not mode & stat.S_ISVTX:
        yield _open_to_others(place, status, wanted="700" if private else "go-w")


def _look_at_owner(path: str, status: os.stat_result) -> Iterator[Finding]:
    if status.st_uid != os.geteuid():
        yield Finding(
            check.WARNING,
            f"{path} belongs to uid {status.st_uid}, not to us ({os.geteuid()})",
            remedy=f"Run vmnest as one user, not now and then with sudo: sudo chown -R USER {shlex.quote(path)}",
        )


def _open_to_others(path: str, status: os.stat_result, *, wanted: str) -> Finding:
    text = f"others can get at {path} (mode {stat.S_IMODE(status.st_mode):04o})"
    return Finding(check.WARNING, text, remedy=f"chmod {wanted} {shlex.quote(path)}")


def look_at_room(path: str) -> Iterator[Finding]:
    """The file system that the path is on, or would be."""
    place = nearest(path)
    if daemon.is_full(place):
        yield Finding(check.FAILED, f"the disk of {place} is full", remedy=f"Make room: df -h {shlex.quote(place)}")
    elif free_bytes(place) < _SCANT_BYTES:
        text = f"there is little room left on the disk of {place}: {free_bytes(place) // 2**20} MiB"
        yield Finding(check.WARNING, text, remedy=f"Make room: df -h {shlex.quote(place)}")


def free_bytes(path: str) -> int:
    """What can be written where the path is, or would be."""
    found = os.statvfs(nearest(path))
    return found.f_bavail * found.f_frsize
