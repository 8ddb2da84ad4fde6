"""Files through an agent that has nothing but the base contract: with the tools of its image.

Content travels in parts of a few megabytes, so that neither end holds a large file: ``dd`` cuts them out and puts them
into their place, ``/v1/fs/write`` carries them in, the output of a command carries them out. What is written is put
together beside its target and renamed; what is read is compared at the end with what it was at the beginning. Trees are
archives of the image's ``tar``, which lie in its ``/tmp`` for a while. Where the image has no shell either, whole files
can still be read and written, at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from .. import errors
from .._guest.agentd import wire
from ..deadline import NEVER, Deadline
from . import cuts, listing, paths, tarballs
from .entries import Entry, Skipped, Transfer
from .sources import Source
from .tools import Tools

if TYPE_CHECKING:
    from .client import AgentClient

__all__ = ["MinimalFiles", "MinimalReading"]

PART_BYTES = 4 * 1024 * 1024
BLOCK_BYTES = 65536
WHOLE_BYTES = 45 * 1024 * 1024  # of a file that goes in one request, as base64, within what agents take
FOLDER = "/tmp"  # noqa: S108 - the names in it are made up at random
CLEANUP_SECONDS = 10.0

T = TypeVar("T")

_DD = f'dd if="$a" bs={BLOCK_BYTES} skip="$1" count="$2"'

# $t is the file that a write is about, $w what will take its place.
_TARGET = """\
need dd mv rm mkdir cat wc chmod tr
case $a in */) fail not_a_file ;; esac
t=$a
if [ -L "$a" ]; then need readlink; t=$(readlink -f "$a" && echo .) || fail file_not_found; t=${t%??}; fi
if [ -e "$t" ] && [ ! -f "$t" ]; then fail not_a_file; fi
w=${t%/*}/.vmnest-$1
"""
# What is not in its place yet is nobody else's business.
_PREPARE = (
    _TARGET
    + """\
mkdir -p "${t%/*}/" || { [ -e "${t%/*}" ] && fail not_a_directory; exit 1; }
mkdir -p "${b%/*}" || exit
umask 077
: > "$w" && : > "$b"
"""
)
_APPEND = f'{_TARGET}dd if="$b" of="$w" bs={BLOCK_BYTES} count={PART_BYTES // BLOCK_BYTES} seek="$2" conv=notrunc'
# What was renamed by an attempt whose answer was lost is in its place already.
_COMMIT = (
    _TARGET
    + """\
f=$w; [ -e "$w" ] || f=$t
[ "$(wc -c < "$f" | tr -d ' ')" = "$2" ] || fail checksum_mismatch
if command -v sha256sum >/dev/null 2>&1; then
    case $(sha256sum < "$f") in "$3"*) ;; *) fail checksum_mismatch ;; esac
fi
[ "$f" = "$w" ] || exit 0
if [ -n "$4" ]; then chmod "$4" "$w" || exit
elif [ -e "$t" ] && command -v stat >/dev/null 2>&1; then
    chown "$(stat -c %u:%g "$t")" "$w" 2>/dev/null
    chmod "$(stat -c %a "$t")" "$w" || exit
else chmod "$(printf %o $((0666 & ~$(umask))))" "$w" || exit; fi
mv -f "$w" "$t"
"""
)
_GIVE_UP = _TARGET + 'rm -f "$w" "$b"'

_MKDIR = """\
if is_there "$a"; then [ "$2" = 1 ] && [ -d "$a" ] && exit 0; fail file_exists; fi
if [ "$1" = 1 ]; then d=${a%/}; mkdir -p "${d%/*}/" || exit; fi
mkdir ${3:+-m "$3"} "$a"
"""
_REMOVE = """\
if ! is_there "$a"; then [ "$2" = 1 ] && exit 0; fail file_not_found; fi
if [ -L "$a" ] || [ ! -d "$a" ]; then rm -f "$a"
elif [ "$1" = 1 ]; then rm -rf "$a"
else rmdir "$a"; fi
"""
_COPY = """\
[ -e "$a" ] || fail file_not_found
if is_there "$b" && [ "$2" = 0 ]; then fail file_exists:b; fi
if [ -d "$a" ]; then
    [ "$1" = 1 ] || fail not_a_file
    if is_there "$b" && [ ! -d "$b" ]; then fail not_a_directory:b; fi
    mkdir -p "$b" && cp -RPp "$a/." "$b/"
    exit
fi
[ -f "$a" ] || fail not_a_file
[ ! -d "$b" ] || fail not_a_file:b
mkdir -p "${b%/*}/" && cp -p "$a" "${b%/*}/.vmnest-$3" && mv -f "${b%/*}/.vmnest-$3" "$b"
"""
_RENAME = """\
is_there "$a" || fail file_not_found
if is_there "$b"; then
    [ "$1" = 1 ] || fail file_exists:b
    if [ -L "$b" ]; then rm -f "$b"
    elif [ -d "$b" ]; then
        [ -d "$a" ] || fail not_a_file:b
        rmdir "$b" || exit
    elif [ -d "$a" ] && [ ! -L "$a" ]; then fail not_a_directory:b; fi
fi
mv -f "$a" "$b"
"""
_CHMOD = """\
is_there "$a" || fail file_not_found
if [ "$1" = 1 ]; then chmod -R "$2" "$a"; else chmod "$2" "$a"; fi
"""
_PACK = """\
need tar
if [ ! -d "$a" ]; then if is_there "$a"; then fail not_a_directory; else fail file_not_found; fi; fi
if [ ! -r "$a" ] || [ ! -x "$a" ]; then fail permission_denied; fi
umask 077
tar -C "$a" -cf "$b" .
"""
_UNPACK = """\
need tar mkdir
mkdir -p "$a" && tar -C "$a" -xpof "$b"
"""
_TAR_FINE = frozenset({0, 1, 2})  # something was not packed, or changed meanwhile: it says what


class MinimalReading:
    """A file of a sandbox while it is read in parts. A context manager.

    Attributes:
        size: The size of the whole file.
        expected: How many bytes ``pieces`` gives.
        mode: Its permission bits.
        was_cut: False: each part is compared with what is expected of it.
    """

    def __init__(self, pieces: Iterator[bytes], *, size: int, expected: int, mode: int) -> None:
        self._pieces = pieces
        self.size: int | None = size
        self.expected: int | None = expected
        self.mode = mode
        self.was_cut = False

    def __enter__(self) -> MinimalReading:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading. Nothing is open."""

    def pieces(self) -> Iterator[bytes]:
        """The bytes as they arrive."""
        return self._pieces


class MinimalFiles:
    """The files of a sandbox whose agent has no extensions; see ``files.RemoteFiles`` for what each call does."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client
        self._content = Tools(client, feature=wire.FEATURE_FILES)
        self._tree = Tools(client, feature=wire.FEATURE_TREE)
        self._system = Tools(client, feature=wire.FEATURE_FS)

    # -- content -------------------------------------------------------------------------------------------------------

    def open(
        self, path: str, *, offset: int = 0, length: int | None = None, deadline: Deadline = NEVER
    ) -> MinimalReading:
        """A file, to be read from ``offset``: ``length`` bytes, or all that follow."""
        try:
            found = listing.stat(self._content, path, deadline=deadline)
        except errors.UnsupportedError:
            return _part_of(self._client.read_file(path, deadline=deadline), offset=offset, length=length)
        if not found.entry.is_file:
            raise errors.NotAFileError(f"not a regular file: {errors.quote(path, limit=500)}")
        if found.entry.size <= PART_BYTES:
            # Files of /proc and /sys do not tell their true size.
            data, _ = self._content.run('cat "$a"', path=path, most=WHOLE_BYTES, deadline=deadline)
            return _part_of(data, offset=offset, length=length, mode=found.entry.mode)
        size = found.entry.size
        end = size if length is None else min(size, offset + length)
        return MinimalReading(
            self._parts(path, found, start=offset, end=end, deadline=deadline),
            size=size,
            expected=max(0, end - offset),
            mode=found.entry.mode,
        )

    def _parts(self, path: str, found: listing.Found, *, start: int, end: int, deadline: Deadline) -> Iterator[bytes]:
        at = start
        while at < end:
            block, surplus = divmod(at, BLOCK_BYTES)
            words = (str(block), str(PART_BYTES // BLOCK_BYTES))
            data, _ = self._content.run(_DD, *words, path=path, most=PART_BYTES, deadline=deadline)
            piece = data[surplus : surplus + end - at]
            if not piece:
                raise errors.FileChangedError(f"{errors.quote(path, limit=500)} became shorter while it was read")
            at += len(piece)
            yield piece
        if listing.stat(self._content, path, deadline=deadline).stamp != found.stamp:
            raise errors.FileChangedError(f"{errors.quote(path, limit=500)} was changed while it was read")

    def write(self, path: str, source: Source, *, mode: int | None = None, deadline: Deadline = NEVER) -> int:
        """Replace a file by all that the source gives; the number of bytes."""
        bits = "" if mode is None else f"{paths.check_mode(mode):04o}"
        token = _token()
        part = f"{FOLDER}/.vmnest-{token}.part"  # whatever the folder, never the file that the parts make
        try:
            self._content.run(_PREPARE, token, path=path, other=part, deadline=deadline)
            count, digest = self._write_parts(path, source, token=token, part=part, deadline=deadline)
            self._content.run(_COMMIT, token, str(count), digest, bits, path=path, deadline=deadline)
        except errors.UnsupportedError:
            if mode is not None:
                raise
            return self._write_whole(path, source, deadline=deadline)
        finally:
            self._clean_up(_GIVE_UP, token, path=path, other=part)
        return count

    def _write_parts(self, path: str, source: Source, *, token: str, part: str, deadline: Deadline) -> tuple[int, str]:
        """The number of the bytes, and their digest. Each part goes to its own place, so that it may go there twice."""
        count, digest = 0, hashlib.sha256()
        for data in _gathered(source.pieces(), PART_BYTES):
            self._send(part, data, deadline=deadline)
            self._content.run(_APPEND, token, str(count // BLOCK_BYTES), path=path, other=part, deadline=deadline)
            digest.update(data)
            count += len(data)
        return count, digest.hexdigest()

    def _write_whole(self, path: str, source: Source, *, deadline: Deadline) -> int:
        data = b"".join(_at_most(source.pieces(), WHOLE_BYTES))
        return self._send(path, data, deadline=deadline)

    def _send(self, path: str, data: bytes, *, deadline: Deadline) -> int:
        """Write a file at once; it is the same when it is written twice."""
        return cuts.repeated(
            self._client,
            lambda _wakes: self._client.write_file(path, data, deadline=deadline),
            may_repeat=lambda: True,
            deadline=deadline,
        )

    # -- trees ---------------------------------------------------------------------------------------------------------

    def read_tree(
        self,
        path: str,
        take: Callable[[Iterator[bytes]], T],
        *,
        exclude: Sequence[str] = (),
        deadline: Deadline = NEVER,
    ) -> T:
        """What ``take`` makes of a directory's content, which it gets as the pieces of a tar stream."""
        archive = f"{FOLDER}/.vmnest-{_token()}.tar"
        try:
            _, complaint = self._tree.run(_PACK, path=path, other=archive, fine=_TAR_FINE, deadline=deadline)
            told = complaint.decode("utf-8", "surrogateescape")
            if "No space left" in told:
                raise errors.NoSpaceError(f"the disk of the sandbox has no room for an archive of {path}")
            excluded = [paths.to_bytes(each, field="exclude") for each in exclude]
            with self.open(archive, deadline=deadline) as reading:
                return take(tarballs.to_packed(reading.pieces(), exclude=excluded, skipped=complaints(told)))
        finally:
            self._clean_up('rm -f "$a"', path=archive)

    def write_tree(self, path: str, source: Source, *, deadline: Deadline = NEVER) -> Transfer:
        """Unpack a tar stream into a directory, which is made if need be."""
        archive = f"{FOLDER}/.vmnest-{_token()}.tar"
        outgoing = tarballs.Outgoing()
        try:
            self._tree.run("need tar mkdir", path=path, deadline=deadline)  # before much is sent
            packed = Source(lambda: outgoing.pieces(source.pieces()))
            self.write(archive, packed, mode=0o600, deadline=deadline)
            self._tree.run(_UNPACK, path=path, other=archive, deadline=deadline)
        finally:
            self._clean_up('rm -f "$a"', path=archive)
        return outgoing.transfer

    # -- the file system -----------------------------------------------------------------------------------------------

    def stat(self, path: str, *, follow: bool = True, sha256: bool = False, deadline: Deadline = NEVER) -> Entry:
        """What is known of a file."""
        return listing.stat(self._system, path, follow=follow, sha256=sha256, deadline=deadline).entry

    def exists(self, path: str, *, deadline: Deadline = NEVER) -> bool:
        """Whether there is anything of that name."""
        return self._system.run('is_there "$a" && echo yes || :', path=path, deadline=deadline)[0] != b""

    def list(self, path: str, *, depth: int = 1, deadline: Deadline = NEVER) -> list[Entry]:
        """What is in a directory."""
        return listing.scan(self._system, path, depth=depth, deadline=deadline)

    def scan(self, path: str, *, depth: int = 1, deadline: Deadline = NEVER) -> Iterator[Entry]:
        """The same as ``list``: the tools tell it at once."""
        return iter(self.list(path, depth=depth, deadline=deadline))

    def mkdir(
        self,
        path: str,
        *,
        parents: bool = True,
        exist_ok: bool = True,
        mode: int | None = None,
        deadline: Deadline = NEVER,
    ) -> None:
        """Make a directory."""
        bits = "" if mode is None else f"{paths.check_mode(mode):04o}"
        words = (_bit(parents), _bit(exist_ok), bits)
        self._system.run(_MKDIR, *words, path=_without_slash(path), repeatable=exist_ok, deadline=deadline)

    def remove(
        self, path: str, *, recursive: bool = False, missing_ok: bool = False, deadline: Deadline = NEVER
    ) -> None:
        """Remove a file or a directory."""
        words = (_bit(recursive), _bit(missing_ok))
        self._system.run(_REMOVE, *words, path=_named(path, field="path"), repeatable=missing_ok, deadline=deadline)

    def copy(
        self,
        source: str,
        destination: str,
        *,
        recursive: bool = False,
        overwrite: bool = True,
        deadline: Deadline = NEVER,
    ) -> tuple[Skipped, ...]:
        """Copy within the sandbox; tools leave out nothing."""
        if f"{posixpath.normpath(destination)}/".startswith(f"{posixpath.normpath(source)}/"):
            raise _bad("destination", "is the same as source, or is in it")
        words = (_bit(recursive), _bit(overwrite), _token())
        self._system.run(_COPY, *words, path=source, other=destination, repeatable=overwrite, deadline=deadline)
        return ()

    def rename(self, source: str, destination: str, *, overwrite: bool = True, deadline: Deadline = NEVER) -> None:
        """Give it another name."""
        old, new = _named(source, field="source"), _named(destination, field="destination")
        self._system.run(_RENAME, _bit(overwrite), path=old, other=new, repeatable=False, deadline=deadline)

    def chmod(self, path: str, mode: int, *, recursive: bool = False, deadline: Deadline = NEVER) -> None:
        """Set permission bits."""
        bits = f"{paths.check_mode(mode):04o}"
        self._system.run(_CHMOD, _bit(recursive), bits, path=path, deadline=deadline)

    def _clean_up(self, script: str, *words: str, path: str, other: str = "") -> None:
        """Take temporary files away. What went wrong before is what is to be told, not that this did, too."""
        with contextlib.suppress(errors.VmnestError):
            self._content.run(script, *words, path=path, other=other, deadline=Deadline(CLEANUP_SECONDS))


def _without_slash(path: str) -> str:
    return path.rstrip("/") or path[:1]


def _named(path: str, *, field: str) -> str:
    """The path of a name that can be taken away: a slash behind a link would stand for what it leads to.

    Raises:
        errors.BadArgumentError: it is no such path. Not every ``rm`` refuses the root of the file system.
    """
    name = _without_slash(path)
    if posixpath.basename(name) in (".", "..") or name == "/":
        raise _bad(field, "must be a name in a directory")
    return name


def _bad(field: str, what: str) -> errors.BadArgumentError:
    return errors.BadArgumentError(f"{field} {what}", details={"field": field})


def _part_of(data: bytes, *, offset: int, length: int | None, mode: int = 0o644) -> MinimalReading:
    part = data[offset:] if length is None else data[offset : offset + length]
    return MinimalReading(iter([part] if part else []), size=len(data), expected=len(part), mode=mode)


def _gathered(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in parts of exactly ``size``, but for the last one."""
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    if held:
        yield bytes(held)


def _at_most(pieces: Iterator[bytes], limit: int) -> Iterator[bytes]:
    count = 0
    for piece in pieces:
        count += len(piece)
        if count > limit:
            raise errors.RequestTooLargeError(
                f"the agent in this sandbox takes no file of more than {limit} bytes at once, and its image has no "
                "programs to write it in parts"
            )
        yield piece


def complaints(text: str) -> list[Skipped]:
    """What tar said of single files.

    "tar: ./a: Cannot open: Permission denied", and in busybox "tar: can't open './a': Permission denied".
    """
    found = []
    for line in text.split("\n"):
        said = line.partition("tar: ")[2]
        if said.startswith("./"):
            path, _, reason = said[2:].partition(": ")
        else:
            path, _, reason = said.partition("'./")[2].rpartition("': ")
        if path and reason:
            found.append(Skipped(path, errors.quote(reason, limit=200)))
    return found


def _bit(value: bool) -> str:
    return "1" if value else "0"


def _token() -> str:
    return os.urandom(8).hex()
