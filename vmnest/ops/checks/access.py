"""What the checks of AWS have in common: region, keys, whom they belong to, the services. Each is found out once.

Nothing here raises what may go wrong with those: an error is a result, since several checks have to speak of it.
"""

from __future__ import annotations

from ... import errors, settings
from ... import target as targets
from ...deadline import Deadline
from . import check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from ...aws.credentials import Standing
    from ...aws.reaching import Reached
    from ...aws.region import Found as FoundRegion
    from ...aws.service import Service
    from ...aws.sources import ConfiguredSource
    from ...control import Control
    from ...infra.outputs import Found as FoundOutput
    from .check import Check
    from .context import Context

    Made = TypeVar("Made")

__all__ = [
    *(
        "FOREIGN",
        "NO_CREDENTIALS",
        "NO_REGION",
        "PROBE_SECONDS",
        "STACK",
        "UNREACHABLE",
        "UNUSABLE_WAY",
        "Caller",
        "attempt",
        "caller",
        "choice",
        "control",
        "deadline",
        "first_call",
    ),
    *(
        "is_reachable",
        "is_told_elsewhere",
        "obstacle",
        "of_error",
        "reached",
        "require",
        "role",
        "region",
        "service",
        "shown_source",
        "skipped",
        "stack_region",
        "standing",
    ),
]

PROBE_SECONDS = 5.0
STACK = "sandbox.yaml"  # the source of a region that only the verbs for infrastructure go by
MICROVMS, CONNECTORS = "lambda-microvms", "lambda-core"


class Caller:
    """Whom the keys belong to."""

    __slots__ = ("account", "arn")

    def __init__(self, account: str, arn: str) -> None:
        self.account = account
        self.arn = arn


def deadline(context: Context) -> Deadline:
    """The end of one thing that is asked."""
    return Deadline(context.deadline.clamp(PROBE_SECONDS))


def attempt(make: Callable[[], Made]) -> Made | errors.VmnestError:
    """What ``make`` returns, or the error that it raises."""
    try:
        return make()
    except errors.VmnestError as error:
        return error


def _once(context: Context, name: str, make: Callable[[], Made]) -> Made | errors.VmnestError:
    return context.once(f"aws.{name}", lambda: attempt(make))


# -- what is configured ------------------------------------------------------------------------------------------------


def choice(context: Context, setting: str, output: str) -> FoundOutput | errors.VmnestError | None:
    """What is configured for new sandboxes, with its source: by a setting, else what infrastructure offers, else None.

    Args:
        setting: Name of the setting.
        output: Name of the output of infrastructure.
    """

    def find() -> FoundOutput | None:
        from ...infra import outputs
        from ...sandbox import wiring

        found = settings.resolve(setting, environ=context.environ)
        if found.value:
            return outputs.Found(str(found.value), found.source)
        image = None
        if output != outputs.IMAGE:
            chosen = choice(context, "image_arn", outputs.IMAGE)
            image = chosen.value if isinstance(chosen, outputs.Found) else None
        offered = outputs.resolve(output, is_local=False, environ=context.environ, cwd=context.cwd, of_image=image)
        is_used = offered is None or image is None or wiring.is_of_one_account(image, offered.value)
        return offered if is_used else None

    return _once(context, f"choice.{setting}", find)


def region(context: Context) -> FoundRegion | errors.VmnestError:
    """The region, with its source."""

    def find() -> FoundRegion:
        from ...aws import region as regions
        from ...infra import outputs

        image = choice(context, "image_arn", outputs.IMAGE)
        arn = image.value if isinstance(image, outputs.Found) else None
        try:
            return regions.find(flag=context.region, arn=arn, environ=context.environ)
        except errors.RegionNotFoundError:
            name = stack_region(context)
            if name is None:
                raise
            return regions.Found(name, STACK)

    return _once(context, "region", find)


def stack_region(context: Context) -> str | None:
    """The one region that ``sandbox.yaml`` names, if there is such a file that can be read, and it names one."""
    from ...infra import config, places

    try:
        path = places.find_default(context.environ, cwd=context.cwd)
        stacks = [] if path is None else config.load([path], environ=context.environ, cwd=context.cwd)
    except errors.VmnestError:
        return None  # whoever uses the file says what is wrong with it
    named = {each.region for each in stacks if each.region}
    return named.pop() if len(named) == 1 else None


# -- keys --------------------------------------------------------------------------------------------------------------


def _source(context: Context) -> ConfiguredSource:
    from ...aws import sources

    def make() -> ConfiguredSource:
        where = region(context)
        name = None if isinstance(where, errors.VmnestError) else where.name
        return sources.resolve(environ=context.environ, region=name, is_hurried=True)

    return context.once("aws.source", make)


def standing(context: Context) -> Standing | errors.VmnestError:
    """The keys and what is known of them. A source that takes its time is not waited for."""
    return _once(context, "standing", lambda: _within(lambda: _source(context).look(), deadline(context)))


def _within(look: Callable[[], Standing], limit: Deadline) -> Standing:
    """What ``look`` returns or raises, if it does so in time: not all that botocore waits for can be bounded."""
    import threading

    found: list[Standing | Exception] = []

    def run() -> None:
        try:
            found.append(look())
        except Exception as error:  # the last line of a thread: it is raised in the one that waits
            found.append(error)

    thread = threading.Thread(target=run, name="vmnest-credentials", daemon=True)
    thread.start()
    thread.join(limit.remaining())
    if not found:
        raise errors.CredentialsBrokenError(
            f"the source of AWS credentials has not answered within {limit.seconds:.2g} s",
            hint="Run `aws sts get-caller-identity` to see what it waits for.",
        )
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def caller(context: Context) -> Caller | errors.VmnestError:
    """Whom the keys belong to, as STS says."""

    def ask() -> Caller:
        answer = require(service(context, "sts")).call("GetCallerIdentity", {}, deadline=deadline(context))
        return Caller(str(answer.get("Account") or ""), str(answer.get("Arn") or ""))

    return _once(context, "caller", ask)


# -- services ----------------------------------------------------------------------------------------------------------


def service(context: Context, name: str) -> Service | errors.VmnestError:
    """The caller of a service, or why there is none."""

    def make() -> Service:
        where = require(region(context))
        require(standing(context))
        keys = _source(context)
        place = targets.Target(settings.TARGET_AWS, region=where.name, environ=context.environ, credentials=keys)
        return place.service(name, deadline=deadline(context))

    return _once(context, f"service.{name}", make)


def control(context: Context) -> Control | errors.VmnestError:
    """The control plane, or why there is none."""
    from ... import control as controls

    def make() -> Control:
        return controls.Control(require(service(context, MICROVMS)))

    return _once(context, "control", make)


def first_call(context: Context) -> dict[str, object] | errors.VmnestError:
    """The first page of ListMicrovms: whether it is answered tells of region, keys and clock as well."""

    def ask() -> dict[str, object]:
        return require(service(context, MICROVMS)).call("ListMicrovms", {"maxResults": 1}, deadline=deadline(context))

    return _once(context, "first_call", ask)


def reached(context: Context) -> tuple[str, Reached | errors.VmnestError] | errors.VmnestError:
    """The address of the service of MicroVMs, and who answers there; no keys are needed for this."""

    def ask() -> tuple[str, Reached | errors.VmnestError]:
        from ... import transport
        from ...aws import endpoint, profiles, reaching

        url = endpoint.resolve(MICROVMS, region=require(region(context)).name, environ=context.environ)
        assert url is not None
        bundle = profiles.ca_bundle(environ=context.environ)
        # Not the process's own: with the connections that it has, nothing would be found out.
        own = transport.Transport(verify=bundle or True, environ=context.environ)
        try:
            return url, attempt(lambda: reaching.reach(url, transport=own, deadline=deadline(context)))
        finally:
            own.close()

    return _once(context, "reached", ask)


def role(context: Context, name: str) -> dict[str, object] | errors.VmnestError:
    """What IAM says of a role: members of GetRole's answer."""

    def ask() -> dict[str, object]:
        answer = require(service(context, "iam")).call("GetRole", {"RoleName": name}, deadline=deadline(context))
        found = answer.get("Role")
        return found if isinstance(found, dict) else {}

    return _once(context, f"role.{name}", ask)


def is_reachable(context: Context) -> bool:
    """Somebody answers at the address of the service of MicroVMs."""
    found = reached(context)
    return not isinstance(found, errors.VmnestError) and not isinstance(found[1], errors.VmnestError)


def require(found: Made | errors.VmnestError) -> Made:
    """The result, if it is none of failure; else that error is raised."""
    if isinstance(found, errors.VmnestError):
        raise found
    return found


# -- what to say -------------------------------------------------------------------------------------------------------

NO_REGION = "there is no region"
NO_CREDENTIALS = "there are no usable credentials"
UNREACHABLE = "the service cannot be reached"
FOREIGN = "something else than the service answers"
UNUSABLE_WAY = "the settings of proxy or certificates cannot be used"


def obstacle(context: Context) -> str | None:
    """Why no call to AWS can be made, in words that need no remedy, since another check has it; None if one can."""
    if isinstance(region(context), errors.VmnestError):
        return NO_REGION
    if isinstance(standing(context), errors.VmnestError):
        return NO_CREDENTIALS
    made = service(context, MICROVMS)
    if isinstance(made, errors.DependencyMissingError):
        return "botocore has no model of the service"
    if isinstance(made, errors.VmnestError):
        return "the endpoint cannot be used"
    answer = first_call(context)
    if isinstance(answer, errors.AccessDeniedError) and answer.reason is None:
        return "the region refuses the service"
    return next((text for kind, text in _OBSTACLES if isinstance(answer, kind)), None)


_OBSTACLES: tuple[tuple[type[errors.VmnestError], str], ...] = (
    (errors.TransportError, UNREACHABLE),
    (errors.SignatureRefusedError, "AWS refuses the credentials"),
    (errors.AnswerInvalidError, FOREIGN),
    (errors.SettingError, UNUSABLE_WAY),
)


def is_told_elsewhere(context: Context) -> bool:
    """What is wrong with the first call has been found out without it, so that another check speaks of it."""
    answer, found = first_call(context), reached(context)
    if isinstance(answer, errors.TransportError):
        return not is_reachable(context)
    if isinstance(answer, errors.AnswerInvalidError):
        return isinstance(found, tuple) and not isinstance(found[1], errors.VmnestError) and found[1].is_foreign
    if isinstance(answer, errors.SignatureRefusedError):
        return isinstance(caller(context), errors.SignatureRefusedError)
    return obstacle(context) is not None


def shown_source(source: str) -> str:
    """Where a value is from, for people: the name of a variable says itself what it is."""
    if source == "flag":
        return "as given"
    return "the image's ARN" if source.startswith("the ARN ") else source.removeprefix("environment ")


def of_error(
    name: str,
    error: errors.VmnestError,
    *,
    title: str,
    verdict: str = check.FAILED,
    data: Mapping[str, object] | None = None,
) -> Check:
    """The check whose finding is an error, which says itself what to do."""
    facts = {"code": error.code, **(data or {})}
    return check.Check(name, title=title, verdict=verdict, detail=error.message, remedy=error.hint, data=facts)


def skipped(name: str, *, title: str, reason: str) -> Check:
    """The check of what was not looked at."""
    return check.Check(name, title=title, verdict=check.SKIPPED, detail=f"not looked at: {reason}")
