"""Answers decoded while they arrive, against json.loads and base64."""

from __future__ import annotations

import base64
import itertools
import json
import tracemalloc
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.agent import streams
from vmnest.agent.results import Missing


def decode(pieces: Iterable[bytes]) -> tuple[dict[str, object], bytes, bytes]:
    out, err = streams.Collector(), streams.Collector()
    members = streams.read_answer(pieces, sinks={"stdout": out, "stderr": err})
    return members, out.value(), err.value()


def split_at(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(places)]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def answer(order: list[str], **members: object) -> bytes:
    return json.dumps({name: members[name] for name in order if name in members}).encode()


orders = st.permutations(["exit_code", "encoding", "stdout", "stderr"])
cuts = st.lists(st.integers(0, 10_000), max_size=10)


@given(st.binary(max_size=200), st.binary(max_size=50), orders, st.sampled_from(["base64", None, "absent"]), cuts)
def test_base64_is_decoded_in_any_order_of_members_and_at_any_split(
    out: bytes, err: bytes, order: list[str], encoding: str | None, cuts: list[int]
) -> None:
    members: dict[str, object] = {"exit_code": 3, "stdout": b64(out), "stderr": b64(err), "encoding": encoding}
    if encoding == "absent":
        del members["encoding"]
    small, *outputs = decode(split_at(answer(order, **members), cuts))
    assert small["exit_code"] == 3
    assert outputs == [out, err]


@given(st.text(max_size=60), st.text(max_size=20), orders, st.booleans(), cuts)
def test_text_is_handed_on_as_utf8_in_any_order_of_members_and_at_any_split(
    out: str, err: str, order: list[str], ascii_only: bool, cuts: list[int]
) -> None:
    members = {"exit_code": 0, "stdout": out, "stderr": err, "encoding": "utf-8"}
    text = json.dumps({name: members[name] for name in order}, ensure_ascii=ascii_only)
    _small, *outputs = decode(split_at(text.encode(), cuts))
    assert outputs == [out.encode(), err.encode()]


@pytest.mark.parametrize("encoding_first", [True, False])
def test_every_single_split_of_escaped_text_gives_the_same(encoding_first: bool) -> None:
    big = rb'"stdout":"\u65e5\ud83d\ude00\"\\\/\n' + "é日😀".encode() + rb'\udcff"'
    encoding = b'"encoding":"text"'
    data = b"{" + b",".join([encoding, big] if encoding_first else [big, encoding]) + b"}"
    expected = '日😀"\\/\né日😀'.encode() + b"\xff"
    for cut in range(len(data) + 1):
        assert decode([data[:cut], data[cut:]])[1] == expected
    assert decode([data[index : index + 1] for index in range(len(data))])[1] == expected


def test_base64_may_be_escaped_like_any_json_string() -> None:
    data = b'{"stdout":"aGVsbG8g\\u0064\\u0032\\u0039\\/","encoding":"base64"}'
    for cut in range(len(data) + 1):
        assert decode([data[:cut], data[cut:]])[1] == base64.b64decode("aGVsbG8gd29/")


@pytest.mark.parametrize("missing", [b"{}", b'{"stdout":null,"stderr":null}', b'{"stdout":"","stderr":""}'])
def test_absent_null_and_empty_outputs_are_empty(missing: bytes) -> None:
    assert decode([missing])[1:] == (b"", b"")


@pytest.mark.parametrize("order", [["encoding", "stdout"], ["stdout", "encoding"]], ids=["encoding first", "last"])
@pytest.mark.parametrize(
    "stdout",
    ["A", "AA", "AAA", "AAAAA", "AA=", "A===", "AA==AAAA", "AAA=AAAA", "=", "====", "AAAA=", "AA AA", "AA\nAA", "!!!!",
     "AAAA????", "AAAé", "日本日本", "AAAAAAA-", "AAAAAAA_", "A" * 400_000 + "*AAA"],
)  # fmt: skip
def test_what_is_no_base64_is_refused(order: list[str], stdout: str) -> None:
    data = answer(order, stdout=stdout, encoding="base64")
    with pytest.raises(errors.AgentAnswerError, match="base64"):
        decode([data])
    with pytest.raises(errors.AgentAnswerError, match="base64"):
        decode(split_at(data, range(0, 60, 3)))


@pytest.mark.parametrize(
    "data",
    [
        b'{"stdout":1}',
        b'{"stdout":["AAAA"]}',
        b'{"encoding":1,"stdout":"AAAA"}',
        b'{"stdout":"AAAA","encoding":1}',
        b'{"encoding":"text","stdout":"\\ud800"}',
        b'{"stdout":"\\udbff","encoding":"text"}',
        b'{"encoding":"text","stdout":"\xff"}',
        b'{"encoding":"text","stdout":"\xc3',
        b'{"encoding":"text","stdout":"a\nb"}',
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_the_protocol_does_not_allow_is_refused(data: bytes) -> None:
    with pytest.raises(errors.AgentAnswerError):
        decode([data])


def test_a_large_output_whose_encoding_comes_last_is_spooled_to_a_file_and_complete() -> None:
    out, err = bytes(range(256)) * 20_000, b"e" * 3_000_000
    data = answer(["stdout", "stderr", "encoding"], stdout=b64(out), stderr=b64(err), encoding="base64")
    assert decode(split_at(data, range(0, len(data), 100_003)))[1:] == (out, err)


def test_a_large_text_whose_encoding_comes_last_keeps_pairs_that_the_file_splits() -> None:
    text = "x" + "\\ud83d\\ude00" * 400_000
    data = b'{"stdout":"' + text.encode() + b'","encoding":"text"}'
    assert decode(split_at(data, range(0, len(data), 65_537)))[1] == ("x" + "😀" * 400_000).encode()


def test_memory_stays_flat_over_a_large_output() -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"exit_code":0,"encoding":"base64","stdout":"'
        block = b"QUJD" * 65_536
        for _ in range(200):
            yield block
        yield b'"}'

    seen = 0

    def count(data: bytes) -> None:
        nonlocal seen
        seen += len(data)

    tracemalloc.start()
    try:
        streams.read_answer(pieces(), sinks={"stdout": count})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == 200 * 3 * 65_536
    assert peak < 4_000_000


def test_bytes_are_handed_on_before_the_answer_is_complete() -> None:
    got: list[bytes] = []
    decoder = streams.AnswerDecoder({"stdout": got.append})
    decoder.feed(b'{"encoding":"base64","stdout":"QUJDREVG')
    assert b"".join(got) == b"ABC"
    decoder.feed(b'R0hJ"')
    assert b"".join(got) == b"ABCDEFGHI"
    decoder.feed(b"}")
    assert decoder.finish() == {"encoding": "base64"}
    decoder.close()


def test_an_error_of_the_sink_reaches_the_caller() -> None:
    def closed(_data: bytes) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        streams.read_answer([b'{"encoding":"base64","stdout":"QUJDREVG"}'], sinks={"stdout": closed})


@given(st.one_of(st.none(), st.integers(0, 60)), st.lists(st.binary(max_size=40), max_size=12))
def test_a_collector_keeps_the_beginning_and_the_end(limit: int | None, pieces: list[bytes]) -> None:
    collector = streams.Collector(limit)
    for piece in pieces:
        collector(piece)
    whole, kept = b"".join(pieces), collector.value()
    if limit is None or len(whole) <= limit:
        assert (kept, collector.missing, collector.truncated) == (whole, None, False)
        return
    assert collector.truncated
    assert collector.missing is not None
    position, count = collector.missing.position, collector.missing.count
    assert len(kept) == limit
    assert position == limit - limit // 2
    assert (kept[:position], kept[position:]) == (whole[:position], whole[position + count :])


def test_what_others_did_not_keep_has_its_place_in_the_middle_and_is_not_counted() -> None:
    collector = streams.Collector(10)
    collector(b"abc")
    collector.cut()
    collector(b"de")
    assert (collector.value(), collector.missing) == (b"abcde", Missing(3, 0))
    collector.cut()  # nothing before a gap is the end of what came
    collector(b"fghijklm")
    assert (collector.value(), collector.missing) == (b"abcijklm", Missing(3, 5))
    empty = streams.Collector(10)
    empty.cut()
    assert empty.missing is None


def test_tiny_pieces_cost_a_collector_no_more_than_they_are() -> None:
    collector = streams.Collector(1000)
    tracemalloc.start()
    try:
        for _ in range(200_000):
            collector(b"x")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert collector.missing == Missing(500, 199_000)
    assert held < 3 * streams.TAIL_BLOCK_BYTES
