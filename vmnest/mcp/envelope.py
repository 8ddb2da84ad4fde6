"""What every tool answers: ``{"ok": true, "data": ...}``, or ``{"ok": false, "error": {...}}``.

The same goes out as text and as structured content: some hosts show a model only one of them. A tool that fails answers
``isError``, so that the model reads why; a command that ends with a status other than 0 is a result, no failure.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .. import errors

__all__ = ["build_failure", "build_schema", "build_success", "cap_text"]

USUAL_CHARACTERS = 20_000  # of output; what is more costs the model more than it tells it


def build_schema(returns: str) -> dict[str, object]:
    """The schema of a tool's answer, whose data are described by ``returns``. Short: there are dozens of it."""
    return {
        "type": "object",
        "properties": {
            "ok": {"type": "boolean"},
            "data": {"type": "object", "description": returns},
        },
        "required": ["ok"],
    }


def build_success(data: Mapping[str, object]) -> dict[str, object]:
    """The result of a tool that did what it shall."""
    return _build({"ok": True, "data": data}, is_error=False)


def build_failure(error: errors.VmnestError) -> dict[str, object]:
    """The result of a tool that could not."""
    return _build({"ok": False, "error": error.to_wire()}, is_error=True)


def _build(envelope: Mapping[str, object], *, is_error: bool) -> dict[str, object]:
    text = json.dumps(envelope, ensure_ascii=False, allow_nan=False)
    return {"content": [{"type": "text", "text": text}], "structuredContent": envelope, "isError": is_error}


def cap_text(text: str, *, most: int = USUAL_CHARACTERS) -> dict[str, object]:
    """Text of which too much is left out in its middle, with how much there is.

    Args:
        text: The text.
        most: How many characters are kept, half of them of its end.
    """
    total = len(text.encode("utf-8", "surrogatepass"))
    if len(text) <= most:
        return {"text": text, "truncated": False, "total_bytes": total, "returned_bytes": total}
    head, tail = text[: most - most // 2], text[len(text) - most // 2 :]
    kept = len(head.encode("utf-8", "surrogatepass")) + len(tail.encode("utf-8", "surrogatepass"))
    shown = f"{head}\n[... {total - kept} bytes are left out here ...]\n{tail}"
    return {"text": shown, "truncated": True, "total_bytes": total, "returned_bytes": kept}
