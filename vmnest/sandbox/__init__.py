"""What a Python user touches: ``Sandbox``. Imports everything below; the verbs in ``ops`` are built on it.

Roads 1 and 2 begin here: ``wishes`` checks what is asked for, ``launch`` starts a MicroVM (and leaves nothing when it
fails), ``handle`` is the Sandbox, ``process`` a program in it, ``life`` suspends, resumes and waits, ``files`` are its
files, ``link`` is how it reaches both planes. Nothing connects to anything before it is needed.
"""

from __future__ import annotations

from ..agent.entries import Entry, Progress, Skipped, Transfer
from ..control.microvms import IdlePolicy
from .files import Files
from .handle import Sandbox
from .process import Line, Process

__all__ = ["Entry", "Files", "IdlePolicy", "Line", "Process", "Progress", "Sandbox", "Skipped", "Transfer"]
