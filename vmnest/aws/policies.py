"""IAM's policy documents: JSON in URL encoding inside XML on the way back, plain JSON on the way there. Pure."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

SERVICE = "iam"
_SHAPE = "policyDocumentType"


def decode(shape: Any, value: Any) -> Any:
    """``value`` with the policy documents in it as the objects that they are; one that is none stays text.

    Args:
        shape: botocore's, of the value; None for no content.
        value: What was parsed; changed in place.
    """
    if shape is None:
        return value
    if shape.type_name == "structure" and isinstance(value, dict):
        for name, member in shape.members.items():
            if name in value:
                value[name] = decode(member, value[name])
    elif shape.type_name == "list" and isinstance(value, list):
        value[:] = [decode(shape.member, one) for one in value]
    elif shape.name == _SHAPE and isinstance(value, str):
        return _decoded(value)
    return value


def _decoded(text: str) -> Any:
    plain = text if text.lstrip()[:1] == "{" else unquote(text)  # emulators forget to encode it
    try:
        return json.loads(plain)
    except (ValueError, RecursionError):
        return plain
