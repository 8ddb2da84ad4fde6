"""How each host program is told of the MCP server: a command line, JSON, YAML or TOML, and where that goes."""

from __future__ import annotations

import json
import os
import shlex
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["HOSTS", "SERVER_NAME", "Here", "Host", "Start", "find_start"]

SERVER_NAME = "agent-sandbox"
# Seconds that a call may take. Ours take up to 45, and some more where a sandbox has to be started first.
CALL_SECONDS = 300


class Start:
    """How the server is started.

    Attributes:
        command: The program, with its path: hosts have a PATH of their own.
        arguments: What follows it.
        environ: Variables that it is given, beside the few that hosts pass on.
    """

    __slots__ = ("arguments", "command", "environ")

    def __init__(self, command: str, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
        self.command = command
        self.arguments = list(arguments)
        self.environ = dict(environ)

    def describe(self) -> dict[str, object]:
        """The members that most hosts have in common."""
        variables = {"env": self.environ} if self.environ else {}
        return {"command": self.command, "args": self.arguments, **variables}


class Here:
    """How this very process runs vmnest.

    Attributes:
        program: What was called: the installed script, an archive, or a module.
        interpreter: The Python that runs it.
        package: The name that vmnest goes by in there.
        root: The folder, or the archive, that this name is found in.
        pythonpath: The entries of PYTHONPATH.
        path: Where else modules are found, but for the place of the program itself.
    """

    __slots__ = ("interpreter", "package", "path", "program", "pythonpath", "root")

    def __init__(self, environ: Mapping[str, str]) -> None:
        entries = environ.get("PYTHONPATH", "").split(os.pathsep)
        self.program = sys.argv[0]
        self.interpreter = sys.executable
        self.package = __name__.rpartition(".")[0].rpartition(".")[0]
        self.root = os.path.abspath(__file__)
        for _ in __name__.split("."):
            self.root = os.path.dirname(self.root)
        self.pythonpath = [os.path.abspath(entry) for entry in entries if entry]
        self.path = [entry for entry in sys.path[1:] if entry not in self.pythonpath]


def find_start(here: Here, *, environ: Mapping[str, str]) -> Start:
    """The way in which this very installation is started, from any directory; ``environ`` is for the server."""
    # As it was called, not what it is a link to: tools that install programs renew the link.
    path = os.path.abspath(here.program)
    is_archive = path == here.root and os.path.isfile(path)
    is_script = os.path.basename(path).startswith("vmnest") and os.access(path, os.X_OK) and os.path.isfile(path)
    if is_script and not is_archive:
        return Start(path, ["mcp"], environ)
    # A host has neither our PYTHONPATH nor our working directory, and what is imported may be found by nothing else.
    is_found = is_archive or here.root in (*here.path, *here.pythonpath)
    entries = here.pythonpath if is_found else [here.root, *here.pythonpath]
    variables = {**({"PYTHONPATH": os.pathsep.join(entries)} if entries else {}), **environ}
    if is_archive:
        return Start(here.interpreter, [path, "mcp"], variables)
    # A host's working directory is a project's: no module of that is ours.
    safe = ["-P"] if sys.version_info >= (3, 11) else []
    return Start(here.interpreter, [*safe, "-m", f"{here.package}.mcp"], variables)


class Host:
    """A row of the table.

    Attributes:
        title: Its own name.
        place: Where the snippet goes.
        render: Makes the snippet.
    """

    __slots__ = ("place", "render", "title")

    def __init__(self, title: str, *, place: str, render: Callable[[Start], str]) -> None:
        self.title = title
        self.place = place
        self.render = render


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _render_servers(start: Start) -> str:
    return _to_json({"mcpServers": {SERVER_NAME: start.describe()}})


def _render_vscode(start: Start) -> str:
    return _to_json({"servers": {SERVER_NAME: {"type": "stdio", **start.describe()}}})


def _render_claude(start: Start) -> str:
    # The variables stand behind the name: the option takes as many as there are, up to the next option.
    variables = [word for name, value in start.environ.items() for word in ("--env", f"{name}={value}")]
    words = ["claude", "mcp", "add", SERVER_NAME, "--scope", "user", *variables, "--", start.command, *start.arguments]
    return f"{shlex.join(words)}\n"


def _render_goose(start: Start) -> str:
    # A scalar of JSON is one of YAML, too, and so is a list or an object in one line.
    members = {
        "enabled": True,
        "type": "stdio",
        "name": SERVER_NAME,
        "cmd": start.command,
        "args": start.arguments,
        "envs": start.environ,
        "timeout": CALL_SECONDS,
    }
    lines = (f"    {name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in members.items())
    return f"extensions:\n  {SERVER_NAME}:\n{''.join(lines)}"


def _render_opencode(start: Start) -> str:
    variables = {"environment": start.environ} if start.environ else {}
    entry = {"type": "local", "command": [start.command, *start.arguments], "enabled": True, **variables}
    return _to_json({"mcp": {SERVER_NAME: {**entry, "timeout": CALL_SECONDS * 1000}}})


def _render_codex(start: Start) -> str:
    lines = [
        f"[mcp_servers.{SERVER_NAME}]",
        f"command = {_to_toml(start.command)}",
        f"args = [{', '.join(map(_to_toml, start.arguments))}]",
        f"tool_timeout_sec = {CALL_SECONDS}",
    ]
    if start.environ:
        lines += ["", f"[mcp_servers.{SERVER_NAME}.env]"]
        lines += [f"{_to_toml(name)} = {_to_toml(value)}" for name, value in start.environ.items()]
    return "\n".join(lines) + "\n"


def _to_toml(text: str) -> str:
    # A string of JSON is one of TOML, except that the latter wants DEL to be escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


HOSTS: Mapping[str, Host] = {
    "claude": Host("Claude Code", place="a command to run once", render=_render_claude),
    "claude-desktop": Host(
        "Claude Desktop",
        place="claude_desktop_config.json (Settings, Developer, Edit Config)",
        render=_render_servers,
    ),
    "cursor": Host("Cursor", place="~/.cursor/mcp.json, or .cursor/mcp.json in a project", render=_render_servers),
    "vscode": Host("VS Code", place=".vscode/mcp.json in a project", render=_render_vscode),
    "windsurf": Host("Windsurf", place="~/.codeium/windsurf/mcp_config.json", render=_render_servers),
    "codex": Host("Codex", place="~/.codex/config.toml", render=_render_codex),
    "gemini": Host(
        "Gemini CLI",
        place="~/.gemini/settings.json; it starts no servers in a folder that it does not trust",
        render=_render_servers,
    ),
    "kiro": Host(
        "Kiro", place="~/.kiro/settings/mcp.json, or .kiro/settings/mcp.json in a project", render=_render_servers
    ),
    "opencode": Host(
        "opencode",
        place="~/.config/opencode/opencode.json, or opencode.json in a project",
        render=_render_opencode,
    ),
    "goose": Host("Goose", place="~/.config/goose/config.yaml", render=_render_goose),
    "generic": Host("other hosts", place="where the host keeps its MCP servers", render=_render_servers),
}
