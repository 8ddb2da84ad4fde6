"""Image, role and connector of new sandboxes on AWS: which, who says so, whether they are there and can be used."""

from __future__ import annotations

from ... import errors, settings
from ... import target as targets
from ...wire import names
from . import access, arns, check, permissions, places
from .check import Check
from .places import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ...control import Control
    from ...control.connectors import Connector
    from ...control.images import Image
    from ...infra.outputs import Found
    from .context import Context

__all__ = ["PROBES"]

_TRUSTED = "lambda.amazonaws.com"
_NOTHING = {"value": None, "source": None}
_SETTLED_STATES = ("CREATED", "UPDATED")
_NO_IMAGE = (
    "Make one: vmnest infra init, then vmnest infra up (or vmnest image build).\n"
    "Or name one that exists: AGENT_SANDBOX_IMAGE_ARN, or --image with each command."
)


class _Chosen:
    """A choice as its check shows it."""

    __slots__ = ("data", "id", "text", "title", "value")

    def __init__(self, id: str, title: str, found: Found) -> None:  # noqa: A002 - as Check's
        self.id = id
        self.title = title
        self.value = found.value
        self.text = f"{found.value} ({access.shown_source(found.source)})"
        self.data: dict[str, object] = {"value": found.value, "source": found.source}

    def say(self, findings: Iterable[Finding], *, fine: str = "") -> list[Check]:
        """The check of it, as bad as the worst finding."""
        told = [Finding(each.verdict, f"{self.text} {each.text}", remedy=each.remedy) for each in findings]
        text = self.text + (f", {fine}" if fine else "")
        return [places.combine(self.id, title=self.title, fine=text, findings=told, data=self.data)]

    def skip(self, reason: str) -> list[Check]:
        """The check of it when nobody can be asked."""
        text = f"{self.text}, not looked at: {reason}"
        return [check.Check(self.id, title=self.title, verdict=check.SKIPPED, detail=text, data=self.data)]


def _choose(context: Context, setting: str, output: str, *, without: Check) -> _Chosen | Check:
    """What is chosen; or the check of it, which is ``without`` where nothing is."""
    found = access.choice(context, setting, output)
    if isinstance(found, errors.VmnestError):
        return access.of_error(without.id, found, title=without.title)
    return without if found is None else _Chosen(without.id, without.title, found)


# -- image -------------------------------------------------------------------------------------------------------------


def image(context: Context) -> list[Check]:
    """What sandboxes start from."""
    from ...infra import outputs

    text = "no image to start from is configured"
    without = check.Check("aws.image", title="image", verdict=check.FAILED, detail=text, remedy=_NO_IMAGE)
    chosen = _choose(context, "image_arn", outputs.IMAGE, without=without)
    if isinstance(chosen, check.Check):
        return [chosen]
    arn = chosen.value
    place = targets.Target(settings.TARGET_AWS, region="", environ=context.environ)
    misplaced = access.attempt(lambda: place.image(arn))
    if isinstance(misplaced, errors.VmnestError):  # it is one of this machine
        return [access.of_error(chosen.id, misplaced, title=chosen.title, data=chosen.data)]
    elsewhere = list(_is_elsewhere(context, arn))
    return chosen.say(elsewhere) if elsewhere else _look_at_image(context, chosen)


def _look_at_image(context: Context, chosen: _Chosen) -> list[Check]:
    reason, control = access.obstacle(context), access.control(context)
    if reason is not None or isinstance(control, errors.VmnestError):
        return chosen.skip(reason or access.UNREACHABLE)
    asked = access.attempt(lambda: _get_image(context, control, chosen.value))
    if isinstance(asked, errors.VmnestError):
        return chosen.say([_refused(context, asked, chosen.value)])
    chosen.data.update(image_arn=asked.image_arn, state=asked.state, version=asked.latest_active_version)
    findings = access.attempt(lambda: list(_judge_versions(context, control, asked)))
    if isinstance(findings, errors.VmnestError):
        return chosen.say([Finding(permissions.verdict_of(findings), findings.message, remedy=findings.hint)])
    fine = f"version {asked.latest_active_version}"
    return chosen.say(findings, fine=fine if asked.state in _SETTLED_STATES else f"{fine}, {asked.state}")


def _is_elsewhere(context: Context, arn: str) -> Iterator[Finding]:
    """It is in another region than the sandboxes are to be in."""
    from ...aws import region as regions

    where = access.region(context)
    theirs = regions.of_arn(arn)
    if isinstance(where, errors.VmnestError) or theirs in ("", where.name):
        return
    text = f"is in {theirs}, and sandboxes are to be in {where.name} ({access.shown_source(where.source)})"
    yield Finding(check.FAILED, text, remedy=f"Leave the region out, or choose what is in {where.name}.")


def _get_image(context: Context, control: Control, given: str) -> Image:
    deadline = access.deadline(context)
    return control.images.get(control.images.resolve(given, deadline=deadline), deadline=deadline)


def _refused(context: Context, error: errors.VmnestError, value: str) -> Finding:
    """What is not found, or may not be looked at."""
    foreign = _of_other_account(context, value)
    if foreign is not None:
        return foreign
    if isinstance(error, errors.NotFoundError):
        remedy = "Correct it, or make another: vmnest infra up, or vmnest image build."
        return Finding(check.FAILED, f"does not exist: {error.message}", remedy=remedy)
    return Finding(permissions.verdict_of(error), f"cannot be looked at: {error.message}", remedy=error.hint)


def _of_other_account(context: Context, value: str) -> Finding | None:
    """It belongs to another account than the credentials; None if it does not, or nobody knows."""
    owner, caller = arns.parse(value), access.caller(context)
    if owner is None or not owner.account.isdigit() or isinstance(caller, errors.VmnestError):
        return None
    if owner.account == caller.account:
        return None
    text = f"belongs to account {owner.account}, and the credentials to {caller.account}"
    return Finding(check.FAILED, text, remedy="Use credentials of that account (AWS_PROFILE), or choose another.")


def _judge_versions(context: Context, control: Control, found: Image) -> Iterator[Finding]:
    """No version of it may be started from, and why."""
    deadline, newest = access.deadline(context), found.latest_active_version
    if newest is not None and control.images.version(found.image_arn, newest, deadline=deadline).runnable:
        return
    versions = {each.image_version: each for each in control.images.versions(found.image_arn, deadline=deadline)}
    if any(each.runnable for each in versions.values()):
        return
    ordered = sorted(versions.items(), key=lambda item: _number(item[0]))
    shown = ", ".join(f"{number} is {each.state} and {each.status}" for number, each in ordered[-3:])
    text = f"is {found.state}, and no version of it can be started from" + (f": {shown}" if shown else "")
    idle = [number for number, each in ordered if each.state == "SUCCESSFUL"]
    if found.state in ("CREATING", "UPDATING") and not idle:
        yield Finding(check.FAILED, text, remedy="Wait until it is built: vmnest image versions shows how it goes.")
    elif idle:
        yield Finding(
            check.FAILED,
            text,
            remedy="Build a new version (vmnest image build), or let one be started from again:\n"
            f"aws lambda-microvms update-microvm-image-version --image-identifier {found.image_arn} "
            f"--image-version {idle[-1]} --status ACTIVE",
        )
    else:
        remedy = f"See why: vmnest image logs {found.name}. Then build it again: vmnest image build, or infra up."
        yield Finding(check.FAILED, text, remedy=remedy)


def _number(version: str) -> float:
    """``10.0`` comes after ``9.0``."""
    try:
        return float(version)
    except ValueError:
        return 0.0


# -- role --------------------------------------------------------------------------------------------------------------


def role(context: Context) -> list[Check]:
    """What code in sandboxes may do in AWS."""
    from ...infra import outputs

    text = "none: code in sandboxes gets no credentials of AWS, and what it prints is not logged"
    without = check.Check("aws.role", title="execution role", verdict=check.OK, detail=text, data=_NOTHING)
    chosen = _choose(context, "execution_role_arn", outputs.EXECUTION_ROLE, without=without)
    if isinstance(chosen, check.Check):
        return [chosen]
    arn = chosen.value
    parsed = arns.parse(arn)
    if parsed is None or parsed.service != "iam" or not parsed.resource.startswith("role/"):
        remedy = "It looks like arn:aws:iam::123456789012:role/NAME."
        return chosen.say([Finding(check.FAILED, "is not the ARN of a role", remedy=remedy)])
    reason = access.obstacle(context)
    if reason is not None:
        return chosen.skip(reason)
    foreign = _of_other_account(context, arn)
    if foreign is not None:
        return chosen.say([foreign])
    answer = access.role(context, parsed.last)
    if isinstance(answer, errors.NotFoundError):
        remedy = "Correct it, unset it (a role is not needed), or make one: vmnest infra up."
        return chosen.say([Finding(check.FAILED, f"does not exist: {answer.message}", remedy=remedy)])
    if isinstance(answer, errors.VmnestError):
        return chosen.say([Finding(check.UNKNOWN, f"could not be looked at: {answer.message}", remedy=answer.hint)])
    return chosen.say(_judge_role(answer, arn, account=parsed.account), fine=f"trusts {_TRUSTED}")


def _judge_role(answer: Mapping[str, object], arn: str, *, account: str) -> Iterator[Finding]:
    from ...infra.account import roles

    real = str(answer.get("Arn") or arn)
    if real != arn:
        yield Finding(check.FAILED, f"does not exist: that role is {real}", remedy="Correct the path in its ARN.")
        return
    trust = roles.parse_document(answer.get("AssumeRolePolicyDocument"))
    statements = [each for each in _as_list(trust.get("Statement")) if isinstance(each, dict) and _trusts(each)]
    if not statements:
        text = f"does not trust {_TRUSTED}, which has to assume it"
        remedy = f"Add to its trust policy: principal {_TRUSTED}, action sts:AssumeRole."
        yield Finding(check.FAILED, text, remedy=remedy)
    elif all(_wants_other_account(each, account) for each in statements):
        text = f"trusts {_TRUSTED} for another account only (aws:SourceAccount)"
        yield Finding(check.FAILED, text, remedy=f"Let the condition in its trust policy name {account}.")


def _trusts(statement: Mapping[str, object]) -> bool:
    """The statement lets the service assume the role."""
    principal = statement.get("Principal")
    services = _as_list(principal.get("Service") if isinstance(principal, dict) else principal)
    actions = {str(action).lower() for action in _as_list(statement.get("Action"))}
    is_meant = _TRUSTED in services or "*" in services
    return statement.get("Effect") == "Allow" and is_meant and bool(actions & {"sts:assumerole", "sts:*", "*"})


def _wants_other_account(statement: Mapping[str, object], account: str) -> bool:
    conditions = statement.get("Condition")
    equal = conditions.get("StringEquals") if isinstance(conditions, dict) else None
    wanted = _as_list(equal.get("aws:SourceAccount") if isinstance(equal, dict) else None)
    return bool(wanted) and account not in wanted


def _as_list(value: object) -> list[object]:
    """One or several, as policies write them."""
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


# -- connector ---------------------------------------------------------------------------------------------------------


def connector(context: Context) -> list[Check]:
    """The way of sandboxes out to the network, if they are made with ``--egress``. Without it they do not need one."""
    from ...infra import outputs

    text = "none: sandboxes reach the internet as their image allows"
    without = check.Check("aws.connector", title="egress connector", verdict=check.OK, detail=text, data=_NOTHING)
    chosen = _choose(context, "egress_connector", outputs.EGRESS_CONNECTOR, without=without)
    if isinstance(chosen, check.Check):
        return [chosen]
    arn = chosen.value
    if arn.rpartition(":")[2] in names.EGRESS_CONNECTORS:
        return chosen.say([], fine="a connector of AWS's own")
    elsewhere = [Finding(check.WARNING, each.text, remedy=each.remedy) for each in _is_elsewhere(context, arn)]
    if elsewhere:
        return chosen.say(elsewhere)
    reason = access.obstacle(context)
    if reason is not None:
        return chosen.skip(reason)
    asked = access.attempt(lambda: _get_connector(context, arn))
    if isinstance(asked, errors.VmnestError):
        finding = _refused(context, asked, arn)
        verdict = check.WARNING if finding.verdict == check.FAILED else finding.verdict
        return chosen.say([Finding(verdict, finding.text, remedy=finding.remedy)])
    chosen.data["state"] = asked.state
    return chosen.say(_judge_connector(asked), fine=asked.state)


def _get_connector(context: Context, identifier: str) -> Connector:
    from ...control import connectors

    service = access.require(access.service(context, access.CONNECTORS))
    return connectors.Connectors(service).get(identifier, deadline=access.deadline(context))


def _judge_connector(found: Connector) -> Iterator[Finding]:
    if found.state == "ACTIVE":
        return
    reason = f": {found.state_reason}" if found.state_reason else ""
    remedy = "Wait some minutes." if found.state == "PENDING" else "Make another: vmnest infra up, or in AWS's console."
    yield Finding(check.WARNING, f"is {found.state}, and has to be ACTIVE for create --egress{reason}", remedy=remedy)


PROBES = (image, role, connector)
