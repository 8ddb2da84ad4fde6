"""Output of commands as a model gets it: not more than it can read, and what is missing is told."""

from __future__ import annotations

import base64

from ... import errors, settings
from ..._guest.agentd import wire
from .. import envelope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LINE_BYTES", "default_timeout", "fits", "resolve_limit", "shape_result", "shape_stream", "shrink"]

LINE_BYTES = 3 << 20  # of the data in an answer; with all that is around them, it stays below the most of a line


def resolve_limit(max_bytes: int | None) -> int:
    """Bytes of output that a call may answer with.

    Raises:
        errors.UsageError: more are wanted than AGENT_SANDBOX_MCP_MAX_OUTPUT_BYTES allows.
    """
    most = settings.number("mcp_max_output_bytes")
    if max_bytes is None:
        return min(envelope.USUAL_CHARACTERS, most)
    if not 1 <= max_bytes <= most:
        raise errors.UsageError(
            f"max_bytes must be from 1 to {most}: {max_bytes}",
            hint="AGENT_SANDBOX_MCP_MAX_OUTPUT_BYTES sets the most; or write the output to a file, and read its parts.",
        )
    return max_bytes


def fits(data: Mapping[str, object]) -> bool:
    """They go into an answer."""
    return envelope.measure(data) <= LINE_BYTES


def shrink(most: int, data: Mapping[str, object]) -> int:
    """How much to ask for when asking for so much has brought data that do not fit."""
    return max(1, most * LINE_BYTES // envelope.measure(data) * 3 // 4)


def default_timeout() -> float:
    """Seconds after which a command is ended if nobody says otherwise."""
    return settings.number("mcp_default_timeout_ms") / 1000


def shape_stream(text: str, *, encoding: str = wire.ENCODING_TEXT, missing: object = None) -> dict[str, object]:
    """One stream: its text, and how much of it there was.

    Args:
        text: What was kept of it.
        encoding: ``utf-8``, or ``base64`` of what is no text.
        missing: ``{"position", "bytes"}`` of what was not kept in its middle, or None. Text shows where that was; of
            other bytes ``left_out_at`` is how many come before it.
    """
    is_text = encoding == wire.ENCODING_TEXT
    kept = len(text.encode("utf-8", "surrogatepass")) if is_text else len(base64.b64decode(text))
    shown: dict[str, object] = {"text": text, "truncated": False, "total_bytes": kept, "returned_bytes": kept}
    if isinstance(missing, dict):
        count, position = missing["bytes"], missing["position"]
        shown |= {"truncated": True, "total_bytes": kept + count}
        if not is_text:
            shown["left_out_at"] = position
        else:
            data = text.encode("utf-8", "surrogatepass")
            head, tail = (part.decode("utf-8", "replace") for part in (data[:position], data[position:]))
            shown["text"] = f"{head}\n[... {count} bytes are left out here ...]\n{tail}"
    return shown if is_text else {**shown, "encoding": encoding}


def shape_result(data: Mapping[str, object]) -> dict[str, object]:
    """A command's end, as ``ops.commands.describe`` has it."""
    encodings, missing = data["encoding"], data["missing"]
    assert isinstance(encodings, dict)
    assert isinstance(missing, dict)
    streams = {
        stream: shape_stream(str(data[stream]), encoding=encodings[stream], missing=missing[stream])
        for stream in ("stdout", "stderr")
    }
    return {
        "exit_code": data["exit_code"],
        "success": data["exit_code"] == 0,
        "signal": data["signal"],
        "timed_out": data["timed_out"],
        "running": False,
        **streams,
    }
