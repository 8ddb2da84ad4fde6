"""The service's own shell in a MicroVM: a terminal behind a WebSocket, without the agent.

It needs nothing in the image, and the connector ``SHELL_INGRESS`` at launch. What it cannot do is the service's to
change: it tells no exit status, it is root's, and a connection that is cut (a suspension cuts all) ends the session.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from .. import deadline as deadlines
from .. import errors, systems
from ..agent import outputs, refusals
from ..deadline import Deadline
from ..wire import names, websocket
from . import life

if TYPE_CHECKING:
    from ..transport.upgrade import Channel, Upgraded
    from .link import Link

__all__ = ["NativeShell", "open_shell"]

# The service cuts a WebSocket on which nothing moves for a minute.
PING_SECONDS = 20.0
MOST_UNANSWERED_PINGS = 3
BYE_SECONDS = 2.0
_PIECE_BYTES = 65536
_FIRST_DELAY_SECONDS, _LAST_DELAY_SECONDS = 0.1, 2.0
_END_OF_FILE = b"\x04"

_logger = logging.getLogger(__name__)


def open_shell(link: Link, *, timeout: float | None) -> NativeShell:
    """Open a shell of the service.

    Raises:
        errors.UnsupportedError: the MicroVM was launched without ``SHELL_INGRESS``.
        errors.SandboxSuspendedError: it is suspended, and its use may not resume it.
        errors.MicroVMEndedError: it has ended.
        errors.EndpointError: the endpoint refuses.
        errors.TransportError: the endpoint cannot be reached.
    """
    if not systems.has_poll():
        raise errors.UnsupportedError("the service's own shell cannot be used on this system: it has no poll()")
    deadline = Deadline(timeout, clock=link.clock)
    for delay in deadlines.backoff(first=_FIRST_DELAY_SECONDS, last=_LAST_DELAY_SECONDS):
        # The service wants it to run, for a token too.
        microvm = life.run_without_agent(link, deadline=deadline)
        try:
            return NativeShell(_dial(link, microvm.endpoint, deadline=deadline), link=link)
        except errors.VmnestError as error:
            # After a launch and after a resume the endpoint may say for a moment that there is nobody.
            is_passing = isinstance(error, (errors.EndpointUnavailableError, errors.EndpointThrottledError))
            if not is_passing or not refusals.is_unexecuted(error) or deadline.clamp(delay) < delay:
                raise
            _logger.info("the shell is not there yet: %s", error)
        link.clock.sleep(delay)
    raise AssertionError("the delays do not end")


def _dial(link: Link, endpoint: str, *, deadline: Deadline) -> Channel:
    from .. import transport
    from ..transport import upgrade

    with link.telling_the_end():
        token = link.control().mint_shell_token(link.microvm_id, deadline=deadline)
    key = websocket.make_key()
    protocols = [
        names.SUBPROTOCOL_AUTH_PREFIX + token.value.reveal(),
        names.SUBPROTOCOL_MARKER,
        f"{names.SUBPROTOCOL_PORT_PREFIX}{names.SHELL_PORT}",
    ]
    answer = upgrade.upgrade(
        transport.shared(link.trust()),
        endpoint + names.SHELL_PATH,
        headers=websocket.request_fields(key, protocols=protocols),
        deadline=deadline,
    )
    if answer.channel is None:
        raise _refused(answer)
    try:
        websocket.check_response(answer.response, key=key, protocols=protocols)
    except websocket.ProtocolError as error:
        answer.channel.close()
        raise errors.TransportError(f"{answer.channel.origin}: {error.message}") from error
    return answer.channel


def _refused(answer: Upgraded) -> errors.VmnestError:
    return refusals.build(answer.response.status, answer.headers, answer.body, asked="shell", port=names.SHELL_PORT)


class NativeShell:
    """A terminal in the MicroVM with a login shell of root. A context manager, which hangs up.

    One thread iterates ``chunks``, and does all input and output there; any may call the other methods.

    Attributes:
        state_watch: As for ``Process``; never called, since no suspension is survived.
    """

    is_pty = True
    backlog = 0

    def __init__(self, channel: Channel, *, link: Link, ping_seconds: float = PING_SECONDS) -> None:
        """Not for users: see ``open_shell``."""
        self.state_watch: Callable[[str | None], object] | None = None
        self._channel = channel
        self._link = link
        self._ping_seconds = ping_seconds
        self._sender = websocket.Sender(is_client=True)
        self._receiver = websocket.Receiver(from_client=False)
        self._pending: deque[websocket.Message] = deque()
        self._broken: errors.TransportError | None = None
        self._offset = 0
        self._has_ended = False

    def chunks(self) -> Iterator[outputs.Chunk]:
        """What the shell shows, until it ends.

        Raises:
            errors.ConnectionLostError: the connection was cut, and with it the session.
            errors.MicroVMEndedError: the MicroVM has ended.
        """
        while (message := self._next_message()).kind != websocket.CLOSE:
            if message.kind == websocket.BINARY or not _is_greeting(message):
                offset, self._offset = self._offset, self._offset + len(message.data)
                yield outputs.Chunk(outputs.STDOUT, message.data, offset, 0)
        self._take_close(message)

    def write(self, data: bytes) -> int:
        """Type; how many bytes were taken: none once the connection has ended."""
        for start in range(0, len(data), _PIECE_BYTES):
            if not self._send(websocket.BINARY, data[start : start + _PIECE_BYTES]):
                return start
        return len(data)

    def close_stdin(self) -> None:
        """Type an end-of-file character."""
        self.write(_END_OF_FILE)

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size."""
        self._send(websocket.TEXT, json.dumps({"type": "resize", "cols": columns, "rows": rows}).encode())

    def wait(self) -> int:
        """0 once the shell has ended: the service does not tell its status. Its output is dropped.

        Raises:
            See ``chunks``.
        """
        if not self._has_ended:
            for _ in self.chunks():
                pass
        return 0

    def close(self) -> None:
        """Hang up. May be called again."""
        if not self._has_ended:
            self._has_ended = True
            self._say_bye(websocket.NORMAL)
        self._channel.close()

    def __enter__(self) -> NativeShell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _next_message(self) -> websocket.Message:
        """What comes next, but for pings and pongs; raises at an end without a CLOSE."""
        while not self._pending:
            if self._broken is not None:
                raise self._broken
            try:
                data = self._receive()
            except errors.ConnectionLostError as error:
                raise self._lost(error) from error
            self._take(data)
        return self._pending.popleft()

    def _receive(self) -> bytes:
        """Some bytes; asks now and then whether there is still somebody."""
        for _ in range(MOST_UNANSWERED_PINGS + 1):
            data = self._channel.receive(timeout=self._ping_seconds)
            if data is not None:
                break
            self._channel.send(self._sender.encode(websocket.PING, b""), may_wait=False)
        else:
            raise errors.ConnectionLostError("the shell's connection is dead: no ping is answered")
        if not data:
            raise errors.ConnectionLostError("the shell's connection was ended without a word")
        return data

    def _take(self, data: bytes) -> None:
        try:
            for message in self._receiver.feed(data):
                if message.kind == websocket.PING:
                    self._channel.send(self._sender.encode(websocket.PONG, message.data), may_wait=False)
                elif message.kind != websocket.PONG:
                    self._pending.append(message)
        except websocket.ProtocolError as error:
            self._say_bye(error.close_code)
            self._broken = errors.TransportError(f"the shell's connection is no WebSocket: {error.message}")

    def _say_bye(self, code: int) -> None:
        with contextlib.suppress(errors.ConnectionLostError):
            self._channel.send(self._sender.encode_close(code), may_wait=False)
            self._channel.flush(timeout=BYE_SECONDS)

    def _take_close(self, message: websocket.Message) -> None:
        self._say_bye(websocket.NORMAL)
        if message.close_code != websocket.NORMAL:
            said = errors.quote(message.text, limit=200) or "no reason given"
            raise self._lost(errors.ConnectionLostError(f"the service closed the shell ({message.close_code}): {said}"))
        self._has_ended = True

    def _send(self, kind: int, data: bytes) -> bool:
        try:
            self._channel.send(self._sender.encode(kind, data))
        except errors.ConnectionLostError:
            return False  # whoever reads meets the same, and knows why
        return True

    def _lost(self, error: errors.ConnectionLostError) -> errors.VmnestError:
        """The same with what the service says of the MicroVM."""
        try:
            microvm = self._link.look()
        except errors.VmnestError as failure:
            _logger.info("why a shell's connection was cut is not known: %s", failure)
            return error
        if microvm.ended:
            return self._link.ended(microvm)
        if microvm.state in names.SUSPENDED_STATES:
            error = errors.ConnectionLostError("the sandbox was suspended, which cuts the service's shell off")
        error.add_hint(f"Without --native a shell goes on after a cut: vmnest shell {self._link.record.name}")
        return error


def _is_greeting(message: websocket.Message) -> bool:
    """The service's own word at the beginning, which is not for the user."""
    try:
        said = json.loads(message.data)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.get("type") == "session_init"
