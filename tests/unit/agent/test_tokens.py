"""Tokens: one mint for all who wait, early renewal, one replacement of a refused one."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.support.clock import FakeClock
from vmnest import errors
from vmnest.agent.tokens import HeaderPairs, TokenStore


@dataclass(frozen=True)
class Token:
    headers: HeaderPairs
    expires_at: float


class Mint:
    """Mints numbered tokens that live ``life`` seconds; may wait for ``gate`` first, or fail."""

    def __init__(self, clock: FakeClock, *, life: float = 3600.0) -> None:
        self.calls: list[tuple[int, ...]] = []
        self.gate: threading.Event | None = None
        self.failing = False
        self.started = threading.Event()
        self._clock = clock
        self._life = life

    def __call__(self, ports: tuple[int, ...]) -> Token:
        self.calls.append(ports)
        self.started.set()
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.failing:
            raise errors.ConnectError("no control plane")
        return Token([("X-aws-proxy-auth", f"token-{len(self.calls)}")], self._clock.time() + self._life)


def value(headers: HeaderPairs) -> str:
    ((name, text),) = headers
    assert name == "X-aws-proxy-auth"
    return text


@pytest.fixture
def mint(fake_clock: FakeClock) -> Mint:
    return Mint(fake_clock)


@pytest.fixture
def store(mint: Mint, fake_clock: FakeClock) -> TokenStore:
    return TokenStore(mint, clock=fake_clock)


def test_one_token_per_port_is_minted_on_first_need_and_used_again(mint: Mint, store: TokenStore) -> None:
    assert mint.calls == []
    assert [value(store.headers(port)) for port in (8080, 8080, 3000, 8080)] == [
        "token-1",
        "token-1",
        "token-2",
        "token-1",
    ]
    assert mint.calls == [(8080,), (3000,)]


@pytest.mark.parametrize(("life", "renewed_after"), [(3600.0, 3300.0), (60.0, 48.0), (2.0, 1.6)])
def test_a_token_is_renewed_in_the_last_part_of_its_life(
    fake_clock: FakeClock, life: float, renewed_after: float
) -> None:
    store = TokenStore(Mint(fake_clock, life=life), clock=fake_clock)
    store.headers(1)
    fake_clock.advance(renewed_after - 0.1)
    assert value(store.headers(1)) == "token-1"
    fake_clock.advance(0.2)
    assert value(store.headers(1)) == "token-2"


def test_twenty_threads_that_need_the_first_token_cause_one_mint(mint: Mint, store: TokenStore) -> None:
    mint.gate = threading.Event()
    with ThreadPoolExecutor(20) as pool:
        results = [pool.submit(store.headers, 8080) for _ in range(20)]
        assert mint.started.wait(10)
        mint.gate.set()
        assert {value(result.result(10)) for result in results} == {"token-1"}
    assert len(mint.calls) == 1


def test_twenty_threads_whose_token_was_refused_cause_one_mint(mint: Mint, store: TokenStore) -> None:
    old = store.headers(8080)
    mint.gate = threading.Event()
    with ThreadPoolExecutor(20) as pool:
        results = [pool.submit(store.headers, 8080, refused=old) for _ in range(20)]
        assert mint.started.wait(10)
        mint.gate.set()
        assert {value(result.result(10)) for result in results} == {"token-2"}
    assert value(store.headers(8080, refused=old)) == "token-2"
    assert len(mint.calls) == 2


def test_while_one_thread_renews_early_the_others_go_on_with_the_old_token(
    mint: Mint, store: TokenStore, fake_clock: FakeClock
) -> None:
    store.headers(8080)
    fake_clock.advance(3400)
    mint.started.clear()
    mint.gate = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        renewing = pool.submit(store.headers, 8080)
        assert mint.started.wait(10)
        assert value(store.headers(8080)) == "token-1"
        mint.gate.set()
        assert value(renewing.result(10)) == "token-2"
    assert value(store.headers(8080)) == "token-2"
    assert len(mint.calls) == 2


def test_a_failed_early_renewal_is_tried_again_later_while_the_old_token_is_used(
    mint: Mint, store: TokenStore, fake_clock: FakeClock
) -> None:
    store.headers(8080)
    fake_clock.advance(3400)
    mint.failing = True
    assert [value(store.headers(8080)) for _ in range(3)] == ["token-1"] * 3
    assert len(mint.calls) == 2
    fake_clock.advance(11)
    mint.failing = False
    assert value(store.headers(8080)) == "token-3"


def test_a_failed_mint_reaches_the_caller_when_there_is_no_token_to_use(
    mint: Mint, store: TokenStore, fake_clock: FakeClock
) -> None:
    store.headers(8080)
    fake_clock.advance(3601)
    mint.failing = True
    with pytest.raises(errors.ConnectError):
        store.headers(8080)
    mint.failing = False
    assert value(store.headers(8080)) == "token-3"


def test_a_forgotten_token_is_minted_anew(store: TokenStore) -> None:
    store.headers(8080)
    store.forget(8080)
    assert value(store.headers(8080)) == "token-2"


def test_no_representation_shows_a_token(store: TokenStore) -> None:
    store.headers(8080)
    assert "token-1" not in repr(store)
    assert "token-1" not in str(store.__dict__)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # a child of a threaded process is the case here
def test_a_forked_child_can_mint_although_its_parent_was_minting(mint: Mint, store: TokenStore) -> None:
    store.headers(1)
    mint.gate = threading.Event()
    mint.started.clear()
    with ThreadPoolExecutor(1) as pool:
        minting = pool.submit(store.headers, 8080)
        assert mint.started.wait(10)
        # The lock of port 8080 is held by a thread that the child does not have.
        child = os.fork()
        if child == 0:
            status = 1
            try:
                mint.gate = None
                known, fresh = value(store.headers(1)), value(store.headers(8080))
                status = 0 if (known, fresh) == ("token-1", "token-3") else 2
            finally:
                os._exit(status)
        mint.gate.set()
        minting.result(10)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
