"""A small client of an agent's processes, independent of the library's own: plain HTTP, and frames read by hand."""

from __future__ import annotations

import http.client
import itertools
import json
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.agent import Agent, Reply

PROCESS, STDOUT, STDERR, GAP, EXIT = range(1, 6)
SECONDS = 60.0
_HEAD = struct.Struct(">BI")
_ids = itertools.count(1)


@dataclass
class Heard:
    """What one or more answers of output told."""

    offset: int
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    gaps: list[tuple[int, int]] = field(default_factory=list)  # where, and how many bytes
    exit: dict[str, Any] | None = None

    def take(self, kind: int, payload: bytes) -> None:
        if kind == STDOUT:
            self.stdout += payload
        elif kind == STDERR:
            self.stderr += payload
        elif kind == GAP:
            (count,) = struct.unpack(">Q", payload)
            self.gaps.append((self.offset, count))
            self.offset += count
        elif kind == EXIT:
            self.exit = json.loads(payload)
        if kind in (STDOUT, STDERR):
            self.offset += len(payload)

    @property
    def exit_code(self) -> int:
        assert self.exit is not None, "no exit was told"
        return int(self.exit["exit_code"])


class RemoteProcess:
    """One process of an agent, by its id."""

    def __init__(self, agent: Agent, process_id: str) -> None:
        self.agent = agent
        self.id = process_id
        self.path = f"/v1/processes/{process_id}"
        self.typed = 0

    def tell(self) -> dict[str, Any]:
        """The process document."""
        document: dict[str, Any] = self.agent.request("GET", self.path).json()
        return document

    def read(self, offset: int = 0, *, wait: float = 0) -> Heard:
        """What one answer gives."""
        heard = Heard(offset)
        with self.open(offset, wait=wait) as stream:
            for kind, payload in stream:
                heard.take(kind, payload)
        return heard

    @contextmanager
    def open(self, offset: int = 0, *, wait: float = 0) -> Iterator[Iterator[tuple[int, bytes]]]:
        """The frames of an answer while it comes; the connection is cut at the end of the block."""
        connection = http.client.HTTPConnection(self.agent.host, self.agent.port, timeout=self.agent.timeout)
        try:
            connection.request("GET", f"{self.path}/output?offset={offset}&wait={wait:g}")
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield read_frames(response)
        finally:
            connection.close()

    def follow(self, offset: int = 0) -> Heard:
        """Everything from ``offset`` to the end, answer after answer."""
        heard = Heard(offset)
        deadline = time.monotonic() + SECONDS
        while heard.exit is None:
            assert time.monotonic() < deadline, self.tell()
            with self.open(heard.offset, wait=5) as stream:
                for kind, payload in stream:
                    heard.take(kind, payload)
        return heard

    def read_until(self, text: bytes, *, offset: int = 0) -> Heard:
        """What comes until standard output ends with ``text``."""
        heard = Heard(offset)
        with self.open(offset, wait=20) as stream:
            for kind, payload in stream:
                heard.take(kind, payload)
                if heard.stdout.endswith(text):
                    return heard
        raise AssertionError(f"{text!r} did not come, but {heard.stdout[-200:]!r}")

    def type(self, data: bytes, *, eof: bool = False) -> dict[str, Any]:
        """Feed its standard input; all of it must be taken."""
        for start in range(0, max(len(data), 1), 1024 * 1024):
            piece = data[start : start + 1024 * 1024]
            is_last = start + len(piece) >= len(data)
            reply = self.post(f"stdin?offset={self.typed}&eof={int(eof and is_last)}&wait=25", piece)
            assert reply.status == 200, reply.body
            self.typed += len(piece)
            document: dict[str, Any] = reply.json()
        return document

    def post(self, action: str, body: bytes | dict[str, Any]) -> Reply:
        """Ask for one of its actions."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.agent.request("POST", f"{self.path}/{action}", data)

    def signal(self, name: str) -> bool:
        return bool(self.post("signal", {"signal": name}).json()["delivered"])

    def delete(self) -> Reply:
        """Kill and forget it."""
        return self.agent.request("DELETE", self.path)


def start(agent: Agent, *argv: str, **members: Any) -> RemoteProcess:
    """Start a process; ``members`` are those of the request's document."""
    process_id = members.pop("id", f"p{next(_ids)}")
    document = {"id": process_id, **members}
    if argv:
        document.update(command=argv[0], args=list(argv[1:]))
    reply = agent.post("/v1/processes", document)
    assert reply.status == 201, reply.body
    return RemoteProcess(agent, process_id)


def run(agent: Agent, *argv: str, **members: Any) -> Heard:
    """Start a process and hear all of it."""
    return start(agent, *argv, **members).follow()


def read_frames(response: http.client.HTTPResponse) -> Iterator[tuple[int, bytes]]:
    """The frames of an answer, each as soon as it is there."""
    while head := _read_exactly(response, _HEAD.size):
        assert len(head) == _HEAD.size, "an answer ends within a frame"
        kind, size = _HEAD.unpack(head)
        payload = _read_exactly(response, size)
        assert len(payload) == size, "an answer ends within a frame"
        yield kind, payload


def _read_exactly(response: http.client.HTTPResponse, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := response.read(size - len(data))):
        data += piece
    return data
