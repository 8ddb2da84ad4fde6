"""The service's own shell: a WebSocket of the client, joined to a login shell on a terminal in the VM.

On the wire it is what the service speaks: first a text ``session_init``, then the terminal's bytes as binary messages,
both ways. A client's text that asks for another size is obeyed, any other is typed. When the shell ends, the WebSocket
is closed with 1000 and no word of a status. Here the terminal is a process of the VM's agent; the client cannot tell.

Three threads join them. The client's connection is read by its own thread, which answers pings and puts what is typed
into a short queue; a second one brings it to the agent, one after the other; a third one carries output.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import socket
import threading
import time
import uuid
from collections.abc import Iterator

from .. import errors
from .._guest.agentd import frames, wire
from ..wire import bodies, http1, names, streams, websocket
from . import clients

_LOG = logging.getLogger(__name__)

CLOSE_REASON = "shell exited"
FIRST_SIZE = (80, 24)
# As the service's shell has it; its users set it anew if their terminal can more.
ENVIRONMENT = {"TERM": "xterm"}
MAX_MESSAGE_BYTES = 1024 * 1024
_WAIT_SECONDS = 25.0
_ANSWER_SECONDS = 60.0  # the agent answers within a wait, unless the VM is frozen
_BYE_SECONDS = 5.0  # for a client to end the connection once its shell has ended
_LOOKS, _LOOK_SECONDS = 20, 0.05  # for a shell to end once it was hung up
_SEND_BUFFER_BYTES = 65536  # the system's own holds megabytes, all of which a user sees who has interrupted a flood
_TYPED_AHEAD = 16  # messages that wait while the shell does not read
_LARGEST_SIZE = 65535


class ShellError(errors.VmnestError):
    """The agent does not do what the shell needs."""

    code = "local_shell"


_FAILURES = (ShellError, http1.MessageError, frames.FrameError, OSError)


class Agent:
    """One connection to the VM's agent: a request, an answer, and the next."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(_ANSWER_SECONDS)
        self._stream = streams.Stream(sock)

    def ask(self, method: str, target: str, *, body: bytes = b"") -> bytes:
        """The body of the answer.

        Raises:
            ShellError: the agent refuses.
            OSError, http1.MessageError: the connection is of no use any more.
        """
        return b"".join(self.stream(method, target, body=body))

    def ask_json(self, method: str, target: str, document: object) -> bytes:
        """The same with a JSON document."""
        return self.ask(method, target, body=json.dumps(document).encode())

    def stream(self, method: str, target: str, *, body: bytes = b"") -> Iterator[bytes]:
        """The body of the answer as it comes. See ``ask``."""
        fields = [("Host", "localhost"), ("Content-Length", str(len(body)))]
        self._stream.send(http1.serialize_request(http1.Request(method, target, fields)) + body)
        head = self._stream.read_head()
        if head is None:
            raise http1.TruncatedError("the agent ended the connection without an answer")
        response = http1.parse_response(head)
        pieces = self._stream.body(bodies.BodyDecoder(http1.response_framing(response, method=method)))
        if response.status >= 300:
            said = b"".join(pieces)[:500].decode(errors="replace")
            raise ShellError(f"{method} {target}: the agent answered with status {response.status}: {said}")
        yield from pieces

    def interrupt(self) -> None:
        """End the connection from another thread."""
        self._stream.interrupt()

    def close(self) -> None:
        """End the connection."""
        self._stream.close()


class Terminal:
    """A login shell on a terminal of the VM. One thread calls ``feed`` and ``resize``, another one ``output``."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._target = f"{wire.PROCESSES_PATH}/shell-{uuid.uuid4().hex}"
        self._typed = 0

    def start(self) -> None:
        """Start the shell. Raises as ``Agent.ask`` does."""
        columns, rows = FIRST_SIZE
        document = {
            "id": self._target.rpartition("/")[2],
            "command": "sh",
            "args": ["-c", names.LOGIN_SHELL],
            "env": ENVIRONMENT,
            "pty": {"cols": columns, "rows": rows},
        }
        self._agent.ask_json("POST", wire.PROCESSES_PATH, document)

    def feed(self, data: bytes) -> None:
        """Type something, and wait until the shell has it, or has ended."""
        while data:
            answer = json.loads(self._agent.ask("POST", f"{self._target}/stdin?offset={self._typed}", body=data))
            taken = answer["offset"] - self._typed
            data = b"" if answer["closed"] else data[taken:]
            self._typed += taken

    def resize(self, columns: int, rows: int) -> None:
        """Give it another size."""
        self._agent.ask_json("POST", f"{self._target}/resize", {"cols": columns, "rows": rows})

    def output(self, agent: Agent) -> Iterator[bytes]:
        """What the shell shows, over a connection of its own, until it ends."""
        offset = 0
        while True:
            decoder = frames.Decoder()
            for piece in agent.stream("GET", f"{self._target}/output?offset={offset}&wait={_WAIT_SECONDS:g}"):
                for kind, payload in decoder.feed(piece):
                    if kind == frames.EXIT:
                        return
                    if kind in frames.OUTPUT_KINDS:
                        offset += len(payload)
                        yield payload
                    elif kind == frames.GAP:
                        offset += frames.parse_gap(payload)

    def end(self, agent: Agent) -> None:
        """End it, if it has not ended, as if its line had been cut: first a shell hangs up what it has started."""
        agent.ask_json("POST", f"{self._target}/signal", {"signal": "HUP"})
        for _ in range(_LOOKS):
            if json.loads(agent.ask("GET", self._target))["state"] == wire.PROCESS_ENDED:
                break
            time.sleep(_LOOK_SECONDS)
        agent.ask("DELETE", self._target)


def serve(client: clients.Client, request: http1.Request, *, protocol: str | None) -> None:
    """Serve a shell to a client that was admitted and whose VM runs, until either is gone.

    Args:
        client: The connection, which is of no use afterwards. The caller closes it.
        request: Its handshake.
        protocol: The subprotocol to select.

    Raises:
        http1.MessageError: the handshake is none; nothing was answered.
        clients.Unreachable: there is no shell to be had; nothing was answered.
    """
    key = websocket.check_request(request)
    with contextlib.closing(Agent(client.dial(wire.AGENT_PORT))) as agent:
        terminal = Terminal(agent)
        try:
            terminal.start()
        except _FAILURES as error:
            _LOG.warning("%s: no shell: %s", client.record.microvm_id, error)
            raise clients.Unreachable(names.APP_CONNECT_FAILED) from error
        try:
            watching = Agent(client.open_guest(wire.AGENT_PORT)[0].socket)
            fields = [*websocket.response_fields(key, protocol=protocol), (names.REQUEST_ID_HEADER, str(uuid.uuid4()))]
            client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            client.stream.send(http1.serialize_response(http1.Response(101, http1.REASONS[101], fields)))
            _Bridge(client, terminal, agents=(agent, watching)).run()
        finally:
            _end(client, terminal)


def _end(client: clients.Client, terminal: Terminal) -> None:
    """Leave no shell behind that nobody can reach; but nobody wakes a VM for that."""
    if client.is_cut:
        return
    try:
        with contextlib.closing(Agent(client.dial(wire.AGENT_PORT))) as agent:
            terminal.end(agent)
    except (*_FAILURES, clients.Unreachable) as error:
        _LOG.debug("%s: a shell was not ended: %s", client.record.microvm_id, error)


class _Bridge:
    """One WebSocket and one terminal. ``_sending`` guards what is sent to the client."""

    def __init__(self, client: clients.Client, terminal: Terminal, *, agents: tuple[Agent, Agent]) -> None:
        self._client = client
        self._terminal = terminal
        self._typing, self._watching = agents
        self._sender = websocket.Sender(is_client=False)
        self._sending = threading.Lock()
        self._typed: queue.Queue[bytes | tuple[int, int] | None] = queue.Queue(_TYPED_AHEAD)
        self._is_left = threading.Event()  # the client says no more

    def run(self) -> None:
        carriers = [
            threading.Thread(target=self._carry_output, name="shell-output", daemon=True),
            threading.Thread(target=self._carry_input, name="shell-input", daemon=True),
        ]
        self._send(websocket.TEXT, json.dumps({"type": "session_init", "session_id": str(uuid.uuid4())}).encode())
        for carrier in carriers:
            carrier.start()
        try:
            self._read()
        finally:
            self._is_left.set()
            # Both may be waiting for a shell that says nothing, and reads nothing.
            self._typing.interrupt()
            self._watching.interrupt()
            self._typed.put(None)
            for carrier in carriers:
                carrier.join()

    # -- from the client -----------------------------------------------------------------------------------------------

    def _read(self) -> None:
        receiver = websocket.Receiver(from_client=True, max_message=MAX_MESSAGE_BYTES)
        try:
            while data := self._client.stream.receive():
                self._client.touch()
                for message in receiver.feed(data):
                    if message.kind == websocket.CLOSE:
                        self._close(websocket.NORMAL, "")
                        return
                    self._take(message)
        except websocket.ProtocolError as error:
            self._close(error.close_code, error.message)
        except OSError as error:
            _LOG.debug("%s: a shell's client is gone: %s", self._client.record.microvm_id, error)

    def _take(self, message: websocket.Message) -> None:
        if message.kind == websocket.PING:
            self._send(websocket.PONG, message.data)
        elif message.kind in (websocket.TEXT, websocket.BINARY) and message.data:
            size = parse_size(message.data) if message.kind == websocket.TEXT else None
            self._typed.put(size or message.data)

    def _carry_input(self) -> None:
        """Bring what is typed to the agent, or to nowhere once that has failed."""
        is_of_use = True
        while (item := self._typed.get()) is not None:
            try:
                if not is_of_use:
                    continue
                if isinstance(item, bytes):
                    self._terminal.feed(item)
                else:
                    self._terminal.resize(*item)
            except _FAILURES as error:
                _LOG.debug("%s: a shell takes no input: %s", self._client.record.microvm_id, error)
                is_of_use = False

    # -- to the client -------------------------------------------------------------------------------------------------

    def _carry_output(self) -> None:
        code, reason = websocket.NORMAL, CLOSE_REASON
        try:
            for data in self._terminal.output(self._watching):
                self._client.touch()
                self._send(websocket.BINARY, data)
        except _FAILURES as error:
            _LOG.debug("%s: a shell's output broke off: %s", self._client.record.microvm_id, error)
            code, reason = websocket.INTERNAL_ERROR, "the shell is gone"
        self._close(code, reason)
        # The client answers, and ends the connection. One that does not is left.
        if not self._is_left.wait(_BYE_SECONDS):
            self._client.stream.interrupt()

    def _send(self, kind: int, data: bytes) -> None:
        with self._sending:
            self._client.stream.send(self._sender.encode(kind, data))

    def _close(self, code: int, reason: str) -> None:
        try:
            with self._sending:
                self._client.stream.send(self._sender.encode_close(code, reason))
        except OSError as error:
            _LOG.debug("%s: nobody was left to be told: %s", self._client.record.microvm_id, error)


def parse_size(text: bytes) -> tuple[int, int] | None:
    """Columns and rows, if that is what a client's text says."""
    try:
        wish = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(wish, dict) or wish.get("type") != "resize":
        return None
    columns, rows = _dimension(wish.get("cols")), _dimension(wish.get("rows"))
    return None if columns is None or rows is None else (columns, rows)


def _dimension(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 1 <= value <= _LARGEST_SIZE else None
