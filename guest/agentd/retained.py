"""What is kept of one process's output: the bytes of both streams in arrival order, to be read from any offset.

Strategy: the output is a row of chunks; the newest stand in memory, the others in slots of the common file. A chunk
holds the bytes of both streams together and, beside them, the runs: the lengths of what came from one stream. What is
missing between two chunks is a gap.

Rules for what goes when more than ``limit`` bytes are kept:

- The head, half of the limit, stays; behind it the oldest bytes go first.
- ``block``: only what a reader has confirmed goes; the writer is to pause while too much is unconfirmed.
- ``drop``: everything may go, and the writer never pauses.
- On a full disk less is kept: what cannot be written goes from the middle of what stands in memory, by the same rules,
  and the writer is to pause sooner.
"""

from __future__ import annotations

import bisect
import struct
import threading

from . import frames, journal, slots, wire

MAX_UNCONFIRMED_BYTES = 16 * 1024 * 1024
TERMINAL_BYTES = 256 * 1024  # the same of a terminal: whoever interrupts a flood there has to see all of this first
UNWRITTEN_BYTES = 512 * 1024  # the same on a full disk: all of it stands in memory
MEMORY_BYTES = 256 * 1024  # of one output, beside its newest chunk
COMMON_MEMORY_BYTES = 32 * 1024 * 1024  # of all outputs together; beyond it they have nothing but their newest chunks
SETTLED_BYTES = 8192  # of an output to which nothing comes any more
_CHUNK_BYTES = 65536
_RUN = struct.Struct("<I")  # length times 2, and 1 for standard error
_KINDS = (frames.STDOUT, frames.STDERR)


class Store:
    """What all outputs of an agent share: the file, and how much stands in memory. Thread-safe."""

    def __init__(self) -> None:
        self.slots = slots.Slots()
        self._lock = threading.Lock()
        self._memory = 0

    def charge(self, count: int) -> None:
        """So many bytes more, or less, stand in memory."""
        with self._lock:
            self._memory += count

    @property
    def memory_allowance(self) -> int:
        """How much one output may have in memory."""
        return MEMORY_BYTES if self._memory <= COMMON_MEMORY_BYTES else 0


class Chunk:
    """A stretch of output that begins at offset ``start``. Of its ``size`` bytes the first ``skip`` are gone."""

    __slots__ = ("data", "runs", "runs_size", "size", "skip", "slot", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.size = 0
        self.skip = 0
        self.data = bytearray()  # empty when it is in a slot, as are the runs
        self.runs = bytearray()
        self.runs_size = 0
        self.slot: int | None = None

    def add(self, kind: int, data: memoryview) -> None:
        """Put ``data`` at the end."""
        word = len(data) << 1 | (kind == frames.STDERR)
        last = _RUN.unpack_from(self.runs, self.runs_size - _RUN.size)[0] if self.runs else None
        if last is not None and last & 1 == word & 1:
            _RUN.pack_into(self.runs, self.runs_size - _RUN.size, last + (len(data) << 1))
        else:
            self.runs += _RUN.pack(word)
            self.runs_size += _RUN.size
        self.data += data
        self.size += len(data)

    @property
    def room(self) -> int:
        """How many bytes more it takes."""
        return min(_CHUNK_BYTES - self.size, slots.SLOT_BYTES - self.size - self.runs_size - _RUN.size)


class Cursor:
    """Where a reader is. It also remembers its place in a chunk, so that many small writes are read in one pass."""

    __slots__ = ("base", "chunk", "offset", "run")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.chunk: Chunk | None = None
        self.run = 0  # where the run stands among the runs of the chunk
        self.base = 0  # where it begins in the chunk


class Output:
    """The output of one process. Its owner holds a lock around every call.

    Args:
        store: Shared with others.
        limit: How many bytes are kept in the long run.
        retain: ``block`` or ``drop``.
        window: So much may be unconfirmed before the writer is to pause.
    """

    def __init__(self, store: Store, *, limit: int, retain: str, window: int | None = None) -> None:
        self._store = store
        self._limit = limit
        self._window = MAX_UNCONFIRMED_BYTES if window is None else window
        self._head_limit = limit // 2
        self.retain = retain
        self.size = 0  # the offset at which the output ends
        self._kept = 0
        self._confirmed = 0
        self._chunks: list[Chunk] = []  # the last one may still grow
        self._starts: list[int] = []  # of the chunks
        self._unwritten: list[Chunk] = []  # chunks in memory that do not grow any more
        self._is_disk_full = False

    @property
    def oldest(self) -> int:
        """The first offset of which something is kept."""
        return self._chunks[0].start + self._chunks[0].skip if self._chunks else self.size

    @property
    def cost(self) -> int:
        """How much memory and disk it takes."""
        return sum(chunk.size if chunk.slot is None else slots.SLOT_BYTES for chunk in self._chunks)

    @property
    def must_pause(self) -> bool:
        """Whether the process is to wait for its reader."""
        window = min(self._window, UNWRITTEN_BYTES) if self._is_disk_full else self._window
        return self.retain == wire.RETAIN_BLOCK and self.size - self._confirmed >= window

    def append(self, kind: int, data: bytes) -> None:
        """Keep ``data`` behind what is there."""
        view = memoryview(data)
        while view:
            chunk = self._open_chunk()
            room = chunk.room
            if self.size < self._head_limit:
                room = min(room, self._head_limit - self.size)
            count = min(room, len(view))
            chunk.add(kind, view[:count])
            self.size += count
            self._kept += count
            view = view[count:]
        self._trim()

    def read(self, cursor: Cursor, limit: int) -> bytes:
        """Frames of about ``limit`` bytes from the cursor on, which is moved; empty where the output ends so far.

        Raises:
            OSError: the file cannot be read.
        """
        parts: list[bytes | memoryview] = []
        end = min(cursor.offset + limit, self.size)
        while cursor.offset < end:
            chunk = self._find(cursor.offset)
            begin = self.size if chunk is None else chunk.start + chunk.skip
            if begin > cursor.offset:
                parts.append(frames.encode_gap(begin - cursor.offset))
                cursor.offset = begin
            elif chunk is not None:
                self._read_chunk(chunk, cursor, end=end, parts=parts)
        return b"".join(parts)

    def confirm(self, offset: int) -> None:
        """A reader has everything before ``offset``."""
        if offset > self._confirmed:
            self._confirmed = offset
            self._trim()

    def give_up_reader(self) -> None:
        """Nobody reads: the writer need not wait any more."""
        self.retain = wire.RETAIN_DROP
        self._trim()

    def settle(self) -> None:
        """Nothing comes any more."""
        self._seal()
        if sum(chunk.size for chunk in self._unwritten) > SETTLED_BYTES:
            self._write_out(allowance=0)

    def discard(self) -> None:
        """Keep nothing of it."""
        while self._chunks:
            self._remove(self._chunks[-1])

    @property
    def _floor(self) -> int:
        """What begins before this offset may go."""
        return self._confirmed if self.retain == wire.RETAIN_BLOCK else self.size

    def _open_chunk(self) -> Chunk:
        """The chunk that grows."""
        last = self._chunks[-1] if self._chunks else None
        # A chunk ends where the head does, so that what goes behind it goes whole.
        if last is not None and last.room > 0 and not self._is_sealed(last) and self.size != self._head_limit:
            return last
        self._seal()
        chunk = Chunk(self.size)
        self._chunks.append(chunk)
        self._starts.append(chunk.start)
        return chunk

    def _is_sealed(self, chunk: Chunk) -> bool:
        return chunk.slot is not None or chunk in self._unwritten

    def _seal(self) -> None:
        """The last chunk does not grow any more."""
        if not self._chunks or self._is_sealed(self._chunks[-1]):
            return
        chunk = self._chunks[-1]
        self._unwritten.append(chunk)
        self._store.charge(chunk.size)
        if chunk.skip == chunk.size:
            self._remove(chunk)
        self._write_out(allowance=self._store.memory_allowance)

    def _write_out(self, *, allowance: int) -> None:
        """Move chunks to the file until no more than ``allowance`` bytes of them stand in memory."""
        while len(self._unwritten) * _CHUNK_BYTES > allowance:
            chunk = self._unwritten[0]
            try:
                chunk.slot = self._store.slots.put((chunk.data, chunk.runs))
            except OSError as error:
                if not self._is_disk_full:
                    journal.report(f"less output is kept: {error.strerror}")
                self._is_disk_full = True
                # An output that is over would only leave memory for the disk: without one it stays.
                allowance = max(allowance, self._store.memory_allowance)
                if len(self._unwritten) * _CHUNK_BYTES <= allowance or not self._drop_unwritten():
                    return
                continue
            self._is_disk_full = False
            self._store.charge(-chunk.size)
            del self._unwritten[0]
            chunk.data, chunk.runs = bytearray(), bytearray()

    def _drop_unwritten(self) -> bool:
        """Let go of a chunk in memory that nobody waits for, from the middle; whether there was one."""
        floor = self._floor
        loose = [chunk for chunk in self._unwritten if chunk.start + chunk.size <= floor]
        if loose:
            self._remove(loose[len(loose) // 2])
        return bool(loose)

    def _trim(self) -> None:
        floor = self._floor
        while self._kept > self._limit:
            index = bisect.bisect_left(self._starts, self._head_limit)
            if index == len(self._chunks):
                return
            chunk = self._chunks[index]
            first = chunk.start + chunk.skip
            count = min(self._kept - self._limit, chunk.size - chunk.skip, floor - first)
            if count <= 0:
                return
            chunk.skip += count
            self._kept -= count
            if chunk.skip == chunk.size and self._is_sealed(chunk):
                self._remove(chunk)

    def _remove(self, chunk: Chunk) -> None:
        index = bisect.bisect_left(self._starts, chunk.start)
        del self._chunks[index], self._starts[index]
        self._kept -= chunk.size - chunk.skip
        if chunk.slot is not None:
            self._store.slots.free(chunk.slot)
        elif chunk in self._unwritten:
            self._unwritten.remove(chunk)
            self._store.charge(-chunk.size)

    def _find(self, offset: int) -> Chunk | None:
        """The chunk of this offset, or the next one behind it."""
        index = bisect.bisect_right(self._starts, offset) - 1
        if index >= 0 and offset < self._chunks[index].start + self._chunks[index].size:
            return self._chunks[index]
        return self._chunks[index + 1] if index + 1 < len(self._chunks) else None

    def _read_chunk(self, chunk: Chunk, cursor: Cursor, *, end: int, parts: list[bytes | memoryview]) -> None:
        data, runs = self._load(chunk)
        if cursor.chunk is not chunk:
            cursor.chunk, cursor.run, cursor.base = chunk, 0, 0
        position = cursor.offset - chunk.start
        last = min(chunk.size, end - chunk.start)
        while position < last:
            word = _RUN.unpack_from(runs, cursor.run)[0]
            run_end = cursor.base + (word >> 1)
            if position < run_end:
                until = min(run_end, last)
                parts += (frames.encode_head(_KINDS[word & 1], until - position), data[position:until])
                position = until
            else:
                cursor.run += _RUN.size
                cursor.base = run_end
        cursor.offset = chunk.start + position

    def _load(self, chunk: Chunk) -> tuple[memoryview, memoryview]:
        if chunk.slot is None:
            return memoryview(chunk.data), memoryview(chunk.runs)
        whole = memoryview(self._store.slots.get(chunk.slot, chunk.size + chunk.runs_size))
        return whole[: chunk.size], whole[chunk.size :]
