"""Work that takes longer than a host waits for a call: it goes on here, and a later call asks what became of it.

A work is known by an id that nobody can guess, for as long as this server runs. What is over is kept until others have
come after it.
"""

from __future__ import annotations

import os
import threading
import time

from ... import errors
from . import attendance

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..calls import Call

__all__ = ["Work", "Works"]

LOOK_SECONDS = 0.5
MOST_RUNNING = 4
MOST_KEPT = 32


class Work:
    """One of them. Thread-safe.

    Args:
        do: Does it; is given the work, to tell how far it is.
        again: How to ask for it again.

    Attributes:
        id: What it is known by.
        notes: What its user should know.
    """

    def __init__(self, do: Callable[[Work], dict[str, object]], *, again: str = "") -> None:
        self.id = os.urandom(16).hex()
        self.notes: list[str] = []
        self._do = do
        self._again = again
        self._told = ""
        self._is_unwanted = False
        self._over = threading.Event()
        self._data: dict[str, object] = {}
        self._failure: BaseException | None = None
        self._began = time.monotonic()

    @property
    def is_over(self) -> bool:
        """It has ended, well or not."""
        return self._over.is_set()

    def start(self) -> None:
        """Begin, on a thread of its own."""
        threading.Thread(target=self._run, name="vmnest-mcp-work", daemon=True).start()

    def drop(self) -> None:
        """Have it stop where it tells the next time."""
        self._is_unwanted = True

    def tell(self, text: str) -> None:
        """Keep how far it is.

        Raises:
            errors.VmnestError: it is not wanted any more; for the work itself, which tells.
        """
        if self._is_unwanted:
            raise errors.VmnestError("whoever began it has cancelled it")
        self._told = text

    def attend(self, call: Call) -> dict[str, object]:
        """Wait for its end, as long as a call may; its data, or how far it is.

        Raises:
            errors.VmnestError: it has failed.
        """
        until = time.monotonic() + attendance.MOST_SECONDS
        while not self._over.wait(max(0.0, min(LOOK_SECONDS, until - time.monotonic()))):
            call.check()
            call.progress(round(time.monotonic() - self._began, 1), message=self._told or None)
            if time.monotonic() >= until:
                break
        call.check()
        if not self.is_over:
            return {
                "running": True,
                "id": self.id,
                "hint": self._again,
                "progress": self._told,
                "seconds": round(time.monotonic() - self._began, 1),
                "notes": self.notes,
            }
        if self._failure is not None:
            raise self._failure
        return {**self._data, "running": False, "notes": self.notes}

    def _run(self) -> None:
        try:
            self._data = self._do(self)
        except BaseException as error:  # whoever asks is told
            self._failure = error
        finally:
            self._over.set()


class Works:
    """Those of one kind. Thread-safe.

    Args:
        what: How one is called: ``build``.
        again: How to ask for one again.
        lost: What to do if one is not known any more.
    """

    def __init__(self, what: str, *, again: str, lost: str) -> None:
        self._what = what
        self._again = again
        self._lost = lost
        self._lock = threading.Lock()
        self._works: dict[str, Work] = {}

    def start(self, do: Callable[[Work], dict[str, object]], *, call: Call) -> dict[str, object]:
        """Begin one, and attend to it. If this call is cancelled, so is the work: nobody knows its id.

        Raises:
            errors.UsageError: too many are running.
            errors.VmnestError: it has failed.
        """
        work = Work(do, again=self._again)
        with self._lock:
            running = [each.id for each in self._works.values() if not each.is_over]
            if len(running) >= MOST_RUNNING:
                raise errors.UsageError(
                    f"{len(running)} {self._what}s are running", hint=f"Ask for the end of one first: id={running[0]}."
                )
            over = [each.id for each in self._works.values() if each.is_over]
            for identity in over[: max(0, len(self._works) + 1 - MOST_KEPT)]:
                del self._works[identity]
            self._works[work.id] = work
        call.on_cancel(work.drop)
        work.start()
        return work.attend(call)

    def attend(self, identity: str, *, call: Call) -> dict[str, object]:
        """Attend to the one of that id.

        Raises:
            errors.NotFoundError: there is none.
            errors.VmnestError: it has failed.
        """
        with self._lock:
            found = self._works.get(identity)
        if found is None:
            raise errors.NotFoundError(
                f"this server has no {self._what} {errors.quote(identity, limit=60)}", hint=self._lost
            )
        return found.attend(call)
