"""Copies of files and directories: into a sandbox, out of one, within one, from one to another.

The rules are those of cp(1):

- Into a directory that is there goes a file, or a directory, of the source's name; else the copy gets the very name
  that the destination has, in a directory that must be there.
- A source that ends with ``/.`` means what is in the directory; so do ``.``, ``..``, ``/``, a sandbox without a path.
- A file does not take the place of a directory, nor a directory that of a file; two directories are merged.
- A link that is named is followed; links in a directory stay links.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import stat

from .. import errors
from ..deadline import Deadline
from . import files as opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import BinaryIO, Protocol

    from ..agent.entries import Skipped, Transfer
    from ..agent.sources import Data
    from ..sandbox import localfiles
    from ..sandbox.files import Files
    from ..sandbox.transfer import Progress

    Look = Callable[["Place"], str | None]
    Watch = Callable[[Progress], object]

    class Host(Protocol):
        """The files of this machine that may be copied, and be replaced by copies."""

        def look(self, path: str) -> str | None:
            """What is there, links followed: FILE, DIRECTORY or OTHER; None if nothing is."""

        def open(self, path: str) -> AbstractContextManager[localfiles.LocalPath | localfiles.Place]:
            """What to copy from or to."""

        def make_directory(self, path: str) -> None:
            """Make a directory, and those above it; one that is there stays."""


__all__ = [
    "DIRECTORY",
    "FILE",
    "OTHER",
    "Copier",
    "Place",
    "check_whole",
    "describe",
    "kind_of",
    "left_out",
    "resolve_target",
]

FILE, DIRECTORY, OTHER = "file", "directory", "other"
CALL_SECONDS = 120.0  # for what moves no content


class Place:
    """One side of a copy.

    Attributes:
        sandbox: The sandbox's name; None for this machine.
        path: The path there; a relative one begins at the sandbox's, or this process's, working directory.
    """

    __slots__ = ("path", "sandbox")

    def __init__(self, sandbox: str | None, path: str) -> None:
        self.sandbox = sandbox
        self.path = path

    def __str__(self) -> str:
        if self.sandbox is None:
            return self.path
        return f"{self.sandbox}:{'' if self.path == opened.WORKDIR else self.path}"

    def at(self, path: str) -> Place:
        """Another path on the same side."""
        return Place(self.sandbox, path)


class Copier:
    """Copies. Each sandbox is opened once, when it is first needed.

    Args:
        resume: False: refuse suspended sandboxes instead of resuming them.
        local: True: only look for sandboxes on this machine.
        region: AWS region, instead of the recorded ones.
        timeout: Seconds that all that it does may take together; no end by default.
        host: The files of this machine; by default all that this process may reach.
        makes_way: Make the directory in which a copy is to be, if it is absent.
        keeps_partial: What a copy to this machine has made stays here when it fails.
    """

    def __init__(
        self,
        *,
        resume: bool = True,
        local: bool | None = None,
        region: str | None = None,
        timeout: float | None = None,
        host: Host | None = None,
        makes_way: bool = False,
        keeps_partial: bool = True,
    ) -> None:
        self._resume = resume
        self._local = local
        self._region = region
        self._deadline = Deadline(timeout)
        self._host = host or _WholeHost()
        self._makes_way = makes_way
        self._keeps_partial = keeps_partial
        self._opened: dict[str, Files] = {}

    def copy(
        self,
        source: Place,
        destination: Place,
        *,
        recursive: bool = False,
        exclude: Sequence[str] = (),
        progress: Watch | None = None,
    ) -> dict[str, object]:
        """Copy a file or directory. At least one of the sides is in a sandbox.

        Args:
            source: What to copy.
            destination: Where to; see above for what becomes of its name.
            recursive: Copy directories too.
            exclude: Patterns of what to leave out of a directory.
            progress: Called now and then with what was moved so far.
        """
        kind = self._look_at_source(source, recursive=recursive)
        if self._makes_way:
            self._make_way(destination, kind=kind)
        target = resolve_target(source, destination, kind=kind, look=self._look)
        left = self._deadline.remaining()
        if source.sandbox is None:
            with self._host.open(source.path) as here:
                done = self._files(target).upload(here, target.path, exclude=exclude, progress=progress, timeout=left)
        elif target.sandbox is None:
            with self._host.open(target.path) as here:
                done = self._files(source).download(
                    source.path,
                    here,
                    exclude=exclude,
                    progress=progress,
                    keep_partial=self._keeps_partial,
                    timeout=left,
                )
        elif source.sandbox == target.sandbox and not exclude:
            skipped = self._files(source).copy(source.path, target.path, recursive=recursive, timeout=left)
            return describe(source, target, None, skipped=skipped)
        else:
            done = self._copy_across(source, target, kind=kind, exclude=exclude, progress=progress)
        return describe(source, target, done)

    def copy_in(self, data: Data, destination: Place, *, source: Place) -> dict[str, object]:
        """Write data to a file in a sandbox; ``source`` is what to call where they come from."""
        from ..agent.entries import Transfer

        if self._look(destination) == DIRECTORY:
            raise errors.NotAFileError(f"{destination} is a directory", hint="The copy has no name yet: give it one.")
        target = resolve_target(source, destination, kind=FILE, look=self._look)
        count = self._files(target).write(target.path, data, timeout=None)
        return describe(source, target, Transfer(files=1, bytes=count))

    def copy_out(self, source: Place, *, sink: Callable[[bytes], object]) -> int:
        """Hand a file of a sandbox to ``sink`` in pieces; returns the number of bytes."""
        count = 0
        try:
            for piece in opened.stream_file(self._files(source), path=source.path):
                sink(piece)
                count += len(piece)
        except errors.NotAFileError as error:
            if self._look(source) == DIRECTORY:
                error.add_hint(f"This writes a directory, as an archive: {_archiving(source)}")
            raise
        return count

    def move(self, source: Place, destination: Place) -> dict[str, object]:
        """Give a file or directory another name in its sandbox; a link is moved, not what it leads to."""
        origin = source.at(source.path.rstrip("/") or "/")
        entry = self._files(source).stat(origin.path, follow=False, timeout=self._soon())
        kind = DIRECTORY if entry.is_directory else FILE
        target = resolve_target(origin, destination, kind=kind, look=self._look)
        self._files(source).rename(origin.path, target.path, timeout=self._soon())
        return {"source": str(source), "destination": str(target)}

    def check_takes_several(self, destination: Place) -> None:
        """Several things go into a directory: to one name each would take the place of the one before.

        Raises:
            errors.UsageError: there is none.
        """
        if self._look(destination) != DIRECTORY:
            raise errors.UsageError(f"{destination} is no directory, and several things are to go into it")

    def _files(self, place: Place) -> Files:
        assert place.sandbox is not None
        if place.sandbox not in self._opened:
            self._opened[place.sandbox] = opened.open_files(
                name=place.sandbox, resume=self._resume, local=self._local, region=self._region
            )
        return self._opened[place.sandbox]

    def _look(self, place: Place) -> str | None:
        """What is there, links followed; None if nothing is."""
        if place.sandbox is None:
            return self._host.look(place.path)
        try:
            entry = self._files(place).stat(place.path, timeout=self._soon())
        except errors.RemoteFileNotFoundError:
            return None
        return entry.type if entry.type in (FILE, DIRECTORY) else OTHER

    def _soon(self) -> float:
        """Seconds that a call may take that moves no content."""
        return self._deadline.clamp(CALL_SECONDS)

    def _make_way(self, destination: Place, *, kind: str) -> None:
        """Make the directory for a copy; to a file's name that ends with a slash, that directory."""
        if self._look(destination) is not None:
            return
        is_folder = kind == FILE and destination.path.endswith("/")
        path = destination.path if is_folder else posixpath.dirname(destination.path.rstrip("/"))
        if not path:
            return
        if destination.sandbox is None:
            self._host.make_directory(path)
        else:
            self._files(destination).mkdir(path, timeout=self._soon())

    def _look_at_source(self, source: Place, *, recursive: bool) -> str:
        kind = self._look(source)
        if kind is None:
            raise _not_found(source, f"there is no {source}")
        if kind == OTHER:
            raise _irregular(source)
        if kind == DIRECTORY and not recursive:
            raise _not_a_file(source, f"{source} is a directory", hint="With -r it is copied, with all that is in it.")
        return kind

    def _copy_across(
        self, source: Place, target: Place, *, kind: str, exclude: Sequence[str], progress: Watch | None
    ) -> Transfer:
        """From one sandbox to another, through this process."""
        origin, other = self._files(source), self._files(target)
        if kind == DIRECTORY:
            return origin.send_tree(source.path, other, target.path, exclude=exclude, progress=progress)
        from ..agent.entries import Transfer

        entry = origin.stat(source.path)
        with origin.open_read(source.path) as file:
            watched = file if progress is None else _Watched(file, source.path, total=entry.size, watch=progress)
            return Transfer(files=1, bytes=other.write(target.path, watched, mode=entry.mode, timeout=None))


class _Watched:
    """A file that tells how much of it was read."""

    def __init__(self, file: BinaryIO, path: str, *, total: int, watch: Watch) -> None:
        self._file = file
        self._path = path
        self._total = total
        self._watch = watch
        self._count = 0

    def read(self, size: int, /) -> bytes:
        from ..sandbox.transfer import Progress

        data = self._file.read(size)
        self._count += len(data)
        self._watch(Progress(self._count, self._total, self._path))
        return data


def resolve_target(source: Place, destination: Place, *, kind: str, look: Look) -> Place:
    """Where exactly the copy of a file or directory shall be.

    Args:
        source: What is copied.
        destination: What the user gave.
        kind: Whether the source is a file or a directory.
        look: Tells what is at a place: FILE, DIRECTORY, OTHER or None.

    Raises:
        errors.VmnestError: it cannot be there.
    """
    found = look(destination)
    if found is None:
        target = _new_target(destination, kind=kind, look=look)
        _check_apart(source, target, kind=kind)
        return target
    name = _own_name(source.path)
    target = destination
    if found == DIRECTORY and name:
        target = destination.at(posixpath.join(destination.path, name))
        found = look(target)
    if found is not None:
        _check_old(target, found, kind=kind)
    _check_apart(source, target, kind=kind)
    return target


def _own_name(path: str) -> str:
    """What a copy in a directory is called; empty for a path that means what is in a directory."""
    name = posixpath.basename(path.rstrip("/"))
    return "" if name in (".", "..") else name


def _new_target(destination: Place, *, kind: str, look: Look) -> Place:
    if kind == FILE and destination.path.endswith("/"):
        raise _not_found(destination, f"there is no directory {destination}")
    path = destination.path.rstrip("/")
    parent = destination.at(posixpath.dirname(path) or opened.WORKDIR)
    above = look(parent)
    if above is None:
        raise _not_found(parent, f"there is no directory {parent}")
    if above != DIRECTORY:
        raise _not_a_directory(parent)
    return destination.at(path)


def _check_old(target: Place, found: str, *, kind: str) -> None:
    """What is there may be replaced, or merged with."""
    if found == kind == FILE and target.path.endswith("/"):
        raise _not_a_directory(target)
    if found == kind:
        return
    if found == DIRECTORY:
        raise _not_a_file(target, f"{target} is a directory, and no file takes its place")
    if kind == DIRECTORY:
        raise _not_a_directory(target)
    raise _irregular(target)


def _check_apart(source: Place, target: Place, *, kind: str) -> None:
    """A copy onto the thing itself loses it, and one of a directory into itself has no end."""
    if source.sandbox != target.sandbox:
        return
    here, there = (posixpath.normpath(place.path) for place in (source, target))
    if here == there:
        raise errors.UsageError(f"{source} and {target} are the same")
    below_workdir = here == opened.WORKDIR and not there.startswith(("/", ".."))
    if kind == DIRECTORY and (below_workdir or there.startswith(here.rstrip("/") + "/")):
        raise errors.UsageError(f"{source} cannot go into itself, to {target}")


class _WholeHost:
    """See ``Host``: all files that this process may reach."""

    def look(self, path: str) -> str | None:
        return _look_here(Place(None, path))

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[localfiles.LocalPath]:
        # A link stays; what it leads to is copied, and replaced.
        yield os.path.realpath(path) if os.path.islink(path) else path

    def make_directory(self, path: str) -> None:
        from ..sandbox import localfiles

        with localfiles.translated(path):
            os.makedirs(path, exist_ok=True)


def _look_here(place: Place) -> str | None:
    try:
        mode = os.stat(place.path).st_mode
    except FileNotFoundError:
        if os.path.islink(place.path):
            raise errors.LocalFileError(f"{place} is a link that leads nowhere") from None
        return None
    except OSError as error:
        raise errors.LocalFileError(f"cannot look at {place}: {error.strerror}") from error
    except ValueError as error:  # a NUL
        raise errors.UsageError(f"not a path: {place.path!r}") from error
    return kind_of(mode)


def kind_of(mode: int) -> str:
    """FILE, DIRECTORY or OTHER, by what the system says of it."""
    if stat.S_ISREG(mode):
        return FILE
    return DIRECTORY if stat.S_ISDIR(mode) else OTHER


def _archiving(place: Place) -> str:
    import shlex

    path = place.path if place.path.startswith(("/", ".")) else f"./{place.path}"  # it may begin with a dash
    return f"vmnest exec {place.sandbox} -- tar -cf - {shlex.quote(path)}"


def _not_found(place: Place, message: str) -> errors.VmnestError:
    if place.sandbox is None:
        return errors.LocalFileNotFoundError(message)
    return errors.RemoteFileNotFoundError(message)


def _not_a_file(place: Place, message: str, *, hint: str | None = None) -> errors.VmnestError:
    kind = errors.LocalFileError if place.sandbox is None else errors.NotAFileError
    return kind(message, hint=hint)


def _irregular(place: Place) -> errors.VmnestError:
    hint = "A dash in its place means standard input or output." if place.sandbox is None else None
    return _not_a_file(place, f"{place} is neither a file nor a directory", hint=hint)


def _not_a_directory(place: Place) -> errors.VmnestError:
    kind = errors.LocalFileError if place.sandbox is None else errors.RemoteNotADirectoryError
    return kind(f"{place} is no directory")


def left_out(copied: Iterable[dict[str, object]]) -> list[dict[str, str]]:
    """All that was left out of these copies, or did not arrive as it was."""
    skipped: list[dict[str, str]] = []
    for each in copied:
        found = each["skipped"]
        assert isinstance(found, list)
        skipped += found
    return skipped


def check_whole(copied: Iterable[dict[str, object]]) -> None:
    """Raise IncompleteCopyError unless all that was left out is what no copy has: sockets, pipes, devices."""
    from .._guest.agentd import trees

    lost = [each for each in left_out(copied) if each["reason"] not in trees.NO_FILES]
    if lost:
        first = f"{lost[0]['path']}: {lost[0]['reason']}" if lost[0]["path"] else lost[0]["reason"]
        more = f" ({len(lost) - 1} more)" if len(lost) > 1 else ""
        raise errors.IncompleteCopyError(
            f"not everything was copied: {first}{more}",
            hint="Leave it out with --exclude, or take all as it is, in an archive: vmnest exec NAME -- tar -cf - PATH",
        )


def describe(
    source: Place, target: Place, done: Transfer | None, *, skipped: Iterable[Skipped] = ()
) -> dict[str, object]:
    """A copy as ``--json`` and the MCP server show it. Of one within a sandbox nobody counts what it moved."""
    return {
        "source": str(source),
        "destination": str(target),
        "files": None if done is None else done.files,
        "directories": None if done is None else done.directories,
        "links": None if done is None else done.links,
        "bytes": None if done is None else done.bytes,
        "skipped": [each._asdict() for each in (skipped if done is None else done.skipped)],
    }
