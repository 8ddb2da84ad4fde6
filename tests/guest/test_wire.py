"""The agent protocol's names and limits, checked against themselves."""

from __future__ import annotations

from guest.agentd import wire
from vmnest._guest.agentd import wire as host_view


def constants() -> dict[str, object]:
    return {name: value for name, value in vars(wire).items() if name.isupper()}


def test_the_host_reads_the_same_file() -> None:
    assert constants() == {name: value for name, value in vars(host_view).items() if name.isupper()}


def test_no_two_error_codes_are_the_same() -> None:
    codes = [value for value in constants().values() if isinstance(value, str) and value.isidentifier()]
    assert len(codes) == len(set(codes))


def test_a_timeout_is_answered_within_a_second_after_it() -> None:
    assert wire.TERM_GRACE_SECONDS + wire.DRAIN_SECONDS < 1


def test_a_head_may_have_what_the_platforms_proxy_lets_through() -> None:
    assert wire.MAX_HEAD_BYTES >= 65536


def test_every_feature_is_named_once() -> None:
    assert len(wire.FEATURES) == len(set(wire.FEATURES))
