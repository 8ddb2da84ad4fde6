"""Files and directories on their way between this machine and a sandbox.

On this machine only regular files are opened, and what is fetched gets its name when it is complete. What a tree keeps,
and what is refused when one is unpacked, is the same at both ends: see the guest's ``trees``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from .. import errors
from .._guest.agentd import patterns, trees, wire
from ..agent.entries import Progress, Skipped, Transfer, to_text
from ..agent.files import RemoteFiles
from ..agent.sources import Source, from_data
from ..deadline import Deadline
from . import localfiles

if TYPE_CHECKING:
    from ..agent.minimal import MinimalFiles
    from .localfiles import LocalPath, Place

__all__ = ["Progress", "download", "relay_tree", "upload"]

Chooser = Callable[[str], "RemoteFiles | MinimalFiles"]
Watch = Callable[[Progress], object]


def upload(
    choose: Chooser,
    local: LocalPath | Place,
    remote: str,
    *,
    exclude: Sequence[str],
    progress: Watch | None,
    deadline: Deadline,
) -> Transfer:
    """See ``Files.upload``; ``choose`` gives what moves files with this agent."""
    place = localfiles.to_place(local)
    encoded = check_patterns(exclude)
    if localfiles.is_directory(place):
        return _upload_tree(choose, place, remote, exclude=encoded, progress=progress, deadline=deadline)
    file = localfiles.LocalFile(place)
    shown = to_text(place.shown)
    source = Source(_watched(file.pieces, progress, total=file.size, path=shown), size=file.size)
    try:
        count = choose(wire.FEATURE_FILES).write(remote, source, mode=file.mode, deadline=deadline)
    except errors.NotAFileError as error:
        error.add_hint("A file goes to exactly the path that is given: end it with the file's name, not its directory.")
        raise
    skipped = (Skipped(shown, trees.CHANGED),) if file.has_changed else ()
    return Transfer(files=1, bytes=count, skipped=skipped)


def _upload_tree(
    choose: Chooser,
    place: Place,
    remote: str,
    *,
    exclude: Sequence[bytes],
    progress: Watch | None,
    deadline: Deadline,
) -> Transfer:
    localfiles.check_trees()
    total = None if progress is None or place.folder is not None else localfiles.measure(place.name, exclude=exclude)

    def pieces() -> Iterator[bytes]:
        watch = _TreeWatch(progress, total=total)
        with (
            localfiles.translated(place),
            contextlib.closing(
                trees.pack(place.name, dir_fd=place.folder, exclude=exclude, on_member=watch.begin)
            ) as packing,
        ):
            yield from watch.passing(packing)

    return choose(wire.FEATURE_TREE).write_tree(remote, Source(pieces), deadline=deadline)


def download(
    choose: Chooser,
    remote: str,
    local: LocalPath | Place,
    *,
    exclude: Sequence[str],
    progress: Watch | None,
    keep_partial: bool,
    deadline: Deadline,
) -> Transfer:
    """See ``Files.download``; ``choose`` gives what moves files with this agent."""
    place = localfiles.to_place(local)
    check_patterns(exclude)
    try:
        return _download_file(choose, remote, place, progress=progress, deadline=deadline)
    except errors.NotAFileError:
        if not choose(wire.FEATURE_FS).stat(remote, deadline=deadline).is_directory:
            raise
    return _download_tree(
        choose, remote, place, exclude=exclude, progress=progress, keep_partial=keep_partial, deadline=deadline
    )


def _download_file(
    choose: Chooser, remote: str, place: Place, *, progress: Watch | None, deadline: Deadline
) -> Transfer:
    with (
        choose(wire.FEATURE_FILES).open(remote, deadline=deadline) as reading,
        localfiles.replacing(place, mode=reading.mode) as file,
    ):
        for piece in _watched(reading.pieces, progress, total=reading.expected, path=remote)():
            file.write(piece)
        if reading.expected not in (None, file.count):
            raise errors.FileChangedError(
                f"{file.count} bytes of {remote} came from the sandbox, not {reading.expected}"
            )
        if reading.was_cut:
            _verify(choose, remote, file.digest(), deadline=deadline)
    return Transfer(files=1, bytes=file.count)


def _verify(choose: Chooser, remote: str, digest: str, *, deadline: Deadline) -> None:
    """What came in several parts is compared with the file as it is now."""
    there = choose(wire.FEATURE_FS).stat(remote, sha256=True, deadline=deadline).sha256
    if there != digest:
        raise errors.ChecksumMismatchError(f"what came of {remote} from the sandbox is not what is there")


def _download_tree(
    choose: Chooser,
    remote: str,
    place: Place,
    *,
    exclude: Sequence[str],
    progress: Watch | None,
    keep_partial: bool,
    deadline: Deadline,
) -> Transfer:
    localfiles.check_trees()

    def take(pieces: Iterator[bytes]) -> Transfer:
        watch = _TreeWatch(progress, total=None)
        with localfiles.translated(place), _unpacking(remote):
            return _to_transfer(
                trees.unpack(
                    watch.passing(pieces),
                    place.name,
                    dir_fd=place.folder,
                    on_member=watch.begin,
                    undoes=not keep_partial,
                )
            )

    return choose(wire.FEATURE_TREE).read_tree(remote, take, exclude=exclude, deadline=deadline)


def relay_tree(
    choose: Chooser,
    remote: str,
    choose_other: Chooser,
    destination: str,
    *,
    exclude: Sequence[str],
    progress: Watch | None,
    deadline: Deadline,
) -> Transfer:
    """See ``Files.send_tree``; ``choose_other`` gives what moves files with the other sandbox's agent."""
    check_patterns(exclude)

    def take(pieces: Iterator[bytes]) -> Transfer:
        source = from_data(_watched(lambda: pieces, progress, total=None, path=remote)())
        with _unpacking(remote):
            return choose_other(wire.FEATURE_TREE).write_tree(destination, source, deadline=deadline)

    return choose(wire.FEATURE_TREE).read_tree(remote, take, exclude=exclude, deadline=deadline)


def check_patterns(exclude: Sequence[str]) -> list[bytes]:
    """The patterns of what is left out, as bytes.

    Raises:
        errors.UsageError: one cannot be meant.
    """
    if isinstance(exclude, (str, bytes)) or not all(isinstance(each, str) for each in exclude):
        raise errors.UsageError(f"exclude must be a list of patterns: {exclude!r}")
    try:
        encoded = [os.fsencode(each) for each in exclude]
        patterns.Patterns(encoded)
    except ValueError as error:  # or there are no such bytes
        raise errors.UsageError(f"exclude: {error}") from None
    return encoded


@contextlib.contextmanager
def _unpacking(remote: str) -> Iterator[None]:
    """The seam to the archive that came out of the sandbox."""
    try:
        yield
    except trees.UnsafeMemberError as error:
        raise errors.UnsafePathError(f"{remote}: {errors.quote(str(error), limit=500)}") from error
    except trees.ArchiveError as error:
        raise errors.AgentAnswerError(f"{remote}: {errors.quote(str(error), limit=500)}") from error


def _to_transfer(summary: trees.Summary) -> Transfer:
    skipped = [Skipped(to_text(path), reason) for path, reason in summary.skipped]
    if summary.untold:
        skipped.append(Skipped("", f"and {summary.untold} more"))
    return Transfer(summary.files, summary.directories, summary.links, summary.bytes, tuple(skipped))


def _watched(
    pieces: Callable[[], Iterator[bytes]], watch: Watch | None, *, total: int | None, path: str
) -> Callable[[], Iterator[bytes]]:
    """The same pieces; ``watch`` is told of each when it has been taken."""
    if watch is None:
        return pieces

    def watched() -> Iterator[bytes]:
        count = 0
        watch(Progress(count, total, path))
        for piece in pieces():
            yield piece
            count += len(piece)
            watch(Progress(count, total, path))

    return watched


class _TreeWatch:
    """Tells how far a tree is: at most the content of the members that were begun, at most what went over the line."""

    def __init__(self, watch: Watch | None, *, total: int | None) -> None:
        self._watch = watch
        self._total = total
        self._begun = 0
        self._moved = 0
        self._path = ""

    def begin(self, path: bytes, size: int) -> None:
        """The turn of this member has come."""
        self._path = to_text(path)
        self._begun += size

    def passing(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The same blocks, counted."""
        for block in blocks:
            yield block
            self._moved += len(block)
            if self._watch is not None:
                self._watch(Progress(min(self._begun, self._moved), self._total, self._path))
