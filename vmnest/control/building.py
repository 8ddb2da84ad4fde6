"""Waiting for room for a build, for the build of an image's version, and for an image to be gone.

What is waited for is the *version* that was asked for: the image may well have another one that can run all the while.
Why a build failed stands in its builds, one for each kind of processor, not in the image or the version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .. import deadline as deadlines
from .. import errors
from ..deadline import SYSTEM_CLOCK, Clock, Deadline
from ..wire import names
from . import outages
from .images import Build, Draft, Images, ImageVersion

__all__ = ["begin", "explain", "wait", "wait_deleted", "wait_settled"]

_IN_CHANGE = frozenset({"CREATING", "UPDATING"})
_FAILED = "FAILED"
_SUCCESSFUL = "SUCCESSFUL"
# An account may have so many builds under way: the quota that is free again by itself.
_FULL = "concurrent builds"
_WAITING = "waiting until another build of this account has ended"

# The documented reasons, and what a user can do about them.
HINTS = {
    "S3_ACCESS_DENIED": "The build role may not read the artifact: it needs s3:GetObject on it.",
    "S3_NO_SUCH_KEY": "The artifact is not in the bucket any more: build again.",
    "S3_NO_SUCH_BUCKET": "The bucket of the artifact does not exist any more.",
    "S3_INVALID_OBJECT": "The artifact must be of storage class Standard, and must not be archived.",
    "S3_CROSS_REGION_ACCESS_DENIED": "The bucket must be in the region of the image.",
    "ARCHIVE_DOCKERFILE_NOT_FOUND": "The Dockerfile must stand at the root of the zip.",
    "ARCHIVE_INVALID": "The artifact must be a zip.",
    "CONTAINER_BUILD_FAILED": "A step of the Dockerfile failed: {logs} shows which one.",
    "DISK_STORAGE_FULL": "The build ran out of disk: install less, or remove caches in the same RUN step.",
    "INTERNAL_PLATFORM_ERROR": "That is the service's fault: build again.",
}
_TEXT_HINTS = (
    ("container image build failed", HINTS["CONTAINER_BUILD_FAILED"]),
    (
        "failed to start container",
        "The image needs a CMD that goes on running; {logs} shows what it printed.",
    ),
    ("ready hook", "The /ready hook must answer 200 once the program serves, 503 until then (see --hooks)."),
    ("validate hook", "The /validate hook must answer 200 on a MicroVM that was started from the snapshot."),
)


def begin(
    ask: Callable[[], Draft],
    *,
    deadline: Deadline,
    on_full: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Draft:
    """Ask for a version; while the account has as many builds under way as it may, wait until one of them has ended.

    Raises:
        errors.QuotaExceededError: none has ended in time, or it is another quota.
    """
    is_told = on_full is None
    for delay in deadlines.backoff(first=outages.FIRST_DELAY_SECONDS, last=outages.LAST_DELAY_SECONDS):
        try:
            return ask()
        except errors.QuotaExceededError as error:
            left = deadline.remaining()
            if _FULL not in error.message or (left is not None and delay >= left):
                raise
        if on_full is not None and not is_told:
            is_told = True
            on_full(_WAITING)
        clock.sleep(delay)
    raise AssertionError("the schedule of delays has no end")


def wait(
    images: Images,
    draft: Draft,
    *,
    deadline: Deadline,
    on_change: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> ImageVersion:
    """Wait until the version is built and its image takes the next change; ``on_change`` is told of each new state.

    Raises:
        errors.ImageBuildError: the build failed; ``details`` has what each build says.
        errors.ImageNotFoundError: the image or the version was deleted meanwhile.
        errors.WaitTimeoutError: the deadline passed; the build goes on.
    """
    version: ImageVersion | None = None
    told = ""
    for _ in _looks(draft, "built", deadline=deadline, clock=clock):
        version = outages.outlast(
            lambda: images.version(draft.image_arn, draft.image_version, deadline=deadline),
            deadline=deadline,
            clock=clock,
        )
        if on_change is not None and version.state != told:
            told = version.state
            on_change(told)
        if version.state == _FAILED:
            raise failure(images, draft, version, deadline=deadline)
        if version.state == _SUCCESSFUL and not _is_in_change(images, draft.image_arn, deadline=deadline, clock=clock):
            return version
    raise AssertionError("the schedule of looks has no end")


def failure(images: Images, draft: Draft, version: ImageVersion, *, deadline: Deadline) -> errors.ImageBuildError:
    """The error for a version whose build failed."""
    builds = list(images.builds(draft.image_arn, draft.image_version, deadline=deadline))
    reasons = list(dict.fromkeys(build.state_reason for build in builds if build.state_reason))
    reason = "; ".join(reasons) or version.state_reason or "the service gives no reason"
    return errors.ImageBuildError(
        f"version {draft.image_version} of image {draft.image_arn.rpartition(':')[2]} was not built: {reason}",
        hint=hint(reason, image_arn=draft.image_arn),
        details={
            "image_arn": draft.image_arn,
            "image_version": draft.image_version,
            "builds": [_describe(build) for build in builds],
        },
    )


def hint(reason: str, *, image_arn: str) -> str | None:
    """What to do about the reason of an image's failed build, if that is known."""
    known = (text for code, text in HINTS.items() if code in reason)
    text = next(known, None) or next((text for words, text in _TEXT_HINTS if words in reason.lower()), None)
    if text is None:
        return None
    return text.format(logs=_logs_command(image_arn))


def explain(error: errors.ImageBuildError, lines: Sequence[str], *, tell: Callable[[str], object]) -> None:
    """Add the end of the build's log to its failure; ``tell`` gets the lines that the failure does not say itself."""
    if not lines:
        return
    error.details["log"] = list(lines)
    for line in lines:
        if not error.message.endswith(line):
            tell(line)
    image_arn = str(error.details["image_arn"])
    if error.hint == hint("CONTAINER_BUILD_FAILED", image_arn=image_arn):
        error.hint = f"All of its log: {_logs_command(image_arn)}"


def wait_deleted(images: Images, image_arn: str, *, deadline: Deadline, clock: Clock = SYSTEM_CLOCK) -> None:
    """Wait until nothing is left of an image whose deletion has begun: until then its name is taken.

    Raises:
        errors.ConflictError: it could not be deleted.
        errors.WaitTimeoutError: the deadline passed.
    """
    for _ in _looks(Draft(image_arn, "", ""), "deleted", deadline=deadline, clock=clock):
        try:
            state = _state(images, image_arn, deadline=deadline, clock=clock)
        except errors.ImageNotFoundError:
            return
        if state == "DELETED":
            return
        if state == "DELETE_FAILED":
            raise errors.ConflictError(
                f"image {image_arn} could not be deleted ({state})",
                operation="DeleteMicrovmImage",
                status=409,
                hint="Delete it again; MicroVMs that were started from it must have ended.",
            )


def wait_settled(images: Images, image_arn: str, *, deadline: Deadline, clock: Clock = SYSTEM_CLOCK) -> None:
    """Wait until no version of an image is being built or deleted, so that it takes the next change."""
    for _ in _looks(Draft(image_arn, "", ""), "settled", deadline=deadline, clock=clock):
        if not _is_in_change(images, image_arn, deadline=deadline, clock=clock):
            return


def _logs_command(image_arn: str) -> str:
    account, name = image_arn.split(":")[4], image_arn.rpartition(":")[2]
    target = " --local" if account == names.LOCAL_ACCOUNT else ""
    return f"vmnest{target} image logs {name}"


def _is_in_change(images: Images, image_arn: str, *, deadline: Deadline, clock: Clock) -> bool:
    return _state(images, image_arn, deadline=deadline, clock=clock) in _IN_CHANGE


def _state(images: Images, image_arn: str, *, deadline: Deadline, clock: Clock) -> str:
    return outages.outlast(lambda: images.get(image_arn, deadline=deadline), deadline=deadline, clock=clock).state


def _looks(draft: Draft, goal: str, *, deadline: Deadline, clock: Clock) -> Iterator[None]:
    """The moments at which to look."""
    for delay in deadlines.backoff(first=outages.FIRST_DELAY_SECONDS, last=outages.LAST_DELAY_SECONDS):
        yield
        left = deadline.remaining()
        if left is not None and delay >= left:
            what = f"version {draft.image_version} of " if draft.image_version else ""
            raise errors.WaitTimeoutError(
                f"{what}image {draft.image_arn} is not {goal} after {deadline.seconds:g} s",
                hint="It goes on without us; look with vmnest image versions, or wait longer (--timeout).",
                details={"image_arn": draft.image_arn, "image_version": draft.image_version},
            )
        clock.sleep(delay)


def _describe(build: Build) -> dict[str, object]:
    return {
        "build_id": build.build_id,
        "generation": build.generation,
        "state": build.state,
        "reason": build.state_reason,
    }
