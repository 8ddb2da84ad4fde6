"""Python's zipfile reads what is written here: names, modes, pieces, and sizes beyond the old format."""

import io
import stat
import zipfile
import zlib

import pytest

from vmnest.guest_image import zipfiles


def build(*entries: tuple[str, int, bytes]) -> bytes:
    file = io.BytesIO()
    writer = zipfiles.Writer(file)
    for name, mode, data in entries:
        writer.add(name, mode=mode, method=zipfiles.STORED, crc=zlib.crc32(data), size=len(data), data=data)
    assert writer.close() == len(file.getvalue())
    return file.getvalue()


def test_names_modes_and_data_are_read_by_another_program():
    made = build(
        ("a.txt", stat.S_IFREG | 0o640, b"hello"),
        ("café", stat.S_IFREG | 0o755, b""),
        ("d/", stat.S_IFDIR | 0o700, b""),
        ("link", stat.S_IFLNK | 0o777, b"a.txt"),
    )
    with zipfile.ZipFile(io.BytesIO(made)) as found:
        assert found.testzip() is None
        shown = [(info.filename, info.external_attr >> 16, found.read(info)) for info in found.infolist()]
        assert [info.create_system for info in found.infolist()] == [3] * 4
        assert {info.date_time for info in found.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert found.getinfo("d/").external_attr & 0x10
    assert shown == [
        ("a.txt", 0o100640, b"hello"),
        ("café", 0o100755, b""),
        ("d/", 0o040700, b""),
        ("link", 0o120777, b"a.txt"),
    ]


@pytest.mark.parametrize("is_large", [False, True])
def test_an_entry_that_comes_in_pieces_is_whole_at_its_end(is_large):
    file = io.BytesIO()
    writer = zipfiles.Writer(file)
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    entry = writer.begin("big", mode=stat.S_IFREG | 0o644, is_large=is_large)
    writer.write(packer.compress(b"x" * 100_000))
    writer.write(packer.flush())
    writer.end(entry, method=zipfiles.DEFLATED, crc=zlib.crc32(b"x" * 100_000), size=100_000)
    writer.add("after", mode=stat.S_IFREG | 0o644, method=zipfiles.STORED, crc=zlib.crc32(b"y"), size=1, data=b"y")
    writer.close()
    with zipfile.ZipFile(file) as found:
        assert found.testzip() is None
        assert (found.read("big"), found.read("after")) == (b"x" * 100_000, b"y")


def test_more_entries_than_the_old_format_counts():
    made = build(*[(f"{number}", stat.S_IFREG | 0o644, b"") for number in range(70_000)])
    with zipfile.ZipFile(io.BytesIO(made)) as found:
        assert len(found.infolist()) == 70_000


def test_sizes_beyond_four_gib_are_told():
    size, offset = 5 << 30, 6 << 30
    record = zipfiles.Record(b"huge", stat.S_IFREG | 0o644, zipfiles.STORED, 1, size, size, offset)
    central = zipfiles._central(record)
    end = zipfiles._end(count=1, size=len(central), offset=offset + size)
    data = io.BytesIO(central + end)

    class Shifted(io.BytesIO):
        """The directory of a zip whose data is not there: all offsets are shifted by it."""

        def tell(self) -> int:
            return super().tell() + offset + size

        def seek(self, where: int, whence: int = 0) -> int:
            return super().seek(where - offset - size if whence == 0 else where, whence) + offset + size

    with zipfile.ZipFile(Shifted(data.getvalue())) as found:
        (info,) = found.infolist()
    assert (info.file_size, info.compress_size, info.header_offset) == (size, size, offset)


def test_an_entry_that_outgrew_its_header_is_refused():
    writer = zipfiles.Writer(io.BytesIO())
    entry = writer.begin("grown", mode=stat.S_IFREG | 0o644, is_large=False)
    with pytest.raises(ValueError, match="grew"):
        writer.end(entry, method=zipfiles.DEFLATED, crc=0, size=1 << 32)
