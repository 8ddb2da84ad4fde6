"""Hints as a model can follow them: what the command line calls options and commands, tools call otherwise.

The hints of errors are written for people at a command line. ``--egress-connector`` in one is the argument
``egress_connector`` of the tool that was called, if it has one, and beside ``vmnest rm`` stands ``sandbox_remove``.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["reword"]

# What does the same as a command, by the command; what is not here is for the user to type.
_TOOLS = {
    "attach": "sandbox_exec_poll",
    "create": "sandbox_create",
    "doctor": "runtime_check",
    "exec": "sandbox_exec",
    "image build": "image_build",
    "image ls": "image_list",
    "image prune": "image_prune",
    "image rm": "image_remove",
    "logs": "sandbox_logs_read",
    "ls": "sandbox_list",
    "ps": "sandbox_status",
    "rm": "sandbox_remove",
    "start": "sandbox_start",
    "stop": "sandbox_stop",
    "wait": "sandbox_wait",
}
# An option with the command that it belongs to, or alone; a command's own options are left as they are.
_OPTION = re.compile(r"(?P<command>\bvmnest(?: -{0,2}[a-z][a-z-]*| [A-Z][A-Z-]*)* )?--(?P<option>[a-z][a-z-]*)")
_COMMAND = re.compile(r"\bvmnest (?:--local )?(?P<verb>image [a-z]+|[a-z]+)")


def reword(hint: str | None, properties: Mapping[str, object]) -> str | None:
    """The hint for whoever called a tool.

    Args:
        hint: The hint, for people.
        properties: The arguments that the tool takes, as its schema has them.
    """
    if hint is None:
        return None
    found = dict.fromkeys(_TOOLS.get(match["verb"]) for match in _COMMAND.finditer(hint))
    tools = [tool for tool in found if tool is not None and tool not in hint]
    told = _OPTION.sub(lambda match: _argument(match, properties), hint)
    if not tools:
        return told
    between = " " if told.endswith((".", "?", "!")) else "\n"
    return f"{told}{between}As a tool: {', '.join(tools)}."


def _argument(match: re.Match[str], properties: Mapping[str, object]) -> str:
    name = match["option"].replace("-", "_")
    kind = properties.get(name)
    if match["command"] or not isinstance(kind, dict):
        return match[0]
    return f"{name}: true" if kind.get("type") == "boolean" else name
