"""A Dockerfile's text, taken apart: lines into instructions, with their numbers, flags and forms. Nothing is run.

Order of the work: parser directives (``# escape=`) and the like, in the first lines only), comments, continued lines,
the instruction's name, its flags (``--from=…``), then either a JSON list or text. What the text of an instruction
means, and its variables, is for whoever carries it out: see ``dockerfile_words``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from . import dockerfile_words

MAX_BYTES = 1 << 20

# instruction → the flags that it can have here
_FLAGS: Mapping[str, tuple[str, ...]] = {
    "ADD": ("chmod", "chown", "link"),
    "ARG": (),
    "CMD": (),
    "COPY": ("chmod", "chown", "from", "link"),
    "ENTRYPOINT": (),
    "ENV": (),
    "EXPOSE": (),
    "FROM": ("platform",),
    "LABEL": (),
    "RUN": (),
    "SHELL": (),
    "USER": (),
    "WORKDIR": (),
}
_FLAGGED = frozenset({"ADD", "COPY", "FROM", "RUN"})
_SWITCHES = frozenset({"link"})  # flags that need no value
_LISTED = frozenset({"ADD", "CMD", "COPY", "ENTRYPOINT", "RUN", "SHELL"})
_WITH_DOCUMENTS = frozenset({"ADD", "COPY", "RUN"})
_MAY_BE_EMPTY = frozenset({"CMD", "ENTRYPOINT"})
_DIRECTIVE = re.compile(r"#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=\s*(\S.*)")  # of a line without spaces about it
_DIRECTIVES = ("escape", "syntax", "check")
_DOCUMENT = re.compile(r"[0-9]*<<-?(?:[A-Za-z_][^<]*|'[^']+'|\"[^\"]+\")")


class DockerfileError(Exception):
    """The file is not understood, or has what is not known here. ``line`` is the number of the line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        line: The number of its first line.
        name: In capitals.
        text: What follows the name and the flags, continued lines joined.
        flags: Its flags; one without a value has the value "true".
        listed: The elements, if it is written as a JSON list.
    """

    line: int
    name: str
    text: str
    flags: Mapping[str, str] = field(default_factory=dict)
    listed: tuple[str, ...] | None = None

    def __str__(self) -> str:
        flags = "".join(f" --{name}={value}" for name, value in self.flags.items())
        return f"{self.name}{flags} {self.text}"


@dataclass(frozen=True)
class Dockerfile:
    """A file: its instructions, and its escape character."""

    instructions: tuple[Instruction, ...]
    escape: str = "\\"


def parse(text: str) -> Dockerfile:
    """Take a Dockerfile apart.

    Raises:
        DockerfileError: it is not understood, or has an instruction or a flag that is not known here.
    """
    lines = _split_lines(text)
    escape = _read_directives(lines)
    found = tuple(_parse_instruction(line, joined, escape) for line, joined in _join_lines(lines, escape))
    if not found:
        raise DockerfileError(1, "there is no instruction in it")
    return Dockerfile(found, escape)


def _split_lines(text: str) -> list[str]:
    """Lines end with a line feed only: other separators of Unicode may stand in an argument."""
    return [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]


def _read_directives(lines: list[str]) -> str:
    """The escape character that the first lines choose."""
    seen: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        found = _DIRECTIVE.fullmatch(line.strip())
        if found is None or found.group(1).lower() not in _DIRECTIVES:
            break
        name = found.group(1).lower()
        if name in seen:
            raise DockerfileError(number, f"the parser directive {name} stands there twice")
        seen[name] = found.group(2)
        if name == "escape" and found.group(2) not in ("\\", "`"):
            raise DockerfileError(number, f"the escape character must be \\ or `, not {found.group(2)}")
    return seen.get("escape", "\\")


def _join_lines(lines: list[str], escape: str) -> Iterator[tuple[int, str]]:
    """Number and text of each instruction. Comments and empty lines count for nothing, even in a continued one."""
    mark = re.escape(escape)
    continued = re.compile(rf"(^|[^{mark}]){mark}[ \t]*$")
    first, joined = 0, ""
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        first = first or number
        shortened, count = continued.subn(r"\1", line)
        joined += shortened
        if not count:
            yield first, joined.strip()
            first, joined = 0, ""
    if joined.strip():
        yield first, joined.strip()


def _parse_instruction(line: int, text: str, escape: str) -> Instruction:
    word, _, rest = re.sub(r"\s+", " ", text, count=1).partition(" ")
    name, rest = word.upper(), rest.strip()
    if name not in _FLAGS:
        raise DockerfileError(line, f"the instruction {word} is not known here")
    flags: dict[str, str] = {}
    if name in _FLAGGED:
        flags, rest = _take_flags(line, name, rest)
    listed = _parse_list(line, rest) if name in _LISTED and rest.startswith("[") else None
    if listed is None and name == "SHELL":
        raise DockerfileError(line, 'SHELL takes a JSON list of texts, as ["/bin/bash", "-c"]')
    if not rest or (listed == () and name not in _MAY_BE_EMPTY):
        raise DockerfileError(line, f"{name} needs an argument")
    if listed is None and name in _WITH_DOCUMENTS:
        _refuse_documents(line, rest, escape)
    return Instruction(line, name, rest, flags, listed)


def _take_flags(line: int, name: str, text: str) -> tuple[dict[str, str], str]:
    """The flags before the first other word, and what follows them."""
    flags: dict[str, str] = {}
    while text.startswith("--"):
        word, _, text = text.partition(" ")
        text = text.strip()
        if word == "--":
            break
        flag, equals, value = word[2:].partition("=")
        if flag not in _FLAGS[name]:
            raise DockerfileError(line, f"{name} --{flag} is not known here")
        if flag in flags:
            raise DockerfileError(line, f"{name} --{flag} stands there twice")
        if not equals and flag not in _SWITCHES:
            raise DockerfileError(line, f"{name} --{flag} needs a value")
        flags[flag] = value if equals else "true"
    return flags, text


def _parse_list(line: int, text: str) -> tuple[str, ...] | None:
    """The elements of a JSON list; None if it is none: then it is text that begins with a bracket."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    except RecursionError:
        value = None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DockerfileError(line, "a list in the JSON form must hold texts only")
    return tuple(value)


def _refuse_documents(line: int, text: str, escape: str) -> None:
    try:
        words = dockerfile_words.split(text, escape=escape)
    except dockerfile_words.WordError:
        return  # a shell may understand it
    for word in words:
        if _DOCUMENT.fullmatch(word):
            raise DockerfileError(line, f"here-documents ({word}) are not known here: put the text in a file")
