"""An agent with one process whose whole story is known beforehand, and whose answers can be cut anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs, urlsplit

from guest.agentd import frames, wire
from tests.support.scripted import Answer, Received, answer, json_answer

KINDS = {"stdout": frames.STDOUT, "stderr": frames.STDERR}
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/vnd.vmnest.frames\r\n\r\n"
NO_SUCH_PROCESS = json_answer(404, {"detail": "no such process", "code": wire.NO_SUCH_PROCESS})

Piece = tuple[str, bytes] | int  # output of a stream, or the size of a gap


class ProcessPeer:
    """A step for ``ScriptedServer(peer, repeat_last=True)``.

    Args:
        output: What the process writes: pieces of streams, and gaps.
        end: Its exit; None: it runs on.
        uptime: Seconds since the agent was started.

    Attributes:
        runs: The ids of all processes that were started, one for each time that a command was run.
        offsets: Where each answer of output was asked to begin, that of the start (0) included.
        input: What its standard input got.
        answers: For each of the next answers: how many bytes of it are sent before the connection is cut, an answer
            in its place, or None.
        before: Called with each request.
    """

    def __init__(self, *output: Piece, end: Mapping[str, object] | None = None, uptime: float = 1e6) -> None:
        self.output = list(output)
        self.end = end
        self.uptime: float | None = uptime
        self.runs: list[str] = []
        self.known: set[str] = set()
        self.offsets: list[int] = []
        self.input = b""
        self._taken: dict[str, int] = {}  # of each writer
        self.takes = 1 << 40  # bytes of input that it takes before it closes it
        self.signals: list[object] = []
        self.sizes: list[object] = []
        self.answers: list[int | Answer | None] = []
        self.before: Callable[[Received], object] = lambda received: None

    def restart(self) -> None:
        """The agent ends, with all processes, and another one begins."""
        self.known.clear()
        self.uptime = 0.0

    def __call__(self, received: Received) -> Answer:
        self.before(received)
        planned = self.answers.pop(0) if self.answers else None
        if isinstance(planned, Answer):
            return planned
        made = self._answer(received)
        if planned is None:
            return made
        whole = b"".join(made.pieces)
        return Answer([whole[:planned]], cut=True)

    def _answer(self, received: Received) -> Answer:
        url = urlsplit(received.target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        path = url.path
        if path == wire.HEALTH_PATH:
            uptime = {} if self.uptime is None else {"uptime": self.uptime}
            return json_answer(200, {"status": "ok", "version": "1", "features": ["processes"], **uptime})
        if path == wire.PROCESSES_PATH and received.method == "POST":
            return self._start(received, query)
        process_id, _, what = path.removeprefix(wire.PROCESSES_PATH + "/").partition("/")
        if process_id not in self.known:
            return NO_SUCH_PROCESS
        return self._about(received, what, query)

    def _start(self, received: Received, query: Mapping[str, str]) -> Answer:
        body = received.json()
        assert isinstance(body, dict)
        if body["id"] not in self.known:
            self.known.add(body["id"])
            self.runs.append(body["id"])
        if "wait" in query:
            return self._stream(int(query.get("offset", "0")))
        return json_answer(201, self.document())

    def _about(self, received: Received, what: str, query: Mapping[str, str]) -> Answer:
        if what == "output":
            return self._stream(int(query["offset"]))
        if what == "stdin":
            return self._take(received.body, query["writer"], int(query["offset"]))
        if what == "signal":
            self.signals.append(received.json())
            return json_answer(200, {"delivered": self.end is None})
        if what == "resize":
            self.sizes.append(received.json())
            return json_answer(200, {})
        if received.method == "DELETE":
            self.known.clear()
            self.end = self.end or {"exit_code": 137, "signal": "SIGKILL", "timed_out": False}
            return json_answer(200, self.document())
        return json_answer(200, self.document())

    def _take(self, body: bytes, writer: str, offset: int) -> Answer:
        taken = self._taken.get(writer, 0)
        if offset > taken:
            return json_answer(409, {"detail": "gap", "code": wire.STDIN_GAP})
        new = body[taken - offset :][: self.takes - len(self.input)]
        self.input += new
        self._taken[writer] = taken + len(new)
        return json_answer(200, {"offset": taken + len(new), "closed": len(self.input) >= self.takes})

    def document(self) -> dict[str, object]:
        """What the agent says of its process."""
        end = {"state": "running", "exit_code": None} if self.end is None else {"state": "ended", **self.end}
        return {
            "id": self.runs[-1] if self.runs else "p",
            "command": ["x"],
            "pid": 7,
            "pty": False,
            "stdin": "open",
            "signal": None,
            "timed_out": False,
            "started_at": 1.0,
            "ended_at": None,
            "retain": "block",
            "offset": self._size(),
            "oldest": 0,
            **end,
        }

    def frames(self, offset: int) -> bytes:
        """The frames of an answer from ``offset`` on."""
        found = [frames.encode(frames.PROCESS, json.dumps(self.document()).encode())]
        at = 0
        for piece in self.output:
            size = piece if isinstance(piece, int) else len(piece[1])
            skipped = min(size, max(0, offset - at))
            at += size
            if skipped < size:
                found.append(_encode(piece, skipped))
        if self.end is not None:
            found.append(frames.encode(frames.EXIT, json.dumps({**self.end, "offset": at}).encode()))
        return b"".join(found)

    def _stream(self, offset: int) -> Answer:
        self.offsets.append(offset)
        return stream_answer(self.frames(offset))

    def _size(self) -> int:
        return sum(piece if isinstance(piece, int) else len(piece[1]) for piece in self.output)


def stream_answer(body: bytes) -> Answer:
    """An answer of frames, in one chunk."""
    chunk = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
    return Answer([HEAD + chunk + b"0\r\n\r\n"])


def _encode(piece: Piece, skipped: int) -> bytes:
    if isinstance(piece, int):
        return frames.encode_gap(piece - skipped)
    return frames.encode(KINDS[piece[0]], piece[1][skipped:])


REFUSED = answer(403, "Token authentication failed")
