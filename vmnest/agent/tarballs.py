"""Trees for the ``tar`` of an image, and from it: the tools know less than the two ends of our own protocol.

To the image: GNU's records for long names are added, since the tar of busybox does not read those of PAX, and remarks
are taken out; so is what would lead out of the directory, since not every tar looks. From the image: what is excluded
is taken out, since every tar reads patterns in its own way.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator, Sequence

from .._guest.agentd import archives, patterns, trees
from .entries import Skipped, Transfer, to_text

__all__ = ["Outgoing", "to_packed"]

_LONGEST_NAME_BYTES = 100
_GNU_NAME, _GNU_TARGET = b"L", b"K"
_MOVED = (archives.FILE, archives.DIRECTORY, archives.SYMBOLIC_LINK, archives.HARD_LINK)


class Outgoing:
    """A packed tree on its way to the tar of an image; ``transfer`` is what has passed so far."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._counts = {archives.FILE: 0, archives.DIRECTORY: 0, archives.SYMBOLIC_LINK: 0, archives.HARD_LINK: 0}
        self._bytes = 0
        self._skipped: list[Skipped] = []

    def pieces(self, packed: Iterable[bytes]) -> Iterator[bytes]:
        """The archive for that tar.

        Raises:
            archives.ArchiveError: what is packed is no archive, or not all of one, or has names that lead out.
        """
        self._begin()
        reader = archives.Reader(packed)
        for item in reader.members():
            if isinstance(item, archives.Note):
                self._skipped.append(Skipped(to_text(item.path), item.reason))
                continue
            if obstacle := _obstacle_in(item) or _leads_out(item):
                self._skipped.append(Skipped(to_text(item.name), obstacle))
                continue
            self._counts[item.kind] += 1
            self._bytes += item.size
            yield _long_names(item)
            yield from _encode(item, reader.content())
        yield archives.END

    @property
    def transfer(self) -> Transfer:
        """What was sent."""
        return Transfer(
            files=self._counts[archives.FILE],
            directories=self._counts[archives.DIRECTORY],
            links=self._counts[archives.SYMBOLIC_LINK] + self._counts[archives.HARD_LINK],
            bytes=self._bytes,
            skipped=tuple(self._skipped),
        )


def to_packed(pieces: Iterable[bytes], *, exclude: Sequence[bytes], skipped: Iterable[Skipped] = ()) -> Iterator[bytes]:
    """The archive of an image's tar as ``trees.unpack`` takes it: without what is excluded, with remarks.

    Raises:
        archives.ArchiveError: it is no archive, or not all of one.
    """
    excluded = patterns.Patterns(exclude)
    for each in skipped:
        yield archives.encode_note(archives.Note(each.path.encode("utf-8", "surrogateescape"), each.reason))
    reader = archives.Reader(pieces)
    for item in reader.members():
        if isinstance(item, archives.Note):
            yield archives.encode_note(item)
        elif _is_excluded(item, excluded):
            continue
        elif obstacle := _obstacle_in(item):
            yield archives.encode_note(archives.Note(item.name.removeprefix(b"./"), obstacle))
        else:
            yield from _encode(item, reader.content())
    yield archives.END


def _obstacle_in(member: archives.Member) -> str:
    """Why it cannot be moved; empty if it can."""
    if member.kind not in _MOVED:
        return f"a {member.kind}"
    return "a file with holes, in a form that is not understood" if member.is_sparse else ""


def _leads_out(member: archives.Member) -> str:
    """The reason for leaving out a link that leads out of the tree; empty if it is none.

    Raises:
        trees.UnsafeMemberError: its own name does, or that of the file that it is another name of.
    """
    names = trees.split_name(member.name)
    if member.kind == archives.HARD_LINK:
        trees.split_name(member.target)
    is_link = member.kind == archives.SYMBOLIC_LINK
    return trees.LEADS_OUT if is_link and trees.leads_out(member.target, depth=len(names) - 1) else ""


def _is_excluded(member: archives.Member, excluded: patterns.Patterns) -> bool:
    """It, or a directory that it is in, is left out."""
    names = [name for name in member.name.split(b"/") if name not in (b"", b".")]
    return any(
        excluded.match(b"/".join(names[:count]), is_folder=count < len(names) or member.kind == archives.DIRECTORY)
        for count in range(1, len(names) + 1)
    )


def _encode(member: archives.Member, content: Iterable[bytes]) -> Iterator[bytes]:
    yield archives.encode_member(member)
    yield from content
    yield archives.padding(member.size)


def _long_names(member: archives.Member) -> bytes:
    """GNU's records for what is too long for the header."""
    name = member.name.rstrip(b"/") + b"/" if member.kind == archives.DIRECTORY else member.name
    return _long_name(_GNU_NAME, name) + _long_name(_GNU_TARGET, member.target)


def _long_name(kind: bytes, name: bytes) -> bytes:
    if len(name) <= _LONGEST_NAME_BYTES:
        return b""
    head = tarfile.TarInfo("././@LongLink")
    head.type, head.size = kind, len(name) + 1
    return head.tobuf(tarfile.USTAR_FORMAT) + name + b"\0" + archives.padding(head.size)
