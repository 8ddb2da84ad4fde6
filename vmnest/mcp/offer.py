"""What this server offers: vmnest's tools and resources. See ``server.Provider``."""

from __future__ import annotations

import threading

from .. import errors
from . import jsonrpc, resources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .calls import Call
    from .tools.tool import Tool

__all__ = ["Offer"]


class Offer:
    """The tools, loaded when they are first asked for, and the resources. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the loading
        self._tools: dict[str, Tool] | None = None

    def tools(self) -> Sequence[Mapping[str, object]]:
        """The tools as ``tools/list`` has them."""
        return [tool.describe() for tool in self._load().values()]

    def call(self, name: str, arguments: Mapping[str, object], call: Call) -> dict[str, object] | None:
        """The result of a tool; None if there is no such tool."""
        tool = self._load().get(name)
        return None if tool is None else tool.call(arguments, call)

    def resources(self) -> Sequence[Mapping[str, object]]:
        """The resources as ``resources/list`` has them."""
        return resources.describe()

    def read(self, uri: str, call: Call) -> Sequence[Mapping[str, object]] | None:
        """The contents of a resource; None if there is no such resource."""
        try:
            return resources.read(uri)
        except errors.VmnestError as error:
            raise jsonrpc.ProtocolError(jsonrpc.INTERNAL_ERROR, error.message, data=error.to_wire()) from error

    def _load(self) -> dict[str, Tool]:
        with self._lock:
            if self._tools is None:
                from ..ops import sandboxes
                from .tools import table

                sandboxes.keep_handles()
                self._tools = table.load()
            return self._tools
