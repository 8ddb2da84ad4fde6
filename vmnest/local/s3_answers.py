"""Answers of the local S3: documents, errors, moments. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from email.utils import formatdate
from urllib.parse import quote

from ..wire import http1, names
from . import faults, httpd, xml_documents

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
OWNER_ID = "0" * 64
ENCRYPTION = ("x-amz-server-side-encryption", "AES256")
_XML = ("Content-Type", "application/xml")


def document(name: str, children: Iterable[xml_documents.Child], *, fields: http1.Fields = ()) -> httpd.Reply:
    """An answer with a document."""
    return httpd.Reply(200, [_XML, *fields], xml_documents.build(name, children, namespace=NAMESPACE))


def text(content: str, *, kind: str = "application/xml") -> httpd.Reply:
    """An answer with a text that is kept as it is answered."""
    return httpd.Reply(200, [("Content-Type", kind)], content.encode())


def empty(status: int = 200, *, fields: http1.Fields = ()) -> httpd.Reply:
    """An answer without a body."""
    return httpd.Reply(status, list(fields))


def error(fault: faults.Fault, *, resource: str, request_id: str) -> httpd.Reply:
    """The answer to a request that failed. Members whose names begin with ``x-`` are header fields."""
    fields = [(name, str(value)) for name, value in fault.members.items() if name.startswith("x-")]
    body = xml_documents.build(
        "Error",
        [
            ("Code", fault.error_type),
            ("Message", fault.message),
            *((name, str(value)) for name, value in fault.members.items() if not name.startswith("x-")),
            ("Resource", resource),
            ("RequestId", request_id),
            ("HostId", "vmnest-local"),
        ],
    )
    return httpd.Reply(fault.status, [_XML, *fields], body)


def owner(name: str = "Owner") -> xml_documents.Child:
    """The one who owns everything here."""
    return name, [("ID", OWNER_ID), ("DisplayName", names.LOCAL_ACCOUNT)]


def moment(seconds: float) -> str:
    """In documents: to the millisecond, in UTC."""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{int(seconds * 1000) % 1000:03d}Z"


def last_modified(seconds: float) -> tuple[str, str]:
    """In header fields: to the second."""
    return "Last-Modified", formatdate(int(seconds), usegmt=True)


def etag(value: str) -> tuple[str, str]:
    """The header field."""
    return "ETag", f'"{value}"'


def encoded(value: str, query: Mapping[str, str]) -> str:
    """A key in a list: as it is, or URL-encoded, as was asked."""
    return quote(value, safe="/~") if query.get("encoding-type") == "url" else value


# -- S3's faults -------------------------------------------------------------------------------------------------------


def invalid_argument(message: str, *, name: str, value: str) -> faults.Fault:
    """A parameter makes no sense (400)."""
    members = {"ArgumentName": name, "ArgumentValue": value[:200]}
    return faults.Fault(message, error_type="InvalidArgument", status=400, members=members)


def malformed_xml() -> faults.Fault:
    """The body is no document of the kind that is wanted (400)."""
    return faults.Fault(
        "The XML you provided was not well-formed or did not validate against our published schema",
        error_type="MalformedXML",
        status=400,
    )


def not_implemented(message: str) -> faults.Fault:
    """S3 has it, and the local one does not (501)."""
    return faults.Fault(f"The local cloud's S3 {message}", error_type="NotImplemented", status=501)
