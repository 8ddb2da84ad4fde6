"""What IAM demands of a policy document before it takes it. Pure.

Not all of IAM's grammar: what is checked is what people get wrong, with IAM's words for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from . import faults

MAX_TRUST_BYTES = 2048
_VERSIONS = ("2008-10-17", "2012-10-17")
_ACTION = re.compile(r"\*|[A-Za-z0-9-]+:[A-Za-z0-9*?]+")
_SERVICE = re.compile(r"[a-z0-9.-]+\.(amazonaws\.com(\.cn)?|amazon\.com|aws\.internal)")
_ACCOUNT = re.compile(r"[0-9]{12}|arn:aws[a-z-]*:(iam|sts)::[0-9]{12}:.+|\*")

IsKnown = Callable[[str], bool]


def check_trust(document: str, *, is_known: IsKnown) -> None:
    """A role's trust policy.

    Args:
        document: Its text.
        is_known: Whether there is a principal of that ARN.

    Raises:
        faults.Fault: MalformedPolicyDocument, or LimitExceeded.
    """
    if len("".join(document.split())) > MAX_TRUST_BYTES:
        raise faults.Fault(
            f"Cannot exceed quota for ACLSizePerRole: {MAX_TRUST_BYTES}", error_type="LimitExceeded", status=409
        )
    for statement in _statements(document, broken="This policy contains invalid Json"):
        for field in ("Resource", "NotResource"):
            if field in statement:
                raise malformed(f"Has prohibited field {field}")
        if "Principal" not in statement and "NotPrincipal" not in statement:
            raise malformed("Missing required field Principal")
        actions = _texts(statement.get("Action"))
        if not actions or not all(action.lower().startswith("sts:") for action in actions):
            raise malformed("AssumeRole policy may only specify STS AssumeRole actions.")
        _check_principal(statement.get("Principal"), is_known=is_known)


def check_identity(document: str) -> None:
    """A policy of a role.

    Raises:
        faults.Fault: MalformedPolicyDocument.
    """
    for statement in _statements(document, broken="Syntax errors in policy."):
        if "Principal" in statement or "NotPrincipal" in statement:
            raise malformed("Policy document should not specify a principal.")
        actions = _texts(statement.get("Action", statement.get("NotAction")))
        if not actions:
            raise malformed("Policy statement must contain actions.")
        if not all(_ACTION.fullmatch(action) for action in actions):
            raise malformed("Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc.")
        resources = _texts(statement.get("Resource", statement.get("NotResource")))
        if not resources:
            raise malformed("Policy statement must contain resources.")
        for resource in resources:
            if resource != "*" and not resource.startswith("arn:"):
                raise malformed(f'Resource {resource} must be in ARN format or "*".')


def _statements(document: str, *, broken: str) -> list[Mapping[str, object]]:
    try:
        policy = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise malformed(broken) from error
    if not isinstance(policy, dict):
        raise malformed(broken)
    if "Version" in policy and policy["Version"] not in _VERSIONS:
        raise malformed("The policy must contain a valid version string.")
    told = policy.get("Statement")
    listed = told if isinstance(told, list) else [told]
    statements: list[Mapping[str, object]] = [each for each in listed if isinstance(each, dict)]
    if not statements or len(statements) < len(listed):
        raise malformed("Missing required field Statement" if not told else broken)
    names = [statement["Sid"] for statement in statements if "Sid" in statement]
    if len({str(name) for name in names}) < len(names):
        raise malformed("Statement IDs (SID) in a single policy must be unique.")
    for statement in statements:
        if statement.get("Effect") not in ("Allow", "Deny"):
            raise malformed("Missing required field Effect" if "Effect" not in statement else broken)
    return statements


def _check_principal(principal: object, *, is_known: IsKnown) -> None:
    if principal == "*" or principal is None:
        return
    if not isinstance(principal, dict) or not principal:
        raise malformed("Invalid principal in policy.")
    for kind, told in principal.items():
        for name in _texts(told) or [""]:
            if not _is_principal(kind, name, is_known=is_known):
                raise malformed(f'Invalid principal in policy: "{kind.upper()}":"{name}"')


def _is_principal(kind: str, name: str, *, is_known: IsKnown) -> bool:
    if kind == "Service":
        return _SERVICE.fullmatch(name) is not None
    if kind == "AWS":
        return _ACCOUNT.fullmatch(name) is not None and is_known(name)
    return kind in {"Federated", "CanonicalUser"} and bool(name)


def _texts(value: object) -> list[str]:
    """A text, or a list of them; nothing if there is anything else."""
    values = value if isinstance(value, list) else [value]
    return [str(each) for each in values] if all(isinstance(each, str) and each for each in values) else []


def malformed(message: str) -> faults.Fault:
    """It is no policy (400)."""
    return faults.Fault(message, error_type="MalformedPolicyDocument", status=400)
