"""Connections to the endpoint: used again, by whichever client comes next, for as long as they last."""

from __future__ import annotations

import select
import threading

from ..deadline import SYSTEM_CLOCK, Clock, Deadline
from ..wire import probing
from ..wire.pipes import Pipe
from .gate import Gate

__all__ = ["Upstream", "Upstreams"]

CONNECT_SECONDS = 20.0
# Peers drop idle connections after a minute or so. What cannot be repeated takes one only while it is fresh.
IDLE_LIMIT_SECONDS = 55.0
IDLE_LIMIT_UNREPEATABLE_SECONDS = 5.0
MAX_IDLE = 64
PROBE_SECONDS = 30  # of silence, after which the system asks whether the peer is still there


class Upstream(Pipe):
    """One connection. ``was_used`` tells whether it has carried a request before."""

    was_used = False
    idle_since = 0.0


class Upstreams:
    """The connections of one forwarder. Safe for threads; ``_lock`` guards the two collections."""

    def __init__(self, gate: Gate, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._gate = gate
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: list[Upstream] = []
        self._in_use: set[Upstream] = set()
        self._is_closed = False

    def take(self, *, is_repeatable: bool, must_be_new: bool = False) -> Upstream:
        """A connection for one request, to be given back or dropped.

        Raises:
            errors.VmnestError: there is none to be had.
        """
        limit = IDLE_LIMIT_SECONDS if is_repeatable else IDLE_LIMIT_UNREPEATABLE_SECONDS
        found = None if must_be_new else self._take_idle(limit)
        upstream = found or self._open()
        with self._lock:
            self._in_use.add(upstream)
            if self._is_closed:
                upstream.interrupt()
        return upstream

    def give_back(self, upstream: Upstream) -> None:
        """Keep it for another request: its answer was read to the end."""
        upstream.was_used = True
        upstream.idle_since = self._clock.monotonic()
        with self._lock:
            self._in_use.discard(upstream)
            if not self._is_closed and not upstream.has_pending and len(self._idle) < MAX_IDLE:
                self._idle.append(upstream)
                return
        upstream.close()

    def drop(self, upstream: Upstream) -> None:
        """End it."""
        with self._lock:
            self._in_use.discard(upstream)
        upstream.close()

    def drop_idle(self) -> None:
        """End those that nobody uses: they lead to where nobody is any more."""
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    def close(self) -> None:
        """End all; those in use are woken, and closed by their users."""
        with self._lock:
            self._is_closed = True
            for each in self._in_use:
                each.interrupt()
        self.drop_idle()

    def _open(self) -> Upstream:
        sock = self._gate.open(Deadline(CONNECT_SECONDS))
        probing.probe(sock, seconds=PROBE_SECONDS)  # some networks forget connections that say nothing, without a word
        return Upstream(sock)

    def _take_idle(self, limit: float) -> Upstream | None:
        """The one that was used last, if it is fresh and its peer has neither ended it nor said anything."""
        while True:
            now = self._clock.monotonic()
            with self._lock:
                if not self._idle or IDLE_LIMIT_SECONDS >= now - self._idle[-1].idle_since > limit:
                    return None  # what is too old for this request serves others
                upstream = self._idle.pop()
            if upstream.idle_since >= now - IDLE_LIMIT_SECONDS and not _has_news(upstream):
                return upstream
            upstream.close()


def _has_news(upstream: Upstream) -> bool:
    poller = select.poll()
    poller.register(upstream, select.POLLIN)
    if not poller.poll(0):
        return False
    try:
        return upstream.receive(1) is not None  # TLS may have news of its own, which are none
    except OSError:
        return True
