"""A MicroVM's endpoint with an application behind it, in a process of its own, so that it costs a forwarder no time.

    python endpoint.py [CERTIFICATE KEY]

It prints its port, and serves ``/bytes/N``, ``/events`` (ten of them, 50 ms apart, each with the moment at which it was
sent), ``/echo``, an upgrade after which it greets with four bytes and sends back each message that it gets, and
``/socket``, one after which it says nothing. Messages have 16 bits of length and a mask of zeros.

Its agent has no extensions; as a control plane it knows GetMicrovm. It checks nothing.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import sys
import threading
import time

BLOCK = bytes(1 << 20)
EVENTS = 10
PAUSE_SECONDS = 0.05
MICROVM = {
    "state": "RUNNING",
    "endpoint": "microvm.example.com",
    "imageArn": "arn:aws:lambda:us-east-1:123456789012:microvm-image:bench",
    "imageVersion": "1.0",
    "maximumDurationInSeconds": 28800,
    "startedAt": 1760000000.0,
}


def _serve(raw: socket.socket, context: ssl.SSLContext | None) -> None:
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError), raw:
        sock = raw if context is None else context.wrap_socket(raw, server_side=True)
        with sock:
            received = b""
            while True:
                while b"\r\n\r\n" not in received:
                    data = sock.recv(65536)
                    if not data:
                        return
                    received += data
                head, _, received = received.partition(b"\r\n\r\n")
                if not _answer(sock, head.split(b" ", 2)[1].decode()):
                    return


def _answer(sock: socket.socket, target: str) -> bool:
    if target.startswith("/bytes/"):
        _send_bytes(sock, int(target.rpartition("/")[2]))
    elif target == "/events":
        _send_events(sock)
    elif target in ("/socket", "/echo"):
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        if target == "/echo":
            _echo(sock)
        sock.recv(1)
        return False
    elif "/microvms/" in target:
        _send_json(sock, {**MICROVM, "microvmId": target.rpartition("/")[2]})
    else:
        _send_json(sock, {"status": "ok"})
    return True


def _echo(sock: socket.socket) -> None:
    sock.sendall(b"\x82\x02hi")
    with sock.makefile("rb") as file:
        while head := file.read(8):
            sock.sendall(b"\x82\x7e" + head[2:4] + file.read(int.from_bytes(head[2:4], "big")))


def _send_json(sock: socket.socket, answer: dict[str, object]) -> None:
    body = json.dumps(answer).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    sock.sendall(head + body)


def _send_bytes(sock: socket.socket, count: int) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % count
    if count < 65536:
        sock.sendall(head + BLOCK[:count])
        return
    sock.sendall(head)
    while count:
        piece = BLOCK[:count]
        sock.sendall(piece)
        count -= len(piece)


def _send_events(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(EVENTS):
        event = b"data: %d\n\n" % time.monotonic_ns()
        sock.sendall(b"%x\r\n%s\r\n" % (len(event), event))
        time.sleep(PAUSE_SECONDS)
    sock.sendall(b"0\r\n\r\n")


def main() -> None:
    context = None
    if len(sys.argv) > 1:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*sys.argv[1:])
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=_serve, args=(sock, context), daemon=True).start()


if __name__ == "__main__":
    main()
