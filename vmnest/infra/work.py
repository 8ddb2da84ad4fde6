"""What a step gets to be performed: the plan's inputs, the account, the zip, what earlier steps have made."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from .account import Account
from .facts import Inputs
from .state import Resource, StackState

Tell = Callable[[str, str], None]


class Work:
    """One performance of a plan. ``state`` is what is recorded so far; only ``apply`` changes it.

    Attributes:
        inputs: What the plan was made of.
        account: Where to act.
        artifact: The zip, open for reading.
        state: With what the steps before have made.
        fresh: Names of the resources that this performance has made or changed.
        tell: ``tell(phase, text)`` reports about the step that is being performed.
    """

    def __init__(self, inputs: Inputs, *, account: Account, artifact: BinaryIO, state: StackState, tell: Tell) -> None:
        self.inputs = inputs
        self.account = account
        self.artifact = artifact
        self.state = state
        self.fresh: set[str] = set()
        self.tell = tell

    def made(self, name: str) -> Resource:
        """The resource that an earlier step has made or found."""
        return self.state.resources[name]
