"""A tar stream into a directory, trusting neither. The rules, and what is kept: see ``trees``."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from . import archives, descents, temporaries, undoing, wire
from .packing import explain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

MAX_TOLD = 1000  # of what was left out, one by one
LEADS_OUT = "a link that leads out of the folder"

_PERMISSIONS = 0o777
# One member cannot be made here; what else goes wrong (a full disk, say) ends the whole.
_OF_ONE_MEMBER = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT),
        *(errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.EBUSY, errno.EMLINK, errno.EXDEV),
        *(errno.EFBIG, errno.EOPNOTSUPP),
    }
)


class UnsafeMemberError(archives.ArchiveError):
    """A member of the archive would end up outside of its folder."""

    code = wire.UNSAFE_PATH


class Summary:
    """What was unpacked, and what was not: ``skipped`` has paths and reasons."""

    def __init__(self) -> None:
        self.files = 0
        self.directories = 0
        self.links = 0
        self.bytes = 0
        self.skipped: list[tuple[bytes, str]] = []
        self.untold = 0  # skipped beyond MAX_TOLD

    def skip(self, path: bytes, reason: str) -> None:
        """Note what was left out, or is not what it should be."""
        if len(self.skipped) < MAX_TOLD:
            self.skipped.append((path, reason))
        else:
            self.untold += 1


def unpack(
    pieces: Iterable[bytes],
    root: bytes,
    *,
    dir_fd: int | None = None,
    on_member: Callable[[bytes, int], object] | None = None,
    keeps_all_links: bool = False,
    undoes: bool = False,
) -> Summary:
    """Unpack an archive that arrives in pieces into the directory ``root``, which is made if it is absent.

    Args:
        pieces: The archive; read to its end.
        root: The directory; it may be a link to one.
        dir_fd: A directory in which ``root`` is a name; then it may be no link.
        on_member: Told the path below ``root`` and the size of each member when its turn comes.
        keeps_all_links: Make symbolic links that lead out, too: the archive is of our own making.
        undoes: When this fails, remove what it has made; what it has replaced stays as it is then.

    Raises:
        UnsafeMemberError: a name is absolute, or has ``..`` in it.
        ArchiveError: it is no archive, or not all of one.
        OSError: there is no space, or ``root`` is no directory; what is wrong with one member alone is told in the
            summary instead.
    """
    made = undoing.Made() if undoes else None
    with _Tree(root, dir_fd=dir_fd, keeps_all_links=keeps_all_links, made=made) as tree:
        reader = archives.Reader(pieces)
        for item in reader.members():
            if isinstance(item, archives.Note):
                tree.summary.skip(item.path, item.reason)
                continue
            if on_member is not None:
                on_member(item.name.rstrip(b"/"), item.size)
            tree.add(item, reader.content())
        return tree.summary


class _Tree:
    """The directory that is filled, and what is still to be set of new directories on the way to the last member."""

    def __init__(
        self, root: bytes, *, dir_fd: int | None = None, keeps_all_links: bool, made: undoing.Made | None = None
    ) -> None:
        self.summary = Summary()
        self._keeps_all_links = keeps_all_links
        self._made = made
        is_new = _make_root(root, dir_fd)
        if made is not None and is_new:
            made.note_folder(())
        self._new_root = (root, dir_fd) if is_new else None
        self._place = descents.Descent(root, dir_fd=dir_fd)
        self._way: Sequence[bytes] = ()  # to the folder of the last member
        # New ones on that way, outermost first: how far down, and the mode and time to get, if the archive tells them.
        self._unfinished: list[tuple[int, tuple[int, int] | None]] = [(0, None)] if is_new else []

    def __enter__(self) -> _Tree:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        is_undone = kind is not None and self._made is not None
        try:
            if is_undone:
                assert self._made is not None
                self._made.undo(self._place)
            else:
                # An archive that broke off must not leave a private directory open to all.
                self._finish(None)
        finally:
            self._place.close()
        if is_undone and self._new_root is not None:
            root, dir_fd = self._new_root
            with contextlib.suppress(OSError):  # others have made something in it
                os.rmdir(root, dir_fd=dir_fd)

    def add(self, member: archives.Member, content: Iterable[bytes]) -> None:
        """Make one member, or tell why not."""
        names = split_name(member.name)
        try:
            self._finish(names if member.kind == archives.DIRECTORY else names[:-1])
            self._make(member, names, content)
        except OSError as error:
            if error.errno not in _OF_ONE_MEMBER:
                raise
            self.summary.skip(member.name.rstrip(b"/"), explain(error))

    def _make(self, member: archives.Member, names: Sequence[bytes], content: Iterable[bytes]) -> None:
        if member.kind == archives.DIRECTORY:
            self._make_folder(member, names)
        elif not names:
            raise UnsafeMemberError("a member that is no directory has the name of the whole")
        elif member.is_sparse:
            self.summary.skip(member.name, "a file with holes, in a form that is not understood")
        elif member.kind == archives.FILE:
            self._make_file(member, names, content)
        elif member.kind == archives.SYMBOLIC_LINK:
            self._make_symbolic_link(member, names)
        elif member.kind == archives.HARD_LINK:
            self._make_hard_link(member, names)
        else:
            self.summary.skip(member.name, f"a {member.kind}")

    def _make_folder(self, member: archives.Member, names: Sequence[bytes]) -> None:
        self._enter(names)
        if self._unfinished and self._unfinished[-1][0] == len(names):
            self._unfinished[-1] = (len(names), (member.mode, member.mtime_ns))
        self.summary.directories += 1

    def _make_file(self, member: archives.Member, names: Sequence[bytes], content: Iterable[bytes]) -> None:
        folder = self._enter(names[:-1])
        descriptor, temporary = temporaries.create(mode=0o600, dir_fd=folder)
        with contextlib.ExitStack() as undo:
            undo.callback(temporaries.remove, temporary, dir_fd=folder)
            with open(descriptor, "wb", buffering=0) as file:
                for piece in content:
                    _write(file.fileno(), piece)
                _keep_owner(file.fileno(), names[-1], folder)
                os.fchmod(file.fileno(), member.mode & _PERMISSIONS)
                os.utime(file.fileno(), ns=(member.mtime_ns, member.mtime_ns))
            with self._noting(names, folder):
                os.rename(temporary, names[-1], src_dir_fd=folder, dst_dir_fd=folder)
            undo.pop_all()
        self.summary.files += 1
        self.summary.bytes += member.size

    def _make_symbolic_link(self, member: archives.Member, names: Sequence[bytes]) -> None:
        if not self._keeps_all_links and leads_out(member.target, depth=len(names) - 1):
            self.summary.skip(member.name, LEADS_OUT)
            return
        folder = self._enter(names[:-1])
        with self._noting(names, folder), _replacing(names[-1], folder) as temporary:
            os.symlink(member.target, temporary, dir_fd=folder)
            os.utime(temporary, ns=(member.mtime_ns, member.mtime_ns), dir_fd=folder, follow_symlinks=False)
        self.summary.links += 1

    def _make_hard_link(self, member: archives.Member, names: Sequence[bytes]) -> None:
        target = split_name(member.target)
        with contextlib.ExitStack() as stack:
            self._place.move(target[:-1])
            there = os.dup(self._place.descriptor)
            stack.callback(os.close, there)
            if not target or not stat.S_ISREG(os.stat(target[-1], dir_fd=there, follow_symlinks=False).st_mode):
                self.summary.skip(member.name, "a hard link to what is no file")
                return
            folder = self._enter(names[:-1])
            with self._noting(names, folder), _replacing(names[-1], folder) as temporary:
                os.link(target[-1], temporary, src_dir_fd=there, dst_dir_fd=folder, follow_symlinks=False)
        self.summary.links += 1

    @contextlib.contextmanager
    def _noting(self, names: Sequence[bytes], folder: int) -> Iterator[None]:
        """In the block a file or link gets its name."""
        made = self._made
        is_new = made is not None and not made.is_foreign(names, folder=folder)
        yield
        if made is not None and is_new:
            made.note_file(names, folder=folder)

    def _enter(self, names: Sequence[bytes]) -> int:
        """The directory to which the names lead; what is absent on the way is made."""
        with contextlib.suppress(FileNotFoundError):
            self._place.move(names)
        there = len(self._place.names)
        for depth, name in enumerate(names[there:], start=there + 1):
            try:
                os.mkdir(name, dir_fd=self._place.descriptor)
                if self._made is not None:
                    self._made.note_folder(names[:depth])
                self._unfinished.append((depth, None))
            except FileExistsError:
                """Somebody else was faster."""
            self._place.enter(name)
        return self._place.descriptor

    def _finish(self, names: Sequence[bytes] | None) -> None:
        """Set what is left to set of new directories that are not on this way; of all of them, if there is none."""
        common = -1 if names is None else descents.count_common(self._way, names)
        while self._unfinished and self._unfinished[-1][0] > common:
            depth, settings = self._unfinished.pop()
            if settings is not None:
                self._set_folder(self._way[:depth], *settings)
        self._way = names or ()

    def _set_folder(self, names: Sequence[bytes], mode: int, mtime_ns: int) -> None:
        try:
            self._place.move(names)
            # Bits that it took over from the directory above (setgid) stay.
            special = stat.S_IMODE(os.fstat(self._place.descriptor).st_mode) & ~_PERMISSIONS
            os.fchmod(self._place.descriptor, mode & _PERMISSIONS | special)
            os.utime(self._place.descriptor, ns=(mtime_ns, mtime_ns))
        except OSError as error:
            self.summary.skip(b"/".join(names), explain(error))


def _make_root(root: bytes, dir_fd: int | None) -> bool:
    """Make the directory; False if something has its name already."""
    if dir_fd is None:
        is_new = not os.path.lexists(root)
        if is_new:
            os.makedirs(root, exist_ok=True)
        return is_new
    try:
        os.mkdir(root, dir_fd=dir_fd)
    except FileExistsError:
        return False
    return True


def leads_out(target: bytes, *, depth: int) -> bool:
    """Whether a symbolic link that stands ``depth`` directories down could lead out of the tree.

    ``..`` may only come first: there it goes up from a true directory, behind a name it goes up from wherever that
    name leads to.
    """
    if target.startswith(b"/"):
        return True
    names = [name for name in target.split(b"/") if name not in (b"", b".")]
    ups = 0
    while ups < len(names) and names[ups] == b"..":
        ups += 1
    return ups > depth or b".." in names[ups:]


def split_name(name: bytes) -> tuple[bytes, ...]:
    """The names on the way from the root; empty for the root itself.

    Raises:
        UnsafeMemberError: they lead out of it.
    """
    names = tuple(part for part in name.split(b"/") if part not in (b"", b"."))
    if name.startswith(b"/") or b".." in names:
        raise UnsafeMemberError(f"the archive has a member outside of its folder: {name.decode('utf-8', 'replace')}")
    return names


@contextlib.contextmanager
def _replacing(name: bytes, folder: int) -> Iterator[bytes]:
    """A name for the block to make something under, which then takes the place of what has ``name``."""
    temporary = temporaries.build_name()
    with contextlib.ExitStack() as undo:
        undo.callback(temporaries.remove, temporary, dir_fd=folder)
        yield temporary
        # Between two names of one file this does nothing: then the temporary one is still there to be removed.
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _write(descriptor: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(descriptor, view) :]


def _keep_owner(descriptor: int, name: bytes, folder: int) -> None:
    """A file that is replaced keeps its owner, if we may give files away."""
    if os.geteuid() != 0:
        return
    with contextlib.suppress(FileNotFoundError, PermissionError):
        old = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(old.st_mode) and (old.st_uid, old.st_gid) != (0, os.getegid()):
            os.fchown(descriptor, old.st_uid, old.st_gid)
