"""Who attends to a command for a call; what it does in a sandbox is in test_execution."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.mcp_tools import Tools
from vmnest import errors
from vmnest.agent.outputs import Chunk
from vmnest.mcp.tools import attendance


class Script:
    """A process of which everything is known before."""

    id = "p"
    command = ("/bin/bash", "-lc", "x")
    is_pty = False
    signal_name = None
    timed_out = False
    offset = 7

    def __init__(self, *pieces: bytes, exit_code: int | None) -> None:
        self._pieces = list(pieces)
        self.exit_code = exit_code

    def chunks(self, *, timeout: float | None = None) -> Iterator[Chunk]:
        if self._pieces:
            yield Chunk("stdout", self._pieces.pop(0), 0)
        elif self.exit_code is None:
            raise errors.WaitTimeoutError("nothing more")


def test_the_end_is_a_result(tools: Tools) -> None:
    attendant = attendance.Attendant(tools.open(), limit=100)
    result = attendant.attend(Script(b"a", b"b", exit_code=3))  # type: ignore[arg-type]
    assert result is not None
    assert (result.exit_code, result.stdout, attendant.left, attendant.program) == (3, b"ab", None, "/bin/bash")


def test_what_goes_on_is_left_with_what_was_seen(tools: Tools) -> None:
    attendant = attendance.Attendant(tools.open(), limit=100)
    assert attendant.attend(Script(b"a", exit_code=None)) is None  # type: ignore[arg-type]
    assert attendant.left is not None
    assert {name: attendant.left[name] for name in ("running", "exit_code", "success", "id", "next_offset")} == {
        "running": True,
        "exit_code": None,
        "success": None,
        "id": "p",
        "next_offset": 7,
    }
