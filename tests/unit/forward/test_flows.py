"""Bodies on their way between two pipes: every framing, at any pace, and what breaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pairs import tcp_pair
from vmnest.forward.flows import BrokenError, Flow
from vmnest.wire import bodies, buffers, http1
from vmnest.wire.pipes import Pipe

CHUNKED = http1.Framing(http1.CHUNKED)
UNTIL_CLOSE = http1.Framing(http1.UNTIL_CLOSE)


class Line:
    """A flow's source and sink, and the peers behind them."""

    def __init__(self, stack: ExitStack) -> None:
        ends = [*tcp_pair(), *tcp_pair()]
        for each in ends:
            stack.callback(each.close)
        self.writer, source, sink, self.reader = ends
        self.reader.settimeout(20)
        self.source, self.sink = Pipe(source), Pipe(sink)

    def flow(self, framing: http1.Framing, out: http1.Framing | None = None, **options: object) -> Flow:
        return Flow(self.source, self.sink, framing, out=out or framing, **options)  # type: ignore[arg-type]

    def say(self, data: bytes, *, ends: bool = False) -> None:
        """Have the source's peer send, all of which is there before this returns."""
        self.source.ahead += data
        if ends:
            self.writer.close()

    def hear(self, count: int) -> bytes:
        data = b""
        while len(data) < count and (piece := self.reader.recv(count - len(data))):
            data += piece
        return data

    def hear_all(self) -> bytes:
        self.sink.close()
        data = b""
        while piece := self.reader.recv(65536):
            data += piece
        return data


@pytest.fixture
def line() -> Iterator[Line]:
    with ExitStack() as stack:
        yield Line(stack)


def length(count: int) -> http1.Framing:
    return http1.Framing(http1.LENGTH, count)


def run(flow: Flow) -> None:
    while not flow.is_done:
        flow.advance()


def test_a_body_of_known_length_ends_there_and_leaves_what_follows(line: Line) -> None:
    line.say(b"hello" + b"GET / HTTP/1.1\r\n")
    flow = line.flow(length(5), lead=b"head:")
    run(flow)
    assert line.hear_all() == b"head:hello"
    assert line.source.ahead == b"GET / HTTP/1.1\r\n"


def test_without_a_body_only_the_lead_goes(line: Line) -> None:
    line.say(b"next")
    run(line.flow(http1.NO_BODY, lead=b"head"))
    assert (line.hear_all(), line.source.ahead) == (b"head", b"next")


def test_chunks_keep_their_payload_and_trailers_but_not_their_extensions(line: Line) -> None:
    line.say(b"3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nDigest: x\r\n\r\nnext")
    run(line.flow(CHUNKED))
    assert line.hear_all() == b"5\r\nabcde\r\n0\r\nDigest: x\r\n\r\n"
    assert line.source.ahead == b"next"


def test_chunks_become_plain_bytes_for_whom_does_not_know_them(line: Line) -> None:
    line.say(b"3\r\nabc\r\n0\r\nDigest: x\r\n\r\n")
    run(line.flow(CHUNKED, UNTIL_CLOSE))
    assert line.hear_all() == b"abc"


def test_a_body_up_to_the_end_becomes_chunks_with_an_end_of_their_own(line: Line) -> None:
    line.say(b"abc", ends=True)
    run(line.flow(UNTIL_CLOSE, CHUNKED))
    assert line.hear_all() == b"3\r\nabc\r\n0\r\n\r\n"


def test_each_piece_goes_on_before_the_next_one_comes(line: Line) -> None:
    flow = line.flow(CHUNKED)
    for piece in (b"3\r\nabc\r\n", b"1\r\nd\r\n"):
        line.say(piece)
        flow.advance()
        assert line.hear(len(piece)) == piece
    assert flow.wants_to_read
    assert not flow.wants_to_write


@pytest.mark.parametrize(
    ("framing", "said"),
    [(length(10), b"half"), (CHUNKED, b"4\r\nhalf\r\n"), (CHUNKED, b"4\r\nha"), (CHUNKED, b"4\r\nhalf\r\n0\r\n")],
    ids=["length", "between chunks", "in a chunk", "in the trailer"],
)
def test_a_source_that_ends_too_early_is_broken(line: Line, framing: http1.Framing, said: bytes) -> None:
    line.say(said, ends=True)
    with pytest.raises(BrokenError) as broken:
        run(line.flow(framing))
    assert broken.value.pipe is line.source
    assert isinstance(broken.value.reason, http1.TruncatedError)


def test_malformed_chunks_are_the_sources_fault(line: Line) -> None:
    line.say(b"zz\r\n")
    with pytest.raises(BrokenError) as broken:
        run(line.flow(CHUNKED))
    assert broken.value.pipe is line.source
    assert isinstance(broken.value.reason, http1.MessageError)


def test_a_sink_that_is_gone_is_told_apart(line: Line) -> None:
    line.reader.close()
    line.say(b"x" * (16 << 20))
    with pytest.raises(BrokenError) as broken:
        run(line.flow(length(16 << 20)))
    assert broken.value.pipe is line.sink


def test_what_is_not_taken_holds_the_source_up(line: Line) -> None:
    flow = line.flow(length(64 << 20))
    while flow.wants_to_read:  # until the sink's peer, which does not read, has its buffers full
        line.say(b"x" * 65536)
        flow.advance()
    assert flow.wants_to_write
    line.say(b"rest")
    assert not flow.advance()
    assert line.source.ahead == b"rest"


def test_nothing_is_borrowed_while_nothing_moves(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    lent: list[memoryview] = []
    borrow, give_back = buffers.borrow, buffers.give_back
    monkeypatch.setattr(buffers, "borrow", lambda: lent.append(buffer := borrow()) or buffer)
    monkeypatch.setattr(buffers, "give_back", lambda buffer: (lent.remove(buffer), give_back(buffer)))
    flow = line.flow(length(10))
    flow.advance()
    line.say(b"12345")
    flow.advance()
    assert not flow.is_done
    assert lent == []


def test_something_of_our_own_goes_between_two_pieces(line: Line) -> None:
    flow = line.flow(UNTIL_CLOSE)
    line.say(b"one")
    flow.advance()
    flow.inject(b"-ping-")
    line.say(b"two", ends=True)
    run(flow)
    assert line.hear_all() == b"one-ping-two"


def test_a_piece_can_be_changed_or_taken_out(line: Line) -> None:
    seen: list[bytes] = []

    def edit(piece: memoryview) -> bytes:
        seen.append(bytes(piece))
        return b"" if piece == b"pong" else bytes(piece).upper()

    flow = line.flow(UNTIL_CLOSE, edit=edit)
    for said in (b"one", b"pong", b"two"):
        line.say(said)
        flow.advance()
    line.say(b"", ends=True)
    run(flow)
    assert (line.hear_all(), seen) == (b"ONETWO", [b"one", b"pong", b"two"])


def test_its_owner_hears_that_all_was_read_before_the_last_bytes_go_on(line: Line) -> None:
    heard: list[bool] = []
    flow = line.flow(length(5), on_read=lambda: heard.append(flow.wants_to_write))
    line.say(b"hello")
    run(flow)
    assert heard == [True]


# -- once more ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", [length(10), CHUNKED], ids=["length", "chunked"])
def test_a_small_body_can_go_to_another_sink_from_its_beginning(line: Line, framing: http1.Framing) -> None:
    with ExitStack() as stack:
        other = Line(stack)
        parts = (
            (b"hello", b"world") if framing.kind == http1.LENGTH else (b"5\r\nhello\r\n", b"5\r\nworld\r\n0\r\n\r\n")
        )
        flow = line.flow(framing, lead=b"one:", kept_bytes=64)
        line.say(parts[0])
        flow.advance()
        flow.repeat(other.sink, lead=b"two:")
        line.say(parts[1])
        run(flow)
        assert line.hear_all() == b"one:" + parts[0]
        assert other.hear_all() == b"two:" + parts[0] + parts[1]


def test_a_body_that_has_not_begun_can_be_repeated_however_large_it_is(line: Line) -> None:
    flow = line.flow(length(1 << 30), lead=b"head", kept_bytes=64)
    flow.advance()
    assert flow.can_repeat


def test_a_large_body_is_not_kept(line: Line) -> None:
    flow = line.flow(length(1000), kept_bytes=64)
    line.say(b"x" * 65)
    flow.advance()
    assert not flow.can_repeat


@given(st.lists(st.binary(max_size=200)), st.booleans())
def test_any_pieces_come_out_as_they_went_in(pieces: list[bytes], makes_chunks: bool) -> None:
    with ExitStack() as stack:
        line = Line(stack)
        flow = line.flow(UNTIL_CLOSE, CHUNKED if makes_chunks else UNTIL_CLOSE)
        for piece in pieces:
            line.say(piece)
            flow.advance()
        line.say(b"", ends=True)
        run(flow)
        came = line.hear_all()
    if makes_chunks:
        decoder = bodies.BodyDecoder(CHUNKED)
        came = decoder.feed(came)
        assert decoder.complete
    assert came == b"".join(pieces)
