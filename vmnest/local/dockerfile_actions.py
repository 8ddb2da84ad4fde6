"""What a Dockerfile's instructions amount to: actions on files, and how the image's VMs are started.

Nothing is run: variables, directories and the rest are known beforehand, since no command can change them. So a file
with a fault in its last line fails before its first command runs.
"""

from __future__ import annotations

import copy
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from . import dockerfile_stages as stages
from .dockerfile import DockerfileError, Instruction

_ONLY_USER = frozenset({"root", "0", "sandbox", "1000"})
_PORT = re.compile(r"([0-9]{1,5})(-[0-9]{1,5})?(/(tcp|udp))?")
_REMOTE = re.compile(r"(?i)([a-z+]+://|git@)")
_SHELL: tuple[str, ...] = ("/bin/sh", "-c")
MAX_ACTIONS = 1000  # of all stages
_MAX_PATH = 4096


@dataclass(frozen=True)
class Run:
    """Run a command."""

    line: int
    text: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    workdir: str


@dataclass(frozen=True)
class MakeFolder:
    """Make a directory, and those above it, if they are not there."""

    line: int
    text: str
    path: str


@dataclass(frozen=True)
class Copy:
    """Copy files.

    Attributes:
        line: Of the instruction.
        text: The instruction.
        sources: Patterns, relative to the context's root, or to that of ``stage``.
        target: An absolute path.
        is_folder: The target is a directory, whether it is there or not.
        mode: Of the copies, or None for the sources'.
        stage: The stage that they come from, or None for the context.
        unpacks: Archives are unpacked.
    """

    line: int
    text: str
    sources: tuple[str, ...]
    target: str
    is_folder: bool
    mode: int | None = None
    stage: stages.Stage | None = None
    unpacks: bool = False


Action = Run | MakeFolder | Copy


class Script:
    """What a stage amounts to.

    Attributes:
        stage: The stage.
        actions: In order; those of the parent stage come before, and are not among them.
        environment: What ENV said.
        workdir: What WORKDIR said.
        exposed: What EXPOSE said.
        notes: Lines for the build's log.
    """

    def __init__(self, stage: stages.Stage, *, path: str) -> None:
        """``path`` is the PATH that a VM has by itself."""
        self.stage = stage
        self.actions: list[Action] = []
        self.environment: dict[str, str] = {}
        self.workdir = "/"
        self.exposed: list[str] = []
        self.notes: list[str] = []
        self._path = path
        self._arguments: dict[str, str] = {}
        self._shell = _SHELL
        self._entrypoint: tuple[str, ...] = ()
        self._cmd: tuple[str, ...] = ()
        self._has_own_cmd = False

    def extend(self, stage: stages.Stage) -> Script:
        """What a stage begins with that goes on from this one."""
        child = copy.copy(self)
        child.stage = stage
        child.actions, child.notes = [], []
        child.environment, child._arguments = dict(self.environment), dict(self._arguments)
        child.exposed = list(self.exposed)
        child._has_own_cmd = False
        return child

    @property
    def command(self) -> tuple[str, ...]:
        """The main process."""
        return (*self._entrypoint, *self._cmd)

    def take(self, instruction: Instruction, plan: stages.Plan) -> None:
        """Add an instruction.

        Raises:
            DockerfileError: it makes no sense, or cannot be done here.
        """
        _HANDLERS[instruction.name](self, instruction, plan)
        if instruction.name in {"ARG", "ENV"}:
            stages.check_variables(instruction, self._values())

    # -- instructions --------------------------------------------------------------------------------------------------

    def _take_arg(self, instruction: Instruction, plan: stages.Plan) -> None:
        for name, default in stages.parse_arguments(instruction, self._values(), escape=plan.escape):
            value = plan.arguments.get(name) if default is None else default
            if value is not None:
                self._arguments[name] = value

    def _take_env(self, instruction: Instruction, plan: stages.Plan) -> None:
        self.environment.update(self._pairs(instruction, plan))

    def _take_label(self, instruction: Instruction, plan: stages.Plan) -> None:
        self._pairs(instruction, plan)  # nobody can ask for a label; a fault in it is told all the same

    def _take_workdir(self, instruction: Instruction, plan: stages.Plan) -> None:
        self.workdir = posixpath.normpath(posixpath.join(self.workdir, self._expand(instruction, plan)))
        if len(self.workdir) > _MAX_PATH:
            raise DockerfileError(instruction.line, "a directory has a longer name than there can be")
        self.actions.append(MakeFolder(instruction.line, str(instruction), self.workdir))

    def _take_user(self, instruction: Instruction, plan: stages.Plan) -> None:
        user = self._expand(instruction, plan)
        _check_user(instruction, user)
        self.notes.append(f"Line {instruction.line}: USER {user} is the one user that a local sandbox has.")

    def _take_expose(self, instruction: Instruction, plan: stages.Plan) -> None:
        for word in stages.split(instruction, escape=plan.escape):
            for port in self._expand(instruction, plan, word).split():
                if not _PORT.fullmatch(port):
                    raise DockerfileError(instruction.line, f"EXPOSE takes ports, as 8080 or 8080/tcp, not {port!r}")
                self.exposed.append(port if "/" in port else f"{port}/tcp")

    def _take_shell(self, instruction: Instruction, _plan: stages.Plan) -> None:
        assert instruction.listed is not None
        self._shell = instruction.listed

    def _take_cmd(self, instruction: Instruction, _plan: stages.Plan) -> None:
        self._cmd = self._command(instruction)
        self._has_own_cmd = True

    def _take_entrypoint(self, instruction: Instruction, _plan: stages.Plan) -> None:
        self._entrypoint = self._command(instruction)
        if not self._has_own_cmd:  # one of the parent stage's is none of the new entry point's arguments
            self._cmd = ()

    def _take_run(self, instruction: Instruction, _plan: stages.Plan) -> None:
        command = self._command(instruction)
        environment = {**self._arguments, **self.environment}
        self.actions.append(Run(instruction.line, str(instruction), command, environment, self.workdir))

    def _take_copy(self, instruction: Instruction, plan: stages.Plan) -> None:
        words = instruction.text.split() if instruction.listed is None else list(instruction.listed)
        *sources, target = [self._expand(instruction, plan, word) for word in words]
        if not sources:
            raise DockerfileError(instruction.line, f"{instruction.name} needs a source and a target")
        unpacks = instruction.name == "ADD"
        if unpacks and (remote := next(filter(_REMOTE.match, sources), None)):
            raise DockerfileError(instruction.line, f"ADD takes files of the build directory here, not {remote}")
        if "chown" in instruction.flags:
            _check_user(instruction, self._expand(instruction, plan, instruction.flags["chown"]))
        path = posixpath.join(self.workdir, target)
        action = Copy(
            instruction.line,
            str(instruction),
            tuple(sources),
            posixpath.normpath(path),
            is_folder=len(sources) > 1 or path.endswith(("/", "/.", "/..")),
            mode=self._mode(instruction, plan),
            stage=self._source_stage(instruction, plan),
            unpacks=unpacks,
        )
        self.actions.append(action)

    # -- their parts ---------------------------------------------------------------------------------------------------

    def _values(self) -> dict[str, str]:
        return {"PATH": self._path, **self._arguments, **self.environment}

    def _expand(self, instruction: Instruction, plan: stages.Plan, text: str | None = None) -> str:
        chosen = instruction.text if text is None else text
        return stages.expand(instruction, chosen, self._values(), escape=plan.escape)

    def _pairs(self, instruction: Instruction, plan: stages.Plan) -> dict[str, str]:
        """Names and values; with no = in the first word, the old form: one name, and the rest of the line."""
        words = stages.split(instruction, escape=plan.escape)
        if "=" not in words[0]:
            name, _, value = instruction.text.partition(" ")
            if not value:
                raise DockerfileError(instruction.line, f"{instruction.name} {name} needs a value")
            return {self._expand(instruction, plan, name): self._expand(instruction, plan, value.strip())}
        pairs = {}
        for word in words:
            name, equals, value = word.partition("=")
            if not equals or not name:
                raise DockerfileError(instruction.line, f"{instruction.name} takes NAME=value, not {word!r}")
            pairs[self._expand(instruction, plan, name)] = self._expand(instruction, plan, value)
        return pairs

    def _command(self, instruction: Instruction) -> tuple[str, ...]:
        if instruction.listed is not None:
            return instruction.listed
        return (*self._shell, instruction.text)

    def _mode(self, instruction: Instruction, plan: stages.Plan) -> int | None:
        if "chmod" not in instruction.flags:
            return None
        text = self._expand(instruction, plan, instruction.flags["chmod"])
        if not re.fullmatch(r"[0-7]{3,4}", text):
            raise DockerfileError(
                instruction.line, f"{instruction.name} --chmod takes an octal mode here, not {text!r}"
            )
        return int(text, 8)

    def _source_stage(self, instruction: Instruction, plan: stages.Plan) -> stages.Stage | None:
        if "from" not in instruction.flags:
            return None
        name = self._expand(instruction, plan, instruction.flags["from"])
        found = plan.find(name)
        if found is None or found.number >= self.stage.number:
            raise DockerfileError(instruction.line, f"COPY --from takes an earlier stage here, and {name!r} is none")
        return found


def _check_user(instruction: Instruction, user: str) -> None:
    if not set(user.split(":", 1)) <= _ONLY_USER:
        raise DockerfileError(instruction.line, f"a local sandbox has one user, so {user!r} cannot be another")


_HANDLERS: Mapping[str, Callable[[Script, Instruction, stages.Plan], None]] = {
    "ADD": Script._take_copy,
    "ARG": Script._take_arg,
    "CMD": Script._take_cmd,
    "COPY": Script._take_copy,
    "ENTRYPOINT": Script._take_entrypoint,
    "ENV": Script._take_env,
    "EXPOSE": Script._take_expose,
    "LABEL": Script._take_label,
    "RUN": Script._take_run,
    "SHELL": Script._take_shell,
    "USER": Script._take_user,
    "WORKDIR": Script._take_workdir,
}


def evaluate(plan: stages.Plan, *, path: str) -> list[Script]:
    """What the stages amount to that the last one needs, in order; the last one is the image.

    Raises:
        DockerfileError: an instruction makes no sense, or cannot be done here.
    """
    scripts: list[Script] = []
    count = 0
    for stage in plan.stages:
        script = Script(stage, path=path) if stage.parent is None else scripts[stage.parent.number].extend(stage)
        for instruction in stage.instructions:
            script.take(instruction, plan)
            if count + len(script.actions) > MAX_ACTIONS:
                raise DockerfileError(instruction.line, f"more than {MAX_ACTIONS} instructions change files")
        count += len(script.actions)
        scripts.append(script)
    needed = {len(scripts) - 1}
    for script in reversed(scripts):
        if script.stage.number in needed:
            sources = [script.stage.parent, *(action.stage for action in script.actions if isinstance(action, Copy))]
            needed |= {source.number for source in sources if source is not None}
    return [script for script in scripts if script.stage.number in needed]
