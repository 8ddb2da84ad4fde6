"""The gate: whoever implements it has all of it."""

from __future__ import annotations

import pytest

from vmnest.forward.gate import Gate
from vmnest.sandbox.forwarding import LinkGate

MEMBERS = [name for name in vars(Gate) if not name.startswith("_")]


def test_it_has_members() -> None:
    assert {"headers", "open", "recover", "check"} <= set(MEMBERS)


@pytest.mark.parametrize("name", MEMBERS)
def test_the_sandboxs_own_has_them_all(name: str) -> None:
    assert hasattr(LinkGate, name)
