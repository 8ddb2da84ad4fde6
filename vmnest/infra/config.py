"""``sandbox.yaml``: which files, which documents in them, and what each says. The only module that knows YAML.

YAML is taken apart into a tree with line numbers and no further: nothing in it becomes an object, and what a text or a
number is to be is for ``validation`` to say. So a value is what was written, and every error has a line. Anchors,
aliases and merge keys (``<<``) work; each node is turned once, so that aliases of aliases cost nothing.
"""

from __future__ import annotations

import contextlib
import os
import stat as stats
from collections.abc import Iterator, Mapping, Sequence

import yaml

from .. import errors, settings, systems
from . import places, sections, validation
from .spec import (
    DEFAULT_GUEST_DIR,
    DEFAULT_PROJECT,
    DEFAULT_REGION,
    DEFAULT_STACK,
    BucketConfig,
    EgressConfig,
    ImageConfig,
    RoleConfig,
    Stack,
)

__all__ = [
    "DEFAULT_GUEST_DIR",
    "DEFAULT_PROJECT",
    "DEFAULT_REGION",
    "DEFAULT_STACK",
    "BucketConfig",
    "EgressConfig",
    "ImageConfig",
    "RoleConfig",
    "Stack",
    "load",
]

LARGEST_BYTES = 2**19  # all variables that an image can have find room in it
_DEEPEST = 100  # levels: ours are four

_TAG = "tag:yaml.org,2002:"
_KINDS = {
    **dict.fromkeys((_TAG + "str", _TAG + "value", _TAG + "merge"), sections.TEXT),
    **dict.fromkeys((_TAG + "int", _TAG + "float", _TAG + "timestamp"), sections.NUMBER),
    _TAG + "bool": sections.FLAG,
    _TAG + "null": sections.NOTHING,
}


def load(
    files: Sequence[str] | None = None,
    *,
    stack: str | None = None,
    want_guest: bool = False,
    environ: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> list[Stack]:
    """The stacks that the files name, in their order.

    Args:
        files: Files, and directories (of which the ``*.yaml`` and ``*.yml`` are read, in order of their names). None:
            ``AGENT_SANDBOX_SETUP``, else ``sandbox.yaml``, else ``setup.yaml``.
        stack: The stack to choose: of each project the document that has it, else its only document under that name.
        want_guest: The images are going to be built: see to their folders and settings, too.
        environ: The environment; the process's own by default.
        cwd: Where relative paths begin.

    Raises:
        errors.ConfigurationError: a file cannot be read, says something that cannot be, or two name the same stack.
    """
    environ = settings.environment() if environ is None else environ
    if stack is not None:
        validation.check_stack_name(stack)
    found = [
        each
        for path in places.find(files, environ=environ, cwd=cwd or os.curdir)
        for each in _read(path, cwd=cwd or os.curdir, want_guest=want_guest)
    ]
    chosen = found if stack is None else _choose(found, stack)
    _check_unique(chosen)
    return chosen


def _choose(found: list[Stack], name: str) -> list[Stack]:
    chosen: list[Stack] = []
    for project in dict.fromkeys(each.project for each in found):
        of_project = [each for each in found if each.project == project]
        exact = [each for each in of_project if each.stack == name]
        if not exact and len(of_project) > 1:
            raise errors.ConfigurationError(
                f"no stack of the project {project} is called {name}",
                hint=f"Its stacks are {', '.join(each.stack for each in of_project)}.",
            )
        chosen += exact or [_renamed(of_project[0], name)]
    return chosen


def _renamed(stack: Stack, name: str) -> Stack:
    from dataclasses import replace

    return replace(stack, stack=name)


def _check_unique(stacks: list[Stack]) -> None:
    seen: dict[str, Stack] = {}
    for each in stacks:
        other = seen.setdefault(each.label, each)
        if other is not each:
            raise errors.ConfigurationError(
                f"the stack {each.label} is in {other.source} and again in {each.source}",
                hint="Give them different values of project or stack.",
            )


# -- one file ----------------------------------------------------------------------------------------------------------


def _read(path: str, *, cwd: str, want_guest: bool) -> list[Stack]:
    place = os.path.join(cwd, path)
    text = _decode(_load(place, shown=path), path)
    documents = [
        _Tree(path).turn(node)
        for node in _compose(text, path)
        if not (isinstance(node, yaml.ScalarNode) and node.tag == _TAG + "null")
    ]
    if not documents:
        raise errors.ConfigurationError(f"{path} is empty", hint="vmnest infra init --force writes a new one.")
    folder = os.path.dirname(os.path.realpath(place))
    return [
        validation.build_stack(
            document,
            origin=sections.Origin(path, folder, document=number if len(documents) > 1 else 0, want_guest=want_guest),
        )
        for number, document in enumerate(documents, 1)
    ]


def _load(place: str, *, shown: str) -> bytes:
    try:
        # O_NONBLOCK: a FIFO in this place is to be refused, not waited for.
        fd = os.open(place, os.O_RDONLY | systems.CLOEXEC | systems.NONBLOCK)
    except OSError as error:
        hint = "vmnest infra init writes one." if isinstance(error, FileNotFoundError) else None
        raise errors.ConfigurationError(f"cannot read {shown}: {error.strerror}", hint=hint) from error
    with open(fd, "rb") as file:
        if not stats.S_ISREG(os.fstat(fd).st_mode):
            raise errors.ConfigurationError(f"cannot read {shown}: it is not a regular file")
        data = file.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        raise errors.ConfigurationError(f"{shown} has more than {LARGEST_BYTES} bytes: that is no sandbox.yaml")
    return data


def _decode(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise sections.wrong(path, line, "this is not UTF-8", hint="Save the file as UTF-8.") from error


def _compose(text: str, path: str) -> Iterator[yaml.Node]:
    """The documents of a file, as PyYAML's trees."""
    with _yaml_errors(text, path):
        # No compiled loader: it may be absent, and says other things about errors.
        yield from yaml.compose_all(text, Loader=yaml.SafeLoader)


@contextlib.contextmanager
def _yaml_errors(text: str, path: str) -> Iterator[None]:
    try:
        yield
    except RecursionError as error:
        raise errors.ConfigurationError(f"{path} is nested too deeply") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        hint = "Indent with spaces: YAML allows no tabs there." if "'\\t'" in problem else None
        raise sections.wrong(path, line, f"this is no YAML: {problem}", hint=hint) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise sections.wrong(path, line, f"this is no YAML: a character that it forbids, {error.character:#x}") from (
            error
        )


class _Tree:
    """Turns PyYAML's nodes into ours, each of them once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._done: dict[int, sections.Node] = {}
        self._open: set[int] = set()

    def turn(self, node: yaml.Node) -> sections.Node:
        done = self._done.get(id(node))
        if done is not None:
            return done
        line = node.start_mark.line + 1
        if id(node) in self._open:
            raise sections.wrong(self._path, line, "this holds an alias of itself")
        if len(self._open) > _DEEPEST:
            raise sections.wrong(self._path, line, "this is nested too deeply")
        self._open.add(id(node))
        turned = self._turn(node, line)
        self._open.remove(id(node))
        self._done[id(node)] = turned
        return turned

    def _turn(self, node: yaml.Node, line: int) -> sections.Node:
        if isinstance(node, yaml.ScalarNode):
            return sections.Scalar(node.value, self._kind(node, line), line)
        if node.tag not in (_TAG + "seq", _TAG + "map"):
            raise self._foreign(node, line)
        if isinstance(node, yaml.SequenceNode):
            return sections.Items(tuple(self.turn(each) for each in node.value), line)
        assert isinstance(node, yaml.MappingNode)
        return self._entries(node, line)

    def _kind(self, node: yaml.ScalarNode, line: int) -> str:
        if node.tag not in _KINDS:
            raise self._foreign(node, line)
        return _KINDS[node.tag]

    def _foreign(self, node: yaml.Node, line: int) -> errors.ConfigurationError:
        return sections.wrong(self._path, line, f"the tag {errors.quote(node.tag, limit=60)} means nothing here")

    def _entries(self, node: yaml.MappingNode, line: int) -> sections.Entries:
        members: dict[str, sections.Node] = {}
        lines: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            at = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise sections.wrong(self._path, at, "a key must be a single word")
            if key.tag == _TAG + "merge":
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
                continue
            if key.value in members:
                shown = errors.quote(key.value, limit=60)
                raise sections.wrong(
                    self._path, at, f"the key {shown} is here for the second time; first in line {lines[key.value]}"
                )
            members[key.value] = self.turn(value)
            lines[key.value] = at
        for each in merged:
            self._merge(each, members, lines)
        return sections.Entries(members, lines, line)

    def _merge(self, node: yaml.Node, members: dict[str, sections.Node], lines: dict[str, int]) -> None:
        """What ``<<`` brings in: only keys that are not there."""
        other = self.turn(node)
        if not isinstance(other, sections.Entries):
            raise sections.wrong(self._path, other.line, "what << refers to must be a mapping")
        for key, value in other.members.items():
            if key not in members:
                members[key] = value
                lines[key] = other.lines[key]
