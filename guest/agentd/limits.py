"""Resource limits: those that a request asks for, and the agent's own limit of open files."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import threading

from .errors import bad_argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PREFIX = "RLIMIT_"
# What this system has, as ulimit and prlimit call them: nofile, nproc, as, core, ...
NUMBERS: dict[str, int] = {
    name[len(_PREFIX) :].lower(): getattr(resource, name)
    for name in dir(resource)
    if name.startswith(_PREFIX) and name != "RLIMIT_OFILE"  # the other name of NOFILE
}
UNLIMITED = -1
_MAX = 2**63 - 1

# With this many open files the agent serves all connections and a thousand processes; more would only hide a leak.
_OWN_FILES = 65536
# While a command is spawned, others open files too, first of all those between them and their own commands: half of the
# lowered limit must be free.
_SPARE_SHARE = 2


def parse(value: object) -> dict[str, tuple[int, int]]:
    """Soft and hard limit by name, of a request's ``rlimits``: a number for both, or the two in a list.

    Raises:
        RequestError: ``bad_argument``.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_argument("rlimits", "must be an object")
    limits = {}
    for name, wanted in value.items():
        field = f"rlimits[{name!r}]"
        if name not in NUMBERS:
            raise bad_argument(field, f"must be one of {', '.join(sorted(NUMBERS))}")
        soft, hard = wanted if isinstance(wanted, list) and len(wanted) == 2 else (wanted, wanted)
        limits[name] = (_parse_limit(soft, field=field), _parse_limit(hard, field=field))
        if _rank(limits[name][0]) > _rank(limits[name][1]):
            raise bad_argument(field, "the soft limit must not be above the hard one")
    return limits


def _parse_limit(value: object, *, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not UNLIMITED <= value <= _MAX:
        raise bad_argument(field, "must be a number, -1 for no limit, or a list of two: soft and hard")
    return value


def _rank(limit: int) -> int:
    return _MAX + 1 if limit == UNLIMITED else limit


class OwnFiles:
    """How many files the agent may have open: more than it was started with, while commands get what that was.

    A limit belongs to the whole process and is inherited, and a thread can do nothing between fork and exec. So it is
    lowered while a command is spawned. That would refuse files to other threads if nearly as many as that are open;
    then it is raised, whoever else may be spawning, and is lowered in the child as soon as it runs. Thread-safe.
    """

    def __init__(self) -> None:
        self.original = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._raised = self.original
        self._lock = threading.Lock()
        self._spawning = 0  # threads in a ``lowered`` block; guarded by the lock, as is the next one
        self._is_low = False

    def raise_limit(self) -> None:
        """As far as the hard limit lets us, and no further than is of use. Once, before the first command."""
        soft, hard = self.original
        wanted = _OWN_FILES if hard == UNLIMITED else min(hard, _OWN_FILES)
        if soft != UNLIMITED and soft < wanted:
            self._raised = (wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, self._raised)

    @property
    def limits(self) -> Mapping[str, tuple[int, int]]:
        """What a command gets unless it asks for something else."""
        return {} if self._raised == self.original else {"nofile": self.original}

    @contextlib.contextmanager
    def lowered(self) -> Iterator[None]:
        """Spawn in this block, for which nobody is to be waited for; call ``lower`` for the child after it."""
        if self._raised == self.original:
            yield
            return
        is_scarce = _lowest_free_number() >= self.original[0] // _SPARE_SHARE
        self._change(+1, is_low=not is_scarce)
        try:
            yield
        finally:
            self._change(-1, is_low=self._is_low)

    def lower(self, pid: int) -> None:
        """Lower the limit of a child that may have inherited ours."""
        # One that has ended needs none, and one that became somebody else is beyond our rights.
        with contextlib.suppress(OSError):
            if resource.prlimit(pid, resource.RLIMIT_NOFILE) == self._raised:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, self.original)

    def _change(self, count: int, *, is_low: bool) -> None:
        with self._lock:
            self._spawning += count
            is_low = is_low and self._spawning > 0
            if is_low != self._is_low:
                resource.setrlimit(resource.RLIMIT_NOFILE, self.original if is_low else self._raised)
                self._is_low = is_low


def _lowest_free_number() -> int:
    """The number that the next file gets, which tells how many are open at least."""
    try:
        number = os.dup(0)
    except OSError:  # none is free
        return sys.maxsize
    os.close(number)
    return number
