"""How a Sandbox reaches its MicroVM: the control plane, the agent behind the endpoint, and what is known of both."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from typing import TYPE_CHECKING

from .. import errors, registry, settings
from .. import target as targets
from ..deadline import SYSTEM_CLOCK, Clock, Deadline
from ..wire import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..agent.client import AgentClient
    from ..agent.tokens import HeaderPairs, TokenStore
    from ..control import Control
    from ..control.microvms import MicroVM
    from ..control.tokens import Token

__all__ = ["CALL_SECONDS", "ForkSafeLock", "Link", "place_of"]

CALL_SECONDS = 60.0  # one call of the control plane
GLANCE_SECONDS = 5.0  # one whose answer would only explain a failure
RESUME_AGAIN_SECONDS = 2.0  # a resume that was asked for has this long to show

_logger = logging.getLogger(__name__)


_STOPPED = "Container Stopped"  # the service's reason after the end of the main process
_AGENT_HINT = (
    "vmnest's agent must listen on port {port} of the image (AGENT_SANDBOX_AGENT_PORT names another one): "
    "vmnest image init writes a directory with it."
)
_CMD_HINT = "Its main process (the image's CMD, with the agent in it) has to go on running."


class ForkSafeLock:
    """A lock that a forked child finds free, whatever the threads of its parent were doing."""

    def __init__(self) -> None:
        self._locks: dict[int, threading.Lock] = {}

    @contextlib.contextmanager
    def held(self, deadline: Deadline | None = None) -> Iterator[None]:
        """Hold it; WaitTimeoutError if it is not to be had in time."""
        # setdefault is atomic: all threads of a process get the same lock.
        lock = self._locks.setdefault(os.getpid(), threading.Lock())
        left = None if deadline is None else deadline.remaining()
        if not lock.acquire(timeout=-1 if left is None else left):
            assert deadline is not None
            deadline.check("another thread that resumes the sandbox")
            raise errors.WaitTimeoutError("another thread that resumes the sandbox is slower than this call may be")
        try:
            yield
        finally:
            lock.release()


class Link:
    """The connections of one sandbox, made when they are first needed.

    Safe for threads, and after ``fork``: what is known is replaced as a whole, what is made lazily is stored by
    ``setdefault``, which is atomic, and a child has locks of its own. ``waking`` is held, over calls of the service, by
    the one thread that makes the sandbox ready while others that need it wait.

    Attributes:
        record: What is recorded about the sandbox, as far as we know.
        records: Where it is recorded.
        place: The target that it is on.
        state: The state last seen.
        auto_resume: Its use may resume it.
        clock: The time.
        waking: See above.
        is_new: It has not been ready yet: should it fail now, nothing of it is kept.
    """

    def __init__(
        self,
        record: registry.Record,
        *,
        place: targets.Target,
        records: registry.Registry,
        verify_tls: bool | None = None,
        auto_resume: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.record = record
        self.records = records
        self.place = place
        self.state = record.state_hint or names.UNKNOWN
        self.auto_resume = auto_resume
        self.clock = clock
        self.waking = ForkSafeLock()
        self.is_new = False
        self._leaves_log = place.is_local  # on AWS a MicroVM without an execution role leaves none
        self._changing = ForkSafeLock()
        self._verify_tls = settings.is_on("verify_tls", flag=verify_tls, environ=place.environ)
        self._stamp = records.stamp()
        self._resumed_at: float | None = None
        self._controls: dict[str, Control] = {}
        self._agents: dict[bool, AgentClient] = {}
        self._tokens: dict[str, TokenStore] = {}

    @property
    def microvm_id(self) -> str:
        """The MicroVM's id. A launch that was cut off before it was known is completed first."""
        return self.record.microvm_id or self.complete()

    def complete(self) -> str:
        """Complete a launch that was cut off, unless that is done; returns the MicroVM's id."""
        from . import launch

        with self.waking.held():
            if self.record.microvm_id is None:  # no other thread was faster
                done = launch.complete(
                    self.record, control=self.control(), registry=self.records, deadline=Deadline(CALL_SECONDS)
                )
                self._change(microvm_id=done.microvm_id, endpoint=done.endpoint, image_arn=done.image_arn, launch=None)
        assert self.record.microvm_id is not None
        return self.record.microvm_id

    @property
    def endpoint(self) -> str:
        """URL of the data plane. Asks the service only if no record has it."""
        if self.record.microvm_id is None:
            self.complete()  # which tells the endpoint, too
        endpoint = self.record.endpoint or self.look().endpoint
        return endpoint if "://" in endpoint else f"https://{endpoint}"

    @property
    def resumes_itself(self) -> bool:
        """Whether we know that a request is enough to resume it."""
        was_made_by_us = self.record.created_at is not None
        return self.record.auto_resume is not False and (was_made_by_us or self.state != names.UNKNOWN)

    def control(self, made: Control | None = None) -> Control:
        """The control plane, the local one started if need be; ``made`` is one that the caller has already."""
        found = self._controls.get("")
        if found is None:
            found = self._controls.setdefault(
                "", made or self.place.control(deadline=Deadline(CALL_SECONDS), start=False)
            )
        return found

    def agent(self, *, wakes: bool | None = None) -> AgentClient:
        """The client of the agent. Nothing is sent before it is used: the first request mints a token.

        Args:
            wakes: Whether it resumes the MicroVM that it finds suspended; None: as the sandbox does on use.
        """
        wakes = self.auto_resume if wakes is None else wakes
        found = self._agents.get(wakes)
        if found is None:
            found = self._agents.setdefault(wakes, self._connect(wakes))
        return found

    def wait_ready(self, *, deadline: Deadline) -> None:
        """Wait until the agent answers, resuming what is found suspended."""
        try:
            self.agent(wakes=True).wait_ready(deadline=deadline)
        except errors.WaitTimeoutError as error:
            if self.state != names.UNKNOWN:
                error.add_hint(f"Its MicroVM was last seen {self.state}.")
            if self.is_new:
                error.details["microvm_id"] = self.microvm_id
                error.add_hint(_AGENT_HINT.format(port=self.agent_port))
                self._tell_log(error, self.microvm_id)
            raise
        self.state = names.RUNNING
        self.is_new = False

    def catch_up(self) -> None:
        """See whether another process has stopped it on purpose since we looked, or resumed it."""
        stamp = self.records.stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            present = self.records.get(self.record.name)
        except errors.StateFileError:
            return  # that is a problem of whoever needs the name
        if present is None or not present.is_same_launch(self.record):
            return
        # The mark of a stop comes first, and the state once the service has taken the call.
        is_stop = present.stopped_at is not None and present.state_hint != self.record.state_hint
        if is_stop or present.stopped_at != self.record.stopped_at:
            self._change(stopped_at=present.stopped_at, state_hint=present.state_hint)
            self.state = present.state_hint or names.UNKNOWN

    def suspended(self) -> errors.SandboxSuspendedError:
        """The error for a use that must not resume it."""
        name = self.record.name
        how = "being suspended" if self.state == names.SUSPENDING else "suspended"
        return errors.SandboxSuspendedError(f"sandbox {name} is {how}", hint=f"Resume it first: vmnest start {name}")

    def ended(self, microvm: MicroVM) -> errors.MicroVMEndedError:
        """The error for a use of it once its MicroVM has ended."""
        from ..control import waiting

        microvm = waiting.until_explained(self.control().microvms, microvm, clock=self.clock)
        error = waiting.ended(microvm)
        if self.is_new:
            error.hint = _CMD_HINT if _STOPPED in (microvm.state_reason or "") else None
            self._tell_log(error, microvm.microvm_id)
            return error
        with contextlib.suppress(errors.StateFileError):  # that is a problem of whoever needs the name
            present = self.records.get(self.record.name)
            if present is not None and present.is_same_launch(self.record):
                error.add_hint(f"This forgets the old one's name: vmnest rm {self.record.name}")
        return error

    def _tell_log(self, error: errors.VmnestError, microvm_id: str) -> None:
        if self._leaves_log:
            local = " --local" if self.place.is_local else ""
            error.add_hint(f"What it printed: vmnest{local} logs {microvm_id}")

    def look(self, *, deadline: Deadline | None = None) -> MicroVM:
        """Ask the service. This never wakes a suspended MicroVM, and writes no record."""
        microvm = self.control().microvms.get(self.microvm_id, deadline=deadline or Deadline(CALL_SECONDS))
        self.see(microvm)
        return microvm

    @contextlib.contextmanager
    def telling_the_end(self) -> Iterator[None]:
        """A call that the service refuses because the MicroVM has ended is a MicroVMEndedError.

        What the service says is about the call; what the user needs to know is that the MicroVM has ended.
        """
        try:
            yield
        except (errors.ValidationError, errors.ConflictError) as error:
            microvm = self.look()
            if microvm.ended:
                raise self.ended(microvm) from error
            raise

    def see(self, microvm: MicroVM) -> None:
        """Take over what an answer of the service says."""
        if self.state not in names.ENDED_STATES or microvm.state == names.TERMINATED:
            self.state = microvm.state  # else another thread knows better: what has ended does not come back
        self._leaves_log = self.place.is_local or microvm.execution_role_arn is not None
        changes: dict[str, object] = {}
        if microvm.endpoint != self.record.endpoint:
            changes["endpoint"] = microvm.endpoint
        if microvm.idle_policy is not None and not microvm.idle_policy.auto_resume_enabled:
            changes["auto_resume"] = False
        if changes:
            self._change(**changes)

    def note(self, *, must_be_kept: bool = False, **changes: object) -> None:
        """Keep something for other processes, if the sandbox is recorded and is still the one that we know.

        Raises:
            errors.StateFileError: it cannot be written, and it ``must_be_kept``; else that is only logged.
        """
        self._change(**changes)
        try:
            present = self.records.get(self.record.name)
            if present is not None and present.is_same_launch(self.record):
                self.records.update(self.record.name, expected=self.record, **changes)
        except errors.SandboxNotFoundError:
            return  # removed, or replaced, just now
        except errors.StateFileError as error:
            if must_be_kept:
                raise
            _logger.warning("the state of sandbox %s is not recorded: %s", self.record.name, error)

    def _change(self, **changes: object) -> None:
        with self._changing.held():
            self.record = self.record.replace(**changes)

    @property
    def agent_port(self) -> int:
        """The agent's port in the guest."""
        from . import wishes

        return wishes.check_port(
            settings.number("agent_port", flag=self.record.agent_port, environ=self.place.environ),
            environ=self.place.environ,
        )

    @property
    def tokens(self) -> TokenStore:
        """The tokens that open the endpoint."""
        from ..agent import tokens

        return self._tokens.setdefault("", tokens.TokenStore(self._mint))

    def find_endpoint(self) -> str:
        """URL of the data plane as it is now.

        Here the port of a record may be another program's by now: a daemon that was killed had let go of it.
        """
        return self.look().endpoint if self.place.is_local else self.endpoint

    def _connect(self, wakes: bool) -> AgentClient:
        from .. import transport
        from ..agent import client

        port, store = self.agent_port, self.tokens

        def headers(refused: HeaderPairs | None) -> HeaderPairs:
            return store.headers(port, refused=refused)

        return client.AgentClient(
            self.find_endpoint(),
            headers=headers,
            transport=transport.shared(self.trust()),
            port=port,
            recover=functools.partial(self.recover, wakes=wakes),
            recover_asleep=functools.partial(self.recover, wakes=False),
            look=self._glance,
        )

    def trust(self) -> bool | str:
        """Whom to trust at the endpoint: the same as at the service, unless nobody is asked."""
        if self._verify_tls and not self.place.is_local:
            from ..aws import profiles

            return profiles.ca_bundle(environ=self.place.environ) or True
        return self._verify_tls

    def recover(self, error: errors.VmnestError, *, wakes: bool) -> str:
        """A request did not reach the guest: see what became of the MicroVM, wake it up, tell where it is now."""
        known = self.record.endpoint
        self.catch_up()
        microvm = self.look()
        if microvm.ended:
            raise self.ended(microvm) from error
        # Each use begins with taking the mark of a stop away: one that is there was made since, and is to hold.
        may_wake = wakes and self.record.stopped_at is None
        if microvm.state in names.SUSPENDED_STATES and not may_wake:
            raise self.suspended() from error
        if microvm.state == names.SUSPENDED:
            self._resume()
        if microvm.endpoint != known:
            self.note(endpoint=microvm.endpoint)
        return microvm.endpoint

    def _glance(self) -> str:
        """The state, for an error that is on its way already: better without it than late."""
        microvm = self.control().microvms.get(self.microvm_id, deadline=Deadline(GLANCE_SECONDS))
        self.see(microvm)
        return microvm.state

    def _mint(self, ports: Sequence[int]) -> Token:
        with self.telling_the_end():
            return self.control().mint_token(self.microvm_id, ports, deadline=Deadline(CALL_SECONDS))

    def _resume(self) -> None:
        """Many requests may find it suspended at one time: one call of the service is enough for them all."""
        now = self.clock.monotonic()
        with self._changing.held():
            if self._resumed_at is not None and now - self._resumed_at < RESUME_AGAIN_SECONDS:
                return
            self._resumed_at = now
        # A conflict passes: the request is repeated, and what is to be done is looked at again.
        with contextlib.suppress(errors.ConflictError):
            self.control().microvms.resume(self.microvm_id, deadline=Deadline(CALL_SECONDS))


def place_of(record: registry.Record, *, region: str | None = None) -> targets.Target:
    """The target that a record names."""
    return targets.resolve(local=record.is_local, region=region or record.region, arn=record.image_arn)
