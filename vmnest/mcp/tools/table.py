"""All tools, in the order in which they are listed."""

from __future__ import annotations

import importlib

from . import tool

__all__ = ["MODULES", "load"]

# Each has a tuple ``TOOLS``. They are loaded when a client asks for the tools: the handshake has to be quick.
MODULES = (
    *("runtime", "infra", "lifecycle", "execution", "sessions", "files", "transfers"),
    *("logs", "metrics", "images", "forwarding"),
)


def load() -> dict[str, tool.Tool]:
    """Name -> tool."""
    tools: dict[str, tool.Tool] = {}
    for module in MODULES:
        for each in importlib.import_module(f".{module}", __package__).TOOLS:
            assert each.name not in tools
            tools[each.name] = each
    return tools
