"""Tokens that open a MicroVM's endpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .. import errors
from ..aws.credentials import Secret
from ..aws.service import Service
from ..deadline import SYSTEM_CLOCK, Clock, Deadline
from ..wire import names
from . import answers, microvms

__all__ = ["Token", "mint", "mint_shell"]

_PORTS_OPERATION = "CreateMicrovmAuthToken"
_SHELL_OPERATION = "CreateMicrovmShellAuthToken"
# The names and values go into requests as headers as they are: nothing may pass that ends a line or a field.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_HEADER_VALUE = re.compile(r"[!-~]{1,8000}")


class Token(NamedTuple):
    """A token for some ports of one MicroVM, until ``expires_at`` (seconds since the epoch).

    ``headers`` are what the service says to send: names with secret values. The port header is not among them. One for
    the shell has no ports.
    """

    value: Secret
    ports: tuple[int, ...]
    expires_at: float
    secret_headers: tuple[tuple[str, Secret], ...]

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers to send, in plain text."""
        return tuple((name, value.reveal()) for name, value in self.secret_headers)


def mint(
    service: Service,
    microvm_id: str,
    *,
    ports: Sequence[int],
    minutes: int,
    deadline: Deadline,
    clock: Clock = SYSTEM_CLOCK,
) -> Token:
    """Make a token for exactly these ports. A suspended MicroVM is not woken, and needs not listen on them.

    Raises:
        errors.MicroVMNotFoundError: the service knows none of that id.
        errors.AnswerInvalidError: the answer holds no headers that can be sent.
    """
    params = {"microvmIdentifier": microvm_id, "allowedPorts": [{"port": port} for port in ports]}
    return _mint(service, _PORTS_OPERATION, params, minutes=minutes, ports=tuple(ports), deadline=deadline, clock=clock)


def mint_shell(
    service: Service, microvm_id: str, *, minutes: int, deadline: Deadline, clock: Clock = SYSTEM_CLOCK
) -> Token:
    """Make a token for the service's own shell in a MicroVM that was launched with ``SHELL_INGRESS``.

    Raises:
        errors.MicroVMNotFoundError: the service knows none of that id.
        errors.UnsupportedError: the MicroVM was launched without that connector.
        errors.AnswerInvalidError: the answer holds no headers that can be sent.
    """
    params = {"microvmIdentifier": microvm_id}
    try:
        return _mint(service, _SHELL_OPERATION, params, minutes=minutes, ports=(), deadline=deadline, clock=clock)
    except errors.ValidationError as error:
        if names.SHELL_INGRESS not in error.message:
            raise
        raise errors.UnsupportedError(
            "the MicroVM was launched without SHELL_INGRESS, and has no shell of the service",
            hint="That is chosen when it is made: vmnest create NAME --ingress HTTP_INGRESS --ingress SHELL_INGRESS\n"
            "Without --native, vmnest shell needs no connector.",
            details=error.details,
        ) from error


def _mint(
    service: Service,
    operation: str,
    params: Mapping[str, object],
    *,
    minutes: int,
    ports: tuple[int, ...],
    deadline: Deadline,
    clock: Clock,
) -> Token:
    asked_at = clock.time()
    try:
        answer = service.call(operation, {**params, "expirationInMinutes": minutes}, deadline=deadline)
    except errors.ResourceNotFoundError as error:
        raise microvms.not_found(error) from error
    headers = _headers(answers.take(answer, "authToken", dict, operation=operation), operation=operation)
    value = next((v for name, v in headers if name.lower() == names.PROXY_AUTH_HEADER.lower()), headers[0][1])
    # Counted from before the call: the clock of the service started no earlier.
    return Token(value, ports, asked_at + minutes * 60, headers)


def _headers(members: dict[object, object], *, operation: str) -> tuple[tuple[str, Secret], ...]:
    headers: list[tuple[str, Secret]] = []
    for name, value in members.items():
        if not (isinstance(name, str) and _HEADER_NAME.fullmatch(name)):
            raise _unusable("a name that is no header's", operation=operation)
        if not (isinstance(value, str) and _HEADER_VALUE.fullmatch(value)):
            raise _unusable(f"a value of {name} that cannot be sent", operation=operation)
        headers.append((name, Secret(value)))
    if not headers:
        raise _unusable("no header at all", operation=operation)
    return tuple(headers)


def _unusable(what: str, *, operation: str) -> errors.AnswerInvalidError:
    return errors.AnswerInvalidError(f"{operation}: the answer has {what}", operation=operation, status=200)
