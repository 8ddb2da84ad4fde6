"""The agent's settings: one table of environment variables, their defaults and their parsers.

An empty variable counts as unset. A malformed one is an error that names it.
"""

from __future__ import annotations

import math
import os
import socket

from . import wire
from .errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LOG_EVENTS = "events"
LOG_OFF = "off"  # but for what goes wrong


class Config:
    """The settings of one run of the agent."""

    __slots__ = ("bind", "hook_port", "identity_path", "log", "port", "ready_fd", "suspend_drain_seconds", "workdir")

    def __init__(self, values: Mapping[str, object]) -> None:
        self.port: int
        self.hook_port: int
        self.bind: str
        self.identity_path: str
        self.suspend_drain_seconds: float
        self.ready_fd: int | None
        self.log: str
        self.workdir: str
        for name in self.__slots__:
            setattr(self, name, values[name])


def parse_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise ValueError("must be a port number, 0 to 65535")
    return int(text)


def parse_address(text: str) -> str:
    """A numeric address: no name is looked up, since a guest may have no resolver yet."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
        except OSError:
            continue
        return text
    raise ValueError("must be a numeric IPv4 or IPv6 address")


def parse_path(text: str) -> str:
    if not os.path.isabs(text) or "\0" in text:
        raise ValueError("must be an absolute path")
    return text


def parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and 0 <= seconds <= 3600):
        raise ValueError("must be a number of seconds, 0 to 3600")
    return seconds


def parse_log(text: str) -> str:
    if text not in {LOG_EVENTS, LOG_OFF}:
        raise ValueError(f"must be {LOG_EVENTS} or {LOG_OFF}")
    return text


def parse_descriptor(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError("must be the number of an open file descriptor")
    try:
        os.fstat(int(text))
    except OSError:
        raise ValueError("must be the number of an open file descriptor") from None
    return int(text)


# attribute, variable, default, parser
SETTINGS: tuple[tuple[str, str, object, Callable[[str], object]], ...] = (
    ("port", "AGENTD_PORT", wire.AGENT_PORT, parse_port),
    ("hook_port", "AGENTD_HOOK_PORT", wire.HOOK_PORT, parse_port),
    ("bind", "AGENTD_BIND", "127.0.0.1", parse_address),
    ("identity_path", "AGENTD_IDENTITY_PATH", "/run/agentd/identity", parse_path),
    ("suspend_drain_seconds", "AGENTD_SUSPEND_DRAIN_SECONDS", 8.0, parse_seconds),
    ("ready_fd", "AGENTD_READY_FD", None, parse_descriptor),
    ("log", "AGENTD_LOG", LOG_EVENTS, parse_log),
    ("workdir", "AGENT_SANDBOX_WORKDIR", wire.DEFAULT_WORKDIR, parse_path),
)


def load(environ: Mapping[str, str]) -> Config:
    """The settings that ``environ`` gives.

    Raises:
        ConfigError: a variable is malformed; the message names it.
    """
    values: dict[str, object] = {}
    for attribute, variable, default, parse in SETTINGS:
        text = environ.get(variable, "")
        try:
            values[attribute] = parse(text) if text else default
        except ValueError as error:
            raise ConfigError(f"{variable}={text!r}: {error}") from None
    return Config(values)


def command_environment(environ: Mapping[bytes, bytes], *, own_root: bytes) -> dict[bytes, bytes]:
    """What commands get: the agent's environment without what was only meant to start the agent.

    The image puts the agent's own folder on PYTHONPATH; programs in the sandbox must not find its modules there.
    """
    kept = {name: value for name, value in environ.items() if name != b"AGENTD_READY_FD"}
    folders = kept.get(b"PYTHONPATH", b"").split(b":")
    if own_root in folders:
        others = [folder for folder in folders if folder != own_root]
        kept.pop(b"PYTHONPATH")
        if any(others):
            kept[b"PYTHONPATH"] = b":".join(others)
    return kept
