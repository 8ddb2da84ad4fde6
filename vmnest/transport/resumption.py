"""TLS sessions that are taken up again: a new connection to a known peer costs no certificate and no signature.

A session stands for the verification that the peer has passed when it was made: so each context has sessions of its
own, one for each name, and remembers one only once something was read, that is, once nobody has objected to the peer.
With TLS 1.3 it would come too early before, anyway. A peer that does not know the session any more, or is another one,
is verified as if there were none.
"""

from __future__ import annotations

import ssl
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["remember_sessions"]

MAX_NAMES = 64


def remember_sessions(context: ssl.SSLContext) -> None:
    """Have the sockets that ``context`` wraps offer the last session with their peer."""
    context.sslsocket_class = type("ResumingSocket", (_ResumingSocket,), {"_sessions": _Sessions()})


class _Sessions:
    """The last session with each peer. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[object, ssl.SSLSession] = {}  # the oldest first

    def get(self, peer: object) -> ssl.SSLSession | None:
        """The last one, if there is any."""
        return self._of.get(peer)

    def remember(self, peer: object, session: ssl.SSLSession) -> None:
        """Keep it instead of the last."""
        with self._lock:
            self._of.pop(peer, None)
            self._of[peer] = session
            if len(self._of) > MAX_NAMES:
                del self._of[next(iter(self._of))]

    def forget(self, peer: object) -> None:
        """Do not offer it again."""
        with self._lock:
            self._of.pop(peer, None)


class _ResumingSocket(ssl.SSLSocket):
    """Both methods are those through which all others of the class go."""

    _sessions: _Sessions
    _has_offered = False
    _has_remembered = False

    def do_handshake(self, block: bool = False) -> None:
        """See ``SSLSocket``."""
        if not self._has_offered:
            self._has_offered = True
            known = self._sessions.get(self._peer)
            if known is not None:
                self.session = known
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError:
            self._sessions.forget(self._peer)  # should it be the session that the peer cannot bear
            raise

    def read(self, len: int = 1024, buffer: WriteableBuffer | None = None) -> bytes:  # noqa: A002 - the name of the base's
        """See ``SSLSocket``."""
        data = super().read(len, buffer)
        if not self._has_remembered:
            self._has_remembered = True
            session = self.session  # a copy, each time
            if session is not None:
                self._sessions.remember(self._peer, session)
        return data

    @property
    def _peer(self) -> object:
        # urllib3 1.26 names no name where the peer is an address.
        return self.server_hostname or self.getpeername()
