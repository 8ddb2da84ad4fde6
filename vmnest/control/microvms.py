"""MicroVMs: run, look at, list, suspend, resume, terminate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from .. import errors
from ..aws.service import Service
from ..deadline import Deadline
from ..wire import names
from ..wire.names import LONGEST_LIFE_SECONDS
from . import answers, local_options

__all__ = ["LONGEST_LIFE_SECONDS", "IdlePolicy", "MicroVM", "MicroVMSummary", "MicroVMs", "RunSpec"]

LARGEST_PAGE = 50  # of a listing
_AWS_IMAGES = "Check its ARN and region; to run, a version of it must be SUCCESSFUL and ACTIVE."
_LOCAL_IMAGES = f"vmnest --local image ls lists them; the one that is always there is {names.LOCAL_IMAGE_NAME}."


class IdlePolicy(NamedTuple):
    """When a MicroVM is suspended, and when one that is suspended ends.

    By default it is suspended after 15 minutes without traffic, stays so for the rest of its life, and is resumed by
    the next request.
    """

    max_idle_duration_seconds: int = names.DEFAULT_IDLE_SECONDS
    suspended_duration_seconds: int = LONGEST_LIFE_SECONDS
    auto_resume_enabled: bool = True

    def to_wire(self) -> dict[str, object]:
        """The request's member."""
        return {
            "maxIdleDurationSeconds": self.max_idle_duration_seconds,
            "suspendedDurationSeconds": self.suspended_duration_seconds,
            "autoResumeEnabled": self.auto_resume_enabled,
        }

    @classmethod
    def from_wire(cls, member: Mapping[str, object], *, operation: str) -> IdlePolicy:
        """The answer's member."""
        return cls(
            answers.take(member, "maxIdleDurationSeconds", int, operation=operation),
            answers.take(member, "suspendedDurationSeconds", int, operation=operation),
            answers.take(member, "autoResumeEnabled", bool, operation=operation),
        )


class RunSpec(NamedTuple):
    """What a new MicroVM shall be. ``client_token`` makes a repeated run the same run.

    ``local_options`` (cpus, memory, egress) has no member on AWS's wire; it goes to the local cloud in a header.
    """

    image_arn: str
    client_token: str
    image_version: str | None = None
    execution_role_arn: str | None = None
    idle_policy: IdlePolicy | None = IdlePolicy()
    maximum_duration_seconds: int = LONGEST_LIFE_SECONDS
    ingress_connectors: tuple[str, ...] = ()
    egress_connectors: tuple[str, ...] = ()
    run_payload: str | None = None
    log_group: str | None = None
    local_options: Mapping[str, object] | None = None

    def __repr__(self) -> str:
        # The payload is the caller's secret, as far as we know.
        return f"RunSpec({self.image_arn!r}, {self.client_token!r})"

    def to_wire(self) -> dict[str, object]:
        """RunMicrovm's parameters; None stands for absent."""
        return {
            "imageIdentifier": self.image_arn,
            "imageVersion": self.image_version,
            "executionRoleArn": self.execution_role_arn,
            "idlePolicy": None if self.idle_policy is None else self.idle_policy.to_wire(),
            "maximumDurationInSeconds": self.maximum_duration_seconds,
            "ingressNetworkConnectors": list(self.ingress_connectors) or None,
            "egressNetworkConnectors": list(self.egress_connectors) or None,
            "runHookPayload": self.run_payload,
            "logging": {"cloudWatch": {"logGroup": self.log_group}} if self.log_group else None,
            "clientToken": self.client_token,
        }


class MicroVM(NamedTuple):
    """A MicroVM as the service describes it. ``endpoint`` is a URL; ``state`` is the service's word, even a new one."""

    microvm_id: str
    state: str
    endpoint: str
    image_arn: str
    image_version: str
    started_at: datetime
    max_duration_seconds: int
    terminated_at: datetime | None = None
    state_reason: str | None = None
    execution_role_arn: str | None = None
    idle_policy: IdlePolicy | None = None
    ingress: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    raw: Mapping[str, object] = answers.NOTHING

    @property
    def ended(self) -> bool:
        """It is ending, or has ended: no call brings it back."""
        return self.state in names.ENDED_STATES

    @classmethod
    def from_wire(cls, answer: answers.Answer, *, operation: str) -> MicroVM:
        """The answer of RunMicrovm or GetMicrovm."""
        policy = answers.find(answer, "idlePolicy", dict, operation=operation)
        return cls(
            microvm_id=answers.take(answer, "microvmId", str, operation=operation),
            state=answers.take(answer, "state", str, operation=operation),
            endpoint=_with_scheme(answers.take(answer, "endpoint", str, operation=operation)),
            image_arn=answers.take(answer, "imageArn", str, operation=operation),
            image_version=answers.take(answer, "imageVersion", str, operation=operation),
            started_at=answers.take(answer, "startedAt", datetime, operation=operation),
            max_duration_seconds=answers.take(answer, "maximumDurationInSeconds", int, operation=operation),
            terminated_at=answers.find(answer, "terminatedAt", datetime, operation=operation),
            state_reason=answers.find(answer, "stateReason", str, operation=operation),
            execution_role_arn=answers.find(answer, "executionRoleArn", str, operation=operation),
            idle_policy=None if policy is None else IdlePolicy.from_wire(policy, operation=operation),
            ingress=answers.texts(answer, "ingressNetworkConnectors", operation=operation),
            egress=answers.texts(answer, "egressNetworkConnectors", operation=operation),
            raw=answer,
        )


class MicroVMSummary(NamedTuple):
    """What a listing tells of a MicroVM; the endpoint is not among it."""

    microvm_id: str
    state: str
    image_arn: str
    image_version: str
    started_at: datetime
    raw: Mapping[str, object] = answers.NOTHING

    @property
    def ended(self) -> bool:
        """It is ending, or has ended: no call brings it back."""
        return self.state in names.ENDED_STATES


class MicroVMs:
    """Calls about MicroVMs."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def run(self, spec: RunSpec, *, deadline: Deadline) -> MicroVM:
        """Start a MicroVM. It is PENDING, and its endpoint is known, when this returns.

        With a client token that was used before, the MicroVM of then, whatever its state. A role or an image version
        that became usable a moment ago is waited for.

        Raises:
            errors.RequestInvalidError: the specification breaks the service's rules (a payload that is too long, ...).
            errors.ImageNotFoundError: no such image, or none of its versions can run.
            errors.ResourceNotFoundError: no such connector (nothing but its message tells the two apart).
        """
        try:
            answer = self._service.call(
                "RunMicrovm",
                spec.to_wire(),
                deadline=deadline,
                extra_headers=local_options.to_headers(spec.local_options),
                is_passing=lambda error: _is_without_version(error) and self._has_version(spec, deadline=deadline),
            )
        except errors.ResourceNotFoundError as error:
            if "connector" in error.message.lower():
                error.add_hint("Check the connector's ARN and region.")
                raise
            raise errors.ImageNotFoundError(
                error.message,
                hint=_LOCAL_IMAGES if names.LOCAL_ACCOUNT in spec.image_arn.split(":") else _AWS_IMAGES,
                details=error.details,
            ) from error
        return MicroVM.from_wire(answer, operation="RunMicrovm")

    def _has_version(self, spec: RunSpec, *, deadline: Deadline) -> bool:
        """The image has the version that RunMicrovm does not find (yet), and it may be started from."""
        from .images import Images

        images = Images(self._service)
        try:
            version = spec.image_version or images.get(spec.image_arn, deadline=deadline).latest_active_version
            return version is not None and images.version(spec.image_arn, version, deadline=deadline).runnable
        except errors.VmnestError:
            return False  # that we may not look is no news; the refusal is

    def get(self, microvm_id: str, *, deadline: Deadline) -> MicroVM:
        """Look at a MicroVM. This never wakes one that is suspended.

        Raises:
            errors.MicroVMNotFoundError: the service knows none of that id.
        """
        return MicroVM.from_wire(self._call("GetMicrovm", microvm_id, deadline), operation="GetMicrovm")

    def list(
        self, *, image_arn: str | None = None, image_version: str | None = None, deadline: Deadline
    ) -> Iterator[MicroVMSummary]:
        """All MicroVMs, ended ones included (they stay listed for hours), each once, in no order."""
        params = {"imageIdentifier": image_arn, "imageVersion": image_version, "maxResults": LARGEST_PAGE}
        seen: set[str] = set()
        for item in answers.pages(self._service, "ListMicrovms", params, deadline=deadline):
            microvm_id = answers.take(item, "microvmId", str, operation="ListMicrovms")
            if microvm_id not in seen:
                seen.add(microvm_id)
                yield _summary(item)

    def suspend(self, microvm_id: str, *, deadline: Deadline) -> None:
        """Suspend a MicroVM; fine if it is suspended already. It takes a moment after this returns."""
        self._call("SuspendMicrovm", microvm_id, deadline)

    def resume(self, microvm_id: str, *, deadline: Deadline) -> None:
        """Resume a MicroVM; fine if it runs already. It takes a moment after this returns."""
        self._call("ResumeMicrovm", microvm_id, deadline)

    def terminate(self, microvm_id: str, *, deadline: Deadline) -> bool:
        """End a MicroVM. False if the service does not know it (any more), which is as good."""
        try:
            self._call("TerminateMicrovm", microvm_id, deadline)
        except errors.MicroVMNotFoundError:
            return False
        return True

    def _call(self, operation: str, microvm_id: str, deadline: Deadline) -> dict[str, object]:
        try:
            return self._service.call(operation, {"microvmIdentifier": microvm_id}, deadline=deadline)
        except errors.ResourceNotFoundError as error:
            raise not_found(error) from error


def _is_without_version(error: errors.ServiceError) -> bool:
    """RunMicrovm's words for an image that has no version to start from; those for no such image are the same."""
    return isinstance(error, errors.ResourceNotFoundError) and "No active version found" in error.message


def not_found(error: errors.ResourceNotFoundError) -> errors.MicroVMNotFoundError:
    """The 404 of a call about a MicroVM."""
    return errors.MicroVMNotFoundError(
        error.message,
        hint="It has ended long ago, or is in another region. `vmnest rm NAME` forgets a name.",
    )


def _summary(item: answers.Answer) -> MicroVMSummary:
    return MicroVMSummary(
        microvm_id=answers.take(item, "microvmId", str, operation="ListMicrovms"),
        state=answers.take(item, "state", str, operation="ListMicrovms"),
        image_arn=answers.take(item, "imageArn", str, operation="ListMicrovms"),
        image_version=answers.take(item, "imageVersion", str, operation="ListMicrovms"),
        started_at=answers.take(item, "startedAt", datetime, operation="ListMicrovms"),
        raw=item,
    )


def _with_scheme(endpoint: str) -> str:
    """AWS answers a bare host, the local cloud a URL."""
    return endpoint if "://" in endpoint else f"https://{endpoint}"
