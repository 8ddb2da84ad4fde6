"""Answers that are not the server's own: what the platform's proxy and the agent's relay say in its place."""

from __future__ import annotations

import enum

from .._guest.agentd import wire
from ..wire import http1, names

__all__ = ["MAX_BODY_BYTES", "Verdict", "hint_of_host_check", "judge", "may_be_platforms"]

MAX_BODY_BYTES = 200  # of the platform's own answers, which are a few words, or nothing

_WORDS = frozenset({names.BODY_NO_TOKEN, names.BODY_WRONG_TOKEN, names.BODY_WRONG_PORT})


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


def may_be_platforms(response: http1.Response, *, relayed: bool) -> bool:
    """Whether the beginning of the body is needed in order to judge."""
    if relayed:
        return False
    text = (http1.first(response.fields, "content-type") or "").partition(";")[0].strip().lower()
    return response.status in {403, 502} and text in {"", "text/plain"}


def judge(response: http1.Response, body: bytes, *, relayed: bool) -> Verdict | None:
    """What an answer means that came through the relay, or straight from the port; None: it is the server's own.

    Args:
        response: The answer's head.
        body: Its body, if ``may_be_platforms`` asked for it and it is that short.
        relayed: Whether the request was sent to the relay, whose answers bear its mark.
    """
    named = http1.first(response.fields, names.PROXY_ERROR_HEADER)
    if relayed:
        said = http1.first(response.fields, wire.RELAY_HEADER)
        if said is not None and named is None:
            return _OF_RELAY.get(said)
        return _of_platform(response.status, named, relayed=True) or Verdict.NO_RELAY
    if named is not None:
        return _of_platform(response.status, named, relayed=False) or Verdict.UNNAMED
    if response.status == 403 and body.decode("latin-1").strip() in _WORDS:
        is_port = body.decode("latin-1").strip() == names.BODY_WRONG_PORT
        return Verdict.PORT_REFUSED if is_port else Verdict.TOKEN_REFUSED
    # A server has something to say, at least a type of nothing; the platform's 502 has neither type nor body.
    if response.status == 502 and not body and http1.first(response.fields, "content-type") is None:
        return Verdict.UNNAMED
    return None


def _of_platform(status: int, named: str | None, *, relayed: bool) -> Verdict | None:
    if status == 403:
        return Verdict.TOKEN_REFUSED
    if status == 429:
        return Verdict.THROTTLED
    if named == names.APP_CONNECT_FAILED:
        # What does not listen on the agent's port is the agent.
        return Verdict.UNREACHABLE if relayed else Verdict.NOT_LISTENING
    if named == names.MICROVM_CONNECT_FAILED:
        return Verdict.UNREACHABLE
    return Verdict.UNNAMED if status in {500, 502, 503, 504} else None


# -- servers that check the host ---------------------------------------------------------------------------------------

_HOST_CHECKS = (
    (b"Blocked request. This host", "Vite: server.allowedHosts in vite.config"),
    (b"Invalid Host header", "webpack-dev-server: devServer.allowedHosts; Starlette: TrustedHostMiddleware"),
    (b"Invalid Host/Origin header", "webpack-dev-server: devServer.allowedHosts"),
    (b"DisallowedHost", "Django: ALLOWED_HOSTS in settings"),
    (b"ALLOWED_HOSTS", "Django: ALLOWED_HOSTS in settings"),
    (b"Blocked host", "Rails: config.hosts"),
    (b"Blocked hosts", "Rails: config.hosts"),
)


def hint_of_host_check(status: int, body: bytes) -> str | None:
    """The setting of a server that has refused the endpoint's name as its own; None if it does not look like that."""
    if status not in {400, 403}:
        return None
    return next((setting for words, setting in _HOST_CHECKS if words in body), None)
