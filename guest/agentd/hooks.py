"""The lifecycle hooks that the platform calls on their own port, with any method.

Only ``ready`` and ``validate`` may answer 503 ("not yet"); anything but 200 from the others ends the VM.
"""

from __future__ import annotations

import json
import os
import sys
import time

from . import answers, frames, identity, journal, lean, wire
from .errors import RequestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .server import Request
    from .state import State

_VALIDATE_SECONDS = 10.0


class Hooks:
    """Answers the requests of the hook port.

    Args:
        state: Of this agent.
        identity: Of this VM.
        drain_seconds: How long a suspend waits for commands in flight.
        events: Are told of each hook and its outcome.
        agent_address: Where the agent itself listens, for ``validate``.
    """

    def __init__(
        self,
        state: State,
        *,
        identity: identity.Identity,
        drain_seconds: float,
        agent_address: tuple[str, int],
        events: journal.Events | None = None,
    ) -> None:
        self._state = state
        self._identity = identity
        self._drain_seconds = drain_seconds
        self._agent_address = agent_address
        self._events = events or journal.Events(is_wanted=False)
        self._told: tuple[str, int] | None = None
        handlers = (self._ready, self._validate, self._run, self._resume, self._suspend, self._terminate)
        self._routes: dict[str, Callable[[bytes], int]] = {
            wire.HOOK_PREFIX + name: handler for name, handler in zip(wire.HOOKS, handlers)
        }

    def respond(self, request: Request) -> answers.Answer:
        """The answer to one hook.

        Raises:
            RequestError: 404 for an unknown hook, 413 for a body above the limit.
        """
        handler = self._routes.get(request.head.path)
        if handler is None:
            raise RequestError(404, wire.NO_SUCH_ROUTE, f"no such hook: {request.head.path}")
        begin = time.monotonic()
        status = handler(request.body.read(wire.MAX_HOOK_BODY_BYTES))
        self._tell(request.head.path[len(wire.HOOK_PREFIX) :], status, seconds=time.monotonic() - begin)
        return answers.Answer(status)

    def _tell(self, name: str, status: int, *, seconds: float) -> None:
        """Tell of a hook that was answered; of one that is asked again and again until it is 200, only once."""
        if status == 200 or self._told != (name, status):
            self._events.tell(f"hook {name}: {status} after {seconds:.3f} s")
        self._told = (name, status)

    def _ready(self, body: bytes) -> int:
        return 200 if self._state.serving.is_set() else 503

    def _validate(self, body: bytes) -> int:
        """Run a trivial command the way a client would: what is touched here is prefetched at every launch."""
        connection = lean.client.HTTPConnection(*self._agent_address, timeout=2 * _VALIDATE_SECONDS)
        try:
            end = _run_trivially(connection)
        except (OSError, lean.client.HTTPException, ValueError) as error:
            journal.report(f"validate: {error}")
            return 503
        finally:
            connection.close()
        if end["exit_code"] == 0:
            return 200
        journal.report(f"validate: {end}")
        return 503

    def _run(self, body: bytes) -> int:
        if not self._identity.claim(body):
            journal.report("the run hook was called again; nothing was changed")
        return 200

    def _resume(self, body: bytes) -> int:
        self._state.suspension.end()
        identity.reseed()
        return 200

    def _suspend(self, body: bytes) -> int:
        # Announced first: a command that was not refused is counted by now, and waited for.
        self._state.suspension.begin()
        try:
            if not self._state.activity.wait_idle(self._drain_seconds):
                journal.report(f"suspended with commands in flight after {self._drain_seconds:g} s")
        finally:
            self._state.suspension.answered()
        return 200

    def _terminate(self, body: bytes) -> int:
        return 200


def _run_trivially(connection: lean.client.HTTPConnection) -> dict[str, object]:
    """Run a command that does nothing, and forget it; how it ended.

    Raises:
        OSError: the agent cannot be reached.
        HTTPException: it does not answer as it should.
        ValueError: the same; or the command did not end.
    """
    process_id = f"validate-{os.getpid()}-{time.monotonic_ns()}"  # not used before, and not again
    document = {"id": process_id, "command": sys.executable, "args": ["-I", "-S", "-c", "pass"], "cwd": "/"}
    connection.request("POST", f"{wire.PROCESSES_PATH}?wait={_VALIDATE_SECONDS:g}", json.dumps(document))
    response = connection.getresponse()
    answer = response.read(wire.MAX_HOOK_BODY_BYTES)
    if response.status != 200:
        raise ValueError(answer.decode("utf-8", "backslashreplace"))
    response.read()
    connection.request("DELETE", f"{wire.PROCESSES_PATH}/{process_id}")
    connection.getresponse().read()
    for kind, payload in frames.Decoder().feed(answer):
        if kind == frames.EXIT:
            return dict(json.loads(payload))
    raise ValueError("the command did not end")
