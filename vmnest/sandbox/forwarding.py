"""Ports of a sandbox on this machine: the forwarder's gate to it, and a watcher that ends what leads nowhere.

A sandbox that is suspended because it was idle is resumed by the next request; so the forwarding goes on. One that was
stopped on purpose is to stay so, and pages ask again and again: then the forwarding ends, at the latest before the next
request would go out. A forwarding begins with a token, which wakes nothing; so who gets none learns that at once. From
then on what the service cannot tell for a while (no network, no credentials) ends nothing.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from typing import TYPE_CHECKING

from .. import errors, registry, settings
from .._guest.agentd import wire
from ..deadline import Deadline, check_seconds
from ..forward import forwarder, gate, hosts, ports
from ..wire import names
from . import life
from .link import Link, place_of

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from ..forward.gate import HeaderPairs

__all__ = ["Forwarding", "link_of", "open_forwarding"]

READY_SECONDS = 120.0
FIRST_LOOK_SECONDS = 0.25  # after the start, which it would slow down
STAMP_SECONDS = 1.0  # between two looks at whether another process has changed what is recorded
GLANCE_SECONDS = 1.0  # how long what was seen holds, where no request may find it suspended
SLICE_SECONDS = 0.25  # of a wait for the end
JOIN_SECONDS = 0.5  # the watcher may be waiting for the service, and its end is nobody's concern
RELAY_SECONDS = 10.0  # an agent that does not say in time whether it has the relay is taken for one without
RELAY_AGAIN_SECONDS = 60.0  # then it is asked again after this time,
RELAY_GLANCE_SECONDS = 1.0  # and given that long
RELAY_SETTLED_SECONDS = 1.0  # many may find at one time that it has none
RESUMING_SECONDS = 5.0  # from a look that found it suspended: others that asked meanwhile did not reach it either

_SHOWN = {ports.LOOPBACK: "localhost", "0.0.0.0": "localhost", "::": "::1"}  # noqa: S104 - only shown

_logger = logging.getLogger(__name__)


class LinkGate:
    """What the forwarder knows of a sandbox; see ``forward.gate``."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = threading.Lock()  # guards the two below
        self._endpoint: str | None = None
        self._slept_until = float("-inf")
        self._asking = threading.Lock()  # held while the agent is asked; guards the two below
        self._relay: bool | None = None  # whether it has one; None: it has not said
        self._asked_at = float("-inf")
        self._seen_at = float("-inf")

    @property
    def agent_port(self) -> int:
        """See ``Gate``."""
        return self._link.agent_port

    @property
    def authority(self) -> str:
        """See ``Gate``."""
        return re.sub(r"^[a-z]+://|/.*$", "", self._find_endpoint())

    def headers(self, port: int, *, refused: HeaderPairs | None = None) -> HeaderPairs:
        """See ``Gate``."""
        return self._link.tokens.headers(port, refused=refused)

    def open(self, deadline: Deadline) -> socket.socket:
        """See ``Gate``."""
        from .. import transport

        sender = transport.shared(self._link.trust())
        connection, _ = sender.dial("GET", self._find_endpoint(), headers=(), deadline=deadline)
        return connection.detach()

    def has_relay(self, *, again: bool = False) -> bool:
        """See ``Gate``."""
        with self._asking:  # others wait for the one answer
            since = self._link.clock.monotonic() - self._asked_at
            if since > RELAY_AGAIN_SECONDS if self._relay is None else again and since > RELAY_SETTLED_SECONDS:
                self.check()  # the question would wake it, too
                is_first = self._asked_at == float("-inf")
                self._relay = self._ask_for_relay(RELAY_SECONDS if is_first or again else RELAY_GLANCE_SECONDS)
                self._asked_at = self._link.clock.monotonic()
            return self._relay or False

    def recover(self, deadline: Deadline) -> bool:
        """See ``Gate``."""
        lost = errors.EndpointUnavailableError("a request did not reach the sandbox")
        try:
            endpoint = self._link.recover(lost, wakes=self._link.auto_resume)
        except errors.MicroVMNotFoundError as error:
            raise _gone(self._link, error) from error
        except errors.SandboxSuspendedError as error:
            if self._link.record.stopped_at is None:
                raise  # it is idle, and must not be resumed
            raise _stopped(self._link) from error
        now = self._link.clock.monotonic()
        with self._lock:
            self._endpoint = endpoint
            if self._link.state != names.RUNNING:
                self._slept_until = now
            return now - self._slept_until < RESUMING_SECONDS

    def check(self) -> None:
        """See ``Gate``."""
        self._link.catch_up()
        if self._link.record.stopped_at is not None:
            raise _stopped(self._link)
        now = self._link.clock.monotonic()
        if not self._link.auto_resume and now - self._seen_at > GLANCE_SECONDS:  # the request itself might resume it
            life.ready_for_use(self._link, deadline=Deadline(READY_SECONDS))
            self._seen_at = now

    def _find_endpoint(self) -> str:
        found = self._endpoint
        if found is None:
            found = self._endpoint = self._link.find_endpoint()
        return found if "://" in found else f"https://{found}"

    def _ask_for_relay(self, seconds: float) -> bool | None:
        try:
            health = self._link.agent().health(deadline=Deadline(seconds))
        except (*gate.OVER, errors.CredentialsError):
            raise
        except errors.VmnestError as error:
            _logger.info("the agent does not say whether it has a relay: %s", error)
            return None
        return wire.FEATURE_RELAY in health.features


def _stopped(link: Link) -> errors.SandboxSuspendedError:
    name = link.record.name
    return errors.SandboxSuspendedError(
        f"sandbox {name} was stopped: its ports are not forwarded any more",
        hint=f"Resume it, and forward them again: vmnest start {name}",
    )


def _gone(link: Link, error: errors.MicroVMNotFoundError) -> errors.SandboxNotFoundError:
    return errors.SandboxNotFoundError(f"sandbox {link.record.name} is gone: {error.message}")


def link_of(record: registry.Record, *, region: str | None = None, verify_tls: bool | None = None) -> Link:
    """A link to the sandbox that a record describes, for ``open_forwarding``: see ``Sandbox.from_record``."""
    place = place_of(record, region=region)
    return Link(record, place=place, records=registry.open_default(), verify_tls=verify_tls)


def open_forwarding(
    link: Link,
    specs: Sequence[int | str],
    *,
    local_port: int | None,
    bind: str,
    is_direct: bool,
    allow_hosts: Sequence[str],
    poll_interval: float,
    on_remark: Callable[[str], None] | None,
) -> Forwarding:
    """See ``Sandbox.forward``.

    Raises:
        errors.UsageError: a port that cannot be forwarded, or a name that is none.
        errors.ListenError: a local port cannot be had.
        errors.SandboxSuspendedError: it is suspended, and must not be resumed.
        errors.MicroVMEndedError, errors.SandboxNotFoundError: it is gone.
        errors.VmnestError: the service gives no token.
    """
    hook_port = settings.number("hook_port", environ=link.place.environ)
    routes = ports.plan(specs, local_port=local_port, hook_port=hook_port)
    allowed = [hosts.parse_allowed(name) for name in allow_hosts]
    check_seconds(poll_interval, name="poll_interval", zero=False)
    if not isinstance(bind, str) or not bind:
        raise errors.UsageError(f"bind must be an address of this machine, such as {ports.LOOPBACK}: {bind!r}")
    life.ready_for_use(link, deadline=Deadline(READY_SECONDS))
    if link.record.stopped_at is not None:  # it runs: that stop was cut off, or somebody else's call has undone it
        link.note(stopped_at=None)
    forwarding = Forwarding(link, bind=bind, poll_interval=poll_interval)
    forwarding.start(
        forwarder.Forwarder(
            LinkGate(link),
            routes,
            bind=bind,
            is_direct=is_direct,
            allow_hosts=allowed,
            report=on_remark or forwarding.log,
            on_end=forwarding.end,
        ),
        first_port=routes[0].remote if is_direct else link.agent_port,
    )
    return forwarding


class Forwarding:
    """Ports that are forwarded, until ``close``, the end of the ``with`` block, or the end of the sandbox.

    Safe for threads. A forked child has no part in it: there it is closed, and closing it does nothing.
    """

    def __init__(self, link: Link, *, bind: str, poll_interval: float) -> None:
        self._link = link
        self._bind = bind
        self._poll_interval = poll_interval
        self._forwarder: forwarder.Forwarder
        self._is_over = threading.Event()
        self._error: errors.VmnestError | None = None
        self._watcher = threading.Thread(target=self._watch, name="vmnest-forward-watch", daemon=True)
        self._cannot_see = False
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"Forwarding({self.urls!r}, is_open={self.is_open})"

    @property
    def ports(self) -> dict[int, int]:
        """The port in the sandbox → that of this machine."""
        return dict(self._forwarder.routes)

    @property
    def local_port(self) -> int:
        """The local port; the first one's, if there are more."""
        return self._forwarder.routes[0].local

    @property
    def urls(self) -> dict[int, str]:
        """The port in the sandbox → the URL that leads to it."""
        host = _SHOWN.get(self._bind, self._bind)
        shown = f"[{host}]" if ":" in host else host
        return {route.remote: f"http://{shown}:{route.local}" for route in self._forwarder.routes}

    @property
    def url(self) -> str:
        """The URL; the first one's, if there are more."""
        return next(iter(self.urls.values()))

    @property
    def is_open(self) -> bool:
        """Nothing has ended it yet."""
        return self._pid == os.getpid() and not self._is_over.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for its end; False when the time is over.

        Raises:
            errors.SandboxSuspendedError: the sandbox was stopped.
            errors.MicroVMEndedError, errors.SandboxNotFoundError: it is gone.
        """
        end = Deadline(timeout)
        # In slices: a signal that another thread gets, or that comes just before this one sleeps, does not wake it.
        while not self._is_over.wait(end.clamp(SLICE_SECONDS)):
            if end.expired:
                return False
        if self._error is not None:
            raise self._error
        return True

    def close(self) -> None:
        """End it, with all its connections. May be called again."""
        if self._pid != os.getpid():
            return  # a forked child would end the connections of its parent
        self._is_over.set()
        self._forwarder.close()
        if self._watcher is not threading.current_thread() and self._watcher.is_alive():
            self._watcher.join(JOIN_SECONDS)

    def __enter__(self) -> Forwarding:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- for open_forwarding and the forwarder -------------------------------------------------------------------------

    def start(self, made: forwarder.Forwarder, *, first_port: int) -> None:
        """Listen, get the token that the first request will need, and watch the sandbox."""
        self._forwarder = made
        try:
            made.open()
            self._get_token(first_port)
        except BaseException:
            made.close()
            raise
        self._watcher.start()

    def _get_token(self, port: int) -> None:
        try:
            self._link.tokens.headers(port)
        except errors.MicroVMNotFoundError as error:
            raise _gone(self._link, error) from error

    def end(self, error: errors.VmnestError) -> None:
        """It leads nowhere any more, for that reason."""
        if not self._is_over.is_set():
            self._error = error
            self._is_over.set()

    def log(self, text: str) -> None:
        """Take a remark for which nobody else has asked."""
        _logger.warning("%s", text)

    def _watch(self) -> None:
        self._is_over.wait(min(FIRST_LOOK_SECONDS, self._poll_interval))
        while not self._is_over.is_set():
            stamp = self._link.records.stamp()
            try:
                self._look()
            except gate.OVER as error:
                self.end(error)
            except errors.MicroVMNotFoundError as error:
                self.end(_gone(self._link, error))
            except errors.VmnestError as error:
                if not self._cannot_see:
                    self._forwarder.report(f"the sandbox's state cannot be seen for now: {error.message}")
                self._cannot_see = True
            self._rest(stamp)
        self._forwarder.close()

    def _rest(self, stamp: object) -> None:
        """Wait until the next look is due, or another process has changed what is recorded of sandboxes."""
        end = time.monotonic() + self._poll_interval
        while (left := end - time.monotonic()) > 0 and not self._is_over.wait(min(left, STAMP_SECONDS)):
            if self._link.records.stamp() != stamp:
                return

    def _look(self) -> None:
        self._link.catch_up()
        microvm = self._link.look()
        self._cannot_see = False
        if microvm.ended:
            raise self._link.ended(microvm)
        if microvm.state in names.SUSPENDED_STATES and self._link.record.stopped_at is not None:
            raise _stopped(self._link)
