"""How a Sandbox reaches its MicroVM: the control plane, the agent behind the endpoint, and what is known of both."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from .. import errors, registry, settings
from ..control import waiting
from ..deadline import Deadline
from ..wire import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..agent.client import AgentClient
    from ..agent.tokens import HeaderPairs
    from ..control import Control
    from ..control.microvms import MicroVM
    from ..control.tokens import Token
    from ..target import Target

__all__ = ["CALL_SECONDS", "Link", "check_port"]

CALL_SECONDS = 60.0  # one call of the control plane


class Link:
    """The connections of one sandbox, made when they are first needed.

    Safe for threads without a lock of its own, hence after ``fork`` too: what is known is replaced as a whole, and what
    is made lazily is stored by ``setdefault``, which is atomic.

    Attributes:
        record: What is recorded about the sandbox, as far as we know.
        records: Where it is recorded.
        place: The target that it is on.
        state: The state last seen.
    """

    def __init__(
        self, record: registry.Record, *, place: Target, records: registry.Registry, verify_tls: bool | None
    ) -> None:
        self.record = record
        self.records = records
        self.place = place
        self.state = record.state_hint or names.UNKNOWN
        self._verify_tls = settings.is_on("verify_tls", flag=verify_tls, environ=place.environ)
        self._controls: dict[str, Control] = {}
        self._agents: dict[str, AgentClient] = {}

    @property
    def microvm_id(self) -> str:
        """The MicroVM's id; MicroVMNotFoundError if the launch was cut off before it was known."""
        if self.record.microvm_id is None:
            raise errors.MicroVMNotFoundError(
                f"the launch of sandbox {self.record.name} was cut off: its MicroVM is not known",
                hint=f"Remove it, which also ends a MicroVM that was started: vmnest rm {self.record.name}",
            )
        return self.record.microvm_id

    @property
    def endpoint(self) -> str:
        """URL of the data plane. Asks the service only if no record has it."""
        endpoint = self.record.endpoint
        if not endpoint:
            return self.look().endpoint
        return endpoint if "://" in endpoint else f"https://{endpoint}"

    def control(self, made: Control | None = None) -> Control:
        """The control plane, the local one started if need be; ``made`` is one that the caller has already."""
        found = self._controls.get("")
        if found is None:
            found = self._controls.setdefault("", made or self.place.control(deadline=Deadline(CALL_SECONDS)))
        return found

    def agent(self) -> AgentClient:
        """The client of the agent. Nothing is sent before it is used: the first request mints a token."""
        found = self._agents.get("")
        if found is None:
            found = self._agents.setdefault("", self._connect())
        return found

    def look(self) -> MicroVM:
        """Ask the service. This never wakes a suspended MicroVM, and writes no record."""
        microvm = self.control().microvms.get(self.microvm_id, deadline=Deadline(CALL_SECONDS))
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
                raise waiting.ended(microvm) from error
            raise

    def see(self, microvm: MicroVM) -> None:
        """Take over what an answer of the service says."""
        self.state = microvm.state
        if microvm.endpoint != self.record.endpoint:
            self.record = self.record.replace(endpoint=microvm.endpoint)

    def note(self, **changes: object) -> None:
        """Keep something for other processes, if the sandbox is recorded and is still the one that we know."""
        present = self.records.get(self.record.name)
        if present is not None and present.is_same_launch(self.record):
            self.record = self.records.update(self.record.name, expected=self.record, **changes)
        else:
            self.record = self.record.replace(**changes)

    def _connect(self) -> AgentClient:
        from .. import transport
        from ..agent import client, tokens

        port = check_port(
            settings.number("agent_port", flag=self.record.agent_port, environ=self.place.environ),
            environ=self.place.environ,
        )
        store = tokens.TokenStore(self._mint)

        def headers(refused: HeaderPairs | None) -> HeaderPairs:
            return store.headers(port, refused=refused)

        return client.AgentClient(
            self.endpoint,
            headers=headers,
            transport=transport.shared() if self._verify_tls else transport.Transport(verify=False),
            port=port,
            recover=self._recover,
        )

    def _mint(self, ports: Sequence[int]) -> Token:
        with self.telling_the_end():
            return self.control().mint_token(self.microvm_id, ports, deadline=Deadline(CALL_SECONDS))

    def _recover(self, error: errors.VmnestError) -> str:
        """A request did not reach the agent: see what became of the MicroVM, wake it up, tell where it is now."""
        known = self.record.endpoint
        microvm = self.look()
        if microvm.ended:
            raise waiting.ended(microvm) from error
        if microvm.state == names.SUSPENDED:
            self.control().microvms.resume(self.microvm_id, deadline=Deadline(CALL_SECONDS))
        if microvm.endpoint != known:
            self.note(endpoint=microvm.endpoint)
        return microvm.endpoint


def check_port(port: int, *, environ: Mapping[str, str]) -> int:
    """The agent's port, or UsageError if it can be none: no token may ever open the port of the lifecycle hooks."""
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise errors.UsageError(f"the agent's port must be 1 to 65535: {port!r}")
    if port == settings.number("hook_port", environ=environ):
        raise errors.UsageError(
            f"port {port} is that of the lifecycle hooks, which nobody but the platform may reach",
            hint="AGENT_SANDBOX_AGENT_PORT and AGENT_SANDBOX_HOOK_PORT must be different ports.",
        )
    return port
