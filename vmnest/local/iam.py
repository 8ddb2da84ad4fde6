"""IAM's roles of the local account: what they are, and IAM's rules about them. How they are asked for is ``iam_calls``.

Nothing here is ever denied for want of rights: a policy is kept, and answered, and that is all. An AWS managed policy
is taken as existing.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .. import deadline
from ..wire import names
from . import faults, keeping

FILE = "iam.json"
MAX_ATTACHED = 10
MAX_INLINE_BYTES = 10240
MAX_ROLES = 1000
MAX_TAGS = 50
MANAGED_PREFIX = "arn:aws:iam::aws:policy/"


@dataclass(frozen=True)
class Role:
    """A role.

    Attributes:
        trust: Its trust policy, as it was sent.
        inline: Its policies by name, as they were sent.
        attached: ARNs of managed policies.
    """

    name: str
    path: str
    role_id: str
    created_at: float
    trust: str
    description: str | None = None
    max_session_seconds: int = 3600
    tags: Mapping[str, str] = field(default_factory=dict)
    inline: Mapping[str, str] = field(default_factory=dict)
    attached: Sequence[str] = ()

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:iam::{names.LOCAL_ACCOUNT}:role{self.path}{self.name}"


class Roles:
    """All roles of the local account. Thread-safe."""

    def __init__(self, folder: str, *, clock: deadline.Clock = deadline.SYSTEM_CLOCK) -> None:
        self._path = os.path.join(keeping.open_folder(os.path.join(folder, keeping.FOLDER)), FILE)
        self._clock = clock
        self._lock = threading.Lock()  # guards the roles and their file
        self._roles = keeping.load(self._path, _parse_roles) or {}

    def exists(self, arn: str) -> bool:
        """Whether there is a role of that ARN."""
        with self._lock:
            return any(role.arn == arn for role in self._roles.values())

    def may_do(self, arn: str, action: str) -> bool:
        """Whether a role has a policy that speaks of this action; one of another account is taken as able.

        Of policies this is all that is ever looked at: neither resources nor conditions nor denials.
        """
        if not arn.startswith(f"arn:aws:iam::{names.LOCAL_ACCOUNT}:"):
            return True
        with self._lock:
            role = next((role for role in self._roles.values() if role.arn == arn), None)
        return role is not None and (bool(role.attached) or any(_allows(text, action) for text in role.inline.values()))

    def get(self, name: str) -> Role:
        """The role of that name; names are alike whatever their case, as in IAM.

        Raises:
            faults.Fault: NoSuchEntity.
        """
        with self._lock:
            return self._get(name)

    def all(self, path_prefix: str = "/") -> list[Role]:
        """Roles below that path, by name."""
        with self._lock:
            roles = [role for role in self._roles.values() if role.path.startswith(path_prefix)]
        return sorted(roles, key=lambda role: role.name.lower())

    def create(
        self,
        name: str,
        *,
        path: str,
        trust: str,
        description: str | None,
        max_session_seconds: int,
        tags: Mapping[str, str],
    ) -> Role:
        """Make a role.

        Raises:
            faults.Fault: there is one of that name, or there are too many.
        """
        role = Role(
            name,
            path=path,
            role_id="AROA" + os.urandom(10).hex().upper()[:17],
            created_at=self._clock.time(),
            trust=trust,
            description=description,
            max_session_seconds=max_session_seconds,
            tags=tags,
        )
        with self._lock:
            if name.lower() in self._roles:
                raise conflict("EntityAlreadyExists", f"Role with name {name} already exists.")
            if len(self._roles) >= MAX_ROLES:
                raise limit_exceeded(f"Cannot exceed quota for RolesPerAccount: {MAX_ROLES}")
            self._save({**self._roles, name.lower(): role})
        return role

    def delete(self, name: str) -> None:
        """Remove a role.

        Raises:
            faults.Fault: it is not there, or still has policies.
        """
        with self._lock:
            role = self._get(name)
            if role.attached:
                raise conflict("DeleteConflict", "Cannot delete entity, must detach all policies first.")
            if role.inline:
                raise conflict("DeleteConflict", "Cannot delete entity, must delete policies first.")
            self._save({key: kept for key, kept in self._roles.items() if kept is not role})

    def set_trust(self, name: str, document: str) -> None:
        """Replace a role's trust policy. Raises as ``get``."""
        with self._lock:
            self._put(dataclasses.replace(self._get(name), trust=document))

    def tag(self, name: str, tags: Mapping[str, str]) -> None:
        """Set tags; others stay. Raises as ``get``, and if they are too many."""
        with self._lock:
            role = self._get(name)
            merged = {**role.tags, **tags}
            if len(merged) > MAX_TAGS:
                raise limit_exceeded(f"Cannot exceed quota for TagsPerRole: {MAX_TAGS}")
            self._put(dataclasses.replace(role, tags=merged))

    def untag(self, name: str, keys: Sequence[str]) -> None:
        """Remove tags; those that are not there are no error. Raises as ``get``."""
        with self._lock:
            role = self._get(name)
            self._put(dataclasses.replace(role, tags={key: role.tags[key] for key in role.tags if key not in keys}))

    # -- policies ------------------------------------------------------------------------------------------------------

    def put_policy(self, name: str, policy: str, document: str) -> None:
        """Set an inline policy. Raises as ``get``, and if all together are too large."""
        with self._lock:
            role = self._get(name)
            inline = {**role.inline, policy: document}
            # As IAM counts: white space is free.
            if sum(len("".join(text.split())) for text in inline.values()) > MAX_INLINE_BYTES:
                raise limit_exceeded(f"Maximum policy size of {MAX_INLINE_BYTES} bytes exceeded for role {name}")
            self._put(dataclasses.replace(role, inline=inline))

    def policy(self, name: str, policy: str) -> str:
        """An inline policy.

        Raises:
            faults.Fault: there is no such role, or no such policy.
        """
        found = self.get(name).inline.get(policy)
        if found is None:
            raise no_such_policy(policy)
        return found

    def delete_policy(self, name: str, policy: str) -> None:
        """Remove an inline policy. Raises as ``policy``."""
        with self._lock:
            role = self._get(name)
            if policy not in role.inline:
                raise no_such_policy(policy)
            self._put(dataclasses.replace(role, inline={key: role.inline[key] for key in role.inline if key != policy}))

    def attach(self, name: str, arn: str) -> None:
        """Attach a managed policy; one that is attached stays so. Raises as ``get``, and if there are too many."""
        with self._lock:
            role = self._get(name)
            if not arn.startswith(MANAGED_PREFIX):
                raise not_found(f"Policy {arn} does not exist or is not attachable.")
            if arn in role.attached:
                return
            if len(role.attached) >= MAX_ATTACHED:
                raise limit_exceeded(f"Cannot exceed quota for PoliciesPerRole: {MAX_ATTACHED}")
            self._put(dataclasses.replace(role, attached=(*role.attached, arn)))

    def detach(self, name: str, arn: str) -> None:
        """Detach a managed policy.

        Raises:
            faults.Fault: there is no such role, or it does not have that policy.
        """
        with self._lock:
            role = self._get(name)
            if arn not in role.attached:
                raise not_found(f"Policy {arn} was not found.")
            self._put(dataclasses.replace(role, attached=tuple(each for each in role.attached if each != arn)))

    # -- their parts ---------------------------------------------------------------------------------------------------

    def _get(self, name: str) -> Role:
        role = self._roles.get(name.lower())
        if role is None:
            raise not_found(f"The role with name {name} cannot be found.")
        return role

    def _put(self, role: Role) -> None:
        self._save({**self._roles, role.name.lower(): role})

    def _save(self, roles: dict[str, Role]) -> None:
        keeping.save(self._path, {"schema": 1, "roles": [dataclasses.asdict(role) for role in roles.values()]})
        self._roles = roles


def _allows(document: str, action: str) -> bool:
    """Whether a policy speaks of an action; the document was checked when it was put."""
    told = json.loads(document)["Statement"]
    for statement in told if isinstance(told, list) else [told]:
        actions = statement.get("Action", [])
        patterns = [actions] if isinstance(actions, str) else actions
        if statement["Effect"] == "Allow" and any(
            fnmatch.fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns
        ):
            return True
    return False


def _parse_roles(value: object) -> dict[str, Role]:
    record = keeping.mapping(value)
    roles = record.get("roles")
    if record.get("schema") != 1 or not isinstance(roles, list):
        raise ValueError("it has another schema")
    found = [_parse_role(keeping.mapping(each)) for each in roles]
    return {role.name.lower(): role for role in found}


def _parse_role(record: dict[str, object]) -> Role:
    attached, description = record.get("attached"), record.get("description")
    if not isinstance(attached, list):
        raise ValueError("its member attached is no list")
    return Role(
        name=keeping.text(record, "name"),
        path=keeping.text(record, "path"),
        role_id=keeping.text(record, "role_id"),
        created_at=keeping.number(record, "created_at"),
        trust=keeping.text(record, "trust"),
        description=description if isinstance(description, str) else None,
        max_session_seconds=int(keeping.number(record, "max_session_seconds")),
        tags=keeping.texts(record, "tags"),
        inline=keeping.texts(record, "inline"),
        attached=tuple(str(arn) for arn in attached),
    )


# -- IAM's faults ------------------------------------------------------------------------------------------------------


def not_found(message: str) -> faults.Fault:
    """What is named does not exist (404)."""
    return faults.Fault(message, error_type="NoSuchEntity", status=404)


def no_such_policy(policy: str) -> faults.Fault:
    """The role has no inline policy of that name."""
    return not_found(f"The role policy with name {policy} cannot be found.")


def conflict(error_type: str, message: str) -> faults.Fault:
    """What is there does not allow it (409)."""
    return faults.Fault(message, error_type=error_type, status=409)


def limit_exceeded(message: str) -> faults.Fault:
    """There would be too many, or too much (409)."""
    return conflict("LimitExceeded", message)
