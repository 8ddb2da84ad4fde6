"""The libraries of both sides at work in processes of their own: what they take, by ``client.py``."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

CLIENT = Path(__file__).with_name("client.py")


class Done(NamedTuple):
    """What a piece of work took, and the largest memory of the process that did it."""

    milliseconds: float
    mib: float


def work(
    side: str,
    environment: Path,
    *,
    url: str,
    action: str,
    words: Sequence[object],
    environ: Mapping[str, str] | None = None,
) -> Done:
    """Let the library of a side do something with what is at ``url``."""
    command = [str(environment / "bin/python"), str(CLIENT), side, url, action, *(str(word) for word in words)]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"{side}: {action}: exit status {done.returncode}")
    return Done(**json.loads(done.stdout))


def system_bundle() -> Path:
    """The certificates that this machine trusts, in one file."""
    found = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    if not Path(found).is_file():
        raise SystemExit(
            f"{found}: this machine has no bundle of certificates (Debian: apt-get install ca-certificates)"
        )
    return Path(found)
