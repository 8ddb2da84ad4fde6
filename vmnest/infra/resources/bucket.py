"""The bucket that the zip of the image goes to: private, encrypted, versioned, TLS only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ... import errors
from .. import documents, naming, ownership
from ..account import Account, Bucket
from ..account.buckets import ENCRYPTION, OWNER_ENFORCED, VERSIONED
from ..facts import Inputs
from ..state import Resource
from ..steps import CREATE, NOTHING, REUSE, UPDATE, Change, Step
from ..work import Work

_KEY = "bucket.name"


def name(inputs: Inputs) -> str:
    """The bucket that is configured, that was made, or that will be made."""
    facts = inputs.facts
    return (
        inputs.stack.bucket.name
        or naming.recorded_bucket(inputs.state)
        or naming.bucket(inputs.stack, account_id=facts.account_id, region=facts.region)
    )


def plan(inputs: Inputs) -> Step:
    """What is to happen to the bucket."""
    found, wanted = inputs.facts.bucket, name(inputs)
    if inputs.stack.bucket.name:
        tags = _check_reused(wanted, found, region=inputs.facts.region).tags
        return Step(naming.BUCKET, naming.BUCKET_KIND, REUSE, wanted, ownership.reused(_KEY, tags))
    if found is None:
        return Step(naming.BUCKET, naming.BUCKET_KIND, CREATE, wanted, "there is none of that name")
    recorded = inputs.recorded(naming.BUCKET, found.name)
    check_owner(found, inputs=inputs, is_begun=recorded is not None and ownership.is_unfinished(recorded))
    changes = tuple(_changes(found, inputs=inputs))
    if not changes:
        return Step(naming.BUCKET, naming.BUCKET_KIND, NOTHING, wanted, "is as it should be")
    fields = ", ".join(change.field for change in changes)
    return Step(naming.BUCKET, naming.BUCKET_KIND, UPDATE, wanted, f"differs in {fields}", changes)


def check_owner(found: Bucket, *, inputs: Inputs, is_begun: bool) -> None:
    """Raise InfrastructureError if the bucket of that name is not ours; ``is_begun``: we have begun to make it."""
    if found.is_foreign:
        raise errors.InfrastructureError(
            f"the bucket {found.name} belongs to another account, or may not be looked at",
            hint="Allow s3:ListBucket on it to this identity if it is yours; "
            f"else set {_KEY} in {inputs.stack.source} to another.",
        )
    facts = inputs.facts
    derived = naming.bucket(inputs.stack, account_id=facts.account_id, region=facts.region)
    # A bucket gets its tags by a call of their own. One without any that has the name which only this stack in this
    # account gives is ours if an ``up`` was ended between the two.
    if is_begun and not found.tags and found.name == derived:
        return
    recorded = inputs.recorded(naming.BUCKET, found.name)
    if not ownership.is_ours(found.tags, stack=inputs.stack, recorded=recorded):
        hint = f"To use it as it is, set {_KEY}: {found.name} in {inputs.stack.source}."
        raise ownership.foreign(f"the bucket {found.name}", found.tags, hint=hint)


def apply(step: Step, work: Work) -> Resource:
    """Perform the step."""
    wanted = step.id or name(work.inputs)
    if step.action == REUSE:
        return Resource(naming.BUCKET_KIND, wanted, managed=False)
    found = work.inputs.facts.bucket
    if found is None:
        found = work.account.buckets.create(wanted, owner=work.account.id)
        check_owner(found, inputs=work.inputs, is_begun=True)
    for _, settle in _differences(found, inputs=work.inputs):
        settle(work.account)
    return Resource(naming.BUCKET_KIND, wanted, managed=True)


def remove(resource: Resource, account: Account, *, is_ours: Callable[[Mapping[str, str]], bool]) -> bool:
    """Empty and delete a bucket, if it is ours."""
    found = account.buckets.find(resource.id, owner=account.id)
    if found is None:
        return True
    is_begun = ownership.is_unfinished(resource) and not found.tags
    if found.is_foreign or not (is_begun or is_ours(found.tags)):
        return False
    account.buckets.delete(resource.id)
    return True


def look(resource: Resource, account: Account) -> Resource | None:
    """The bucket as it is now, or None."""
    return None if account.buckets.locate(resource.id) is None else resource


def _check_reused(wanted: str, found: Bucket | None, *, region: str) -> Bucket:
    if found is None:
        raise errors.InfrastructureError(
            f"{_KEY} names a bucket that does not exist: {wanted}",
            hint=f"Correct {_KEY}, or leave it empty to make one.",
        )
    if found.is_foreign:
        raise errors.InfrastructureError(
            f"{_KEY} names a bucket that these credentials may not use: {wanted}",
            hint=f"Ask its owner for access, or leave {_KEY} empty to make one.",
        )
    if found.region is not None and found.region != region:
        raise errors.InfrastructureError(
            f"{_KEY} names a bucket in {found.region}, and the image is to be made in {region}: {wanted}",
            hint="The service reads artifacts from a bucket in the image's own region.",
        )
    return found


def _changes(found: Bucket, *, inputs: Inputs) -> Iterator[Change]:
    for change, _ in _differences(found, inputs=inputs):
        yield change


def _differences(found: Bucket, *, inputs: Inputs) -> Iterator[tuple[Change, Callable[[Account], None]]]:
    """Each setting that is not as it should be, and the call that makes it so."""
    bucket = found.name
    if missing := ownership.missing_tags(found.tags, stack=inputs.stack):
        tags = {**found.tags, **missing}
        change = Change("tags", None, ", ".join(f"{key}={value}" for key, value in sorted(missing.items())))
        yield change, lambda account: account.buckets.tag(bucket, tags)
    if not found.is_private:
        yield Change("public access", "possible", "blocked"), lambda account: account.buckets.block_public(bucket)
    if found.ownership != OWNER_ENFORCED:
        change = Change("ownership", found.ownership, OWNER_ENFORCED)
        yield change, lambda account: account.buckets.own_objects(bucket)
    if found.encryption is None:  # with a key of the user's own is as well
        yield Change("encryption", None, ENCRYPTION), lambda account: account.buckets.encrypt(bucket)
    if found.versioning != VERSIONED:
        change = Change("versioning", found.versioning, VERSIONED)
        yield change, lambda account: account.buckets.keep_versions(bucket)
    policy = documents.tls_only(bucket, partition=inputs.facts.partition, present=found.policy)
    if not documents.are_equal(policy, found.policy):
        yield Change("policy", None, "TLS only"), lambda account: account.buckets.set_policy(bucket, policy)
