"""Answers that are not the server's own: what the platform's proxy and the agent's relay say in its place."""

from __future__ import annotations

import enum

from .._guest.agentd import wire
from ..wire import http1, names

__all__ = ["Verdict", "hint_of_host_check", "judge", "wants_body"]

_FORBIDDEN, _TOO_MANY, _BAD_GATEWAY = 403, 429, 502
_WORDS = frozenset({names.BODY_NO_TOKEN, names.BODY_WRONG_TOKEN})
# What is malformed or too large is so for whoever reads it first, be it the platform or the agent.
_ABOUT_THE_REQUEST = frozenset({400, 413, 414, 431, 501, 505})

# Words by which servers refuse a Host, in lower case, and where each has its list. The more particular come first.
_HOST_CHECKS = (
    (b"server.allowedhosts", "Vite: server.allowedHosts in vite.config"),
    (b"preview.allowedhosts", "Vite: preview.allowedHosts in vite.config"),
    (b"blocked request. this host", "Vite: server.allowedHosts in vite.config"),
    (b"allowed_hosts", "Django: ALLOWED_HOSTS in settings"),
    (b"disallowedhost", "Django: ALLOWED_HOSTS in settings"),
    (b"blocked host", "Rails: config.hosts in config/environments"),
    (b"bad request - invalid hostname", "ASP.NET Core: AllowedHosts in appsettings.json"),
    (b"untrusted host", "Symfony: framework.trusted_hosts; Laravel: trustHosts in bootstrap/app.php"),
    (b"invalid host/origin header", "webpack-dev-server: devServer.allowedHosts"),
    (b"invalid host header", "webpack-dev-server: devServer.allowedHosts; Starlette: TrustedHostMiddleware"),
)
_HOST_CHECK_STATUSES = frozenset({400, _FORBIDDEN, 421})
_WEBPACK_LENGTH = str(len("Invalid Host header"))  # which webpack-dev-server 4 says with status 200


class Verdict(enum.Enum):
    """Why there is no answer of the server's own."""

    TOKEN_REFUSED = "the endpoint does not accept the token"  # noqa: S105 - a sentence
    PORT_REFUSED = "the port is not to be had"
    NOT_LISTENING = "nothing listens on the port"
    UNREACHABLE = "the sandbox cannot be reached"
    UNNAMED = "the endpoint has no answer, and does not say why"
    THROTTLED = "the endpoint takes no more requests for now"
    BROKEN = "the server ended the connection without an answer"
    FULL = "the sandbox's agent passes on as many requests as it can"
    NO_RELAY = "the agent passes no requests on"


_OF_RELAY = {
    wire.RELAY_NOT_LISTENING: Verdict.NOT_LISTENING,
    wire.RELAY_REFUSED: Verdict.PORT_REFUSED,
    wire.RELAY_BROKEN: Verdict.BROKEN,
    wire.RELAY_FULL: Verdict.FULL,
}


def wants_body(response: http1.Response, *, relayed: bool) -> bool:
    """Whether the beginning of the body tells something, about whose answer it is or why the server refuses."""
    status = response.status
    if relayed:
        return False
    if status in _HOST_CHECK_STATUSES or status == _BAD_GATEWAY:
        return True
    length = http1.first(response.fields, "content-length")
    return status == 200 and length == _WEBPACK_LENGTH


def judge(response: http1.Response, body: bytes, *, relayed: bool) -> Verdict | None:
    """What an answer means that came through the relay, or straight from the port; None: it is passed on as it is.

    Args:
        response: The answer's head.
        body: The beginning of its body, if ``wants_body`` says so; none only if there is none.
        relayed: Whether the request was sent to the relay, whose answers bear its mark.
    """
    named = http1.first(response.fields, names.PROXY_ERROR_HEADER)
    if relayed:
        said = http1.first(response.fields, wire.RELAY_HEADER)
        if said is not None:
            return _OF_RELAY.get(said)
        if response.status in _ABOUT_THE_REQUEST:
            return None
        return _of_platform(response.status, named, relayed=True) or Verdict.NO_RELAY
    words = body.decode("latin-1").strip()
    if response.status == _FORBIDDEN and words == names.BODY_WRONG_PORT:
        return Verdict.PORT_REFUSED
    if named is not None:
        return _of_platform(response.status, named, relayed=False)
    if response.status == _FORBIDDEN and words in _WORDS:
        return Verdict.TOKEN_REFUSED
    # A server has something to say, at least a type of nothing; the platform's 502 has neither type nor body.
    if response.status == _BAD_GATEWAY and not body and http1.first(response.fields, "content-type") is None:
        return Verdict.UNNAMED
    return None


def _of_platform(status: int, named: str | None, *, relayed: bool) -> Verdict | None:
    if status == _FORBIDDEN:
        return Verdict.TOKEN_REFUSED
    if status == _TOO_MANY:
        return Verdict.THROTTLED
    if status < 500:
        return None
    if named == names.APP_CONNECT_FAILED:
        # What does not listen on the agent's port is the agent.
        return Verdict.UNREACHABLE if relayed else Verdict.NOT_LISTENING
    return Verdict.UNREACHABLE if named == names.MICROVM_CONNECT_FAILED else Verdict.UNNAMED


# -- servers that check the host ---------------------------------------------------------------------------------------


def hint_of_host_check(status: int, body: bytes) -> str | None:
    """The setting of a server that has refused the endpoint's name as its own; None if it does not look like that."""
    if status not in {200, *_HOST_CHECK_STATUSES}:
        return None
    text = body.lower()
    return next((setting for words, setting in _HOST_CHECKS if words in text), None)
