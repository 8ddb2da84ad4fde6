"""What a program in a sandbox sees of the machine around it. ``tools/try`` runs this inside one.

Arguments: paths of the host that it tries to read.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path


def show(what: str, attempt: Callable[[], object]) -> None:
    """One line: what was tried, and what came of it."""
    try:
        outcome = str(attempt())
    except OSError as error:
        outcome = f"no: {error.strerror or error}"
    print(f"{what:<24} {outcome}")


def read(path: Path) -> str:
    return f"{len(list(path.iterdir()))} entries" if path.is_dir() else f"{len(path.read_bytes())} bytes"


def write(path: Path) -> str:
    path.write_text("hello")
    path.unlink()
    return "yes"


def connect(host: str, port: int) -> str:
    with socket.create_connection((host, port), timeout=2):
        return "yes"


def main() -> None:
    show("user and group", lambda: f"{os.getuid()}:{os.getgid()}")
    show("working directory", os.getcwd)
    show("top-level directories", lambda: " ".join(sorted(os.listdir("/"))))
    show("processes", lambda: sum(name.isdigit() for name in os.listdir("/proc")))
    show("network interfaces", lambda: " ".join(name for _, name in socket.if_nameindex()))
    show("connect to 192.0.2.1:80", lambda: connect("192.0.2.1", 80))
    for name in sys.argv[1:]:
        show(f"read {name}", lambda path=Path(name): read(path))  # type: ignore[misc] # binds the path of this round
    show("write to /work", lambda: write(Path("/work/note")))
    show("write to /usr", lambda: f"{write(Path('/usr/note'))}, to a layer of this sandbox alone")


main()
