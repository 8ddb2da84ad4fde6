"""Drivers: what isolates a VM on this machine.

``select`` probes the machine and returns the best driver it can run; the rest of the room is that driver's own. Some
modules here (see ``runtime.STANDALONE``) also run outside the package, in the supervisor: those import only the
standard library and each other.
"""

from .interface import Driver, Ended, Launch, Machine
from .selection import select

__all__ = ["Driver", "Ended", "Launch", "Machine", "select"]
