"""Members of answers."""

from __future__ import annotations

import pytest

from vmnest.cli import members


def test_a_list_gives_its_objects():
    assert members.items({"found": [{"name": "a"}, None, "b", {"name": "c"}]}, "found") == [
        {"name": "a"},
        {"name": "c"},
    ]


@pytest.mark.parametrize("data", [{}, {"found": None}, {"found": {"name": "a"}}, {"found": "abc"}])
def test_what_is_no_list_has_none(data):
    assert members.items(data, "found") == []


def test_a_failure_has_a_reason():
    assert members.reason({"name": "a", "error": {"code": "x", "message": "it is gone"}}) == "it is gone"
