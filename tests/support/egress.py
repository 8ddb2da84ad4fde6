"""A gate whose outside is made up: names lead where a test says, and addresses to servers on this machine."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence

from vmnest.local.egress import Gate, Outlet, conversation
from vmnest.wire import egress, http1, streams

PUBLIC = "203.0.113.7"  # of a network for documentation: public, as far as we are concerned
OTHER = "203.0.113.8"


class World:
    """The outside.

    Attributes:
        names: Name -> what its lookups find, one after the other, the last for ever.
        servers: Address and port -> port on this machine; all other addresses refuse.
        looked_up: Every name that was.
        connected: Every address and port that was tried.
        environ: Where the proxies of this machine are named.
    """

    def __init__(
        self,
        names: Mapping[str, Sequence[Sequence[str]]] | None = None,
        servers: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        self.names = {name: list(found) for name, found in (names or {}).items()}
        self.servers = dict(servers or {})
        self.environ: Mapping[str, str] = {}
        self.looked_up: list[str] = []
        self.connected: list[tuple[str, int]] = []

    def resolve(self, host: str) -> Sequence[str]:
        self.looked_up.append(host)
        found = self.names.get(host)
        if found is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found.pop(0) if len(found) > 1 else found[0]

    def connect(self, sock: socket.socket, place: tuple[str, int]) -> None:
        self.connected.append(place)
        port = self.servers.get(place)
        if port is None:
            raise ConnectionRefusedError("nothing is there")
        sock.connect(("::1" if sock.family == socket.AF_INET6 else "127.0.0.1", port))

    def outlet(self, **environ: str) -> Outlet:
        """What makes connections in this world, with these variables in its environment, or those of the world."""
        return Outlet(environ or self.environ, resolve=self.resolve, is_own=lambda address: False, connect=self.connect)


class Way:
    """An open gate, and how to get to it."""

    def __init__(self, gate: Gate, port: int, lines: list[str]) -> None:
        self.gate = gate
        self.port = port
        self.lines = lines

    def dial(self) -> streams.Stream:
        """A connection to the proxy."""
        return streams.Stream(socket.create_connection(("127.0.0.1", self.port), timeout=20))

    def ask(self, data: bytes) -> tuple[int, bytes]:
        """Status and all else that is answered to these bytes, on a connection of their own."""
        stream = self.dial()
        with stream.socket:
            stream.send(data)
            return read_answer(stream)

    def tunnel(self, place: str) -> streams.Stream:
        """A connection through a tunnel."""
        stream = self.dial()
        stream.send(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
        head = stream.read_head()
        assert head is not None
        assert http1.parse_response(head).status == 200, head
        return stream


def read_answer(stream: streams.Stream) -> tuple[int, bytes]:
    """Status of an answer, and everything up to the end of the connection."""
    head = stream.read_head()
    if head is None:
        return 0, b""
    return http1.parse_response(head).status, b"".join(iter(stream.receive, b""))


@contextlib.contextmanager
def open_way(
    *allowed: str, world: World | None = None, patience: conversation.Patience | None = None, **options: int
) -> Iterator[Way]:
    """A gate for these rules that listens on a port of this machine."""
    lines: list[str] = []
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    port = listener.getsockname()[1]
    gate = Gate(egress.parse(allowed), lines.append, outlet=(world or World()).outlet(), patience=patience, **options)
    gate.serve(listener)
    try:
        yield Way(gate, port, lines)
    finally:
        gate.close()
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("egress")]
    assert not left, f"threads outlived their gate: {left}"


def hello(name: str | None, *, context: ssl.SSLContext | None = None) -> bytes:
    """What a TLS client says first that wants the server of that name."""
    context = context or _trusting()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
