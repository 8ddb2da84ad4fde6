"""A directory becomes a zip, with as many threads as there are cores and little memory.

The thread that calls reads the files, in the order of the entries, and writes the zip in that order; in between, pieces
of work (a batch of small files, or a piece of a large one) are compressed by a few threads. What was read and is not
written yet is bounded. ``Package.digest`` is made of the content alone: another compressor, or another version of
zlib, makes other bytes of the same zip, and no new image is to be built for that.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import BinaryIO, NamedTuple, cast

from .. import errors, systems
from . import compression, scanning, zipfiles
from .machines import machine_of
from .source import DOCKERFILE

BATCH_BYTES = 512 * 1024
BATCH_FILES = 256
MAX_THREADS = 4
_LARGE_BYTES = 0xFFFFFFFF // 4 * 3  # may reach 4 GiB while it is read, or packed
_AGENT = "agentd/serve.py"
_MAX_DOCKERFILE_BYTES = 1 << 20


class Package:
    """A zip that was packed, in a temporary file that is gone once it is closed. Use it in a ``with``.

    Attributes:
        file: The zip, for reading; at its beginning.
        size: Bytes of the zip.
        digest: Of the content, as hex: the same for the same names, modes, links and data.
        names: Of all files and links.
        content_size: Bytes of all files.
        warnings: For the user: what was left out, and what is odd.
        machines: Kind of processor → programs and libraries for it.
        dockerfile: The text of the Dockerfile.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        size: int,
        digest: str,
        names: frozenset[str],
        content_size: int,
        warnings: tuple[str, ...],
        machines: dict[str, tuple[str, ...]],
        dockerfile: str,
    ) -> None:
        self.file = file
        self.size = size
        self.digest = digest
        self.names = names
        self.content_size = content_size
        self.warnings = warnings
        self.machines = machines
        self.dockerfile = dockerfile

    @property
    def has_agent(self) -> bool:
        """The guest agent is in it."""
        return _AGENT in self.names

    def close(self) -> None:
        """Remove the zip."""
        self.file.close()

    def __enter__(self) -> Package:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def pack(path: str, *, threads: int | None = None, on_progress: Callable[[int, int], None] | None = None) -> Package:
    """Pack a directory.

    Args:
        path: It has a Dockerfile at its top level.
        threads: That compress; as many as there are cores, at most 4, by default.
        on_progress: Called with the bytes that were read and that there are.

    Raises:
        errors.GuestImageError: something in it cannot be packed.
        errors.LocalFileError: the zip cannot be written: the disk of the temporary folder is full, say.
    """
    tree = scanning.scan(path)
    scanning.check_size(tree.size)
    count = threads or min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2, MAX_THREADS)
    try:
        file = cast("BinaryIO", tempfile.TemporaryFile(prefix="vmnest-"))  # noqa: SIM115 - the package closes it
    except OSError as error:
        raise _unwritable(error) from error
    try:
        run = _Run(tree, file, report=on_progress)
        with ThreadPoolExecutor(count, thread_name_prefix="vmnest-zip") as pool:
            run.pack(pool, most=count + 1)
        return run.finish()
    except BaseException:
        file.close()
        raise


class _Piece(NamedTuple):
    """Data that was read. A small file is one piece, ``is_first`` and ``is_last``."""

    entry: scanning.Entry
    data: bytes
    dictionary: bytes = b""
    is_first: bool = True
    is_last: bool = True


class _Packed(NamedTuple):
    """A piece with what was made of it; ``digest`` only of whole files."""

    piece: _Piece
    data: bytes
    method: int
    crc: int
    digest: bytes


class _Run:
    """One package on its way."""

    def __init__(self, tree: scanning.Tree, file: BinaryIO, *, report: Callable[[int, int], None] | None) -> None:
        self._tree = tree
        self._file = file
        self._writer = zipfiles.Writer(file)
        self._codec = compression.choose()
        self._report = report
        self._waiting: deque[Future[list[_Packed]]] = deque()
        self._open: zipfiles.Open | None = None
        self._crc = 0
        self._size = 0
        self._hash = hashlib.sha256()
        self._content = hashlib.sha256()
        self._done = 0
        self._machines: dict[str, list[str]] = {}
        self._dockerfile = b""

    def pack(self, pool: ThreadPoolExecutor, *, most: int) -> None:
        """Read, have compressed, and write, with at most so much under way."""
        try:
            for batch in self._batches():
                self._waiting.append(pool.submit(self._compress, batch))
                if len(self._waiting) > most:
                    self._write_next()
            while self._waiting:
                self._write_next()
        finally:
            for waiting in self._waiting:
                waiting.cancel()

    def finish(self) -> Package:
        """The package; its file is at the beginning."""
        try:
            size = self._writer.close()
            self._file.flush()
            self._file.seek(0)
        except OSError as error:
            raise _unwritable(error) from error
        return Package(
            self._file,
            size=size,
            digest=self._content.hexdigest(),
            names=frozenset(entry.name for entry in self._tree.entries if not entry.is_directory),
            content_size=self._done,
            warnings=self._tree.warnings,
            machines={machine: tuple(found) for machine, found in self._machines.items()},
            dockerfile=self._dockerfile.decode("utf-8", "replace"),
        )

    # -- reading -------------------------------------------------------------------------------------------------------

    def _batches(self) -> Iterator[list[_Piece]]:
        batch: list[_Piece] = []
        size = 0
        for piece in self._pieces():
            if batch and (size + len(piece.data) > BATCH_BYTES or len(batch) == BATCH_FILES):
                yield batch
                batch, size = [], 0
            batch.append(piece)
            size += len(piece.data)
        if batch:
            yield batch

    def _pieces(self) -> Iterator[_Piece]:
        for entry in self._tree.entries:
            if stat.S_ISREG(entry.mode):
                yield from _read(entry)
            else:
                yield _Piece(entry, (entry.target or "").encode())

    # -- compressing: in the pool's threads ----------------------------------------------------------------------------

    def _compress(self, batch: list[_Piece]) -> list[_Packed]:
        return [self._compress_piece(piece) for piece in batch]

    def _compress_piece(self, piece: _Piece) -> _Packed:
        is_whole = piece.is_first and piece.is_last
        digest = hashlib.sha256(piece.data).digest() if is_whole else b""
        crc = zlib.crc32(piece.data) if is_whole else 0
        if not piece.data and is_whole:
            return _Packed(piece, b"", zipfiles.STORED, 0, digest)
        packed = compression.deflate(self._codec, piece.data, dictionary=piece.dictionary, is_last=piece.is_last)
        if is_whole and len(packed) >= len(piece.data):
            return _Packed(piece, piece.data, zipfiles.STORED, crc, digest)
        return _Packed(piece, packed, zipfiles.DEFLATED, crc, digest)

    # -- writing -------------------------------------------------------------------------------------------------------

    def _write_next(self) -> None:
        for packed in self._waiting.popleft().result():
            try:
                self._write(packed)
            except OSError as error:
                raise _unwritable(error) from error
            if stat.S_ISREG(packed.piece.entry.mode):
                self._done += len(packed.piece.data)
            if self._report is not None:
                self._report(self._done, max(self._done, self._tree.size))

    def _write(self, packed: _Packed) -> None:
        piece = packed.piece
        entry = piece.entry
        if piece.is_first:
            self._note(entry, piece.data)
        if piece.is_first and piece.is_last:
            name = f"{entry.name}/" if entry.is_directory else entry.name
            self._writer.add(
                name, mode=entry.mode, method=packed.method, crc=packed.crc, size=len(piece.data), data=packed.data
            )
            self._tell_content(entry, len(piece.data), packed.digest)
            return
        if piece.is_first:
            self._open = self._writer.begin(entry.name, mode=entry.mode, is_large=entry.size >= _LARGE_BYTES)
            self._crc, self._size, self._hash = 0, 0, hashlib.sha256()
        assert self._open is not None
        self._writer.write(packed.data)
        self._crc = zlib.crc32(piece.data, self._crc)
        self._hash.update(piece.data)
        self._size += len(piece.data)
        if piece.is_last:
            self._writer.end(self._open, method=zipfiles.DEFLATED, crc=self._crc, size=self._size)
            self._tell_content(entry, self._size, self._hash.digest())

    def _tell_content(self, entry: scanning.Entry, size: int, digest: bytes) -> None:
        name = entry.name.encode()
        self._content.update(b"%o %d %d %s %s\n" % (entry.mode, size, len(name), name, digest))

    def _note(self, entry: scanning.Entry, start: bytes) -> None:
        if not stat.S_ISREG(entry.mode):
            return
        if entry.name == DOCKERFILE:
            self._dockerfile = start[:_MAX_DOCKERFILE_BYTES]
        machine = machine_of(entry.name, start)
        if machine is not None:
            self._machines.setdefault(machine, []).append(entry.name)


def _read(entry: scanning.Entry) -> Iterator[_Piece]:
    """A file's pieces: one, if it is small. It may grow or shrink meanwhile: what is read counts."""
    try:
        # O_NOFOLLOW, O_NONBLOCK: something else may stand in its place by now.
        descriptor = os.open(entry.path, os.O_RDONLY | systems.CLOEXEC | systems.NOFOLLOW | systems.NONBLOCK)
        with open(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise errors.GuestImageError(f"{entry.path} was a file, and is none any more")
            yield from _cut(entry, file)
    except OSError as error:
        raise errors.GuestImageError(
            f"cannot read {entry.path}: {error.strerror or error}",
            hint="Make it readable, or exclude it in .dockerignore.",
        ) from error


def _cut(entry: scanning.Entry, file: BinaryIO) -> Iterator[_Piece]:
    current, dictionary, is_first = _fill(file), b"", True
    while True:
        following = _fill(file) if len(current) == compression.PIECE_BYTES else b""
        yield _Piece(entry, current, dictionary, is_first=is_first, is_last=not following)
        if not following:
            return
        dictionary, current, is_first = current[-compression.DICTIONARY_BYTES :], following, False


def _fill(file: BinaryIO) -> bytes:
    """The next piece, whole unless it is the last."""
    data = file.read(compression.PIECE_BYTES)
    while data and len(data) < compression.PIECE_BYTES and (more := file.read(compression.PIECE_BYTES - len(data))):
        data += more
    return data


def _unwritable(error: OSError) -> errors.LocalFileError:
    return errors.LocalFileError(
        f"cannot write the zip in {tempfile.gettempdir()}: {error.strerror or error}",
        hint="Make room there, or set TMPDIR to a folder on a larger disk.",
    )
