"""Files and directories on their way between this machine and a sandbox."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..agent.entries import Transfer
from ..agent.files import RemoteFiles
from ..deadline import Deadline

if TYPE_CHECKING:
    from ..agent.minimal import MinimalFiles

__all__ = ["LocalPath", "Progress", "download", "upload"]

LocalPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Chooser = Callable[[str], "RemoteFiles | MinimalFiles"]
Watch = Callable[["Progress"], object]


class Progress(NamedTuple):
    """How far a transfer is.

    Attributes:
        bytes: Content that was moved so far.
        total: All of it, None if that is not known.
        path: The file that is being moved.
    """

    bytes: int
    total: int | None
    path: str


def upload(
    choose: Chooser,
    local: LocalPath,
    remote: str,
    *,
    exclude: Sequence[str],
    progress: Watch | None,
    deadline: Deadline,
) -> Transfer:
    """See ``Files.upload``; ``choose`` gives what moves files with this agent."""
    raise NotImplementedError


def download(
    choose: Chooser,
    remote: str,
    local: LocalPath,
    *,
    exclude: Sequence[str],
    progress: Watch | None,
    deadline: Deadline,
) -> Transfer:
    """See ``Files.download``; ``choose`` gives what moves files with this agent."""
    raise NotImplementedError
