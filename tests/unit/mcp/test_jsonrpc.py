"""Messages in lines, and lines from messages."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.mcp import jsonrpc
from vmnest.mcp.jsonrpc import Batch, Invalid, Notification, ProtocolError, Request, Response, parse, to_line

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0", 2.0, None]),
        "id": VALUES,
        "method": st.sampled_from(["ping", "tools/call", 5, None, ""]),
        "params": VALUES,
        "result": VALUES,
        "error": VALUES,
    },
)


def code_of(line: bytes) -> object:
    message = parse(line)
    assert isinstance(message, Invalid), message
    return message.reply["error"]["code"], message.reply["id"]


@pytest.mark.parametrize("identity", [0, -1, 2**53, "", "é", "d1"])
def test_an_id_goes_back_as_it_came(identity):
    request = parse(json.dumps({"jsonrpc": "2.0", "id": identity, "method": "ping"}).encode())
    assert isinstance(request, Request)
    assert (request.id, request.method, request.params) == (identity, "ping", {})
    answer = json.loads(to_line(jsonrpc.build_result(request.id, {})))
    assert (answer["id"], type(answer["id"])) == (identity, type(identity))


@pytest.mark.parametrize(
    ("line", "code", "identity"),
    [
        (b"{nope", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"1" * 5000, -32700, None),
        (b"[]", -32600, None),
        (b"5", -32600, None),
        (b'"x"', -32600, None),
        (b"null", -32600, None),
        (b'{"jsonrpc":"1.0","id":3,"method":"ping"}', -32600, 3),
        (b'{"id":3,"method":"ping"}', -32600, 3),
        (b'{"jsonrpc":"2.0","id":3}', -32600, 3),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":3,"method":7}', -32600, 3),
        (b'{"jsonrpc":"2.0","id":3,"method":"ping","params":[1]}', -32602, 3),
        (b'{"jsonrpc":"2.0","id":3,"method":"ping","params":"x"}', -32602, 3),
    ],
)
def test_what_is_no_request_is_answered_with_the_reason(line, code, identity):
    assert code_of(line) == (code, identity)


def test_params_that_are_null_are_absent():
    request = parse(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}')
    assert isinstance(request, Request)
    assert request.params == {}


def test_a_message_without_an_id_is_never_answered():
    for line in (
        b'{"jsonrpc":"2.0","method":"x"}',
        b'{"jsonrpc":"2.0","method":5}',
        b'{"jsonrpc":"2.0","method":"x","params":[]}',
    ):
        assert isinstance(parse(line), Notification)


def test_an_answer_to_nothing_is_known_as_one():
    assert isinstance(parse(b'{"jsonrpc":"2.0","id":1,"result":{}}'), Response)
    assert isinstance(parse(b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}'), Response)


def test_a_batch_has_messages_and_no_batches():
    batch = parse(b'[{"jsonrpc":"2.0","id":1,"method":"ping"},5,[],{"jsonrpc":"2.0","method":"x"}]')
    assert isinstance(batch, Batch)
    assert [type(message) for message in batch.messages] == [Request, Invalid, Invalid, Notification]
    assert code_of(b"[" + b",".join([b"1"] * 1001) + b"]") == (-32600, None)


@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_no_line_raises(line):
    parse(line)


@given(MEMBERS)
def test_an_error_names_no_id_that_was_not_sent(members):
    message = parse(json.dumps(members).encode())
    if isinstance(message, Invalid):
        assert message.reply["id"] is None or message.reply["id"] == members["id"]


@given(VALUES)
def test_a_message_is_one_line_of_ascii_that_strict_readers_take(value):
    line = to_line(value)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert line.isascii()
    json.loads(line).__repr__().encode("utf-8")  # no lone surrogate is left
    assert json.loads(line) == value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udcff", "\ufffd"),
        ("\U0001f600", "\U0001f600"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\\ud800", "\\ud800"),
        ("\u2028\x00\x85", "\u2028\x00\x85"),
    ],
)
def test_a_lone_surrogate_is_replaced(text, shown):
    assert json.loads(to_line({"x": [text], text: 1})) == {"x": [shown], shown: 1}


def test_numbers_that_are_none_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        to_line({"x": float("nan")})


def test_errors_have_data_only_where_there_is_some():
    plain, more = ProtocolError(-32601, "Method not found"), ProtocolError(-32602, "Bad", data={"uri": "x"})
    assert jsonrpc.build_error(1, plain)["error"] == {"code": -32601, "message": "Method not found"}
    assert jsonrpc.build_error(None, more) == {
        "jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "Bad", "data": {"uri": "x"}},
    }  # fmt: skip
    assert jsonrpc.build_notification("n") == {"jsonrpc": "2.0", "method": "n"}
