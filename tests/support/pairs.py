"""Connections between two sockets of a test: over TCP, and with TLS on it."""

from __future__ import annotations

import socket
import ssl

from tests.support.authority import Authority

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a new connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        left = socket.create_connection(listener.getsockname())
        return left, listener.accept()[0]


def secured(
    left: socket.socket, right: socket.socket, authority: Authority, version: ssl.TLSVersion
) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """The same two after a handshake, not blocking; the left one is the client."""
    trust = ssl.create_default_context(cafile=str(authority.bundle))
    trust.maximum_version = version
    own = authority.context("localhost")
    for each in (left, right):
        each.setblocking(False)
    client = trust.wrap_socket(left, server_hostname="localhost", do_handshake_on_connect=False)
    server = own.wrap_socket(right, server_side=True, do_handshake_on_connect=False)
    waiting = {client, server}
    while waiting:
        for each in list(waiting):
            try:
                each.do_handshake()
                waiting.remove(each)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
    return client, server
