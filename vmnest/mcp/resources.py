"""The resources: what can be read without calling a tool, as JSON."""

from __future__ import annotations

import json

from .. import settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["RESOURCES", "Resource", "describe", "read"]

SCHEME = "agent-sandbox://"
_JSON = "application/json"
_ASK_SECONDS = 45.0  # hosts wait 60


class Resource:
    """A row of the table.

    Args:
        path: What follows the scheme in its URI.
        title: For people.
        description: What it tells.
        read: Makes its content.
    """

    __slots__ = ("description", "read", "title", "uri")

    def __init__(self, path: str, *, title: str, description: str, read: Callable[[], Mapping[str, object]]) -> None:
        self.uri = SCHEME + path
        self.title = title
        self.description = description
        self.read = read


# What they tell is loaded when it is asked for: the table is a part of the handshake.


def _runtime() -> Mapping[str, object]:
    from ..ops import doctor

    return doctor.diagnose()


def _infra() -> Mapping[str, object]:
    from ..ops import offers

    return offers.show_offers()


def _sandboxes() -> Mapping[str, object]:
    from ..ops import inventory

    data = inventory.list_sandboxes()
    found = data["sandboxes"]
    assert isinstance(found, list)
    return {**data, "count": len(found)}


def _images() -> Mapping[str, object]:
    from ..ops import images

    return images.image_list(timeout=_ASK_SECONDS)


def _policy() -> Mapping[str, object]:
    from . import policy

    told = policy.from_settings().describe()
    return {
        "host_path_policy": told["policy"],
        "host_paths": told["paths"],
        "enable_dangerous": settings.is_on("mcp_enable_dangerous"),
        "max_output_bytes": settings.number("mcp_max_output_bytes"),
        "default_timeout_ms": settings.number("mcp_default_timeout_ms"),
    }


def _creation() -> Mapping[str, object]:
    from .tools import table

    schema = table.load()["sandbox_create"].describe()["inputSchema"]
    assert isinstance(schema, dict)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "sandbox_create", **schema}


RESOURCES = (
    Resource(
        "runtime",
        title="Runtime",
        description="What sandboxes need, each with a verdict and a remedy; as runtime_check.",
        read=_runtime,
    ),
    Resource(
        "infra",
        title="Infrastructure",
        description="Image, role, region and connector that a sandbox is made with, each with its source.",
        read=_infra,
    ),
    Resource("sandboxes", title="Sandboxes", description="The sandboxes, with the state of each.", read=_sandboxes),
    Resource("images", title="Images", description="The images of the account.", read=_images),
    Resource(
        "policy",
        title="Policy",
        description="Which paths of this machine may be copied from and to, and what limits there are.",
        read=_policy,
    ),
    Resource(
        "schemas/sandbox-create",
        title="Schema of sandbox_create",
        description="The JSON Schema of what sandbox_create takes.",
        read=_creation,
    ),
)


def describe() -> list[dict[str, object]]:
    """What ``resources/list`` says of them."""
    return [
        {
            "uri": each.uri,
            "name": each.uri.removeprefix(SCHEME),
            "title": each.title,
            "description": each.description,
            "mimeType": _JSON,
        }
        for each in RESOURCES
    ]


def read(uri: str) -> list[dict[str, object]] | None:
    """The contents of a resource; None if there is none of that URI.

    Raises:
        errors.VmnestError: what it tells cannot be had.
    """
    for each in RESOURCES:
        if each.uri == uri:
            text = json.dumps(each.read(), ensure_ascii=False, allow_nan=False, indent=1)
            return [{"uri": uri, "mimeType": _JSON, "text": text}]
    return None
