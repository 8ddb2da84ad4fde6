"""Operations on names: look, list, make, remove, copy, rename, set permissions. Nothing here needs a program to run.

A path's own folders are looked up as the system does it, links included: the caller named them. What is found below a
path is never reached through a link, so that nobody who can write there leads a recursive operation elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from . import descents, documents, files, packing, temporaries, unpacking, wire
from .errors import RequestError, bad_argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
_TYPES = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}
_PERMISSIONS = 0o777


# -- looking


def describe(path: bytes, *, shown: bytes, follow: bool = True, sha256: bool = False) -> dict[str, object]:
    """The entry of what is at ``path``; ``shown`` is the path that it is to tell.

    Raises:
        RequestError: ``file_not_found``, or what else the system says.
    """
    with files.translated(shown):
        status = os.stat(path, follow_symlinks=follow)
        entry = _build_entry(path, status, shown=shown)
        if sha256 and stat.S_ISREG(status.st_mode):
            entry["sha256"] = _digest(path)
        return entry


def exists(path: bytes) -> bool:
    """Whether anything has this name; a link that leads nowhere has one, too."""
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno in _ABSENT:
            return False
        raise files.refuse(error, path) from error
    return True


def scan(path: bytes, *, shown: bytes, depth: int) -> Scan:
    """The entries below a directory, down to so many levels. Whoever does not read them to their end calls ``close``.

    Raises:
        RequestError: ``path`` is no directory, or cannot be read.
    """
    with files.translated(shown), contextlib.ExitStack() as undo:
        place = undo.enter_context(descents.Descent(path))
        found = Scan(place, place.list_names(), shown=shown, depth=depth)
        undo.pop_all()
        return found


class Scan:
    """Entries as they are found: each directory before what is in it, names in the order of their bytes.

    Links are told, not followed. An entry that cannot be seen, or whose content cannot, tells why in ``error``. In
    memory are the names of one directory a level.
    """

    def __init__(self, place: descents.Descent, names: list[bytes], *, shown: bytes, depth: int) -> None:
        self._place = place
        self._names = names
        self._shown = shown
        self._depth = depth

    def close(self) -> None:
        """Give everything back. Idempotent."""
        self._place.close()

    def __iter__(self) -> Iterator[dict[str, object]]:
        with self._place:
            levels: list[tuple[tuple[bytes, ...], Iterator[bytes]]] = [((), iter(self._names))]
            while levels:
                folder, rest = levels[-1]  # the way to a directory, and the names in it that are to come
                name = next(rest, None)
                if name is None:
                    levels.pop()
                    continue
                entry, below = self._look(folder, name, wants_names=len(levels) < self._depth)
                yield entry
                if below:
                    levels.append(((*folder, name), iter(below)))

    def _look(
        self, folder: tuple[bytes, ...], name: bytes, *, wants_names: bool
    ) -> tuple[dict[str, object], list[bytes]]:
        """An entry; of a directory the names in it, if they are wanted."""
        shown = os.path.join(self._shown, *folder, name)
        try:
            self._place.move(folder)
            status = os.stat(name, dir_fd=self._place.descriptor, follow_symlinks=False)
            entry = _build_entry(name, status, shown=shown, folder=self._place.descriptor)
        except OSError as error:
            told = {"name": documents.decode_path(name), "path": documents.decode_path(shown)}
            return {**told, "error": packing.explain(error)}, []
        if not (wants_names and stat.S_ISDIR(status.st_mode)):
            return entry, []
        try:
            self._place.enter(name)
            return entry, self._place.list_names()
        except OSError as error:
            entry["error"] = packing.explain(error)
            return entry, []


def _build_entry(path: bytes, status: os.stat_result, *, shown: bytes, folder: int | None = None) -> dict[str, object]:
    entry: dict[str, object] = {
        "name": documents.decode_path(os.path.basename(shown.rstrip(b"/")) or b"/"),
        "path": documents.decode_path(shown),
        "type": _TYPES.get(stat.S_IFMT(status.st_mode), "device"),
        "size": status.st_size,
        "mode": stat.S_IMODE(status.st_mode),
        "mtime": status.st_mtime,
        "uid": status.st_uid,
        "gid": status.st_gid,
    }
    if stat.S_ISLNK(status.st_mode):
        entry["target"] = documents.decode_path(os.readlink(path, dir_fd=folder))
    return entry


def _digest(path: bytes) -> str:
    import hashlib  # late: it loads OpenSSL, which most agents never need

    digest = hashlib.sha256()
    with contextlib.closing(files.open_file(path)) as content:
        for piece in content.pieces():
            digest.update(piece)
    return digest.hexdigest()


# -- changing


def make(path: bytes, *, parents: bool = True, exist_ok: bool = True, mode: int | None = None) -> None:
    """Make a directory; ``mode`` is that of a new one.

    Raises:
        RequestError: ``file_exists`` (409), ``file_not_found`` without ``parents``, or what else the system says.
    """
    with files.translated(path):
        if parents:
            _make_parents(os.path.dirname(path.rstrip(b"/")) or b"/")
        try:
            os.mkdir(path, _PERMISSIONS if mode is None else mode & _PERMISSIONS)
        except FileExistsError:
            if not (exist_ok and os.path.isdir(path)):
                raise
            return
        if mode is not None:
            os.chmod(path, mode)  # the umask took bits away, and the special ones are set by this only


def _make_parents(path: bytes) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, "not a directory", path) from error


def remove(path: bytes, *, recursive: bool = False, missing_ok: bool = False) -> None:
    """Remove a file, a link (never what it leads to), an empty directory, or a whole tree.

    Raises:
        RequestError: ``file_not_found``, ``directory_not_empty`` (409), or what else the system says.
    """
    path = _strip(path)
    with files.translated(path):
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            if not missing_ok:
                raise
            return
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(path)
            return
        if not recursive:
            os.rmdir(path)
            return
        if os.path.samestat(status, os.stat("/")):
            raise bad_argument("path", "is the root of the file system, which cannot be removed")
        folder, name = os.path.split(path)
        with descents.Descent(folder) as place:
            _remove_tree(place, name, folder=folder)


def _remove_tree(place: descents.Descent, name: bytes, *, folder: bytes) -> None:
    """Remove a directory here, which is at ``folder``, with all that is in it. What others remove meanwhile is gone."""
    waiting = [[name]]  # names of directories: here, and in each one on the way down
    try:
        while True:
            if waiting[-1]:
                with contextlib.suppress(FileNotFoundError):
                    place.enter(waiting[-1].pop())
                    waiting.append(_unlink_files(place))
            elif len(waiting) > 1:
                waiting.pop()
                name = place.leave()
                with contextlib.suppress(FileNotFoundError):
                    os.rmdir(name, dir_fd=place.descriptor)
            else:
                return
    except OSError as error:
        raise files.refuse(error, os.path.join(folder, *place.names)) from error


def _unlink_files(place: descents.Descent) -> list[bytes]:
    """Remove everything here but directories, whose names are returned."""
    folders = []
    for name in place.list_names():
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=place.descriptor, follow_symlinks=False).st_mode):
                folders.append(name)
            else:
                os.unlink(name, dir_fd=place.descriptor)
    return folders


def change_mode(path: bytes, mode: int, *, recursive: bool = False) -> None:
    """Set permission bits; a link's are those of what it leads to. Below a directory, links are passed over.

    Raises:
        RequestError: ``file_not_found``, ``permission_denied``, or what else the system says.
    """
    with files.translated(path):
        if recursive and os.path.isdir(path):
            with _open_top(path, mode) as place:
                _change_modes(place, mode, folder=path)
        os.chmod(path, mode)


def _open_top(path: bytes, mode: int) -> descents.Descent:
    try:
        return descents.Descent(path)
    except PermissionError:
        os.chmod(path, mode)  # which may open it
        return descents.Descent(path)


def _change_modes(place: descents.Descent, mode: int, *, folder: bytes) -> None:
    """All below this place, which is at ``folder``. A directory's own turn comes last, since the new mode may close it;
    only one that is closed gets it at once.
    """
    waiting = [_change_files(place, mode)]  # names of directories, here and in each one on the way down
    try:
        while True:
            if waiting[-1]:
                _enter(place, waiting[-1].pop(), mode=mode, folder=folder)
                waiting.append(_change_files(place, mode))
            elif len(waiting) > 1:
                waiting.pop()
                os.fchmod(place.descriptor, mode)
                place.leave()
            else:
                return
    except OSError as error:
        raise files.refuse(error, os.path.join(folder, *place.names)) from error


def _enter(place: descents.Descent, name: bytes, *, mode: int, folder: bytes) -> None:
    try:
        place.enter(name)
    except PermissionError:
        try:
            _change_one(name, mode, folder=place.descriptor)  # which may open it
            place.enter(name)
        except PermissionError as error:
            raise files.refuse(error, os.path.join(folder, *place.names, name)) from error


def _change_files(place: descents.Descent, mode: int) -> list[bytes]:
    """Change everything here but directories, whose names are returned."""
    folders = []
    for name in place.list_names():
        kind = stat.S_IFMT(os.stat(name, dir_fd=place.descriptor, follow_symlinks=False).st_mode)
        if kind == stat.S_IFDIR:
            folders.append(name)
        elif kind != stat.S_IFLNK:
            _change_one(name, mode, folder=place.descriptor)
    return folders


def _change_one(name: bytes, mode: int, *, folder: int) -> None:
    """Set the mode of what has this name and no other; if it became a link meanwhile, of nothing."""
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISLNK(os.fstat(descriptor).st_mode):
            # There is no fchmod for such a descriptor, and no chmod that would not follow a link.
            os.chmod(f"/proc/self/fd/{descriptor}", mode)
    finally:
        os.close(descriptor)


def rename(source: bytes, destination: bytes, *, overwrite: bool = True) -> None:
    """Give a file or directory another name, on another file system, too.

    Raises:
        RequestError: ``file_not_found`` (of either), ``file_exists`` (409), ``directory_not_empty`` (409), or what else
            the system says.
    """
    source, destination = _strip(source, field="source"), _strip(destination, field="destination")
    with files.translated(source):
        os.lstat(source)
    try:
        _rename(source, destination, overwrite=overwrite)
    except FileNotFoundError as error:
        raise files.refuse(error, os.path.dirname(destination)) from error
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise bad_argument("destination", "is in the directory that is to be renamed") from error
        if error.errno != errno.EXDEV:
            raise files.refuse(error, destination) from error
        with files.translated(destination):
            _move(source, destination, overwrite=overwrite)


def _rename(source: bytes, destination: bytes, *, overwrite: bool) -> None:
    if overwrite:
        os.rename(source, destination)
    else:
        files.rename_exclusively(source, destination)


def _move(source: bytes, destination: bytes, *, overwrite: bool) -> None:
    """To another file system: a copy beside the destination takes its name when it is whole, then the source goes."""
    beside = os.path.join(os.path.dirname(destination), temporaries.build_name())
    with contextlib.ExitStack() as undo:
        undo.callback(remove, beside, recursive=True, missing_ok=True)
        if os.path.islink(source):
            os.symlink(os.readlink(source), beside)
        else:
            skipped = copy(source, beside, recursive=True)
            if skipped:
                path, reason = skipped[0]
                detail = f"not moved, as a part of it cannot be copied: {files.printable(path)}: {reason}"
                raise RequestError(400, wire.FILE_ERROR, detail)
        _rename(beside, destination, overwrite=overwrite)
    remove(source, recursive=True)


def copy(
    source: bytes, destination: bytes, *, recursive: bool = False, overwrite: bool = True
) -> list[tuple[bytes, str]]:
    """Copy a file to exactly that path, or what is in a directory into exactly that directory; what was left out.

    Permission bits and times are kept, and a tree's links. A directory that is there is added to.

    Raises:
        RequestError: ``file_not_found``, ``not_a_file`` (a directory, without ``recursive``), ``file_exists`` (409),
            ``bad_argument`` (into itself), or what else the system says.
    """
    with files.translated(source):
        status = os.stat(source)
    if not overwrite and exists(destination):
        raise files.refuse(FileExistsError(errno.EEXIST, ""), destination)
    if stat.S_ISDIR(status.st_mode) and recursive:
        return _copy_tree(source, destination)
    with contextlib.closing(files.open_file(source)) as content:
        if os.path.exists(destination) and os.path.samefile(source, destination):
            raise bad_argument("destination", "is the same file as source")
        files.write_file(
            destination,
            content.pieces(),
            mode=status.st_mode & _PERMISSIONS,
            mtime_ns=status.st_mtime_ns,
            overwrite=overwrite,
        )
    return []


def _copy_tree(source: bytes, destination: bytes) -> list[tuple[bytes, str]]:
    inner, outer = os.path.realpath(destination), os.path.realpath(source)
    if os.path.commonpath([inner, outer]) == outer:
        raise bad_argument("destination", "is the same directory as source, or is in it")
    with files.translated(source):
        packed = packing.pack(source)
    with contextlib.closing(packed), files.translated(destination):
        return unpacking.unpack(packed, destination, keeps_all_links=True).skipped


def _strip(path: bytes, *, field: str = "path") -> bytes:
    """The path of a name that can be taken away: a slash behind a link would stand for what it leads to."""
    path = path.rstrip(b"/") or b"/"
    if os.path.basename(path) in (b".", b".."):
        raise bad_argument(field, "must not end with . or ..")
    return path
