"""A directory as a tar stream that is made while it is read. What is kept and what is not: see ``trees``."""

from __future__ import annotations

import contextlib
import os
import stat

from . import archives, descents, patterns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

CHANGED = "changed while it was read"
CUT_SHORT = "changed while it was read: it became shorter, zeros stand for the rest"
OF_THE_KERNEL = "a file system of the kernel"

_READ_BYTES = 256 * 1024
_SEND_BYTES = 192 * 1024
_MAX_REMEMBERED_LINKS = 32768
_FILE_FLAGS: int = (
    os.O_RDONLY | descents.NOFOLLOW | descents.CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
)
_KERNEL_FOLDERS = ("/proc", "/sys")
_IRREGULAR = {
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Reasons for leaving out what no copy is expected to have.
NO_FILES = frozenset({*_IRREGULAR.values(), OF_THE_KERNEL})


def pack(
    root: bytes,
    *,
    dir_fd: int | None = None,
    exclude: Iterable[bytes] = (),
    on_member: Callable[[bytes, int], object] | None = None,
) -> Packing:
    """The content of a directory as a tar stream. Whoever does not read it to its end calls ``close``.

    Args:
        root: The directory; it may be a link to one. Every other link is packed as it is.
        dir_fd: A directory in which ``root`` is a name; then it may be no link.
        exclude: What is left out, see ``patterns``.
        on_member: Told the path below ``root`` and the size of each member when its turn comes. An OSError of its own
            would count as one of the member.

    Raises:
        OSError: ``root`` is no directory, or cannot be opened.
        ValueError: a pattern cannot be used.
    """
    excluded = patterns.Patterns(exclude)
    return Packing(descents.Descent(root, dir_fd=dir_fd), excluded=excluded, on_member=on_member)


class Packing:
    """An archive in the making: an iterator of blocks. In memory are the names of one directory a level.

    Directories come before what is in them, files before the directories beside them. Whoever does not read it to the
    end closes it.
    """

    def __init__(
        self, place: descents.Descent, *, excluded: patterns.Patterns, on_member: Callable[[bytes, int], object] | None
    ) -> None:
        self._place = place
        self._excluded = excluded
        self._on_member = on_member
        self._links: dict[tuple[int, int], tuple[bytes, int]] = {}  # a file: its first name, and how many more it has
        self._names_left = 0
        self._kernel_devices = _find_kernel_devices() - {os.fstat(place.descriptor).st_dev}
        self._blocks = _gather(self._pack_tree())

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._blocks)
        except BaseException:  # its end among them
            self.close()
            raise

    def close(self) -> None:
        """Give everything back. Idempotent."""
        self._blocks.close()
        self._place.close()

    def _pack_tree(self) -> Generator[bytes, None, None]:
        folders = [b""]
        while folders:
            below: list[bytes] = []
            yield from self._pack_folder(folders.pop(), below)
            folders += reversed(below)
        yield archives.END

    def _pack_folder(self, folder: bytes, below: list[bytes]) -> Iterator[bytes]:
        """A directory and the files in it; ``below`` gets the directories."""
        try:
            self._place.move(folder.split(b"/") if folder else ())
            status = os.fstat(self._place.descriptor)
            names = self._place.list_names()
        except OSError as error:
            yield _note(folder or b".", explain(error))
            return
        if status.st_dev in self._kernel_devices:
            yield _note(folder, OF_THE_KERNEL)
            return
        yield self._encode(folder or b".", status, kind=archives.DIRECTORY)
        for name in names:
            path = folder + b"/" + name if folder else name
            try:
                status = os.stat(name, dir_fd=self._place.descriptor, follow_symlinks=False)
            except OSError as error:
                yield _note(path, explain(error))
                continue
            is_folder = stat.S_ISDIR(status.st_mode)
            if self._excluded.match(path, is_folder=is_folder):
                continue
            if is_folder:
                below.append(path)
            else:
                yield from self._pack_member(path, name, status)

    def _pack_member(self, path: bytes, name: bytes, status: os.stat_result) -> Iterator[bytes]:
        kind = stat.S_IFMT(status.st_mode)
        try:
            if kind == stat.S_IFREG:
                first = self._take_first_name(status)
                if first is None:
                    yield from self._pack_content(path, name)
                else:
                    yield self._encode(path, status, kind=archives.HARD_LINK, target=first)
                self._remember_name(first or path, status)
            elif kind == stat.S_IFLNK:
                target = os.readlink(name, dir_fd=self._place.descriptor)
                yield self._encode(path, status, kind=archives.SYMBOLIC_LINK, target=target)
            else:
                yield _note(path, _IRREGULAR.get(kind, "neither a file nor a directory"))
        except OSError as error:
            yield _note(path, explain(error))

    def _pack_content(self, path: bytes, name: bytes) -> Iterator[bytes]:
        descriptor = os.open(name, _FILE_FLAGS, dir_fd=self._place.descriptor)
        try:
            yield from self._pack_file(path, descriptor)
        finally:
            os.close(descriptor)

    def _pack_file(self, path: bytes, descriptor: int) -> Iterator[bytes]:
        """A file with the length that it has at the beginning, whatever happens to it."""
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):  # it was one when the directory was read
            yield _note(path, CHANGED)
            return
        yield self._encode(path, status, kind=archives.FILE)
        left = status.st_size
        problem = ""
        while left:
            try:
                piece = os.read(descriptor, min(left, _READ_BYTES))
            except OSError as error:
                piece, problem = b"", f"could not be read to its end, zeros stand for the rest: {explain(error)}"
            if not piece:
                problem = problem or CUT_SHORT
                break
            left -= len(piece)
            yield piece
        while left:
            piece = bytes(min(left, _READ_BYTES))
            left -= len(piece)
            yield piece
        yield archives.padding(status.st_size)
        after = os.fstat(descriptor)
        if not problem and (after.st_size, after.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
            problem = CHANGED
        if problem:
            yield _note(path, problem)

    def _take_first_name(self, status: os.stat_result) -> bytes | None:
        """The name under which the same file was packed before."""
        name, self._names_left = self._links.pop((status.st_dev, status.st_ino), (None, status.st_nlink))
        return name

    def _remember_name(self, name: bytes, status: os.stat_result) -> None:
        """Further names of the file become links to this one, while there are some and the table has room."""
        if self._names_left > 1 and len(self._links) < _MAX_REMEMBERED_LINKS:
            self._links[status.st_dev, status.st_ino] = (name, self._names_left - 1)

    def _encode(self, path: bytes, status: os.stat_result, *, kind: str, target: bytes = b"") -> bytes:
        size = status.st_size if kind == archives.FILE else 0
        if self._on_member is not None:
            self._on_member(path, size)
        member = archives.Member(
            path,
            kind=kind,
            mode=stat.S_IMODE(status.st_mode),
            size=size,
            mtime_ns=status.st_mtime_ns,
            target=target,
        )
        return archives.encode_member(member)


def explain(error: OSError) -> str:
    """An error of the system in words that go behind a path."""
    return (error.strerror or str(error)).lower()


def _note(path: bytes, reason: str) -> bytes:
    return archives.encode_note(archives.Note(path, reason))


def _find_kernel_devices() -> frozenset[int]:
    """The file systems that hold no files: theirs are endless, or are made when they are read."""
    found = set()
    for folder in _KERNEL_FOLDERS:
        with contextlib.suppress(OSError):
            found.add(os.stat(folder).st_dev)
    # Where they are not mounted, the folders belong to the file system above.
    return frozenset(found - {os.stat("/").st_dev})


def _gather(blocks: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
    """The same bytes in larger blocks: most headers and many files are small, and each block is sent by itself."""
    held: list[bytes] = []
    size = 0
    with contextlib.closing(blocks):
        for block in blocks:
            held.append(block)
            size += len(block)
            if size >= _SEND_BYTES:
                yield b"".join(held)
                held, size = [], 0
    yield b"".join(held)
