"""The stacks that a verb works on: found, placed, and gone through, several at a time."""

from __future__ import annotations

from .. import errors, settings
from .. import target as targets
from ..deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol

    from ..infra.plan import Plan
    from ..infra.spec import Stack
    from ..infra.state import StackState, Store
    from ..infra.steps import Event
    from ..target import Target

    class Front(Protocol):
        """Whoever shows what happens meanwhile. Its methods are called from several threads."""

        def on_begin(self, label: str) -> None:
            """This stack is among those to work on: told of all of them before work begins."""

        def on_plan(self, label: str, plan: Plan) -> None:
            """This is what will be done."""

        def on_event(self, label: str, event: Event) -> None:
            """This happens."""

        def on_end(self, label: str, error: BaseException | None) -> None:
            """Work on a stack is over."""


__all__ = ["Work", "configured_region", "each_of", "load", "region_of"]

STOP_SECONDS = 10.0  # for the other stacks, once the front wants no more


class Work:
    """One stack to work on, and where."""

    __slots__ = ("place", "stack", "store")

    def __init__(self, stack: Stack, *, place: Target, store: Store) -> None:
        self.stack = stack
        self.place = place
        self.store = store

    @property
    def label(self) -> str:
        """``project/stack``."""
        return self.stack.label

    def recorded(self) -> StackState | None:
        """What is recorded of it."""
        from ..infra import state

        return self.store.load(state.key_of(self.stack.project, self.stack.stack, is_local=self.place.is_local))

    def describe(self) -> dict[str, object]:
        """Its name and place."""
        return {
            "project": self.stack.project,
            "stack": self.stack.stack,
            "target": self.place.kind,
            "region": self.place.region,
        }


def load(
    files: Sequence[str] | None,
    *,
    stack: str | None,
    local: bool | None,
    region: str | None,
    want_guest: bool = False,
) -> list[Work]:
    """The stacks that the files name, each with its target. ``want_guest``: the folder of its image must be there."""
    from ..infra import config, state

    environ = settings.environment()
    is_local = settings.is_local(local, environ=environ)
    store = state.open_default(environ)
    works = []
    for each in config.load(files, stack=stack, want_guest=want_guest, environ=environ):
        recorded = store.load(state.key_of(each.project, each.stack, is_local=is_local))
        place = _place_of(each, recorded, is_local=is_local, region=region, environ=environ)
        works.append(Work(each, place=place, store=store))
    return works


def _place_of(
    stack: Stack, recorded: StackState | None, *, is_local: bool, region: str | None, environ: Mapping[str, str]
) -> Target:
    """Where a stack is: this machine, or the region that is asked for, configured in its file, or recorded."""
    if is_local:
        return targets.resolve(local=True, environ=environ)
    known = None if recorded is None or not recorded.resources else region_of(recorded)
    asked = region or settings.text("region", environ=environ) or stack.region
    if known and asked and asked != known:
        raise errors.UsageError(
            f"the stack {stack.label} is recorded in {known}, and {asked} is asked for",
            hint=f"Remove it there first (vmnest infra destroy --region {known}), or give the new one another name.",
        )
    return targets.resolve(local=False, region=asked or known or configured_region(None, environ), environ=environ)


def region_of(recorded: StackState) -> str | None:
    """Where a stack's resources are. 0.1.2 records no region, but the image's ARN has one."""
    from ..aws import region as regions

    arn = recorded.outputs.get("image_arn")
    return recorded.region or (regions.of_arn(arn) if isinstance(arn, str) else None) or None


def configured_region(given: str | None, environ: Mapping[str, str]) -> str:
    """The region that is given or configured anywhere, else the usual one."""
    from ..aws import region as regions
    from ..infra import spec

    try:
        return regions.resolve(flag=given, environ=environ)
    except errors.RegionNotFoundError:
        return spec.DEFAULT_REGION


def each_of(
    works: list[Work],
    action: Callable[[Work], dict[str, object]],
    *,
    deadline: Deadline,
    parallelism: int = 0,
    front: Front | None = None,
) -> list[dict[str, object]]:
    """The action's result for each stack, in their order.

    Raises:
        errors.VmnestError: that of the only one that failed, if there is just one stack.
        errors.InfrastructureError: some failed; ``details`` has what became of each.
    """

    def act(work: Work) -> dict[str, object]:
        try:
            result = action(work)
        except BaseException as error:
            if front is not None:
                front.on_end(work.label, error)
            raise
        if front is not None:
            front.on_end(work.label, None)
        return result

    if front is not None:
        for work in works:
            front.on_begin(work.label)
    if len(works) == 1:
        return [act(works[0])]
    results = _in_threads(works, act, deadline=deadline, count=parallelism or len(works))
    failures = {work.label: each for work, each in zip(works, results, strict=True) if isinstance(each, BaseException)}
    for failure in failures.values():
        if not isinstance(failure, errors.VmnestError):
            raise failure
    if failures:
        raise _failed(failures, works, results)
    return [each for each in results if isinstance(each, dict)]


def _in_threads(
    works: list[Work], act: Callable[[Work], dict[str, object]], *, deadline: Deadline, count: int
) -> list[dict[str, object] | BaseException]:
    """Do them, so many at a time; a failure is a result. Who interrupts the wait has the others stop soon."""
    import threading

    results: list[dict[str, object] | BaseException] = [{} for _ in works]
    # Before Python 3.13 a join that is interrupted takes its thread for ended (bpo-45274).
    ends = [threading.Event() for _ in works[:count]]
    waiting = list(enumerate(works))[::-1]  # pop() is atomic: no lock is needed to share it

    def work(end: threading.Event) -> None:
        while waiting and not deadline.expired:
            try:
                index, each = waiting.pop()
            except IndexError:
                break
            try:
                results[index] = act(each)
            except BaseException as error:
                results[index] = error
        end.set()

    # Daemons: at Ctrl+C nobody waits for a service that does not answer. What was made is recorded, step by step.
    crowd = [
        threading.Thread(target=work, args=(end,), name=f"vmnest-infra-{number}", daemon=True)
        for number, end in enumerate(ends)
    ]
    try:
        for thread in crowd:
            thread.start()
        for thread, end in zip(crowd, ends, strict=True):
            end.wait()
            thread.join()
    except BaseException:
        deadline.expire()
        grace = Deadline(STOP_SECONDS)
        for thread, end in zip(crowd, ends, strict=True):
            if thread.ident is not None and end.wait(grace.remaining()):
                thread.join()
        raise
    for _, each in waiting:
        results[works.index(each)] = errors.WaitTimeoutError("no time was left to begin with it")
    return results


def _failed(
    failures: dict[str, BaseException], works: list[Work], results: list[dict[str, object] | BaseException]
) -> errors.InfrastructureError:
    told = "; ".join(f"{label}: {error}" for label, error in failures.items())
    hints = dict.fromkeys(
        error.hint for error in failures.values() if isinstance(error, errors.VmnestError) and error.hint
    )
    stacks = [
        {**work.describe(), "error": each.to_wire() if isinstance(each, errors.VmnestError) else None}
        for work, each in zip(works, results, strict=True)
    ]
    return errors.InfrastructureError(
        f"{len(failures)} of {len(works)} stacks failed: {told}",
        hint="\n".join(hints) or None,
        details={"stacks": stacks},
    )
