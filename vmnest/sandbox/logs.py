"""``Sandbox.logs``. What it needs is loaded when it is used: most programs never ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..control.log_marks import LogEvent
    from .link import Link
    from .logbook import Logbook

__all__ = ["Logs"]

ASK_SECONDS = 60.0


class Logs:
    """What a sandbox has logged: what its main process printed, and its agent's own lines. Safe for threads.

    Reading needs no agent and resumes nothing. On AWS it is CloudWatch Logs that has the log, some seconds after it was
    written, if the sandbox has an execution role that may write it.
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    def read(
        self,
        *,
        since: float | None = None,
        tail: int | None = None,
        grep: str | None = None,
        log_group: str | None = None,
        timeout: float = ASK_SECONDS,
    ) -> Iterator[LogEvent]:
        """What is there, in the order of time: each has ``time`` (seconds since the epoch), ``stream``, ``message``.

        Args:
            since: Only what was logged in the last so many seconds.
            tail: Only so many events, the last ones; at most 50,000.
            grep: Only events in whose message this regular expression is found.
            log_group: The CloudWatch log group; by default the one that it was made with, or its image's.
            timeout: Seconds that all of this may take.

        Raises:
            errors.AccessDeniedError: the credentials may not read logs.
        """
        from .logbook import Want

        want, deadline = Want(since=since, tail=tail, grep=grep), Deadline(timeout)
        log = self._book(deadline).open(log_group)
        log.find(deadline=deadline)
        return log.read(want.mark(), tail=tail, matches=want.matches, deadline=deadline)

    def follow(
        self,
        *,
        since: float | None = None,
        tail: int | None = None,
        grep: str | None = None,
        log_group: str | None = None,
    ) -> Iterator[LogEvent]:
        """The same, and then what is logged, as it comes, until the sandbox has ended. Arguments as of ``read``."""
        from .logbook import Want

        want, deadline = Want(since=since, tail=tail, grep=grep), Deadline(ASK_SECONDS)
        book = self._book(deadline)
        log = book.open(log_group)
        log.find(deadline=deadline)
        return book.follow(log, want, deadline=deadline)

    def _book(self, deadline: Deadline) -> Logbook:
        from .logbook import Logbook

        link = self._link
        return Logbook(link.microvm_id, record=link.record, place=link.place, control=link.control(), deadline=deadline)
