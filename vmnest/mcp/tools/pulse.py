"""Tells a client every second that a call goes on, for as long as its tool waits for something that does not tell."""

from __future__ import annotations

import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from ..calls import Call

__all__ = ["Pulse"]

PERIOD_SECONDS = 1.0


class Pulse:
    """``with Pulse(call, "starting"): …`` reports the seconds that have gone by, if somebody wants to hear it."""

    def __init__(self, call: Call, message: str) -> None:
        self._call = call
        self._message = message
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Pulse:
        if self._call.wants_progress:
            self._thread = threading.Thread(target=self._run, name="vmnest-mcp-pulse", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._end.wait(PERIOD_SECONDS):
            self._call.progress(round(time.monotonic() - began, 1), message=self._message)
