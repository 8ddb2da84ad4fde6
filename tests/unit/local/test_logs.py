"""Logs on disk: groups, streams, events, and their bounds."""

import os

import pytest

from vmnest.local import faults, log_files, logs

GROUP, STREAM = "/aws/lambda-microvms/img", "2027/01/15[1.0]microvm-1"


@pytest.fixture
def kept(tmp_path, fake_clock):
    return logs.Logs(str(tmp_path), clock=fake_clock)


def messages(kept, group=GROUP, stream=STREAM):
    return [event.message for event in kept.events(group, stream)]


def refused(act, *args, **options):
    with pytest.raises(faults.Fault) as caught:
        act(*args, **options)
    return caught.value.error_type, caught.value.message


def size(tmp_path):
    return sum(os.stat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(tmp_path) for name in names)


class TestWrite:
    def test_it_makes_group_and_stream_and_keeps_the_order(self, kept):
        kept.write(GROUP, STREAM, [(2.5, "b"), (1, "a")])
        kept.write(GROUP, STREAM, iter([(2.5, "c")]))
        assert messages(kept) == ["a", "b", "c"]
        assert [event.time for event in kept.events(GROUP, STREAM)] == [1000, 2500, 2500]

    def test_times_do_not_go_back_with_the_clock(self, kept):
        kept.write("g", "s", [(20, "b")])
        kept.write("g", "s", [(10, "c"), (21, "d")])
        assert [(event.time, event.message) for event in kept.events("g", "s")] == [
            (20_000, "b"),
            (20_000, "c"),
            (21_000, "d"),
        ]

    def test_it_does_not_raise(self, kept, tmp_path, caplog):
        kept.write(GROUP, STREAM, [(1, "a")])
        (folder,) = (tmp_path / "account" / "logs").iterdir()
        folder.rename(tmp_path / "away")
        kept.write(GROUP, STREAM, [(1, "b")])
        assert "1 lines for the log" in caplog.text

    def test_any_text_is_kept_and_none_is_endless(self, kept):
        kept.write(GROUP, STREAM, [(1, "\n\0\ud800é"), (2, "x" * (log_files.MAX_EVENT_BYTES + 1))])
        first, second = messages(kept)
        assert first == "\n\0\ud800é"
        assert len(second) == log_files.MAX_EVENT_BYTES

    def test_nothing_to_write_makes_a_stream_all_the_same(self, kept):
        kept.write(GROUP, STREAM, [])
        assert [stream.name for stream in kept.streams(GROUP)] == [STREAM]


class TestGroups:
    def test_they_are_made_and_removed(self, kept):
        kept.create_group("b", tags={"a": "1"})
        kept.create_group("a")
        assert [group.name for group, _ in kept.groups()] == ["a", "b"]
        assert refused(kept.create_group, "a") == (
            "ResourceAlreadyExistsException",
            "The specified log group already exists",
        )
        kept.delete_group("a")
        missing = ("ResourceNotFoundException", "The specified log group does not exist.")
        for act in (kept.delete_group, kept.group, kept.streams):
            assert refused(act, "a") == missing
        assert refused(kept.put, "a", "s", [(1, "x")]) == missing

    def test_what_is_too_old_is_answered_no_more(self, kept, fake_clock):
        kept.write(GROUP, STREAM, [(fake_clock.time() - 86_400 * 2, "old"), (fake_clock.time(), "new")])
        kept.set_retention(GROUP, 1)
        assert messages(kept) == ["new"]
        kept.set_retention(GROUP, None)
        assert messages(kept) == ["old", "new"]

    def test_tags_are_replaced(self, kept):
        kept.create_group("a", tags={"a": "1"})
        kept.set_tags("a", {"b": "2"})
        assert kept.group("a").tags == {"b": "2"}

    def test_there_are_so_many(self, kept, monkeypatch):
        monkeypatch.setattr(logs, "MAX_GROUPS", 1)
        kept.create_group("a")
        assert refused(kept.create_group, "b")[0] == "LimitExceededException"


class TestStreams:
    def test_they_are_made_and_removed(self, kept):
        kept.create_group(GROUP)
        kept.create_stream(GROUP, STREAM)
        assert refused(kept.create_stream, GROUP, STREAM)[0] == "ResourceAlreadyExistsException"
        kept.delete_stream(GROUP, STREAM)
        assert refused(kept.events, GROUP, STREAM) == (
            "ResourceNotFoundException",
            "The specified log stream does not exist.",
        )

    def test_they_tell_their_times(self, kept, fake_clock):
        kept.write(GROUP, STREAM, [(5, "a"), (3, "b")])
        (stream,) = kept.streams(GROUP)
        assert (stream.facts.first, stream.facts.last, stream.facts.came) == (3000, 5000, int(fake_clock.time() * 1000))


class TestBounds:
    def test_a_stream_loses_its_older_half(self, tmp_path, fake_clock):
        kept = logs.Logs(str(tmp_path), clock=fake_clock, stream_bytes=1000)
        for number in range(200):
            kept.write(GROUP, STREAM, [(number, f"line {number}")])
        gap, *found = messages(kept)
        assert gap == f"[vmnest: {200 - len(found)} earlier events are not kept any more]"
        assert found[-1] == "line 199"
        assert found == [f"line {number}" for number in range(200 - len(found), 200)]
        assert 10 < len(found) < 100
        assert size(tmp_path) < 3000
        assert [event.number for event in kept.events(GROUP, STREAM)][-1] == 200

    def test_a_flood_at_once_is_bounded_too(self, tmp_path, fake_clock):
        kept = logs.Logs(str(tmp_path), clock=fake_clock, stream_bytes=100_000)
        kept.write(GROUP, STREAM, [(1, f"line {number}") for number in range(50_000)])
        _, *found = messages(kept)
        assert found == [f"line {number}" for number in range(50_000 - len(found), 50_000)]
        assert size(tmp_path) < 300_000

    def test_what_was_dropped_is_told_once_in_its_place(self, tmp_path, fake_clock):
        kept = logs.Logs(str(tmp_path), clock=fake_clock, stream_bytes=10_000)
        for number in range(1000):
            kept.write("g", "s", [(number, f"line {number}")])
        told = messages(kept, "g", "s")
        dropped = 1000 - (len(told) - 1)
        assert told == [
            f"[vmnest: {dropped} earlier events are not kept any more]",
            *(f"line {number}" for number in range(dropped, 1000)),
        ]
        (gap, first, *_) = kept.events("g", "s")
        assert (first.time, first.number) == (dropped * 1000, dropped + 1)
        assert gap.place < first.place
        assert kept.events("g", "s", after=gap.place)[0] == first

    def test_the_end_is_read_without_what_is_before_it(self, tmp_path, fake_clock):
        kept = logs.Logs(str(tmp_path), clock=fake_clock, stream_bytes=3_000_000)
        for start in range(0, 50_000, 100):
            kept.write("g", "s", [(7, f"line {number}") for number in range(start, start + 100)])
        for until, end in ((None, 50_000), ((7000, 49_001), 49_000), ((7000, 20_001), 20_000), ((7000, 3), 2)):
            found = kept.events("g", "s", until=until, last=100)
            assert [each.message for each in found[-100:]] == [f"line {n}" for n in range(max(0, end - 100), end)]
            assert len(found) < 5000

    def test_the_streams_that_were_written_least_lately_go(self, tmp_path, fake_clock):
        kept = logs.Logs(str(tmp_path), clock=fake_clock, stream_bytes=100, total_bytes=2000)
        for number in range(40):
            kept.write(GROUP, f"s{number:02}", [(number, "x" * 100)])
            fake_clock.advance(1)
        left = [stream.name for stream in kept.streams(GROUP)]
        assert left == [f"s{number:02}" for number in range(40 - len(left), 40)]
        assert 5 < len(left) < 20
        assert size(tmp_path) < 4000

    def test_there_are_so_many_streams(self, kept, monkeypatch, fake_clock):
        monkeypatch.setattr(logs, "MAX_STREAMS", 3)
        for name in "abcde":
            kept.write(GROUP, name, [(1, "x")])
            fake_clock.advance(1)
        assert [stream.name for stream in kept.streams(GROUP)] == ["c", "d", "e"]


class TestFolder:
    def test_the_next_daemon_goes_on(self, kept, tmp_path, fake_clock):
        kept.write(GROUP, STREAM, [(1, "a")])
        kept.set_retention(GROUP, 3653)
        again = logs.Logs(str(tmp_path), clock=fake_clock)
        assert again.group(GROUP) == kept.group(GROUP)
        (stream,), (before,) = again.streams(GROUP), kept.streams(GROUP)
        assert (stream.name, stream.created, stream.size) == (before.name, before.created, before.size)
        for fact in ("next_number", "first", "end", "came"):
            assert getattr(stream.facts, fact) == getattr(before.facts, fact)
        again.set_retention(GROUP, None)
        again.write(GROUP, STREAM, [(2, "b")])
        assert messages(again) == ["a", "b"]

    def test_a_line_that_was_cut_short_costs_itself_alone(self, kept, tmp_path, fake_clock):
        kept.write(GROUP, STREAM, [(1, "a")])
        (path,) = (tmp_path / "account" / "logs").glob("*/*.jsonl")
        with path.open("ab") as file:
            file.write(b'[2, 1000, 1, "\\q"]\n[3, 1000, 1, "cut')
        again = logs.Logs(str(tmp_path), clock=fake_clock)
        again.write(GROUP, STREAM, [(2, "b")])
        assert messages(again) == ["a", '"\\q"', "b"]

    @pytest.mark.parametrize("text", ["", "{\n", '{"stream": "other"}\n', "[]\n"])
    def test_a_stream_without_its_head_is_kept_aside(self, kept, tmp_path, fake_clock, text):
        kept.write(GROUP, STREAM, [(1, "a")])
        (path,) = (tmp_path / "account" / "logs").glob("*/*.jsonl")
        path.write_text(text)
        assert logs.Logs(str(tmp_path), clock=fake_clock).streams(GROUP) == []
        assert path.with_name(path.name + ".bad").exists()

    def test_a_group_whose_note_is_damaged_is_not_there(self, kept, tmp_path, fake_clock):
        kept.create_group("a")
        (note,) = (tmp_path / "account" / "logs").glob("*/group.json")
        note.write_text("{}")
        again = logs.Logs(str(tmp_path), clock=fake_clock)
        assert again.groups() == []
        again.create_group("a")
