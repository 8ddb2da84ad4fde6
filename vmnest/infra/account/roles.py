"""IAM roles: look at, make, change, delete."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ... import errors
from ...aws.service import Service
from ...deadline import Clock, Deadline
from . import answers, attempts

__all__ = ["Document", "Role", "Roles", "parse_document"]

Document = Mapping[str, object]


@dataclass(frozen=True)
class Role:
    """A role.

    Attributes:
        name, arn: Which one.
        tags: Of it.
        trust: Who may assume it, as a policy document.
        policies: Its inline policies by name.
        attached: The ARNs of the managed policies that it has.
    """

    name: str
    arn: str
    tags: Mapping[str, str] = field(default_factory=dict)
    trust: Document = field(default_factory=dict)
    policies: Mapping[str, Document] = field(default_factory=dict)
    attached: frozenset[str] = frozenset()


class Roles:
    """Calls to IAM about roles. What can be made twice is repeated through faults that pass."""

    def __init__(self, iam: Service, *, deadline: Deadline, clock: Clock) -> None:
        self._iam = iam
        self._deadline = deadline
        self._clock = clock

    def find(self, name: str) -> Role | None:
        """The role of that name with all that it may, or None."""
        try:
            found = answers.member(self._call("GetRole", RoleName=name), "Role")
            inline = self._inline(name)
            attached = self._listed("ListAttachedRolePolicies", name, "AttachedPolicies")
        except errors.ResourceNotFoundError:
            return None
        return Role(
            name=answers.text(found, "RoleName"),
            arn=answers.text(found, "Arn"),
            tags=answers.tags(found.get("Tags")),
            trust=parse_document(found.get("AssumeRolePolicyDocument")),
            policies=inline,
            attached=frozenset(answers.text(policy, "PolicyArn") for policy in attached),
        )

    def create(self, name: str, *, trust: Document, description: str, tags: Mapping[str, str]) -> Role:
        """Make a role, or return the one of that name: its tags tell whose it is."""

        def make() -> object:
            return self._iam.call(
                "CreateRole",
                {
                    "RoleName": name,
                    "AssumeRolePolicyDocument": json.dumps(trust),
                    "Description": description,
                    "Tags": answers.tag_list(tags),
                },
                deadline=self._deadline,
            )

        return attempts.create(make, lambda: self.find(name), deadline=self._deadline, clock=self._clock)

    def set_trust(self, name: str, trust: Document) -> None:
        """Say who may assume it."""
        self._call("UpdateAssumeRolePolicy", RoleName=name, PolicyDocument=json.dumps(trust))

    def set_policy(self, name: str, policy: str, document: Document) -> None:
        """Set one inline policy; others stay."""
        self._call("PutRolePolicy", RoleName=name, PolicyName=policy, PolicyDocument=json.dumps(document))

    def attach(self, name: str, policy_arn: str) -> None:
        """Give it a managed policy."""
        self._call("AttachRolePolicy", RoleName=name, PolicyArn=policy_arn)

    def detach(self, name: str, policy_arn: str) -> None:
        """Take a managed policy away; one that it has not is no error."""
        self._ignoring_absence(lambda: self._call("DetachRolePolicy", RoleName=name, PolicyArn=policy_arn))

    def tag(self, name: str, tags: Mapping[str, str]) -> None:
        """Set tags; others stay."""
        self._call("TagRole", RoleName=name, Tags=answers.tag_list(tags))

    def delete(self, role: Role) -> None:
        """Take everything away from a role, and delete it. What is gone already is no error."""
        for policy in role.policies:
            self._delete_policy(role.name, policy)
        for policy_arn in role.attached:
            self.detach(role.name, policy_arn)
        self._ignoring_absence(lambda: self._call("DeleteRole", RoleName=role.name))

    def _delete_policy(self, name: str, policy: str) -> None:
        self._ignoring_absence(lambda: self._call("DeleteRolePolicy", RoleName=name, PolicyName=policy))

    def _inline(self, name: str) -> dict[str, Document]:
        names = self._pages("ListRolePolicies", name, "PolicyNames")
        return {
            str(policy): parse_document(
                self._call("GetRolePolicy", RoleName=name, PolicyName=policy).get("PolicyDocument")
            )
            for policy in names
        }

    def _listed(self, operation: str, name: str, items: str) -> list[answers.Answer]:
        return [item for item in self._pages(operation, name, items) if isinstance(item, dict)]

    def _pages(self, operation: str, name: str, items: str) -> list[object]:
        def read() -> list[object]:
            return list(self._iam.pages(operation, {"RoleName": name}, deadline=self._deadline, items=items))

        return attempts.repeat(read, deadline=self._deadline, clock=self._clock)

    def _call(self, operation: str, **params: object) -> answers.Answer:
        def ask() -> answers.Answer:
            return self._iam.call(operation, params, deadline=self._deadline)

        return attempts.repeat(ask, deadline=self._deadline, clock=self._clock)

    @staticmethod
    def _ignoring_absence(call: Callable[[], object]) -> None:
        try:
            call()
        except errors.ResourceNotFoundError:
            return


def parse_document(given: object) -> Document:
    """A policy document as IAM answers it: JSON, percent-encoded. Nothing if it is neither."""
    if isinstance(given, Mapping):
        return given
    try:
        parsed = json.loads(urllib.parse.unquote(str(given)))
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
