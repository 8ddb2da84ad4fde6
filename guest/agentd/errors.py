"""The refusals of the agent: each is one HTTP answer with a stable code."""

from __future__ import annotations

import errno

from . import wire

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOBUFS})


class RequestError(Exception):
    """A request that is answered with an error. ``detail`` is one sentence for people, ``code`` is for machines."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


class PeerGoneError(Exception):
    """The client went away before its answer: there is nobody left to tell."""


class ConfigError(Exception):
    """A setting in the environment cannot be used; the message names the variable."""


def bad_argument(field: str, problem: str) -> RequestError:
    """The refusal of one member of a request's document."""
    return RequestError(400, wire.BAD_ARGUMENT, f"{field}: {problem}")


def is_exhaustion(error: OSError) -> bool:
    """Whether the system ran out of files, memory or processes: the request itself is not at fault."""
    return error.errno in _EXHAUSTED


def overloaded(error: OSError) -> RequestError:
    """The refusal for want of a resource of the system."""
    return RequestError(503, wire.OVERLOADED, f"the sandbox is out of resources: {error.strerror}")
