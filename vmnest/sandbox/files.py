"""The files of a sandbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import errors
from ..deadline import Deadline

if TYPE_CHECKING:
    from ..agent.client import AgentClient

__all__ = ["Files"]

DEFAULT_SECONDS = 600.0


class Files:
    """Reads and writes whole files in a sandbox. Relative paths begin at the agent's working directory.

    Safe for threads. It holds nothing open.
    """

    def __init__(self, agent: Callable[[Deadline], AgentClient]) -> None:
        self._agent = agent

    def read(self, path: str, *, limit: int | None = None, timeout: float | None = DEFAULT_SECONDS) -> bytes:
        """The content of a file.

        Args:
            path: Where it is in the sandbox.
            limit: The most bytes to take; a larger file is an error.
            timeout: Seconds that this may take; None for no end.

        Raises:
            errors.RemoteFileNotFoundError: there is no such file.
            errors.RemoteFileError: it cannot be read, or is larger than ``limit``.
        """
        deadline = Deadline(timeout)
        return self._agent(deadline).read_file(path, limit=limit, deadline=deadline)

    def read_text(
        self,
        path: str,
        *,
        encoding: str = "utf-8",
        limit: int | None = None,
        timeout: float | None = DEFAULT_SECONDS,
    ) -> str:
        """The content of a file as text, strictly.

        Raises:
            errors.RemoteFileError: it is not text in that encoding (or what ``read`` raises).
        """
        data = self.read(path, limit=limit, timeout=timeout)
        try:
            return data.decode(encoding)
        except UnicodeDecodeError as error:
            raise errors.RemoteFileError(
                f"the file {path} in the sandbox is not {encoding} text: {error.reason} at byte {error.start}",
                hint="read() returns the bytes as they are.",
            ) from error

    def write(
        self, path: str, data: bytes | bytearray | memoryview | str, *, timeout: float | None = DEFAULT_SECONDS
    ) -> int:
        """Write a whole file, replacing what is there, and make its folder. Returns the number of bytes.

        Args:
            path: Where in the sandbox.
            data: Bytes, or text that is written as UTF-8.
            timeout: Seconds that this may take; None for no end.

        Raises:
            errors.RemoteFileError: it cannot be written.
            errors.RequestTooLargeError: it is more than the agent takes in one request.
        """
        content = data.encode("utf-8") if isinstance(data, str) else data
        deadline = Deadline(timeout)
        return self._agent(deadline).write_file(path, content, deadline=deadline)
