"""The files of a sandbox: found by the sandbox's name, shown as ``--json`` and the MCP server show them.

Names that are no UTF-8 have lone surrogates in the place of the bytes that are none, as ``os.fsdecode`` makes them.
"""

from __future__ import annotations

from .. import errors
from . import commands, moments, sandboxes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..agent.entries import Entry
    from ..sandbox.files import Files

__all__ = ["BLOCK_BYTES", "DEEPEST", "WORKDIR", "change_mode", "describe", "open_files", "read_file", "stream_file"]

BLOCK_BYTES = 256 * 1024
WORKDIR = "."  # a relative path begins at the agent's working directory
MOST_READ_BYTES = 64 * 1024 * 1024  # of a file that is shown as one JSON value
DEEPEST = 10_000  # more levels than a path can have


def open_files(*, name: str, resume: bool = True, local: bool | None = None, region: str | None = None) -> Files:
    """The files of the sandbox of that name. Nothing is asked before they are used.

    Args:
        name: The sandbox.
        resume: False: refuse a suspended sandbox instead of resuming it.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
    """
    return sandboxes.open_sandbox(name, resume=resume, local=local, region=region).files


def describe(entry: Entry) -> dict[str, object]:
    """A file or directory, with its permission bits in octal and its time as text."""
    found: dict[str, object] = {
        "name": entry.name,
        "path": entry.path,
        "type": entry.type,
        "size": entry.size,
        "mode": f"{entry.mode:04o}",
        "modified_at": moments.from_epoch(entry.mtime, fractions=True),
        "uid": entry.uid,
        "gid": entry.gid,
    }
    extra = {"target": entry.target, "sha256": entry.sha256, "error": entry.error}
    return {**found, **{name: value for name, value in extra.items() if value is not None}}


def read_file(files: Files, *, path: str, limit: int = MOST_READ_BYTES) -> dict[str, object]:
    """A file's content: text where it is text, else base64.

    Raises:
        errors.RemoteFileError: it cannot be read, or is larger than ``limit``.
    """
    data = files.read(path, limit=limit)
    content, encoding = commands.to_text(data)
    return {"path": path, "bytes": len(data), "encoding": encoding, "content": content}


def stream_file(files: Files, *, path: str) -> Iterator[bytes]:
    """A file's content in pieces, as they arrive."""
    with files.open_read(path) as file:
        while True:
            data = file.read(BLOCK_BYTES)
            if not data:
                return
            yield data


def change_mode(files: Files, *, path: str, change: Callable[[Entry], int], recursive: bool = False) -> None:
    """Give a file, or a directory and all that is in it, the permission bits that ``change`` makes of those it has.

    Symbolic links in a directory are left alone.

    Raises:
        errors.RemoteFileError: a part of the directory cannot be seen; what could be was changed.
    """
    top = files.stat(path)
    below = files.list(path, depth=DEEPEST, timeout=None) if recursive and top.is_directory else []
    # From the leaves up: a directory may not let anybody in after its change.
    for entry in reversed([top, *below]):
        if not entry.is_link and (wanted := change(entry)) != entry.mode:
            files.chmod(entry.path, wanted)
    hidden = next((entry for entry in below if entry.error is not None), None)
    if hidden is not None:
        raise errors.RemoteFileError(f"cannot look into {hidden.path} in the sandbox: {hidden.error}")
