"""vmnest: disposable microVM sandboxes for code that nobody has vetted.

``from vmnest import Sandbox`` is the whole of it for most users. Nothing is imported before its first use, so that
``import vmnest`` costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .agent.results import ExecResult
    from .errors import VmnestError
    from .sandbox import Entry, Forwarding, IdlePolicy, Process, Progress, Sandbox, Skipped, Transfer

__version__ = "0.2.0"

# name -> the module that holds it
_HOMES = {
    **dict.fromkeys(
        ("Entry", "Forwarding", "IdlePolicy", "Process", "Progress", "Sandbox", "Skipped", "Transfer"), "sandbox"
    ),
    "ExecResult": "agent.results",
    "VmnestError": "errors",
}

__all__ = [
    "Entry",
    "ExecResult",
    "Forwarding",
    "IdlePolicy",
    "Process",
    "Progress",
    "Sandbox",
    "Skipped",
    "Transfer",
    "VmnestError",
    "__version__",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
