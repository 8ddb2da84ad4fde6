"""What a sandbox uses, as its agent tells it. Any member may be missing or be nonsense: then it is not known, and None.

Nothing of it is taken for granted: an image may bring an agent of its own, and code inside may pose as the agent.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from .. import errors
from .._guest.agentd import wire
from ..deadline import NEVER, Deadline
from . import exchange, refusals

if TYPE_CHECKING:
    from ..transport import Response
    from .client import AgentClient

__all__ = ["Disk", "Memory", "Network", "Stats", "fetch", "parse"]

ANSWER_BYTES = 65536
LARGEST_COUNT = 2**63 - 1
LARGEST_FIGURE = 1e12  # of CPUs, of a load, of seconds


class Memory(NamedTuple):
    """Bytes in all, in use, and still to be had."""

    total: int | None = None
    used: int | None = None
    available: int | None = None

    @property
    def percent(self) -> float | None:
        """The share that is in use."""
        return _share(self.used, self.total)


class Disk(NamedTuple):
    """Bytes in all, in use, and free, of the disk that the working directory is on."""

    total: int | None = None
    used: int | None = None
    free: int | None = None

    @property
    def percent(self) -> float | None:
        """The share that is in use."""
        return _share(self.used, self.total)


class Network(NamedTuple):
    """Bytes received and sent since the sandbox began, what it says to itself left out."""

    received: int | None = None
    sent: int | None = None


class Stats(NamedTuple):
    """What a sandbox uses. None stands for what the agent does not tell.

    Attributes:
        cpus: How many CPUs it may use, as a number that may be broken.
        cpu_percent: The share of all of them that was in use since the agent was last asked, by anybody.
        load: How many processes ran or wanted to, on average over 1, 5 and 15 minutes.
        memory: Its memory.
        disk: Its disk.
        network: What went over its network.
        processes: How many processes there are.
        uptime: Seconds since the agent was started.
    """

    cpus: float | None = None
    cpu_percent: float | None = None
    load: tuple[float, float, float] | None = None
    memory: Memory = Memory()
    disk: Disk = Disk()
    network: Network = Network()
    processes: int | None = None
    uptime: float | None = None


NOTHING = Stats()


def fetch(client: AgentClient, *, over: float = 0.0, wakes: bool = True, deadline: Deadline = NEVER) -> Stats:
    """Ask the agent.

    Args:
        client: Of the agent.
        over: Seconds over which the share of the CPUs is measured: it is asked twice. 0: since somebody asked last,
            or else since it was started.
        wakes: Whether a suspended sandbox may be resumed for it.
        deadline: When to stop.

    Raises:
        errors.UnsupportedError: the agent does not tell what its sandbox uses.
        errors.AgentAnswerError: what it tells is not what the protocol says.
        errors.SandboxSuspendedError: the sandbox is suspended, and ``wakes`` is False.
    """
    if client.is_known_to_lack(wire.FEATURE_STATS):
        raise _unsupported()
    try:
        found = _ask(client, wakes=wakes, deadline=deadline)
        if over:
            client.clock.sleep(deadline.clamp(over))
            found = _ask(client, wakes=wakes, deadline=deadline)
    except errors.UnsupportedError as error:
        client.note_lack(wire.FEATURE_STATS)
        raise _unsupported() from error
    return found


def _ask(client: AgentClient, *, wakes: bool, deadline: Deadline) -> Stats:
    request = exchange.Request("GET", wire.STATS_PATH, asked=refusals.STATS, deadline=deadline, wakes=wakes)
    with client.send(request) as response:
        return parse(_read(response))


def parse(document: object) -> Stats:
    """The figures of an answer.

    Raises:
        errors.AgentAnswerError: there are none in it.
    """
    answer = _members(document)
    memory, disk, network = (_members(answer.get(name)) for name in ("memory", "disk", "network"))
    percent = _figure(answer.get("cpu_percent"))
    found = Stats(
        cpus=_figure(answer.get("cpus")) or None,  # a sandbox with no CPU at all tells nobody
        cpu_percent=None if percent is None or percent > 100 else percent,
        load=_load(answer.get("load")),
        memory=Memory(*(_count(memory.get(name)) for name in Memory._fields)),
        disk=Disk(*(_count(disk.get(name)) for name in Disk._fields)),
        network=Network(*(_count(network.get(name)) for name in Network._fields)),
        processes=_count(answer.get("processes")),
        uptime=_figure(answer.get("uptime")),
    )
    if found == NOTHING:
        raise errors.AgentAnswerError("the agent does not tell what the sandbox uses as the protocol says")
    return found


def _unsupported() -> errors.UnsupportedError:
    return errors.UnsupportedError(
        "the agent in this sandbox does not tell what it uses",
        hint="Build the image with vmnest's agent (vmnest image build), or ask the sandbox's own programs: "
        "vmnest exec NAME -- free",
    )


def _read(response: Response) -> object:
    try:
        return json.loads(response.read(ANSWER_BYTES))
    except (ValueError, RecursionError):
        return None


def _members(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    """A number of bytes or of processes."""
    is_one = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT
    return value if is_one else None  # type: ignore[return-value] # that is what was looked at


def _figure(value: object) -> float | None:
    """A number that may be broken, which JSON in Python may also be none at all."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value <= LARGEST_FIGURE else None


def _load(value: object) -> tuple[float, float, float] | None:
    figures = [_figure(each) for each in value] if isinstance(value, list) and len(value) == 3 else []
    one, five, fifteen = figures or (None, None, None)
    return None if one is None or five is None or fifteen is None else (one, five, fifteen)


def _share(used: int | None, total: int | None) -> float | None:
    return 100 * used / total if used is not None and total and used <= total else None
