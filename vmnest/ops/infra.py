"""Infrastructure: what ``sandbox.yaml`` asks for, made, changed, looked at and removed."""

from __future__ import annotations

from .. import errors, settings
from ..deadline import Deadline
from . import works

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..infra.plan import Plan
    from ..infra.state import StackState
    from ..infra.steps import Step
    from .works import Front


__all__ = [
    "ASK_SECONDS",
    "DESTROY_SECONDS",
    "UP_SECONDS",
    "destroy_infra",
    "infra_list",
    "infra_outputs",
    "init_infra",
    "plan_removal",
    "preview_infra",
    "refresh_infra",
    "up_infra",
]

ASK_SECONDS = 120.0
UP_SECONDS = 3600.0  # a build takes some minutes, a connector up to ten
DESTROY_SECONDS = 1800.0


def init_infra(*, file: str = "sandbox.yaml", force: bool = False, region: str | None = None) -> dict[str, object]:
    """Write a commented sandbox.yaml to begin with.

    Args:
        file: Where to.
        force: Replace what is there.
        region: AWS region to put in it; by default the one that is configured, else us-east-1.
    """
    from ..infra import template

    template.write_template(file, region=works.configured_region(region, settings.environment()), force=force)
    return {"file": file, "written": True}


def preview_infra(
    *,
    files: Sequence[str] | None = None,
    stack: str | None = None,
    rebuild: bool = False,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = ASK_SECONDS,
    check_folder: Callable[[str], object] = lambda path: None,
) -> dict[str, object]:
    """Say what ``up`` would do, and why. Reads the account, and changes nothing.

    Args:
        files: Configuration files, or directories of them; by default AGENT_SANDBOX_SETUP, sandbox.yaml, setup.yaml.
        stack: The stack to choose.
        rebuild: As if a new version of the image were asked for, even if nothing has changed.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region, instead of the configured one.
        timeout: Seconds that this may take.
        check_folder: Told the folder that an image is built from before it is read, to refuse it.
    """
    from .. import guest_image
    from ..infra import stacks

    found = works.load(files, stack=stack, local=local, region=region, want_guest=True)
    deadline = Deadline(timeout)

    def preview(work: works.Work) -> dict[str, object]:
        source = guest_image.find(work.stack.image.guest_dir, folder=work.stack.folder)
        if not source.is_packaged:
            check_folder(source.path)
        plan = stacks.preview(work.stack, target=work.place, store=work.store, rebuild=rebuild, deadline=deadline)
        return {**work.describe(), **_plan_view(plan)}

    return {"stacks": works.each_of(found, preview, deadline=deadline)}


def up_infra(
    *,
    files: Sequence[str] | None = None,
    stack: str | None = None,
    rebuild: bool = False,
    parallelism: int = 0,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = UP_SECONDS,
    front: Front | None = None,
) -> dict[str, object]:
    """Make and change infrastructure until it is what the configuration asks for; returns the outputs of each stack.

    What is there already stays; a stack whose work was cut off goes on where it was. If stacks fail, the others are
    done all the same, and the error tells of all of them.

    Args:
        files: Configuration files, or directories of them; by default AGENT_SANDBOX_SETUP, sandbox.yaml, setup.yaml.
        stack: The stack to choose.
        rebuild: Make a new version of the image even if nothing has changed.
        parallelism: How many stacks to work on at a time; 0 for all of them.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region, instead of the configured one.
        timeout: Seconds that this may take.
        front: Is told what happens.
    """
    from ..infra import stacks

    found = works.load(files, stack=stack, local=local, region=region, want_guest=True)
    deadline = Deadline(timeout)

    def up(work: works.Work) -> dict[str, object]:
        work.place.check_isolation(deadline=deadline)
        state = stacks.up(
            work.stack,
            target=work.place,
            store=work.store,
            rebuild=rebuild,
            on_plan=None if front is None else lambda plan: front.on_plan(work.label, plan),
            on_event=None if front is None else lambda event: front.on_event(work.label, event),
            deadline=deadline,
        )
        return _outputs_view(state)

    return {"stacks": works.each_of(found, up, deadline=deadline, parallelism=parallelism, front=front)}


def refresh_infra(
    *,
    files: Sequence[str] | None = None,
    stack: str | None = None,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = ASK_SECONDS,
) -> dict[str, object]:
    """Read every recorded resource again: forget those that are gone, and bring the outputs up to date.

    Args:
        files: Configuration files, or directories of them; by default AGENT_SANDBOX_SETUP, sandbox.yaml, setup.yaml.
        stack: The stack to choose.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region, instead of the configured one.
        timeout: Seconds that this may take.
    """
    from ..infra import stacks

    found = works.load(files, stack=stack, local=local, region=region)
    deadline = Deadline(timeout)

    def refresh(work: works.Work) -> dict[str, object]:
        steps = stacks.refresh(work.stack, target=work.place, store=work.store, deadline=deadline)
        state = work.recorded()
        return {
            **work.describe(),
            "recorded": state is not None and bool(state.resources),
            "changes": [_step_view(step) for step in steps],
            "outputs": {} if state is None else dict(state.outputs),
        }

    return {"stacks": works.each_of(found, refresh, deadline=deadline)}


def plan_removal(
    *,
    files: Sequence[str] | None = None,
    stack: str | None = None,
    local: bool | None = None,
    region: str | None = None,
) -> dict[str, object]:
    """Say what ``destroy`` would remove, and what it would leave, from the record alone.

    Args:
        files: Configuration files, or directories of them; by default AGENT_SANDBOX_SETUP, sandbox.yaml, setup.yaml.
        stack: The stack to choose.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region, instead of the configured one.
    """
    from ..infra import stacks

    found = works.load(files, stack=stack, local=local, region=region)
    return {
        "stacks": [
            {
                **work.describe(),
                **_plan_view(stacks.plan_removal(work.stack, target=work.place, store=work.store)),
            }
            for work in found
        ]
    }


def destroy_infra(
    *,
    files: Sequence[str] | None = None,
    stack: str | None = None,
    parallelism: int = 0,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = DESTROY_SECONDS,
    front: Front | None = None,
) -> dict[str, object]:
    """Remove the resources that ``up`` made, and forget the stack. What was only reused stays.

    Args:
        files: Configuration files, or directories of them; by default AGENT_SANDBOX_SETUP, sandbox.yaml, setup.yaml.
        stack: The stack to choose.
        parallelism: How many stacks to work on at a time; 0 for all of them.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region, instead of the configured one.
        timeout: Seconds that this may take.
        front: Is told what happens.
    """
    from ..infra import stacks

    found = works.load(files, stack=stack, local=local, region=region)
    deadline = Deadline(timeout)

    def destroy(work: works.Work) -> dict[str, object]:
        if front is not None:
            front.on_plan(work.label, stacks.plan_removal(work.stack, target=work.place, store=work.store))
        steps = stacks.destroy(
            work.stack,
            target=work.place,
            store=work.store,
            on_event=None if front is None else lambda event: front.on_event(work.label, event),
            deadline=deadline,
        )
        return {**work.describe(), "steps": [_step_view(step) for step in steps]}

    return {"stacks": works.each_of(found, destroy, deadline=deadline, parallelism=parallelism, front=front)}


def infra_outputs(
    *, files: Sequence[str] | None = None, stack: str | None = None, local: bool | None = None
) -> dict[str, object]:
    """The recorded outputs of the stack that the configuration names, with its project and stack. Empty if none is up.

    Where there is no configuration, those of the only stack of the target. Asks no service.

    Args:
        files: Configuration files, or directories of them; by default AGENT_SANDBOX_SETUP, sandbox.yaml, setup.yaml.
        stack: The stack to choose.
        local: True: of this machine; False: of AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
    """
    from ..infra import config, outputs, places, state

    environ = settings.environment()
    is_local = settings.is_local(local, environ=environ)
    if not files and stack is None and places.find_default(environ) is None:
        only = outputs.find_stack(is_local=is_local, environ=environ)
        if only is not None:
            return _outputs_view(only)
    named = config.load(files, stack=stack, environ=environ)
    store = state.open_default(environ)
    found = [store.load(state.key_of(each.project, each.stack, is_local=is_local)) for each in named]
    up = [each for each in found if each is not None and each.outputs]
    if len(up) > 1:
        raise errors.UsageError(
            f"several stacks are up: {', '.join(each.label for each in up)}",
            hint="Choose one with -f or -s, or list them all with --all.",
        )
    return _outputs_view(up[0]) if up else {}


def infra_list(*, local: bool | None = None) -> dict[str, object]:
    """The recorded stacks of both targets, with the outputs of each. Asks no service.

    Args:
        local: True: only those on this machine; False: only those on AWS.
    """
    from ..infra import state

    kind = None if local is None else settings.TARGET_LOCAL if local else settings.TARGET_AWS
    found = [_outputs_view(each) for each in state.open_default().all() if kind in (None, each.target)]
    return {"stacks": found, "count": len(found)}


# -- what is shown -----------------------------------------------------------------------------------------------------


def _outputs_view(state: StackState) -> dict[str, object]:
    """A stack's outputs, labelled: the same members for every verb."""
    region = works.region_of(state)
    label = {"project": state.project, "stack": state.stack, "target": state.target}
    return {**label, **({} if region is None else {"region": region}), **state.outputs}


def _plan_view(plan: Plan) -> dict[str, object]:
    return {
        "has_changes": plan.has_changes,
        "steps": [_step_view(step) for step in plan.steps],
        "notes": list(plan.notes),
    }


def _step_view(step: Step) -> dict[str, object]:
    return {
        "resource": step.resource,
        "kind": step.kind,
        "action": step.action,
        "id": step.id,
        "reason": step.reason,
        "changes": [{"field": each.field, "old": each.old, "new": each.new} for each in step.changes],
    }
