"""Directories by ``find`` and ``stat``: what their output says, whatever bytes a name is made of.

Each record begins with a word that is made up at random for one call: no name can forge one, and a name ends where the
next record begins.
"""

from __future__ import annotations

import os
import posixpath
import stat as modes
from typing import TYPE_CHECKING, NamedTuple

from .. import errors
from .._guest.agentd import wire
from . import entries
from .entries import Entry
from .tools import Tools

if TYPE_CHECKING:
    from ..deadline import Deadline

__all__ = ["EACH", "Found", "parse_fields", "scan", "stat"]

_FORMAT = "%f %s %Y %u %g %i %Z"
_FIELDS = 7
_BASES = (16, 10, 10, 10, 10)  # of the numbers that are looked at
_MAX_DIGITS = 40  # more than any of them has

_STAT = f"""\
need stat
stat $1 -c '{_FORMAT}' "$a" || exit
if [ "$2" = 1 ]; then need sha256sum; [ -f "$a" ] || fail {wire.NOT_A_FILE}; sha256sum < "$a" || exit; else echo; fi
if [ -z "$1" ] && [ -L "$a" ]; then need readlink; readlink "$a"; fi
"""

_SCAN = f"""\
need find stat
if [ ! -d "$a" ]; then if is_there "$a"; then fail {wire.NOT_A_DIRECTORY}; else fail {wire.FILE_NOT_FOUND}; fi; fi
cd "$a" || fail {wire.PERMISSION_DENIED}
find . -mindepth 1 -maxdepth "$1" -exec sh -c "$3" "$2" {{}} +
:
"""
# Run for many names at a time; $0 is the word.
EACH = f"""\
stat -c "$0:entry {_FORMAT} %n" "$@"
for f do
    if [ -L "$f" ]; then printf '%s:link %s%s:target ' "$0" "$f" "$0"; readlink "$f"
    elif [ -d "$f" ] && {{ [ ! -r "$f" ] || [ ! -x "$f" ]; }}; then printf '%s:closed %s' "$0" "$f"; fi
done
"""

_TYPE_BITS = 0o170000  # stat.S_IFMT takes no numbers beyond those of C
_TYPES = {
    modes.S_IFREG: entries.FILE,
    modes.S_IFDIR: entries.DIRECTORY,
    modes.S_IFLNK: entries.LINK,
    modes.S_IFIFO: "fifo",
    modes.S_IFSOCK: "socket",
    modes.S_IFCHR: "device",
    modes.S_IFBLK: "device",
}


class Found(NamedTuple):
    """A file, and what changes when its content does."""

    entry: Entry
    stamp: tuple[bytes, ...]


def stat(tools: Tools, path: str, *, follow: bool = True, sha256: bool = False, deadline: Deadline) -> Found:
    """What is known of a file."""
    words = ("-L" if follow else "", "1" if sha256 else "0")
    output, _ = tools.run(_STAT, *words, path=path, deadline=deadline)
    told, _, rest = output.partition(b"\n")
    digest, _, target = rest.partition(b"\n")
    fields = told.split(b" ")
    entry = parse_fields(fields, name=posixpath.basename(path.rstrip("/")) or "/", path=path)
    if digest:
        entry = entry._replace(sha256=digest[:64].decode("ascii", "replace"))
    if entry.is_link:
        entry = entry._replace(target=entries.to_text(target.removesuffix(b"\n")))
    return Found(entry, tuple(fields))


def scan(tools: Tools, path: str, *, depth: int, deadline: Deadline) -> list[Entry]:
    """What is in a directory: each directory before what is in it, names in the order of their bytes.

    What comes and goes meanwhile may have one record without the other.
    """
    word = os.urandom(16).hex()
    output, _ = tools.run(_SCAN, str(depth), word, EACH, path=path, most=entries.MAX_LIST_BYTES, deadline=deadline)
    found: dict[bytes, Entry] = {}
    link = b""
    for record in output.split(word.encode("ascii") + b":")[1:]:
        kind, _, told = record.partition(b" ")
        if kind == b"entry":
            *fields, name = told.removesuffix(b"\n").split(b" ", _FIELDS)
            way = name.removeprefix(b"./")
            text = entries.to_text(way)
            entry = parse_fields(fields, name=posixpath.basename(text), path=posixpath.join(path, text))
            found[way] = entries.check_below(entry, path)
        elif kind == b"link":
            link = told.removeprefix(b"./")
        elif kind == b"target" and link in found:
            found[link] = found[link]._replace(target=entries.to_text(told.removesuffix(b"\n")))
        elif kind == b"closed" and told.count(b"/") < depth:
            closed = told.removeprefix(b"./")
            if closed in found:
                found[closed] = found[closed]._replace(error="permission denied")
    return [found[way] for way in sorted(found, key=lambda way: way.split(b"/"))]


def parse_fields(fields: list[bytes], *, name: str, path: str) -> Entry:
    """The entry that the fields of ``stat`` make.

    Raises:
        errors.AgentAnswerError: they are none of its.
    """
    try:
        mode, *counts = (int(field[:_MAX_DIGITS], base) for field, base in zip(fields[:5], _BASES, strict=True))
    except ValueError as error:
        raise errors.AgentAnswerError(f"the output of stat in the sandbox is not what it should be: {error}") from error
    members: dict[str, object] = dict(zip(("size", "mtime", "uid", "gid"), counts, strict=True))
    kind = _TYPES.get(mode & _TYPE_BITS, entries.UNKNOWN)
    return entries.parse_entry({**members, "name": name, "path": path, "type": kind, "mode": mode & entries.MAX_MODE})
