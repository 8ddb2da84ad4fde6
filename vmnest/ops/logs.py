"""What sandboxes have logged: their programs' output, as CloudWatch Logs has it, or the local cloud in its place.

No agent is asked and no sandbox is woken. A sandbox that has ended, or that was removed, has its log still: the name
may be a MicroVM's id.
"""

from __future__ import annotations

from .. import errors
from .. import target as targets
from ..deadline import SYSTEM_CLOCK, Deadline, backoff
from ..wire import names
from . import log_sources, moments, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..control.log_marks import LogEvent, Mark
    from ..control.microvm_logs import MicrovmLog
    from ..sandbox.logbook import Logbook, Want

__all__ = ["ASK_SECONDS", "EVENT_BYTES", "MOST_EVENTS", "await_logs", "follow_logs", "sandbox_logs"]

ASK_SECONDS = 60.0
WAIT_SECONDS = 20.0
# What one answer may hold; more of it is had by its cursor.
MOST_EVENTS = 50_000
MOST_BYTES = 32 << 20
EVENT_BYTES = 80  # of an event in JSON, beside its message and the name of its stream


def sandbox_logs(
    *,
    name: str,
    log_group: str | None = None,
    since: float | None = None,
    tail: int | None = None,
    grep: str | None = None,
    build: bool = False,
    cursor: str | None = None,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = ASK_SECONDS,
) -> dict[str, object]:
    """Read what a sandbox has logged, in the order of time. ``more`` says that there is more, which ``cursor`` brings.

    Args:
        name: The sandbox, or the id of its MicroVM: also of one that has ended, or was removed.
        log_group: The CloudWatch log group; by default the one that the sandbox was made with, or the image's.
        since: Only what was logged in the last so many seconds.
        tail: Only so many events, the last ones.
        grep: Only events in whose message this regular expression is found.
        build: What was logged while the sandbox's image was built, instead.
        cursor: Go on behind the answer that had this cursor.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
        timeout: Seconds that this may take.
    """
    from ..sandbox.logbook import Want

    deadline = Deadline(timeout)
    want = Want(since=since, tail=tail, grep=grep, cursor=cursor)
    if build and (cursor is not None or log_group is not None):
        raise errors.UsageError("the log of a build has neither a cursor nor another group", hint="Leave them out.")
    book = log_sources.find(name, local=local, region=region, deadline=deadline)
    if build:
        return _build_log(name, book, want, timeout=timeout)
    log, mark = book.open(log_group), want.mark()
    selection = log.find(deadline=deadline)
    if log_group is not None and not selection.is_there:
        raise errors.ResourceNotFoundError(
            f"there is no log group {log_group}", operation="DescribeLogStreams", status=400, hint="Check its name."
        )
    if book.is_unknown and not selection.streams:
        more = ", and no log group of an image has a stream of it"
        error = targets.unknown_microvm(book.microvm_id, book.place, more=more)
        error.add_hint("A log in another group is found with --log-group.")
        raise error
    events, has_more = _collect(log, mark, want, deadline=deadline)
    return {**_describe(name, book, log), "events": events, "cursor": mark.to_cursor(), "more": has_more}


def await_logs(
    *,
    name: str,
    cursor: str | None = None,
    wait: float = WAIT_SECONDS,
    log_group: str | None = None,
    since: float | None = None,
    tail: int | None = None,
    grep: str | None = None,
    local: bool | None = None,
    region: str | None = None,
    most_bytes: int | None = None,
    timeout: float = ASK_SECONDS,
) -> dict[str, object]:
    """Read what a sandbox has logged since the answer that had the cursor; wait for it if there is nothing yet.

    ``complete`` says that the sandbox has ended and that nothing more is to come.

    Args:
        name: The sandbox, or the id of its MicroVM.
        cursor: That of the answer before; none for the first one.
        wait: Seconds to wait for something new.
        log_group: The CloudWatch log group; by default the one that the sandbox was made with, or the image's.
        since: Only what was logged in the last so many seconds.
        tail: Only so many events, the last ones.
        grep: Only events in whose message this regular expression is found.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
        most_bytes: About how much the answer may hold; ``more`` says that there is more.
        timeout: Seconds that asking once may take.
    """
    from ..sandbox.logbook import Want

    patience = Deadline(wait)
    want = Want(since=since, tail=tail, grep=grep, cursor=cursor)
    book = log_sources.find(name, local=local, region=region, deadline=Deadline(timeout))
    log, mark = book.open(log_group), want.mark()
    settling = Deadline(book.settle_seconds)
    for pause in backoff(first=book.pace.first_seconds, last=book.pace.last_seconds):
        has_ended, deadline = book.has_ended(), Deadline(timeout)
        if not log.selection.streams:
            log.find(is_thorough=has_ended, deadline=deadline)
        events, has_more = _collect(log, mark, want, most_bytes=most_bytes, deadline=deadline)
        is_complete = has_ended and settling.expired and not events and not has_more
        if events or has_more or is_complete or patience.expired:
            break
        want.tail = None  # there was nothing before
        if not has_ended:
            settling = Deadline(book.settle_seconds)
        SYSTEM_CLOCK.sleep(patience.clamp(pause))
    told = {"events": events, "cursor": mark.to_cursor(), "more": has_more, "complete": is_complete}
    return {**_describe(name, book, log), **told}


def follow_logs(
    *,
    name: str,
    log_group: str | None = None,
    since: float | None = None,
    tail: int | None = None,
    grep: str | None = None,
    cursor: str | None = None,
    local: bool | None = None,
    region: str | None = None,
    timeout: float | None = None,
    on_remark: Callable[[str], object] = lambda text: None,
) -> Iterator[dict[str, object]]:
    """What a sandbox has logged, and then what it logs, event by event, until it has ended.

    Args:
        name: The sandbox, or the id of its MicroVM.
        log_group: The CloudWatch log group; by default the one that the sandbox was made with, or the image's.
        since: Begin with what was logged in the last so many seconds.
        tail: Begin with so many events, the last ones that are there.
        grep: Only events in whose message this regular expression is found.
        cursor: Begin behind the answer that had this cursor.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
        timeout: Seconds after which this ends in any case; by default only the sandbox's end does.
        on_remark: Told what a user should know meanwhile.
    """
    from ..sandbox.logbook import Want

    until, deadline = Deadline(timeout), Deadline(ASK_SECONDS)
    want = Want(since=since, tail=tail, grep=grep, cursor=cursor)
    book = log_sources.find(name, local=local, region=region, deadline=deadline)
    log = book.open(log_group)
    if not log.find(deadline=deadline).streams:
        on_remark(f"nothing is logged of {name} yet: {book.note(log)}")

    def on_trouble(error: errors.VmnestError) -> None:
        on_remark(f"the log cannot be read at the moment: {error.message}")

    for event in book.follow(log, want, deadline=deadline, on_trouble=on_trouble, until=until):
        yield _to_json(event)
    on_remark(_farewell(name, book) if book.is_over else f"the log of {name} goes on: {until.seconds:g} s are over")


# -- answers -----------------------------------------------------------------------------------------------------------


def _farewell(name: str, book: Logbook) -> str:
    from ..control.waiting import ENDED_BY_REQUEST

    reason = None if book.microvm is None else book.microvm.state_reason
    return f"{name} has ended{f': {reason}' if reason and reason != ENDED_BY_REQUEST else ''}"


def _describe(name: str, book: Logbook, log: MicrovmLog) -> dict[str, object]:
    """Whose log it is, as every answer has it."""
    return {
        "name": name,
        "microvm_id": book.microvm_id,
        "state": views.GONE if book.is_gone else names.UNKNOWN if book.microvm is None else book.microvm.state,
        "log_group": log.selection.group,
        "streams": list(log.selection.streams),
        "note": book.note(log),
    }


def _collect(
    log: MicrovmLog, mark: Mark, want: Want, *, deadline: Deadline, most_bytes: int | None = None
) -> tuple[list[dict[str, object]], bool]:
    """As many events as an answer may hold, at least one, and whether there are more."""
    collected: list[dict[str, object]] = []
    most = MOST_BYTES if most_bytes is None else most_bytes
    size = 0
    for event in log.read(mark, tail=want.tail, matches=want.matches, deadline=deadline):
        size += len(event.message) + len(event.stream) + EVENT_BYTES
        if want.tail is None and collected and (len(collected) >= MOST_EVENTS or size > most):
            mark.give_back(event)
            return collected, True
        collected.append(_to_json(event))
    mark.rise()
    return collected, False


def _to_json(event: LogEvent) -> dict[str, object]:
    time = moments.from_epoch(event.time_ms / 1000, fractions=True)
    return {"time": time, "stream": event.stream, "message": event.message}


def _build_log(name: str, book: Logbook, want: Want, *, timeout: float) -> dict[str, object]:
    """The same, of the build of the image's version that the sandbox was started from."""
    from . import builds

    if book.image_arn is None:
        raise errors.MicroVMNotFoundError(
            f"the service does not know MicroVM {book.microvm_id}: its image cannot be told",
            hint="The log of an image's build: vmnest image logs IMAGE",
        )
    version = None if book.microvm is None else book.microvm.image_version
    told = builds.read_build_log(
        image=book.image_arn,
        image_version=version,
        local=book.place.is_local,
        region=book.place.region,
        timeout=timeout,
    )
    events = _build_events(told["lines"], want, microvm_id=book.microvm_id)
    return {
        "name": name,
        "microvm_id": book.microvm_id,
        "image_arn": told["image_arn"],
        "image_version": told["image_version"],
        "state": told["state"],
        "log_group": told["log_group"],
        "streams": sorted({str(each["stream"]) for each in events}),
        "note": None if events else f"{told['log_group']} has nothing of version {told['image_version']}",
        "events": events,
        "cursor": None,
        "more": False,
    }


def _build_events(lines: object, want: Want, *, microvm_id: str) -> list[dict[str, object]]:
    from ..control import log_streams

    assert isinstance(lines, list)
    earliest = moments.from_epoch(want.since_ms / 1000, fractions=True) or ""
    # Moments of one form and one zone stand in the order of their texts.
    events: list[dict[str, object]] = [
        line
        for line in lines
        if (line["time"] or "") >= earliest
        and not log_streams.is_of(line["stream"], microvm_id)  # started while its image was hardly built
        and (want.matches is None or want.matches(line["message"]))
    ]
    return events if want.tail is None else events[len(events) - min(want.tail, len(events)) :]
