"""An S3 that keeps of objects their sizes and digests, checks every signature, and fails where a test wants it.

It is as strict as S3 where a client can be careless: chunked bodies are not implemented (501), a length must be told,
the body must be what was signed, and a part but the last must not be small. It answers under any bucket name, on paths
(``/bucket/key``).
"""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from vmnest.aws import credentials, service, signing
from vmnest.aws.s3 import S3
from vmnest.deadline import SYSTEM_CLOCK
from vmnest.transport import Transport

KEY = credentials.build("AKIDEXAMPLE", "secret-of-the-key", token="token-of-the-key")
LEAST_PART_BYTES = 5 * 2**20
_PIECE_BYTES = 2**18
_XML = '<?xml version="1.0" encoding="UTF-8"?>'


@dataclass(frozen=True)
class Call:
    """A request, its body reduced to size and digest. ``what``: PUT, UPLOAD (its start), PART, COMPLETE, ABORT, ..."""

    what: str
    method: str
    target: str
    headers: dict[str, str]
    region: str
    size: int
    sha256: str
    query: dict[str, str]


@dataclass
class Reply:
    """An answer of the double; ``cut`` sends only so many bytes of the body, and ends the connection."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    hang_up: bool = False


Fault = Callable[[Call], "Reply | None"]


def failure(status: int, code: str, message: str = "because", extra: str = "", **headers: str) -> Reply:
    """An error as S3 writes it."""
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message>{extra}</Error>'
    )
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, body.encode(), {"content-type": "application/xml", **fields})


@dataclass
class Stored:
    """An object, or a part of one. ``content`` is kept of small ones only."""

    size: int
    sha256: str
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None
    parts: tuple[Stored, ...] = ()

    @property
    def etag(self) -> str:
        return f'"{self.sha256[:32]}{f"-{len(self.parts)}" if self.parts else ""}"'


class Double:
    """The state of a running double. ``before`` sees each request before it has an effect, ``after`` after it."""

    def __init__(self, *, region: str = "us-east-1", keep_bytes: int = 2**20) -> None:
        self.region = region
        self.url = ""
        self.lock = threading.Lock()
        self.calls: list[Call] = []
        self.objects: dict[str, Stored] = {}
        self.uploads: dict[str, dict[int, Stored]] = {}
        self.keep_bytes = keep_bytes
        self.most_at_once = 0
        self.at_once = 0
        self.before: Fault = lambda _call: None
        self.after: Fault = lambda _call: None
        self.is_hasty: Callable[[Call], bool] = lambda _call: False  # answers before it has read the body
        self.problems: list[str] = []

    def count(self, what: str) -> int:
        """How many such requests came whole."""
        with self.lock:
            return sum(call.what == what for call in self.calls)

    def client(self, transport: Transport, **options: object) -> S3:
        """A client of this double, with the right keys."""
        usual: dict[str, object] = {"region": "us-east-1", "credentials": credentials.StaticSource(KEY), **options}
        called = service.Service("s3", endpoint=self.url, transport=transport, **usual)  # type: ignore[arg-type]
        return S3(called, clock=usual.get("clock", SYSTEM_CLOCK))  # type: ignore[arg-type]

    # -- what requests do, under the lock

    def perform(self, call: Call, stored: Stored, document: bytes) -> Reply:
        path = unquote(call.target.partition("?")[0])
        return getattr(self, f"_do_{call.what.lower()}")(path, call, stored, document)

    def _do_put(self, path: str, call: Call, stored: Stored, _body: bytes) -> Reply:
        self.objects[path] = stored
        return Reply(headers={"etag": stored.etag})

    def _do_upload(self, path: str, call: Call, stored: Stored, _body: bytes) -> Reply:
        upload_id = f"upload+/={len(self.uploads)}"
        self.uploads[upload_id] = {}
        return _document("InitiateMultipartUploadResult", Key=path, UploadId=upload_id)

    def _do_part(self, _path: str, call: Call, stored: Stored, _body: bytes) -> Reply:
        parts = self.uploads.get(call.query["uploadId"])
        if parts is None:
            return failure(404, "NoSuchUpload")
        parts[int(call.query["partNumber"])] = stored
        return Reply(headers={"etag": stored.etag})

    def _do_complete(self, path: str, call: Call, stored: Stored, document: bytes) -> Reply:
        parts = self.uploads.get(call.query["uploadId"])
        if parts is None:
            return failure(404, "NoSuchUpload")
        named = [(int(_text(part, "PartNumber")), _text(part, "ETag")) for part in ElementTree.fromstring(document)]
        if [number for number, _ in named] != sorted({number for number, _ in named}):
            return failure(400, "InvalidPartOrder")
        if any(number not in parts or parts[number].etag != etag for number, etag in named):
            return failure(400, "InvalidPart")
        chosen = tuple(parts[number] for number, _ in named)
        if any(part.size < LEAST_PART_BYTES for part in chosen[:-1]):
            return failure(400, "EntityTooSmall")
        del self.uploads[call.query["uploadId"]]
        digest = hashlib.sha256(b"".join(bytes.fromhex(part.sha256) for part in chosen)).hexdigest()
        self.objects[path] = Stored(sum(part.size for part in chosen), digest, parts=chosen)
        return _document("CompleteMultipartUploadResult", Key=path, ETag=self.objects[path].etag)

    def _do_abort(self, _path: str, call: Call, _stored: Stored, _body: bytes) -> Reply:
        return (
            Reply(204) if self.uploads.pop(call.query["uploadId"], None) is not None else failure(404, "NoSuchUpload")
        )

    def _do_head(self, path: str, call: Call, _stored: Stored, _body: bytes) -> Reply:
        found = self.objects.get(path)
        if found is None:
            return Reply(404)
        return Reply(headers={"etag": found.etag, "content-length": str(found.size), **found.headers})

    def _do_get(self, path: str, call: Call, _stored: Stored, _body: bytes) -> Reply:
        found = self.objects.get(path)
        if found is None or found.content is None:
            return failure(404, "NoSuchKey")
        if call.headers.get("if-match", found.etag) != found.etag:
            return failure(412, "PreconditionFailed")
        start = int(call.headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        told = {"etag": found.etag, **found.headers}
        if "range" in call.headers:
            told["content-range"] = f"bytes {start}-{found.size - 1}/{found.size}"
        return Reply(206 if "range" in call.headers else 200, found.content[start:], told)


def _document(root: str, **members: str) -> Reply:
    inside = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in members.items())
    body = f'{_XML}\n<{root} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{inside}</{root}>'
    return Reply(200, body.encode(), {"content-type": "application/xml"})


def _text(element: ElementTree.Element, name: str) -> str:
    return next(child.text or "" for child in element if child.tag.rpartition("}")[2] == name)


def _kind(method: str, query: dict[str, str]) -> str:
    if "partNumber" in query:
        return "PART"
    if "uploads" in query:
        return "UPLOAD"
    if "uploadId" in query:
        return {"POST": "COMPLETE", "DELETE": "ABORT"}[method]
    return method


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    double: Double

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_PUT(self) -> None:
        double = self.double
        with double.lock:
            double.at_once += 1
            double.most_at_once = max(double.most_at_once, double.at_once)
        try:
            self._serve()
        except OSError:
            self.close_connection = True  # the client hung up
        finally:
            with double.lock:
                double.at_once -= 1

    do_GET = do_HEAD = do_POST = do_DELETE = do_PUT  # noqa: N815 - the library's names

    def _serve(self) -> None:
        if "chunked" in self.headers.get("transfer-encoding", "") or "aws-chunked" in str(self.headers):
            self.double.problems.append("chunked")
            return self._answer(failure(501, "NotImplemented"), then_close=True)
        query = {name: values[0] for name, values in parse_qs(self.path.partition("?")[2], True).items()}
        what, headers = _kind(self.command, query), {k.lower(): v for k, v in self.headers.items()}
        early = Call(what, self.command, self.path, headers, "", 0, "", query)
        if self.double.is_hasty(early):
            return self._answer(self.double.before(early) or Reply(500), then_close=True)
        stored = self._receive(headers, limit=self.double.keep_bytes)
        if stored is None:
            self.close_connection = True
            return None
        region = self._check(stored, headers)
        call = Call(what, self.command, self.path, headers, region, stored.size, stored.sha256, query)
        with self.double.lock:
            self.double.calls.append(call)
        reply = self.double.before(call) or self._elsewhere(call)
        if reply is None and headers["x-amz-content-sha256"] != stored.sha256:
            reply = failure(400, "XAmzContentSHA256Mismatch", "The provided SHA256 does not match what was computed.")
        if reply is None:
            with self.double.lock:
                reply = self.double.perform(call, stored, stored.content or b"")
            reply = self.double.after(call) or reply
        return self._answer(reply)

    def _receive(self, headers: dict[str, str], *, limit: int) -> Stored | None:
        left = size = int(headers.get("content-length", 0))
        digest, kept = hashlib.sha256(), []
        while left:
            piece = self.rfile.read(min(left, _PIECE_BYTES))
            if not piece:
                return None
            left -= len(piece)
            digest.update(piece)
            if size <= limit:
                kept.append(piece)
        told = {name: value for name, value in headers.items() if name.startswith(("x-amz-meta-", "content-type"))}
        return Stored(size, digest.hexdigest(), told, b"".join(kept) if size <= limit else None)

    def _check(self, stored: Stored, headers: dict[str, str]) -> str:
        try:
            return signing.verify(
                method=self.command,
                raw_target=self.path,
                headers=list(self.headers.items()),
                body_sha256=headers["x-amz-content-sha256"],
                secret_for=lambda key: KEY.secret_key if key == KEY.access_key else None,
                service="s3",
                now=datetime.now(timezone.utc),
                skew_seconds=10**10,  # tests move their clock
            ).region
        except signing.SignatureError as error:
            self.double.problems.append(f"{self.command} {self.path}: {error}")
            return ""

    def _elsewhere(self, call: Call) -> Reply | None:
        """The refusal of what is signed for another region."""
        if call.region == self.double.region:
            return None
        if call.method == "HEAD":
            return Reply(400, headers={"x-amz-bucket-region": self.double.region})
        region = f"<Region>{self.double.region}</Region>"
        return failure(400, "AuthorizationHeaderMalformed", "the region is wrong", extra=region)

    def _answer(self, reply: Reply, *, then_close: bool = False) -> None:
        if reply.hang_up:
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if "content-length" not in reply.headers and reply.status != 204:
            self.send_header("content-length", str(len(reply.body)))
        if then_close or reply.cut is not None:
            self.send_header("connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body[: reply.cut])


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64


@contextmanager
def serving_double(**options: object) -> Iterator[Double]:
    """A running double, which must have had nothing to complain of when the block ends."""
    double = Double(**options)  # type: ignore[arg-type]
    handler = type("Handler", (_Handler,), {"double": double})
    with _Server(("127.0.0.1", 0), handler) as server:
        double.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="s3-double")
        thread.start()
        try:
            yield double
        finally:
            server.shutdown()
            thread.join()
    assert not double.problems, double.problems
