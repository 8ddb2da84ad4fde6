"""Messages in, messages out."""

from __future__ import annotations

import json
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.mcp_server import IDENTITY, PREFIX, Conversation, Gate, Offer
from vmnest.mcp.stdio import TooLong


def echo(arguments, call):
    return {"content": [{"type": "text", "text": json.dumps(dict(arguments))}]}


def fail(arguments, call):
    raise ZeroDivisionError("the inside of it")


def test_a_handshake_tells_what_is_there():
    conversation = Conversation(Offer(echo=echo))
    conversation.request(0, "initialize", {"protocolVersion": "2025-06-18"})
    assert conversation.reply() == {
        "jsonrpc": "2.0",
        "id": 0,
        "result": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": IDENTITY,
            "instructions": "Use it.",
        },
    }


def test_discovery_tells_the_same_without_a_handshake():
    conversation = Conversation(Offer(echo=echo))
    conversation.modern("d1", "server/discover")
    assert conversation.reply() == {
        "jsonrpc": "2.0",
        "id": "d1",
        "result": {
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}, "resources": {}},
            "instructions": "Use it.",
            "ttlMs": 3600000,
            "cacheScope": "private",
            "_meta": {PREFIX + "serverInfo": IDENTITY},
        },
    }


def test_both_eras_are_served_on_one_pipe():
    conversation = Conversation(Offer(echo=echo))
    conversation.modern(1, "server/discover")
    conversation.reply()
    conversation.shake_hands()
    conversation.request(2, "tools/list")
    assert set(conversation.reply()["result"]) == {"tools"}
    conversation.modern(3, "tools/list")
    assert conversation.reply()["result"]["cacheScope"] == "public"
    conversation.request(4, "ping")
    assert conversation.reply()["result"] == {}


def test_a_tool_is_called_with_its_arguments():
    conversation = Conversation(Offer(echo=echo))
    conversation.shake_hands()
    for arguments in ({"a": 1}, None):
        conversation.request(1, "tools/call", {"name": "echo", **({"arguments": arguments} if arguments else {})})
        assert conversation.reply()["result"] == {"content": [{"type": "text", "text": json.dumps(arguments or {})}]}
    conversation.modern(2, "tools/call", name="echo", arguments={})
    assert set(conversation.reply()["result"]) == {"resultType", "content", "_meta"}


@pytest.mark.parametrize(
    "params",
    [{"name": "nobody"}, {}, {"name": 5}, {"name": "echo", "arguments": []}, {"name": "echo", "arguments": "x"}],
)
def test_a_call_that_is_itself_wrong_is_an_error_of_the_protocol(params):
    conversation = Conversation(Offer(echo=echo))
    conversation.shake_hands()
    conversation.request(1, "tools/call", params)
    assert conversation.reply()["error"]["code"] == -32602


def test_a_fault_of_ours_tells_nothing_of_the_inside(caplog):
    conversation = Conversation(Offer(fail=fail), workers=1)
    conversation.shake_hands()
    conversation.request(1, "tools/call", {"name": "fail"})
    error = conversation.reply()["error"]
    conversation.request(2, "tools/call", {"name": "fail"})
    conversation.reply()  # by then the only thread has told of the first one
    assert error["code"] == -32603
    assert "inside" not in json.dumps(error)
    assert "the inside of it" in caplog.text


def test_a_server_that_was_replaced_while_it_ran_says_so():
    def lose(arguments, call):
        raise ImportError("bad local file header: '/home/me/vmnest.pyz'")

    conversation = Conversation(Offer(lose=lose))
    conversation.shake_hands()
    conversation.request(1, "tools/call", {"name": "lose"})
    message = conversation.reply()["error"]["message"]
    assert "start it again" in message
    assert "/home/me" not in message


def test_a_resource_is_read_or_there_is_none():
    conversation = Conversation(Offer())
    conversation.shake_hands()
    conversation.request(1, "resources/read", {"uri": "x://there"})
    assert conversation.reply()["result"] == {"contents": [{"uri": "x://there", "text": "content"}]}
    conversation.request(2, "resources/read", {"uri": "x://not"})
    assert conversation.reply()["error"] == {
        "code": -32002,
        "message": "Resource not found",
        "data": {"uri": "x://not"},
    }
    conversation.modern(3, "resources/read", uri="x://not")
    assert conversation.reply()["error"]["code"] == -32602
    conversation.modern(4, "resources/read", uri="x://there")
    result = conversation.reply()["result"]
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
    conversation.modern(5, "resources/read")
    assert conversation.reply()["error"]["code"] == -32602


def test_lists_have_one_page():
    conversation = Conversation(Offer(echo=echo))
    for method, member in (
        ("tools/list", "tools"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ):
        conversation.modern(1, method)
        result = conversation.reply()["result"]
        assert isinstance(result[member], list)
        assert "nextCursor" not in result
        conversation.modern(2, method, cursor="")
        assert conversation.reply()["error"]["code"] == -32602


def test_a_ping_is_answered_while_tools_work():
    gate = Gate()
    conversation = Conversation(Offer(gate=gate))
    conversation.shake_hands()
    conversation.request(1, "tools/call", {"name": "gate"})
    conversation.request(2, "ping")
    assert conversation.reply()["id"] == 2
    gate.may_end.set()
    assert conversation.reply()["id"] == 1


def test_a_cancelled_call_ends_and_nothing_more_is_sent_for_it():
    gate = Gate()
    conversation = Conversation(Offer(gate=gate, echo=echo))
    conversation.shake_hands()
    conversation.request(7, "tools/call", {"name": "gate"})
    assert gate.began.wait(30)
    conversation.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
    assert gate.was_cancelled.wait(30)
    for _ in range(3):
        conversation.request(8, "tools/call", {"name": "echo"})
        assert conversation.reply()["id"] == 8
    assert conversation.is_silent()


def test_calls_that_are_cancelled_and_do_not_hear_it_keep_nobody_from_being_served():
    gate = Gate()
    gate.holds_on = True
    conversation = Conversation(Offer(gate=gate, echo=echo), workers=2)
    conversation.shake_hands()
    for number in (1, 2):
        gate.began.clear()
        conversation.request(number, "tools/call", {"name": "gate"})
        assert gate.began.wait(30)
    conversation.request(3, "tools/call", {"name": "echo"})
    for number in (1, 2):
        conversation.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    for number in (3, 4, 5):
        if number > 3:
            conversation.request(number, "tools/call", {"name": "echo"})
        assert conversation.reply()["id"] == number
    gate.may_end.set()
    for number in range(6, 50):
        conversation.request(number, "tools/call", {"name": "echo"})
    assert sorted(conversation.reply()["id"] for _ in range(6, 50)) == list(range(6, 50))
    assert conversation.is_silent()


def abandon(conversation: Conversation, gate: Gate, numbers: range) -> None:
    """Have so many calls cancelled that go on all the same."""
    gate.holds_on = True
    for number in numbers:
        gate.began.clear()
        conversation.request(number, "tools/call", {"name": "gate"})
        assert gate.began.wait(30)
        conversation.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})


def test_a_hundred_cancelled_calls_that_do_not_end_keep_nobody_from_being_served():
    gate = Gate()
    conversation = Conversation(Offer(gate=gate, echo=echo), workers=2)
    conversation.shake_hands()
    abandon(conversation, gate, range(100))
    conversation.request(100, "tools/call", {"name": "echo"})
    assert conversation.reply()["id"] == 100
    gate.may_end.set()


def test_where_nothing_can_be_served_any_more_for_cancelled_calls_the_client_is_told_so_at_once():
    gate = Gate()
    conversation = Conversation(Offer(gate=gate, echo=echo), workers=2, abandoned=3)
    conversation.shake_hands()
    abandon(conversation, gate, range(5))
    conversation.request(5, "tools/call", {"name": "echo"})
    assert "5 calls that were cancelled or given up" in conversation.reply()["error"]["message"]
    gate.may_end.set()
    for number in range(6, 100):  # until one has ended
        conversation.request(number, "tools/call", {"name": "echo"})
        if "result" in conversation.reply():
            break
        time.sleep(0.05)
    else:
        pytest.fail("it does not serve again")


@pytest.mark.parametrize("version", ["2025-03-26", "2025-11-25"])
def test_a_call_that_is_not_answered_in_time_is_given_up_and_ended(version):
    """Else its host gives up first, and the model does not hear why."""
    gate = Gate()
    conversation = Conversation(Offer(gate=gate, echo=echo), workers=1, patience=0.2)
    conversation.shake_hands(version)
    gate.holds_on = True
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "gate"}}
    conversation.send([call, ping(8)] if version == "2025-03-26" else call)
    message = conversation.next()
    reply = message if isinstance(message, dict) else max(message, key=lambda each: each["id"] == 7)
    assert reply["id"] == 7
    assert reply["result"]["isError"] is True
    error = reply["result"]["structuredContent"]["error"]
    assert error["code"] == "timed_out"
    assert error["message"].startswith("gate has not answered within")
    assert gate.was_cancelled.wait(30)
    conversation.request(9, "resources/read", {"uri": "x://there"})
    assert conversation.reply()["id"] == 9  # it keeps nobody from being served
    gate.may_end.set()
    conversation.request(10, "tools/call", {"name": "echo"})
    assert conversation.reply()["id"] == 10
    assert conversation.is_silent()


@pytest.mark.parametrize("params", [{"requestId": 99}, {"requestId": None}, {}, {"requestId": []}, {"requestId": 0}])
def test_cancelling_what_is_not_there_is_ignored(params):
    conversation = Conversation(Offer())
    conversation.shake_hands()
    conversation.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    conversation.request(1, "ping")
    assert conversation.reply()["id"] == 1


def test_what_waits_for_a_thread_can_be_cancelled():
    gate = Gate()
    conversation = Conversation(Offer(gate=gate, echo=echo), workers=1)
    conversation.shake_hands()
    conversation.request(1, "tools/call", {"name": "gate"})
    conversation.request(2, "tools/call", {"name": "echo"})
    conversation.request(3, "tools/call", {"name": "echo"})
    conversation.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
    gate.may_end.set()
    assert [conversation.reply()["id"], conversation.reply()["id"]] == [1, 3]
    assert conversation.is_silent()


def test_many_calls_at_once_are_all_answered():
    conversation = Conversation(Offer(echo=echo), workers=4)
    conversation.shake_hands()
    for number in range(100):
        conversation.request(number, "tools/call", {"name": "echo", "arguments": {"n": number}})
    assert sorted(conversation.reply()["id"] for _ in range(100)) == list(range(100))
    assert sum("vmnest-mcp-" in thread.name for thread in threading.enumerate()) >= 1


def test_too_much_at_once_is_refused_and_not_kept():
    gate = Gate()
    conversation = Conversation(Offer(gate=gate), workers=1)
    conversation.shake_hands()
    for number in range(1200):
        conversation.request(number, "tools/call", {"name": "gate"})
    refused = conversation.reply()
    assert refused["error"]["code"] == -32603
    assert "later" in refused["error"]["message"]
    conversation.server.close()


def test_closing_ends_what_goes_on():
    gate = Gate()
    conversation = Conversation(Offer(gate=gate))
    conversation.shake_hands()
    conversation.request(1, "tools/call", {"name": "gate"})
    assert gate.began.wait(30)
    conversation.server.close()
    assert gate.was_cancelled.is_set()


def test_a_line_that_is_too_long_is_answered_and_the_next_one_served():
    conversation = Conversation(Offer())
    conversation.server.receive(TooLong())
    reply = conversation.reply()
    assert (reply["id"], reply["error"]["code"]) == (None, -32600)
    conversation.request(1, "ping")
    assert conversation.reply()["id"] == 1


# -- batches -----------------------------------------------------------------------------------------------------------


def ping(identity: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": identity, "method": "ping"}


def test_the_one_revision_with_batches_has_them():
    conversation = Conversation(Offer(echo=echo))
    conversation.shake_hands("2025-03-26")
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo"}}
    hello = {"jsonrpc": "2.0", "id": 3, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}}
    conversation.send([ping(1), call, hello, 5, {"jsonrpc": "2.0", "method": "notifications/x"}])
    answers = conversation.next()
    assert isinstance(answers, list)
    assert {answer["id"]: answer.get("error", {}).get("code") for answer in answers} == {
        1: None, 2: None, 3: -32600, None: -32600,
    }  # fmt: skip


def test_a_batch_of_notifications_is_not_answered():
    conversation = Conversation(Offer())
    conversation.shake_hands("2025-03-26")
    conversation.send([{"jsonrpc": "2.0", "method": "notifications/x"}])
    conversation.request(1, "ping")
    assert conversation.reply()["id"] == 1


def test_a_cancelled_call_of_a_batch_is_left_out():
    gate = Gate()
    conversation = Conversation(Offer(gate=gate))
    conversation.shake_hands("2025-03-26")
    conversation.send([ping(1), {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "gate"}}])
    assert gate.began.wait(30)
    conversation.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
    assert conversation.next() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


@pytest.mark.parametrize("version", [None, "2024-11-05", "2025-06-18", "2025-11-25"])
def test_no_other_revision_has_batches(version):
    conversation = Conversation(Offer())
    if version:
        conversation.shake_hands(version)
    conversation.send([ping(1)])
    reply = conversation.reply()
    assert (reply["id"], reply["error"]["code"]) == (None, -32600)


# -- anything ----------------------------------------------------------------------------------------------------------

METHODS = st.sampled_from(
    [
        "initialize",
        "ping",
        "tools/list",
        "tools/call",
        "resources/read",
        "server/discover",
        "notifications/cancelled",
        "x",
    ]
)
SMALL = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3) | st.just([]) | st.floats()
META = st.dictionaries(
    st.sampled_from([PREFIX + "protocolVersion", PREFIX + "clientCapabilities", PREFIX + "logLevel", "progressToken"]),
    SMALL | st.just("2026-07-28") | st.just({}),
)
PARAMS = st.dictionaries(
    st.sampled_from(["protocolVersion", "name", "arguments", "uri", "requestId", "cursor", "_meta"]),
    SMALL | st.just("echo") | st.just("2025-03-26") | META,
)
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")}, optional={"id": SMALL, "method": METHODS | SMALL, "params": PARAMS | SMALL}
)


@settings(deadline=None)
@given(st.lists(MESSAGES | st.lists(MESSAGES, max_size=3) | SMALL, max_size=8))
def test_whatever_comes_is_survived_and_no_request_has_two_answers(messages):
    conversation = Conversation(Offer(echo=echo, fail=echo))
    for message in messages:
        conversation.send(json.dumps(message).encode())
    conversation.server.receive(json.dumps(ping("last")).encode())
    sent = [each for message in messages for each in (message if isinstance(message, list) else [message])]
    ids = [json.dumps(each.get("id")) for each in sent if isinstance(each, dict)]
    seen: list[str] = []
    while (reply := conversation.next()) != {"jsonrpc": "2.0", "id": "last", "result": {}}:
        for each in reply if isinstance(reply, list) else [reply]:
            if each.get("id") is not None:
                seen.append(json.dumps(each["id"]))
    assert all(ids.count(identity) >= seen.count(identity) for identity in seen)
