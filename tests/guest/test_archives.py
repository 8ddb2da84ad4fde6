"""The tar format: Python's ``tarfile`` reads what is written, and what it writes is read."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guest.agentd import archives
from guest.agentd.archives import ArchiveError, Member, Note

# No NUL, and no slash at an end or in a row: names as a file system has them.
NAME_PARTS = st.binary(min_size=1, max_size=60).map(lambda data: data.replace(b"\0", b"x").replace(b"/", b"y"))
NAMES = st.lists(NAME_PARTS, min_size=1, max_size=6).map(b"/".join)
TIMES = st.integers(-(2**40), 2**40 - 1).flatmap(
    lambda seconds: st.integers(0, 999_999_999).map(lambda fraction: seconds * 1_000_000_000 + fraction)
)
BLOCK = 512


def encode(members: Iterable[tuple[Member | Note, bytes]]) -> bytes:
    parts = []
    for member, content in members:
        if isinstance(member, Note):
            parts.append(archives.encode_note(member))
        else:
            parts += [archives.encode_member(member), content, archives.padding(len(content))]
    return b"".join([*parts, archives.END])


def decode(data: bytes, *, step: int = 1 << 30) -> list[tuple[Member | Note, bytes]]:
    reader = archives.Reader(data[start : start + step] for start in range(0, len(data), step))
    return [(item, b"".join(reader.content())) for item in reader.members()]


def show(item: Member | Note) -> tuple[object, ...]:
    if isinstance(item, Note):
        return item.path, item.reason
    return item.name, item.kind, item.mode, item.size, item.mtime_ns, item.target


def header(**fields: bytes) -> bytes:
    """A header for a file called x, with some fields as they are given and the checksum right."""
    places = {
        "name": 0,
        "mode": 100,
        "size": 124,
        "mtime": 136,
        "flag": 156,
        "target": 157,
        "magic": 257,
        "prefix": 345,
    }
    block = bytearray(archives.encode_member(Member(b"x")))
    for name, value in fields.items():
        block[places[name] : places[name] + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def extension(body: bytes, *, flag: bytes = b"x") -> bytes:
    return header(flag=flag, size=b"%011o" % len(body)) + body + archives.padding(len(body))


@st.composite
def members(draw: st.DrawFn) -> tuple[Member, bytes]:
    kind = draw(st.sampled_from([archives.FILE, archives.DIRECTORY, archives.SYMBOLIC_LINK, archives.HARD_LINK]))
    content = draw(st.binary(max_size=1500)) if kind == archives.FILE else b""
    is_link = kind in (archives.SYMBOLIC_LINK, archives.HARD_LINK)
    member = Member(
        draw(NAMES),
        kind=kind,
        mode=draw(st.integers(0, 0o7777)),
        size=len(content),
        mtime_ns=draw(TIMES),
        target=draw(NAMES) if is_link else b"",
    )
    return member, content


@given(st.lists(members(), max_size=5), st.integers(1, 2000))
@settings(deadline=None)
def test_what_is_written_is_read_in_whatever_pieces_it_comes(written: list[tuple[Member, bytes]], step: int) -> None:
    read = decode(encode(written), step=step)
    assert [content for _, content in read] == [content for _, content in written]
    for (had, _), (got, _) in zip(written, read, strict=True):
        assert isinstance(got, Member)
        got.name = got.name.rstrip(b"/") if got.kind == archives.DIRECTORY else got.name
        assert show(got) == show(had)


@given(members())
@settings(deadline=None)
def test_tarfile_reads_what_is_written(written: tuple[Member, bytes]) -> None:
    member, content = written
    with tarfile.open(fileobj=io.BytesIO(encode([written])), encoding="utf-8", errors="surrogateescape") as archive:
        (info,) = archive.getmembers()
        assert os.fsencode(info.name) == member.name.rstrip(b"/") or member.name.endswith(b"/")
        assert os.fsencode(info.linkname) == member.target
        assert (info.mode, info.size) == (member.mode, member.size)
        assert abs(float(info.mtime) - member.mtime_ns / 1e9) < 1e-3
        if member.kind == archives.FILE:
            stream = archive.extractfile(info)
            assert stream is not None
            assert stream.read() == content


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("length", [1, 99, 100, 101, 240, 1000])
def test_what_tarfile_writes_is_read(form: int, length: int) -> None:
    name = ("folder/" * 200)[: length - 1].rstrip("/").ljust(length, "x")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = 700, 0o640, 1234567890
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, name
        try:
            archive.addfile(info, io.BytesIO(b"c" * 700))
            archive.addfile(link)
        except ValueError:
            assert form == tarfile.USTAR_FORMAT  # which has no place for it
            assert length > 100
            return
    (file, content), (read_link, _) = decode(stream.getvalue(), step=100)
    assert content == b"c" * 700
    assert show(file) == (name.encode(), archives.FILE, 0o640, 700, 1234567890 * 10**9, b"")
    assert isinstance(read_link, Member)
    assert read_link.target == name.encode()


@pytest.mark.parametrize("size", [8**11 - 1, 8**11, 2**40])
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_large_sizes_are_read_and_written(size: int, form: int) -> None:
    info = tarfile.TarInfo("x")
    info.size = size
    for data in (archives.encode_member(Member(b"x", size=size)), info.tobuf(form)):
        reader = archives.Reader([data])
        item = next(reader.members())
        assert isinstance(item, Member)
        assert item.size == size


def test_times_before_1970_in_binary_numbers_are_read() -> None:
    (item, _) = decode(header(mtime=b"\xff" * 11 + b"\xfe", size=b"%011o" % 0) + archives.END)[0]
    assert isinstance(item, Member)
    assert item.mtime_ns == -2 * 10**9


def test_remarks_arrive_where_they_were_made() -> None:
    written = [(Member(b"a"), b""), (Note(b"p\n\xff", "a named pipe"), b""), (Member(b"b"), b"")]
    assert [show(item)[0] for item, _ in decode(encode(written))] == [b"a", b"p\n\xff", b"b"]


def test_tarfile_passes_over_remarks() -> None:
    data = encode([(Note(b"p\xff", "a named pipe"), b""), (Member(b"b"), b"")])
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert archive.getnames() == ["b"]


def test_content_that_nobody_takes_is_passed_over() -> None:
    data = encode([(Member(b"a", size=5000), b"x" * 5000), (Member(b"b", size=1), b"y")])
    reader = archives.Reader(iter([data]))
    assert [show(item)[0] for item in reader.members()] == [b"a", b"b"]


def test_an_archive_may_be_padded() -> None:
    pulled: list[bytes] = []

    def pieces() -> Iterator[bytes]:
        for piece in (encode([(Member(b"a"), b"")]), bytes(10240), b"garbage"):
            pulled.append(piece)
            yield piece

    assert len(list(archives.Reader(pieces()).members())) == 1
    assert len(pulled) == 3


def test_every_cut_is_an_error() -> None:
    data = encode([(Member(b"n" * 150, size=600, mtime_ns=1), b"x" * 600), (Note(b"a", "b"), b"")])
    for end in range(len(data)):
        with pytest.raises(ArchiveError, match="ends too early"):
            decode(data[:end])


@given(st.binary(max_size=3000))
@settings(deadline=None)
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    try:
        decode(data)
    except ArchiveError:
        return
    assert not any(data[:BLOCK])


@given(st.integers(0, 3 * BLOCK), st.integers(0, 255), st.integers(1, 700))
@settings(deadline=None)
def test_a_damaged_archive_is_read_or_refused(position: int, value: int, step: int) -> None:
    data = bytearray(encode([(Member(b"n\xff" * 70, size=10, mtime_ns=1), b"x" * 10)]))
    data[position] = value
    try:
        decode(bytes(data), step=step)
    except ArchiveError:
        return


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"<html>" * 200, "no tar archive"),
        (header()[:10] + b"y" + header()[11:], "wrong checksum"),
        (header(size=b"\xff" * 12), "number"),
        (header(size=b"\x80" + b"\xff" * 11), "number"),
        (header(size=b"12x"), "number"),
        (header(flag=b"S"), "holes"),
        (header(flag=b"x", size=b"77777777777"), "extended header"),
        (header(flag=b"L", size=b"77777777777"), "extended header"),
        (header(flag=b"g", size=b"77777777777"), "extended header"),
        (extension(b"garbage"), "malformed"),
        (extension(b"99 a=b\n"), "malformed"),
        (extension(b"6 a=b "), "malformed"),
        (extension(b"5 ab\n"), "malformed"),
        (extension(b"3 \n"), "malformed"),
        (extension(b"0006 a=\n"), "malformed"),
        (extension(b"11 size=-1\n") + header(), "malformed"),
        (extension(b"22 size=9999999999999\n") + header(), "too early"),
        (extension(b"30 size=999999999999999999999\n") + header(), "malformed"),
        (extension(b"13 mtime=1e9\n") + header(), "malformed"),
        (extension(b"12 path=a\0b\n") + header(), "NUL"),
        (extension(b"20013 path=" + b"a" * 20001 + b"\n") + header(), "name of 20001 bytes"),
        (header() + bytes(BLOCK) + header(), "empty block"),
    ],
)
def test_what_is_no_archive_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(ArchiveError, match=problem):
        decode(data + archives.END)


def test_records_that_are_not_known_are_not_kept() -> None:
    records = b"".join(b"%d k%05d=v\n" % (len(b"12 k00000=v\n"), number) for number in range(1000))
    ((item, _),) = decode(extension(records) + header() + archives.END)
    assert isinstance(item, Member)
    assert item.name == b"x"


def test_a_file_with_a_map_of_holes_is_marked() -> None:
    ((item, _),) = decode(extension(b"22 GNU.sparse.major=1\n") + header() + archives.END)
    assert isinstance(item, Member)
    assert item.is_sparse


@pytest.mark.parametrize(("flag", "kind"), [(b"3", "device"), (b"4", "device"), (b"6", "named pipe")])
def test_devices_are_named(flag: bytes, kind: str) -> None:
    ((item, _),) = decode(header(flag=flag) + archives.END)
    assert isinstance(item, Member)
    assert item.kind == kind


def test_a_type_that_is_not_known_is_passed_over_with_its_content() -> None:
    data = header(flag=b"D", size=b"%011o" % 3) + b"abc" + archives.padding(3) + header(name=b"y") + archives.END
    names = [show(item)[:2] for item, _ in decode(data)]
    assert names == [(b"x", "member of type b'D'"), (b"y", archives.FILE)]


def test_a_prefix_comes_before_the_name() -> None:
    ((item, _),) = decode(header(prefix=b"a/b") + archives.END)
    assert isinstance(item, Member)
    assert item.name == b"a/b/x"


def test_an_old_directory_is_a_name_that_ends_with_a_slash() -> None:
    # Some of them have a size, and then a content.
    data = header(name=b"x/", magic=bytes(8), size=b"%011o" % 3) + b"abc" + archives.padding(3) + header(name=b"y")
    assert [show(item)[:2] for item, _ in decode(data + archives.END)] == [
        (b"x/", archives.DIRECTORY),
        (b"y", archives.FILE),
    ]


def test_names_that_are_no_utf_8_say_so() -> None:
    assert b"hdrcharset=BINARY" in archives.encode_member(Member(b"\xff"))
    assert b"hdrcharset" not in archives.encode_member(Member("é".encode()))
    assert len(archives.encode_member(Member(b"plain", mtime_ns=5 * 10**9))) == BLOCK
