"""The requests about processes: what travels, what comes back, what is repeated."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.support.process_peer import NO_SUCH_PROCESS, ProcessPeer
from tests.support.scripted import CUT, ScriptedServer, answer, json_answer
from vmnest import errors
from vmnest.agent import processes
from vmnest.agent.outputs import Chunk

NOT_REACHED = answer(502, headers=[("x-aws-proxy-error", "MICROVM_CONNECT_FAILED")])


def peer(*output: Any, **options: Any) -> ProcessPeer:
    made = ProcessPeer(*output, **options)
    made.known.add("p")
    return made


def test_a_process_is_fetched(connect_agent: Any) -> None:
    with ScriptedServer(peer(), repeat_last=True) as server:
        assert processes.fetch(connect_agent(server), "p").pid == 7
        with pytest.raises(errors.ProcessNotFoundError):
            processes.fetch(connect_agent(server), "other")
    assert [request.target for request in server.requests] == ["/v1/processes/p", "/v1/processes/other"]


@pytest.mark.parametrize("process_id", ["", "a/b", "a\n", "é", "x" * 65, None, 7])
def test_what_is_no_id_is_not_asked_for(connect_agent: Any, process_id: Any) -> None:
    with ScriptedServer() as server, pytest.raises(errors.UsageError):
        processes.fetch(connect_agent(server), process_id)


def test_all_processes_are_fetched_in_their_order(connect_agent: Any) -> None:
    documents = [{**ProcessPeer().document(), "id": name} for name in ("old", "new")]
    with ScriptedServer(json_answer(200, {"processes": documents})) as server:
        assert [info.id for info in processes.fetch_all(connect_agent(server))] == ["old", "new"]


@pytest.mark.parametrize("document", [{}, {"processes": {}}, {"processes": [1]}, [], "x"], ids=repr)
def test_a_list_that_is_none_is_refused(connect_agent: Any, document: object) -> None:
    with ScriptedServer(json_answer(200, document)) as server, pytest.raises(errors.AgentAnswerError):
        processes.fetch_all(connect_agent(server))


def test_an_answer_that_was_cut_is_asked_for_again(connect_agent: Any) -> None:
    script = peer()
    script.answers = [CUT, 50, None]
    with ScriptedServer(script, repeat_last=True) as server:
        assert processes.fetch(connect_agent(server), "p").id == "p"
    assert len(server.requests) == 3


def test_who_only_peeks_is_told_of_a_cut_and_wakes_nobody(connect_agent: Any) -> None:
    script = peer()
    script.answers = [CUT]
    with ScriptedServer(script, repeat_last=True) as server:
        client = connect_agent(server)
        with pytest.raises(errors.ConnectionLostError):
            processes.peek(client, "p")
        assert processes.peek(client, "p").id == "p"

    def refuse(error: errors.VmnestError) -> str:
        raise errors.SandboxSuspendedError("asleep")

    with ScriptedServer(NOT_REACHED) as server, pytest.raises(errors.SandboxSuspendedError):
        processes.peek(connect_agent(server, recover=pytest.fail, recover_asleep=refuse), "p")


@pytest.mark.parametrize("name", ["INT", "SIGINT", "sigint", 2, signal.SIGINT, "2"])
def test_a_signal_has_one_name_on_the_wire(connect_agent: Any, name: str | int) -> None:
    script = peer()
    with ScriptedServer(script, repeat_last=True) as server:
        assert processes.send_signal(connect_agent(server), "p", name)
    assert script.signals == [{"signal": "INT"}]


@pytest.mark.parametrize("name", [0, 65, -1, True, "", "SIG", "a b", "INT\n", None, 1.0])
def test_what_is_no_signal_is_not_sent(connect_agent: Any, name: Any) -> None:
    with ScriptedServer() as server, pytest.raises(errors.UsageError):
        processes.send_signal(connect_agent(server), "p", name)


def test_a_signal_that_nobody_was_left_to_get_says_so(connect_agent: Any) -> None:
    with ScriptedServer(peer(end={"exit_code": 0}), repeat_last=True) as server:
        assert not processes.send_signal(connect_agent(server), "p", "TERM")


@pytest.mark.parametrize(("name", "times"), [("KILL", 2), ("TERM", 2), ("INT", 1), ("USR1", 1)])
def test_only_signals_that_do_no_more_the_second_time_are_sent_twice(connect_agent: Any, name: str, times: int) -> None:
    script = peer()
    script.answers = [0]
    with ScriptedServer(script, repeat_last=True) as server:
        if times > 1:
            assert processes.send_signal(connect_agent(server), "p", name)
        else:
            with pytest.raises(errors.ConnectionLostError) as caught:
                processes.send_signal(connect_agent(server), "p", name)
            assert caught.value.details["outcome"] == "unknown"
    assert script.signals == [{"signal": name}] * times


def test_a_terminal_gets_its_size_without_being_woken(connect_agent: Any) -> None:
    script = peer()
    with ScriptedServer(script, repeat_last=True) as server:
        processes.resize(connect_agent(server), "p", columns=132, rows=43)
    assert script.sizes == [{"cols": 132, "rows": 43}]

    def refuse(error: errors.VmnestError) -> str:
        raise errors.SandboxSuspendedError("asleep")

    with ScriptedServer(NOT_REACHED) as server, pytest.raises(errors.SandboxSuspendedError):
        processes.resize(connect_agent(server, recover=pytest.fail, recover_asleep=refuse), "p", columns=1, rows=1)


def test_a_reader_that_wants_nothing_yet_says_where_it_is_and_wakes_nobody(connect_agent: Any) -> None:
    with ScriptedServer(peer(), repeat_last=True) as server:
        processes.hold(connect_agent(server), "p", offset=7)
    assert [request.target for request in server.requests] == ["/v1/processes/p/output?offset=7&limit=0"]

    def refuse(error: errors.VmnestError) -> str:
        raise errors.SandboxSuspendedError("asleep")

    with ScriptedServer(NOT_REACHED) as server, pytest.raises(errors.SandboxSuspendedError):
        processes.hold(connect_agent(server, recover=pytest.fail, recover_asleep=refuse), "p", offset=7)


def test_what_is_forgotten_already_is_fine_to_remove(connect_agent: Any) -> None:
    with ScriptedServer(json_answer(200, {}), NO_SUCH_PROCESS) as server:
        processes.remove(connect_agent(server), "p")
        processes.remove(connect_agent(server), "p")
    assert {request.method for request in server.requests} == {"DELETE"}


def test_a_watch_asks_from_an_offset_for_as_long_as_nothing_cuts_it(connect_agent: Any) -> None:
    with ScriptedServer(peer(("stdout", b"abcdef")), repeat_last=True) as server:
        answer = processes.watch(connect_agent(server), "p", offset=4)
        assert [event for event in answer.events(offset=4) if isinstance(event, Chunk)] == [Chunk("stdout", b"ef", 4)]
    assert server.requests[0].target == "/v1/processes/p/output?offset=4&wait=25"
