"""Requests that are being worked on: each can be cancelled, and may tell how far it is.

What is sent for a call is decided here, under its lock: nothing after a cancellation, and nothing after the answer.
"""

from __future__ import annotations

import threading
import time

from . import jsonrpc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .eras import Era

__all__ = ["Call", "Calls", "CancelledError"]

PROGRESS_SECONDS = 0.25  # not more than so often: hosts draw each


class CancelledError(Exception):
    """Nobody waits for the answer any more."""


class Call:
    """A request that is being worked on. Thread-safe.

    Args:
        request: The request.
        era: The rules that it is served by.
        send: Takes its answer, and notifications before that.
        monotonic: The clock.

    Attributes:
        hurry: Set when it was cancelled, and the server is about to end.
    """

    def __init__(
        self,
        request: jsonrpc.Request,
        *,
        era: Era,
        send: Callable[[dict[str, object]], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.request = request
        self.era = era
        self._send = send
        self._monotonic = monotonic
        self._token = _progress_token(request)
        self._began = monotonic()
        self.hurry = threading.Event()
        self._lock = threading.Lock()  # guards all below
        self._is_cancelled = False
        self._is_answered = False
        self._ending: threading.Thread | None = None
        self._ends: list[Callable[[], None]] = []
        self._told = float("-inf")
        self._reached = float("-inf")

    @property
    def is_cancelled(self) -> bool:
        """Nobody waits for the answer any more."""
        with self._lock:
            return self._is_cancelled

    @property
    def is_answered(self) -> bool:
        """Its answer was sent."""
        with self._lock:
            return self._is_answered

    @property
    def age(self) -> float:
        """Seconds since it came."""
        return self._monotonic() - self._began

    @property
    def wants_progress(self) -> bool:
        """Somebody wants to hear how far it is."""
        return self._token is not None

    def check(self) -> None:
        """Raise CancelledError if nobody waits for the answer any more."""
        if self.is_cancelled:
            raise CancelledError

    def on_cancel(self, end: Callable[[], None]) -> None:
        """Have ``end`` called, on another thread, when the call is cancelled; at once if it is already."""
        with self._lock:
            if not self._is_cancelled:
                self._ends.append(end)
                return
        end()

    def cancel(self, *, hurried: bool = False) -> threading.Thread | None:
        """Nobody waits any more: send nothing, and end what goes on for it, on a thread that is returned.

        To end it may need the network, and whoever cancels has other things to read meanwhile. ``hurried``: this server
        is about to end, and has no time to be patient, also with what was cancelled before.
        """
        if hurried:
            self.hurry.set()
        thread = self._cancel(answer=None)
        return self._ending if hurried else thread

    def give_up(self, answer: dict[str, object]) -> None:
        """Send this answer instead of the one that does not come, and end what goes on for it, as ``cancel`` does."""
        self._cancel(answer=answer)

    def _cancel(self, *, answer: dict[str, object] | None) -> threading.Thread | None:
        with self._lock:
            if self._is_answered or self._is_cancelled:
                return None
            self._is_cancelled = True
            ends, self._ends = self._ends, []
            if answer is not None:
                self._is_answered = True
                self._send(answer)
            if ends:
                self._ending = threading.Thread(target=_end_all, args=(ends,), name="vmnest-mcp-cancel", daemon=True)
                self._ending.start()
            return self._ending

    def progress(self, reached: float, *, total: float | None = None, message: str | None = None) -> None:
        """Tell how far it is, if somebody wants to hear it, not too often, and only what is further than before."""
        with self._lock:
            now = self._monotonic()
            is_new = reached > self._reached and now - self._told >= PROGRESS_SECONDS
            if self._token is None or self._is_cancelled or self._is_answered or not is_new:
                return
            self._told, self._reached = now, reached
            told: dict[str, object] = {"progressToken": self._token, "progress": reached}
            if total is not None:
                told["total"] = total
            if message is not None:
                told["message"] = message
            # Under the lock: else it could come after the answer.
            self._send(jsonrpc.build_notification("notifications/progress", told))

    def answer(self, message: dict[str, object]) -> bool:
        """Send the answer, unless the call is cancelled or answered; whether it was sent."""
        with self._lock:
            if self._is_cancelled or self._is_answered:
                return False
            self._is_answered = True
            self._ends = []
            self._send(message)
            return True


def _end_all(ends: list[Callable[[], None]]) -> None:
    for end in ends:
        end()


def _progress_token(request: jsonrpc.Request) -> str | int | None:
    meta = request.params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, (str, int)) and not isinstance(token, bool) else None


class Calls:
    """The calls that are being worked on, by their ids. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[tuple[type, str | int], list[Call]] = {}  # an id should be there once, and clients err

    def add(self, call: Call) -> None:
        """One begins."""
        with self._lock:
            self._calls.setdefault(_key(call.request.id), []).append(call)

    def remove(self, call: Call) -> None:
        """It is over."""
        with self._lock:
            key = _key(call.request.id)
            left = [other for other in self._calls.get(key, ()) if other is not call]
            if left:
                self._calls[key] = left
            else:
                self._calls.pop(key, None)

    def all(self) -> list[Call]:
        """Those that are not over."""
        with self._lock:
            return [call for calls in self._calls.values() for call in calls]

    def cancel(self, identity: object) -> None:
        """Cancel what has this id; nothing may have it, and it may be anything."""
        if isinstance(identity, (str, int)) and not isinstance(identity, bool):
            with self._lock:
                found = list(self._calls.get(_key(identity), ()))
            for call in found:
                call.cancel()

    def cancel_all(self) -> None:
        """Whoever asked has gone. Returns when what went on for him has ended."""
        for thread in [call.cancel(hurried=True) for call in self.all()]:
            if thread is not None:
                thread.join()


def _key(identity: str | int) -> tuple[type, str | int]:
    return type(identity), identity
