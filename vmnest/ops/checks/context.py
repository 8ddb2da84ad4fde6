"""What probes are given: everything that they look at comes from here, and what two of them need is made once."""

from __future__ import annotations

import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from ...deadline import Deadline

    Made = TypeVar("Made")

__all__ = ["Context"]


class Context:
    """The circumstances of one diagnosis. Probes in several threads share it.

    Attributes:
        environ: The environment.
        region: The AWS region that the caller named, or None.
        cwd: The working directory.
        deadline: When all answers must be there.
    """

    def __init__(self, *, environ: Mapping[str, str], deadline: Deadline, cwd: str, region: str | None = None) -> None:
        self.environ = environ
        self.region = region
        self.cwd = cwd
        self.deadline = deadline
        self._lock = threading.Lock()  # guards the next two, and is not held while anything is made
        self._locks: dict[str, threading.Lock] = {}
        self._made: dict[str, object] = {}

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """What ``make`` returns, from the first call with this name; what it raises, it raises at every call."""
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            if name not in self._made:
                self._made[name] = make()
            return self._made[name]  # type: ignore[return-value]  # one name has one maker
