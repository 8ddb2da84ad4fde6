"""Who calls a service of the account: signatures of requests whose whole body is there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timezone

from .. import deadline, rendezvous
from ..aws import signing
from ..wire import http1
from . import faults

# What a service answers to a signature that does not hold: kind of fault → error type and status.
Refusals = Mapping[str, tuple[str, int]]


class Callers:
    """Those who may call: whoever has the one key pair. Thread-safe."""

    def __init__(self, keys: rendezvous.Keys, *, clock: deadline.Clock = deadline.SYSTEM_CLOCK) -> None:
        self._secrets = {keys.access_key: signing.Secret(keys.secret_key)}
        self._clock = clock

    def check(self, request: http1.Request, body: bytes, *, service: str, refusals: Refusals) -> signing.Verified:
        """Verify a request that is signed for ``service``.

        Raises:
            faults.Fault: its signature does not hold.
        """
        try:
            return signing.verify(
                method=request.method,
                raw_target=request.target,
                headers=request.fields,
                body_sha256=hashlib.sha256(body).hexdigest(),
                secret_for=self._secrets.get,
                service=service,
                now=datetime.fromtimestamp(self._clock.time(), timezone.utc),
            )
        except signing.SignatureError as error:
            error_type, status = refusals[error.kind]
            raise faults.Fault(error.message, error_type=error_type, status=status) from error
