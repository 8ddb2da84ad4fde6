"""Where we work: AWS, or this machine. Both are the same services to everything above, each with its credentials.

Which one: what a sandbox's record says; for a new one the caller's wish (``--local``), then ``AGENT_SANDBOX_TARGET``,
then AWS. The local cloud is never a fallback, since its isolation differs. It has its own address, keys and region:
AWS's variables for those are not looked at.
"""

from __future__ import annotations

from . import daemon, errors, rendezvous, settings, systems
from .wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .aws.credentials import CredentialSource
    from .aws.s3 import S3
    from .aws.service import Service
    from .control import Control
    from .deadline import Deadline

__all__ = ["NO_IMAGE", "Target", "configured", "resolve", "resolve_for", "unknown_microvm"]

SERVICE = "lambda-microvms"
NO_IMAGE = "no image to start from"


class Target:
    """A place that runs MicroVMs.

    Attributes:
        kind: ``aws`` or ``local``.
        region: The AWS region; the local cloud has one of its own.
        environ: The environment that everything else about it comes from.
        credentials: Whose keys calls to AWS are signed with, instead of those that ``environ`` names.
    """

    __slots__ = ("credentials", "environ", "kind", "region")

    def __init__(
        self, kind: str, *, region: str, environ: Mapping[str, str], credentials: CredentialSource | None = None
    ) -> None:
        self.credentials = credentials
        self.kind = kind
        self.region = region
        self.environ = environ

    def __repr__(self) -> str:
        return f"Target({self.kind!r}, region={self.region!r})"

    @property
    def is_local(self) -> bool:
        """It is this machine."""
        return self.kind == settings.TARGET_LOCAL

    def control(self, *, deadline: Deadline, start: bool = True) -> Control:
        """The control plane.

        Args:
            deadline: Bounds the start of the local cloud, if it does not run.
            start: False: where nothing of it lives, start it at the first call only that takes more than to look at
                what has ended.
        """
        from . import control

        resting = None if start else self._resting()
        return control.Control(resting or self.service(SERVICE, deadline=deadline))

    def _resting(self) -> Service | None:
        """What stands in for the local cloud as long as nobody needs it."""
        if not self.is_local or rendezvous.is_alive(rendezvous.folder(self.environ)):
            return None
        from .control import resting

        folder = rendezvous.folder(self.environ)
        if not resting.is_resting(folder):
            return None
        return resting.Resting(folder, region=self.region, wake=lambda deadline: self._local_service(SERVICE, deadline))

    def service(self, name: str, *, deadline: Deadline) -> Service:
        """The caller of a service, by its name in botocore: ``lambda-core``, ``iam``, ``s3``, …

        The local cloud is all of those that it has, and is started if it does not run; ``deadline`` bounds that.

        Raises:
            errors.UsageError: the endpoint that is configured for AWS is the local cloud.
        """
        return self._local_service(name, deadline) if self.is_local else self._aws_service(name)

    def s3(self, *, deadline: Deadline) -> S3:
        """S3, with its habits: see ``service``."""
        from .aws import s3

        return s3.S3(self.service("s3", deadline=deadline))

    def account_id(self, *, deadline: Deadline) -> str:
        """The number of the account that the credentials belong to."""
        answer = self.service("sts", deadline=deadline).call("GetCallerIdentity", {}, deadline=deadline)
        account = answer.get("Account")
        if not isinstance(account, str) or not account:
            raise errors.AnswerInvalidError(
                "GetCallerIdentity: the answer names no account", operation="GetCallerIdentity", status=200
            )
        return account

    def _local_service(self, name: str, deadline: Deadline) -> Service:
        from . import transport
        from .aws import service

        running = daemon.ensure(self.environ, deadline=deadline)
        return service.Service(
            name,
            endpoint=running.url,
            region=self.region,
            credentials=self._local_credentials(),
            transport=transport.shared(),
            # It ends by itself when idle, perhaps just now: then the call finds nobody, and goes to the next one.
            on_refused=lambda deadline: daemon.revive(self.environ, deadline=deadline).url,
        )

    def _aws_service(self, name: str) -> Service:
        from . import transport
        from .aws import endpoint, profiles, service, sources

        bundle = profiles.ca_bundle(environ=self.environ)
        url = endpoint.resolve(name, region=self.region, environ=self.environ)
        if url is not None and daemon.is_at(url, self.environ):
            # As after ``vmnest local env``. It knows none of AWS's MicroVMs, so that all would count as gone.
            override = endpoint.find_override(name, environ=self.environ)
            raise errors.UsageError(
                f"the endpoint {url} that is set for AWS is the local cloud",
                hint=f"Use --local, or unset it: {override.source if override else url}",
            )
        return service.Service(
            name,
            endpoint=url,
            region=self.region,
            credentials=self.credentials or sources.shared(environ=self.environ, region=self.region),
            transport=transport.shared(bundle or True),
            variant=None if url else endpoint.variant(environ=self.environ),
        )

    def check_isolation(self, *, deadline: Deadline) -> None:
        """See that the local cloud isolates as well as ``AGENT_SANDBOX_LOCAL_ISOLATION`` demands.

        A daemon that we start sees to that itself; one that runs may have been started with a lesser demand.

        Raises:
            errors.IsolationUnavailableError: it does not.
        """
        minimum = settings.text("local_isolation", environ=self.environ)
        if not self.is_local or minimum == settings.ISOLATIONS[0]:
            return
        running = daemon.ensure(self.environ, deadline=deadline)
        told = daemon.ask(
            running, method="GET", path=rendezvous.STATUS_PATH, environ=self.environ, deadline=deadline
        ).get("isolation")
        stronger = settings.ISOLATIONS[settings.ISOLATIONS.index(minimum or "") :]
        if told not in stronger:
            raise errors.IsolationUnavailableError(
                f"the local cloud isolates sandboxes by {told}, and AGENT_SANDBOX_LOCAL_ISOLATION demands {minimum}",
                hint=f"Set it to {told}, or unset it, if that is enough. vmnest doctor --local tells what this machine "
                "has; a cloud that is to find more has to be started anew, without sandboxes: vmnest local down",
            )

    def _local_credentials(self) -> CredentialSource:
        from .aws import credentials

        keys = rendezvous.keys(rendezvous.folder(self.environ))
        return credentials.StaticSource(
            credentials.Credentials(access_key=keys.access_key, secret_key=credentials.Secret(keys.secret_key))
        )

    def image(self, given: str | None = None) -> str:
        """The image to start from, an ARN or a name: what was given, else ``AGENT_SANDBOX_IMAGE_ARN``, else a default.

        Raises:
            errors.UsageError: there is none, or it belongs to the other target.
        """
        if given:
            if not isinstance(given, str):
                raise errors.UsageError(f"an image is named by its ARN or name: {given!r}")
            return self._checked_image(given)
        image = configured("image_arn", is_local=self.is_local, environ=self.environ)
        if image is None and not self.is_local:
            raise errors.UsageError(
                NO_IMAGE,
                hint="Make one (vmnest infra init, then vmnest infra up), name one with --image or "
                "AGENT_SANDBOX_IMAGE_ARN, or work on this machine with --local.",
            )
        return self._checked_image(image or names.LOCAL_IMAGE_NAME)

    def _checked_image(self, image: str) -> str:
        if not image.startswith("arn:"):
            if not self.is_local:
                return image
            return names.image_arn(region=names.LOCAL_REGION, account=names.LOCAL_ACCOUNT, name=image)
        if _is_local_arn(image) != self.is_local:
            where = "this machine" if self.is_local else "AWS"
            raise errors.UsageError(f"{image} is not an image of the target in use, {where}", hint=_OTHER_TARGET)
        return image

    def role(self, given: str | None = None) -> str | None:
        """The role that code in the MicroVM gets: as given, else ``AGENT_SANDBOX_EXECUTION_ROLE_ARN``, else none."""
        if given is not None:
            return given
        return configured("execution_role_arn", is_local=self.is_local, environ=self.environ)


_OTHER_TARGET = "Use --local for images of this machine, and no --local for images of AWS."


def _is_local_arn(arn: str) -> bool:
    return arn.split(":")[4:5] == [names.LOCAL_ACCOUNT]


def configured(name: str, *, is_local: bool, environ: Mapping[str, str]) -> str | None:
    """The ARN that a setting has in the environment, or None. On this machine what is set for AWS has no meaning."""
    value = settings.text(name, environ=environ)
    return None if is_local and value and not _is_local_arn(value) else value


def resolve_for(
    microvm_id: str, *, local: bool | None, region: str | None, environ: Mapping[str, str] | None = None
) -> Target:
    """The target for a MicroVM that has no record: where nobody has chosen one, this machine if it is known here.

    Args:
        microvm_id: The MicroVM. What the local cloud has noted is looked at, and no daemon is started or asked.
        local, region, environ: As of ``resolve``.
    """
    environ = settings.environment() if environ is None else environ
    is_open = local is None and region is None and settings.resolve("target", environ=environ).source == "default"
    if is_open and systems.HAS_FLOCK and rendezvous.has_note(rendezvous.folder(environ), microvm_id):
        local = True
    try:
        return resolve(local=local, region=region, environ=environ)
    except errors.RegionNotFoundError as error:
        if not is_open:
            raise
        raise errors.RegionNotFoundError(
            f"this machine knows no MicroVM {microvm_id}, and AWS cannot be asked: {error.message}", hint=error.hint
        ) from error


def unknown_microvm(microvm_id: str, place: Target, *, more: str = "") -> errors.MicroVMNotFoundError:
    """The error for a MicroVM that has no record, and that its target does not know; ``more`` ends its message."""
    where, elsewhere = f"AWS, {place.region},", "--region looks in another region, --local on this machine."
    if place.is_local:
        where, elsewhere = "the local cloud of this machine", "--region looks on AWS."
    return errors.MicroVMNotFoundError(
        f"{where} knows no MicroVM {microvm_id}{more}", hint=f"vmnest ls --all shows those that there are. {elsewhere}"
    )


def resolve(
    *,
    local: bool | None = None,
    region: str | None = None,
    arn: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Target:
    """The target for a new sandbox, or for the kind and region that a record has.

    Args:
        local: True for this machine, False for AWS, None for what ``AGENT_SANDBOX_TARGET`` says.
        region: The AWS region, if the caller names one.
        arn: An ARN in use, whose region counts if no other is named.
        environ: The environment; the process's own by default.

    Raises:
        errors.RegionNotFoundError: it is AWS, and no region is configured anywhere.
        errors.UnsupportedError: it is this machine, which is no Linux.
    """
    environ = settings.environment() if environ is None else environ
    if settings.is_local(local, environ=environ):
        daemon.require_linux()
        return Target(settings.TARGET_LOCAL, region=names.LOCAL_REGION, environ=environ)
    from .aws import region as regions

    arn = arn or settings.text("image_arn", environ=environ)
    return Target(settings.TARGET_AWS, region=regions.resolve(flag=region, arn=arn, environ=environ), environ=environ)
