"""Lifecycle hooks: what the platform posts to the hook port in a VM."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Protocol

from .. import deadline as deadlines
from .. import errors
from .._guest.agentd import wire
from ..wire import bodies, http1, streams

# What an image would say of its hooks, 1 to 60 s.
RUN_SECONDS = 60.0
SUSPEND_SECONDS = 10.0  # the agent drains commands for 8 s by default
RESUME_SECONDS = 30.0
TERMINATE_SECONDS = 5.0
_MAX_ANSWER_BYTES = 65536
_DETAILS = "Please check your hook endpoint and application logs for more details."


class Dialer(Protocol):
    """The part of a machine that hooks need."""

    def dial(self, port: int, *, timeout: float) -> socket.socket:
        """A connected socket to that port in the VM."""


class _TimedStream(streams.Stream):
    """A stream whose reads end together: code in the VM that drips its answer must not hold up the VM's end."""

    def __init__(self, sock: socket.socket, *, deadline: deadlines.Deadline) -> None:
        super().__init__(sock)
        self._deadline = deadline

    def receive(self) -> bytes:
        if self._deadline.expired:
            raise TimeoutError
        self.socket.settimeout(self._deadline.remaining())
        return super().receive()


class HookError(errors.VmnestError):
    """A hook did not answer 200; the message is the stateReason."""

    code = "local_hook"


def post_run(machine: Dialer, *, microvm_id: str, payload: str | None, timeout: float = RUN_SECONDS) -> None:
    """Tell the VM who it is and what it was started with.

    Raises:
        HookError: the hook failed.
    """
    _post(machine, "run", {"microvmId": microvm_id, "runHookPayload": payload or ""}, timeout=timeout)


def post_suspend(machine: Dialer, *, timeout: float = SUSPEND_SECONDS) -> None:
    """Tell the VM that it is about to be frozen.

    Raises:
        HookError: the hook failed.
    """
    _post(machine, "suspend", None, timeout=timeout)


def post_resume(machine: Dialer, *, timeout: float = RESUME_SECONDS) -> None:
    """Tell the VM that it runs again.

    Raises:
        HookError: the hook failed.
    """
    _post(machine, "resume", None, timeout=timeout)


def post_terminate(machine: Dialer, *, timeout: float = TERMINATE_SECONDS) -> None:
    """Tell the VM that it ends.

    Raises:
        HookError: the hook failed.
    """
    _post(machine, "terminate", None, timeout=timeout)


def _post(machine: Dialer, hook: str, body: Mapping[str, object] | None, *, timeout: float) -> None:
    name = f"{hook.capitalize()} lifecycle hook"
    try:
        status = _exchange(machine, hook, body, timeout=timeout)
    except TimeoutError as error:
        raise HookError(f"{name} timed out after {timeout:g} seconds. {_DETAILS}") from error
    except (OSError, errors.LocalCloudError, http1.MessageError) as error:
        raise HookError(f"{name} could not be reached: {error}. {_DETAILS}") from error
    if status != 200:
        raise HookError(f"{name} returned HTTP status {status}. {_DETAILS}")


def _exchange(machine: Dialer, hook: str, body: Mapping[str, object] | None, *, timeout: float) -> int:
    data = b"" if body is None else json.dumps(body).encode()
    fields = [("host", f"localhost:{wire.HOOK_PORT}"), ("content-length", str(len(data))), ("connection", "close")]
    if body is not None:
        fields.insert(1, ("content-type", "application/json"))
    head = http1.serialize_request(http1.Request("POST", wire.HOOK_PREFIX + hook, fields))
    deadline = deadlines.Deadline(timeout)
    with machine.dial(wire.HOOK_PORT, timeout=timeout) as sock:
        sock.settimeout(timeout)
        stream = _TimedStream(sock, deadline=deadline)
        stream.send(head + data)
        answer = stream.read_head(limit=_MAX_ANSWER_BYTES)
        if answer is None:
            raise http1.TruncatedError("the connection ended before an answer")
        response = http1.parse_response(answer)
        framing = http1.response_framing(response, method="POST")
        for _ in stream.body(bodies.BodyDecoder(framing, limit=_MAX_ANSWER_BYTES)):
            pass
    return response.status
