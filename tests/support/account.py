"""The services of the local account without a socket: signed requests in, replies out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

import pytest

from tests.support.clock import FakeClock
from vmnest import rendezvous
from vmnest.aws import signing
from vmnest.aws.credentials import Credentials
from vmnest.local import buckets, httpd, s3_service, xml_documents
from vmnest.wire import bodies, http1, streams

KEYS = rendezvous.Keys(access_key="AK", secret_key="SK")
CREDENTIALS = Credentials("AK", signing.Secret("SK"))
Headers = Sequence[tuple[str, str]]


class ScriptedStream(streams.Stream):
    """A connection whose bytes come in these pieces, and then end. ``sent`` is what was written to it."""

    def __init__(self, *pieces: bytes) -> None:
        self.ahead = b""
        self.sent = b""
        self._pieces: Iterator[bytes] = iter(pieces)

    def receive(self) -> bytes:
        if self.ahead:
            return super().receive()
        return next(self._pieces, b"")

    def send(self, data: bytes) -> None:
        self.sent += data


def signed(
    method: str,
    target: str,
    body: bytes = b"",
    *,
    service: str,
    when: datetime,
    headers: Headers = (),
    payload: str | None = None,
    region: str = "us-east-1",
    credentials: Credentials = CREDENTIALS,
) -> http1.Request:
    """A signed request; ``payload`` is what its signature says of the body, its SHA-256 by default."""
    given = [*headers, ("Host", "127.0.0.1:1")]
    added = signing.sign(
        method=method,
        url=f"http://127.0.0.1:1{target}",
        headers=given,
        body_sha256=payload or hashlib.sha256(body).hexdigest(),
        credentials=credentials,
        region=region,
        service=service,
        when=when,
    )
    return http1.Request(method, target, [*given, *added])


class Answer:
    """A reply, read: its status, fields (names in lower case), body, and the root of its document."""

    def __init__(self, reply: httpd.Reply) -> None:
        self.status = reply.status
        self.fields = {name.lower(): value for name, value in reply.fields}
        self.body = reply.body
        if reply.piece is not None:
            with reply.piece.file as file:
                file.seek(reply.piece.offset)
                self.body = file.read(reply.piece.size)

    @property
    def xml(self) -> xml_documents.Element:
        """The root of the document."""
        return xml_documents.parse(self.body)

    @property
    def code(self) -> str | None:
        """The error's type; None if it is none."""
        return self.xml.value("Code") if self.status >= 300 and self.body else None

    def texts(self, *path: str) -> list[str]:
        """The texts of all elements at that path below the root."""
        found = [self.xml]
        for name in path:
            found = [child for each in found for child in each.all(name)]
        return [each.text for each in found]


class S3Stage:
    """The local S3 in a folder, and who asks it."""

    def __init__(self, folder: str, clock: FakeClock) -> None:
        self.folder = folder
        self.clock = clock
        self.store = buckets.Store(folder, clock=clock)
        self.service = s3_service.S3(self.store, folder=folder, keys=KEYS, clock=clock)

    def ask(
        self, method: str, target: str, body: bytes = b"", *, framing: Headers | None = None, **options: Any
    ) -> Answer:
        """Ask; ``framing`` are header fields that are not signed."""
        when = datetime.fromtimestamp(self.clock.time(), timezone.utc)
        request = signed(method, target, body, service="s3", when=when, **options)
        length = [("Content-Length", str(len(body)))] if body else []
        return self.send(
            http1.Request(method, target, [*request.fields, *(length if framing is None else framing)]), body
        )

    def send(self, request: http1.Request, body: bytes = b"") -> Answer:
        """Send a request as it is."""
        pieces = [body[at : at + 1000] for at in range(0, len(body), 1000)]
        incoming = httpd.Incoming(ScriptedStream(*pieces), request)
        self.incoming = incoming
        return Answer(self.service.respond(request, incoming))

    def put(self, key: str, body: bytes = b"x", *, bucket: str = "bucket", **options: Any) -> Answer:
        """PutObject, which must succeed; the key as it stands in the target."""
        answer = self.ask("PUT", f"/{bucket}/{key}", body, **options)
        assert answer.status == 200, answer.body
        return answer


@pytest.fixture
def s3(tmp_path: Any, fake_clock: FakeClock) -> S3Stage:
    """The local S3, with a bucket called ``bucket``."""
    stage = S3Stage(str(tmp_path), fake_clock)
    assert stage.ask("PUT", "/bucket").status == 200
    return stage


Ask = Callable[..., Answer]


def chunked(*chunks: bytes, trailers: Headers = ()) -> bytes:
    """A body in chunks within the body, as ``aws-chunked`` is."""
    return b"".join(map(bodies.encode_chunk, chunks)) + bodies.encode_last_chunk(trailers)
