"""WebSocket framing, held to the ``websockets`` library in both directions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets import frames
from websockets.client import ClientProtocol
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from vmnest.wire import http1, websocket
from vmnest.wire.websocket import Message, ProtocolError, Receiver, Sender

KEY = "dGhlIHNhbXBsZSBub25jZQ=="  # of RFC 6455 section 1.3
SIZES = [0, 1, 125, 126, 127, 65535, 65536, 300_000]
HOST = [("Host", "endpoint")]


def fed(receiver: Receiver, data: bytes, cuts: Iterable[int] = ()) -> list[Message]:
    got: list[Message] = []
    start = 0
    for end in [*sorted(cut for cut in cuts if cut < len(data)), len(data)]:
        got += receiver.feed(data[start:end])
        start = end
    return got


def open_server() -> ServerProtocol:
    """A server of the library whose handshake is done with ours."""
    server = ServerProtocol()
    key = websocket.make_key()
    request = http1.Request("GET", "/", [*HOST, *websocket.request_fields(key)])
    server.receive_data(http1.serialize_request(request))
    (event,) = server.events_received()
    assert isinstance(event, Request)
    server.send_response(server.accept(event))
    (sent,) = server.data_to_send()
    head = http1.HeadBuffer().feed(sent)
    assert head is not None
    assert websocket.check_response(http1.parse_response(head), key=key) is None
    return server


def open_client(*, protocols: Sequence[str] = ()) -> ClientProtocol:
    """A client of the library whose handshake is done with ours."""
    client = ClientProtocol(parse_uri("ws://endpoint/"), subprotocols=protocols or None)  # type: ignore[arg-type]
    client.send_request(client.connect())
    (sent,) = client.data_to_send()
    head = http1.HeadBuffer().feed(sent)
    assert head is not None
    request = http1.parse_request(head)
    fields = websocket.response_fields(websocket.check_request(request), protocol=protocols[0] if protocols else None)
    client.receive_data(http1.serialize_response(http1.Response(101, "Switching Protocols", fields)))
    (event,) = client.events_received()
    assert isinstance(event, Response)
    assert client.state is State.OPEN, client.handshake_exc
    return client


# -- the handshake -----------------------------------------------------------------------------------------------------


def test_the_answer_to_a_key_is_that_of_the_rfc() -> None:
    assert websocket.accept_value(KEY) == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_the_library_takes_our_handshake() -> None:
    assert open_server().state is State.OPEN


def test_we_take_the_handshake_of_the_library() -> None:
    assert open_client(protocols=["lambda-microvms", "other"]).subprotocol == "lambda-microvms"


def test_a_key_is_made_of_sixteen_bytes() -> None:
    assert websocket.make_key(lambda count: b"the sample nonce"[:count]) == KEY


GOOD = websocket.response_fields(KEY, protocol="a")


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (200, GOOD),
        (101, [field for field in GOOD if field[0] != "Upgrade"]),
        (101, [field for field in GOOD if field[0] != "Connection"]),
        (101, [field for field in GOOD if field[0] != "Sec-WebSocket-Accept"]),
        (101, [*GOOD, ("Sec-WebSocket-Accept", "other")]),
        (101, websocket.response_fields(websocket.make_key(), protocol="a")),
        (101, websocket.response_fields(KEY, protocol="c")),
        (101, [*GOOD, ("Sec-WebSocket-Protocol", "b")]),
        (101, [*GOOD, ("Sec-WebSocket-Extensions", "permessage-deflate")]),
        (101, [("Upgrade", "h2c") if field[0] == "Upgrade" else field for field in GOOD]),
    ],
)
def test_an_answer_that_is_none_to_us_is_refused(status: int, fields: list[http1.Field]) -> None:
    assert websocket.check_response(http1.Response(101, "", GOOD), key=KEY, protocols=["a", "b"]) == "a"
    with pytest.raises(ProtocolError):
        websocket.check_response(http1.Response(status, "", fields), key=KEY, protocols=["a", "b"])


ASKED = websocket.request_fields(KEY)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (http1.Request("POST", "/", ASKED), 400),
        (http1.Request("GET", "/", ASKED, minor=0), 400),
        (http1.Request("GET", "/", ()), 400),
        (http1.Request("GET", "/", [field for field in ASKED if field[0] != "Sec-WebSocket-Version"]), 426),
        (http1.Request("GET", "/", [*ASKED, ("Sec-WebSocket-Key", KEY)]), 400),
        (http1.Request("GET", "/", websocket.request_fields("short")), 400),
        (http1.Request("GET", "/", websocket.request_fields("\u00e9" * 24)), 400),
    ],
)
def test_a_request_that_is_no_handshake_is_refused(request_: http1.Request, status: int) -> None:
    with pytest.raises(http1.MessageError) as caught:
        websocket.check_request(request_)
    assert caught.value.status == status


# -- frames ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_the_library_reads_what_our_client_sends(size: int) -> None:
    server = open_server()
    data = bytes(number % 251 for number in range(size))
    server.receive_data(Sender(is_client=True).encode(websocket.BINARY, data))
    (frame,) = server.events_received()
    assert isinstance(frame, frames.Frame)
    assert (frame.opcode, frame.data) == (frames.Opcode.BINARY, data)


@pytest.mark.parametrize("size", SIZES)
def test_the_library_reads_what_our_server_sends(size: int) -> None:
    client = open_client()
    data = b"x" * size
    client.receive_data(Sender(is_client=False).encode(websocket.TEXT, data))
    (frame,) = client.events_received()
    assert isinstance(frame, frames.Frame)
    assert (frame.opcode, frame.data) == (frames.Opcode.TEXT, data)


@pytest.mark.parametrize("size", SIZES)
def test_our_client_reads_what_the_library_sends(size: int) -> None:
    server = open_server()
    data = b"\xff" * size
    server.send_binary(data)
    assert fed(Receiver(from_client=False), b"".join(server.data_to_send())) == [Message(websocket.BINARY, data)]


@pytest.mark.parametrize("size", SIZES)
def test_our_server_reads_what_the_library_sends(size: int) -> None:
    client = open_client()
    data = "\u00e9".encode() * (size // 2)
    client.send_text(data)
    (message,) = fed(Receiver(from_client=True), b"".join(client.data_to_send()))
    assert (message.kind, message.text) == (websocket.TEXT, data.decode())


def test_pings_and_pongs_go_both_ways() -> None:
    client = open_client()
    client.receive_data(Sender(is_client=False).encode(websocket.PING, b"there?"))
    assert fed(Receiver(from_client=True), b"".join(client.data_to_send())) == [Message(websocket.PONG, b"there?")]
    server = open_server()
    server.receive_data(Sender(is_client=True).encode(websocket.PING, b""))
    assert fed(Receiver(from_client=False), b"".join(server.data_to_send())) == [Message(websocket.PONG, b"")]


def test_the_library_understands_our_close() -> None:
    client = open_client()
    client.receive_data(Sender(is_client=False).encode_close(websocket.NORMAL, "shell exited"))
    assert client.close_rcvd == frames.Close(1000, "shell exited")


def test_we_understand_the_close_of_the_library() -> None:
    server = open_server()
    server.send_close(1000, "shell exited")
    (message,) = fed(Receiver(from_client=False), b"".join(server.data_to_send()))
    assert (message.kind, message.close_code, message.text) == (websocket.CLOSE, 1000, "shell exited")


def test_a_close_without_a_code_has_none() -> None:
    (message,) = fed(Receiver(from_client=False), b"\x88\x00")
    assert (message.close_code, message.text) == (websocket.NO_STATUS, "")


def test_nothing_is_read_after_a_close() -> None:
    sender = Sender(is_client=False)
    receiver = Receiver(from_client=False)
    assert len(fed(receiver, sender.encode_close(1000) + sender.encode(websocket.TEXT, b"late"))) == 1
    assert fed(receiver, sender.encode(websocket.TEXT, b"later")) == []


def test_a_reason_that_is_too_long_is_cut_between_characters() -> None:
    (message,) = fed(Receiver(from_client=False), Sender(is_client=False).encode_close(1000, "\u00e9" * 100))
    assert message.text == "\u00e9" * 61


def test_fragments_make_one_message_with_control_frames_between() -> None:
    assert fed(Receiver(from_client=False), b"\x01\x02a\xc3" + b"\x89\x01!" + b"\x00\x00" + b"\x80\x01\xa9") == [
        Message(websocket.PING, b"!"),
        Message(websocket.TEXT, "a\u00e9".encode()),
    ]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xc2\x00", 1002),  # a reserved bit
        (b"\x83\x00", 1002),  # no such kind
        (b"\x82\x80\0\0\0\0", 1002),  # masked by a server
        (b"\x80\x00", 1002),  # goes on with nothing
        (b"\x01\x00\x82\x00", 1002),  # begins another message in the middle
        (b"\x09\x00", 1002),  # a ping in fragments
        (b"\x89\x7e\x00\x7e", 1002),  # a ping of 126 bytes
        (b"\x88\x01\x03", 1002),  # half a code
        (b"\x88\x02\x03\xed", 1002),  # 1005, which stands for none
        (b"\x88\x02\x00\x01", 1002),
        (b"\x88\x03\x03\xe8\xff", 1007),
        (b"\x81\x01\xff", 1007),
        (b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", 1009),
        (b"\x82\x7f\x00\x00\x00\x00\x01\x00\x00\x01", 1009),
        (b"HTTP/1.1 400 Bad Request\r\n", 1002),
    ],
)
def test_what_a_server_must_not_send_is_refused(data: bytes, code: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        fed(Receiver(from_client=False), data)
    assert caught.value.close_code == code


def test_a_client_that_does_not_mask_is_refused() -> None:
    with pytest.raises(ProtocolError, match="not masked"):
        fed(Receiver(from_client=True), Sender(is_client=False).encode(websocket.TEXT, b"x"))


def test_fragments_together_are_not_larger_than_a_message_may_be() -> None:
    receiver = Receiver(from_client=False, max_message=10)
    assert fed(receiver, b"\x02\x06abcdef") == []
    with pytest.raises(ProtocolError) as caught:
        fed(receiver, b"\x80\x05abcde")
    assert caught.value.close_code == websocket.TOO_BIG


def test_a_control_frame_is_not_made_too_large() -> None:
    with pytest.raises(ValueError, match="125"):
        Sender(is_client=True).encode(websocket.PING, b"x" * 126)


def test_each_frame_of_a_client_has_a_mask_of_its_own() -> None:
    masks = iter([b"\x01\x02\x03\x04", b"\0\0\0\0"])
    sender = Sender(is_client=True, random=lambda count: next(masks))
    assert sender.encode(websocket.BINARY, b"\0\0\0\0\0") == b"\x82\x85\x01\x02\x03\x04\x01\x02\x03\x04\x01"
    assert sender.encode(websocket.BINARY, b"ab") == b"\x82\x82\0\0\0\0ab"


MESSAGES = st.lists(
    st.one_of(
        st.builds(Message, st.just(websocket.BINARY), st.binary(max_size=300)),
        st.builds(Message, st.just(websocket.TEXT), st.text(max_size=100).map(str.encode)),
        st.builds(Message, st.sampled_from([websocket.PING, websocket.PONG]), st.binary(max_size=125)),
    )
)


@given(messages=MESSAGES, is_client=st.booleans(), cuts=st.sets(st.integers(1, 2000)))
def test_messages_arrive_whatever_the_pieces(messages: list[Message], is_client: bool, cuts: set[int]) -> None:
    sender = Sender(is_client=is_client)
    data = b"".join(sender.encode(*message) for message in messages)
    assert fed(Receiver(from_client=is_client), data, cuts) == messages


@given(data=st.binary(), from_client=st.booleans())
def test_any_bytes_are_messages_or_refused(data: bytes, from_client: bool) -> None:
    with contextlib.suppress(ProtocolError):
        fed(Receiver(from_client=from_client), data)
