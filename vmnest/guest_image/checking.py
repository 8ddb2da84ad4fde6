"""Pre-flight: what the service would refuse, or a build fail of, said before anything is uploaded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from .. import errors
from ..control.image_specs import MEMORY_CLASSES_MIB, Hooks
from ..wire import names
from . import machines, scanning
from .packing import Package

LARGE_CONTENT_BYTES = 2**30
MAX_VARIABLES = 100
MAX_VARIABLE_NAME = 256
MAX_VARIABLE_VALUE = 4096
RESERVED_VARIABLES = ("AWS_REGION",)
_SHOWN = 3

_IMAGE_NAME = re.compile(names.IMAGE_NAME)
_NAME = re.compile(r"[^\s=]+")
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")
_INSTRUCTION = re.compile(r"[ \t]*([A-Za-z]+)[ \t]+(.*)")
_PAIR = re.compile(r"""([A-Za-z_][A-Za-z0-9_]*)[= ]["']?([^"'\s]+)""")


def check_name(name: str) -> str:
    """The name, if an image can have it.

    Raises:
        errors.GuestImageError: it cannot.
    """
    if not _IMAGE_NAME.fullmatch(name):
        raise errors.GuestImageError(
            f"no image can be named {name[:80]!r}", hint="A name has 1 to 64 letters, digits, dashes and underscores."
        )
    return name


def check_settings(*, memory_mib: int | None, environment: Mapping[str, str]) -> None:
    """See that the service takes an image's size and variables.

    Raises:
        errors.GuestImageError: it does not. A variable's value is not shown.
    """
    if memory_mib is not None and memory_mib not in MEMORY_CLASSES_MIB:
        sizes = ", ".join(map(str, MEMORY_CLASSES_MIB))
        raise errors.GuestImageError(
            f"an image cannot have {memory_mib} MiB of memory",
            hint=f"One of {sizes}; MicroVMs get up to four times as much at their peak.",
        )
    if len(environment) > MAX_VARIABLES:
        raise errors.GuestImageError(f"{len(environment)} variables are too many: an image has at most {MAX_VARIABLES}")
    for name, value in environment.items():
        _check_variable(name, value)


def _check_variable(name: str, value: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > MAX_VARIABLE_NAME:
        # What was meant as NAME=SECRET has its secret in the name.
        shown = f"{name.partition('=')[0][:80]}=..." if "=" in name else name[:80]
        raise errors.GuestImageError(
            f"no variable can be named {shown!r}",
            hint=f"A name has 1 to {MAX_VARIABLE_NAME} characters, no spaces and no equals sign.",
        )
    if name in RESERVED_VARIABLES:
        raise errors.GuestImageError(f"the variable {name} is set by the service", hint="Use another name.")
    if len(value) > MAX_VARIABLE_VALUE:
        raise errors.GuestImageError(
            f"the value of {name} has {len(value)} characters; at most {MAX_VARIABLE_VALUE} are allowed",
            hint="Put it into a file of the image.",
        )


def check(
    package: Package, *, hooks: Hooks | None, agent_port: int = 8080, architecture: str = machines.ARM
) -> tuple[str, ...]:
    """What a user should know before a package is built; nothing of it need be wrong.

    Args:
        package: What was packed.
        hooks: Those that the image is to have.
        agent_port: Where the agent in the guest is expected.
        architecture: Of the MicroVMs.

    Raises:
        errors.GuestImageError: the build would fail.
    """
    scanning.check_size(package.content_size)  # it may have grown while it was packed
    return (*package.warnings, *_find(package, hooks=hooks, agent_port=agent_port, architecture=architecture))


def _find(package: Package, *, hooks: Hooks | None, agent_port: int, architecture: str) -> Iterator[str]:
    if package.content_size > LARGE_CONTENT_BYTES:
        yield f"the image's content has {_gib(package.content_size)}: is something missing in .dockerignore?"
    for machine, programs in sorted(package.machines.items()):
        if machine != architecture:
            yield f"{_list(programs)} will not run: made for {machine}, and the image is for {architecture}"
    instructions = list(_instructions(package.dockerfile))
    yield from _find_platforms(instructions, architecture)
    yield from _find_ports(instructions, hooks=hooks, agent_port=agent_port)


def _find_platforms(instructions: list[tuple[str, str]], architecture: str) -> Iterator[str]:
    wanted = {machines.ARM: "arm64", machines.X86: "amd64"}[architecture]
    for word, rest in instructions:
        match = re.match(r"--platform=(\S+)", rest) if word == "FROM" else None
        if match and "$" not in match[1] and not match[1].startswith(f"linux/{wanted}"):
            yield f"the Dockerfile builds for {match[1]}, and the image is for linux/{wanted}"


def _find_ports(instructions: list[tuple[str, str]], *, hooks: Hooks | None, agent_port: int) -> Iterator[str]:
    variables = {name: value for word, rest in instructions if word == "ENV" for name, value in _PAIR.findall(rest)}
    exposed = {port for word, rest in instructions if word == "EXPOSE" for port in re.findall(r"\b\d+\b", rest)}
    if hooks is not None:
        guests = variables.get("AGENTD_HOOK_PORT", str(hooks.port))
        if guests != str(hooks.port):
            raise errors.GuestImageError(
                f"the guest listens for hooks on port {guests}, and the image would have them called on {hooks.port}",
                hint="Set AGENT_SANDBOX_HOOK_PORT to the guest's AGENTD_HOOK_PORT, or build with --no-hooks.",
            )
        if exposed and str(hooks.port) not in exposed:
            yield f"the Dockerfile does not EXPOSE the port of the hooks, {hooks.port}"
    agents = variables.get("AGENTD_PORT", str(agent_port))
    if agents != str(agent_port):
        yield f"the agent listens on port {agents}, and is expected on {agent_port}: set AGENT_SANDBOX_AGENT_PORT"


def _instructions(dockerfile: str) -> Iterator[tuple[str, str]]:
    """Its instructions in capitals, with what follows. A builder reads them with more care."""
    for line in _CONTINUED.sub(" ", dockerfile).splitlines():
        match = _INSTRUCTION.match(line)
        if match and not line.lstrip().startswith("#"):
            yield match[1].upper(), match[2].strip()


def _list(programs: tuple[str, ...]) -> str:
    shown = ", ".join(programs[:_SHOWN])
    return shown if len(programs) <= _SHOWN else f"{shown} and {len(programs) - _SHOWN} more"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
