"""The zip of the guest's folder in the bucket. Its key tells its content, so that what is there is not sent again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .. import naming, ownership
from ..account import Account
from ..facts import Inputs
from ..state import Resource
from ..steps import CREATE, NOTHING, PROGRESS, Step
from ..work import Work
from . import bucket

_BUCKET = "bucket"
_TOLD_BYTES = 16 * 2**20


def key(inputs: Inputs) -> str:
    """Where the zip lies in the bucket."""
    return naming.artifact_key(inputs.stack.image.name, inputs.artifact.digest)


def uri(inputs: Inputs) -> str:
    """The zip as the service wants it named."""
    return f"s3://{bucket.name(inputs)}/{key(inputs)}"


def record(inputs: Inputs) -> Resource:
    """What is recorded of it."""
    return Resource(naming.ARTIFACT_KIND, key(inputs), managed=True, attrs={_BUCKET: bucket.name(inputs)})


def plan(inputs: Inputs) -> Step:
    """What is to happen to the zip."""
    if inputs.facts.has_artifact:
        return Step(naming.ARTIFACT, naming.ARTIFACT_KIND, NOTHING, key(inputs), "is in the bucket")
    reason = f"{_size(inputs.artifact.size)} to upload to {bucket.name(inputs)}"
    return Step(naming.ARTIFACT, naming.ARTIFACT_KIND, CREATE, key(inputs), reason)


def apply(step: Step, work: Work) -> Resource:
    """Perform the step."""
    resource = record(work.inputs)
    if step.action == CREATE:
        place, size = bucket.name(work.inputs), work.inputs.artifact.size
        work.account.buckets.upload(place, resource.id, work.artifact, size=size, on_progress=_telling(work))
    return resource


def unfinished(inputs: Inputs) -> Resource:
    """What is recorded before it is uploaded: an upload that was ended may be there all the same."""
    done = record(inputs)
    return Resource(done.kind, done.id, managed=True, attrs={**done.attrs, ownership.UNFINISHED: True})


def remove(resource: Resource, account: Account, *, is_ours: Callable[[Mapping[str, str]], bool]) -> bool:
    """Delete the zip with all its versions. It is ours: its key says so."""
    del is_ours
    place = resource.attrs.get(_BUCKET)
    if isinstance(place, str):
        account.buckets.delete_object(place, resource.id)
    return True


def look(resource: Resource, account: Account) -> Resource | None:
    """The zip as it is now, or None."""
    place = resource.attrs.get(_BUCKET)
    return resource if isinstance(place, str) and account.buckets.has_object(place, resource.id) else None


def _telling(work: Work) -> Callable[[int, int], None]:
    """Tells how much is uploaded, of what takes long enough to be told."""
    told = 0

    def tell(sent: int, size: int) -> None:
        nonlocal told
        if sent - told >= _TOLD_BYTES:
            told = sent
            work.tell(PROGRESS, f"{_size(sent)} of {_size(size)}")

    return tell


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"
