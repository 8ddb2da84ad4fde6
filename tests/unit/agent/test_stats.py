"""What an agent tells of what its sandbox uses, and what is made of nonsense."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.agent import Agent
from tests.support.agent_client import States
from tests.support.clock import FakeClock
from tests.support.scripted import Answer, ScriptedServer, answer, json_answer
from vmnest import errors
from vmnest.agent import stats

MIB = 2**20
DOCUMENT = {
    "cpus": 2.0,
    "cpu_percent": 12.5,
    "load": [0.5, 0.25, 0.0],
    "memory": {"total": 512 * MIB, "used": 128 * MIB, "available": 300 * MIB},
    "disk": {"total": 1000, "used": 0, "free": 900},
    "network": {"received": 7, "sent": 0},
    "processes": 5,
    "uptime": 61.25,
}
WHOLE = stats.Stats(
    cpus=2.0,
    cpu_percent=12.5,
    load=(0.5, 0.25, 0.0),
    memory=stats.Memory(512 * MIB, 128 * MIB, 300 * MIB),
    disk=stats.Disk(1000, 0, 900),
    network=stats.Network(7, 0),
    processes=5,
    uptime=61.25,
)
NO_ROUTE = json_answer(404, {"detail": "Not Found"})  # what a web framework says
NO_SUCH_ROUTE = json_answer(404, {"detail": "there is nothing at /v1/stats", "code": "no_such_route"})
NOT_REACHED = answer(502, headers=[("x-aws-proxy-error", "MICROVM_CONNECT_FAILED")])


def test_figures_are_fetched_by_one_request(connect_agent: Any) -> None:
    with ScriptedServer(json_answer(200, DOCUMENT)) as server:
        assert connect_agent(server).stats() == WHOLE
    assert [(request.method, request.target) for request in server.requests] == [("GET", "/v1/stats")]


def test_the_share_of_the_cpus_over_some_time_is_that_of_a_second_answer(
    connect_agent: Any, fake_clock: FakeClock
) -> None:
    with ScriptedServer(json_answer(200, {**DOCUMENT, "cpu_percent": 90}), json_answer(200, DOCUMENT)) as server:
        assert connect_agent(server).stats(over=0.5) == WHOLE
    assert fake_clock.sleeps == [0.5]


def test_the_agent_of_this_version_tells_all_that_is_read(shared_agent: Agent) -> None:
    found = stats.parse(shared_agent.request("GET", "/v1/stats").json())
    assert None not in (found.cpus, found.cpu_percent, found.load, found.processes, found.uptime)
    assert None not in found.memory
    assert None not in found.disk
    assert found.memory.percent is not None
    assert found.disk.percent is not None


def test_shares_are_of_what_there_is() -> None:
    assert WHOLE.memory.percent == 25.0
    assert WHOLE.disk.percent == 0.0
    for wrong in (stats.Memory(), stats.Memory(total=0, used=0), stats.Memory(total=1, used=2), stats.Memory(total=5)):
        assert wrong.percent is None


@pytest.mark.parametrize("member", DOCUMENT)
def test_a_member_that_is_missing_is_not_known_and_the_others_are(member: str) -> None:
    found = stats.parse({name: value for name, value in DOCUMENT.items() if name != member})
    assert found == WHOLE._replace(**{member: getattr(stats.NOTHING, member)})


NUMBERS = ["cpus", "cpu_percent", "processes", "uptime"]
NONSENSE: list[object] = [
    *[None, True, False, -1, -0.001, 2**80, 10**400, math.nan, math.inf, -math.inf, 1e300],
    *["7", "", [], [1], {}, {"total": 1}],
]


@pytest.mark.parametrize("member", NUMBERS)
@pytest.mark.parametrize("value", NONSENSE, ids=repr)
def test_a_number_that_cannot_be_is_not_known(member: str, value: object) -> None:
    assert getattr(stats.parse({**DOCUMENT, member: value}), member) is None


@pytest.mark.parametrize("value", [*NONSENSE, 1.5], ids=repr)
def test_bytes_that_cannot_be_are_not_known(value: object) -> None:
    for name in ("memory", "disk", "network"):
        given_members: Any = DOCUMENT[name]
        for member in given_members:
            found = getattr(stats.parse({**DOCUMENT, name: {**given_members, member: value}}), name)
            assert found == getattr(WHOLE, name)._replace(**{member: None})


@pytest.mark.parametrize("value", [None, 5, "x", [], [1], True], ids=repr)
def test_what_is_no_object_has_no_members(value: object) -> None:
    found = stats.parse({**DOCUMENT, "memory": value, "disk": value, "network": value})
    assert found == WHOLE._replace(memory=stats.Memory(), disk=stats.Disk(), network=stats.Network())


@pytest.mark.parametrize(
    "value", [None, 1, "x", [], [1, 2], [1, 2, 3, 4], [1, 2, "3"], [1, -2, 3], [1, 2, math.nan], {"0": 1}], ids=repr
)
def test_a_load_that_is_none_is_not_known(value: object) -> None:
    assert stats.parse({**DOCUMENT, "load": value}).load is None


def test_a_share_beyond_all_there_is_is_not_known_and_a_sandbox_without_cpus_neither() -> None:
    assert stats.parse({**DOCUMENT, "cpu_percent": 100.0}).cpu_percent == 100.0
    assert stats.parse({**DOCUMENT, "cpu_percent": 100.1}).cpu_percent is None
    assert stats.parse({**DOCUMENT, "cpus": 0}).cpus is None


@pytest.mark.parametrize("document", [None, [], "x", 5, {}, {"cpu_percent": "high"}, {"memory": {}}], ids=repr)
def test_an_answer_without_a_figure_is_not_the_protocols(document: object) -> None:
    with pytest.raises(errors.AgentAnswerError, match="does not tell what the sandbox uses"):
        stats.parse(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*DOCUMENT, "total", "used"]), inner),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(list(DOCUMENT)), JSON))
def test_whatever_is_told_figures_are_numbers_that_can_be_printed_or_not_known(document: dict[str, object]) -> None:
    try:
        found = stats.parse(json.loads(json.dumps(document)))
    except errors.AgentAnswerError:
        return
    figures = [found.cpus, found.cpu_percent, found.processes, found.uptime, *(found.load or ())]
    figures += [*found.memory, *found.disk, *found.network, found.memory.percent, found.disk.percent]
    assert all(each is None or (0 <= each < 2**63 and f"{each:.1f}") for each in figures)


@pytest.mark.parametrize("refusal", [NO_ROUTE, NO_SUCH_ROUTE, json_answer(405, {"detail": "Method Not Allowed"})])
def test_an_agent_without_the_feature_is_asked_once(connect_agent: Any, refusal: Answer) -> None:
    with ScriptedServer(refusal) as server:
        client = connect_agent(server)
        for _ in range(2):
            with pytest.raises(errors.UnsupportedError, match="does not tell what it uses") as caught:
                client.stats()
            assert "vmnest image build" in str(caught.value.hint)
    assert len(server.requests) == 1


def test_an_agent_that_has_told_that_it_lacks_the_feature_is_not_asked(connect_agent: Any) -> None:
    with ScriptedServer(json_answer(200, {"status": "ok", "version": "1"})) as server:
        client = connect_agent(server)
        client.health()
        with pytest.raises(errors.UnsupportedError):
            client.stats()


@pytest.mark.parametrize(
    "wrong",
    [
        answer(200, b"\xff\xfe\x00", kind="application/json"),
        answer(200, "<html>hello</html>", kind="text/html"),
        answer(200, "", kind="application/json"),
        answer(200, "[" * 30_000, kind="application/json"),
        answer(200, '{"processes": ' + "9" * 9000 + "}", kind="application/json"),
    ],
    ids=["not text", "a page", "nothing", "deep", "a number of 9000 digits"],
)
def test_an_answer_that_is_no_object_is_refused(connect_agent: Any, wrong: Answer) -> None:
    with ScriptedServer(wrong) as server, pytest.raises(errors.AgentAnswerError):
        connect_agent(server).stats()


def test_an_answer_without_end_is_not_read_to_the_end(connect_agent: Any) -> None:
    huge = answer(200, b'{"processes": 5, "x": "' + b"x" * 200_000 + b'"}', kind="application/json")
    with ScriptedServer(huge) as server, pytest.raises(errors.VmnestError) as caught:
        connect_agent(server).stats()
    assert isinstance(caught.value, errors.AnswerTooLargeError)


def test_a_suspended_sandbox_is_not_woken(connect_agent: Any) -> None:
    with ScriptedServer(NOT_REACHED) as server, pytest.raises(errors.SandboxSuspendedError):
        connect_agent(server, states=States("SUSPENDED")).stats(wakes=False)


def test_an_endpoint_that_did_not_reach_the_agent_is_asked_again(connect_agent: Any) -> None:
    with ScriptedServer(NOT_REACHED, json_answer(200, DOCUMENT)) as server:
        assert connect_agent(server, states=States("RUNNING")).stats() == WHOLE
