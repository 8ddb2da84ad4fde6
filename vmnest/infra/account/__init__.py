"""What an account holds for a stack, and the calls that change it: the only part of the engine that calls services.

``Account`` gives access to the kinds of things: roles, buckets, images, connectors, the network. All values are frozen.
What was asked for and got no answer is looked for before it is asked for again (``attempts``).
"""

from __future__ import annotations

from .account import Account
from .buckets import Bucket
from .network import SecurityGroup, Subnet
from .roles import Role

__all__ = ["Account", "Bucket", "Role", "SecurityGroup", "Subnet"]
