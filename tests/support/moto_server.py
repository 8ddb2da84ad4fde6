"""moto as a process of its own: an independent judge of signatures, and an STS."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


@contextmanager
def serving_moto() -> Iterator[str]:
    """The URL of a moto that believes everybody, until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.stdin.close()
            process.wait(20)


def switch_on_authentication(url: str, *, after: int = 0) -> None:
    """From now on, or after so many requests, it refuses what is not signed well, or not allowed."""
    # Bare: of a form, which urllib would declare, moto takes the body away.
    headers = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(f"{url}/moto-api/reset-auth", data=str(after).encode(), headers=headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        answer.read()
