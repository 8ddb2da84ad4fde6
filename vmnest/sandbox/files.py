"""The files of a sandbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO

from .. import errors
from .._guest.agentd import wire
from ..deadline import NEVER, Deadline
from .workdir import Workdir

if TYPE_CHECKING:
    from ..agent.client import AgentClient
    from ..agent.entries import Entry, Progress, Skipped, Transfer
    from ..agent.files import RemoteFiles
    from ..agent.minimal import MinimalFiles, MinimalReading
    from ..agent.reading import Reading
    from ..agent.sources import Data
    from .localfiles import LocalPath, Place
    from .openfiles import Writer

__all__ = ["Files"]

DEFAULT_SECONDS = 600.0  # to move the content of a file
CALL_SECONDS = 120.0  # for what moves none


class Files:
    """The files of a sandbox. Relative paths begin at its working directory: ``AGENT_SANDBOX_WORKDIR``, or the agent's.

    Memory stays flat, whatever the size of a file or of a directory; only ``read``, ``read_text`` and ``list`` hold
    their result. A file is replaced as a whole or not at all. After a cut, reading goes on where it was, and a write is
    repeated, if its data can be had again. Paths are text; bytes that are no UTF-8 are lone surrogates in it, as
    ``os.fsdecode`` makes them. Only regular files are read and written: never FIFOs, sockets or devices.

    An agent with nothing but the base contract is served through programs that its image has: ``sh``, ``stat``,
    ``find``, ``dd``, ``cp`` and their like. UnsupportedError names what is missing.

    Safe for threads. It holds nothing open.

    Attributes:
        workdir: Where relative paths begin.
    """

    # Most programs that use a sandbox move no files: what that takes is loaded when it is needed.

    def __init__(self, agent: Callable[[Deadline], AgentClient], *, environ: Mapping[str, str] | None = None) -> None:
        self._agent = agent
        self.workdir = Workdir(environ, make=self._make_directory)

    # -- content -------------------------------------------------------------------------------------------------------

    def read(
        self,
        path: str,
        *,
        offset: int = 0,
        length: int | None = None,
        limit: int | None = None,
        timeout: float | None = DEFAULT_SECONDS,
    ) -> bytes:
        """The content of a file, or a part of it.

        Args:
            path: Where it is in the sandbox.
            offset: The first byte to take; beyond the end there is nothing.
            length: The number of bytes; to the end if None.
            limit: The most bytes to take; more of them is an error.
            timeout: Seconds that this may take; None for no end.

        Raises:
            errors.RemoteFileNotFoundError: there is no such file.
            errors.RemoteFileError: it cannot be read, or is larger than ``limit``.
        """
        pieces, count = [], 0
        with self._open(path, offset=offset, length=length, deadline=Deadline(timeout)) as reading:
            for piece in reading.pieces():
                count += len(piece)
                if limit is not None and max(count, reading.expected or 0) > limit:
                    raise errors.RemoteFileError(f"the file {path} in the sandbox is larger than {limit} bytes")
                pieces.append(piece)
        return b"".join(pieces)

    def read_text(
        self,
        path: str,
        *,
        encoding: str = "utf-8",
        limit: int | None = None,
        timeout: float | None = DEFAULT_SECONDS,
    ) -> str:
        """The content of a file as text, strictly.

        Raises:
            errors.RemoteFileError: it is not text in that encoding (or what ``read`` raises).
        """
        data = self.read(path, limit=limit, timeout=timeout)
        try:
            return data.decode(encoding)
        except UnicodeDecodeError as error:
            raise errors.RemoteFileError(
                f"the file {path} in the sandbox is not {encoding} text: {error.reason} at byte {error.start}",
                hint="read() returns the bytes as they are.",
            ) from error

    def write(
        self,
        path: str,
        data: Data,
        *,
        mode: int | None = None,
        timeout: float | None = DEFAULT_SECONDS,
    ) -> int:
        """Write a whole file, replacing what is there, and make its folder. Returns the number of bytes.

        Args:
            path: Where in the sandbox.
            data: Bytes, text that is written as UTF-8, a file in binary mode, or an iterable of bytes.
            mode: The file's permission bits; those of the file that is replaced, else the agent's default, if None.
            timeout: Seconds that this may take; None for no end.

        Raises:
            errors.RemoteFileError: it cannot be written (see its subclasses).
        """
        from ..agent import sources

        deadline = Deadline(timeout)
        source = sources.from_data(data)
        remote = self._for(wire.FEATURE_FILES, deadline)
        return remote.write(self._at(path, deadline), source, mode=mode, deadline=deadline)

    def open_read(self, path: str, *, offset: int = 0) -> BinaryIO:
        """The file as a binary stream that is fetched while it is read. A context manager: close it.

        Raises:
            errors.RemoteFileNotFoundError: there is no such file.
            errors.RemoteFileError: it cannot be read.
        """
        from . import openfiles

        return openfiles.open_reader(self._open(path, offset=offset, length=None, deadline=NEVER))

    def open_write(self, path: str, *, mode: int | None = None) -> Writer:
        """A binary stream whose content becomes the file when it is closed; left by an exception, it becomes nothing.

        What is written waits on this machine: in memory, beyond a megabyte in an unlinked temporary file.
        """
        from . import openfiles

        return openfiles.Writer(lambda data: self.write(path, data, mode=mode, timeout=None))

    # -- directories and names -----------------------------------------------------------------------------------------

    def list(self, path: str = ".", *, depth: int = 1, timeout: float | None = CALL_SECONDS) -> list[Entry]:
        """What is in a directory, ``depth`` levels deep, in the order of the paths; hidden files included.

        Raises:
            errors.RemoteFileNotFoundError: there is no such directory.
            errors.RemoteNotADirectoryError: it is something else.
        """
        deadline = Deadline(timeout)
        remote = self._for(wire.FEATURE_FS, deadline)
        return remote.list(self._at(path, deadline), depth=_check_depth(depth), deadline=deadline)

    def scan(self, path: str = ".", *, depth: int = 1, timeout: float | None = None) -> Iterator[Entry]:
        """The same as ``list``, one entry after the other as they arrive; a cut ends it."""
        deadline = Deadline(timeout)
        remote = self._for(wire.FEATURE_FS, deadline)
        return remote.scan(self._at(path, deadline), depth=_check_depth(depth), deadline=deadline)

    def stat(
        self, path: str, *, follow: bool = True, sha256: bool = False, timeout: float | None = CALL_SECONDS
    ) -> Entry:
        """What is known of a file.

        Args:
            path: Where it is in the sandbox.
            follow: Of a symbolic link: what it leads to, rather than the link.
            sha256: Also the digest of its content, which is read for that in the sandbox.
            timeout: Seconds that this may take; None for no end.

        Raises:
            errors.RemoteFileNotFoundError: there is no such file.
        """
        deadline = Deadline(timeout)
        remote = self._for(wire.FEATURE_FS, deadline)
        return remote.stat(self._at(path, deadline), follow=follow, sha256=sha256, deadline=deadline)

    def exists(self, path: str, *, timeout: float | None = CALL_SECONDS) -> bool:
        """Whether there is anything of that name; a symbolic link counts by itself, wherever it leads."""
        deadline = Deadline(timeout)
        return self._for(wire.FEATURE_FS, deadline).exists(self._at(path, deadline), deadline=deadline)

    def mkdir(
        self,
        path: str,
        *,
        parents: bool = True,
        exist_ok: bool = True,
        mode: int | None = None,
        timeout: float | None = CALL_SECONDS,
    ) -> None:
        """Make a directory.

        Args:
            path: Where in the sandbox.
            parents: Make those above it, too.
            exist_ok: It is fine if there is that directory already.
            mode: The permission bits of a new one.
            timeout: Seconds that this may take; None for no end.

        Raises:
            errors.RemoteFileExistsError: there is something of that name already.
            errors.RemoteFileNotFoundError: there is nothing to make it in.
        """
        deadline = Deadline(timeout)
        remote = self._for(wire.FEATURE_FS, deadline)
        remote.mkdir(self._at(path, deadline), parents=parents, exist_ok=exist_ok, mode=mode, deadline=deadline)

    def remove(
        self,
        path: str,
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        timeout: float | None = DEFAULT_SECONDS,
    ) -> None:
        """Remove a file, a symbolic link (not what it leads to), or a directory.

        Args:
            path: Where it is in the sandbox.
            recursive: Also a directory that is not empty, with all that is in it.
            missing_ok: It is fine if there is no such file.
            timeout: Seconds that this may take; None for no end.

        Raises:
            errors.RemoteFileNotFoundError: there is no such file.
            errors.DirectoryNotEmptyError: it is a directory with something in it.
        """
        deadline = Deadline(timeout)
        remote = self._for(wire.FEATURE_FS, deadline)
        remote.remove(self._at_entry(path, deadline), recursive=recursive, missing_ok=missing_ok, deadline=deadline)

    def copy(
        self,
        source: str,
        destination: str,
        *,
        recursive: bool = False,
        overwrite: bool = True,
        timeout: float | None = DEFAULT_SECONDS,
    ) -> tuple[Skipped, ...]:
        """Copy within the sandbox: a file to exactly that path, a directory's contents into exactly that directory.

        Args:
            source: What is there.
            destination: What it is to be.
            recursive: Also a directory, with all that is in it.
            overwrite: Replace a file that is there.
            timeout: Seconds that this may take; None for no end.

        Returns:
            What of a directory was left out: sockets, FIFOs, devices, what cannot be read.

        Raises:
            errors.RemoteFileNotFoundError: there is no such source.
            errors.RemoteFileExistsError: there is something at the destination, and it is not to be replaced.
            errors.NotAFileError: it is a directory, and ``recursive`` is not set.
        """
        deadline = Deadline(timeout)
        remote = self._for(wire.FEATURE_FS, deadline)
        source, destination = self._at(source, deadline), self._at(destination, deadline)
        return remote.copy(source, destination, recursive=recursive, overwrite=overwrite, deadline=deadline)

    def rename(
        self, source: str, destination: str, *, overwrite: bool = True, timeout: float | None = CALL_SECONDS
    ) -> None:
        """Give a file or a directory another name, replacing a file that has it.

        Raises:
            errors.RemoteFileNotFoundError: there is no such source.
            errors.RemoteFileExistsError: there is something of that name, and ``overwrite`` is not set.
        """
        deadline = Deadline(timeout)
        remote = self._for(wire.FEATURE_FS, deadline)
        source, destination = self._at_entry(source, deadline), self._at(destination, deadline)
        remote.rename(source, destination, overwrite=overwrite, deadline=deadline)

    def chmod(self, path: str, mode: int, *, recursive: bool = False, timeout: float | None = CALL_SECONDS) -> None:
        """Set permission bits: of a file, and with ``recursive`` of all that is in a directory."""
        deadline = Deadline(timeout)
        remote = self._for(wire.FEATURE_FS, deadline)
        remote.chmod(self._at(path, deadline), mode, recursive=recursive, deadline=deadline)

    # -- between this machine and the sandbox --------------------------------------------------------------------------

    def upload(
        self,
        local: LocalPath | Place,
        remote: str,
        *,
        exclude: Sequence[str] = (),
        progress: Callable[[Progress], object] | None = None,
        timeout: float | None = None,
    ) -> Transfer:
        """Send a file to exactly that path, or a directory's contents into exactly that directory.

        Args:
            local: The file or directory on this machine.
            remote: The path in the sandbox. A directory is made, and keeps what else is in it.
            exclude: Patterns of what in a directory is left out: one without a slash meets names at any level, one with
                a slash the path from ``local``, and ``**`` any number of levels.
            progress: Called now and then with what has been moved.
            timeout: Seconds that this may take; None for no end.

        Returns:
            What was moved, and what was left out (sockets, FIFOs, devices, what cannot be read).

        Raises:
            errors.LocalFileError: the file on this machine cannot be read.
            errors.RemoteFileError: the file in the sandbox cannot be written.
        """
        deadline = Deadline(timeout)
        from . import transfer  # here: every command loads this module, and few move directories

        return transfer.upload(
            lambda feature: self._for(feature, deadline),
            local,
            self._at(remote, deadline),
            exclude=exclude,
            progress=progress,
            deadline=deadline,
        )

    def download(
        self,
        remote: str,
        local: LocalPath | Place,
        *,
        exclude: Sequence[str] = (),
        progress: Callable[[Progress], object] | None = None,
        keep_partial: bool = True,
        timeout: float | None = None,
    ) -> Transfer:
        """Fetch a file to exactly that path, or a directory's contents into exactly that directory.

        Nothing that comes out of the sandbox is written outside of ``local``. See ``upload`` for the arguments.

        Args:
            keep_partial: False: when a directory comes only in part, remove what came of it, but nothing else. What it
                has replaced stays replaced. (A file comes as a whole, or not at all.)

        Raises:
            errors.RemoteFileError: the file in the sandbox cannot be read.
            errors.LocalFileError: the file on this machine cannot be written.
        """
        deadline = Deadline(timeout)
        from . import transfer  # here: every command loads this module, and few move directories

        return transfer.download(
            lambda feature: self._for(feature, deadline),
            self._at(remote, deadline),
            local,
            exclude=exclude,
            progress=progress,
            keep_partial=keep_partial,
            deadline=deadline,
        )

    def send_tree(
        self,
        path: str,
        other: Files,
        destination: str,
        *,
        exclude: Sequence[str] = (),
        progress: Callable[[Progress], object] | None = None,
        timeout: float | None = None,
    ) -> Transfer:
        """Send a directory's contents into exactly that directory of another sandbox. Nothing of them is kept here.

        See ``upload`` for the arguments; what ``progress`` counts are the bytes of the archive.

        Raises:
            errors.RemoteFileError: it cannot be read, or not be written there.
        """
        deadline = Deadline(timeout)
        from . import transfer  # here: every command loads this module, and few move directories

        return transfer.relay_tree(
            lambda feature: self._for(feature, deadline),
            self._at(path, deadline),
            lambda feature: other._for(feature, deadline),
            other._at(destination, deadline),
            exclude=exclude,
            progress=progress,
            deadline=deadline,
        )

    # ------------------------------------------------------------------------------------------------------------------

    def _open(self, path: str, *, offset: int, length: int | None, deadline: Deadline) -> Reading | MinimalReading:
        for name, value in (("offset", offset), ("length", length)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise errors.UsageError(f"{name} must be a number of bytes: {value!r}")
        remote = self._for(wire.FEATURE_FILES, deadline)
        return remote.open(self._at(path, deadline), offset=offset, length=length, deadline=deadline)

    def _at(self, path: str, deadline: Deadline) -> str:
        return self.workdir.join(path, deadline)

    def _at_entry(self, path: str, deadline: Deadline) -> str:
        """The same of what is to leave its directory: agents refuse a dot there, and the one that is set stays, too."""
        place = self._at(path, deadline)
        return f"{place}/." if path == "." else place

    def _make_directory(self, path: str, deadline: Deadline) -> None:
        self._for(wire.FEATURE_FS, deadline).mkdir(path, parents=True, exist_ok=True, mode=None, deadline=deadline)

    def _for(self, feature: str, deadline: Deadline) -> RemoteFiles | MinimalFiles:
        """What does it with this agent."""
        client = self._agent(deadline)
        if client.supports(feature, deadline=deadline):
            from ..agent import files

            return files.RemoteFiles(client)
        from ..agent import minimal

        return minimal.MinimalFiles(client)


def _check_depth(depth: int) -> int:
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
        raise errors.UsageError(f"depth must be a number of levels, 1 or more: {depth!r}")
    return depth
