"""A step that only reuses changes nothing, and an event without its step is the same event."""

from __future__ import annotations

import pytest

from vmnest.infra.steps import Event, Step


@pytest.mark.parametrize(
    ("action", "is_change"),
    [("create", True), ("update", True), ("delete", True), ("reuse", False), ("nothing", False)],
)
def test_which_steps_change_something(action: str, is_change: bool) -> None:
    assert Step("role", "iam-role", action, "x", "why").is_change is is_change


def test_an_event_is_the_same_with_and_without_its_step() -> None:
    step = Step("role", "iam-role", "create", "x", "why")
    assert Event("demo/dev", "role", "start", "why", step) == Event("demo/dev", "role", "start", "why")
