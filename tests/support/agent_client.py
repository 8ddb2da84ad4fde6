"""Clients of scripted agents: tokens in numbers, states from a list, waits that take no time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.scripted import ScriptedServer
from vmnest import errors
from vmnest.agent.client import AgentClient
from vmnest.agent.tokens import HeaderPairs
from vmnest.transport import Transport


class Tokens:
    """Hands out numbered headers, a new one for each that was refused."""

    def __init__(self) -> None:
        self.number = 1

    def __call__(self, refused: HeaderPairs | None) -> HeaderPairs:
        if refused is not None:
            self.number += 1
        return [("X-aws-proxy-auth", f"token-{self.number}")]


class States:
    """The states in which a MicroVM is seen, one look after the other; the last one stays."""

    def __init__(self, *states: str) -> None:
        self.left = list(states)
        self.looks = 0
        self.on_look: Callable[[str], object] = lambda state: None

    def __call__(self) -> str:
        self.looks += 1
        state = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        self.on_look(state)
        return state


class Recovery:
    """What a sandbox's link does when a request was not executed: sees the state, wakes it up if it may."""

    def __init__(self, url: str, states: States) -> None:
        self.woken = 0
        self._url = url
        self._states = states

    def wake(self, error: errors.VmnestError) -> str:
        """Resume what is suspended."""
        if self._state(error) == "SUSPENDED":
            self.woken += 1
            self._states.left = ["RUNNING"]
        return self._url

    def look(self, error: errors.VmnestError) -> str:
        """Let it sleep."""
        if self._state(error) in ("SUSPENDING", "SUSPENDED"):
            raise errors.SandboxSuspendedError("it is suspended") from error
        return self._url

    def _state(self, error: errors.VmnestError) -> str:
        state = self._states()
        if state in ("TERMINATING", "TERMINATED"):
            raise errors.MicroVMEndedError("the sandbox has ended: it was told to") from error
        return state


@pytest.fixture
def agent_transport() -> Iterator[Transport]:
    """A transport without proxies."""
    transport = Transport(environ={})
    yield transport
    transport.close()


@pytest.fixture
def connect_agent(agent_transport: Transport, fake_clock: FakeClock) -> Any:
    """Makes clients whose waits take no time: ``connect_agent(server, states=States(...), **options)``."""

    def connect(server: ScriptedServer, *, states: States | None = None, **options: Any) -> AgentClient:
        if states is not None:
            recovery = Recovery(server.url, states)
            options = {"look": states, "recover": recovery.wake, "recover_asleep": recovery.look, **options}
        settings = {"headers": Tokens(), "transport": agent_transport, "port": 8080, "clock": fake_clock, "grace": 20.0}
        return AgentClient(server.url, **{**settings, **options})

    return connect
