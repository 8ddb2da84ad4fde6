"""What an error answer in XML says, in the forms of all services. Pure.

Three forms: ``<ErrorResponse><Error>…</Error><RequestId>`` (query), ``<Response><Errors><Error>…</Error></Errors>
<RequestID>`` (ec2), ``<Error>…<RequestId></Error>`` (S3). Emulators mix them, so the parts are looked for by name.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from .shapes import ErrorAnswer

_NAMESPACE = re.compile(r"\{[^}]*\}")
_TYPE = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def parse(body: bytes) -> ErrorAnswer:
    """Type, message, request id, and all that stands beside the type; never fails, whatever came."""
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - expat bounds what entities may grow to
    except (ElementTree.ParseError, ValueError, LookupError):
        return ErrorAnswer(None, None)
    request_id = _text_of(root, "requestid")
    error = _error(root)
    if error is None:
        return ErrorAnswer(None, None, request_id=request_id)
    members = {_name(child): child.text or "" for child in error if not len(child)}
    code, message = members.get("Code", "").strip(), members.get("Message", "").strip()
    return ErrorAnswer(code if _TYPE.fullmatch(code) else None, message or None, members, request_id)


def _error(root: ElementTree.Element) -> ElementTree.Element | None:
    """The element with a code in it."""
    for element in root.iter():
        if any(_name(child) == "Code" for child in element):
            return element
    return None


def _text_of(root: ElementTree.Element, name: str) -> str | None:
    return next((found.text or None for found in root.iter() if _name(found).lower() == name), None)


def _name(element: ElementTree.Element) -> str:
    return _NAMESPACE.sub("", element.tag)
