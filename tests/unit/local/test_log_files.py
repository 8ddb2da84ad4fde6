"""The files of a stream of a log: what is found in them, and what need not be read for it."""

import contextlib
import os
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local import log_files

CAME = 7


def make(folder, name="s"):
    stream = log_files.Stream(name, created=1, path=os.path.join(folder, log_files.digest(name)))
    stream.begin()
    return stream


def reload(stream):
    return log_files.load(stream.path + log_files.NEWER)


def put(stream, *events, most_bytes=1 << 20):
    return stream.put(events, came=CAME, most_bytes=most_bytes)


def read(stream, *, after=log_files.BEGINNING, until=None, most=None, is_in_order=False):
    with contextlib.ExitStack() as stack:
        files = stream.open(stack, after=after)
        return log_files.select(files, after=after, until=until, most=most, is_in_order=is_in_order)


@given(
    batches=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=30),
    after=st.tuples(st.integers(-1, 60), st.integers(-1, 60)),
    until=st.tuples(st.integers(0, 60), st.integers(-1, 60)),
    restart=st.integers(0, 30),
    in_order=st.booleans(),
)
def test_what_is_asked_for_is_what_is_there(batches, after, until, restart, in_order):
    if in_order:
        times = iter(sorted(time for batch in batches for time in batch))
        batches = [[next(times) for _ in batch] for batch in batches]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_files, "_MARK_BYTES", 60)
        stream = make(folder)
        for number, batch in enumerate(batches):
            put(stream, *((time, "x") for time in batch), most_bytes=1000)
            if number == restart:
                stream = reload(stream)
        assert not in_order or stream.facts.is_in_order
        everything = read(stream)
        assert everything == sorted(everything, key=lambda event: event.place)
        assert everything[-1].place == stream.facts.end
        wanted = [event for event in everything if after < event.place < until]
        assert read(stream, after=after, until=until) == wanted
        if stream.facts.is_in_order:
            assert read(stream, after=after, until=until, most=3, is_in_order=True) == wanted[:3]
            assert read(stream, after=after, until=until, is_in_order=True) == wanted
            begin = stream.facts.find_before_last(3, until=(99, 0))
            assert [event for event in everything if event.place > begin][-3:] == everything[-3:]


def test_what_was_dropped_is_told_by_an_event_in_its_place(tmp_path):
    stream = make(tmp_path)
    assert stream.facts.gap is None
    put(stream, (5, "a"), (6, "b"))
    assert stream.facts.gap is None
    put(stream, (7, "c"), most_bytes=10)
    put(stream, (8, "d"), most_bytes=10)
    for one in (stream, reload(stream)):
        assert one.facts.gap.place == (7, 2)
        assert one.facts.gap.message == "[vmnest: 2 earlier events are not kept any more]"


def test_what_is_old_is_not_read(tmp_path):
    stream = make(tmp_path)
    turns = sum(put(stream, (number, "x" * 5000), most_bytes=300_000) for number in range(100))
    assert turns == 1
    assert len(read(stream)) == 100
    again = reload(stream)
    assert len(read(again)) == 100
    os.unlink(stream.path + log_files.OLDER)
    for one in (stream, again):
        with contextlib.ExitStack() as stack:
            (file,) = one.open(stack, after=(90, -1))
            assert file.tell() > 100_000
        assert len(read(one, after=(90, -1))) == 10


def test_behind_the_end_of_what_is_wanted_nothing_is_read(tmp_path):
    stream = make(tmp_path)
    put(stream, *((number, "x" * 1000) for number in range(1000)))
    with contextlib.ExitStack() as stack:
        (file,) = stream.open(stack, after=log_files.BEGINNING)
        found = log_files.select([file], after=log_files.BEGINNING, until=(9, 0), most=None, is_in_order=True)
        assert len(found) == 9
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) < 500_000


def test_at_the_end_nothing_is_opened(tmp_path):
    stream = make(tmp_path)
    put(stream, (5, "x"))
    with contextlib.ExitStack() as stack:
        assert stream.open(stack, after=(5, 1)) == []
        assert len(stream.open(stack, after=(5, 0))) == 1
        assert make(tmp_path, "empty").open(stack, after=log_files.BEGINNING) == []


def test_nothing_is_read_before_somebody_asks(tmp_path):
    stream = make(tmp_path)
    put(stream, (5, "x"))
    again = reload(stream)
    assert (again.name, again.created, again.size) == ("s", 1, stream.size)
    os.utime(stream.path + log_files.NEWER, (9, 9))
    assert reload(stream).written == 9000
    os.unlink(stream.path + log_files.NEWER)
    assert again.facts.end is None
    assert stream.facts.end == (5, 1)


def test_the_next_number_goes_on_after_a_restart(tmp_path):
    stream = make(tmp_path)
    put(stream, (5, "a"), (6, "b"))
    again = reload(stream)
    put(again, (6, "c"))
    assert [(event.number, event.came, event.message) for event in read(again)] == [
        (1, CAME, "a"),
        (2, CAME, "b"),
        (3, CAME, "c"),
    ]


@given(st.text(st.characters(codec=None)))
def test_any_message_comes_back(message):
    with tempfile.TemporaryDirectory() as folder:
        stream = make(folder)
        put(stream, (1, message))
        assert [event.message for event in read(reload(stream))] == [message]


def test_a_dropped_stream_leaves_nothing(tmp_path):
    stream = make(tmp_path)
    for number in range(10):
        put(stream, (number, "x" * 100), most_bytes=200)
    assert len(os.listdir(tmp_path)) == 2
    stream.drop()
    assert os.listdir(tmp_path) == []
