"""Which ports are forwarded to which: what users write, checked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from .. import errors

__all__ = ["ANY_PORT", "LOOPBACK", "MAX_ROUTES", "POLL_SECONDS", "Route", "parse_route", "plan"]

LOOPBACK = "127.0.0.1"
POLL_SECONDS = 5.0  # between two looks at the sandbox's state
MAX_ROUTES = 256
ANY_PORT = 0
_LAST_PORT = 65535
_SPEC = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?(?::([0-9]{1,5})(?:-([0-9]{1,5}))?)?")
_FORMS = "Write REMOTE, REMOTE:LOCAL, or ranges of the same length: 3000-3005, 3000-3005:4000-4005."


class Route(NamedTuple):
    """A port in the sandbox, and the port of this machine that leads to it; 0 is for any that is free."""

    remote: int
    local: int


def parse_route(spec: str | int) -> list[Route]:
    """The routes that ``8000``, ``8000:3000``, ``3000-3005`` or ``3000-3005:4000-4005`` stands for.

    Without a local port it is the remote one's number.

    Raises:
        errors.UsageError: it is none of these.
    """
    found = _SPEC.fullmatch(str(spec))
    if found is None:
        raise errors.UsageError(f"not a port to forward: {str(spec)!r}", hint=_FORMS)
    remotes = _range(found[1], found[2], spec)
    if found[3] is None:
        return [Route(port, port) for port in remotes]
    if int(found[3]) == ANY_PORT and found[4] is None:
        return [Route(port, ANY_PORT) for port in remotes]
    locals_ = _range(found[3], found[4], spec)
    if len(locals_) != len(remotes):
        raise errors.UsageError(f"the ranges of {str(spec)!r} differ in length", hint=_FORMS)
    return [Route(*pair) for pair in zip(remotes, locals_, strict=True)]


def _range(first: str, last: str | None, spec: str | int) -> range:
    begin, end = int(first), int(last or first)
    if not 1 <= begin <= end <= _LAST_PORT:
        raise errors.UsageError(
            f"not a port to forward: {str(spec)!r}", hint=f"Ports are 1 to {_LAST_PORT}; a range begins with the lower."
        )
    if end - begin >= MAX_ROUTES:
        raise errors.UsageError(f"{str(spec)!r} is more than {MAX_ROUTES} ports")
    return range(begin, end + 1)


def plan(specs: Iterable[str | int], *, local_port: int | None = None, hook_port: int) -> list[Route]:
    """All routes, checked.

    Args:
        specs: See ``parse_route``.
        local_port: The local port of the one route that there is and that names none; 0: any that is free.
        hook_port: The port that the platform has for itself; it is never forwarded.

    Raises:
        errors.UsageError: they cannot be forwarded together.
    """
    named = list(specs)
    routes = [route for spec in named for route in parse_route(spec)]
    if not routes:
        raise errors.UsageError("no port to forward", hint="Name the port in the sandbox, such as 8000.")
    if local_port is not None:
        double = next((str(spec) for spec in named if ":" in str(spec)), None)
        if double is not None:
            raise errors.UsageError(
                f"{double!r} names its local port, and {local_port} is named beside it", hint="Name one of them."
            )
        routes = [_with_local(routes, local_port)]
    _check(routes, hook_port=hook_port)
    return routes


def _with_local(routes: list[Route], local_port: int) -> Route:
    if len(routes) > 1:
        raise errors.UsageError(
            "one local port for several remote ones", hint="Name each one's own with it: -r 8000:3000 -r 9090:0"
        )
    if isinstance(local_port, bool) or not isinstance(local_port, int) or not 0 <= local_port <= _LAST_PORT:
        raise errors.UsageError(f"not a local port: {local_port!r}", hint=f"0 (any that is free) to {_LAST_PORT}.")
    return Route(routes[0].remote, local_port)


def _check(routes: list[Route], *, hook_port: int) -> None:
    if len(routes) > MAX_ROUTES:
        raise errors.UsageError(f"more than {MAX_ROUTES} ports to forward")
    if any(route.remote == hook_port for route in routes):
        raise errors.UsageError(
            f"port {hook_port} is the platform's own, for the hooks of the sandbox: it is not forwarded",
            hint="AGENT_SANDBOX_HOOK_PORT names that port. Have your server listen on another one.",
        )
    remotes = [route.remote for route in routes]
    taken = [route.local for route in routes if route.local != ANY_PORT]
    for numbers, what in ((remotes, "port"), (taken, "local port")):
        double = next((number for number in numbers if numbers.count(number) > 1), None)
        if double is not None:
            raise errors.UsageError(f"{what} {double} is named twice")
