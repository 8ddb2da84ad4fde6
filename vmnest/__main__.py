"""``python -m vmnest``: the command line."""

from __future__ import annotations

from .cli.main import console

if __name__ == "__main__":
    console()
