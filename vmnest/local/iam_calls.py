"""IAM's actions on the local account's roles."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from urllib.parse import quote

from ..wire import names
from . import callers, faults, iam, iam_policies, query
from .query import Action, Call, Parameter
from .xml_documents import Child, listed

SERVICE = "iam"
NAMESPACE = "https://iam.amazonaws.com/doc/2010-05-08/"
USER = "local"
USER_ID = "AIDAVMNESTLOCAL00000"
USER_ARN = f"arn:aws:iam::{names.LOCAL_ACCOUNT}:user/{USER}"

_WORD = r"[\w+=,.@-]+"
_DOCUMENT = r"[\u0009\u000A\u000D\u0020-\u00FF]+"
_ROLE = Parameter("RoleName", is_required=True, pattern=_WORD, least=1, most=64)
_POLICY = Parameter("PolicyName", is_required=True, pattern=_WORD, least=1, most=128)
_ATTACHED = Parameter("PolicyArn", is_required=True, least=20, most=2048)
_PAGE = (
    Parameter("MaxItems", least=1, most=1000, is_number=True),
    Parameter("Marker", least=1, most=320),
)


def _text_of(document: str) -> Parameter:
    return Parameter(document, is_required=True, pattern=_DOCUMENT, least=1, most=131_072)


_TRUST = _text_of("AssumeRolePolicyDocument")
_PATH = Parameter("Path", pattern=r"(\u002F)|(\u002F[\u0021-\u007E]+\u002F)", least=1, most=512)
_PREFIX = Parameter("PathPrefix", pattern=r"\u002F[\u0021-\u007F]*", least=1, most=512)
_SESSION = Parameter("MaxSessionDuration", least=3600, most=43_200, is_number=True)


class Iam:
    """The actions, over the roles."""

    def __init__(self, roles: iam.Roles) -> None:
        self._roles = roles

    def service(self, known: callers.Callers) -> query.Service:
        """What answers requests."""
        return query.Service(SERVICE, namespace=NAMESPACE, known=known, actions=self._actions())

    def _actions(self) -> Mapping[str, Action]:
        described = Parameter("Description", most=1000)
        return {
            "CreateRole": Action((_ROLE, _TRUST, _PATH, described, _SESSION), self._create),
            "GetRole": Action((_ROLE,), lambda call: [("Role", describe(self._roles.get(call["RoleName"])))]),
            "ListRoles": Action((_PREFIX, *_PAGE), self._list),
            "DeleteRole": Action((_ROLE,), self._delete),
            "UpdateAssumeRolePolicy": Action((_ROLE, _text_of("PolicyDocument")), self._update_trust),
            "TagRole": Action((_ROLE,), self._tag),
            "UntagRole": Action((_ROLE,), self._untag),
            "ListRoleTags": Action((_ROLE, *_PAGE), self._list_tags),
            "PutRolePolicy": Action((_ROLE, _POLICY, _text_of("PolicyDocument")), self._put_policy),
            "GetRolePolicy": Action((_ROLE, _POLICY), self._get_policy),
            "ListRolePolicies": Action((_ROLE, *_PAGE), self._list_policies),
            "DeleteRolePolicy": Action((_ROLE, _POLICY), self._delete_policy),
            "AttachRolePolicy": Action((_ROLE, _ATTACHED), self._attach),
            "DetachRolePolicy": Action((_ROLE, _ATTACHED), self._detach),
            "ListAttachedRolePolicies": Action((_ROLE, _PREFIX, *_PAGE), self._list_attached),
            "GetUser": Action((Parameter("UserName", pattern=_WORD, least=1, most=128),), _get_user),
        }

    # -- roles ---------------------------------------------------------------------------------------------------------

    def _create(self, call: Call) -> list[Child]:
        if call.get("PermissionsBoundary") is not None:
            raise faults.Fault(
                "The local cloud's roles have no permissions boundary.", error_type="InvalidInput", status=400
            )
        iam_policies.check_trust(call["AssumeRolePolicyDocument"], is_known=self._is_known)
        role = self._roles.create(
            call["RoleName"],
            path=call.get("Path") or "/",
            trust=call["AssumeRolePolicyDocument"],
            description=call.get("Description"),
            max_session_seconds=call.number("MaxSessionDuration", 3600),
            tags=_tags(call),
        )
        return [("Role", describe(role))]

    def _list(self, call: Call) -> list[Child]:
        roles = self._roles.all(call.get("PathPrefix") or "/")
        chosen, more = query.page(roles, call, key=lambda role: role.name.lower())
        return [listed("Roles", [describe(role, in_list=True) for role in chosen]), *more]

    def _delete(self, call: Call) -> None:
        self._roles.delete(call["RoleName"])

    def _update_trust(self, call: Call) -> None:
        self._roles.get(call["RoleName"])
        iam_policies.check_trust(call["PolicyDocument"], is_known=self._is_known)
        self._roles.set_trust(call["RoleName"], call["PolicyDocument"])

    def _tag(self, call: Call) -> None:
        self._roles.tag(call["RoleName"], _tags(call))

    def _untag(self, call: Call) -> None:
        self._roles.untag(call["RoleName"], call.texts("TagKeys"))

    def _list_tags(self, call: Call) -> list[Child]:
        tags = sorted(self._roles.get(call["RoleName"]).tags.items())
        chosen, more = query.page(tags, call, key=lambda tag: tag[0])
        return [listed("Tags", [_pair(*tag) for tag in chosen]), *more]

    def _is_known(self, arn: str) -> bool:
        """A role of this account must be there; whatever else is named may be."""
        is_ours = arn.startswith(f"arn:aws:iam::{names.LOCAL_ACCOUNT}:role/")
        return not is_ours or self._roles.exists(arn)

    # -- their policies ------------------------------------------------------------------------------------------------

    def _put_policy(self, call: Call) -> None:
        self._roles.get(call["RoleName"])
        iam_policies.check_identity(call["PolicyDocument"])
        self._roles.put_policy(call["RoleName"], call["PolicyName"], call["PolicyDocument"])

    def _get_policy(self, call: Call) -> list[Child]:
        role, policy = self._roles.get(call["RoleName"]).name, call["PolicyName"]
        document = self._roles.policy(role, policy)
        return [("RoleName", role), ("PolicyName", policy), ("PolicyDocument", _encoded(document))]

    def _list_policies(self, call: Call) -> list[Child]:
        policies = sorted(self._roles.get(call["RoleName"]).inline)
        chosen, more = query.page(policies, call, key=str)
        return [("PolicyNames", [("member", name) for name in chosen]), *more]

    def _delete_policy(self, call: Call) -> None:
        self._roles.delete_policy(call["RoleName"], call["PolicyName"])

    def _attach(self, call: Call) -> None:
        self._roles.attach(call["RoleName"], call["PolicyArn"])

    def _detach(self, call: Call) -> None:
        self._roles.detach(call["RoleName"], call["PolicyArn"])

    def _list_attached(self, call: Call) -> list[Child]:
        prefix = call.get("PathPrefix") or "/"
        found = sorted(self._roles.get(call["RoleName"]).attached)
        arns = [arn for arn in found if _path(arn).startswith(prefix)]
        chosen, more = query.page(arns, call, key=str)
        items: list[list[Child]] = [[("PolicyName", arn.rpartition("/")[2]), ("PolicyArn", arn)] for arn in chosen]
        return [listed("AttachedPolicies", items), *more]


def describe(role: iam.Role, *, in_list: bool = False) -> list[Child]:
    """A role as IAM answers it; in lists without its tags."""
    has_tags = role.tags and not in_list
    return [
        ("Path", role.path),
        ("RoleName", role.name),
        ("RoleId", role.role_id),
        ("Arn", role.arn),
        ("CreateDate", _moment(role.created_at)),
        ("AssumeRolePolicyDocument", _encoded(role.trust)),
        None if role.description is None else ("Description", role.description),
        ("MaxSessionDuration", role.max_session_seconds),
        listed("Tags", [_pair(*tag) for tag in sorted(role.tags.items())]) if has_tags else None,
        None if in_list else ("RoleLastUsed", []),
    ]


def _get_user(call: Call) -> list[Child]:
    name = call.get("UserName") or USER
    if name != USER:
        raise iam.not_found(f"The user with name {name} cannot be found.")
    told: list[Child] = [("Path", "/"), ("UserName", USER), ("UserId", USER_ID), ("Arn", USER_ARN)]
    return [("User", [*told, ("CreateDate", _moment(0))])]


def _tags(call: Call) -> dict[str, str]:
    pairs = call.pairs("Tags", "Key", "Value")
    keys = [key for key, _ in pairs]
    if len({key.lower() for key in keys}) < len(keys):
        raise faults.Fault(
            "Duplicate tag keys found. Please note that Tag keys are case insensitive.",
            error_type="InvalidInput",
            status=400,
        )
    for key, value in pairs:
        if not 1 <= len(key) <= 128 or len(value) > 256:
            raise query.invalid("1 validation error detected: a tag's key has 1 to 128 characters, its value up to 256")
    return dict(pairs)


def _pair(key: str, value: str) -> list[Child]:
    return [("Key", key), ("Value", value)]


def _path(arn: str) -> str:
    """Of arn:aws:iam::aws:policy/service-role/Name: /service-role/."""
    return "/" + "".join(f"{part}/" for part in arn.partition("/")[2].split("/")[:-1])


def _encoded(document: str) -> str:
    return quote(document, safe="")


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
