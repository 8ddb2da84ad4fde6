"""Tokens for one MicroVM's endpoint: minted on first need, renewed early, one mint for all who wait.

Rules:

- One token per port, never for all ports: a token that leaks opens one door.
- A token is renewed in the last part of its life. While the old one still works, only the thread that renews waits; the
  others go on with it. Once it has ended, they wait for the one mint.
- A token that the endpoint refused is replaced once: whoever comes with the same refused token gets the new one.
- Tokens live in memory only, and no representation shows them. A forked child keeps the tokens and makes its own locks,
  since its parent's may be held by threads that the child does not have.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from .. import errors
from ..deadline import SYSTEM_CLOCK, Clock

__all__ = ["HeaderPairs", "MintedToken", "TokenStore"]

# The last part of a token's life in which it is renewed: a fifth of it, at most this long.
RENEWAL_SECONDS = 300.0
RENEWAL_SHARE = 0.2
RETRY_RENEWAL_SECONDS = 10.0

HeaderPairs = Sequence[tuple[str, str]]

_logger = logging.getLogger(__name__)


class MintedToken(Protocol):
    """What a mint gives: the headers to send, and when they stop to work (seconds since the epoch)."""

    @property
    def headers(self) -> HeaderPairs: ...

    @property
    def expires_at(self) -> float: ...


class TokenStore:
    """The tokens of one MicroVM, by port. Safe for threads, and after ``fork``.

    Args:
        mint: Asks the control plane for a token that covers the given ports.
        clock: The time.
    """

    def __init__(self, mint: Callable[[tuple[int, ...]], MintedToken], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._mint = mint
        self._clock = clock
        self._pid = os.getpid()
        self._slots: dict[int, _Slot] = {}

    def headers(self, port: int, *, refused: HeaderPairs | None = None) -> HeaderPairs:
        """The headers that open ``port``.

        Args:
            port: The guest's port.
            refused: Headers that the endpoint has just refused: if they are still the newest, others are minted.
        """
        slot = self._slot(port)
        token = slot.token
        if token is None or self._is_useless(token, refused):
            return self._renew(slot, port, refused).headers
        if self._clock.time() >= slot.renew_at and slot.lock.acquire(blocking=False):
            try:
                self._renew_early(slot, port)
            finally:
                slot.lock.release()
        return (slot.token or token).headers

    def forget(self, port: int) -> None:
        """Mint anew at the next use of that port."""
        self._slot(port).token = None

    def _is_useless(self, token: MintedToken, refused: HeaderPairs | None) -> bool:
        was_refused = refused is not None and tuple(token.headers) == tuple(refused)
        return was_refused or self._clock.time() >= token.expires_at

    def _renew(self, slot: _Slot, port: int, refused: HeaderPairs | None) -> MintedToken:
        """Wait for the one mint. The lock's holder is the only one who mints for this port."""
        with slot.lock:
            token = slot.token
            if token is None or self._is_useless(token, refused):
                token = self._fill(slot, port)
            return token

    def _renew_early(self, slot: _Slot, port: int) -> None:
        """Called with the slot's lock held. A failure is no one's problem while the old token works."""
        now = self._clock.time()
        if now < slot.renew_at:
            return  # another thread was faster
        slot.renew_at = now + RETRY_RENEWAL_SECONDS
        try:
            self._fill(slot, port)
        except errors.VmnestError as error:
            _logger.info("a token was not renewed early, its predecessor is used on: %s", error)

    def _fill(self, slot: _Slot, port: int) -> MintedToken:
        asked_at = self._clock.time()
        token = self._mint((port,))
        life = token.expires_at - asked_at
        slot.renew_at = token.expires_at - min(RENEWAL_SECONDS, life * RENEWAL_SHARE)
        slot.token = token
        return token

    def _slot(self, port: int) -> _Slot:
        if self._pid != os.getpid():
            self._slots = {number: slot.without_lock() for number, slot in self._slots.items()}
            self._pid = os.getpid()
        # setdefault is atomic: all threads get the same slot, with the same lock.
        return self._slots.setdefault(port, _Slot())


class _Slot:
    """One port's token. ``lock`` is held by the thread that mints; reading ``token`` needs no lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.token: MintedToken | None = None
        self.renew_at = 0.0

    def without_lock(self) -> _Slot:
        """A copy for a forked child."""
        copy = _Slot()
        copy.token, copy.renew_at = self.token, self.renew_at
        return copy
