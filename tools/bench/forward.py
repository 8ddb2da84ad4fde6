"""Both forwarders side by side, in front of the same endpoint, over HTTP and over TLS."""

from __future__ import annotations

import resource
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import certificates
import commands
import fake_cloud
import load
import processes
from enclosure import SIDES
from figures import Figure

LARGE_BYTES = 200_000_000
SMALL_GETS = 200
NEW_CLIENTS = 64
NEW_CONNECTIONS = 192
NEW_TLS_CONNECTIONS = 100
IDLE_SOCKETS = 1000
ECHOES = 500
PATIENCE_SECONDS = 30.0
ENDPOINT = Path(__file__).with_name("endpoint.py")
HEAD = b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: %s\r\n\r\n"
UPGRADE = (
    b"GET /socket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_REMOTE_PORT = 3000


def measure(*, ours: Path, theirs: Path, folder: Path, rounds: int) -> Iterator[Figure]:
    """Large and small answers, new connections, events and idle WebSockets."""
    _raise_limit_of_files()
    places = {"ours": ours, "theirs": theirs}
    yield from _measure_starts(places, folder=folder, rounds=rounds)
    with forwarders(places, folder=folder) as both:
        yield from _measure_large(both, name="http", goal=0.5, rounds=rounds)
        yield from _measure_small(both, name="http", rounds=rounds)
        yield from _measure_new_clients(both, rounds=rounds)
        yield from _measure_events(both, rounds=rounds)
        yield from _measure_echoes(both, name="http", sides=SIDES, rounds=rounds)
        yield _measure_idle_sockets(both["ours"])
    with forwarders(places, folder=folder, certificate=certificates.make(folder)) as both:
        yield from _measure_large(both, name="https", goal=0.77, rounds=rounds)
        yield from _measure_small(both, name="https", rounds=rounds)
        yield _measure_new_connections(both, name="new https connection, p50", goal=1.2, rounds=rounds)
        # Two threads of theirs share one TLS connection: now and then it breaks.
        yield from _measure_echoes(both, name="https", sides=("ours",), rounds=rounds)


class Forwarder:
    """A forwarder that listens on ``address``; ``milliseconds`` is what it took to get there."""

    def __init__(self, side: str, *, environment: Path, environ: dict[str, str], is_tls: bool) -> None:
        self.side = side
        self.address = ("127.0.0.1", _free_port())
        words = ["forward", "app", "-r", str(_REMOTE_PORT), "-l", str(self.address[1])]
        start = time.perf_counter()
        self.process = subprocess.Popen(
            [str(environment / "bin/vmnest"), *words, *(["--no-verify-tls"] if is_tls else [])],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + PATIENCE_SECONDS
        while not self._listens():
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{side}: the forwarder does not listen")
            time.sleep(0.002)
        self.milliseconds = (time.perf_counter() - start) * 1e3

    def _listens(self) -> bool:
        try:
            socket.create_connection(self.address, timeout=5).close()
        except OSError:
            return False
        return True

    def dial(self) -> socket.socket:
        """A new connection."""
        sock = socket.create_connection(self.address, timeout=PATIENCE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def get(self, target: str) -> int:
        """One request on a connection of its own; how many bytes have come."""
        with self.dial() as sock:
            sock.sendall(HEAD % (target.encode(), b"close"))
            count, buffer = 0, bytearray(1 << 20)
            while received := sock.recv_into(buffer):
                count += received
        return count


@contextmanager
def _endpoint(folder: Path, *, certificate: tuple[str, str] | None = None) -> Iterator[dict[str, str]]:
    """What both lead to; the environment in which they find it."""
    with ExitStack() as stack:
        endpoint = subprocess.Popen([sys.executable, str(ENDPOINT), *(certificate or ())], stdout=subprocess.PIPE)
        stack.callback(processes.stop, endpoint)
        assert endpoint.stdout is not None
        scheme = "https" if certificate else "http"
        url = f"{scheme}://localhost:{int(endpoint.stdout.readline())}"
        cloud = stack.enter_context(fake_cloud.FakeCloud().serving())
        cloud.endpoint = url
        environ = commands.environment(folder, cloud.url)
        commands.write_state(Path(environ["AGENT_SANDBOX_STATE"]), url)
        yield environ


@contextmanager
def forwarders(
    places: dict[str, Path], *, folder: Path, certificate: tuple[str, str] | None = None
) -> Iterator[dict[str, Forwarder]]:
    """Both, in front of one endpoint."""
    with _endpoint(folder, certificate=certificate) as environ, ExitStack() as stack:
        both = {}
        for side in SIDES:
            one = Forwarder(side, environment=places[side], environ=environ, is_tls=certificate is not None)
            stack.callback(processes.stop, one.process)
            one.get("/bytes/10")
            both[side] = one
        yield both


def _measure_starts(places: dict[str, Path], *, folder: Path, rounds: int) -> Iterator[Figure]:
    milliseconds: dict[str, list[float]] = {side: [] for side in SIDES}
    mib: dict[str, list[float]] = {side: [] for side in SIDES}
    with _endpoint(folder) as environ:
        for count in range(rounds + 1):
            for side in SIDES:
                one = Forwarder(side, environment=places[side], environ=environ, is_tls=False)
                if count:
                    milliseconds[side].append(one.milliseconds)
                    mib[side].append(processes.rss_mib(one.process.pid))
                processes.stop(one.process)
    yield Figure("forward: start to listening", "ms", milliseconds["ours"], milliseconds["theirs"])
    yield Figure("forward: RSS after start", "MiB", mib["ours"], mib["theirs"])


def _measure_large(both: dict[str, Forwarder], *, name: str, goal: float, rounds: int) -> Iterator[Figure]:
    milliseconds: dict[str, list[float]] = {side: [] for side in SIDES}
    peaks: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side in SIDES:
            one = both[side]
            processes.reset_peak(one.process.pid)
            start = time.perf_counter()
            if one.get(f"/bytes/{LARGE_BYTES}") < LARGE_BYTES:
                raise SystemExit(f"{side}: the answer is not whole")
            milliseconds[side].append((time.perf_counter() - start) * 1e3)
            peaks[side].append(processes.peak_mib(one.process.pid))
    yield Figure(f"forward: 200 MB GET, {name}", "ms", milliseconds["ours"], milliseconds["theirs"], goal)
    yield Figure(f"forward: 200 MB GET, {name}, peak RSS", "MiB", peaks["ours"], peaks["theirs"], 0.05)


def _measure_small(both: dict[str, Forwarder], *, name: str, rounds: int) -> Iterator[Figure]:
    """Theirs takes a delayed acknowledgement each time: a few of them tell as much."""
    medians: dict[str, list[float]] = {side: [] for side in SIDES}
    request = HEAD % (b"/bytes/100", b"keep-alive")
    for _ in range(rounds):
        for side in SIDES:
            total = SMALL_GETS if side == "ours" else SMALL_GETS // 10
            medians[side].append(load.Loop(both[side].address, request, total, 1).run())
    yield Figure(f"forward: kept-alive GET, {name}, p50", "ms", medians["ours"], goal=1)
    yield Figure(f"forward: kept-alive GET, {name}, beside theirs", "ms", medians["ours"], medians["theirs"])


def _measure_new_clients(both: dict[str, Forwarder], *, rounds: int) -> Iterator[Figure]:
    medians: dict[str, list[float]] = {side: [] for side in SIDES}
    failed: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(min(rounds, 3)):  # theirs takes half a minute
        for side in SIDES:
            times, failures = _meet_all_at_once(both[side])
            medians[side].append(statistics.median(times))
            failed[side].append(failures)
    yield Figure("forward: 64 new clients, p50", "ms", medians["ours"], medians["theirs"], 0.02)
    yield Figure("forward: 64 new clients, failed", "", failed["ours"], goal=0)


def _meet_all_at_once(forwarder: Forwarder) -> tuple[list[float], int]:
    """What many clients wait for their answers, each on a new connection, and how many got none.

    One thread is all of them, and opens a connection in the place of each that has ended.
    """
    times: list[float] = []
    failed = 0
    with selectors.DefaultSelector() as selector, ExitStack() as stack:
        for left in range(NEW_CONNECTIONS, 0, -1):
            if NEW_CONNECTIONS - left >= NEW_CLIENTS:
                failed += not _wait_for_one(selector, times)
            start = time.perf_counter()
            sock = stack.enter_context(forwarder.dial())
            sock.sendall(HEAD % (b"/bytes/100", b"close"))
            selector.register(sock, selectors.EVENT_READ, start)
        for _ in range(NEW_CLIENTS):
            failed += not _wait_for_one(selector, times)
    return times, failed


def _wait_for_one(selector: selectors.BaseSelector, times: list[float]) -> bool:
    """Wait until one of the connections ends; whether it had an answer."""
    has_answer = False
    for key, _ in selector.select(PATIENCE_SECONDS)[:1]:
        sock = key.fileobj
        assert isinstance(sock, socket.socket)
        try:
            while data := sock.recv(65536):
                has_answer = has_answer or data.startswith(b"HTTP/1.1 200")
        except OSError:
            has_answer = False
        times.append((time.perf_counter() - key.data) * 1e3)
        selector.unregister(sock)
        sock.close()
    return has_answer


def _measure_new_connections(both: dict[str, Forwarder], *, name: str, goal: float, rounds: int) -> Figure:
    medians: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side in SIDES:
            times = []
            for _ in range(NEW_TLS_CONNECTIONS):
                start = time.perf_counter()
                both[side].get("/bytes/100")
                times.append((time.perf_counter() - start) * 1e3)
            medians[side].append(statistics.median(times))
    return Figure(f"forward: {name}", "ms", medians["ours"], medians["theirs"], goal)


def _measure_events(both: dict[str, Forwarder], *, rounds: int) -> Iterator[Figure]:
    """Theirs hands all events on at the end of the answer."""
    waits: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side in SIDES:
            waits[side].append(_wait_for_event(both[side]))
    yield Figure("forward: event to its reader", "ms", waits["ours"], goal=20)
    yield Figure("forward: event to its reader, beside theirs", "ms", waits["ours"], waits["theirs"])


def _wait_for_event(forwarder: Forwarder) -> float:
    """Milliseconds from the sending of the first of several events to its arrival."""
    with forwarder.dial() as sock:
        sock.sendall(HEAD % (b"/events", b"close"))
        received = b""
        while b"\n\n" not in received.partition(b"data: ")[2]:
            data = sock.recv(65536)
            if not data:
                raise SystemExit("the events broke off")
            received += data
        now = time.monotonic_ns()
    return (now - int(received.partition(b"data: ")[2].split()[0])) / 1e6


def _measure_echoes(both: dict[str, Forwarder], *, name: str, sides: Sequence[str], rounds: int) -> Iterator[Figure]:
    """A WebSocket of which the server speaks first: of others theirs makes nothing."""
    small: dict[str, list[float]] = {side: [] for side in SIDES}
    large: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side in sides:
            with both[side].dial() as sock:
                sock.sendall(UPGRADE.replace(b"/socket", b"/echo"))
                _await_greeting(sock)
                small[side].append(statistics.median(_echo(sock, 200, count=1) for _ in range(ECHOES)) * 1e3)
                large[side].append(_echo(sock, 50_000, count=1000))
    yield Figure(f"forward: WebSocket, {name}, 200 B there and back", "us", small["ours"], small["theirs"])
    yield Figure(f"forward: WebSocket, {name}, 50 MB there and back", "ms", large["ours"], large["theirs"])


def _await_greeting(sock: socket.socket) -> None:
    received = b""
    while not received.endswith(b"\x82\x02hi"):
        data = sock.recv(4096)
        if not data:
            raise SystemExit("a WebSocket was refused")
        received += data


def _echo(sock: socket.socket, size: int, *, count: int) -> float:
    """Milliseconds until as many messages have come back as were sent; four at most are under way."""
    message = b"\x82\xfe" + size.to_bytes(2, "big") + bytes(4 + size)  # a mask of zeros changes nothing
    start = time.perf_counter()
    sent, wanted = 0, count * (4 + size)
    received = 0
    while received < wanted:
        while sent < count and sent - received // (4 + size) < 4:
            sock.sendall(message)
            sent += 1
        data = sock.recv(1 << 20)
        if not data:
            raise SystemExit("a WebSocket broke off")
        received += len(data)
    return (time.perf_counter() - start) * 1e3


def _measure_idle_sockets(forwarder: Forwarder) -> Figure:
    """Theirs ends a WebSocket that says nothing for ten seconds."""
    with ExitStack() as stack:
        for _ in range(IDLE_SOCKETS):
            sock = stack.enter_context(forwarder.dial())
            sock.sendall(UPGRADE)
            if not sock.recv(4096).startswith(b"HTTP/1.1 101"):
                raise SystemExit("a WebSocket was refused")
        mib = processes.rss_mib(forwarder.process.pid)
    return Figure("forward: 1,000 idle WebSockets, RSS", "MiB", [mib], goal=150)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _raise_limit_of_files() -> None:
    """For both ends of all the WebSockets; the forwarder inherits it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
