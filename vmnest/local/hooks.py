"""Lifecycle hooks: what the platform posts to the hook port in a VM."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast

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
_FIRST_PAUSE_SECONDS = 0.02
_LAST_PAUSE_SECONDS = 1.0
# The API's member → its hooks. Where no time is given: AWS's own notes on the service say this.
_GROUPS = {"microvmImageHooks": ("ready", "validate"), "microvmHooks": ("run", "resume", "suspend", "terminate")}
_DEFAULT_SECONDS = {"microvmImageHooks": 30, "microvmHooks": 1}
_DETAILS = "Please check your hook endpoint and application logs for more details."


@dataclass(frozen=True)
class Config:
    """Which hooks of an image are called, on which port, and how many seconds each may take; 0: it is not called."""

    port: int = wire.HOOK_PORT
    ready: float = 0
    validate: float = 0
    run: float = 0
    resume: float = 0
    suspend: float = 0
    terminate: float = 0


NO_HOOKS = Config()
# Of the built-in image. It has been ready when its VM starts: the driver waits for the agent.
AGENT = Config(run=RUN_SECONDS, resume=RESUME_SECONDS, suspend=SUSPEND_SECONDS, terminate=TERMINATE_SECONDS)


def parse_config(member: Mapping[str, object] | None) -> Config:
    """The API's member ``hooks``, which was checked against the model."""
    if member is None:
        return NO_HOOKS
    port = member.get("port")
    seconds = {hook: _parse_seconds(member.get(group), hook, group) for group, some in _GROUPS.items() for hook in some}
    return Config(port=port if isinstance(port, int) else wire.HOOK_PORT, **seconds)


def _parse_seconds(member: object, hook: str, group: str) -> float:
    chosen = cast("Mapping[str, object]", member or {})
    if chosen.get(hook) != "ENABLED":
        return 0
    seconds = chosen.get(f"{hook}TimeoutInSeconds")
    return seconds if isinstance(seconds, int) else _DEFAULT_SECONDS[group]


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


def post_run(machine: Dialer, *, microvm_id: str, payload: str | None, config: Config = AGENT) -> None:
    """Tell the VM who it is and what it was started with.

    Raises:
        HookError: the hook failed.
    """
    _post(machine, "run", {"microvmId": microvm_id, "runHookPayload": payload or ""}, config=config)


def post_suspend(machine: Dialer, *, config: Config = AGENT) -> None:
    """Tell the VM that it is about to be frozen.

    Raises:
        HookError: the hook failed.
    """
    _post(machine, "suspend", None, config=config)


def post_resume(machine: Dialer, *, config: Config = AGENT) -> None:
    """Tell the VM that it runs again.

    Raises:
        HookError: the hook failed.
    """
    _post(machine, "resume", None, config=config)


def post_terminate(machine: Dialer, *, config: Config = AGENT) -> None:
    """Tell the VM that it ends.

    Raises:
        HookError: the hook failed.
    """
    _post(machine, "terminate", None, config=config)


def _post(machine: Dialer, hook: str, body: Mapping[str, object] | None, *, config: Config) -> None:
    """Post a hook of VMs, once; nothing happens if the image has it not enabled."""
    timeout = getattr(config, hook)
    if not timeout:
        return
    name = f"{hook.capitalize()} lifecycle hook"
    try:
        status = _exchange(machine, hook, body, port=config.port, timeout=timeout)
    except TimeoutError as error:
        raise HookError(f"{name} timed out after {timeout:g} seconds. {_DETAILS}") from error
    except (OSError, errors.LocalCloudError, http1.MessageError) as error:
        raise HookError(f"{name} could not be reached: {error}. {_DETAILS}") from error
    if status != 200:
        raise HookError(f"{name} returned HTTP status {status}. {_DETAILS}")


def await_image_hook(
    machine: Dialer, hook: str, *, config: Config, clock: deadlines.Clock = deadlines.SYSTEM_CLOCK
) -> None:
    """Post ``ready`` or ``validate`` until it is answered 200; 503, or nobody there, means "not yet".

    Raises:
        HookError: another status, or its time is over; the message is the service's.
        errors.LocalCloudError: the VM has ended.
    """
    seconds = getattr(config, hook)
    if not seconds:
        return
    deadline = deadlines.Deadline(seconds, clock=clock)
    for pause in deadlines.backoff(first=_FIRST_PAUSE_SECONDS, last=_LAST_PAUSE_SECONDS):
        status = _try_image_hook(machine, hook, port=config.port, timeout=deadline.clamp(seconds))
        if status == 200:
            return
        if status not in (None, 503):
            raise HookError(
                f"{hook.capitalize()} hook check failed: the application returned a {_kind(status)} response"
            )
        if deadline.expired:
            raise HookError(f"{hook.capitalize()} hook invocation timed out after {to_duration(seconds)}")
        clock.sleep(deadline.clamp(pause))


def _try_image_hook(machine: Dialer, hook: str, *, port: int, timeout: float) -> int | None:
    """The status, or None if there was no answer, as while the application starts."""
    try:
        return _exchange(machine, hook, None, port=port, timeout=timeout)
    except (OSError, http1.MessageError):
        return None


def _kind(status: int) -> str:
    if 400 <= status < 500:
        return "client error (HTTP 4xx)"
    return "server error (HTTP 5xx)" if 500 <= status < 600 else f"HTTP {status}"


def to_duration(seconds: float) -> str:
    """As ISO 8601 writes it: 300 is PT5M."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "H"), (minutes, "M"), (rest, "S"))
    return "PT" + ("".join(f"{number}{unit}" for number, unit in parts if number) or "0S")


def _exchange(machine: Dialer, hook: str, body: Mapping[str, object] | None, *, port: int, timeout: float) -> int:
    data = b"" if body is None else json.dumps(body).encode()
    fields = [("host", f"localhost:{port}"), ("content-length", str(len(data))), ("connection", "close")]
    if body is not None:
        fields.insert(1, ("content-type", "application/json"))
    head = http1.serialize_request(http1.Request("POST", wire.HOOK_PREFIX + hook, fields))
    deadline = deadlines.Deadline(timeout)
    with machine.dial(port, timeout=timeout) as sock:
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
