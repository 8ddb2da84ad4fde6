"""Stacks for tests of infrastructure: a guest's folder, what is wanted of it, a store, and what the engine tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.clock import FakeClock
from tests.support.memory_account import Killed, MemoryAccount
from vmnest.deadline import Deadline
from vmnest.infra import stacks
from vmnest.infra.plan import Plan
from vmnest.infra.spec import EgressConfig, ImageConfig, Stack
from vmnest.infra.state import StackState, Store
from vmnest.infra.steps import Event, Step

SECONDS = 3600.0


class Bench:
    """One stack over an account in memory. Every method is an operation of its own, as another process would make it.

    Attributes:
        stack: What is wanted; tests replace it.
        account: What there is.
        events: What was told by the operations so far.
    """

    def __init__(self, folder: Path, *, stack: Stack, account: MemoryAccount) -> None:
        self.folder = folder
        self.stack = stack
        self.account = account
        self.events: list[Event] = []
        self.store = Store(str(folder / "infra-state.json"))
        self.clock = FakeClock()
        self.kind = "aws"

    def change(self, **changes: object) -> None:
        """Want something else."""
        self.stack = replace(self.stack, **changes)  # type: ignore[arg-type]

    def change_image(self, **changes: object) -> None:
        """Want another image."""
        self.change(image=replace(self.stack.image, **changes))  # type: ignore[arg-type]

    def write_guest(self, text: str, *, name: str = "program.py") -> None:
        """Change a file of the guest."""
        assert self.stack.image.guest_dir is not None
        Path(self.stack.image.guest_dir, name).write_text(text, encoding="utf-8")

    def preview(self, *, rebuild: bool = False) -> Plan:
        return stacks.preview(
            self.stack,
            target=self.account.target(kind=self.kind),  # type: ignore[arg-type]
            store=self.store,
            rebuild=rebuild,
            deadline=self._deadline(),
            clock=self.clock,
        )

    def up(self, *, rebuild: bool = False, on_plan: Callable[[Plan], None] | None = None) -> StackState:
        return stacks.up(
            self.stack,
            target=self.account.target(kind=self.kind),  # type: ignore[arg-type]
            store=self.store,
            rebuild=rebuild,
            on_plan=on_plan,
            on_event=self.events.append,
            deadline=self._deadline(),
            clock=self.clock,
        )

    def refresh(self) -> tuple[Step, ...]:
        return stacks.refresh(
            self.stack,
            target=self.account.target(kind=self.kind),  # type: ignore[arg-type]
            store=self.store,
            deadline=self._deadline(),
            clock=self.clock,
        )

    def destroy(self) -> tuple[Step, ...]:
        return stacks.destroy(
            self.stack,
            target=self.account.target(kind=self.kind),  # type: ignore[arg-type]
            store=self.store,
            on_event=self.events.append,
            deadline=self._deadline(),
            clock=self.clock,
        )

    def actions(self, *, rebuild: bool = False) -> dict[str, str]:
        """Resource → action, as a preview says it."""
        return {step.resource: step.action for step in self.preview(rebuild=rebuild).steps}

    def told(self, phase: str) -> list[str]:
        """What was told in that phase."""
        return [f"{event.resource}: {event.text}" for event in self.events if event.phase == phase]

    def recorded(self) -> StackState | None:
        return self.store.load(f"{self.stack.project}/{self.stack.stack}")

    @contextmanager
    def killed_at(self, number: int, *, is_done: bool) -> Iterator[None]:
        """The process ends at the call of that number which changes something: before its effect or right after."""
        until = self.account.changes + number

        def end(service: str, operation: str, after: bool) -> None:
            if after == is_done and self.account.changes >= until:
                raise Killed

        self.account.on_call = end
        try:
            yield
        finally:
            self.account.on_call = lambda service, operation, is_done: None

    def _deadline(self) -> Deadline:
        return Deadline(SECONDS, clock=self.clock)


def make_bench(folder: Path, *, account: MemoryAccount | None = None, project: str = "demo") -> Bench:
    """A bench with a small guest that wants an image alone."""
    guest = folder / f"guest-{project}"
    guest.mkdir()
    (guest / "Dockerfile").write_text('FROM scratch\nCOPY program.py /\nCMD ["sleep", "600"]\n', encoding="utf-8")
    (guest / "program.py").write_text("1\n", encoding="utf-8")
    stack = Stack(
        project=project,
        stack="dev",
        region="us-east-1",
        image=ImageConfig(name=f"{project}-guest", guest_dir=str(guest)),
        tags={"team": "a"},
        source="sandbox.yaml",
        folder=str(folder),
    )
    stack = replace(stack, role=replace(stack.role, name=f"{project}-exec"))
    return Bench(folder, stack=stack, account=account or MemoryAccount())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A stack without a network."""
    return make_bench(tmp_path)


@pytest.fixture
def network_bench(tmp_path: Path) -> Bench:
    """A stack with a connector."""
    made = make_bench(tmp_path)
    made.change(egress=EgressConfig(name="demo-egress", vpc_id="vpc-1"))
    return made
