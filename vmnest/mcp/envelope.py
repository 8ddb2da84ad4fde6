"""What every tool answers: ``{"ok": true, "data": ...}``, or ``{"ok": false, "error": {...}}``.

The same goes out as text and as structured content: some hosts show a model only one of them. A tool that fails answers
``isError``, so that the model reads why; a command that ends with a status other than 0 is a result, no failure.
"""

from __future__ import annotations

import json

from .. import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MOST_LINE_BYTES", "build_failure", "build_schema", "build_success", "cap_text", "measure"]

USUAL_CHARACTERS = 20_000  # of output; what is more costs the model more than it tells it
MOST_LINE_BYTES = 4 << 20  # some clients close the connection at 10 MiB, and no model reads as much
MOST_COST = 25  # bytes of the line for a character, at the worst: one that is no ASCII, as JSON and as JSON in JSON
SHORT_TEXT = 1000


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
    """The result of a tool that did what it shall; what is too long for a line loses the middle of its texts."""
    result = _build({"ok": True, "data": data}, is_error=False)
    while not _fits(result):
        shorter = _shorten(data)
        if shorter == data:
            most = f"{MOST_LINE_BYTES >> 20} MiB"
            return build_failure(
                errors.AnswerTooLargeError(
                    f"the answer is longer than {most}", hint="Ask for a part of it: max_bytes, limit, or a name."
                )
            )
        assert isinstance(shorter, dict)
        data = shorter
        result = _build({"ok": True, "data": data}, is_error=False)
    return result


def build_failure(error: errors.VmnestError, *, hint: str | None = None) -> dict[str, object]:
    """The result of a tool that could not; ``hint``: the error's in other words."""
    told = error.to_wire() if hint is None else {**error.to_wire(), "hint": errors.redact(hint)}
    return _build({"ok": False, "error": told}, is_error=True)


def _build(envelope: Mapping[str, object], *, is_error: bool) -> dict[str, object]:
    text = json.dumps(envelope, ensure_ascii=False, allow_nan=False)
    return {"content": [{"type": "text", "text": text}], "structuredContent": envelope, "isError": is_error}


def _fits(result: Mapping[str, object]) -> bool:
    """It goes on a line that all clients take."""
    text = json.dumps(result["structuredContent"], ensure_ascii=False)
    if len(text) * MOST_COST < MOST_LINE_BYTES:
        return True
    return _count(text, result["structuredContent"]) < MOST_LINE_BYTES


def measure(data: Mapping[str, object]) -> int:
    """Bytes of the line that answers with these data: what is no ASCII, or is escaped, takes many times its place."""
    return _count(json.dumps(data, ensure_ascii=False), data)


def _count(text: str, structured: object) -> int:
    return len(json.dumps(text)) + len(json.dumps(structured))


def _shorten(value: object) -> object:
    """The same with half of each long text that tells how much of it there is."""
    if isinstance(value, list):
        return [_shorten(each) for each in value]
    if not isinstance(value, dict):
        return value
    text, total = value.get("text"), value.get("total_bytes")
    if isinstance(text, str) and isinstance(total, int) and len(text) > SHORT_TEXT:
        return {**value, **(_cut_base64 if "encoding" in value else _cut_text)(text, total)}
    return {name: _shorten(member) for name, member in value.items()}


def _cut_text(text: str, total: int) -> dict[str, object]:
    return cap_text(text, most=len(text) // 2, total=total)


def _cut_base64(text: str, total: int) -> dict[str, object]:
    """Of what is no text the beginning: its end could not be told from it."""
    kept = text[: len(text) // 8 * 4]
    count = len(kept) // 4 * 3
    return {"text": kept, "truncated": True, "total_bytes": total, "returned_bytes": count, "left_out_at": count}


def cap_text(text: str, *, most: int = USUAL_CHARACTERS, total: int | None = None) -> dict[str, object]:
    """Text of which too much is left out in its middle, with how much there is.

    Args:
        text: The text.
        most: How many characters are kept, half of them of its end.
        total: Its bytes, if something has been left out in its middle before.
    """
    total = len(text.encode("utf-8", "surrogatepass")) if total is None else total
    if len(text) <= most:
        return {"text": text, "truncated": False, "total_bytes": total, "returned_bytes": total}
    head, tail = text[: most - most // 2], text[len(text) - most // 2 :]
    kept = len(head.encode("utf-8", "surrogatepass")) + len(tail.encode("utf-8", "surrogatepass"))
    shown = f"{head}\n[... {total - kept} bytes are left out here ...]\n{tail}"
    return {"text": shown, "truncated": True, "total_bytes": total, "returned_bytes": kept}
