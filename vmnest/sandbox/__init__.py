"""What a Python user touches: ``Sandbox``. Imports everything below; the verbs in ``ops`` are built on it.

Roads 1 and 2 begin here: ``wishes`` checks what is asked for, ``launch`` starts a MicroVM (and leaves nothing when it
fails), ``handle`` is the Sandbox, ``process`` a program in it, ``life`` suspends, resumes and waits, ``files`` are its
files, ``link`` is how it reaches both planes. Nothing connects to anything before it is needed, and nothing is loaded
before its first use: ``vmnest forward`` does without most of it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..agent.entries import Entry, Progress, Skipped, Transfer
    from ..control.microvms import IdlePolicy
    from .files import Files
    from .forwarding import Forwarding
    from .handle import Sandbox
    from .process import Line, Process

# name -> the module that holds it
_HOMES = {
    **dict.fromkeys(("Entry", "Progress", "Skipped", "Transfer"), "..agent.entries"),
    **dict.fromkeys(("Line", "Process"), ".process"),
    "Files": ".files",
    "Forwarding": ".forwarding",
    "IdlePolicy": "..control.microvms",
    "Sandbox": ".handle",
}

__all__ = [
    "Entry",
    "Files",
    "Forwarding",
    "IdlePolicy",
    "Line",
    "Process",
    "Progress",
    "Sandbox",
    "Skipped",
    "Transfer",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value
