"""Output as lines of JSON while it comes: text where it is text, else base64.

A line is ``{"stream", "data", "encoding", "offset"}``; what is not kept any more is ``{"stream": "gap", "missing",
"offset"}``. An offset counts the bytes of all streams before the line's own. A character whose bytes come in two pieces
is not torn: its beginning waits for its end, unless something else comes between.
"""

from __future__ import annotations

from ..ops import commands
from . import render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .console import Piece

__all__ = ["Lines"]

_LONGEST_BEGINNING_BYTES = 3  # of a character in UTF-8 whose end has not come
_GAP = "gap"


class Lines:
    """Pieces of output in, lines of JSON out.

    Attributes:
        offset: How many bytes of output stand before what comes next.
    """

    def __init__(self, *, offset: int = 0) -> None:
        self.offset = offset
        self._stream = ""
        self._held = b""  # the beginning of a character, which came last, from this stream

    def feed(self, piece: Piece) -> str:
        """The lines, none or some, that a piece completes."""
        if piece.stream == _GAP:
            lines = self.finish() + _gap(piece.missing, offset=self.offset)
            self.offset += piece.missing
            return lines
        lines = self.finish() if piece.stream != self._stream else ""
        data = self._held + piece.data
        begin = self.offset - len(self._held)
        whole = len(data) - _count_beginning(data)
        self.offset += len(piece.data)
        self._stream, self._held = piece.stream, data[whole:]
        return lines + _line(piece.stream, data[:whole], offset=begin)

    def finish(self) -> str:
        """The line, if any, for what still waited."""
        held, self._held = self._held, b""
        return _line(self._stream, held, offset=self.offset - len(held))


def _count_beginning(data: bytes) -> int:
    """How many bytes at the end of text are the beginning of a character; 0 for what is no text at all."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        count = len(data) - error.start
        is_cut = error.reason == "unexpected end of data"
        return count if is_cut and error.end == len(data) and count <= _LONGEST_BEGINNING_BYTES else 0
    return 0


def _line(stream: str, data: bytes, *, offset: int) -> str:
    if not data:
        return ""
    text, encoding = commands.to_text(data)
    return render.render_json({"stream": stream, "data": text, "encoding": encoding, "offset": offset})


def _gap(missing: int, *, offset: int) -> str:
    return render.render_json({"stream": _GAP, "missing": missing, "offset": offset})
