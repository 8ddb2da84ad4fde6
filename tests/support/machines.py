"""Machines without isolation, for tests of what stands above the driver: their ports are loopback servers."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping

from tests.support import image_stage
from vmnest import errors
from vmnest.local import network_connectors, operations, records, timers, tokens, vms
from vmnest.local.drivers import interface
from vmnest.wire import bodies, http1, streams

Script = Callable[[streams.Stream], None]


@contextlib.contextmanager
def scripted_server(script: Script) -> Iterator[int]:
    """A loopback server whose connections are each answered by ``script``; gives its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []
    open_sockets: list[socket.socket] = []

    def serve(sock: socket.socket) -> None:
        with sock, contextlib.suppress(ConnectionError):
            script(streams.Stream(sock))

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.settimeout(20)
            open_sockets.append(sock)
            threads.append(threading.Thread(target=serve, args=(sock,)))
            threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        for sock in open_sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def read_request(stream: streams.Stream) -> tuple[http1.Request, bytes] | None:
    """The next request on a connection and its body, or None at its end."""
    head = stream.read_head()
    if head is None:
        return None
    request = http1.parse_request(head)
    return request, b"".join(stream.body(bodies.BodyDecoder(http1.request_framing(request))))


class Hooks:
    """A server of lifecycle hooks that writes down what it was told. ``statuses`` says what it answers."""

    def __init__(self) -> None:
        self.seen: list[tuple[http1.Request, bytes]] = []
        self.statuses: dict[str, int] = {}
        self.hold: threading.Event | None = None

    def names(self) -> list[str]:
        """The hooks that were called, in order."""
        return [request.target.rpartition("/")[2] for request, _ in self.seen]

    def __call__(self, stream: streams.Stream) -> None:
        while (got := read_request(stream)) is not None:
            self.seen.append(got)
            if self.hold is not None:
                self.hold.wait(20)
            status = self.statuses.get(got[0].target.rpartition("/")[2], 200)
            stream.send(f"HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\n{{}}".encode())


class FakeMachine:
    """A machine whose guest ports are loopback ports. ``freeze_failure`` makes its next freezing fail."""

    def __init__(self, ports: Mapping[int, int], *, on_end: Callable[[interface.Ended], None]) -> None:
        self.ports = dict(ports)
        self.ended: interface.Ended | None = None
        self.facts: Mapping[str, object] = {"isolation": "namespace", "enforced": "watch"}
        self.is_frozen = False
        self.freeze_failure: Exception | None = None
        self.dialled: list[int] = []
        self.ways_out: list[int] = []  # ports of the listeners that were handed out
        self.way_out_failure: Exception | None = None
        self.on_end = on_end
        self._lock = threading.Lock()

    def dial(self, port: int, *, timeout: float) -> socket.socket:
        self._check_alive()
        self.dialled.append(port)
        if port not in self.ports:
            raise ConnectionRefusedError
        return socket.create_connection(("127.0.0.1", self.ports[port]), timeout=timeout)

    def egress_listener(self) -> socket.socket:
        self._check_alive()
        if self.way_out_failure is not None:
            raise self.way_out_failure
        listener = socket.create_server(("127.0.0.1", 0))
        self.ways_out.append(listener.getsockname()[1])
        return listener

    def freeze(self) -> None:
        self._check_alive()
        if self.freeze_failure is not None:
            raise self.freeze_failure
        self.is_frozen = True

    def thaw(self) -> None:
        self._check_alive()
        self.is_frozen = False

    def _check_alive(self) -> None:
        if self.ended is not None:
            raise errors.LocalCloudError("the machine is gone")

    def stop(self, *, grace: float = 0) -> None:
        self.end(interface.Ended(None, 9, interface.STOPPED))

    def end(self, ended: interface.Ended) -> None:
        """End for that reason, as if by itself."""
        with self._lock:
            if self.ended is not None:
                return
            self.ended = ended
        self.on_end(ended)


class FakeDriver:
    """Starts FakeMachines. ``gate`` holds starts back until it is set; ``failure`` makes them fail.

    ``running`` has the machines of an earlier daemon, by folder: they can be adopted; ``recorded`` has others' ends.
    """

    name = "fake"
    isolation = "namespace"
    writable = "disk"
    obstacle_to_images = ""
    owner = None

    def __init__(self, ports: Mapping[int, int]) -> None:
        self.ports = ports
        self.launches: list[interface.Launch] = []
        self.machines: list[FakeMachine] = []
        self.discarded: list[str] = []
        self.running: dict[str, FakeMachine] = {}
        self.adopted: list[str] = []
        self.recorded: dict[str, interface.Ended] = {}
        self.gate: threading.Event | None = None
        self.failure: Exception | None = None

    def start(self, launch: interface.Launch, *, on_end: Callable[[interface.Ended], None]) -> FakeMachine:
        self.launches.append(launch)
        if self.gate is not None:
            self.gate.wait(20)
        if self.failure is not None:
            raise self.failure
        self.machines.append(FakeMachine(self.ports, on_end=on_end))
        return self.machines[-1]

    def image_base(self) -> str:
        return "base"

    def image_environment(self) -> Mapping[str, str]:
        return {"PATH": "/bin"}

    def adopt(self, folder: str, *, on_end: Callable[[interface.Ended], None]) -> FakeMachine | None:
        machine = self.running.get(folder)
        if machine is None or machine.ended is not None:
            return None
        self.adopted.append(folder)
        machine.on_end = on_end
        return machine

    def discard(self, folder: str) -> interface.Ended | None:
        self.discarded.append(folder)
        return self.recorded.get(folder)

    def close(self) -> None:
        return None


class FakeCloud:
    """All that operations work on, over a FakeDriver whose VMs have a hook server."""

    def __init__(self, folder: str, *, hooks_port: int) -> None:
        self.driver = FakeDriver({9000: hooks_port})
        self.timers = timers.Timers()
        self.seal = tokens.Seal("test")
        self._listeners: list[socket.socket] = []
        self.vms = vms.VMs(
            self.driver,
            vms.Settings(folder=folder, disk_bytes=1 << 30),
            timers=self.timers,
            publish=lambda record: self._listeners.append(record.listener),
            retire=lambda listener: None,
        )
        self.images = image_stage.ImageStage(folder, live=self._live)
        self.connectors = network_connectors.NetworkConnectors(folder, may_do=lambda role, action: True)
        self.cloud = operations.Cloud(
            vms=self.vms,
            images=self.images.images,
            tags=self.images.tags,
            connectors=self.connectors,
            seal=self.seal,
        )

    def _live(self) -> list[records.Spec]:
        return [record.spec for record in self.vms.all() if not record.is_ended]

    def close(self) -> None:
        self.images.close()
        self.vms.close()
        self.timers.close()
        for listener in self._listeners:
            listener.close()


@contextlib.contextmanager
def open_fake_cloud(folder: str | os.PathLike[str], hooks: Hooks | None = None) -> Iterator[FakeCloud]:
    """A FakeCloud in ``folder``; its VMs' hooks are answered by ``hooks``."""
    with scripted_server(hooks or Hooks()) as port:
        one = FakeCloud(str(folder), hooks_port=port)
        one.timers.start()
        try:
            yield one
        finally:
            if one.driver.gate is not None:
                one.driver.gate.set()
            one.close()
