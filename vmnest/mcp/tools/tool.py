"""One tool: what ``tools/list`` says of it, and how it is called."""

from __future__ import annotations

from ... import errors
from .. import envelope, schema
from . import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..calls import Call

__all__ = ["Tool"]

_CALL = "call"


class Tool:
    """A row of the table of tools.

    Args:
        function: Does it, and returns the data. Its name is the tool's.
        title: For people.
        reads: It changes nothing.
        destroys: What it changes cannot be had back.
        repeatable: Twice is as good as once.
        is_open: It reaches beyond what vmnest itself keeps: code that runs, and what that reaches.
    """

    def __init__(
        self,
        function: Callable[..., dict[str, object]],
        *,
        title: str,
        reads: bool = False,
        destroys: bool = False,
        repeatable: bool = False,
        is_open: bool = False,
    ) -> None:
        self.name = function.__name__
        self._function = function
        self._title = title
        self._takes_call = _CALL in function.__annotations__
        self._schema = schema.build_schema(function, without=(_CALL,))
        # Told in full: what is left out, hosts assume, and not what one would think. Of what only reads the two in the
        # middle mean nothing, and are left out.
        changes = {} if reads else {"destructiveHint": destroys, "idempotentHint": repeatable}
        self._hints = {"readOnlyHint": reads, **changes, "openWorldHint": is_open}

    def describe(self) -> dict[str, object]:
        """What ``tools/list`` says of it."""
        doc = schema.parse_doc(self._function.__doc__ or "")
        return {
            "name": self.name,
            "title": self._title,
            "description": doc.text,
            "inputSchema": self._schema,
            "outputSchema": envelope.build_schema(doc.returns),
            "annotations": {"title": self._title, **self._hints},
        }

    def call(self, arguments: Mapping[str, object], call: Call) -> dict[str, object]:
        """Do it; the result as ``tools/call`` has it, also of a failure."""
        try:
            checked = schema.check_arguments(self._schema, arguments)
            more = {_CALL: call} if self._takes_call else {}
            return envelope.build_success(self._function(**checked, **more))
        except errors.VmnestError as error:
            return self._fail(error)
        except ModuleNotFoundError as error:
            from ...ops.checks import host

            missing = host.missing(error)
            if missing is None:
                raise
            return self._fail(missing)

    def _fail(self, error: errors.VmnestError) -> dict[str, object]:
        properties = self._schema.get("properties")
        hint = wording.reword(error.hint, properties if isinstance(properties, dict) else {})
        return envelope.build_failure(error, hint=hint)
