"""Processes are started, found and listed through an agent that knows them; of another one it is said, once asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from guest.agentd import wire
from tests.support.process_peer import ProcessPeer
from tests.support.scripted import ScriptedServer, json_answer
from vmnest import errors
from vmnest.agent.arguments import Command
from vmnest.agent.client import AgentClient
from vmnest.sandbox import spawning
from vmnest.sandbox.process import Process

END = {"exit_code": 7, "signal": None, "timed_out": False}
NO_SUCH_ROUTE = json_answer(404, {"detail": "no such route", "code": wire.NO_SUCH_ROUTE})


@pytest.fixture
def peer() -> ProcessPeer:
    return ProcessPeer(("stdout", b"hello"), end=END)


@pytest.fixture
def server(peer: ProcessPeer) -> Iterator[ScriptedServer]:
    with ScriptedServer(peer, repeat_last=True) as server:
        yield server


def spawn(client: AgentClient, *, watch: bool = False) -> Process:
    return spawning.spawn(client, Command("prog"), process_id="p", watch=watch, awake=lambda deadline: client)


@pytest.mark.parametrize("watch", [False, True], ids=["looked at later", "watched from the start"])
def test_a_program_is_started_once_and_its_output_read(
    connect_agent: Any, server: ScriptedServer, peer: ProcessPeer, watch: bool
) -> None:
    process = spawn(connect_agent(server), watch=watch)
    assert [chunk.data for chunk in process] == [b"hello"]
    assert process.wait() == 7
    assert peer.runs == ["p"]


def test_what_was_started_is_found_and_read_from_an_offset(
    connect_agent: Any, server: ScriptedServer, peer: ProcessPeer
) -> None:
    client = connect_agent(server)
    peer.known.add("p")
    found = spawning.attach(client, "p", offset=3, awake=lambda deadline: client)
    assert [(chunk.offset, chunk.data) for chunk in found] == [(3, b"lo")]


def test_a_process_that_is_not_known_is_an_error(connect_agent: Any, server: ScriptedServer) -> None:
    client = connect_agent(server)
    with pytest.raises(errors.ProcessNotFoundError):
        spawning.attach(client, "other", offset=0, awake=lambda deadline: client)


def test_an_agent_that_knows_no_processes_is_asked_once(connect_agent: Any) -> None:
    with ScriptedServer(NO_SUCH_ROUTE, repeat_last=True) as server:
        client = connect_agent(server)
        for use in (lambda: spawning.fetch_all(client), lambda: spawn(client)):
            with pytest.raises(errors.UnsupportedError, match="processes"):
                use()
        assert len(server.requests) == 1
