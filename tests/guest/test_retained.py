"""What is kept of an output: every byte that must be, in order, and an honest gap for every other."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guest.agentd import frames, retained, slots, spool, wire

MIB = 1024 * 1024
GAP = None  # stands for a byte that is not kept


@pytest.fixture
def store() -> Iterator[retained.Store]:
    made = retained.Store()
    yield made
    made.slots.close()


def decode(data: bytes) -> list[tuple[int, bytes | int]]:
    """Frames; neighbouring pieces of one stream joined, gaps as numbers."""
    decoder = frames.Decoder()
    found = list(decoder.feed(data))
    assert decoder.is_between_frames
    result: list[tuple[int, bytes | int]] = []
    for kind, group in itertools.groupby(found, key=lambda frame: frame[0]):
        payloads = [payload for _, payload in group]
        if kind == frames.GAP:
            result += [(kind, frames.parse_gap(payload)) for payload in payloads]
        else:
            result.append((kind, b"".join(payloads)))
    return result


def read_all(output: retained.Output, offset: int = 0, *, limit: int = 64 * 1024) -> list[tuple[int, bytes | int]]:
    """What a new reader gets from ``offset`` to the end."""
    cursor = retained.Cursor(offset)
    pieces = list(iter(lambda: output.read(cursor, limit), b""))
    assert cursor.offset == output.size
    return decode(b"".join(pieces))


def flatten(found: list[tuple[int, bytes | int]]) -> list[tuple[int, int] | None]:
    """One entry for each byte: its stream and value, or GAP."""
    flat: list[tuple[int, int] | None] = []
    for kind, payload in found:
        flat += [GAP] * payload if isinstance(payload, int) else [(kind, byte) for byte in payload]
    return flat


def pattern(size: int, start: int = 0) -> bytes:
    """Bytes that tell their places apart."""
    whole = b"".join(number.to_bytes(4, "big") for number in range(start // 4, (start + size) // 4 + 1))
    return whole[start % 4 : start % 4 + size]


# -- all is kept


def test_both_streams_come_back_in_the_order_in_which_they_came(store: retained.Store) -> None:
    output = retained.Output(store, limit=1000, retain=wire.RETAIN_BLOCK)
    for kind, data in [(frames.STDOUT, b"one"), (frames.STDERR, b"two"), (frames.STDOUT, b"three")]:
        output.append(kind, data)
    assert read_all(output) == [(frames.STDOUT, b"one"), (frames.STDERR, b"two"), (frames.STDOUT, b"three")]
    assert read_all(output, 4) == [(frames.STDERR, b"wo"), (frames.STDOUT, b"three")]
    assert read_all(output, 11) == []
    assert (output.size, output.oldest) == (11, 0)


def test_a_reader_that_follows_gets_each_byte_once(store: retained.Store) -> None:
    output = retained.Output(store, limit=10**6, retain=wire.RETAIN_BLOCK)
    cursor, seen = retained.Cursor(0), b""
    for number in range(20_000):
        output.append(frames.STDERR if number % 2 else frames.STDOUT, b"%d" % (number % 10))
        if number % 7 == 0:
            seen += output.read(cursor, 1000)
    seen += output.read(cursor, 10**6)
    assert flatten(decode(seen)) == flatten(read_all(output))
    assert len(flatten(decode(seen))) == 20_000


def test_what_is_too_much_for_memory_comes_back_from_the_file(store: retained.Store) -> None:
    output = retained.Output(store, limit=64 * MIB, retain=wire.RETAIN_BLOCK)
    data = pattern(3 * MIB + 17)
    for start in range(0, len(data), 50_000):
        output.append(frames.STDOUT, data[start : start + 50_000])
    assert len(store.slots) > 40
    assert read_all(output) == [(frames.STDOUT, data)]
    assert read_all(output, 2 * MIB + 1, limit=999) == [(frames.STDOUT, data[2 * MIB + 1 :])]
    output.discard()
    assert len(store.slots) == 0


def test_many_small_pieces_cost_a_bounded_amount_of_memory_and_disk(store: retained.Store) -> None:
    output = retained.Output(store, limit=MIB, retain=wire.RETAIN_DROP)
    for number in range(100_000):
        output.append(frames.STDERR if number % 2 else frames.STDOUT, b"x")
    assert sum(len(chunk.data) + len(chunk.runs) for chunk in output._chunks) < 512 * 1024
    assert len(store.slots) * slots.SLOT_BYTES < 6 * 100_000
    assert len(flatten(read_all(output))) == 100_000


# -- head and tail


@pytest.mark.parametrize("limit", [0, 1, 2, 10, 1000, 70_001])
def test_drop_keeps_head_and_tail_to_the_byte(store: retained.Store, limit: int) -> None:
    output = retained.Output(store, limit=limit, retain=wire.RETAIN_DROP)
    data = pattern(300_000)
    for start in range(0, len(data), 7_919):
        output.append(frames.STDOUT, data[start : start + 7_919])
        assert not output.must_pause
    head, tail = limit // 2, limit - limit // 2
    expected = [(frames.STDOUT, data[:head])] if head else []
    expected += [(frames.GAP, 300_000 - limit)]  # type: ignore[list-item]
    expected += [(frames.STDOUT, data[300_000 - tail :])] if tail else []
    assert read_all(output) == expected
    assert output.oldest == (0 if head else 300_000 - tail)


def test_a_writer_without_end_costs_what_is_kept_of_it(store: retained.Store) -> None:
    output = retained.Output(store, limit=4 * MIB, retain=wire.RETAIN_DROP)
    piece = b"y\n" * 32768
    for _ in range(1000):
        output.append(frames.STDOUT, piece)
    assert len(store.slots) * slots.SLOT_BYTES < 6 * MIB
    assert sum(len(chunk.data) for chunk in output._chunks) < MIB


def test_a_reader_in_the_part_that_goes_gets_a_gap_and_the_rest(store: retained.Store) -> None:
    output = retained.Output(store, limit=1000, retain=wire.RETAIN_DROP)
    output.append(frames.STDOUT, b"a" * 900)
    cursor = retained.Cursor(0)
    assert decode(output.read(cursor, 700)) == [(frames.STDOUT, b"a" * 700)]
    output.append(frames.STDOUT, b"b" * 900)
    assert decode(output.read(cursor, 10_000)) == [(frames.GAP, 600), (frames.STDOUT, b"b" * 500)]


# -- block


def test_block_keeps_whatever_was_not_confirmed_and_asks_for_a_pause(store: retained.Store) -> None:
    output = retained.Output(store, limit=1000, retain=wire.RETAIN_BLOCK)
    piece = bytes(65536)
    while not output.must_pause:
        output.append(frames.STDOUT, piece)
    assert output.size == retained.MAX_UNCONFIRMED_BYTES
    assert read_all(output) == [(frames.STDOUT, bytes(output.size))]
    output.confirm(65536)
    assert not output.must_pause
    assert read_all(output)[0] == (frames.STDOUT, bytes(500))
    assert read_all(output)[1] == (frames.GAP, 65536 - 500)


def test_what_was_confirmed_stays_while_there_is_room_for_it(store: retained.Store) -> None:
    output = retained.Output(store, limit=2 * MIB, retain=wire.RETAIN_BLOCK)
    data = pattern(MIB)
    output.append(frames.STDOUT, data)
    output.confirm(MIB)
    assert read_all(output) == [(frames.STDOUT, data)]


def test_an_older_confirmation_takes_nothing_back(store: retained.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained, "MAX_UNCONFIRMED_BYTES", 60)
    output = retained.Output(store, limit=10, retain=wire.RETAIN_BLOCK)
    output.append(frames.STDOUT, bytes(100))
    output.confirm(90)
    output.confirm(5)
    assert not output.must_pause
    assert read_all(output) == [(frames.STDOUT, bytes(5)), (frames.GAP, 85), (frames.STDOUT, bytes(10))]


def test_without_a_reader_block_becomes_drop(store: retained.Store) -> None:
    output = retained.Output(store, limit=1000, retain=wire.RETAIN_BLOCK)
    while not output.must_pause:
        output.append(frames.STDOUT, bytes(65536))
    output.give_up_reader()
    assert output.retain == wire.RETAIN_DROP
    assert not output.must_pause
    assert len(store.slots) == 1  # the head's
    assert read_all(output, output.size - 600) == [(frames.GAP, 100), (frames.STDOUT, bytes(500))]


# -- memory and disk that are short


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(slots.Slots, "put", fail)


def test_on_a_full_disk_drop_keeps_a_head_and_a_tail_in_memory(
    store: retained.Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_disk(monkeypatch)
    output = retained.Output(store, limit=64 * MIB, retain=wire.RETAIN_DROP)
    data = pattern(8 * MIB)
    for start in range(0, len(data), 65536):
        output.append(frames.STDOUT, data[start : start + 65536])
    assert sum(len(chunk.data) for chunk in output._chunks) <= retained.MEMORY_BYTES + 2 * 65536
    found = read_all(output)
    first, gap, last = found[0][1], found[1], found[-1][1]
    assert isinstance(first, bytes)
    assert isinstance(last, bytes)
    assert data.startswith(first)
    assert gap[0] == frames.GAP
    assert data.endswith(last)
    assert len(first) >= 65536
    assert len(last) >= 65536
    assert sum(size if isinstance(size, int) else len(size) for _, size in found) == len(data)
    assert capsys.readouterr().err.count("less output is kept") == 1


def test_on_a_full_disk_an_output_that_is_over_stays_in_memory(
    store: retained.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch)
    output = retained.Output(store, limit=64 * MIB, retain=wire.RETAIN_DROP)
    output.append(frames.STDOUT, pattern(100_000))
    output.settle()
    assert read_all(output) == [(frames.STDOUT, pattern(100_000))]
    output.discard()
    assert store._memory == 0


def test_on_a_full_disk_block_pauses_sooner_and_loses_nothing(
    store: retained.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch)
    output = retained.Output(store, limit=64 * MIB, retain=wire.RETAIN_BLOCK)
    cursor, seen, sent = retained.Cursor(0), b"", 0
    data = pattern(4 * MIB)
    while sent < len(data):
        if output.must_pause:
            seen += output.read(cursor, 64 * MIB)
            output.confirm(cursor.offset)
            assert not output.must_pause
        output.append(frames.STDOUT, data[sent : sent + 65536])
        sent += 65536
        assert sum(len(chunk.data) for chunk in output._chunks) < MIB
    seen += output.read(cursor, 64 * MIB)
    assert decode(seen) == [(frames.STDOUT, data)]


def test_once_there_is_room_again_the_disk_is_used_again(
    store: retained.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = retained.Output(store, limit=64 * MIB, retain=wire.RETAIN_BLOCK)
    with monkeypatch.context() as patch:
        fill_disk(patch)
        for _ in range(8):
            output.append(frames.STDOUT, bytes(65536))
        assert output.must_pause
    output.append(frames.STDOUT, bytes(65536))
    output.append(frames.STDOUT, bytes(65536))
    assert not output.must_pause
    assert len(store.slots) > 4


def test_many_outputs_share_a_bounded_memory(store: retained.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained, "COMMON_MEMORY_BYTES", MIB)
    outputs = [retained.Output(store, limit=MIB, retain=wire.RETAIN_BLOCK) for _ in range(50)]
    for output in outputs:
        for _ in range(5):
            output.append(frames.STDOUT, bytes(60_000))
    in_memory = sum(len(chunk.data) for output in outputs for chunk in output._chunks)
    assert in_memory < 50 * 65536 + 2 * MIB
    assert all(len(flatten(read_all(output))) == 300_000 for output in outputs)


def test_an_output_that_is_over_stands_in_the_file(store: retained.Store) -> None:
    output = retained.Output(store, limit=MIB, retain=wire.RETAIN_BLOCK)
    output.append(frames.STDOUT, pattern(100_000))
    output.settle()
    assert sum(len(chunk.data) for chunk in output._chunks) == 0
    assert store._memory == 0
    assert read_all(output) == [(frames.STDOUT, pattern(100_000))]
    output.discard()
    assert (output.oldest, output.size) == (100_000, 100_000)
    assert read_all(output) == [(frames.GAP, 100_000)]


def test_a_small_output_that_is_over_touches_no_disk(store: retained.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "open_unlinked", lambda: pytest.fail("the file was made"))
    output = retained.Output(store, limit=MIB, retain=wire.RETAIN_BLOCK)
    output.append(frames.STDOUT, b"hi\n")
    output.settle()
    assert read_all(output) == [(frames.STDOUT, b"hi\n")]
    output.discard()
    assert store._memory == 0


# -- against a model

APPENDS = st.tuples(st.sampled_from([frames.STDOUT, frames.STDERR]), st.integers(1, 60))
OTHERS = st.sampled_from([("confirm", 0), ("confirm", 50), ("confirm", 100), ("give up", 0), ("settle", 0)])
PIECES = st.lists(st.one_of(APPENDS, APPENDS, APPENDS, OTHERS), min_size=12, max_size=60)


@settings(max_examples=120, deadline=None)
@given(pieces=PIECES, limit=st.integers(0, 600), is_small=st.booleans(), limit_of_reads=st.integers(1, 500))
def test_any_course_of_things_keeps_what_the_rules_say(
    pieces: list[tuple[object, int]], limit: int, is_small: bool, limit_of_reads: int
) -> None:
    """Each byte that is read is the right one; what must be kept is; no more is kept than may be."""
    store = retained.Store()
    with pytest.MonkeyPatch.context() as patch:
        if is_small:  # so that chunks are sealed and written out all the time
            patch.setattr(retained, "_CHUNK_BYTES", 50)
            patch.setattr(retained, "MEMORY_BYTES", 100)
            patch.setattr(retained, "SETTLED_BYTES", 10)
        output = retained.Output(store, limit=limit, retain=wire.RETAIN_BLOCK)
        model: list[tuple[int, int]] = []
        confirmed = 0
        for action, number in pieces:
            if action == "confirm":
                confirmed = max(confirmed, len(model) * number // 100)
                output.confirm(confirmed)
            elif action == "give up":
                output.give_up_reader()
            elif action == "settle":
                output.settle()
            else:
                assert isinstance(action, int)
                data = bytes((len(model) + index) % 251 for index in range(number))
                model += [(action, byte) for byte in data]
                output.append(action, data)
            floor = len(model) if output.retain == wire.RETAIN_DROP else confirmed
            found = flatten(read_all(output, limit=limit_of_reads))
            assert len(found) == len(model) == output.size
            assert all(got in (GAP, byte) for got, byte in zip(found, model, strict=True))
            kept = [index for index, got in enumerate(found) if got is not GAP]
            assert kept[: limit // 2] == list(range(min(limit // 2, len(model))))
            assert set(range(floor, len(model))) <= set(kept)
            unconfirmed = len(model) - floor
            assert min(limit, len(model)) <= len(kept) <= max(limit, limit // 2 + unconfirmed, unconfirmed)
            assert output.oldest == (kept[0] if kept else len(model))
    output.discard()
    assert (len(store.slots), store._memory) == (0, 0)
    store.slots.close()
