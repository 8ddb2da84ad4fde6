"""Serves MCP: reads messages, answers what is quick at once, and gives what may take time to threads.

The reader never waits for a tool, so that a ping is answered while all of them work. Nothing is remembered of a client
but the version of its handshake, which modern requests do not even look at.
"""

from __future__ import annotations

import threading
from collections import deque

from .. import errors
from . import envelope, eras, jsonrpc, stdio
from .calls import Call, Calls, CancelledError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol

    class _Way(Protocol):
        """Where the answer to a message goes."""

        def send(self, message: dict[str, object]) -> None:
            """Send an answer, or a notification before it."""

        def forgo(self) -> None:
            """There will be no answer."""

    class Provider(Protocol):
        """What is offered."""

        def tools(self) -> Sequence[Mapping[str, object]]:
            """The tools as ``tools/list`` has them."""

        def call(self, name: str, arguments: Mapping[str, object], call: Call) -> dict[str, object] | None:
            """The result of a tool; None if there is no such tool."""

        def resources(self) -> Sequence[Mapping[str, object]]:
            """The resources as ``resources/list`` has them."""

        def read(self, uri: str, call: Call) -> Sequence[Mapping[str, object]] | None:
            """The contents of a resource; None if there is no such resource."""


__all__ = ["Provider", "Server"]

WORKERS = 32
MOST_WAITING = 1000
MOST_ABANDONED = 256
# Tools answer within 45 seconds, as far as they know how long what they ask takes. Hosts wait 60.
PATIENCE_SECONDS = 55.0
LOOK_SECONDS = 1.0
STATIC_TTL_MS = 3_600_000
_SLOW = frozenset({"tools/call", "resources/read"})
_FAULT = "Internal error; standard error has the details"
_LOST = "Internal error: vmnest cannot load a part of itself; if it was replaced or removed meanwhile, start it again"


class Server:
    """One conversation. ``receive`` is called by one thread.

    Args:
        provider: What is offered.
        identity: Who we are: name, version, title.
        instructions: How a model uses us.
        write: Takes a line that goes to the client. Called from any thread.
        workers: How many calls are worked on at once.
        patience: Seconds after which a call that has no answer is given up.
        abandoned: How many calls that nobody waits for any more may go on beside those.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        identity: Mapping[str, object],
        instructions: str,
        write: Callable[[bytes], None],
        workers: int = WORKERS,
        patience: float = PATIENCE_SECONDS,
        abandoned: int = MOST_ABANDONED,
    ) -> None:
        self._provider = provider
        self._identity = identity
        self._instructions = instructions
        self._write = write
        self._negotiated: str | None = None
        self._calls = Calls()
        self._pool = _Pool(workers, abandoned=abandoned)
        self._watch = _Watch(self._calls, patience=patience, give_up=self._give_up)

    def receive(self, line: bytes | stdio.TooLong) -> None:
        """Serve a line; what takes time goes on after this returns."""
        if isinstance(line, stdio.TooLong):
            reason = f"Invalid request: a line has at most {stdio.LONGEST_LINE_BYTES} bytes"
            self._send(jsonrpc.Invalid(jsonrpc.INVALID_REQUEST, reason).reply)
            return
        message = jsonrpc.parse(line)
        if isinstance(message, jsonrpc.Batch):
            self._receive_batch(message)
        else:
            self._receive(message, _Alone(self._send))

    def close(self) -> None:
        """The client has gone: end what goes on for it."""
        self._calls.cancel_all()

    # -- messages ------------------------------------------------------------------------------------------------------

    def _send(self, message: object) -> None:
        self._write(jsonrpc.to_line(message))

    def _receive(self, message: jsonrpc.Message, way: _Way) -> None:
        if isinstance(message, jsonrpc.Invalid):
            way.send(message.reply)
        elif isinstance(message, jsonrpc.Notification):
            if message.method == "notifications/cancelled":
                self._calls.cancel(message.params.get("requestId"))
        elif isinstance(message, jsonrpc.Request):
            self._serve(message, way)

    def _receive_batch(self, batch: jsonrpc.Batch) -> None:
        if self._negotiated != eras.BATCH_VERSION:
            reason = "Invalid request: this revision of the protocol has no batches"
            self._send(jsonrpc.Invalid(jsonrpc.INVALID_REQUEST, reason).reply)
            return
        answers = _Answers(batch, self._send)
        for message in batch.messages:
            if isinstance(message, jsonrpc.Request) and message.method == "initialize":
                message = jsonrpc.Invalid(
                    jsonrpc.INVALID_REQUEST, "Invalid request: initialize is not for batches", id=message.id
                )
            self._receive(message, answers)

    def _serve(self, request: jsonrpc.Request, way: _Way) -> None:
        try:
            era = eras.choose(request, negotiated=self._negotiated)
        except jsonrpc.ProtocolError as error:
            way.send(jsonrpc.build_error(request.id, error))
            return
        call = Call(request, era=era, send=way.send)
        if request.method not in _SLOW:
            self._work(call, way)
            return
        self._calls.add(call)
        refusal = self._pool.submit(lambda: self._work(call, way))
        if refusal is not None:
            self._calls.remove(call)
            call.answer(_fault(request, refusal))
            return
        self._watch.look()

    def _give_up(self, call: Call) -> None:
        """Whoever asked would wait no longer, and never learn why."""
        name = call.request.params.get("name") or call.request.params.get("uri")
        failure = errors.WaitTimeoutError(
            f"{str(name)[:100]} has not answered within {call.age:.0f} s",
            hint="It was given up as if it had been cancelled, and what it began is ended as far as it can be reached. "
            "sandbox_status tells how a sandbox is; sandbox_exec_start is for what takes long.",
        )
        if call.request.method == "tools/call":
            message = jsonrpc.build_result(call.request.id, self._complete(call.era, envelope.build_failure(failure)))
        else:
            message = _fault(call.request, failure.message)
        call.give_up(message)

    def _work(self, call: Call, way: _Way) -> None:
        request = call.request
        message: dict[str, object] = {}
        failure: Exception | None = None
        if request.method in _SLOW:
            call.on_cancel(self._pool.lend)
        try:
            call.check()
            message = jsonrpc.build_result(request.id, self._result(call))
        except CancelledError:
            call.cancel()
        except jsonrpc.ProtocolError as error:
            message = jsonrpc.build_error(request.id, error)
        except Exception as error:  # the last line of a call: one that fails must not end the others
            failure = error
            message = _fault(request, _LOST if isinstance(error, ImportError) else _FAULT)
        finally:
            self._calls.remove(call)
        if not call.answer(message) and not call.is_answered:
            way.forgo()
        if request.method in _SLOW and call.is_cancelled:
            self._pool.take_back()
        if failure is not None:  # only now: nobody may be reading standard error
            import logging

            logging.getLogger(__name__).error("%s failed", request.method, exc_info=failure)

    # -- methods -------------------------------------------------------------------------------------------------------

    def _result(self, call: Call) -> dict[str, object]:
        method, params, era = call.request.method, call.request.params, call.era
        if method == "initialize":
            self._negotiated = era.version
            return self._greet({"protocolVersion": era.version}, serverInfo=self._identity)
        if method == "server/discover":
            return self._complete(
                era, self._greet({"supportedVersions": list(eras.MODERN_VERSIONS)}), ttl_ms=STATIC_TTL_MS
            )
        if method == "ping":
            return self._complete(era, {})
        if method == "tools/call":
            return self._complete(era, self._call_tool(call))
        if method == "resources/read":
            return self._complete(era, {"contents": self._read(call)}, ttl_ms=0)
        return self._complete(era, self._list(method, params), ttl_ms=STATIC_TTL_MS, is_public=True)

    def _list(self, method: str, params: Mapping[str, object]) -> dict[str, object]:
        """All lists have one page: nobody was given a cursor."""
        if params.get("cursor") is not None:
            raise jsonrpc.invalid_params("cursor is none that was given out")
        if method == "tools/list":
            return {"tools": self._provider.tools()}
        if method == "resources/list":
            return {"resources": self._provider.resources()}
        return {"resourceTemplates": []}

    def _greet(self, versions: Mapping[str, object], **more: object) -> dict[str, object]:
        offered: dict[str, object] = {"tools": {}, "resources": {}}
        return {**versions, "capabilities": offered, **more, "instructions": self._instructions}

    def _complete(
        self, era: eras.Era, result: Mapping[str, object], *, ttl_ms: int | None = None, is_public: bool = False
    ) -> dict[str, object]:
        return era.complete(result, server=self._identity, ttl_ms=ttl_ms, is_public=is_public)

    def _call_tool(self, call: Call) -> dict[str, object]:
        name, arguments = call.request.params.get("name"), call.request.params.get("arguments")
        if not isinstance(name, str):
            raise jsonrpc.invalid_params("name must be a string")
        if not isinstance(arguments, (dict, type(None))):
            raise jsonrpc.invalid_params("arguments must be an object")
        result = self._provider.call(name, arguments or {}, call)
        if result is None:
            raise jsonrpc.invalid_params(f"there is no tool {name[:100]!r}")
        return result

    def _read(self, call: Call) -> Sequence[Mapping[str, object]]:
        uri = call.request.params.get("uri")
        if not isinstance(uri, str):
            raise jsonrpc.invalid_params("uri must be a string")
        contents = self._provider.read(uri, call)
        if contents is None:
            raise call.era.resource_not_found(uri)
        return contents


def _fault(request: jsonrpc.Request, reason: str) -> dict[str, object]:
    return jsonrpc.build_error(request.id, jsonrpc.ProtocolError(jsonrpc.INTERNAL_ERROR, reason))


class _Alone:
    """The way back for a message that came alone."""

    def __init__(self, send: Callable[[object], None]) -> None:
        self._send = send

    def send(self, message: dict[str, object]) -> None:
        """Send an answer, or a notification."""
        self._send(message)

    def forgo(self) -> None:
        """There will be no answer."""


class _Answers:
    """The way back for the messages of a batch: their answers go together, when there are all of them. Thread-safe."""

    def __init__(self, batch: jsonrpc.Batch, send: Callable[[object], None]) -> None:
        self._send = send
        self._lock = threading.Lock()  # guards the answers and how many are awaited
        self._answers: list[dict[str, object]] = []
        self._awaited = sum(isinstance(each, (jsonrpc.Request, jsonrpc.Invalid)) for each in batch.messages)

    def send(self, message: dict[str, object]) -> None:
        """Keep an answer; a notification goes at once."""
        if "method" in message:
            self._send(message)
        else:
            self._count([message])

    def forgo(self) -> None:
        """There will be no answer to one of them."""
        self._count([])

    def _count(self, answers: list[dict[str, object]]) -> None:
        with self._lock:
            self._answers += answers
            self._awaited -= 1
            is_whole = not self._awaited
        if is_whole and self._answers:
            self._send(self._answers)


class _Watch:
    """Gives up calls that have no answer after too long, on a thread that is there while there are calls. Thread-safe.

    Args:
        calls: The calls.
        patience: Seconds that each may take.
        give_up: Gives one up.
    """

    def __init__(self, calls: Calls, *, patience: float, give_up: Callable[[Call], None]) -> None:
        self._calls = calls
        self._patience = patience
        self._give_up = give_up
        self._lock = threading.Lock()  # guards whether there is a thread
        self._is_looking = False

    def look(self) -> None:
        """There is a call."""
        with self._lock:
            if self._is_looking:
                return
            self._is_looking = True
        threading.Thread(target=self._run, name="vmnest-mcp-watch", daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        while self._has_calls():
            pause.wait(min(LOOK_SECONDS, self._patience))
            for call in self._calls.all():
                if call.age >= self._patience:
                    self._give_up(call)

    def _has_calls(self) -> bool:
        with self._lock:
            self._is_looking = bool(self._calls.all())
            return self._is_looking


class _Pool:
    """Threads that are started as they are needed, up to so many, and wait for more work. Thread-safe.

    A thread whose work nobody waits for any more, and which waits for something itself, keeps nobody from being served:
    there may be another one in its place.

    Args:
        workers: So many.
        abandoned: In how many places there may be another.
    """

    def __init__(self, workers: int, *, abandoned: int) -> None:
        self._workers = workers
        self._abandoned = abandoned
        self._changed = threading.Condition()  # guards all below
        self._waiting: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._idle = 0
        self._lent = 0  # works that nobody waits for any more, and that go on

    def submit(self, work: Callable[[], None]) -> str | None:
        """Have it done; or why it will not be."""
        with self._changed:
            if self._lent >= self._workers + self._abandoned:
                return (
                    f"{self._lent} calls that were cancelled or given up still wait for what does not answer, and no "
                    "more can be served; try again later, or restart this server"
                )
            if len(self._waiting) >= MOST_WAITING:
                return "Too many requests are waiting; try again later"
            self._waiting.append(work)
        self._serve()
        return None

    def lend(self) -> None:
        """Nobody waits any more for what one of the threads does."""
        with self._changed:
            self._lent += 1
        self._serve()

    def take_back(self) -> None:
        """It has done it."""
        with self._changed:
            self._lent -= 1

    @property
    def _most(self) -> int:
        return self._workers + max(0, min(self._lent, self._abandoned))

    def _serve(self) -> None:
        """See to it that what waits is done."""
        with self._changed:
            if self._idle >= len(self._waiting) or self._threads >= self._most:
                self._changed.notify()
                return
            self._threads += 1
            number = self._threads
        # A daemon: when the client has gone, nobody waits for a service that does not answer.
        threading.Thread(target=self._run, name=f"vmnest-mcp-{number}", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._threads > self._most:
                    self._threads -= 1
                    self._changed.notify()
                    return
                self._idle += 1
                while not self._waiting:
                    self._changed.wait()
                self._idle -= 1
                work = self._waiting.popleft()
            work()
