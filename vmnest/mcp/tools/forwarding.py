"""Ports of sandboxes on this machine: the server process listens, on loopback alone, and its end is theirs."""

from __future__ import annotations

import os
import threading
from collections import deque

from ... import errors
from ...forward import ports as routes
from ...ops import forward
from . import attendance
from .pulse import Pulse
from .tool import Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...sandbox.forwarding import Forwarding
    from ..calls import Call

__all__ = ["TOOLS", "Forward", "Forwards"]

MOST_FORWARDS = 32
MOST_PORTS = 256  # of all of them together: each takes two descriptors
MOST_REMARKS = 20
STARTING, OPEN, ENDED = "starting", "open", "ended"


class Forward:
    """Ports of one sandbox, from the wish to the end. Thread-safe.

    Attributes:
        id: By which it is stopped.
        name: Sandbox.
        ports: As they were named.
        count: How many they are.

    Raises:
        errors.UsageError: a port is none.
    """

    def __init__(self, name: str, ports: Sequence[str]) -> None:
        self.id = os.urandom(16).hex()
        self.name = name
        self.ports = ports
        self.count = sum(len(routes.parse_route(each)) for each in ports)
        self._remarks: deque[str] = deque(maxlen=MOST_REMARKS)
        self._settled = threading.Event()
        self._lock = threading.Lock()  # guards all below
        self._is_stopped = False
        self._forwarding: Forwarding | None = None
        self._error: errors.VmnestError | None = None

    def start(self, *, local: bool | None = None) -> None:
        """Begin: a sandbox that is suspended is resumed first, which takes its time."""
        threading.Thread(target=self._open, args=(local,), name="vmnest-mcp-forward", daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Wait until it is open.

        Raises:
            errors.VmnestError: it cannot be opened.
        """
        self._settled.wait(seconds)
        with self._lock:
            if self._error is not None:
                raise self._error

    def stop(self) -> None:
        """Listen no more. May be called again."""
        with self._lock:
            self._is_stopped = True
            forwarding = self._forwarding
        self._settled.set()
        if forwarding is not None:
            forwarding.close()

    @property
    def is_over(self) -> bool:
        """It has ended, or never began."""
        return self._look()[0] == ENDED

    def describe(self) -> dict[str, object]:
        """What is forwarded where."""
        state, error = self._look()
        shown: dict[str, object] = {"id": self.id, "name": self.name, "state": state, "forwards": []}
        if self._forwarding is not None:
            shown |= forward.describe(self._forwarding, name=self.name)
        if error is not None:
            shown["error"] = error.to_wire()
        if self._remarks:
            shown["remarks"] = list(self._remarks)
        return shown

    def _look(self) -> tuple[str, errors.VmnestError | None]:
        with self._lock:
            forwarding, error, is_stopped = self._forwarding, self._error, self._is_stopped
        if error is not None or is_stopped:
            return ENDED, error
        if forwarding is None:
            return ENDED if self._settled.is_set() else STARTING, None
        if forwarding.is_open:
            return OPEN, None
        try:
            forwarding.wait(0)
        except errors.VmnestError as reason:
            return ENDED, reason
        return ENDED, None

    def _open(self, local: bool | None) -> None:
        try:
            forwarding = forward.open_forward(
                name=self.name, ports=self.ports, local=local, on_remark=self._remarks.append
            )
        except errors.VmnestError as error:
            with self._lock:
                self._error = error
        else:
            with self._lock:
                self._forwarding = forwarding
                is_late = self._is_stopped
            if is_late:
                forwarding.close()
        finally:
            self._settled.set()


class Forwards:
    """What this process forwards. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the table
        self._forwards: dict[str, Forward] = {}

    def add(self, name: str, ports: Sequence[str]) -> Forward:
        """A new one; of too many, those that have ended are forgotten.

        Raises:
            errors.UsageError: too many are open, or a port is none.
        """
        made = Forward(name, ports)
        with self._lock:
            if self._is_too_much_with(made):
                self._forwards = {each.id: each for each in self._forwards.values() if not each.is_over}
            if self._is_too_much_with(made):
                raise errors.UsageError(
                    f"more than {MOST_FORWARDS} forwardings, or {MOST_PORTS} ports, would be open",
                    hint="sandbox_forward_stop ends some of them.",
                )
            self._forwards[made.id] = made
        return made

    def _is_too_much_with(self, made: Forward) -> bool:
        ports = made.count + sum(each.count for each in self._forwards.values())
        return len(self._forwards) >= MOST_FORWARDS or ports > MOST_PORTS

    def all(self) -> list[Forward]:
        """All of them, the oldest first."""
        with self._lock:
            return list(self._forwards.values())

    def remove(self, each: Forward) -> None:
        """Stop it, and forget it."""
        with self._lock:
            self._forwards.pop(each.id, None)
        each.stop()


_FORWARDS = Forwards()


def sandbox_forward_start(*, name: str, ports: list[str], local: bool | None = None, call: Call) -> dict[str, object]:
    """Make HTTP and WebSocket servers in a sandbox reachable on this machine, at http://localhost:PORT.

    Until sandbox_forward_stop, the sandbox's end, or that of this MCP server. Start servers with sandbox_exec_start.

    Args:
        name: The sandbox; a suspended one is resumed.
        ports: Each "8000", "8000:3000" (8000 in it is 3000 here), "8000:0" (any free one here), or "3000-3005".
        local: true: only look for it on this machine.

    Returns:
        id, state, forwards: remote, local, url of each. If state is starting, see sandbox_forward_list.
    """
    made = _FORWARDS.add(name, ports)
    call.on_cancel(lambda: _FORWARDS.remove(made))
    made.start(local=local)
    try:
        with Pulse(call, f"forwarding ports of {name}"):
            made.wait(attendance.MOST_SECONDS)
    except errors.VmnestError as error:
        _FORWARDS.remove(made)
        if isinstance(error, errors.ListenError):
            error.add_hint("8000:0 takes any local port that is free; sandbox_forward_list tells what is forwarded.")
        raise
    call.check()
    return made.describe()


def sandbox_forward_list() -> dict[str, object]:
    """List the ports of sandboxes that this MCP server forwards.

    Returns:
        forwardings: id, name, state (starting, open, ended), forwards, error: why it ended; count.
    """
    found = [each.describe() for each in _FORWARDS.all()]
    return {"forwardings": found, "count": len(found)}


def sandbox_forward_stop(*, id: str | None = None, name: str | None = None) -> dict[str, object]:  # noqa: A002
    """Stop forwarding ports of a sandbox: one forwarding, or all of the sandbox. The sandbox goes on.

    Args:
        id: The forwarding, as sandbox_forward_start told it.
        name: The sandbox, for all of its forwardings.

    Returns:
        stopped: the ids.
    """
    if (id is None) == (name is None):
        raise errors.UsageError("name either id or name")
    found = [each for each in _FORWARDS.all() if each.id == id or (id is None and each.name == name)]
    if not found:
        what = (
            f"has the id {errors.quote(id, limit=60)}"
            if id is not None
            else f"is of {errors.quote(str(name), limit=60)}"
        )
        raise errors.NotFoundError(f"no forwarding {what}", hint="sandbox_forward_list tells them.")
    for each in found:
        _FORWARDS.remove(each)
    return {"stopped": [each.id for each in found]}


TOOLS = (
    Tool(sandbox_forward_start, title="Forward ports", is_open=True),
    Tool(sandbox_forward_list, title="List forwarded ports", reads=True),
    Tool(sandbox_forward_stop, title="Stop forwarding", repeatable=True),
)
