"""The stages of a Dockerfile, and its global arguments: what is to be built, and on what. Nothing is run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from . import dockerfile_words
from .dockerfile import Dockerfile, DockerfileError, Instruction

# What one file may have: far more than people write, and no more than memory can bear.
MAX_STAGES = 200
MAX_VARIABLES = 1000
MAX_VARIABLE_BYTES = 1 << 20
_PLATFORMS = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Stage:
    """What stands between one FROM and the next.

    Attributes:
        number: Its place, from 0.
        line: Of its FROM.
        base: What FROM names.
        parent: The earlier stage that it goes on from, or None for an image.
        name: What it is called, or "".
        instructions: Those behind FROM.
    """

    number: int
    line: int
    base: str
    parent: Stage | None
    name: str
    instructions: list[Instruction] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes:
        stages: All stages.
        arguments: The global arguments, those of the platform included: a stage has them where its ARG names them.
        escape: The file's escape character.
    """

    stages: tuple[Stage, ...]
    arguments: Mapping[str, str]
    escape: str

    def find(self, text: str) -> Stage | None:
        """The stage of that name or number, or None."""
        for stage in reversed(self.stages):
            if text.lower() == stage.name.lower() != "" or text == str(stage.number):
                return stage
        return None


def plan(file: Dockerfile, *, machine: str | None = None) -> Plan:
    """The stages of a file.

    Raises:
        DockerfileError: the file does not begin with FROM, or a name in a FROM makes no sense.
    """
    arguments = _platform(machine or os.uname().machine)
    stages: list[Stage] = []
    for instruction in file.instructions:
        if instruction.name == "FROM":
            if len(stages) == MAX_STAGES:
                raise DockerfileError(instruction.line, f"there are more than {MAX_STAGES} stages")
            stages.append(_open_stage(instruction, stages, arguments, escape=file.escape))
        elif stages:
            stages[-1].instructions.append(instruction)
        elif instruction.name == "ARG":
            arguments.update(_globals(instruction, arguments, escape=file.escape))
            check_variables(instruction, arguments)
        else:
            raise DockerfileError(instruction.line, f"{instruction.name} stands before the first FROM")
    if not stages:
        raise DockerfileError(file.instructions[0].line, "there is no FROM in the file")
    return Plan(tuple(stages), arguments, file.escape)


def _platform(machine: str) -> dict[str, str]:
    architecture = _PLATFORMS.get(machine, machine)
    values = {"PLATFORM": f"linux/{architecture}", "OS": "linux", "ARCH": architecture, "VARIANT": ""}
    return {f"{prefix}{name}": value for prefix in ("BUILD", "TARGET") for name, value in values.items()}


def _globals(instruction: Instruction, known: Mapping[str, str], *, escape: str) -> dict[str, str]:
    return {name: value for name, value in parse_arguments(instruction, known, escape=escape) if value is not None}


def _open_stage(
    instruction: Instruction, earlier: Sequence[Stage], arguments: Mapping[str, str], *, escape: str
) -> Stage:
    words = [expand(instruction, word, arguments, escape=escape) for word in split(instruction, escape=escape)]
    if len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != "AS"):
        raise DockerfileError(instruction.line, "FROM takes an image, and then AS and a name if there is one")
    if not words[0]:
        raise DockerfileError(instruction.line, f"FROM names nothing: {instruction.text} is empty")
    parent = next((stage for stage in reversed(earlier) if stage.name and stage.name.lower() == words[0].lower()), None)
    name = words[2] if len(words) == 3 else ""
    if name and any(stage.name.lower() == name.lower() for stage in earlier):
        raise DockerfileError(instruction.line, f"there is a stage called {name} already")
    return Stage(len(earlier), instruction.line, words[0], parent, name)


def parse_arguments(
    instruction: Instruction, values: Mapping[str, str], *, escape: str
) -> Iterator[tuple[str, str | None]]:
    """Names and defaults that an ARG gives; None where it gives no default. Each sees those before it.

    Raises:
        DockerfileError: a word makes no sense.
    """
    known = dict(values)
    for word in split(instruction, escape=escape):
        name, equals, value = word.partition("=")
        name = expand(instruction, name, known, escape=escape)
        if not name:
            raise DockerfileError(instruction.line, f"ARG needs a name before the = in {word!r}")
        default = expand(instruction, value, known, escape=escape) if equals else None
        if default is not None:
            known[name] = default
            check_variables(instruction, known)
        yield name, default


def check_variables(instruction: Instruction, values: Mapping[str, str]) -> None:
    """Whether there are no more variables than a file may have.

    Raises:
        DockerfileError: there are.
    """
    size = sum(len(name) + len(value) for name, value in values.items())
    if len(values) > MAX_VARIABLES or size > MAX_VARIABLE_BYTES:
        raise DockerfileError(
            instruction.line,
            f"there are more than {MAX_VARIABLES} variables, or {MAX_VARIABLE_BYTES} characters in them",
        )


def split(instruction: Instruction, *, escape: str) -> list[str]:
    """The words of an instruction's text; see ``dockerfile_words.split``.

    Raises:
        DockerfileError: a quote is not closed.
    """
    try:
        return dockerfile_words.split(instruction.text, escape=escape)
    except dockerfile_words.WordError as error:
        raise DockerfileError(instruction.line, str(error)) from error


def expand(instruction: Instruction, text: str, values: Mapping[str, str], *, escape: str) -> str:
    """The text with its variables replaced; see ``dockerfile_words.expand``.

    Raises:
        DockerfileError: it makes no sense.
    """
    try:
        return dockerfile_words.expand(text, values, escape=escape)
    except dockerfile_words.WordError as error:
        raise DockerfileError(instruction.line, str(error)) from error
