"""Carries out what a Dockerfile amounts to: each action in a sandbox, whose writes become the next layer.

A layer's name is the digest of all that it is made from: what lies below it, and the action with the content of its
sources. So what was made once is found again, by whichever build.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import os
import socket
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from .. import errors
from . import build_inside
from .build_cells import Cells, Step
from .build_context import Context, ContextError
from .build_layers import Layers
from .dockerfile import DockerfileError
from .dockerfile_actions import Action, Copy, MakeFolder, Run, Script
from .drivers import interface, mounts, skeleton

MAX_LAYERS = 100
_SCHEMA = 1
_PROGRAM = importlib.resources.files(__package__).joinpath("build_inside.py").read_text(encoding="utf-8")
_PYTHON = (f"{skeleton.PROGRAMS_FOLDER}/python", "-I", "-S", "-c", _PROGRAM)

_ARGUMENT_CHARACTERS = 1 << 16  # the kernel takes somewhat less than twice that in one

Log = Callable[[str], None]


class StepFailedError(Exception):
    """A step did not end well. ``line`` is the Dockerfile's; ``ended`` tells how, if the command ran at all."""

    def __init__(self, line: int, message: str, *, ended: interface.Ended | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.message = message
        self.ended = ended


class Gate(Protocol):
    """The way out of a sandbox; see ``egress.Gate``."""

    def serve(self, listener: socket.socket) -> None: ...

    def close(self) -> None: ...


OpenGate = Callable[[Sequence[str], Log], Gate]


class Stack(NamedTuple):
    """What a stage is so far: the digest of all that made it, and its layers, the topmost first."""

    key: str
    names: tuple[str, ...] = ()


@dataclass
class Site:
    """Where a build takes place.

    Attributes:
        base: Names what lies below all layers.
        cells: Runs the steps.
        layers: Keeps what they make.
        context: What COPY chooses from.
        context_layer: A layer that shows it to sandboxes; see ``lay_context``.
        egress_allow: What RUN may reach.
        open_gate: Opens the way there.
        log: Is told everything.
    """

    base: str
    cells: Cells
    layers: Layers
    context: Context
    context_layer: str
    egress_allow: tuple[str, ...]
    open_gate: OpenGate
    log: Log
    _number: int = field(default=0, init=False)
    _total: int = field(default=0, init=False)

    def carry_out(self, scripts: Sequence[Script]) -> tuple[str, ...]:
        """The layers of the last of these stages, the topmost first.

        Raises:
            StepFailedError: a step did not end well.
            DockerfileError: a source is not there.
            errors.LocalCloudError: a sandbox did not start.
        """
        stacks: dict[int, Stack] = {}
        self._total = sum(len(script.actions) for script in scripts)
        stack = Stack(self.base)
        for script in scripts:
            parent = script.stage.parent
            stack = Stack(self.base) if parent is None else stacks[parent.number]
            if parent is None:
                self.log(f"Line {script.stage.line}: FROM {script.stage.base}: taken as this machine's own programs.")
            for note in script.notes:
                self.log(note)
            for action in script.actions:
                stack = self._take(stack, action, stacks)
            stacks[script.stage.number] = stack
        return stack.names

    def _take(self, stack: Stack, action: Action, stacks: Mapping[int, Stack]) -> Stack:
        self._number += 1
        self.log(f"Step {self._number}/{self._total}, line {action.line}: {action.text}")
        if isinstance(action, Run):
            return self._run(stack, action)
        if isinstance(action, MakeFolder):
            return self._work_inside(stack, action, {"do": "make", "path": action.path})
        return self._copy(stack, action, stacks)

    # -- actions -------------------------------------------------------------------------------------------------------

    def _run(self, stack: Stack, action: Run) -> Stack:
        what = ["run", action.command, sorted(action.environment.items()), action.workdir, self.egress_allow]

        def make(path: str) -> None:
            step = Step(
                action.command,
                self.layers.paths(stack.names),
                environment=action.environment,
                workdir=action.workdir,
                keep_layer_at=path,
                egress=bool(self.egress_allow),
            )
            self._execute(step, action)

        return self._ensure(stack, action, what, make)

    def _copy(self, stack: Stack, action: Copy, stacks: Mapping[int, Stack]) -> Stack:
        if action.stage is None:
            sources, digest = self._choose(action)
            layer = self.context_layer
        else:
            sources, digest, layer = self._gather(action, stacks[action.stage.number])
        request = {
            "do": "copy",
            "sources": sources,
            "target": action.target,
            "is_folder": action.is_folder,
            "mode": action.mode,
            "unpacks": action.unpacks,
        }
        return self._work_inside(stack, action, request, extra_layer=layer, digest=digest)

    def _choose(self, action: Copy) -> tuple[list[tuple[str, str]], str]:
        try:
            sources = self.context.match(action.sources)
        except ContextError as error:
            raise DockerfileError(action.line, str(error)) from error
        _check_target(action, sources, self.context.is_folder)
        return sources, self.context.digest([place for _, place in sources])

    def _gather(self, action: Copy, source: Stack) -> tuple[list[tuple[str, str]], str, str]:
        """Copy the sources out of their stage, to a layer that shows them where the context would be."""
        patterns = [os.path.join("/", pattern) for pattern in action.sources]
        gathered = self._work_inside(Stack(source.key, source.names), action, {"do": "gather", "patterns": patterns})
        layer = self.layers.path(gathered.names[0])
        try:
            found = {
                f"{number}/{name}": is_folder
                for number in range(len(patterns))
                for name, is_folder in list_gathered(layer, str(number))
            }
        except OSError as error:
            raise StepFailedError(action.line, f"what was gathered cannot be read: {error.strerror}") from error
        sources = [(os.path.basename(place), place) for place in found]
        _check_target(action, sources, found.__getitem__)
        return sources, gathered.key, layer

    def _work_inside(
        self,
        stack: Stack,
        action: Action,
        request: Mapping[str, object],
        *,
        extra_layer: str | None = None,
        digest: str = "",
    ) -> Stack:
        """Have our own program do something with files."""

        def make(path: str) -> None:
            layers = self.layers.paths(stack.names)
            command = (*_PYTHON, *_cut(json.dumps(request)))
            self._execute(Step(command, (extra_layer, *layers) if extra_layer else layers, keep_layer_at=path), action)

        return self._ensure(stack, action, ["work", request, digest], make)

    # -- their parts ---------------------------------------------------------------------------------------------------

    def _ensure(self, stack: Stack, action: Action, what: Sequence[object], make: Callable[[str], None]) -> Stack:
        """The stack with the layer of an action on top, which is made unless it is there."""
        text = json.dumps([_SCHEMA, _PROGRAM, stack.key, *what], sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()
        with self.layers.making(name) as path:
            if self.layers.find(name):
                self.log("  (made before)")
            else:
                make(path)
                self.layers.publish(path, name)
        names = stack.names if self.layers.is_empty(name) else (name, *stack.names)
        if len(names) > MAX_LAYERS:
            raise StepFailedError(action.line, f"an image has at most {MAX_LAYERS} layers: join some instructions")
        return Stack(name, names)

    def open_way(self, machine: interface.Machine) -> Gate | None:
        """Let a machine out as far as it may go; None: nowhere. Whoever gets a gate closes it."""
        if not self.egress_allow:
            return None
        way = self.open_gate(self.egress_allow, self.log)
        try:
            way.serve(machine.egress_listener())
        except errors.LocalCloudError:  # its command has ended already
            way.close()
            return None
        return way

    def _execute(self, step: Step, action: Action) -> None:
        gates: list[Gate] = []

        def begin(machine: interface.Machine) -> None:
            if step.egress and (way := self.open_way(machine)) is not None:
                gates.append(way)

        try:
            ended = self.cells.run(step, log=lambda line: self.log(f"  {line}"), on_start=begin)
        except errors.LocalCloudError as error:
            if error.details.get("step") != "exec":
                raise
            raise StepFailedError(action.line, f"{step.command[0]} cannot be run: {error.message}") from error
        finally:
            for gate in gates:
                gate.close()
        if ended != interface.Ended(0, None, interface.EXITED):
            raise StepFailedError(action.line, f"the command {tell_end(ended, step)}", ended=ended)


def _cut(text: str) -> list[str]:
    return [text[at : at + _ARGUMENT_CHARACTERS] for at in range(0, len(text), _ARGUMENT_CHARACTERS)]


def _check_target(action: Copy, sources: Sequence[tuple[str, str]], is_folder: Callable[[str], bool]) -> None:
    """Several files (a pattern may mean more than one) cannot become one."""
    several = len(sources) > 1 and not action.is_folder
    if several and not all(is_folder(place) for _, place in sources):
        raise DockerfileError(action.line, f"several sources need a directory as target: end {action.target} with a /")


def list_gathered(layer: str, number: str) -> list[tuple[str, bool]]:
    """Names of what was gathered, and whether each is a directory.

    What is in a layer was written in a sandbox: no link in it is followed, or it would lead to the host.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(layer, flags)
    try:
        for part in (mounts.ROOT_LAYER, *build_inside.ROOT.strip("/").split("/"), number):
            above, folder = folder, os.open(part, flags, dir_fd=folder)
            os.close(above)
        return [
            (name, stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode))
            for name in sorted(os.listdir(folder))
        ]
    finally:
        os.close(folder)


def tell_end(ended: interface.Ended, step: Step) -> str:
    """How a command ended that should not have, or not so."""
    if ended.reason == interface.MEMORY:
        return f"used up its memory of {step.memory_mib} MiB"
    if ended.reason == interface.DISK:
        return "used up the disk"
    if ended.reason == interface.LIFETIME:
        return "took too long"
    if ended.exit_code is not None:
        return f"ended with exit code {ended.exit_code}"
    return f"was ended by signal {ended.signal}"


def lay_context(folder: str, *, owner: int | None) -> str:
    """Make the folders of a layer that shows the context; the place for the context itself."""
    path = folder
    for part in ("", mounts.ROOT_LAYER, *build_inside.ROOT.strip("/").split("/")):
        path = os.path.join(path, part) if part else path
        os.mkdir(path, 0o700)
        os.chmod(path, 0o755)  # noqa: S103 - directories of a sandbox; the state folder above them is closed
        if owner is not None:
            os.chown(path, owner, owner)
    return path
