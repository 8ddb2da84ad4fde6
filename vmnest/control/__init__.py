"""The control plane as typed calls: MicroVMs, images, tokens, waiting. Imports aws and what lies below it.

Road 1 crosses it between ``Sandbox`` and ``aws.service``. It hides how the service is: pages that are empty and yet not
the last, endpoints without a scheme, names where it wants ARNs, states that come late. Values are frozen and keep the
answer in ``raw``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..aws.service import Service
    from ..deadline import Deadline
    from .images import Images
    from .microvms import MicroVMs
    from .tokens import Token

DEFAULT_TOKEN_MINUTES = 60
DEFAULT_SHELL_MINUTES = 5  # it is used at once, and counts only when a connection is opened

__all__ = ["Control"]


class Control:
    """The control plane of one target."""

    microvms: MicroVMs

    def __init__(self, service: Service) -> None:
        # Not above: of two threads, one that imports this package and one that imports that module, Python may find
        # each waiting for the other, and raises.
        from .microvms import MicroVMs

        self._service = service
        self.microvms = MicroVMs(service)

    # Most commands need neither images nor tokens: these are imported when they do.

    @property
    def images(self) -> Images:
        """Calls about images."""
        from .images import Images

        return Images(self._service)

    @property
    def region(self) -> str:
        """The region that the calls go to."""
        return self._service.region

    def mint_token(
        self, microvm_id: str, ports: Sequence[int], *, minutes: int = DEFAULT_TOKEN_MINUTES, deadline: Deadline
    ) -> Token:
        """A token that opens these ports of a MicroVM's endpoint (see ``tokens.mint``)."""
        from . import tokens

        return tokens.mint(self._service, microvm_id, ports=ports, minutes=minutes, deadline=deadline)

    def mint_shell_token(self, microvm_id: str, *, minutes: int = DEFAULT_SHELL_MINUTES, deadline: Deadline) -> Token:
        """A token that opens the service's own shell in a MicroVM (see ``tokens.mint_shell``)."""
        from . import tokens

        return tokens.mint_shell(self._service, microvm_id, minutes=minutes, deadline=deadline)
