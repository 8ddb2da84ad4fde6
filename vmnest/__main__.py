"""The command line's door: ``python -m vmnest``, and what the installed script calls."""

from __future__ import annotations

# What lies under ``signal``, which takes so long to load that a signal may come meanwhile.
import _signal  # type: ignore[import-not-found]
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def console() -> NoReturn:
    """The program."""
    if sys.argv[1:] == ["mcp"]:
        # A server takes standard output before anything could print there; nor has its client time for a command line.
        from .mcp import __main__ as server

        server.console()
    # Until the command line is loaded and can tell of it, Ctrl+C ends us as it ends any program: by the signal, and
    # without a traceback of modules that were just being loaded.
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from .cli import main

    main.console()


if __name__ == "__main__":
    console()
