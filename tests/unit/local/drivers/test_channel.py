"""Frames on a supervisor's control socket."""

from __future__ import annotations

import _socket
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local.drivers import channel


@pytest.fixture
def ends() -> Iterator[tuple[_socket.socket, _socket.socket]]:
    first, second = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    yield first, second
    first.close()
    second.close()


def test_a_frame_arrives_as_its_words(ends: tuple[_socket.socket, _socket.socket]) -> None:
    channel.send(ends[0], "dial", 8080, 5000)
    assert channel.receive(ends[1]) == (["dial", "8080", "5000"], None)


def test_frames_do_not_run_together(ends: tuple[_socket.socket, _socket.socket]) -> None:
    channel.send(ends[0], "one")
    channel.send(ends[0], "two")
    assert [channel.receive(ends[1])[0] for _ in range(2)] == [["one"], ["two"]]


def test_a_descriptor_travels_with_its_frame(ends: tuple[_socket.socket, _socket.socket]) -> None:
    reader, writer = os.pipe()
    channel.send(ends[0], "ok", descriptor=writer)
    words, passed = channel.receive(ends[1])
    assert words == ["ok"]
    assert passed is not None
    assert not os.get_inheritable(passed)
    os.write(passed, b"x")
    assert os.read(reader, 1) == b"x"
    for descriptor in (reader, writer, passed):
        os.close(descriptor)


def test_the_end_of_the_connection_is_no_words(ends: tuple[_socket.socket, _socket.socket]) -> None:
    ends[0].close()
    assert channel.receive(ends[1]) == ([], None)


def test_a_frame_that_is_too_long_is_refused(ends: tuple[_socket.socket, _socket.socket]) -> None:
    ends[0].send(b"x" * (channel.MAX_FRAME_BYTES + 1))
    with pytest.raises(ValueError, match="too long"):
        channel.receive(ends[1])


def test_what_is_no_ascii_is_refused_and_its_descriptor_closed(ends: tuple[_socket.socket, _socket.socket]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    ends[0].sendmsg([b"\xff"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, (0).to_bytes(4, "little"))])
    with pytest.raises(ValueError, match="ascii"):
        channel.receive(ends[1])
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_peer_that_does_not_read_is_an_error_and_not_a_wait(ends: tuple[_socket.socket, _socket.socket]) -> None:
    def flood() -> None:
        for _ in range(100_000):
            channel.send(ends[0], "ready")

    with pytest.raises(BlockingIOError):
        flood()


@given(st.binary(max_size=2000))
def test_any_datagram_is_words_or_a_refusal(data: bytes) -> None:
    first, second = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        first.send(data)
        words, _ = channel.receive(second)
        assert " ".join(words).split() == data.decode("ascii").split()
    except ValueError:
        assert len(data) > channel.MAX_FRAME_BYTES or not data.isascii()
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("depth", [0, 30], ids=["short", "longer than an address"])
def test_a_socket_is_found_at_a_path_of_any_length(tmp_path: Path, depth: int) -> None:
    folder = tmp_path.joinpath(*["a-long-name"] * depth)
    folder.mkdir(parents=True, exist_ok=True)
    listener = channel.listen(str(folder))
    connection = channel.connect(str(folder))
    assert (folder / channel.SOCKET_NAME).is_socket()
    listener.close()
    connection.close()


def test_no_supervisor_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        channel.connect(str(tmp_path))
