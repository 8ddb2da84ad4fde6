"""Files through an agent that has nothing but the base contract."""

from __future__ import annotations

from collections.abc import Iterator

from .. import errors
from ..deadline import NEVER, Deadline
from .client import AgentClient
from .files import RemoteFiles
from .sources import Source

__all__ = ["MinimalFiles"]


class MinimalReading:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = self.expected = len(data)
        self.mode = 0o644
        self.was_cut = False

    def __enter__(self) -> MinimalReading:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._data = b""

    def pieces(self) -> Iterator[bytes]:
        yield self._data


class MinimalFiles(RemoteFiles):
    """The files of a sandbox whose agent has no extensions."""

    def __init__(self, client: AgentClient) -> None:
        super().__init__(client)

    def open(  # type: ignore[override] # for the time being
        self, path: str, *, offset: int = 0, length: int | None = None, deadline: Deadline = NEVER
    ) -> MinimalReading:
        data = self._client.read_file(path, deadline=deadline)
        return MinimalReading(data[offset:] if length is None else data[offset : offset + length])

    def write(self, path: str, source: Source, *, mode: int | None = None, deadline: Deadline = NEVER) -> int:
        if mode is not None:
            raise errors.UnsupportedError("the agent in this sandbox cannot set a mode")
        return self._client.write_file(path, b"".join(source.pieces()), deadline=deadline)
