"""A few bytes to a peer or from it, whatever it does meanwhile, but not for ever."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time

from ..wire.pipes import Pipe

__all__ = ["GoneError", "abort", "linger", "receive", "send"]

LINGER_SECONDS = 1.0
SEND_SECONDS = 60.0
_RECEIVE_BYTES = 65536
_RESET = struct.pack("ii", 1, 0)  # struct linger: on, and for no time at all


class GoneError(Exception):
    """The peer is gone, or has to be cut off."""


def send(pipe: Pipe, data: bytes) -> None:
    """Send all of it.

    Raises:
        GoneError: the peer is gone, or takes nothing for a minute.
    """
    end = time.monotonic() + SEND_SECONDS
    rest = memoryview(data)
    try:
        while rest := rest[pipe.send(rest) :]:
            poller = select.poll()
            poller.register(pipe, pipe.interest(reading=False, writing=True))
            if not poller.poll(max(0.0, end - time.monotonic()) * 1000):
                raise GoneError
    except OSError as error:
        raise GoneError from error


def receive(pipe: Pipe, *, seconds: float) -> bytes:
    """Some bytes; none at the end of the connection.

    Raises:
        GoneError: the peer is gone, or says nothing in time.
    """
    end = time.monotonic() + seconds
    try:
        while (data := pipe.receive(_RECEIVE_BYTES)) is None:
            poller = select.poll()
            poller.register(pipe, pipe.interest(reading=True, writing=False))
            if not poller.poll(max(0.0, end - time.monotonic()) * 1000):
                raise GoneError
    except OSError as error:
        raise GoneError from error
    return data


def linger(pipe: Pipe) -> None:
    """Read on for a moment after the last answer, which a reset would take away from a client that still sends."""
    end = time.monotonic() + LINGER_SECONDS
    pipe.ahead = b""
    pipe.end_sending()
    with contextlib.suppress(GoneError):
        while (left := end - time.monotonic()) > 0 and receive(pipe, seconds=left):
            pass


def abort(pipe: Pipe) -> None:
    """See to it that closing the connection is a reset, for a peer to which its end would mean that all went well."""
    with contextlib.suppress(OSError):
        pipe.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
