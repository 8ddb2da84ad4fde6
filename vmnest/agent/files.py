"""The client of the agent's extensions for files: raw bytes, trees as tar streams, and the file system's calls.

What is cut: a reader goes on where it was, if the file is still the same; a write is repeated, since a file is replaced
only by all of its content; so are calls that do the same when they are made twice (see ``cuts``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from .. import errors
from .._guest.agentd import wire
from ..deadline import NEVER, Deadline
from . import cuts, entries, exchange, paths, refusals
from .entries import Entry, Skipped, Transfer
from .reading import Reading
from .sources import Source

if TYPE_CHECKING:
    from .client import AgentClient

__all__ = ["RemoteFiles"]

MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_LINE_BYTES = 1024 * 1024
SILENCE_SECONDS = 600.0  # the longest wait for the agent to copy, to remove, to count, to put a file into its place

T = TypeVar("T")


class RemoteFiles:
    """The files of a sandbox whose agent has the extensions. Safe for threads; it holds nothing open."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client

    # -- content -------------------------------------------------------------------------------------------------------

    def open(self, path: str, *, offset: int = 0, length: int | None = None, deadline: Deadline = NEVER) -> Reading:
        """A file, to be read from ``offset``: ``length`` bytes, or all that follow. Close it."""
        return Reading(self._client, path, offset=offset, length=length, deadline=deadline)

    def write(self, path: str, source: Source, *, mode: int | None = None, deadline: Deadline = NEVER) -> int:
        """Replace a file by all that the source gives; the number of bytes."""
        query = [("path", path)]
        if mode is not None:
            query.append(("mode", f"{paths.check_mode(mode):04o}"))
        sent = _Sent(source)
        headers = [] if source.size is None else [("Content-Length", str(source.size))]
        members = self._put(paths.route(wire.FILES_PATH, *query), sent, headers=headers, deadline=deadline)
        if members.get("bytes_written") != sent.count:
            raise errors.AgentAnswerError(
                f"the agent says that it wrote {members.get('bytes_written')} bytes of {path}, not {sent.count}"
            )
        if members.get("sha256", sent.digest()) != sent.digest():
            raise errors.ChecksumMismatchError(f"what was written to {path} in the sandbox is not what was sent")
        return sent.count

    # -- trees ---------------------------------------------------------------------------------------------------------

    def read_tree(
        self,
        path: str,
        take: Callable[[Iterator[bytes]], T],
        *,
        exclude: Sequence[str] = (),
        deadline: Deadline = NEVER,
    ) -> T:
        """What ``take`` makes of a directory's content, which it gets as the pieces of a tar stream.

        After a cut, which ``take`` sees as an exception of the iterator, it is called again, with all of it.
        """
        query = [("path", path), *(("exclude", pattern) for pattern in exclude)]
        request = exchange.Request(
            "GET",
            paths.route(wire.TREE_PATH, *query),
            asked=refusals.FILE,
            silence=SILENCE_SECONDS,
            deadline=deadline,
        )

        def ask(wakes: bool) -> T:
            request.wakes = wakes
            with self._client.send(request) as response:
                return take(request.pieces(response))

        return cuts.repeated(self._client, ask, may_repeat=lambda: True, deadline=deadline)

    def write_tree(self, path: str, source: Source, *, deadline: Deadline = NEVER) -> Transfer:
        """Unpack a tar stream into a directory, which is made if need be."""
        members = self._put(
            paths.route(wire.TREE_PATH, ("path", path)), _Sent(source), content_type=wire.TAR_TYPE, deadline=deadline
        )
        return entries.parse_transfer(members)

    def _put(
        self,
        target: str,
        sent: _Sent,
        *,
        content_type: str = wire.OCTETS_TYPE,
        headers: Sequence[tuple[str, str]] = (),
        deadline: Deadline,
    ) -> dict[str, object]:
        if sent.source.size is None:
            # What may come only once goes out over a connection that is known to work, to a MicroVM that is awake.
            self._client.health(deadline=deadline)
        request = exchange.Request(
            "PUT",
            target,
            asked=refusals.FILE,
            body=sent.pieces,
            content_type=content_type,
            headers=headers,
            patience=SILENCE_SECONDS,
            silence=SILENCE_SECONDS,
            deadline=deadline,
        )
        try:
            return cuts.repeated(
                self._client,
                lambda wakes: self._members(request, wakes=wakes),
                may_repeat=lambda: not sent.source.is_spent,
                deadline=deadline,
            )
        except _SourceError as failure:
            raise failure.reason from failure.reason.__cause__
        except errors.TransportError as cut:
            if sent.source.is_spent:
                cut.add_hint("What it is made of can be read only once: a file, or bytes, would have been sent again.")
            raise

    # -- the file system -----------------------------------------------------------------------------------------------

    def stat(self, path: str, *, follow: bool = True, sha256: bool = False, deadline: Deadline = NEVER) -> Entry:
        """What is known of a file."""
        asked = {"path": paths.check_path(path), "follow": follow, "sha256": sha256}
        return entries.parse_entry(self._call("stat", asked, deadline=deadline))

    def exists(self, path: str, *, deadline: Deadline = NEVER) -> bool:
        """Whether there is anything of that name."""
        return self._call("exists", {"path": paths.check_path(path)}, deadline=deadline).get("exists") is True

    def list(self, path: str, *, depth: int = 1, deadline: Deadline = NEVER) -> list[Entry]:
        """What is in a directory."""

        def ask(wakes: bool) -> list[Entry]:
            return list(self._scan(path, depth=depth, most=entries.MAX_LIST_BYTES, wakes=wakes, deadline=deadline))

        return cuts.repeated(self._client, ask, may_repeat=lambda: True, deadline=deadline)

    def scan(self, path: str, *, depth: int = 1, deadline: Deadline = NEVER) -> Iterator[Entry]:
        """What is in a directory, as it arrives. It is not asked for again after a cut."""
        return self._scan(path, depth=depth, wakes=True, deadline=deadline)

    def _scan(
        self, path: str, *, depth: int, most: int | None = None, wakes: bool, deadline: Deadline
    ) -> Iterator[Entry]:
        request = self._request("list", {"path": paths.check_path(path), "depth": depth}, deadline=deadline)
        request.wakes = wakes
        with self._client.send(request) as response:
            count = 0
            for line in _lines(request.pieces(response)):
                members = _to_object(line)
                if members.get("end") is True:
                    return
                count += len(line)
                if most is not None and count > most:
                    raise errors.RemoteFileError(
                        f"what there is to tell of {path} in the sandbox is more than {most} bytes",
                        hint="Without --json, and by scan() in Python, one entry comes after the other.",
                    )
                yield entries.check_below(entries.parse_entry(members), path)
        raise errors.AgentAnswerError(f"the agent's list of {path} has no end")

    def mkdir(
        self,
        path: str,
        *,
        parents: bool = True,
        exist_ok: bool = True,
        mode: int | None = None,
        deadline: Deadline = NEVER,
    ) -> None:
        """Make a directory."""
        asked: dict[str, object] = {"path": paths.check_path(path), "parents": parents, "exist_ok": exist_ok}
        if mode is not None:
            asked["mode"] = paths.check_mode(mode)
        self._call("mkdir", asked, repeatable=exist_ok, deadline=deadline)

    def remove(
        self, path: str, *, recursive: bool = False, missing_ok: bool = False, deadline: Deadline = NEVER
    ) -> None:
        """Remove a file or a directory."""
        asked = {"path": paths.check_path(path), "recursive": recursive, "missing_ok": missing_ok}
        self._call("remove", asked, repeatable=missing_ok, deadline=deadline)

    def copy(
        self,
        source: str,
        destination: str,
        *,
        recursive: bool = False,
        overwrite: bool = True,
        deadline: Deadline = NEVER,
    ) -> tuple[Skipped, ...]:
        """Copy within the sandbox; what of a directory was left out."""
        asked = {**_pair(source, destination), "recursive": recursive, "overwrite": overwrite}
        return entries.parse_skipped(self._call("copy", asked, repeatable=overwrite, deadline=deadline).get("skipped"))

    def rename(self, source: str, destination: str, *, overwrite: bool = True, deadline: Deadline = NEVER) -> None:
        """Give it another name."""
        asked = {**_pair(source, destination), "overwrite": overwrite}
        self._call("rename", asked, repeatable=False, deadline=deadline)

    def chmod(self, path: str, mode: int, *, recursive: bool = False, deadline: Deadline = NEVER) -> None:
        """Set permission bits."""
        asked = {"path": paths.check_path(path), "mode": paths.check_mode(mode), "recursive": recursive}
        self._call("chmod", asked, deadline=deadline)

    def _call(
        self, operation: str, asked: Mapping[str, object], *, repeatable: bool = True, deadline: Deadline
    ) -> dict[str, object]:
        request = self._request(operation, asked, repeatable=repeatable, deadline=deadline)
        try:
            return cuts.repeated(
                self._client,
                lambda wakes: self._members(request, wakes=wakes),
                may_repeat=lambda: repeatable,
                deadline=deadline,
            )
        except (errors.EndpointError, errors.TransportError) as error:
            if request.may_have_run:
                cuts.cast_doubt(error)
            raise

    def _request(
        self, operation: str, asked: Mapping[str, object], *, repeatable: bool = True, deadline: Deadline
    ) -> exchange.Request:
        return exchange.Request(
            "POST",
            wire.FS_PREFIX + operation,
            asked=refusals.FILE,
            body=json.dumps(asked, separators=(",", ":")).encode("ascii"),
            repeatable=repeatable,
            patience=SILENCE_SECONDS,
            deadline=deadline,
        )

    def _members(self, request: exchange.Request, *, wakes: bool) -> dict[str, object]:
        request.wakes = wakes
        with self._client.send(request) as response:
            data = bytearray()
            for piece in request.pieces(response):
                data += piece
                if len(data) > MAX_ANSWER_BYTES:
                    raise errors.AgentAnswerError(f"the agent's answer is larger than {MAX_ANSWER_BYTES} bytes")
        return _to_object(bytes(data))


class _SourceError(Exception):
    """What is sent cannot be had: if it comes from another sandbox, that must not pass for a cut of the way here."""

    def __init__(self, reason: errors.VmnestError) -> None:
        super().__init__(reason)
        self.reason = reason


class _Sent:
    """A source on its way: what the latest attempt sent."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.count = 0
        self._hash = hashlib.sha256()

    def pieces(self) -> Iterator[bytes]:
        self.count, self._hash = 0, hashlib.sha256()
        for piece in self._guarded():
            self._hash.update(piece)
            self.count += len(piece)
            yield piece

    def _guarded(self) -> Iterator[bytes]:
        try:
            yield from self.source.pieces()
        except errors.VmnestError as error:
            raise _SourceError(error) from error

    def digest(self) -> str:
        return self._hash.hexdigest()


def _pair(source: str, destination: str) -> dict[str, object]:
    return {
        "source": paths.check_path(source, field="source"),
        "destination": paths.check_path(destination, field="destination"),
    }


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = bytearray()  # it grows in place, however small the pieces are
    for piece in pieces:
        first, *others = piece.split(b"\n")
        rest += first
        for other in others:
            if rest:
                yield bytes(rest)
            rest = bytearray(other)
        if len(rest) > MAX_LINE_BYTES:
            raise errors.AgentAnswerError("the agent's answer has a line without end")
    if rest:
        yield bytes(rest)


def _to_object(data: bytes) -> dict[str, object]:
    try:
        members = json.loads(data)
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        raise errors.AgentAnswerError("the agent's answer about files is no JSON object")
    return members
