"""Files and directories between this machine and sandboxes, as far as the policy allows."""

from __future__ import annotations

import shlex

from ... import errors
from ...ops import copies
from .. import policy
from . import attendance, leftovers
from .tool import Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ...sandbox.transfer import Progress
    from ..calls import Call

__all__ = ["TOOLS"]

MOST_BYTES = 4 << 30  # to this machine: what a sandbox sends may have no end


def sandbox_fs_copy_from_host(
    *, name: str, host_path: str, dest: str, exclude: list[str] | None = None, call: Call
) -> dict[str, object]:
    """Copy a file or directory of this machine into a sandbox, replacing files that are there.

    Only from the working directory of this server, or AGENT_SANDBOX_MCP_HOST_PATHS. Into a directory that is there goes
    what has the source's name; host_path/. means what is in it.

    Args:
        name: Sandbox.
        host_path: File or directory on this machine.
        dest: Its new path in the sandbox, or a directory.
        exclude: What to leave out: node_modules, *.pyc.

    Returns:
        source, destination, files, directories, bytes, complete, skipped.
    """
    return _copy(copies.Place(None, host_path), copies.Place(name, dest), exclude=exclude, call=call)


def sandbox_fs_copy_to_host(
    *, name: str, src: str, host_path: str, exclude: list[str] | None = None, call: Call
) -> dict[str, object]:
    """Copy a file or directory of a sandbox to this machine, replacing files that are there.

    Only to where sandbox_fs_copy_from_host copies from. It is foreign: look at it before you run it.

    Args:
        name: Sandbox.
        src: File or directory in the sandbox.
        host_path: Its new path on this machine, or a directory.
        exclude: What to leave out: node_modules, *.pyc.

    Returns:
        source, destination, files, directories, bytes, complete, skipped.
    """
    return _copy(copies.Place(name, src), copies.Place(None, host_path), exclude=exclude, call=call)


def _copy(
    source: copies.Place, destination: copies.Place, *, exclude: list[str] | None, call: Call
) -> dict[str, object]:
    call.check()
    watch = _watch(call, most=MOST_BYTES if destination.sandbox is None else None)
    copier = copies.Copier(
        timeout=attendance.MOST_SECONDS, host=policy.from_settings(), makes_way=True, keeps_partial=False
    )
    try:
        data = copier.copy(source, destination, recursive=True, exclude=exclude or (), progress=watch)
    except (errors.WaitTimeoutError, errors.ReadTimeoutError) as error:
        words = " ".join(
            errors.quote(shlex.quote(str(place)), limit=leftovers.LONGEST_TOLD) for place in (source, destination)
        )
        error.add_hint(
            f"A call copies for at most {attendance.MOST_SECONDS:g} s, and the next one begins anew. Leave parts out "
            f"with exclude, copy them one by one, or have this run in a terminal: vmnest cp -r {words}"
        )
        raise
    return leftovers.shorten(data)


def _watch(call: Call, *, most: int | None) -> Callable[[Progress], object]:
    def watch(progress: Progress) -> None:
        call.check()
        if most is not None and progress.bytes > most:
            raise errors.RemoteFileError(
                f"the sandbox sends more than {most} bytes",
                hint="What was copied is removed again. Leave parts out with exclude, or copy them one by one.",
            )
        message = errors.quote(progress.path, limit=leftovers.LONGEST_TOLD)
        call.progress(progress.bytes, total=progress.total, message=message)

    return watch


TOOLS = (
    Tool(sandbox_fs_copy_from_host, title="Copy into a sandbox", destroys=True, repeatable=True),
    Tool(sandbox_fs_copy_to_host, title="Copy out of a sandbox", destroys=True, repeatable=True),
)
