"""The host's side of the agent protocol. Imports what lies below it; knows no sandbox, and of the control plane nothing
but the headers that a minted token gives.

Road 2 crosses it: ``arguments`` checks what is sent, ``client`` sends and repeats, ``exchange`` is one request and its
patience, ``tokens`` opens the way, ``refusals`` turns error answers into errors, ``scanner`` and ``streams`` decode
large answers while they arrive. Commands run as processes: ``commands`` is the whole of one, ``starting`` starts it
once, ``following`` reads it to its end with ``recovery`` after cuts, ``feeding`` is its input, ``outputs`` decodes
frames, ``processes`` makes single requests. ``stats`` is what the sandbox uses.
"""

from __future__ import annotations

from .client import AgentClient, Health
from .results import ExecResult
from .tokens import TokenStore

__all__ = ["AgentClient", "ExecResult", "Health", "TokenStore"]
