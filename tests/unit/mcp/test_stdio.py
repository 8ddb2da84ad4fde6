"""Lines and the wire."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import ROOT
from vmnest.mcp.stdio import Lines, TooLong, Wire


def split(*pieces: bytes, longest: int = 100) -> list[object]:
    lines = Lines(longest=longest)
    return [line for piece in pieces for line in lines.feed(piece)]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\n\n\r\n b \n", [b"a", b"b"]),
        (b"\xef\xbb\xbf{}\n\xef\xbb\xbf{}\n", [b"{}", b"\xef\xbb\xbf{}"]),
        ("{\u2028\u2029\x85}\x0b\x0c\x1c\n".encode(), ["{\u2028\u2029\x85}\x0b\x0c\x1c".encode()]),
        (b"no end", []),
    ],
)
def test_only_a_line_feed_ends_a_line(data, found):
    assert split(data) == found


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_it_does_not_matter_how_the_bytes_arrive(data, cuts):
    ends = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[begin:end] for begin, end in itertools.pairwise(ends)]
    whole = [line if isinstance(line, bytes) else "too long" for line in split(data, longest=20)]
    assert [line if isinstance(line, bytes) else "too long" for line in split(*pieces, longest=20)] == whole


def test_what_is_too_long_is_dropped_as_it_comes_and_the_next_line_is_taken():
    lines = Lines(longest=1000)
    assert [lines.feed(b"x" * 400) for _ in range(3)] == [[], [], []]
    assert lines._parts == []
    dropped, following = lines.feed(b"y\n{}\n")
    assert isinstance(dropped, TooLong)
    assert following == b"{}"


def test_lines_of_several_threads_are_not_mixed():
    reader, writer = os.pipe()
    wire = Wire(writer)
    lines = [bytes([letter]) * 9000 + b"\n" for letter in b"abcdefgh"]
    threads = [threading.Thread(target=lambda line=line: [wire.write(line) for _ in range(5)]) for line in lines]
    for thread in threads:
        thread.start()
    seen = b""
    while len(seen) < 5 * sum(map(len, lines)):
        seen += os.read(reader, 65536)
    for thread in threads:
        thread.join()
    os.close(reader)
    os.close(writer)
    assert sorted(seen.splitlines(keepends=True)) == sorted(5 * lines)


def test_when_nobody_reads_any_more_writing_goes_nowhere():
    reader, writer = os.pipe()
    os.close(reader)
    wire = Wire(writer)
    wire.write(b"{}\n")
    assert wire.is_broken
    wire.write(b"{}\n")
    os.close(writer)


def test_a_slow_reader_gets_all_of_it_from_a_pipe_that_somebody_made_non_blocking():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    line = b"x" * 300_000 + b"\n"
    thread = threading.Thread(target=Wire(writer).write, args=(line,))
    thread.start()
    seen = b""
    while len(seen) < len(line):
        seen += os.read(reader, 65536)
    thread.join()
    os.close(reader)
    os.close(writer)
    assert seen == line


def test_standard_output_is_taken_from_prints_and_from_children():
    program = (
        "from vmnest.mcp import stdio; wire = stdio.Wire(stdio.take_standard_output())\n"
        "import os, subprocess; print('printed', flush=True); os.write(1, b'written')\n"
        "subprocess.run(['echo', 'child']); "
        "wire.write(b'{}\\n')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, timeout=60, check=True)
    assert done.stdout == b"{}\n"
    assert done.stderr == b"printed\nwrittenchild\n"


def test_standard_input_is_taken_from_whoever_else_reads_and_from_children():
    program = (
        "from vmnest.mcp import stdio; source = stdio.take_standard_input()\n"
        "import os, subprocess, sys; assert sys.stdin.read() == ''\n"
        "subprocess.run(['sh', '-c', f'cat; [ ! -e /proc/self/fd/{source} ] && echo gone']); print(os.read(source, 9))"
    )
    done = subprocess.run(
        [sys.executable, "-u", "-c", program], cwd=ROOT, input=b"ours", capture_output=True, timeout=60, check=True
    )
    assert done.stdout == b"gone\nb'ours'\n"


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_a_standard_descriptor_that_is_closed_is_taken_by_nothing_else(closed):
    program = (
        "import os\nfor each in map(int, os.sys.argv[2:]): os.close(each)\n"
        "from vmnest.mcp import stdio; stdio.open_missing()\n"
        "assert stdio.take_standard_input() > 2 and stdio.take_standard_output() > 2\n"
        "assert all(os.get_inheritable(each) for each in (0, 1, 2))\n"
        "open(os.sys.argv[1], 'w').write('done')"
    )
    read, write = os.pipe()
    subprocess.run(
        [sys.executable, "-c", program, f"/dev/fd/{write}", *map(str, closed)],
        cwd=ROOT,
        pass_fds=[write],
        timeout=60,
        check=True,
    )
    os.close(write)
    with open(read, "rb") as result:
        assert result.read() == b"done"
