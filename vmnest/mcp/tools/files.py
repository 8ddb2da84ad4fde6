"""Files of sandboxes: read, written, listed, changed, where they are."""

from __future__ import annotations

import base64
import binascii

from ... import errors
from ...deadline import Deadline
from ...ops import copies, excerpts, files
from . import attendance, leftovers, output
from .tool import Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from ..calls import Call

__all__ = ["TOOLS"]

MOST_ENTRIES = 1000


def sandbox_fs_read(
    *,
    name: str,
    path: str,
    encoding: Literal["text", "base64"] = "text",
    offset: int | None = None,
    limit: int | None = None,
    max_bytes: int | None = None,
    call: Call,
) -> dict[str, object]:
    """Read a file of a sandbox, or a part of it: lines of text, or bytes in base64.

    A long file comes in parts: go on with offset = next_offset. What is no UTF-8 comes in base64.

    Args:
        name: Sandbox.
        path: The file; if relative, in the working directory.
        encoding: base64 for the bytes as they are.
        offset: First line, from 1; with base64 first byte, from 0.
        limit: Number of lines; with base64 of bytes.
        max_bytes: Characters (20000).

    Returns:
        content {text, truncated, total_bytes, returned_bytes}, encoding, next_offset (null at the end) and its unit.
    """
    most = output.resolve_limit(max_bytes)
    deadline = Deadline(attendance.MOST_SECONDS)
    opened = files.open_files(name=name)
    while True:
        call.check()
        if encoding == "base64":
            data = excerpts.read_bytes(opened, path=path, offset=offset or 0, limit=limit, most=most, deadline=deadline)
        else:
            first = 1 if offset is None else offset
            data = excerpts.read_lines(
                opened, path=path, offset=first, limit=limit, most=most, deadline=deadline, check=call.check
            )
        if output.fits(data):
            return data
        most = output.shrink(most, data)


def sandbox_fs_write(
    *, name: str, path: str, content: str, encoding: Literal["text", "base64"] = "text", mode: str | None = None
) -> dict[str, object]:
    """Write a whole file of a sandbox, replacing what is there, and make its directory.

    For files of this machine: sandbox_fs_copy_from_host.

    Args:
        name: Sandbox.
        path: The file; if relative, in the working directory.
        content: All of it.
        encoding: base64 if the content is that.
        mode: Permission bits in octal, such as 755.

    Returns:
        path and bytes.
    """
    data = _decode(content, encoding=encoding)
    bits = None if mode is None else _parse_mode(mode)
    count = files.open_files(name=name).write(path, data, mode=bits, timeout=attendance.MOST_SECONDS)
    return {"path": path, "bytes": count}


def _decode(content: str, *, encoding: str) -> bytes:
    if encoding == "base64":
        try:
            return base64.b64decode("".join(content.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise errors.UsageError(f"content is no base64: {error}") from None
    try:
        return content.encode("utf-8")
    except UnicodeEncodeError as error:
        raise errors.UsageError(
            f"content has half a character at {error.start}", hint="Bytes that are no text go as base64."
        ) from None


def _parse_mode(text: str) -> int:
    if not 3 <= len(text) <= 5 or text.strip("01234567"):
        raise errors.UsageError(f"mode must be permission bits in octal, such as 755: {errors.quote(text, limit=20)}")
    return int(text, 8)


def sandbox_fs_list(
    *, name: str, path: str | None = None, depth: int = 1, offset: int = 0, limit: int = 200
) -> dict[str, object]:
    """List what is in a directory of a sandbox, hidden files included.

    Args:
        name: Sandbox.
        path: The directory; the working directory by default.
        depth: Levels to list.
        offset: Entries to leave out: a next_offset.
        limit: Entries to return, at most 1000.

    Returns:
        entries with name, path, type, size, mode, modified_at; truncated, next_offset.
    """
    return excerpts.list_part(
        files.open_files(name=name),
        path=path or files.WORKDIR,
        depth=_check_depth(depth),
        offset=offset,
        limit=min(limit, MOST_ENTRIES),
        most=output.resolve_limit(None),
        deadline=Deadline(attendance.MOST_SECONDS),
    )


def _check_depth(depth: int) -> int:
    if not 1 <= depth <= files.DEEPEST:
        raise errors.UsageError(f"depth must be a number of levels, from 1 to {files.DEEPEST}: {depth}")
    return depth


def sandbox_fs_mkdir(*, name: str, path: str) -> dict[str, object]:
    """Make a directory in a sandbox, and those above it. One that is there is fine.

    Args:
        name: Sandbox.
        path: The directory.

    Returns:
        path, created: true.
    """
    files.open_files(name=name).mkdir(path, timeout=attendance.MOST_SECONDS)
    return {"path": path, "created": True}


def sandbox_fs_remove(*, name: str, path: str, recursive: bool = False) -> dict[str, object]:
    """Remove a file or directory of a sandbox for good. A link is removed, not what it leads to.

    Args:
        name: Sandbox.
        path: What to remove.
        recursive: Also a directory that is not empty, with all that is in it.

    Returns:
        path, removed: true; an error if there is no such file.
    """
    try:
        files.open_files(name=name).remove(path, recursive=recursive, timeout=attendance.MOST_SECONDS)
    except errors.DirectoryNotEmptyError as error:
        error.add_hint("With recursive: true it is removed, and all that is in it.")
        raise
    return {"path": path, "removed": True}


def sandbox_fs_copy(*, name: str, src: str, dst: str) -> dict[str, object]:
    """Copy a file or directory within a sandbox. Into a directory that is there it goes by its name.

    Args:
        name: Sandbox.
        src: File or directory.
        dst: Its new path, or a directory.

    Returns:
        source, destination, complete, skipped: what was left out.
    """
    place = copies.Place(name, src)
    return leftovers.shorten(_copier().copy(place, place.at(dst), recursive=True))


def _copier() -> copies.Copier:
    return copies.Copier(timeout=attendance.MOST_SECONDS)


def sandbox_fs_rename(*, name: str, src: str, dst: str) -> dict[str, object]:
    """Rename or move a file or directory within a sandbox, replacing a file. Into a directory it keeps its name.

    Args:
        name: Sandbox.
        src: File or directory.
        dst: Its new path, or a directory.

    Returns:
        source, destination.
    """
    place = copies.Place(name, src)
    return _copier().move(place, place.at(dst))


def sandbox_fs_stat(*, name: str, path: str, follow: bool = False, sha256: bool = False) -> dict[str, object]:
    """Show type, size, mode, owner and time of a file of a sandbox.

    Args:
        name: Sandbox.
        path: The file.
        follow: Of a link: what it leads to.
        sha256: Also the digest of its content.

    Returns:
        name, path, type, size, mode, modified_at, uid, gid; target of a link.
    """
    entry = files.open_files(name=name).stat(path, follow=follow, sha256=sha256, timeout=attendance.MOST_SECONDS)
    return excerpts.shorten(files.describe(entry))


def sandbox_fs_exists(*, name: str, path: str) -> dict[str, object]:
    """Tell whether there is a file, directory or link of that path in a sandbox.

    Args:
        name: Sandbox.
        path: The path.

    Returns:
        path, exists.
    """
    return {"path": path, "exists": files.open_files(name=name).exists(path, timeout=attendance.MOST_SECONDS)}


TOOLS = (
    Tool(sandbox_fs_read, title="Read a file", reads=True),
    Tool(sandbox_fs_write, title="Write a file", destroys=True, repeatable=True),
    Tool(sandbox_fs_list, title="List a directory", reads=True),
    Tool(sandbox_fs_mkdir, title="Make a directory", repeatable=True),
    Tool(sandbox_fs_remove, title="Remove a file", destroys=True),
    Tool(sandbox_fs_copy, title="Copy within a sandbox", destroys=True),
    Tool(sandbox_fs_rename, title="Rename a file", destroys=True),
    Tool(sandbox_fs_stat, title="Show a file's facts", reads=True),
    Tool(sandbox_fs_exists, title="Look for a file", reads=True),
)
