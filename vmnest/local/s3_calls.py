"""One call of the local S3: what its request line and header fields say, and what it works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from ..wire import http1, names
from . import buckets, faults, s3_answers, s3_bodies, s3_records, s3_uploads, xml_documents

MAX_KEY_BYTES = 1024
MAX_METADATA_BYTES = 2048
CONTENT_FIELDS = (
    *("content-type", "content-encoding", "content-disposition", "content-language", "cache-control", "expires"),
)
_META = "x-amz-meta-"
_CHUNKED_CODING = "aws-chunked"
# Header fields that would change what an object is: better refused than forgotten.
_WANTED_IN_VAIN = (
    *("x-amz-copy-source", "x-amz-object-lock-", "x-amz-server-side-encryption-", "x-amz-tagging"),
    *("x-amz-website-redirect-location", "x-amz-write-offset-bytes", "x-amz-grant-"),
)
_USUAL = {
    "x-amz-acl": ("private", "bucket-owner-full-control"),
    "x-amz-server-side-encryption": ("AES256",),
    "x-amz-storage-class": ("STANDARD",),
}


@dataclass(frozen=True)
class Parts:
    """What calls work on. ``spool`` is the folder for bodies that come."""

    store: buckets.Store
    uploads: s3_uploads.Uploads
    spool: str


@dataclass(frozen=True)
class Call:
    """A call.

    Attributes:
        bucket: Its name; empty for the list of all.
        key: Of the object; empty for the bucket itself.
        query: The parameters behind the question mark.
        region: That the request was signed for.
        body: To be read, or not.
    """

    parts: Parts
    bucket: str
    key: str
    query: Mapping[str, str]
    request: http1.Request
    region: str
    body: s3_bodies.Body

    def field(self, name: str) -> str | None:
        """The value of a header field (the name in lower case)."""
        return http1.first(self.request.fields, name)

    def number(self, name: str, *, default: int, most: int) -> int:
        """A parameter that is a number; more than ``most`` is ``most``.

        Raises:
            faults.Fault: it is none.
        """
        text = self.query.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 12):
            raise s3_answers.invalid_argument(
                f"Provided {name} not an integer or within integer range", name=name, value=text
            )
        return min(int(text), most)

    def document(self, root: str, *, ignoring_checksum: bool = False) -> xml_documents.Element:
        """The body, which is a document with that root; see ``s3_bodies.Body.read``.

        Raises:
            faults.Fault: it is not.
        """
        try:
            element = xml_documents.parse(self.body.read(ignoring_checksum=ignoring_checksum))
        except xml_documents.MalformedError as error:
            raise s3_answers.malformed_xml() from error
        if element.name != root:
            raise s3_answers.malformed_xml()
        return element

    @property
    def only_new(self) -> bool:
        """The object is not to be there yet."""
        condition = self.field("if-none-match")
        if self.field("if-match") is not None or condition not in {None, "*"}:
            raise s3_answers.not_implemented("takes no condition here but If-None-Match: *")
        return condition is not None

    def content(self) -> s3_records.Content:
        """What the header fields say of an object that comes.

        Raises:
            faults.Fault: they want what is not there, or say too much.
        """
        self._refuse_what_is_not_there()
        headers = {name: value for name in CONTENT_FIELDS if (value := self.field(name))}
        codings = [coding.strip() for coding in headers.pop("content-encoding", "").split(",")]
        kept = ",".join(coding for coding in codings if coding and coding.lower() != _CHUNKED_CODING)
        if kept:
            headers["content-encoding"] = kept
        metadata: dict[str, str] = {}
        for name, value in self.request.fields:
            if name.lower().startswith(_META):
                short = name.lower().removeprefix(_META)
                metadata[short] = f"{metadata[short]},{value}" if short in metadata else value
        if sum(len(name) + len(value) for name, value in metadata.items()) > MAX_METADATA_BYTES:
            raise faults.Fault(
                "Your metadata headers exceed the maximum allowed metadata size",
                error_type="MetadataTooLarge",
                status=400,
            )
        return s3_records.Content(headers, metadata)

    def _refuse_what_is_not_there(self) -> None:
        for name, value in self.request.fields:
            lower = name.lower()
            if lower.startswith(_WANTED_IN_VAIN) or value not in _USUAL.get(lower, (value,)):
                raise s3_answers.not_implemented(f"does not take the header {lower[:60]}: {value[:40]}")


def parse_target(target: str) -> tuple[str, str, dict[str, str]]:
    """Bucket, key and parameters of a request target. Nothing is normalized: a key may be anything.

    Raises:
        faults.Fault: it is not UTF-8, or the key is too long.
    """
    path, _, raw_query = target.partition("?")
    if not path.startswith("/"):
        raise _bad_uri()
    bucket, _, key = path[1:].partition("/")
    if len(unquote_to_bytes(key)) > MAX_KEY_BYTES:
        raise faults.Fault("Your key is too long", error_type="KeyTooLongError", status=400)
    pairs = [pair.partition("=") for pair in raw_query.split("&") if pair]
    return _decoded(bucket), _decoded(key), {_decoded(name): _decoded(value) for name, _, value in pairs}


def _decoded(text: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise _bad_uri() from None


def _bad_uri() -> faults.Fault:
    return faults.Fault("Couldn't parse the specified URI.", error_type="InvalidURI", status=400)


def check_owner(fields: http1.Fields) -> None:
    """Who expects another owner of the bucket is not served.

    Raises:
        faults.Fault: the caller expects another owner.
    """
    expected = http1.first(fields, "x-amz-expected-bucket-owner")
    if expected not in {None, names.LOCAL_ACCOUNT}:
        raise faults.Fault("Access Denied", error_type="AccessDenied", status=403)
