"""What the forwarder knows of the sandbox: where its endpoint is, what opens it, and what state it is in."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Protocol

from .. import errors
from ..deadline import Deadline

__all__ = ["OVER", "Gate", "HeaderPairs"]

# With these a forwarding is over: no later request can fare better.
OVER = (errors.SandboxSuspendedError, errors.MicroVMEndedError, errors.SandboxNotFoundError)

HeaderPairs = Sequence[tuple[str, str]]


class Gate(Protocol):
    """Used by many threads at once."""

    @property
    def agent_port(self) -> int:
        """The agent's port in the sandbox."""

    @property
    def authority(self) -> str:
        """What the endpoint's requests carry as ``Host``."""

    def headers(self, port: int, *, refused: HeaderPairs | None = None) -> HeaderPairs:
        """The token's headers for that port of the sandbox; others than ``refused``, if the endpoint refused those.

        Raises:
            errors.VmnestError: none can be had.
        """

    def open(self, deadline: Deadline) -> socket.socket:
        """A new connection to the endpoint, its TLS done.

        Raises:
            errors.TransportError: no connection.
        """

    def has_relay(self, *, again: bool = False) -> bool:
        """Whether the agent passes requests on. It is asked once, and ``again`` if that has turned out to be wrong.

        Raises:
            errors.VmnestError: it does not say.
        """

    def recover(self, deadline: Deadline) -> bool:
        """A request did not get through: see what became of the MicroVM, and resume it if it is suspended and may be.

        Returns:
            Whether it did not run a moment ago, and so cannot have executed the request.

        Raises:
            errors.SandboxSuspendedError: it was suspended on purpose, or must not be resumed.
            errors.MicroVMEndedError: it has ended.
            errors.VmnestError: that cannot be told.
        """

    def check(self) -> None:
        """Without a word to anybody else: whether another process has ended the sandbox, or suspended it on purpose.

        Raises:
            errors.SandboxSuspendedError, errors.MicroVMEndedError, errors.SandboxNotFoundError: it has.
        """
