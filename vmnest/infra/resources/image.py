"""The MicroVM image: made, or given a new version when what it is made of has changed.

Whether it has is read from the account, never from our record: somebody else may have built another version since. An
update replaces everything, so everything is sent again. What is waited for is the version that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ... import deadline as deadlines
from ... import errors, registry
from ...control import building, logs
from ...control.image_specs import ALL_CAPABILITIES, ImageSpec
from ...control.images import Draft, Image
from ...wire import names
from .. import naming, ownership
from ..account import Account
from ..facts import ImageFacts, Inputs
from ..state import Resource
from ..steps import CREATE, NOTE, NOTHING, PROGRESS, REUSE, UPDATE, Change, Step
from ..work import Work
from . import artifact, image_changes, role

DESCRIPTION = "Sandbox guest, built by vmnest"
DELETING = "DELETING"
_BUILDING = frozenset({"PENDING", "IN_PROGRESS"})
_VERSION = "version"
# A role that was made or changed a moment ago may not let the build read the artifact yet.
_ROLE_LAG = "S3_ACCESS_DENIED"
_ROLE_LAG_SECONDS = 15.0
_MOST_BUILDS = 3
# MicroVMs that were ended a moment ago, and versions that are being built, stand in the way of a deletion.
_RACE_SECONDS = 30.0
_MOST_SHOWN = 3


def arn(inputs: Inputs) -> str:
    """The ARN that the image has, or will have."""
    facts = inputs.facts
    if facts.image is not None:
        return facts.image.image.image_arn
    name = inputs.stack.image.name
    return naming.image_arn(name, partition=facts.partition, region=facts.region, account_id=facts.account_id)


def spec(inputs: Inputs, *, role_arn: str | None = None) -> ImageSpec:
    """All that a version is to be made of."""
    wanted = inputs.stack.image
    return ImageSpec(
        name=wanted.name,
        code_uri=artifact.uri(inputs),
        build_role_arn=role_arn or role.arn(inputs),
        base_image_arn=inputs.facts.base_image_arn,
        base_image_version=wanted.base_image_version,
        description=DESCRIPTION,
        memory_mib=wanted.memory_mib,
        environment=wanted.environment,
        has_all_capabilities=ALL_CAPABILITIES in wanted.capabilities,
        hooks=inputs.artifact.hooks,
        log_group=wanted.log_group,
        tags=ownership.tags_of(inputs.stack),
    )


def plan(inputs: Inputs) -> Step:
    """What is to happen to the image."""
    found = inputs.facts.image
    if found is None:
        return _step(inputs, CREATE, "there is none of that name")
    if found.image.state == DELETING:
        return _step(inputs, CREATE, "the one of that name is being deleted")
    changes = _changes(found, inputs)
    if not _is_ours(found.image, inputs):
        return _plan_foreign(inputs, found.image, changes)
    tags = _tag_changes(found.image, inputs)
    if inputs.rebuild:
        return _step(inputs, UPDATE, "a new version is asked for", (*changes, *tags))
    if _under_way(found, inputs) is not None:
        assert found.newest is not None
        version = found.newest.image_version
        return _step(inputs, UPDATE, f"version {version} is being built of just this", changes)
    if changes:
        return _step(inputs, UPDATE, _reason(found, changes), (*changes, *tags))
    if tags:
        return _step(inputs, UPDATE, "has not all tags; no new version is needed", tags)
    assert found.active is not None
    return _step(inputs, NOTHING, f"version {found.active.image_version} is of just this")


def _plan_foreign(inputs: Inputs, found: Image, changes: tuple[Change, ...]) -> Step:
    """An image that somebody else made is used as it is if it is what is wanted; it gets a version if that is said."""
    name, source = inputs.stack.image.name, inputs.stack.source
    if ownership.owner_of(found.tags) is not None:
        hint = f"Choose another image.name in {source}."
        raise ownership.foreign(f"the image {name}", found.tags, hint=hint)
    if inputs.rebuild:
        return _step(inputs, UPDATE, "a new version is asked for; it was made by others, and stays theirs", changes)
    if not changes:
        return _step(inputs, REUSE, "was made by others of just this")
    fields = ", ".join(change.field for change in changes)
    raise ownership.foreign(
        f"the image {name}",
        found.tags,
        hint=f"It differs in {fields}. Choose another image.name in {source}, or give that one a new version "
        "(--rebuild); it is never deleted.",
    )


def apply(step: Step, work: Work) -> Resource:
    """Perform the step."""
    found = work.inputs.facts.image
    is_managed = found is None or found.image.state == DELETING or _is_ours(found.image, work.inputs)
    if step.action in (NOTHING, REUSE):
        assert found is not None
        return _record(found.image.image_arn, found.image.latest_active_version or "", is_managed=is_managed)
    if step.action == UPDATE and is_managed and found is not None:
        if missing := ownership.missing_tags(found.image.tags, stack=work.inputs.stack):
            work.account.tags.add(found.image.image_arn, missing, deadline=work.account.deadline)
        if step.changes and step.changes == _tag_changes(found.image, work.inputs):
            return _record(found.image.image_arn, found.image.latest_active_version or "", is_managed=True)
    version = _build(step, work)
    return _record(version.image_arn, version.image_version, is_managed=is_managed)


def check_unused(resource: Resource, account: Account) -> None:
    """See that no MicroVM runs that was started from the image.

    Raises:
        errors.InfrastructureError: some do.
    """
    try:
        users = [
            each.microvm_id
            for each in account.microvms.list(image_arn=resource.id, deadline=account.deadline)
            if each.state not in names.ENDED_STATES
        ]
    except (errors.ResourceNotFoundError, errors.AccessDeniedError):
        return  # the image is gone; or who may not look is told by the service what is in the way
    if users:
        name = resource.id.rpartition(":")[2]
        known = registry.open_default().show_microvms(users[:_MOST_SHOWN])
        shown = ", ".join(known) + (" and others" if len(users) > _MOST_SHOWN else "")
        raise errors.InfrastructureError(
            f"the image {name} cannot be removed while MicroVMs run that were started from it: {shown}",
            hint="End them first: vmnest rm NAME; vmnest adopt gives one a name that has none.",
            details={"microvms": users},
        )


def remove(resource: Resource, account: Account, *, is_ours: Callable[[Mapping[str, str]], bool]) -> bool:
    """Delete the image with all its versions, if it is ours, and wait until it is gone."""
    images, deadline = account.images, account.deadline
    try:
        found = images.get(resource.id, deadline=deadline)
    except errors.ImageNotFoundError:
        return True
    if not is_ours(found.tags):
        return False
    if found.state != DELETING:
        check_unused(resource, account)
        _begin_deletion(resource.id, account)
    building.wait_deleted(images, resource.id, deadline=deadline, clock=account.clock)
    return True


def look(resource: Resource, account: Account) -> Resource | None:
    """The image as it is now, or None."""
    try:
        found = account.images.get(resource.id, deadline=account.deadline)
    except errors.ImageNotFoundError:
        return None
    if found.state == DELETING:
        return None
    version = found.latest_active_version or ""
    return Resource(resource.kind, resource.id, resource.managed, {**resource.attrs, _VERSION: version})


# -- planning ----------------------------------------------------------------------------------------------------------


def _step(inputs: Inputs, action: str, reason: str, changes: tuple[Change, ...] = ()) -> Step:
    return Step(naming.IMAGE, naming.IMAGE_KIND, action, arn(inputs), reason, changes)


def _is_ours(found: Image, inputs: Inputs) -> bool:
    recorded = inputs.recorded(naming.IMAGE, found.image_arn)
    return ownership.is_ours(found.tags, stack=inputs.stack, recorded=recorded)


def _changes(found: ImageFacts, inputs: Inputs) -> tuple[Change, ...]:
    if found.active is None:
        return (Change("version", None, "one that can run"),)
    is_base_wanted = inputs.stack.image.base_image_arn is not None
    return image_changes.find(found.active, spec(inputs), is_base_wanted=is_base_wanted)


def _tag_changes(found: Image, inputs: Inputs) -> tuple[Change, ...]:
    missing = ownership.missing_tags(found.tags, stack=inputs.stack)
    return tuple(Change(f"tag {key}", found.tags.get(key), value) for key, value in missing.items())


def _under_way(found: ImageFacts, inputs: Inputs) -> Draft | None:
    """The version that is being built, if it is of just what is wanted."""
    newest = found.newest
    if newest is None or newest.state not in _BUILDING:
        return None
    is_base_wanted = inputs.stack.image.base_image_arn is not None
    if image_changes.find(newest, spec(inputs), is_base_wanted=is_base_wanted):
        return None
    return Draft(newest.image_arn, newest.image_version, newest.state)


def _reason(found: ImageFacts, changes: tuple[Change, ...]) -> str:
    if found.active is None:
        return "it has no version that can run"
    fields = ", ".join(change.field for change in changes)
    return f"version {found.active.image_version} differs in {fields}"


def _record(image_arn: str, version: str, *, is_managed: bool) -> Resource:
    return Resource(naming.IMAGE_KIND, image_arn, managed=is_managed, attrs={_VERSION: version})


# -- building ----------------------------------------------------------------------------------------------------------


def _build(step: Step, work: Work) -> Draft:
    """Have a version built and wait for it."""
    found = work.inputs.facts.image
    draft = None if found is None or work.inputs.rebuild else _under_way(found, work.inputs)
    for attempt in range(1, _MOST_BUILDS + 1):
        began = work.account.clock.time()
        draft = draft or _begin(step, work, is_first=attempt == 1)
        long = "" if work.account.is_local else ", which takes some minutes"
        work.tell(PROGRESS, f"version {draft.image_version} is being built{long}")
        try:
            version = building.wait(
                work.account.images,
                draft,
                deadline=work.account.deadline,
                on_change=lambda state: work.tell(PROGRESS, state),
                clock=work.account.clock,
            )
        except errors.ImageBuildError as error:
            is_lag = naming.ROLE in work.fresh and _ROLE_LAG in error.message
            if not is_lag or attempt == _MOST_BUILDS:
                _explain(error, work, since=began)
                raise
            work.tell(NOTE, "the new role does not let the build read the artifact yet: building again")
            work.account.clock.sleep(_ROLE_LAG_SECONDS)
            draft = None
        else:
            return Draft(version.image_arn, version.image_version, version.state)
    raise AssertionError("the last attempt returns or raises")


def _begin(step: Step, work: Work, *, is_first: bool) -> Draft:
    """Ask for a version; of an image that is not there, for the image."""
    wanted = spec(work.inputs, role_arn=str(work.made(naming.ROLE).attrs["arn"]))
    if step.action == CREATE and is_first:
        found = work.inputs.facts.image
        if found is not None:  # it is being deleted
            _wait_gone(found.image.image_arn, work.account)
        return _create(wanted, work)
    return _update(arn(work.inputs), wanted, work)


def _create(wanted: ImageSpec, work: Work) -> Draft:
    """Make the image. If the answer was lost it may be there: then its newest version is the one that was asked for."""
    account = work.account
    try:
        return _ask(lambda: account.images.create(wanted, deadline=account.deadline), work)
    except errors.VmnestError as error:
        # A name that is taken is refused as invalid content.
        is_settled = not isinstance(error, errors.ValidationError) and error.details.get("outcome") != "unknown"
        image_arn = None if is_settled else _find(wanted.name, account)
        if image_arn is None:
            raise
        found = account.images.get(image_arn, deadline=account.deadline)
        if not ownership.is_ours(found.tags, stack=work.inputs.stack, recorded=None):
            raise
        return _newest(image_arn, account) or _update(image_arn, wanted, work)


def _update(image_arn: str, wanted: ImageSpec, work: Work) -> Draft:
    """Ask for a new version, once the image takes it. An answer that was lost is looked for among the versions."""
    account = work.account
    for is_last in (False, False, True):
        building.wait_settled(account.images, image_arn, deadline=account.deadline, clock=account.clock)
        before = _newest(image_arn, account)
        try:
            return _ask(lambda: account.images.update(image_arn, wanted, deadline=account.deadline), work)
        except errors.ConflictError:
            if is_last:
                raise  # somebody else is always faster
        except errors.VmnestError as error:
            after = _newest(image_arn, account) if error.details.get("outcome") == "unknown" else before
            if after is not None and (before is None or after.image_version != before.image_version):
                return after
            raise
    raise AssertionError("the last attempt returns or raises")


def _ask(call: Callable[[], Draft], work: Work) -> Draft:
    """Make the call, once the account has room for another build."""
    account = work.account
    return building.begin(
        call, deadline=account.deadline, on_full=lambda text: work.tell(PROGRESS, text), clock=account.clock
    )


def _newest(image_arn: str, account: Account) -> Draft | None:
    """The newest version of all."""
    version = image_changes.newest_of(account.images.versions(image_arn, deadline=account.deadline))
    return None if version is None else Draft(version.image_arn, version.image_version, version.state)


def _find(name: str, account: Account) -> str | None:
    try:
        return account.images.resolve(name, deadline=account.deadline)
    except errors.ImageNotFoundError:
        return None


def _wait_gone(image_arn: str, account: Account) -> None:
    building.wait_deleted(account.images, image_arn, deadline=account.deadline, clock=account.clock)


def _begin_deletion(image_arn: str, account: Account) -> None:
    """Ask for the deletion, while what stands in its way may go by itself."""
    patience = deadlines.Deadline(account.deadline.clamp(_RACE_SECONDS), clock=account.clock)
    for delay in deadlines.backoff(first=0.5):
        building.wait_settled(account.images, image_arn, deadline=account.deadline, clock=account.clock)
        try:
            account.images.delete(image_arn, deadline=account.deadline)
        except errors.ImageNotFoundError:
            return
        except (errors.ValidationError, errors.ConflictError) as error:
            if delay >= (patience.remaining() or 0.0):
                error.add_hint("MicroVMs that were started from it must have ended: vmnest ls")
                raise
        else:
            return
        account.clock.sleep(delay)


def _explain(error: errors.ImageBuildError, work: Work, *, since: float) -> None:
    """Add the end of the build's log to its failure."""
    wanted = work.inputs.stack.image
    group = wanted.log_group or f"{logs.GROUP_PREFIX}{wanted.name}"
    account = work.account
    lines = logs.tail(
        account.logs,
        group,
        image_version=str(error.details["image_version"]),
        since=since,
        deadline=account.deadline,
        clock=account.clock,
    )
    building.explain(error, lines, tell=lambda line: work.tell(NOTE, line))
    error.details["log_group"] = group
