"""Every setting, once: its name, environment variable, default, parser and meaning. The only reader of ``os.environ``.

Order of sources: flag (or argument), environment, file, default. Each value remembers where it came from, so that
messages and ``doctor`` can say so. An empty variable counts as unset. Nothing is read at import.
"""

from __future__ import annotations

import os

from . import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "ISOLATIONS",
    "SETTINGS",
    "TARGET_AWS",
    "TARGET_LOCAL",
    "Setting",
    "environment",
    "is_local",
    "is_on",
    "number",
    "parse_count",
    "parse_port",
    "parse_size",
    "resolve",
    "text",
]

TARGET_AWS = "aws"
TARGET_LOCAL = "local"
ISOLATIONS = ("namespace", "kernel", "vm")  # of local sandboxes, the weakest first


def environment() -> Mapping[str, str]:
    """The process's environment: the one place from which other modules get it."""
    return os.environ


def parse_text(text: str) -> str:
    return text


def parse_path(text: str) -> str:
    """A path; a leading ``~`` is the home folder."""
    return os.path.expanduser(text)


def parse_flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in {"1", "true", "yes", "on"}:
        return True
    if lowered in {"0", "false", "no", "off"}:
        return False
    raise ValueError("must be 1 or 0 (true, yes, on / false, no, off)")


def parse_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= 65535):
        raise ValueError("must be a port number, 1 to 65535")
    return int(text)


def parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0):
        raise ValueError("must be a whole number above 0")
    return int(text)


def parse_paths(text: str) -> tuple[str, ...]:
    """Paths separated as in ``PATH``; empty ones are dropped."""
    return tuple(os.path.expanduser(part) for part in text.split(os.pathsep) if part)


def parse_choice(*choices: str) -> Callable[[str], str]:
    """A parser that takes one of ``choices``."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return parse


_SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_size(text: str) -> int:
    """Bytes, from ``8GiB``, ``512M``, ``1000``: binary units."""
    upper = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = upper[-1:] if upper[-1:].isalpha() else ""
    number = upper.removesuffix(unit)
    if unit not in _SIZE_UNITS or not (number.isascii() and number.isdigit() and len(number) <= 15 and int(number) > 0):
        raise ValueError("must be a size such as 8GiB or 512MiB")
    return int(number) * _SIZE_UNITS[unit]


class Setting:
    """One row of the table. ``default`` is the value itself, not its text."""

    __slots__ = ("default", "env", "meaning", "name", "parse", "secret", "shown_default")

    def __init__(
        self,
        name: str,
        env: str,
        default: object,
        parse: Callable[[str], object],
        meaning: str,
        *,
        shown_default: str | None = None,
        secret: bool = False,
    ) -> None:
        self.name = name
        self.env = env
        self.default = default
        self.parse = parse
        self.meaning = meaning
        self.shown_default = shown_default if shown_default is not None else str(default)
        self.secret = secret


class Resolved:
    """A setting's value and its source: ``flag``, ``environment NAME``, ``file NAME`` or ``default``."""

    __slots__ = ("source", "value")

    def __init__(self, value: object, source: str) -> None:
        self.value = value
        self.source = source


_MCP = "AGENT_SANDBOX_MCP_"

_ROWS = (
    Setting("target", "AGENT_SANDBOX_TARGET", TARGET_AWS, parse_choice(TARGET_AWS, TARGET_LOCAL),
            "Where sandboxes run: aws, or local for this machine"),
    Setting("image_arn", "AGENT_SANDBOX_IMAGE_ARN", None, parse_text,
            "MicroVM image that create and run start from", shown_default="from infra outputs"),
    Setting("execution_role_arn", "AGENT_SANDBOX_EXECUTION_ROLE_ARN", None, parse_text,
            "Role that code in the MicroVM gets", shown_default="from infra outputs"),
    Setting("egress_connector", "AGENT_SANDBOX_EGRESS_CONNECTOR", None, parse_text,
            "VPC egress network connector to attach", shown_default="from infra outputs"),
    Setting("region", "AGENT_SANDBOX_REGION", None, parse_text,
            "AWS region", shown_default="the region of the ARN in use, else AWS's own settings"),
    Setting("state", "AGENT_SANDBOX_STATE", None, parse_path,
            "File that maps names to MicroVMs", shown_default="~/.agent_sandbox/state.json"),
    Setting("infra_state", "AGENT_SANDBOX_INFRA_STATE", None, parse_path,
            "File that records what infra made", shown_default="~/.agent_sandbox/infra-state.json"),
    Setting("setup", "AGENT_SANDBOX_SETUP", None, parse_path,
            "Infrastructure configuration", shown_default="sandbox.yaml, then setup.yaml"),
    Setting("workdir", "AGENT_SANDBOX_WORKDIR", "/work", parse_text,
            "Working directory in the sandbox when none is given"),
    Setting("verify_tls", "AGENT_SANDBOX_VERIFY_TLS", True, parse_flag,
            "0: do not verify the MicroVM endpoint's certificate (debugging only)", shown_default="1"),
    Setting("agent_port", "AGENT_SANDBOX_AGENT_PORT", 8080, parse_port,
            "Port of the agent in the guest (its AGENTD_PORT)"),
    Setting("hook_port", "AGENT_SANDBOX_HOOK_PORT", 9000, parse_port,
            "Port of the lifecycle hooks in the guest (its AGENTD_HOOK_PORT); never reachable through vmnest"),
    Setting("local_dir", "AGENT_SANDBOX_LOCAL_DIR", None, parse_path,
            "Folder of the local cloud", shown_default="~/.agent_sandbox/local"),
    Setting("local_isolation", "AGENT_SANDBOX_LOCAL_ISOLATION", "namespace",
            parse_choice(*ISOLATIONS),
            "Weakest isolation that a local sandbox may have: namespace, kernel or vm (the last two do not exist yet)"),
    Setting("local_visible", "AGENT_SANDBOX_LOCAL_VISIBLE", (), parse_paths,
            "Further host directories that local sandboxes can read, separated by colons", shown_default="none"),
    Setting("local_disk", "AGENT_SANDBOX_LOCAL_DISK", 8 * 2**30, parse_size,
            "Size of a local sandbox's writable layer", shown_default="8GiB"),
    Setting("mcp_host_paths", _MCP + "HOST_PATHS", None, parse_paths,
            "Host folders that the MCP copy tools may touch", shown_default="the working directory"),
    Setting("mcp_host_path_policy", _MCP + "HOST_PATH_POLICY", "allowlist",
            parse_choice("allowlist", "unrestricted"), "unrestricted: any host path may be copied"),
    Setting("mcp_enable_dangerous", _MCP + "ENABLE_DANGEROUS", False, parse_flag,
            "Reserved; destructive image tools ask for confirm: true", shown_default="0"),
    Setting("mcp_max_output_bytes", _MCP + "MAX_OUTPUT_BYTES", 1048576, parse_count,
            "Largest output that an MCP tool returns, in bytes"),
    Setting("mcp_default_timeout_ms", _MCP + "DEFAULT_TIMEOUT_MS", 120000, parse_count,
            "Timeout of commands run through MCP, in milliseconds"),
)  # fmt: skip

SETTINGS: dict[str, Setting] = {row.name: row for row in _ROWS}


def resolve(
    name: str,
    *,
    flag: object = None,
    file_value: object = None,
    file_name: str = "",
    environ: Mapping[str, str] | None = None,
) -> Resolved:
    """The value of a setting, from the first source that has one.

    Raises:
        errors.SettingError: the variable's text cannot be parsed; the message names the variable.
    """
    row = SETTINGS[name]
    if flag is not None:
        return Resolved(flag, "flag")
    text = (environment() if environ is None else environ).get(row.env, "")
    if text:
        return Resolved(_parse(row, text), f"environment {row.env}")
    if file_value is not None:
        return Resolved(file_value, f"file {file_name}")
    return Resolved(row.default, "default")


def _parse(row: Setting, text: str) -> object:
    try:
        return row.parse(text)
    except ValueError as error:
        shown = "[redacted]" if row.secret else repr(text)
        raise errors.SettingError(
            f"{row.env} {error}: {shown}", hint=f"Set {row.env} to a valid value, or unset it ({row.meaning})."
        ) from None


def text(name: str, *, flag: str | None = None, environ: Mapping[str, str] | None = None) -> str | None:
    """``resolve`` for a setting whose value is text or None."""
    value = resolve(name, flag=flag, environ=environ).value
    assert value is None or isinstance(value, str)
    return value


def number(name: str, *, flag: int | None = None, environ: Mapping[str, str] | None = None) -> int:
    """``resolve`` for a setting whose value is a whole number."""
    value = resolve(name, flag=flag, environ=environ).value
    assert isinstance(value, int)
    return value


def is_local(local: bool | None, *, environ: Mapping[str, str]) -> bool:
    """Whether this machine is meant: as the caller says, else as the setting says."""
    return text("target", environ=environ) == TARGET_LOCAL if local is None else local


def is_on(name: str, *, flag: bool | None = None, environ: Mapping[str, str] | None = None) -> bool:
    """``resolve`` for a setting that is on or off."""
    return bool(resolve(name, flag=flag, environ=environ).value)
