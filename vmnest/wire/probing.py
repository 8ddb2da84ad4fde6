"""Whether a peer is still there that says nothing any more."""

from __future__ import annotations

import contextlib
import socket

__all__ = ["PROBE_SECONDS", "probe"]

PROBE_SECONDS = 15
_PROBES = 4


def probe(sock: socket.socket, *, seconds: int = PROBE_SECONDS) -> None:
    """Have the system ask again and again whether the peer is still there; ``poll`` shows an error once it is not.

    For a peer that has ended its side: whether it has only done that, or closed its socket, the connection itself does
    not tell. A closed socket answers no more after its system has forgotten it (``tcp_fin_timeout``, 60 s).
    """
    with contextlib.suppress(OSError):  # not TCP: then its end shows by itself
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", seconds), ("TCP_KEEPINTVL", seconds), ("TCP_KEEPCNT", _PROBES)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
