"""What infrastructure was made: the file of stacks (``infra-state.json``), with their resources and outputs.

The file is that of 0.1.2 (``{"stacks": {"project/stack": {"resources": …, "outputs": …}}}``), with a schema number from
the first write on. Rules, as for the names of sandboxes (``registry``), each held by a test:

- Reading takes no lock and writes nothing. A writer takes the lock, reads again, changes its own stack only, and puts a
  whole new file in place: writers in other threads and processes lose nothing.
- A file that cannot be understood is never replaced, and the first writer that meets it puts a copy beside it.
- What this version does not know is written back.
- A stack on this machine has the key ``local:project/stack``, so that it is never taken for one of AWS.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .. import deadline as deadlines
from .. import errors, rendezvous, settings, statefile, systems

__all__ = ["Output", "Resource", "StackState", "Store", "key_of", "locate", "open_default"]

SCHEMA = 1
FILE_NAME = "infra-state.json"
_LOCAL_PREFIX = "local:"

Output = str | list[str]


@dataclass(frozen=True)
class Resource:
    """One thing in the account.

    Attributes:
        kind: ``iam-role``, ``s3-bucket``, ``s3-object``, ``microvm-image``, ``network-connector``, ``ec2-sg``.
        id: Its name, ARN or id.
        managed: We made it, so that ``destroy`` removes it.
        attrs: Further facts.
        unknown: Members that this version does not know.
    """

    kind: str
    id: str
    managed: bool = True
    attrs: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class StackState:
    """What is recorded of one stack. A value: the methods make changed copies.

    Attributes:
        project, stack: Its name.
        target: ``aws`` or ``local``.
        region: The AWS region that its resources are in, if that is known (0.1.2 does not say).
        resources: Name → resource.
        outputs: Name → value, of what it offers to whoever starts sandboxes.
        unknown: Members that this version does not know.
    """

    project: str
    stack: str
    target: str = settings.TARGET_AWS
    region: str | None = None
    resources: Mapping[str, Resource] = field(default_factory=dict)
    outputs: Mapping[str, Output] = field(default_factory=dict)
    unknown: Mapping[str, object] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Its key in the file."""
        return key_of(self.project, self.stack, is_local=self.target == settings.TARGET_LOCAL)

    @property
    def label(self) -> str:
        """``project/stack``, as the user names it."""
        return f"{self.project}/{self.stack}"

    def with_resource(self, name: str, resource: Resource) -> StackState:
        """The same with this resource, also in the place of another one of that name."""
        return replace(self, resources={**self.resources, name: resource})

    def without_resource(self, name: str) -> StackState:
        """The same without the resource of that name."""
        return replace(self, resources={each: it for each, it in self.resources.items() if each != name})

    def with_outputs(self, outputs: Mapping[str, Output]) -> StackState:
        """The same with these outputs instead of its own."""
        return replace(self, outputs=dict(outputs))


def key_of(project: str, stack: str, *, is_local: bool) -> str:
    """The key of a stack in the file: ``project/stack``, or ``local:project/stack``."""
    return f"{_LOCAL_PREFIX if is_local else ''}{project}/{stack}"


def locate(environ: Mapping[str, str]) -> tuple[str, str | None]:
    """The file: ``AGENT_SANDBOX_INFRA_STATE``, ``~/.agent_sandbox/infra-state.json``, else in the local cloud's folder.

    The second value is the folder to guard, if it is not the usual place: in /tmp somebody else may have been first.
    """
    given = settings.text("infra_state", environ=environ)
    if given is not None:
        return given, None
    usual = os.path.join(environ.get("HOME", ""), ".agent_sandbox", FILE_NAME)
    folder, is_fallback = rendezvous.state_folder(environ)
    if not is_fallback:
        return os.path.join(folder, FILE_NAME), None
    if os.path.isabs(usual) and os.path.exists(usual):
        return usual, None  # it cannot be written; but what it records is not forgotten silently
    folder = rendezvous.folder(environ)
    return os.path.join(folder, FILE_NAME), folder


def open_default(environ: Mapping[str, str] | None = None) -> Store:
    """The store at its place."""
    path, private_folder = locate(settings.environment() if environ is None else environ)
    return Store(path, private_folder=private_folder)


class Store:
    """The stacks in one file. Safe between threads and between processes; holds nothing open between calls.

    Raises:
        errors.StateFileError: by every method, if the file is damaged, newer than this version, or not accessible.
    """

    def __init__(self, path: str, *, private_folder: str | None = None) -> None:
        self.path = os.path.abspath(path)
        self._private_folder = private_folder

    def load(self, key: str) -> StackState | None:
        """The stack of that key, or None. Writes nothing."""
        return self._read().stacks.get(key)

    def all(self) -> list[StackState]:
        """All stacks, in the order in which they were made. Writes nothing."""
        return list(self._read().stacks.values())

    def save(self, state: StackState) -> None:
        """Record a stack as it is now. All others stay as they are in the file."""
        with self._change() as contents:
            contents.stacks[state.key] = state

    def remove(self, key: str) -> None:
        """Forget a stack, if it is recorded."""
        with self._change() as contents:
            contents.stacks.pop(key, None)

    @contextlib.contextmanager
    def hold(self, key: str, *, deadline: deadlines.Deadline | None = None) -> Iterator[None]:
        """Be the only one who changes this stack's resources, in any process: ``with store.hold(key): …``.

        Args:
            key: The stack.
            deadline: How long to wait for whoever changes them now; None: not at all.

        Raises:
            errors.InfrastructureError: somebody else is at it.
        """
        self._check_place()
        path = f"{os.path.realpath(self.path)}.{_file_name(key)}.lock"
        lock = systems.FileLock(path)
        try:
            systems.make_private_folder(os.path.dirname(path))
            _take(lock, key, deadline)
        except OSError as error:
            lock.release()
            raise statefile.unusable("write", self.path, reason=error.strerror) from error
        except BaseException:
            lock.release()
            raise
        try:
            yield
        finally:
            lock.release()

    def _check_place(self) -> None:
        if self._private_folder:
            rendezvous.prepare_folder(self._private_folder)

    def _read(self) -> _Contents:
        if self._private_folder and os.path.lexists(self._private_folder):
            self._check_place()
        try:
            return _parse(statefile.load(self.path), self.path)
        except statefile.DamagedError as error:
            raise _damaged(self.path, reason=str(error)) from error

    @contextlib.contextmanager
    def _change(self) -> Iterator[_Contents]:
        """The contents under the lock; written back if they were changed, unless an error leaves the block."""
        self._check_place()
        # A link is followed first: the rename must replace what it points to, not the link.
        path = os.path.realpath(self.path)
        with statefile.Lock(path):
            data = statefile.load(path)
            try:
                contents = _parse(data, path)
            except statefile.DamagedError as error:
                copy = statefile.keep_copy(path, data)
                raise _damaged(path, reason=str(error), copy=copy) from error
            before = contents.to_bytes()
            yield contents
            after = contents.to_bytes()
            if after != before:
                statefile.replace(path, after)


def _file_name(key: str) -> str:
    """A key as a part of a file's name; the digest keeps apart what looks the same then."""
    return f"{re.sub('[^A-Za-z0-9-]+', '-', key)[:60]}.{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _take(lock: systems.FileLock, key: str, deadline: deadlines.Deadline | None) -> None:
    for delay in deadlines.backoff(last=0.5):
        if lock.try_take():
            return
        if deadline is None or deadline.expired:
            raise errors.InfrastructureError(
                f"another vmnest changes the infrastructure of {key.removeprefix(_LOCAL_PREFIX)} right now",
                hint="Wait until it is done, and try again. (vmnest infra preview changes nothing.)",
            )
        time.sleep(deadline.clamp(delay))


# -- the file ----------------------------------------------------------------------------------------------------------


@dataclass
class _Contents:
    """A file, understood: its stacks by their keys, and its members that this version does not know."""

    stacks: dict[str, StackState]
    unknown: dict[str, object]

    def to_bytes(self) -> bytes:
        stacks = {key: _stack_to_file(state) for key, state in self.stacks.items()}
        whole = {"schema": SCHEMA, **self.unknown, "stacks": stacks}
        return json.dumps(whole, indent=2).encode("ascii") + b"\n"


def _stack_to_file(state: StackState) -> dict[str, object]:
    members: dict[str, object] = {**state.unknown}
    if state.region is not None:
        members["region"] = state.region
    members["resources"] = {
        name: {**each.unknown, "kind": each.kind, "id": each.id, "managed": each.managed, "attrs": dict(each.attrs)}
        for name, each in state.resources.items()
    }
    members["outputs"] = dict(state.outputs)
    return members


def _parse(data: bytes, path: str) -> _Contents:
    members = statefile.parse(data, path, schema=SCHEMA, setting="AGENT_SANDBOX_INFRA_STATE")
    stacks = _object(members.pop("stacks", None), "stacks")
    return _Contents({key: _stack_from_file(key, value) for key, value in stacks.items()}, members)


def _stack_from_file(key: str, value: object) -> StackState:
    members = _object(value, f"the stack {key}")
    bare = key.removeprefix(_LOCAL_PREFIX)
    project, _, stack = bare.partition("/")
    region = members.pop("region", None)
    if region is not None and not isinstance(region, str):
        raise statefile.DamagedError(f"the region of the stack {key} is no text")
    resources = _object(members.pop("resources", None), f"the resources of the stack {key}")
    outputs = _object(members.pop("outputs", None), f"the outputs of the stack {key}")
    return StackState(
        project=project,
        stack=stack,
        target=settings.TARGET_AWS if bare == key else settings.TARGET_LOCAL,
        region=region,
        resources={name: _resource_from_file(name, each, key) for name, each in resources.items()},
        outputs={name: _output_from_file(name, each, key) for name, each in outputs.items()},
        unknown=members,
    )


def _resource_from_file(name: str, value: object, key: str) -> Resource:
    where = f"the resource {name} of the stack {key}"
    members = _object(value, where)
    kind, identifier, managed = members.pop("kind", ""), members.pop("id", ""), members.pop("managed", True)
    if not (isinstance(kind, str) and isinstance(identifier, str) and isinstance(managed, bool)):
        raise statefile.DamagedError(f"{where} has a wrong kind, id or managed")
    attrs = _object(members.pop("attrs", None), f"attrs of {where}")
    return Resource(kind, identifier, managed=managed, attrs=attrs, unknown=members)


def _output_from_file(name: str, value: object, key: str) -> Output:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        return value
    raise statefile.DamagedError(f"the output {name} of the stack {key} is neither a text nor a list of texts")


def _object(value: object, what: str) -> dict[str, Any]:
    """A copy of it; an absent one is an empty one, as in files of 0.1.2."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise statefile.DamagedError(f"{what}: no object")
    return dict(value)


def _damaged(path: str, *, reason: str, copy: str | None = None) -> errors.StateFileError:
    remedy = "move it away: vmnest infra up then finds by name and tag what it made before."
    return statefile.damaged(path, reason=reason, remedy=remedy, copy=copy)
