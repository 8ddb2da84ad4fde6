"""What is sent as a file, and how often it can be read."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.agent import sources
from vmnest.agent.sources import KEPT_BYTES, PIECE_BYTES, from_data


def whole(source: sources.Source) -> bytes:
    return b"".join(source.pieces())


@given(st.binary(max_size=1000))
def test_bytes_of_any_kind_can_be_read_again_and_have_a_size(data: bytes) -> None:
    for form in (data, bytearray(data), memoryview(data)):
        source = from_data(form)
        assert (whole(source), whole(source), source.size) == (data, data, len(data))
        assert not source.is_spent


def test_text_is_its_utf8() -> None:
    source = from_data("é日")
    assert (whole(source), source.size) == ("é日".encode(), 5)


def test_a_view_of_numbers_is_its_bytes() -> None:
    from array import array

    numbers = array("I", [1, 2])
    assert whole(from_data(memoryview(numbers))) == numbers.tobytes()


def test_large_bytes_come_in_pieces() -> None:
    sizes = [len(piece) for piece in from_data(bytes(PIECE_BYTES * 2 + 1)).pieces()]
    assert sizes == [PIECE_BYTES, PIECE_BYTES, 1]


def test_a_file_is_read_again_from_where_it_stood(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    with open(tmp_path / "f", "rb") as file:
        file.read(4)
        source = from_data(file)
        assert (whole(source), whole(source)) == (b"456789", b"456789")
        assert not source.is_spent


def test_a_file_in_memory_is_read_again() -> None:
    file = io.BytesIO(b"abc")
    source = from_data(file)
    assert (whole(source), whole(source)) == (b"abc", b"abc")


def test_a_pipe_can_be_read_again_while_it_is_small() -> None:
    reader, writer = os.pipe()
    with open(reader, "rb") as file, open(writer, "wb") as other:
        other.write(b"abc")
        other.close()
        source = from_data(file)
        assert source.size is None
        assert (whole(source), whole(source)) == (b"abc", b"abc")
        assert not source.is_spent


def test_an_iterable_that_broke_off_in_the_beginning_goes_on_after_it() -> None:
    source = from_data(iter([b"ab", b"cd", b"ef"]))
    first = source.pieces()
    assert next(first) == b"ab"
    assert whole(source) == b"abcdef"


def test_what_is_more_than_is_kept_can_be_read_once() -> None:
    source = from_data(iter([b"x" * KEPT_BYTES, b"y"]))
    assert len(whole(source)) == KEPT_BYTES + 1
    assert source.is_spent
    with pytest.raises(errors.RemoteFileError, match="only once") as caught:
        whole(source)
    assert caught.value.hint is not None


def test_an_iterable_that_failed_is_not_taken_for_one_that_ended() -> None:
    def failing() -> Iterator[bytes]:
        yield b"ab"
        raise RuntimeError("no more")

    source = from_data(failing())
    with pytest.raises(RuntimeError, match="no more"):
        whole(source)
    assert source.is_spent
    with pytest.raises(errors.RemoteFileError):
        whole(source)


@pytest.mark.parametrize("piece", ["text", 7, None], ids=repr)
def test_pieces_that_are_no_bytes_are_refused(piece: object) -> None:
    with pytest.raises(errors.UsageError, match="made of bytes"):
        whole(from_data([piece]))


def test_a_file_in_text_mode_is_refused() -> None:
    with pytest.raises(errors.UsageError, match="not of str"):
        whole(from_data(io.StringIO("text")))


@pytest.mark.parametrize("data", [7, None, 1.5, object()], ids=lambda data: type(data).__name__)
def test_what_can_be_no_file_is_refused(data: object) -> None:
    with pytest.raises(errors.UsageError, match="made of bytes"):
        from_data(data)


def test_a_file_without_patience_is_refused_instead_of_cut_short() -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with (
        open(reader, "rb", buffering=0) as file,
        open(writer, "wb"),
        pytest.raises(errors.UsageError, match="non-blocking"),
    ):
        whole(from_data(file))


def test_pieces_of_any_size_are_made_small() -> None:
    sizes = [len(piece) for piece in from_data([bytes(PIECE_BYTES + 1), b""]).pieces()]
    assert sizes == [PIECE_BYTES, 1]
