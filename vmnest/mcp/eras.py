"""By which rules a message is served: the handshake revisions ("legacy"), or the stateless one ("modern").

The choice is made message by message and never locks (some clients probe one era and go on with the other on the same
pipe): a request whose ``_meta`` names a protocol version is modern, whatever came before; all else is legacy, once a
handshake was done. Sources: the specification's revisions 2024-11-05 to 2026-07-28.
"""

from __future__ import annotations

from . import jsonrpc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BATCH_VERSION",
    "LATEST_LEGACY",
    "LEGACY_VERSIONS",
    "MODERN_VERSIONS",
    "UNSUPPORTED_VERSION",
    "Era",
    "choose",
    "negotiate",
]

LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LATEST_LEGACY = LEGACY_VERSIONS[-1]
MODERN_VERSIONS = ("2026-07-28",)
BATCH_VERSION = "2025-03-26"  # the only one that has batches
UNSUPPORTED_VERSION = -32022
LEGACY_RESOURCE_NOT_FOUND = -32002

_PREFIX = "io.modelcontextprotocol/"
_VERSION_KEY = _PREFIX + "protocolVersion"
_CAPABILITIES_KEY = _PREFIX + "clientCapabilities"
_LEVEL_KEY = _PREFIX + "logLevel"
_SERVER_KEY = _PREFIX + "serverInfo"
_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_SHARED = ("tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read")
LEGACY_METHODS = frozenset({"initialize", "ping", *_SHARED})
MODERN_METHODS = frozenset({"server/discover", *_SHARED})
_MODERN_ONLY = frozenset({"server/discover", "subscriptions/listen"})


class Era:
    """The rules of one request."""

    __slots__ = ("is_modern", "version")

    def __init__(self, version: str, *, is_modern: bool) -> None:
        self.version = version
        self.is_modern = is_modern

    def complete(
        self,
        result: Mapping[str, object],
        *,
        server: Mapping[str, object],
        ttl_ms: int | None = None,
        is_public: bool = False,
    ) -> dict[str, object]:
        """A result in the shape of the era.

        Args:
            result: Its own members.
            server: Who we are.
            ttl_ms: For how long it may be kept; for the six methods that must say so.
            is_public: It is the same for everybody.
        """
        if not self.is_modern:
            return dict(result)
        hints = {} if ttl_ms is None else {"ttlMs": ttl_ms, "cacheScope": "public" if is_public else "private"}
        return {"resultType": "complete", **result, **hints, "_meta": {_SERVER_KEY: server}}

    def resource_not_found(self, uri: str) -> jsonrpc.ProtocolError:
        """The error for a URI that stands for nothing."""
        code = jsonrpc.INVALID_PARAMS if self.is_modern else LEGACY_RESOURCE_NOT_FOUND
        return jsonrpc.ProtocolError(code, "Resource not found", data={"uri": uri})


def negotiate(requested: str) -> str:
    """The version of a handshake: the one that is asked for, or the newest; refusing is the client's part."""
    return requested if requested in LEGACY_VERSIONS else LATEST_LEGACY


def choose(request: jsonrpc.Request, *, negotiated: str | None) -> Era:
    """The rules for a request.

    Args:
        request: The request.
        negotiated: The version of the last handshake; None if there was none yet.

    Raises:
        jsonrpc.ProtocolError: none fit; it is the answer.
    """
    meta = request.params.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    claims_modern = _VERSION_KEY in meta
    if request.method == "initialize":
        return _handshake(request, claims_modern=claims_modern)
    if claims_modern:
        return _modern(request.method, meta)
    missing = [key for key in (_VERSION_KEY, _CAPABILITIES_KEY) if key not in meta]
    if request.method in _MODERN_ONLY or any(isinstance(key, str) and key.startswith(_PREFIX) for key in meta):
        raise jsonrpc.invalid_params(f"params._meta lacks {' and '.join(missing)}")
    if request.method not in LEGACY_METHODS:
        raise _not_found(request.method)
    if negotiated is None and request.method != "ping":
        raise jsonrpc.invalid_params(f"begin with initialize, or send {' and '.join(missing)} in params._meta")
    return Era(negotiated or LATEST_LEGACY, is_modern=False)


def _handshake(request: jsonrpc.Request, *, claims_modern: bool) -> Era:
    """A well-formed handshake is one, whatever its ``_meta`` has."""
    requested = request.params.get("protocolVersion")
    if isinstance(requested, str):
        return Era(negotiate(requested), is_modern=False)
    if claims_modern:
        raise _not_found(request.method)
    raise jsonrpc.invalid_params("initialize needs protocolVersion, a string")


def _modern(method: str, meta: Mapping[str, object]) -> Era:
    version = meta[_VERSION_KEY]
    if not isinstance(version, str):
        raise jsonrpc.invalid_params(f"params._meta: {_VERSION_KEY} must be a string")
    if not isinstance(meta.get(_CAPABILITIES_KEY), dict):
        raise jsonrpc.invalid_params(f"params._meta: {_CAPABILITIES_KEY} must be an object")
    # Before the method: who probes with a version of the future must hear of the version.
    if version not in MODERN_VERSIONS:
        raise jsonrpc.ProtocolError(
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            data={"supported": list(MODERN_VERSIONS), "requested": version},
        )
    if method not in MODERN_METHODS:
        raise _not_found(method)
    if _LEVEL_KEY in meta and meta[_LEVEL_KEY] not in _LEVELS:
        raise jsonrpc.invalid_params(f"params._meta: {_LEVEL_KEY} must be one of {', '.join(_LEVELS)}")
    return Era(version, is_modern=True)


def _not_found(method: str) -> jsonrpc.ProtocolError:
    return jsonrpc.ProtocolError(jsonrpc.METHOD_NOT_FOUND, "Method not found", data={"method": method[:200]})
