"""What the relay makes of heads: the request becomes one for ``localhost``, and the answer says that it was relayed.

All else of a head passes as it came: names in their case, fields in their order and as often as they came.
"""

from __future__ import annotations

from . import heads, wire
from .bodyends import BodyEnd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# About a connection rather than what travels through it (RFC 9110 section 7.6.1), as is all that Connection names.
_CONNECTION_FIELDS = frozenset({"connection", "keep-alive", "proxy-connection", "te", "upgrade"})
# But without these, the other side would see other messages than we do.
_FRAMING_FIELDS = frozenset({"content-length", "transfer-encoding"})
_PLATFORM_PREFIX = "x-aws-proxy-"
_BODILESS = frozenset({204, 304})
_END = b"\r\n\r\n"


def build_request(head: heads.Head, *, port: int) -> bytes:
    """The request's head as the server gets it.

    Raises:
        HeadError: it is for a proxy, which this is not.
    """
    minor = head.version[1]
    lines = [f"{head.method} {_local_target(head)} HTTP/1.{minor}", f"Host: localhost:{port}"]
    lines += (f"{name}: {value}" for name, value in _local_fields(head, port=port))
    if head.asks_upgrade:
        lines += ["Connection: Upgrade", f"Upgrade: {', '.join(head.headers['upgrade'])}"]
    return "\r\n".join(lines).encode("latin-1") + _END


def _local_target(head: heads.Head) -> str:
    """The target in origin form: an absolute one names a host, which would count instead of ours."""
    target = head.target
    if target.startswith("/") or (target == "*" and head.method == "OPTIONS"):
        return target
    if head.method == "CONNECT" or not target.lower().startswith(("http://", "https://")):
        raise heads.HeadError("the request's target must be a path")
    path, mark, query = head.path, *target.partition("?")[1:]
    return f"{path}{mark}{query}"


def _local_fields(head: heads.Head, *, port: int) -> Iterator[tuple[str, str]]:
    host = head.value("host")
    told = head.value("x-forwarded-host") or host
    named = heads.connection_options(head.headers) - _FRAMING_FIELDS
    dropped = named | _CONNECTION_FIELDS | {"host", wire.RELAY_PORT_HEADER}
    if head.version < (1, 1):
        dropped |= {"expect"}  # RFC 9110 section 10.1.1
    for name, value in head.fields:
        key = name.lower()
        if key in dropped or key.startswith(_PLATFORM_PREFIX):
            continue
        if key == "origin" and _is_of(value, host=told):
            # A foreign one passes as it is, so that the server can still refuse requests of other sites.
            value = f"http://localhost:{port}"
        yield name, value
    # The forwarder tells better; another client has come by the endpoint.
    if "x-forwarded-host" not in head.headers and host:
        yield "X-Forwarded-Host", host
    if "x-forwarded-proto" not in head.headers:
        yield "X-Forwarded-Proto", "https"


def _is_of(origin: str, *, host: str) -> bool:
    return bool(host) and origin.partition("://")[2].lower() == host.lower()


def build_interim(response: heads.ResponseHead) -> bytes:
    """The head of an answer that is not the final one."""
    return b"\r\n".join([_status_line(response), *response.lines[1:]]) + _END


def build_switch(response: heads.ResponseHead) -> bytes:
    """The head of the answer after which all bytes are of another protocol."""
    return _build_response(response, dropped=frozenset({wire.RELAY_HEADER}), added=[])


def build_response(response: heads.ResponseHead, *, keep: bool, in_chunks: bool) -> bytes:
    """The final answer's head. ``in_chunks``: its body is put into them."""
    named = heads.connection_options(response.headers) - _FRAMING_FIELDS
    added = [b"Transfer-Encoding: chunked"] if in_chunks else []
    if not keep:
        added.append(b"Connection: close")
    return _build_response(response, dropped=named | _CONNECTION_FIELDS | {wire.RELAY_HEADER}, added=added)


def _build_response(response: heads.ResponseHead, *, dropped: frozenset[str] | set[str], added: list[bytes]) -> bytes:
    kept = (line for line in response.lines[1:] if line.partition(b":")[0].decode("ascii").lower() not in dropped)
    mark = f"{wire.RELAY_HEADER}: {wire.RELAY_RELAYED}".encode("ascii")
    return b"\r\n".join([_status_line(response), *kept, mark, *added]) + _END


def _status_line(response: heads.ResponseHead) -> bytes:
    """Ours, whatever version the server speaks: the rest of the head was made for that."""
    return b"HTTP/1.1" + response.lines[0][len(b"HTTP/1.x") :]


def find_end(response: heads.ResponseHead, *, method: str) -> BodyEnd:
    """How the answer's body ends (RFC 9112 section 6.3).

    Raises:
        HeadError: it cannot be told.
    """
    length, is_chunked = heads.parse_framing(response.headers)
    if method == "HEAD" or response.status in _BODILESS:
        return BodyEnd()
    if is_chunked or "content-length" in response.headers:
        return BodyEnd(length=length, is_chunked=is_chunked)
    return BodyEnd(is_until_close=True)
