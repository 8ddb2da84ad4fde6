"""The routes of files and trees: raw bytes in and out, archives in and out, and operations on names."""

from __future__ import annotations

import contextlib
import json
import os
import re
from email import utils as dates

from . import answers, archives, documents, files, folders, packing, programs, queries, ranges, unpacking, wire
from .errors import PeerGoneError, RequestError, bad_argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from .heads import Head
    from .routes import Routes
    from .server import Request

_MAX_BODY_BYTES = 1 << 60  # the disk is the limit
_MAX_DEPTH = 1 << 30
_LINES_BYTES = 16384  # entries are sent in blocks of about this size
_MODE = re.compile(rb"0?[0-7]{1,4}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class FileApi:
    """Answers the requests about files.

    Args:
        workdir: Where relative paths begin.
    """

    def __init__(self, *, workdir: bytes) -> None:
        self._workdir = workdir

    def routes(self) -> Routes:
        """What is served here."""
        operations: dict[str, Callable[[documents.Document], dict[str, object]]] = {
            "stat": self._stat,
            "exists": self._exists,
            "mkdir": self._mkdir,
            "remove": self._remove,
            "copy": self._copy,
            "rename": self._rename,
            "chmod": self._chmod,
        }
        return {
            wire.FILES_PATH: {"GET": self._read, "PUT": self._write},
            wire.TREE_PATH: {"GET": self._pack, "PUT": self._unpack},
            wire.FS_PREFIX + "list": {"POST": self._list},
            **{wire.FS_PREFIX + name: {"POST": _in_json(operation)} for name, operation in operations.items()},
        }

    # -- content

    def _read(self, request: Request) -> answers.Answer:
        path = self._place(queries.Query(request.head).path("path"))
        content = files.open_file(path)
        with contextlib.ExitStack() as undo:
            undo.callback(content.close)
            tag = ranges.build_tag(content.status)
            start, end = 0, content.size
            part = _asked_part(request.head, size=content.size, tag=tag, path=path)
            if part is not None:
                start, end = part
            headers = [
                ("Content-Type", wire.OCTETS_TYPE),
                ("Accept-Ranges", "bytes"),
                ("ETag", tag),
                (wire.MODE_HEADER, f"{content.status.st_mode & 0o7777:04o}"),
            ]
            with contextlib.suppress(ValueError, OverflowError, OSError):  # files can be of years that dates cannot
                headers.append(("Last-Modified", dates.formatdate(content.status.st_mtime, usegmt=True)))
            if part is not None:
                headers.append(("Content-Range", f"bytes {start}-{end - 1}/{content.size}"))
            answer = answers.Answer(
                200 if part is None else 206,
                length=end - start,
                blocks=content.pieces(start, end),
                headers=tuple(headers),
            )
            answer.close = undo.pop_all().close
        return answer

    def _write(self, request: Request) -> answers.Answer:
        import hashlib  # late: it loads OpenSSL, which most agents never need

        query = queries.Query(request.head)
        path = self._place(query.path("path"))
        mode = _asked_mode(query)
        if request.head.value("content-range"):
            # RFC 9110 section 14.5: who does not know it would replace the whole file by the part.
            raise bad_argument("Content-Range", "a part of a file cannot be written")
        digest = hashlib.sha256()
        expected = request.head.value(wire.SHA256_HEADER).lower()
        if expected and not _DIGEST.fullmatch(expected):
            raise bad_argument(wire.SHA256_HEADER, "must be 64 hexadecimal digits")

        def pieces() -> Iterator[bytes]:
            for piece in _arriving(request):
                digest.update(piece)
                yield piece

        def check() -> None:
            if expected and digest.hexdigest() != expected:
                raise RequestError(
                    409, wire.CHECKSUM_MISMATCH, f"what arrived has another SHA-256: {digest.hexdigest()}"
                )

        written = files.write_file(path, pieces(), mode=mode, check=check)
        document = {"bytes_written": written.count, "sha256": digest.hexdigest(), "mode": written.mode}
        return answers.build_json(200, document)

    # -- trees

    def _pack(self, request: Request) -> answers.Answer:
        query = queries.Query(request.head)
        path = self._place(query.path("path"))
        try:
            with files.translated(path):
                packed = packing.pack(path, exclude=query.all("exclude"))
        except ValueError as error:
            raise bad_argument("exclude", str(error)) from None
        answer = answers.Answer(200, length=None, blocks=packed, headers=(("Content-Type", wire.TAR_TYPE),))
        answer.close = packed.close
        return answer

    def _unpack(self, request: Request) -> answers.Answer:
        path = self._place(queries.Query(request.head).path("path"))
        try:
            with files.translated(path):
                summary = unpacking.unpack(_arriving(request), path)
        except unpacking.UnsafeMemberError as error:
            raise RequestError(400, wire.UNSAFE_PATH, str(error)) from None
        except archives.ArchiveError as error:
            raise RequestError(400, wire.BAD_REQUEST, str(error)) from None
        return answers.build_json(
            200,
            {
                "files": summary.files,
                "directories": summary.directories,
                "links": summary.links,
                "bytes": summary.bytes,
                "skipped": _show_skipped(summary.skipped, summary.untold),
            },
        )

    # -- names

    def _list(self, request: Request) -> answers.Answer:
        document = documents.receive(request.body)
        shown = documents.encode_path("path", document.text("path", "."))
        depth = document.count("depth", 1, maximum=_MAX_DEPTH)
        if depth == 0:
            raise bad_argument("depth", "must be at least 1")
        entries = folders.scan(self._place(shown), shown=shown, depth=depth)
        headers = (("Content-Type", wire.LINES_TYPE),)
        answer = answers.Answer(200, length=None, blocks=_encode_lines(entries), headers=headers)
        answer.close = entries.close
        return answer

    def _stat(self, document: documents.Document) -> dict[str, object]:
        shown = documents.encode_path("path", document.text("path"))
        return folders.describe(
            self._place(shown), shown=shown, follow=document.flag("follow", True), sha256=document.flag("sha256", False)
        )

    def _exists(self, document: documents.Document) -> dict[str, object]:
        return {"exists": folders.exists(self._path(document))}

    def _mkdir(self, document: documents.Document) -> dict[str, object]:
        folders.make(
            self._path(document),
            parents=document.flag("parents", True),
            exist_ok=document.flag("exist_ok", True),
            mode=document.optional_count("mode", maximum=0o7777),
        )
        return {}

    def _remove(self, document: documents.Document) -> dict[str, object]:
        folders.remove(
            self._path(document),
            recursive=document.flag("recursive", False),
            missing_ok=document.flag("missing_ok", False),
        )
        return {}

    def _copy(self, document: documents.Document) -> dict[str, object]:
        skipped = folders.copy(
            self._path(document, "source"),
            self._path(document, "destination"),
            recursive=document.flag("recursive", False),
            overwrite=document.flag("overwrite", True),
        )
        return {"skipped": _show_skipped(skipped)} if skipped else {}

    def _rename(self, document: documents.Document) -> dict[str, object]:
        folders.rename(
            self._path(document, "source"),
            self._path(document, "destination"),
            overwrite=document.flag("overwrite", True),
        )
        return {}

    def _chmod(self, document: documents.Document) -> dict[str, object]:
        folders.change_mode(
            self._path(document),
            document.count("mode", maximum=0o7777),
            recursive=document.flag("recursive", False),
        )
        return {}

    # -- what requests hold

    def _place(self, path: bytes) -> bytes:
        if not path.startswith(b"/"):
            programs.ensure_workdir(self._workdir)
        return os.path.join(self._workdir, path)

    def _path(self, document: documents.Document, name: str = "path") -> bytes:
        return self._place(documents.encode_path(name, document.text(name)))


def _in_json(operation: Callable[[documents.Document], dict[str, object]]) -> Callable[[Request], answers.Answer]:
    """A route whose request and answer are JSON objects."""

    def respond(request: Request) -> answers.Answer:
        return answers.build_json(200, operation(documents.receive(request.body)))

    return respond


def _asked_mode(query: queries.Query) -> int | None:
    text = query.one("mode")
    if text is None:
        return None
    if not _MODE.fullmatch(text):
        raise bad_argument("mode", "must be permission bits in octal, 0000 to 7777")
    return int(text, 8)


def _asked_part(head: Head, *, size: int, tag: str, path: bytes) -> tuple[int, int] | None:
    """The part of a file that is asked for, as the first byte and the one after the last; None for all of it."""
    condition = head.value("if-match")
    if condition and not ranges.names_tag(condition, tag):
        raise RequestError(412, wire.FILE_CHANGED, f"the file has changed: {files.printable(path)}")
    wish, only_if = head.value("range"), head.value("if-range")
    if not wish or (only_if and only_if != tag):
        return None
    try:
        return ranges.parse_range(wish, size)
    except ranges.RangeError:
        detail = f"the file has no such part, only {size} bytes: {files.printable(path)}"
        raise RequestError(416, wire.BAD_ARGUMENT, detail) from None


def _arriving(request: Request) -> Iterator[bytes]:
    """The body. What breaks the connection is no error of the file system, into which it is written."""
    try:
        yield from request.body.pieces(_MAX_BODY_BYTES)
    except OSError as error:
        raise PeerGoneError from error


def _show_skipped(skipped: list[tuple[bytes, str]], untold: int = 0) -> list[dict[str, str]]:
    shown = [{"path": documents.decode_path(path), "reason": reason} for path, reason in skipped]
    if untold:
        shown.append({"path": "", "reason": f"and {untold} more"})
    return shown


def _encode_lines(entries: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """A line for each entry, and one that says that all were told."""
    held: list[str] = []
    size = count = 0
    for entry in entries:
        held.append(json.dumps(entry, separators=(",", ":")) + "\n")
        size += len(held[-1])
        count += 1
        if size >= _LINES_BYTES:
            yield "".join(held).encode("ascii")
            held, size = [], 0
    held.append(json.dumps({"end": True, "count": count}, separators=(",", ":")) + "\n")
    yield "".join(held).encode("ascii")
