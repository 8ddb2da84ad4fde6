"""What the credentials may do, as far as it can be found out for nothing and without changing anything.

What only lists is simply done. Of what starts or ends something, IAM's simulator is asked, where the caller may ask it:
it knows the identity's policies, and not those of an organization, so that AWS itself has the last word.
"""

from __future__ import annotations

from ... import errors
from ...wire import names
from . import access, arns, check, places
from .check import Check
from .places import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .context import Context

__all__ = ["PROBES", "verdict_of"]

_IMAGE_ACTIONS = (
    # action, whether no sandbox can be made without it
    ("lambda:RunMicrovm", True),
    ("lambda:GetMicrovm", True),
    ("lambda:CreateMicrovmAuthToken", True),
    ("lambda:SuspendMicrovm", False),
    ("lambda:ResumeMicrovm", False),
    ("lambda:TerminateMicrovm", False),
)
_PASS_CONNECTOR = "lambda:PassNetworkConnector"  # noqa: S105 - an action; needed for the default connectors, too
_PASS_ROLE = "iam:PassRole"  # noqa: S105 - an action
_ALLOWED = "allowed"
_SIMULATE = "iam:SimulatePrincipalPolicy"
_LAST_WORD = "The first vmnest create tells."


def verdict_of(error: errors.VmnestError) -> str:
    """How bad it is that a call which only looks failed so."""
    if isinstance(error, errors.AccessDeniedError):
        return check.WARNING
    # Whatever fails like this fails for every other call, too.
    broken = (errors.SignatureRefusedError, errors.AnswerInvalidError, errors.CredentialsError, errors.UsageError)
    return check.FAILED if isinstance(error, broken) else check.UNKNOWN


# -- what can be done --------------------------------------------------------------------------------------------------


def listing(context: Context) -> list[Check]:
    """Lists of MicroVMs and images."""
    name, title = "aws.permission.listing", "may list"
    reason = access.obstacle(context)
    if reason is not None and access.is_told_elsewhere(context):
        return [access.skipped(name, title=title, reason=reason)]
    first = access.first_call(context)
    findings = []
    data: dict[str, object] = {"lambda:ListMicrovms": not isinstance(first, errors.VmnestError)}
    if isinstance(first, errors.VmnestError):
        findings.append(_finding(first, loss="vmnest ls --all and prune need it"))
    if reason is None:
        images = access.attempt(
            lambda: access.require(access.service(context, access.MICROVMS)).call(
                "ListMicrovmImages", {"maxResults": 1}, deadline=access.deadline(context)
            )
        )
        data["lambda:ListMicrovmImages"] = not isinstance(images, errors.VmnestError)
        if isinstance(images, errors.VmnestError):
            findings.append(_finding(images, loss="without it images have no names, only ARNs"))
    return [places.combine(name, title=title, fine="MicroVMs and images", findings=findings, data=data)]


def logs(context: Context) -> list[Check]:
    """Log groups."""
    name, title = "aws.permission.logs", "may read logs"
    needed = access.obstacle(context)
    if needed is not None:
        return [access.skipped(name, title=title, reason=needed)]
    found = access.attempt(
        lambda: access.require(access.service(context, "logs")).call(
            "DescribeLogGroups",
            {"logGroupNamePrefix": "/aws/lambda-microvms/", "limit": 1},
            deadline=access.deadline(context),
        )
    )
    findings = [_finding(found, loss="vmnest logs needs it")] if isinstance(found, errors.VmnestError) else []
    data = {"logs:DescribeLogGroups": not findings}
    return [places.combine(name, title=title, fine="CloudWatch's log groups", findings=findings, data=data)]


def _finding(error: errors.VmnestError, *, loss: str) -> Finding:
    verdict = verdict_of(error)
    text = f"{error.message}; {loss}" if verdict == check.WARNING else error.message
    return Finding(verdict, text, remedy=error.hint)


# -- what IAM's simulator says -----------------------------------------------------------------------------------------


def launching(context: Context) -> list[Check]:
    """What starting, using and ending a sandbox takes."""
    name, title = "aws.permission.launching", "may run sandboxes"
    needed = access.obstacle(context)
    if needed is not None:
        return [access.skipped(name, title=title, reason=needed)]
    source = _policy_source(context)
    if isinstance(source, str) and source.endswith(":root"):
        return [check.Check(name, title=title, verdict=check.OK, detail="the account's root user may do everything")]
    if isinstance(source, errors.VmnestError):
        is_denied = isinstance(source, errors.AccessDeniedError)  # all else is a matter of another check
        rights = f"sts:GetCallerIdentity and {_SIMULATE}" if is_denied else None
        return [_not_probed(name, title, source.message, rights=rights)]
    answers = access.attempt(lambda: list(_simulate(context, source)))
    if isinstance(answers, errors.VmnestError):
        is_denied = isinstance(answers, errors.AccessDeniedError)
        rights, advice = (_SIMULATE, None) if is_denied else (None, answers.hint)
        return [_not_probed(name, title, answers.message, rights=rights, advice=advice)]
    findings = [finding for answer in answers for finding in _judge(answer, source)]
    data: dict[str, object] = {}
    for answer in answers:
        if data.get(answer.action) in (None, _ALLOWED):
            data[answer.action] = answer.decision
    fine = "IAM's simulator allows all that they need"
    return [places.combine(name, title=title, fine=fine, findings=findings, data=data)]


def _not_probed(name: str, title: str, reason: str, *, rights: str | None, advice: str | None = None) -> Check:
    more = f"To know before, allow {rights}." if rights else None
    remedy = " ".join(filter(None, (advice, _LAST_WORD, more)))
    return check.Check(name, title=title, verdict=check.UNKNOWN, detail=f"not probed: {reason}", remedy=remedy)


def _policy_source(context: Context) -> str | errors.VmnestError:
    """The ARN of the user or role whose policies count, as the simulator wants it."""
    caller = access.caller(context)
    if isinstance(caller, errors.VmnestError):
        return caller
    parsed = arns.parse(caller.arn)
    if parsed is not None and parsed.service == "iam":
        return caller.arn
    kind, _, rest = ("" if parsed is None else parsed.resource).partition("/")
    if parsed is None or kind != "assumed-role":
        return errors.UnsupportedError(f"{caller.arn} is neither a user nor a role")
    # What STS says of a session lacks the role's path.
    role = access.role(context, rest.partition("/")[0])
    if isinstance(role, errors.VmnestError):
        return f"arn:{parsed.partition}:iam::{parsed.account}:role/{rest.partition('/')[0]}"
    return str(role.get("Arn"))


class _Answer:
    """What the simulator says of one action on one resource. ``missing``: what it would have to know to be sure."""

    __slots__ = ("action", "decision", "is_vital", "missing", "resource")

    def __init__(
        self, action: str, resource: str, *, decision: str, missing: Sequence[str] = (), is_vital: bool = True
    ) -> None:
        self.action = action
        self.resource = resource
        self.decision = decision
        self.missing = missing
        self.is_vital = is_vital


def _simulate(context: Context, source: str) -> Iterator[_Answer]:
    from ...infra import outputs

    region = access.require(access.region(context)).name
    image = access.choice(context, "image_arn", outputs.IMAGE)
    image_arn = image.value if isinstance(image, outputs.Found) and image.value.startswith("arn:") else "*"
    vital = dict(_IMAGE_ACTIONS)
    yield from _ask(context, source, list(vital), [image_arn], vital=vital)
    connectors = [
        names.managed_connector_arn(region=region, name=name) for name in (names.INTERNET_EGRESS, names.HTTP_INGRESS)
    ]
    yield from _ask(context, source, [_PASS_CONNECTOR], connectors)
    role = access.choice(context, "execution_role_arn", outputs.EXECUTION_ROLE)
    if isinstance(role, outputs.Found):
        yield from _ask(context, source, [_PASS_ROLE], [role.value])


def _ask(
    context: Context,
    source: str,
    actions: Sequence[str],
    resources: Sequence[str],
    *,
    vital: Mapping[str, bool] | None = None,
) -> Iterator[_Answer]:
    params = {"PolicySourceArn": source, "ActionNames": list(actions), "ResourceArns": list(resources)}
    iam = access.require(access.service(context, "iam"))
    found = iam.call("SimulatePrincipalPolicy", params, deadline=access.deadline(context)).get("EvaluationResults")
    for result in found if isinstance(found, list) else ():
        action = str(result.get("EvalActionName"))
        specific = result.get("ResourceSpecificResults") or [
            {"EvalResourceName": result.get("EvalResourceName"), "EvalResourceDecision": result.get("EvalDecision")}
        ]
        for each in specific:
            yield _Answer(
                action,
                str(each.get("EvalResourceName") or "*"),
                decision=str(each.get("EvalResourceDecision")),
                missing=[
                    str(key) for key in each.get("MissingContextValues") or result.get("MissingContextValues") or ()
                ],
                is_vital=True if vital is None else vital.get(action, True),
            )


def _judge(answer: _Answer, source: str) -> Iterator[Finding]:
    if answer.decision == _ALLOWED:
        return
    text = f"{source} may not do {answer.action} on {answer.resource}"
    remedy = f"Allow {answer.action} on {answer.resource} in a policy of that identity (the prefix is as written here)."
    if answer.decision != "explicitDeny" and answer.resource == "*":
        text = f"whether {source} may do {answer.action} depends on the image, and none is chosen"
        yield Finding(check.UNKNOWN, text)
    elif answer.decision != "explicitDeny" and answer.missing:
        conditions = ", ".join(answer.missing)
        text = f"whether {source} may do {answer.action} on {answer.resource} depends on conditions: {conditions}"
        if answer.action == _PASS_ROLE:
            remedy = "Leave conditions like iam:PassedToService out: this service is known not to meet them."
        else:
            remedy = _LAST_WORD
        yield Finding(check.WARNING, text, remedy=remedy)
    else:
        yield Finding(check.FAILED if answer.is_vital else check.WARNING, text, remedy=remedy)


PROBES = (listing, logs, launching)
